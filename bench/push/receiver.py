"""An HTTP server that does nothing with a POST but count it. `GET` returns the count."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools

from bide.service.backends import loop_factory

_received = 0


class CountingReceiver(asyncio.Protocol):
    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        global _received
        if self._parser.get_method() == b"POST":
            _received += 1
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            body = b"%d" % _received
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    await (await loop.create_server(CountingReceiver, "127.0.0.1", port)).serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main(int(sys.argv[1])))
