"""A `bide worker` process of the Celery engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bide.server.config import Config
from tests.servers import warm


class WorkerProcess:
    """`bide worker`, or another `command`, with its output in a file."""

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
        arguments = [sys.executable, "-m", "bide", "worker", target, "--data", str(config.data)]
        arguments += ["--lease", str(worker.lease), "--drain", str(worker.drain)]
        arguments += ["--concurrency", str(worker.workers or 2), *options]
        secrets = {"BIDE_STORE": config.store.url, "BIDE_BROKER": config.engine.broker}
        self.log = log
        with log.open("ab") as file:
            self.process = warm.popen(
                command or arguments,
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

    def wait(self, timeout: float = 30.0) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end; its output:\n{self.said}") from None

    def drain(self) -> int:
        self.send(signal.SIGTERM)
        return self.wait()

    def end(self) -> None:
        """Ends the worker in any state."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        end = time.monotonic() + 15
        while self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
            self.send(signal.SIGTERM)
        self.send(signal.SIGKILL)
        self.process.wait()
