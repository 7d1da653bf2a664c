"""The demo's own service: a real `bide serve` in a process of its own, on a folder of its own.

It is in a session of its own, so that Ctrl-C reaches the demo alone, which then ends it: asked first, then killed.
Its children end with it, and whatever they have started.
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
    """`with ServiceProcess(…) as service:` it answers at `service.url`; afterwards it is gone."""

    def __init__(self, target: str, folder: Path, port: int = 0) -> None:
        self.log = folder / "service.log"
        self.url = ""
        # One child more than cores: two queues share them, and each of the two keeps one for itself.
        workers = (os.cpu_count() or 1) + 1
        self._command = [sys.executable, "-m", "bide", "serve", target]
        self._command += ["--host", "127.0.0.1", "--port", str(port), "--data", str(folder / "data")]
        self._command += ["--workers", str(workers), "--drain", "0"]
        self._folder = folder

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,  # neither a bide.toml nor a module of the user's gets in the way
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
        why = f"did not answer within {START_LIMIT:.0f} s" if self.alive else "ended at once"
        raise SetupError(f"the demo's service {why}; `bide doctor` says what is wrong with this set-up")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def tail(self, lines: int = 20) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _stop(self) -> None:
        """A second Ctrl-C does not interrupt this: it is over within seconds, one way or the other."""
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
