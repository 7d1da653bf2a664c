"""A `bide serve` process that is killed and started again on the same folder and port."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.servers import processes

LONGEST_START = 60.0


class NotStarted(Exception):
    """A service that ended instead, or never listened; the message has its last words."""


class ServiceProcess:
    def __init__(
        self,
        folder: Path,
        target: str,
        *,
        workers: int = 2,
        env: dict[str, str] | None = None,
        options: Sequence[str] = (),
        shown: str = r"http://127\.0\.0\.1:(\d+), ",
        prefix: Sequence[str] = (),
        data: Path | None = None,
    ) -> None:
        """`prefix` is a command that runs the service."""
        self.folder = folder
        self.data = data or folder / "data"
        self._prefix = prefix
        self.target = target
        self.workers = workers
        self._options = options
        self._shown = shown  # how the service tells its port
        self.port = 0
        self.starts = 0
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[Any] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        command = [*self._prefix, sys.executable, "-m", "bide", "serve", self.target]
        command += ["--port", str(self.port), "--data", str(self.data), "--drain", "5"]
        return [*command, "--workers", str(self.workers), "--log-level", "ERROR", *self._options]

    def start(self) -> None:
        command = self.command()
        # Into a file: a pipe that nobody reads is full after some complaints, and then the service stands still.
        log = self.folder / "serve.log"
        begin = log.stat().st_size if log.exists() else 0
        with log.open("a") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env=self._env)
        self.starts += 1
        end = time.monotonic() + LONGEST_START
        while True:
            ended = self._process.poll()
            with log.open() as lines:
                lines.seek(begin)
                said = lines.read()
            found = re.search(self._shown, said)
            if found:
                self.port = int(found[1])
                return
            if ended is not None or time.monotonic() > end:
                raise NotStarted(f"the service did not start: {ended} {said[-2000:]}")
            time.sleep(0.005)

    def start_again(self, patience: float = 60.0) -> None:
        """As systemd would: again and again, for what it needs may not be back yet."""
        end = time.monotonic() + patience
        while True:
            try:
                return self.start()
            except NotStarted:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)

    @property
    def pids(self) -> set[int]:
        return set() if self._process is None else {self._process.pid}

    def kill(self, *, alone: bool = True) -> None:
        """Without a warning, as a crash would; with all its children, or alone, so that they must notice."""
        assert self._process is not None
        children = set() if alone else processes.descendants(self._process.pid)
        self._process.kill()
        processes.kill(children)
        self._process.wait()

    @property
    def family(self) -> set[int]:
        """The service and its children."""
        return {pid for main in self.pids for pid in {main, *processes.descendants(main)}}

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill(alone=False)

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json", **(headers or {})}, method=method
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def until_ready(self) -> None:
        """Until nothing keeps jobs from being run."""
        end = time.monotonic() + 60
        while found := self.insist("GET", "/readyz")["warnings"]:
            if time.monotonic() > end:
                raise RuntimeError(f"the service is not ready: {found}")
            time.sleep(0.05)

    def insist(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        """Again and again, until the service is back; with an Idempotency-Key that is safe."""
        end = time.monotonic() + 60
        while True:
            try:
                return self.ask(method, path, body, headers)
            except (urllib.error.URLError, http.client.HTTPException, json.JSONDecodeError, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
