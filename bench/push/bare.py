"""The least that a server can do for one event and many listeners: a loop that writes the same bytes to each of them.

A connection that sends `listen` is a listener. `write N` makes the server write N bytes to each; any other line is echoed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

from bide.service.backends import loop_factory

_listeners: set[asyncio.Transport] = set()


class BarePeer(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        word, _, rest = data.strip().partition(b" ")
        if word == b"listen":
            _listeners.add(self._transport)
            self._transport.write(b"HTTP/1.1 200 \n\nevent: snapshot\n")
        elif word == b"write":
            event = b"event: queue\n".ljust(int(rest) - 1, b" ") + b"\n"
            for listener in _listeners:
                listener.write(event)
        else:
            self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        _listeners.discard(self._transport)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(BarePeer, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main(int(sys.argv[1])))
