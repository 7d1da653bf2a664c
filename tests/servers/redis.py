"""A Redis server on a free port."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from tests.servers import ServerMissing
from tests.servers.broker import Broker
from tests.servers.ports import HOST


class RedisServer(Broker):
    """`kept=True`: it writes its data to a file every second. Otherwise a kill loses all data."""

    name = "Redis"

    def __init__(self, home: str | None = None, *, kept: bool = False) -> None:
        self._kept = kept
        super().__init__(home)

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def _command(self) -> tuple[Sequence[str], Mapping[str, str]]:
        program = shutil.which("redis-server")
        if program is None:
            raise ServerMissing("there is no Redis server: apt-get install redis-server")
        command = [program, "--port", str(self.port), "--bind", HOST, "--dir", str(self.folder)]
        return [*command, "--save", "", "--appendonly", "yes" if self._kept else "no"], {}

    def _answers(self) -> bool:
        return self._exchange(b"PING\r\n").startswith(b"+PONG")  # -LOADING while it reads its file

    def flush(self) -> None:
        """Removes all messages, and all other data."""
        if not self._exchange(b"FLUSHALL\r\n").startswith(b"+OK"):
            raise RuntimeError("Redis did not remove its data")

    def waiting(self, queue: str) -> int:
        """The number of messages in the queue."""
        answer = self._exchange(f"LLEN {queue}\r\n".encode())
        if not answer.startswith(b":"):
            raise RuntimeError(f"Redis answered {answer!r}")
        return int(answer[1:])

    def disconnect(self) -> None:
        """Closes all connections of clients."""
        self._exchange(b"CLIENT KILL TYPE normal SKIPME yes\r\n")
        self._exchange(b"CLIENT KILL TYPE pubsub SKIPME yes\r\n")
