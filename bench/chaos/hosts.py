"""Workers that simulate separate machines: killed, frozen, children killed, clock set by one hour."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers import processes

from bench.chaos.clock import SteppedClock
from bench.service.servers import ROOT


class Host:
    """One worker process with its children."""

    def __init__(
        self, folder: Path, command: Sequence[str], env: Mapping[str, str], *, own_clock: bool = False
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._command = command
        self.clock = SteppedClock(folder) if own_clock else None
        self._env = {**os.environ, **env}
        if self.clock is not None:
            self._env = self.clock.env(self._env)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()
        self.frozen: frozenset[int] = frozenset()
        self.given_up = 0  # how often it exited without being killed

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def family(self) -> set[int]:
        """The worker and all its children."""
        if self._process is None:
            return set()
        return {self._process.pid, *processes.descendants(self._process.pid)}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def tend(self) -> None:
        """Restarts it if it has exited, as systemd would."""
        with self._lock:
            if self._process is not None and self._process.poll() is not None:
                self.given_up += 1
                self.start()

    def start(self) -> None:
        with self._lock, (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=self._env,
                start_new_session=True,
            )

    def kill(self) -> frozenset[int]:
        """Kill the worker and its children at the same time, as a crash of the machine would."""
        with self._lock:
            family = self.family
            self.thaw()
            processes.kill(family)
            if self._process is not None:
                self._process.wait()
            self._process = None
        return frozenset(family)

    def freeze(self, *, alone: bool) -> frozenset[int]:
        """SIGSTOP: all of it, or the worker without its children, which keep running without a connection."""
        self.frozen = frozenset({self.pid} if alone else self.family)
        self._signal(signal.SIGSTOP)
        return self.frozen

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self.frozen = frozenset()

    def _signal(self, number: int) -> None:
        for pid in self.frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_child(self, rng: random.Random, among: set[int]) -> frozenset[int]:
        """A child that runs a job, or None."""
        children = sorted((self.family - {self.pid}) & among) if self._process is not None else []
        if not children:
            return frozenset()
        pid = rng.choice(children)
        processes.kill({pid})
        return frozenset({pid})

    def stop(self, patience: float = 20.0) -> None:
        """Terminate it; kill it if it does not exit."""
        with self._lock:
            process, family = self._process, self.family
            self._process = None
        if process is None:
            return
        self.thaw()
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        processes.kill(family)
        process.wait()
