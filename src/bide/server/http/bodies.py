"""Bodies that are read as they arrive, at the pace at which they are put away.

Whoever asks for one gets other limits than for a request that is held in memory: any size, but not any slowness.
"""

from __future__ import annotations

from bide.core.errors import UnsupportedMedia, WrongLength
from bide.server.http.exchange import Disconnected, Request

# In a scope of our own server: told that the body is read as it arrives, and how many bytes a second are the least.
STREAM = "bide.stream"


class Body:
    """The rest of a request's body, as an asynchronous iterator."""

    def __init__(self, request: Request) -> None:
        self._receive = request.receive
        self._ended = False
        coding = request.header(b"content-encoding")
        streams = request.scope.get(STREAM)
        if streams is not None:
            streams(request.parts.config.uploads.min_rate)
        if coding is not None and coding.strip().lower() != "identity":
            raise UnsupportedMedia(f"Content-Encoding {coding[:100]!r} is not read; send it as it is")

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        while not self._ended:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            self._ended = not message.get("more_body", False)
            data: bytes = message.get("body", b"")
            if data:
                return data
        raise StopAsyncIteration


def announced(request: Request) -> int | None:
    """Content-Length; None when it is not told."""
    text = request.header(b"content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise WrongLength(f"Content-Length {text[:50]!r} is no number of bytes")
    return int(text)
