"""Sends one message to an endpoint: signs it, follows redirects of the same method, reads the beginning of the response.

The client has connections of its own. It uses no proxy, because a proxy would resolve the name itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec
from yarl import URL

from bide.server.webhooks.addresses import (
    Addresses,
    AddressRejected,
    CheckedResolver,
    check_url,
    literal,
)
from bide.server.webhooks.signature import sign

RESPONSE_BYTES = 1024
MAX_REDIRECTS = 3
_REDIRECTS = (307, 308)  # the others would change the method
_HEADERS = {"content-type": "application/json", "user-agent": "bide-webhooks"}


class SendOutcome(msgspec.Struct, frozen=True):
    """The result of an attempt. It has an error, or the status of the response."""

    seconds: float
    status: int | None = None
    response: str = ""
    error: str | None = None
    retry_after: float | None = None  # seconds

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class WebhookSender:
    """An HTTP client for webhooks. `now` is the time that the signature contains."""

    def __init__(self, addresses: Addresses, timeout: float, now: Callable[[], float]) -> None:
        self._addresses = addresses
        self._timeout = timeout
        self._now = now
        self._session: aiohttp.ClientSession | None = None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=CheckedResolver(self._addresses),
                use_dns_cache=False,
                limit=0,
                socket_factory=self._addresses.make_socket,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("accept", "accept-encoding"),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, url: str, secrets: Sequence[str], message_id: str, body: bytes) -> SendOutcome:
        timestamp = int(self._now())
        headers = {
            **_HEADERS,
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(secrets, message_id, timestamp, body),
        }
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                outcome = await self._follow(url, headers, body)
        except TimeoutError:
            outcome = SendOutcome(0.0, error=f"no response within {self._timeout:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            outcome = SendOutcome(0.0, error=_reason(error))
        return msgspec.structs.replace(outcome, seconds=round(time.monotonic() - started, 6))

    async def _follow(self, url: str, headers: dict[str, str], body: bytes) -> SendOutcome:
        for _ in range(MAX_REDIRECTS + 1):
            host, _ = check_url(url)
            address = literal(host)
            if address is not None:
                self._addresses.check(address)
            async with self._client().post(
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


def read_retry_after(text: str | None, now: float) -> float | None:
    """Seconds, or an HTTP date; None if it is neither."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (TypeError, ValueError, OverflowError):
        return None
