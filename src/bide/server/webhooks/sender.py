"""Signs a message and sends it to an endpoint, within a time limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from bide.server.webhooks.addresses import Addresses
from bide.server.webhooks.signature import sign

if TYPE_CHECKING:
    from bide.server.webhooks.http_client import WebhookClient

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
    """Sends webhooks. `now` is the time that the signature contains."""

    def __init__(self, addresses: Addresses, timeout: float, now: Callable[[], float]) -> None:
        self._addresses = addresses
        self._timeout = timeout
        self._now = now
        self._client: WebhookClient | None = None

    async def _opened(self) -> WebhookClient:
        if self._client is None:
            # In a thread, so that the event loop can answer requests meanwhile.
            make = await asyncio.to_thread(_load_client)
            if self._client is None:  # another message may have opened it meanwhile
                self._client = make(self._addresses, self._now)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def send(
        self,
        url: str,
        secrets: Sequence[str],
        message_id: str,
        body: bytes,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> SendOutcome:
        """`more` are further headers."""
        timestamp = int(self._now())
        headers = {
            **_HEADERS,
            **more,
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(secrets, message_id, timestamp, body),
        }
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                outcome = await (await self._opened()).post(url, headers, body)
        except TimeoutError:
            outcome = SendOutcome(0.0, error=f"no response within {self._timeout:g} s")
        return msgspec.structs.replace(outcome, seconds=round(time.monotonic() - started, 6))


def _load_client() -> type[WebhookClient]:
    from bide.server.webhooks.http_client import WebhookClient

    return WebhookClient


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
