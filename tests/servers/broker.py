"""What Redis, RabbitMQ and nginx have in common as servers of tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers import ServerMissing, processes
from tests.servers.ports import HOST, free_port


class Broker:
    """One server, its folder, and its port, which stays the same after a restart."""

    name = "the broker"
    start_timeout = 60.0

    def __init__(self, home: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bide-broker-", dir=home))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _command(self) -> tuple[Sequence[str], Mapping[str, str]]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Returns when the server accepts messages."""
        command, extra = self._command()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **extra},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C ends the tests, which end the server
            )
        end = time.monotonic() + self.start_timeout
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise ServerMissing(f"{self.name} did not start: {self.log[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Ends all its processes with SIGKILL; the files stay."""
        if self._process is None:
            return
        processes.kill([self.pid, *processes.descendants(self.pid)])
        self._process.wait()
        self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def end(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _exchange(self, request: bytes) -> bytes:
        """The answer to the request; empty if the server does not answer."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((HOST, self.port), timeout=2) as sock,
        ):
            sock.sendall(request)
            return sock.recv(4096)
        return b""
