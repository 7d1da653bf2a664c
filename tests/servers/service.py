"""A `bide serve` process that can be killed and started again with the same folder and port."""

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers import processes, warm

START_TIMEOUT = 60.0


def importing(folder: Path) -> dict[str, str]:
    """The environment in which Python imports from this folder, too."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


@contextmanager
def serving_tasks(folder: Path, tasks: str, *, workers: int = 2) -> Iterator[ServiceProcess]:
    """A service with the app of `tasks`, the text of a module."""
    (folder / "tasks.py").write_text(tasks)
    service = ServiceProcess(folder, "tasks:app", workers=workers, env=importing(folder))
    service.start()
    try:
        yield service
    finally:
        service.stop()


class NotStarted(Exception):
    """The service ended or did not listen; the message has the end of its log."""


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
        forked: bool = True,
    ) -> None:
        """`prefix` is a command that runs the service. `forked=False`: in a new interpreter, also in tests."""
        self.folder = folder
        self.data = data or folder / "data"
        self._prefix = prefix
        self.target = target
        self.workers = workers
        self._options = options
        self._shown = shown  # the line of the log that has the port
        self.port = 0
        self.starts = 0
        self._env = {**os.environ, **(env or {})}
        self._popen: Callable[..., subprocess.Popen[Any]] = warm.popen if forked else subprocess.Popen
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
        # A file, because a pipe that is not read blocks the service when it is full.
        log = self.folder / "serve.log"
        begin = log.stat().st_size if log.exists() else 0
        with log.open("a") as out:
            self._process = self._popen(command, stdout=out, stderr=out, env=self._env)
        self.starts += 1
        end = time.monotonic() + START_TIMEOUT
        while True:
            ended = self._process.poll()
            with log.open() as lines:
                lines.seek(begin)
                output = lines.read()
            found = re.search(self._shown, output)
            if found:
                self.port = int(found[1])
                return
            if ended is not None or time.monotonic() > end:
                raise NotStarted(f"the service did not start: exit code {ended}, log {output[-2000:]}")
            time.sleep(0.005)

    def start_again(self, timeout: float = START_TIMEOUT) -> None:
        """Retries as systemd does, because the servers that the service needs may still be starting."""
        end = time.monotonic() + timeout
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
        """Ends the service with SIGKILL, with its children or `alone`, so that they must notice it."""
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
        """Waits until `/readyz` has no warnings."""
        end = time.monotonic() + 60
        while found := self.insist("GET", "/readyz")["warnings"]:
            if time.monotonic() > end:
                raise RuntimeError(f"the service is not ready: {found}")
            time.sleep(0.05)

    def insist(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        """Retries until the service answers. A POST needs an Idempotency-Key."""
        end = time.monotonic() + 60
        while True:
            try:
                return self.ask(method, path, body, headers)
            except (urllib.error.URLError, http.client.HTTPException, json.JSONDecodeError, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
