"""Requests over aiohttp: one pooled keep-alive session a client.

Invariants:
1. What comes out of `send` is an Answer of status 2xx or 304, a ServiceError or a ServiceUnreachable; of `exchange` an
   Answer of any status, a ServiceUnreachable or an UnusableService. Nothing of aiohttp's comes out.
2. The key goes into the Authorization header, to the service's own origin, and nowhere else: into no error, no log and
   no repr, and to nobody that a redirect leads to.
3. Every request that is sent counts, whatever becomes of it.
4. No answer takes more memory than LARGEST, whatever its headers say.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from bide.client.apis.answers import UNREADABLE, Answer
from bide.client.apis.values import absolute, origin, without_credentials
from bide.client.http.addresses import loopback, proxy_for, split_credentials
from bide.client.http.content import Content, Flow
from bide.core.errors import (
    BideError,
    ServiceError,
    ServiceUnreachable,
    SetupError,
    UnusableService,
)
from bide.core.wire import JSON_TYPE, encode

CONNECT_TIMEOUT = 10.0
ANSWER_TIMEOUT = 30.0  # beyond the time that the service was asked to hold the request
CHUNK = 256 * 1024
LARGEST = 16 * 1024 * 1024  # of an answer that is read as a whole
REDIRECTS = 5
SHORTEST_SECRET = 6  # characters; a shorter one would be found everywhere

Params = Sequence[tuple[str, str]]


class _Route:
    """How to get to an origin: options of the request and headers, for a proxy where there is one."""

    __slots__ = ("answered", "headers", "options")

    def __init__(self, options: dict[str, Any], headers: dict[str, str]) -> None:
        self.options = options
        self.headers = headers
        self.answered = False  # an HTTP answer has come from there


class Body:
    """An answer whose body comes in chunks; `fail` says in our words what broke on the way."""

    def __init__(self, response: aiohttp.ClientResponse, fail: Callable[[Exception], NoReturn]) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._fail = fail

    async def chunks(self) -> AsyncIterator[bytes]:
        """ServiceUnreachable when it ends too early. What goes wrong with who reads is not ours to explain."""
        chunks = self._response.content.iter_chunked(CHUNK)
        while True:
            try:
                chunk = await anext(chunks, b"")
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._fail(error)
            if not chunk:
                return
            yield chunk

    async def whole(self) -> bytes:
        try:
            return await _whole(self._response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._fail(error)


class Redirected(BideError):
    """A whole address leads elsewhere; whoever gave it decides what may be sent there."""

    def __init__(self, location: str | None) -> None:
        super().__init__(location)
        self.location = location


class Transport:
    """Sends requests to one service, or, without an address of its own, to any."""

    def __init__(
        self, url: str = "", key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        parts = urlsplit(url)
        if not url:
            pass
        elif parts.scheme not in ("http", "https") or not parts.hostname:
            raise SetupError(
                f"{without_credentials(url)!r} is not the address of a service: write http://HOST:PORT"
            )
        self.url = url.rstrip("/")
        self.requests = 0
        self._address, self._proof = split_credentials(self.url)
        if key:
            self._proof["Authorization"] = f"Bearer {key}"
        self._proof.update(headers or {})
        self._session: aiohttp.ClientSession | None = None
        self._context: ssl.SSLContext | None = None
        self._routes: dict[str, _Route] = {}

    def __repr__(self) -> str:
        return f"Transport({without_credentials(self.url)!r})"

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Params = (),
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        hold: float = 0.0,
    ) -> Answer:
        """One request, one Answer; `hold` is how long the service was asked to keep it open."""
        timeout = aiohttp.ClientTimeout(total=hold + ANSWER_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
        body = None
        if json is not None:
            body, headers = encode(json), {"Content-Type": JSON_TYPE, **(headers or {})}
        async with self._request(method, path, params, body, headers, timeout) as response:
            return await self._answer(response)

    async def send_content(
        self,
        method: str,
        path: str,
        content: Content,
        headers: Mapping[str, str],
        hold: float = 0.0,
    ) -> Answer:
        """The same with a body of any size, however long that takes as long as the connection takes bytes.

        What keeps the body from being made is raised as it is.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT, sock_read=hold + ANSWER_TIMEOUT
        )
        sized = {"Content-Length": str(content.size), **headers}
        try:
            async with asyncio.timeout(None) as scope:
                flow = Flow(content, scope)
                try:
                    async with self._request(method, path, (), flow, sized, timeout) as response:
                        return await self._answer(response)
                except (ServiceUnreachable, UnusableService) as error:
                    raise flow.error or error from None
                finally:
                    flow.close()
        except TimeoutError as error:
            self._unreachable(error, self._address + path)

    async def _answer(self, response: aiohttp.ClientResponse) -> Answer:
        body = await _whole(response)
        if response.status >= 400:
            body = self._clean(body)
            raise Answer(response.status, response.headers, body, str(response.url)).problem()
        return Answer(response.status, response.headers, body, str(response.url))

    def path_of(self, location: str | None, url: str) -> str | None:
        """What `send` takes for an address that an answer from `url` has named; None when it named none."""
        found = absolute(url, location)
        if found is not None and found.startswith(self._address + "/"):
            return found.removeprefix(self._address)
        return found

    def same_origin(self, url: str) -> bool:
        """Whether this is a path of the service, or an address with its scheme, host and port."""
        return url.startswith("/") or origin(url) == origin(self._address)

    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", only: str = ""
    ) -> Answer:
        """One request to any address, one Answer of any status; no redirect is followed, and no time is kept.

        With `only`, a body whose content type does not contain it is not read.
        """
        session = self._session or self._open()
        route = self._route_to(url)
        if route.headers:
            headers = {**headers, **route.headers}
        self.requests += 1
        try:
            response = await session._request(
                method,
                URL(url, encoded=True),  # whoever made it has seen to that
                headers=headers,
                data=body or None,
                allow_redirects=False,
                timeout=_NO_TIMEOUT,
                **route.options,
            )
            route.answered = True
            try:
                if only and only not in response.content_type:
                    response.close()
                    return Answer(response.status, response.headers, b"", url)
                return Answer(response.status, response.headers, await _whole(response), url)
            except BaseException:
                response.close()
                raise
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if isinstance(error, aiohttp.InvalidURL) or not isinstance(
                error, aiohttp.ClientError | OSError
            ):
                raise SetupError(f"{without_credentials(url)!r} is not an address") from None
            self._unreachable(error, url)

    async def stream(
        self,
        path: str,
        *,
        offset: int = 0,
        headers: Mapping[str, str] | None = None,
        heard: dict[str, str] | None = None,
    ) -> AsyncIterator[bytes]:
        """The body in chunks, from `offset` on; however long it takes as long as bytes come.

        `path` is one of this service, or a whole address. The answer's headers are put into `heard`.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT, sock_read=ANSWER_TIMEOUT
        )
        wanted = dict(headers or {})
        if offset:
            wanted["Range"] = f"bytes={offset}-"
        async with self._request("GET", path, (), None, wanted, timeout) as response:
            if response.status >= 400:
                content = await _whole(response)
                raise Answer(response.status, response.headers, content, str(response.url)).problem()
            if heard is not None:
                heard.update(response.headers)
            if offset and response.status != 206:
                await response.content.readexactly(
                    offset
                )  # ranges are not known here: skip what we have
            async for chunk in response.content.iter_chunked(CHUNK):
                yield chunk

    @asynccontextmanager
    async def opened(self, url: str, headers: Mapping[str, str]) -> AsyncIterator[Body]:
        """The answer to a GET of any address and status, its body still to come; no redirect is followed."""
        session = self._session or self._open()
        route = self._route_to(url)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT, sock_read=ANSWER_TIMEOUT
        )
        self.requests += 1
        try:
            response = await session._request(
                "GET",
                URL(url, encoded=True),
                headers={**headers, **route.headers},
                allow_redirects=False,
                timeout=timeout,
                **route.options,
            )
            route.answered = True
        except aiohttp.InvalidURL:
            raise SetupError(f"{without_credentials(url)!r} is not an address") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._unreachable(error, url)
        try:
            yield Body(response, lambda error: self._unreachable(error, url))
        finally:
            response.close()

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        params: Params,
        body: bytes | Flow | None,
        headers: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        own = path.startswith("/")
        url = self._address + path if own else path
        sent = {**(self._proof if own else {}), **(headers or {})}
        session = self._session or self._open()
        try:
            for _ in range(REDIRECTS + 1):
                self.requests += 1
                route = self._route_to(url)
                async with session.request(
                    method,
                    url,
                    params=params,
                    data=body.chunks() if isinstance(body, Flow) else body,
                    headers={**sent, **route.headers},
                    timeout=timeout,
                    allow_redirects=False,
                    **route.options,
                ) as response:
                    route.answered = True
                    if not 301 <= response.status <= 308 or response.status == 304:
                        yield response
                        return
                    location = response.headers.get("Location")
                    if not own:
                        raise Redirected(location)
                    url, params = self._led(response, location), ()
                    if method not in ("GET", "HEAD") and not self.same_origin(url):
                        raise redirected_elsewhere(response.status, method, url)
                    if response.status <= 303 and method != "HEAD":
                        method, body = "GET", None
                        sent.pop("Content-Length", None)
                    if not self.same_origin(url):  # nothing of ours is meant for them
                        sent = {name: sent[name] for name in sent if name not in self._proof}
            raise ServiceError(
                310, {"code": "redirect-loop", "title": "The service redirects in a circle"}
            )
        except aiohttp.InvalidURL:
            raise SetupError(
                f"{without_credentials(self.url)!r} is not the address of a service"
            ) from None
        except (aiohttp.ClientError, asyncio.IncompleteReadError, TimeoutError, OSError) as error:
            self._unreachable(error, url)

    def _led(self, response: aiohttp.ClientResponse, location: str | None) -> str:
        url = absolute(str(response.url), location)
        if url is None:
            title = "The service redirects to nowhere"
            raise ServiceError(
                response.status, {"code": "redirect-nowhere", "title": title}, str(response.url)
            )
        return url

    def _clean(self, body: bytes) -> bytes:
        """A refusal may repeat the key that it refuses."""
        for name, value in self._proof.items():
            secret = value.rpartition(" ")[2].encode()
            if name == "Authorization" and len(secret) >= SHORTEST_SECRET:
                body = body.replace(secret, b"[hidden]")
        return body

    def _unreachable(self, error: Exception, url: str) -> NoReturn:
        what = (
            "it took too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        )
        host = self.url if self.url and url.startswith(self.url) else "/".join(url.split("/", 3)[:3])
        answered = self._route_to(url).answered
        unusable = None if answered else _unusable(error, without_credentials(host))
        if unusable is not None:
            raise unusable from None
        if (
            not answered
            and isinstance(error, aiohttp.ServerDisconnectedError)
            and url.startswith("http:")
        ):
            what += "; if it speaks TLS, write https://"
        hint = "; is `bide serve` running there?" if loopback(urlsplit(url).hostname or "") else ""
        told = ServiceUnreachable(f"no answer from {without_credentials(host)}: {what}{hint}")
        told.connected = not isinstance(
            error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
        )
        raise told from None

    def _open(self) -> aiohttp.ClientSession:
        """Made with the first request, for a session belongs to the loop that runs then."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            headers={"Accept": JSON_TYPE},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        # By itself aiohttp sends a GET again whose connection broke, at once and uncounted; backing off is ours.
        self._session._retry_connection = False
        return self._session

    def _route_to(self, url: str) -> _Route:
        start = url.find("/", 8)
        origin = url if start < 0 else url[:start]
        route = self._routes.get(origin)
        if route is None:
            proxy, credentials = proxy_for(url)
            proof = {"Proxy-Authorization": credentials} if credentials else {}
            secure = url.startswith("https:")
            options: dict[str, Any] = {"proxy": proxy} if proxy else {}
            if secure:
                options["ssl"] = self._trust()
                if proof:
                    options["proxy_headers"] = proof
            route = self._routes[origin] = _Route(options, {} if secure else proof)
        return route

    def _trust(self) -> ssl.SSLContext:
        """OpenSSL reads SSL_CERT_FILE when a context is made, so one is made here and not when aiohttp was imported; and
        only where it is needed, for that takes as long as many requests."""
        if self._context is None:
            self._context = ssl.create_default_context()
        return self._context

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    """The body, up to LARGEST; a longer one is cut off with its connection."""
    length = response.content_length
    if length is not None and length <= CHUNK and "Content-Encoding" not in response.headers:
        return await response.read()
    parts: list[bytes] = []
    size = length or 0
    if size <= LARGEST:
        size = 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > LARGEST:
                break
            parts.append(part)
    if size > LARGEST:
        response.close()
        raise aiohttp.ClientPayloadError(f"the answer is larger than {LARGEST >> 20} MiB")
    return b"".join(parts)


