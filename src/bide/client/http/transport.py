"""Connections to any host over aiohttp: one keep-alive session per client.

Invariants:
1. `exchange` returns an Answer of any status, or raises ServiceUnreachable, UnusableService or SetupError. It raises
   no error of aiohttp.
2. It follows no redirect and adds no credential: see `sender`.
3. `requests` counts every request, also one that fails.
4. No answer needs more memory than LARGEST, whatever its headers say.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, NoReturn
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from bide.client.apis.answers import Answer
from bide.client.apis.values import without_credentials
from bide.client.client_tracer import RequestTracer
from bide.client.http.addresses import loopback, proxy_for
from bide.core.errors import ServiceUnreachable, SetupError, UnusableService
from bide.core.wire.http import JSON_TYPE

CONNECT_TIMEOUT = 10.0
ANSWER_TIMEOUT = 30.0  # beyond the seconds that the service is asked to hold the request
CHUNK = 256 * 1024
LARGEST = 16 * 1024 * 1024  # bytes of an answer that is read as a whole
# Polls have no timer of their own: one sweeper ends those that hang (see `polling.poller`).
NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)


def time_limit(hold: float) -> aiohttp.ClientTimeout:
    """Of a request that the service is asked to hold for `hold` seconds."""
    return aiohttp.ClientTimeout(total=hold + ANSWER_TIMEOUT, sock_connect=CONNECT_TIMEOUT)


def silence_limit(hold: float = 0.0) -> aiohttp.ClientTimeout:
    """Of a body of any size: only the time without a byte is limited."""
    return aiohttp.ClientTimeout(
        total=None, sock_connect=CONNECT_TIMEOUT, sock_read=hold + ANSWER_TIMEOUT
    )


class _Route:
    """How to reach an origin: options and headers of the request, e.g. for a proxy."""

    __slots__ = ("_authority", "_length", "_scheme", "answered", "headers", "options")

    def __init__(self, origin: str, options: dict[str, Any], headers: dict[str, str]) -> None:
        self._scheme, _, self._authority = origin.partition("://")
        self._length = len(origin)
        self.options = options
        self.headers = headers
        self.answered = False  # this origin has sent an HTTP answer

    def url(self, text: str) -> URL:
        """A URL of this origin. Parsing the whole text would take more than twice as long."""
        path, _, query = text[self._length :].partition("?")
        if not path or "#" in text:
            return URL(text, encoded=True)
        return URL.build(
            scheme=self._scheme,
            authority=self._authority,
            path=path,
            query_string=query,
            encoded=True,
        )


class Download(Answer):
    """A success whose body is read in chunks. The caller closes it."""

    __slots__ = ("_response", "_transport")

    def __init__(self, response: aiohttp.ClientResponse, url: str, transport: Transport) -> None:
        super().__init__(response.status, response.headers, b"", url)
        self._response = response
        self._transport = transport

    async def chunks(self) -> AsyncGenerator[bytes]:
        """ServiceUnreachable if the body ends too early. Errors of the calling code are not changed."""
        chunks = self._response.content.iter_chunked(CHUNK)
        while True:
            try:
                chunk = await anext(chunks, b"")
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._transport.fail(error, self.url)
            if not chunk:
                return
            yield chunk

    def close(self) -> None:
        self._response.close()


class Transport:
    """The connections of one client. `service`: its address should be that of a bide service."""

    def __init__(self, service: bool = False) -> None:
        self.requests = 0
        # Requests that the API rejected because there were too many; `sender` counts them.
        self.refused = 0
        self.tracer: RequestTracer | None = None  # makes a span of each request
        self._service = service
        self._session: aiohttp.ClientSession | None = None
        self._context: ssl.SSLContext | None = None
        self._routes: dict[str, _Route] = {}

    async def exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | AsyncIterator[bytes] = b"",
        *,
        only: str = "",
        timeout: aiohttp.ClientTimeout = NO_TIMEOUT,
        stream: bool = False,
    ) -> Answer:
        """Send one request. With `stream`, a success is a Download.

        With `only`, a body whose content type does not contain this text is not read.
        """
        session = self._session or self._open()
        route = self._route_to(url)
        if route.headers:
            headers = {**headers, **route.headers}
        self.requests += 1
        try:
            response = await session._request(
                method,
                route.url(url),
                headers=headers,
                data=body or None,
                allow_redirects=False,
                timeout=timeout,
                **route.options,
            )
            route.answered = True
            try:
                if stream and 200 <= response.status < 300:
                    return Download(response, url, self)
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
                raise SetupError(f"{without_credentials(url)!r} is not a URL") from None
            self.fail(error, url)

    def fail(self, error: Exception, url: str) -> NoReturn:
        """Raise an error of aiohttp as one of the client's."""
        what = _reason(error)
        host = "/".join(url.split("/", 3)[:3])
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
        local = self._service and loopback(urlsplit(url).hostname or "")
        hint = "; is `bide serve` running there?" if local else ""
        failure = ServiceUnreachable(f"no answer from {without_credentials(host)}: {what}{hint}")
        failure.connected = not isinstance(
            error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
        )
        raise failure from None

    def _open(self) -> aiohttp.ClientSession:
        """Called by the first request, because a session belongs to the running event loop."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            headers={"Accept": JSON_TYPE},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        # By default aiohttp repeats a GET whose connection broke, immediately and without counting it.
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
            headers = {} if secure else proof
            route = self._routes[origin] = _Route(origin, options, headers)
        return route

    def _trust(self) -> ssl.SSLContext:
        """OpenSSL reads SSL_CERT_FILE when a context is made, so that is not done when aiohttp is imported. Making one
        takes as long as many requests, so it is done only for https."""
        if self._context is None:
            self._context = ssl.create_default_context()
        return self._context

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    """The body, up to LARGEST. The connection of a longer one is closed."""
    length = response.content_length
    if length is not None and length <= CHUNK and "Content-Encoding" not in response.headers:
        content = response.content
        # Most answers have arrived as a whole, and their connection is free again.
        return content.read_nowait() if content.is_eof() else await response.read()
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
        raise aiohttp.ClientPayloadError(f"the response is larger than {LARGEST >> 20} MiB")
    return b"".join(parts)


def _reason(error: Exception) -> str:
    """In plain words, without the parts of an error of aiohttp that only its authors understand."""
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(
        error.os_error, ConnectionRefusedError
    ):
        return "connection refused: no program listens there"
    return str(error) or type(error).__name__


def _unusable(error: Exception, host: str) -> UnusableService | None:
    """A permanent failure: a certificate that is not trusted, or a port that does not speak TLS or HTTP."""
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
            return None  # the connection broke
        reason = str(getattr(cause, "reason", None) or cause)
        if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
            detail = f"{host} does not speak TLS. Write http:// in the address, or correct the port"
        else:
            detail = f"there is no TLS connection to {host}: {reason}. Correct the address, or its TLS settings"
        return UnusableService("tls-failed", detail)
    if isinstance(error, aiohttp.ClientResponseError) and error.message.startswith("Bad status line"):
        line = " ".join(error.message.split())[:200]
        if "b'\\x15\\x03" in line:
            return UnusableService("not-http", f"{host} speaks TLS. Write https:// in the address")
        return UnusableService(
            "not-http", f"{host} does not speak HTTP: {line}. Correct the address or the port"
        )
    return None
