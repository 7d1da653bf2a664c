"""The HTTP client of webhooks: follows redirects of the same method, reads the beginning of the response.

It has connections of its own. It uses no proxy, because a proxy would resolve the name itself. The sender imports this
module with the first message, because aiohttp would be a third of the start of a service that sends none.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from bide.server.webhooks.addresses import Addresses, AddressRejected, check_url, literal
from bide.server.webhooks.sender import SendOutcome, read_retry_after

RESPONSE_BYTES = 1024
MAX_REDIRECTS = 3
_REDIRECTS = (307, 308)  # the others would change the method


class CheckedResolver(AbstractResolver):
    """The resolver of the HTTP client."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return await self._addresses.resolve(host, port, family)

    async def close(self) -> None:
        return


class WebhookClient:
    """Sends requests to addresses that webhooks may reach. `now`: epoch seconds, for dates in Retry-After."""

    def __init__(self, addresses: Addresses, now: Callable[[], float]) -> None:
        self._addresses = addresses
        self._now = now
        connector = aiohttp.TCPConnector(
            resolver=CheckedResolver(addresses),
            use_dns_cache=False,
            limit=0,
            socket_factory=addresses.make_socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("accept", "accept-encoding"),
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def close(self) -> None:
        await self._session.close()

    async def post(self, url: str, headers: dict[str, str], body: bytes) -> SendOutcome:
        try:
            return await self._follow(url, headers, body)
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return SendOutcome(0.0, error=_reason(error))

    async def _follow(self, url: str, headers: dict[str, str], body: bytes) -> SendOutcome:
        for _ in range(MAX_REDIRECTS + 1):
            host, _ = check_url(url)
            address = literal(host)
            if address is not None:
                self._addresses.check(address)
            async with self._session.post(
                url, data=body, headers=headers, allow_redirects=False
            ) as response:
                target = response.headers.get("location")
                if response.status not in _REDIRECTS or target is None:
                    return SendOutcome(
                        0.0,
                        response.status,
                        await _beginning(response),
                        retry_after=read_retry_after(response.headers.get("retry-after"), self._now()),
                    )
                following = str(response.url.join(URL(target)))
                if url.startswith("https:") and not following.startswith("https:"):
                    raise ValueError("the endpoint redirects from https to http")
                url = following
        raise ValueError(f"the endpoint redirects more than {MAX_REDIRECTS} times")


async def _beginning(response: aiohttp.ClientResponse) -> str:
    """The first RESPONSE_BYTES of the response. A longer one closes the connection."""
    found = b""
    while len(found) < RESPONSE_BYTES:
        some = await response.content.read(RESPONSE_BYTES - len(found))
        if not some:
            break
        found += some
    if not response.content.at_eof():
        response.close()
    # PostgreSQL stores no NUL.
    return found.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _reason(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AddressRejected):
            return str(cause)
        cause = cause.__cause__ or getattr(cause, "os_error", None)
    return f"{type(error).__name__}: {error}"[:500]
