"""A `bide serve` process that is killed and started again on the same folder and port."""

from __future__ import annotations

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

from bench.chaos import processes


class Victim:
    def __init__(
        self,
        folder: Path,
        target: str,
        *,
        workers: int = 2,
        env: dict[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.target = target
        self.workers = workers
        self._options = options
        self.port = 0
        self.starts = 0
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "bide", "serve", self.target]
        command += ["--port", str(self.port), "--data", str(self.data), "--drain", "5"]
        command += ["--workers", str(self.workers), "--log-level", "ERROR", *self._options]
        log = (self.folder / "serve.log").open("a")
        with log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.PIPE, text=True, env=self._env
            )
        self.starts += 1
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                return
        raise RuntimeError(f"the service did not start: {self._process.wait()} {''.join(said)[-2000:]}")

    @property
    def pids(self) -> set[int]:
        return set() if self._process is None else {self._process.pid}

    def kill(self, *, alone: bool = True) -> None:
        """Without a warning, as a crash would; with all its children, or alone, so that they must notice."""
        assert self._process is not None and self._process.stderr is not None
        children = set() if alone else processes.descendants(self._process.pid)
        self._process.kill()
        processes.kill(children)
        self._process.wait()
        self._process.stderr.close()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            assert self._process.stderr is not None
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
            self._process.stderr.close()

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json", **(headers or {})}, method=method
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def insist(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        """Again and again, until the service is back; with an Idempotency-Key that is safe."""
        end = time.monotonic() + 60
        while True:
            try:
                return self.ask(method, path, body, headers)
            except (urllib.error.URLError, ConnectionError, TimeoutError, json.JSONDecodeError, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
