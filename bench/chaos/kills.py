"""Kills children and services at random moments, or right after a change was seen.

The moments are

- random: after a pause;
- answer: a submission has just been acknowledged;
- mark: a step has just started, and its result is not stored;
- commit: a transaction has just become visible in the database (only with bide).

The last three wait for the change and kill immediately or within two milliseconds, so that over many kills each place
between two transactions is covered. A running job loses at most two workers, because the service gives up a job that has
lost three.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.servers import processes

from bench.chaos.marks import Tail

MOMENTS = ("random", "answer", "mark")
LONGEST = 0.5  # seconds that a kill waits for its moment
NO_TARGET = 10.0  # seconds without a target after which it ends


class Target(Protocol):
    @property
    def pids(self) -> set[int]:
        """Its main processes."""

    def kill(self, *, alone: bool = False) -> None: ...
    def start(self) -> None: ...


@dataclass(frozen=True)
class Kill:
    what: str
    at: float
    pids: frozenset[int]  # that were killed, or orphaned


@dataclass
class KillInjector:
    target: Target
    tail: Tail
    rng: random.Random
    answered: threading.Event
    database: Path | None = None  # its commits are moments too
    spare_children: bool = False  # sometimes the service is killed alone, and its children must notice
    patient: bool = False  # waits after a service was killed until a job runs again
    kills: list[Kill] = field(default_factory=list)
    moments: Counter[str] = field(default_factory=Counter)
    _hits: Counter[str] = field(default_factory=Counter)

    def inject(self, child_kills: int, service_kills: int) -> None:
        kills = ["child"] * child_kills + ["service"] * service_kills
        self.rng.shuffle(kills)
        for kill in kills:
            time.sleep(self.rng.uniform(0.02, 0.3))
            killed = False
            while not killed:  # again if the target has finished its job
                if not self._await(self._candidates, NO_TARGET, 0.002):
                    return  # all jobs have ended
                moment = self._moment()
                killed = self._child() if kill == "child" else self._service()
            self.moments[moment] += 1

    def count(self, what: str) -> int:
        return sum(kill.what == what for kill in self.kills)

    def _await(self, happened: Callable[[], object], longest: float, pause: float = 0.0005) -> bool:
        end = time.monotonic() + longest
        while not happened():
            if time.monotonic() > end:
                return False
            time.sleep(pause)
        return True

    def _candidates(self) -> list[int]:
        """The processes that run jobs now; none if one of them runs a job that already lost two."""
        self.tail.grow()
        alive = {pid for main in self.target.pids for pid in processes.descendants(main)}
        running = {pid: job for pid, job in self.tail.open.items() if pid in alive}
        return [] if any(self._hits[job] >= 2 for job in running.values()) else list(running)

    def _moment(self) -> str:
        moment = self.rng.choice(MOMENTS if self.database is None else (*MOMENTS, "commit"))
        match moment:
            case "answer":
                self.answered.clear()
                came = self.answered.wait(LONGEST)
            case "mark":
                self.tail.grow()
                came = self._await(self.tail.grow, LONGEST)
            case "commit":
                came = self._commit()
            case _:
                return moment
        if not came:
            return "random"
        time.sleep(self.rng.choice((0, self.rng.uniform(0, 0.002))))
        return moment

    def _commit(self) -> bool:
        with contextlib.closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as reader:

            def version() -> int:
                return int(reader.execute("PRAGMA data_version").fetchone()[0])

            before = version()
            return self._await(lambda: version() != before, LONGEST, 0.0002)

    def _child(self) -> bool:
        running = self._candidates()
        if not running:
            return False
        last = self.tail.last
        pid = last.pid if last is not None and last.pid in running else self.rng.choice(running)
        self._hits[self.tail.open[pid]] += 1
        self.kills.append(Kill("child", time.monotonic(), frozenset((pid,))))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.tail.open.pop(pid, None)
        return True

    def _service(self) -> bool:
        if not self._candidates():
            return False
        pids = self.target.pids | {p for main in self.target.pids for p in processes.descendants(main)}
        for pid, job in self.tail.open.items():
            self._hits[job] += pid in pids
        alone = self.spare_children and self.rng.random() < 0.5
        self.kills.append(Kill("service", time.monotonic(), frozenset(pids)))
        self.target.kill(alone=alone)
        self.tail.grow()
        self.tail.open.clear()
        self.target.start()
        if self.patient:
            self._await(self._candidates, NO_TARGET, 0.002)
        return True
