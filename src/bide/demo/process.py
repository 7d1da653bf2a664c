"""The service of the demo: `bide serve` in a separate process, with its own data folder.

It runs in its own session, so that Ctrl-C reaches only the demo. The demo terminates it, and kills it if that takes too
long. Its child processes end with it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bide.core.errors import SetupError

START_LIMIT = 30.0
STOP_LIMIT = 10.0
ADDRESS = re.compile(r"^bide serves .* at (http://\S+), data in ", re.MULTILINE)


class ServiceProcess:
    """`with ServiceProcess(…) as service:` the service answers at `service.url`, and is stopped afterwards."""

    def __init__(self, target: str, folder: Path, port: int = 0) -> None:
        self.log = folder / "service.log"
        self.url = ""
        # One child process more than cores, because each of the two queues reserves one.
        workers = (os.cpu_count() or 1) + 1
        self._command = [sys.executable, "-m", "bide", "serve", target]
        self._command += ["--host", "127.0.0.1", "--port", str(port), "--data", str(folder / "data")]
        self._command += ["--workers", str(workers), "--drain", "0"]
        self._folder = folder

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,  # so that neither a bide.toml nor a module of the user is read
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait_for_address()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _wait_for_address(self) -> None:
        until = time.monotonic() + START_LIMIT
        while self.alive and time.monotonic() < until:
            found = ADDRESS.search(self.log.read_text(errors="replace"))
            if found is not None:
                self.url = found[1]
                return
            time.sleep(0.05)
        why = f"did not start within {START_LIMIT:.0f} s" if self.alive else "exited at once"
        raise SetupError(f"The service of the demo {why}. Run `bide doctor` to check this installation.")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _stop(self) -> None:
        """Stop the service. Ctrl-C is ignored meanwhile, because this takes at most STOP_LIMIT seconds."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._process.terminate()
            try:
                self._process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
