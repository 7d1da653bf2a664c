"""A fast status endpoint in a separate process, in sync.so's format. One response in twenty says that the job has ended.

The argument sets another number than twenty.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvloop

_BODY = b'{"id":"%s","status":"PROCESSING"}'
_DONE = b'{"id":"%s","status":"COMPLETED"}'
ONE_IN = int(sys.argv[1]) if len(sys.argv) > 1 else 20
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class Status(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._rest = b""
        self._answers = 0

    def data_received(self, data: bytes) -> None:
        *requests, self._rest = (self._rest + data).split(b"\r\n\r\n")
        for request in requests:
            path = request.split(b" ", 2)[1].partition(b"?")[0]
            self._answers += 1
            body = (_BODY if self._answers % ONE_IN else _DONE) % path.rpartition(b"/")[2]
            self._transport.write(_HEAD % len(body) + body)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Status, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the parent process closes the pipe or exits


if __name__ == "__main__":
    uvloop.run(main())
