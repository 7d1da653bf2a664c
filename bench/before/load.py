"""A fixed number of requests over several connections."""

from __future__ import annotations

import asyncio
import re

CONNECTIONS = 32
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class _Connection(asyncio.Protocol):
    """Sends the next request after the complete response to the last one."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        length = _LENGTH.search(head)
        if len(body) < (int(length[1]) if length else 0):
            return
        self._data = b""
        if not 200 <= int(head[9:12]) < 300:
            self._run.fail(f"{head[:200]!r} {body[:300]!r}")
        self._run.answered += 1
        self._send()

    def _send(self) -> None:
        if self._run.next():
            self._transport.write(self._run.request)
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._run.closed(error)


class _Run:
    def __init__(self, request: bytes, count: int) -> None:
        self.request = request
        self.count = count
        self.answered = 0
        self.over = asyncio.get_running_loop().create_future()
        self._sent = 0

    def next(self) -> bool:
        self._sent += 1
        return self._sent <= self.count

    def fail(self, reason: str) -> None:
        if not self.over.done():
            self.over.set_exception(RuntimeError(reason))

    def closed(self, error: Exception | None) -> None:
        if error is not None:
            self.fail(f"a connection broke: {error}")
        elif self.answered == self.count and not self.over.done():
            self.over.set_result(None)


def send(
    port: int, method: str, path: str, count: int, body: bytes = b"", key: str | None = None
) -> None:
    """RuntimeError if a response is not a success, because the figure would be meaningless."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n"
    if key is not None:
        head += f"Authorization: Bearer {key}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    asyncio.run(_send(port, head.encode() + body, count))


async def _send(port: int, request: bytes, count: int) -> None:
    run, loop = _Run(request, count), asyncio.get_running_loop()
    for _ in range(min(CONNECTIONS, count)):
        await loop.create_connection(lambda: _Connection(run), "127.0.0.1", port)
    await asyncio.wait_for(run.over, 300)