def _unusable(error: Exception, host: str) -> UnusableService | None:
    """What no retry mends: a certificate that is not trusted, or a port that does not speak TLS or HTTP."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = error.certificate_error
        reason = getattr(found, "verify_message", "") or str(found)
        detail = (
            f"the certificate of {host} is not trusted: {reason}. Correct the address, or set SSL_CERT_FILE to the "
            "certificate of the authority that signed it"
        )
        return UnusableService("certificate-not-trusted", detail)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        cause = error.os_error
        if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
            return None  # cut off on the way
        reason = str(getattr(cause, "reason", None) or cause)
        if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
            detail = f"{host} does not speak TLS. Write http:// in the address, or correct the port"
        else:
            detail = f"there is no TLS connection to {host}: {reason}. Correct the address, or its TLS settings"
        return UnusableService("tls-failed", detail)
    if isinstance(error, aiohttp.ClientResponseError) and error.message.startswith("Bad status line"):
        said = " ".join(error.message.split())[:200]
        if "b'\\x15\\x03" in said:
            return UnusableService("not-http", f"{host} speaks TLS. Write https:// in the address")
        return UnusableService(
            "not-http", f"{host} does not speak HTTP: {said}. Correct the address or the port"
        )
    return None


def redirected_elsewhere(status: int, method: str, url: str) -> ServiceError:
    """A request that does something, or has a body, is not repeated at an origin that nobody named."""
    goal = "/".join(url.split("/", 3)[:3])
    detail = (
        f"the answer redirects this {method} to {without_credentials(goal)}, and the client sends no {method} to another "
        "origin. If that is the right address, use it as the URL: --url, or `url` in the description"
    )
    return ServiceError(status, {"code": "redirect-elsewhere", "detail": detail})


def transient(error: ServiceError | ServiceUnreachable) -> bool:
    """Whether the same request may well succeed later."""
    if isinstance(error, ServiceUnreachable):
        return True
    return error.status >= 500 or error.status in (408, 425, 429) or error.code == UNREADABLE
