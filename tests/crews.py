"""Workers of the Celery engine for tests: real processes, ended by their pids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bide.server.config import Config


class Crew:
    """One `bide worker`, or whatever `command` starts, with its output in a file."""

    def __init__(
        self,
        config: Config,
        target: str,
        log: Path,
        *options: str,
        command: Sequence[str] = (),
        cwd: Path | None = None,
    ) -> None:
        assert config.store.url is not None and config.engine.broker is not None
        worker = config.worker
        words = [sys.executable, "-m", "bide", "worker", target, "--data", str(config.data)]
        words += ["--lease", str(worker.lease), "--drain", str(worker.drain)]
        words += ["--concurrency", str(worker.workers or 2), *options]
        secrets = {"BIDE_STORE": config.store.url, "BIDE_BROKER": config.engine.broker}
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command or words,
                env={**os.environ, **secrets},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def send(self, number: int) -> None:
        if self.process.poll() is None:
            os.kill(self.pid, number)

    def wait(self, patience: float = 30.0) -> int:
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end; it said:\n{self.said}") from None

    def drain(self) -> int:
        self.send(signal.SIGTERM)
        return self.wait()

    def end(self) -> None:
        """Whatever became of the test."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        end = time.monotonic() + 15
        while self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
            self.send(signal.SIGTERM)
        self.send(signal.SIGKILL)
        self.process.wait()
