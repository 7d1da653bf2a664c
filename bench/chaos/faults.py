"""Faults of many kinds, in a random order, spread over the work: the next one follows when the next share is done."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.chaos.kills import Kill
from bench.chaos.workers import Fault

NO_TARGET = 60.0  # seconds without a target after which a fault is skipped


@dataclass
class FaultInjector:
    faults: Mapping[str, Fault]
    rng: random.Random
    share: Callable[[], float]  # of the work that is done, from 0 to 1
    patience: float = 60.0  # seconds without progress, after which the next fault is injected anyway
    kills: list[Kill] = field(default_factory=list)
    back: list[tuple[str, float]] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)

    def inject(self, wanted: Mapping[str, int] | Sequence[str]) -> None:
        """Inject this many faults of each kind in a random order, or a sequence in its own order."""
        if isinstance(wanted, Mapping):
            order = [what for what, times in wanted.items() for _ in range(times)]
            self.rng.shuffle(order)
        else:
            order = list(wanted)
        for number, what in enumerate(order):
            self._await((number + 0.5) / len(order) * 0.95)
            time.sleep(self.rng.uniform(0.0, 0.2))
            self._inject(what)

    def _await(self, share: float) -> None:
        reached, since = self.share(), time.monotonic()
        while reached < share and time.monotonic() - since < self.patience:
            time.sleep(0.02)
            now = self.share()
            if now > reached:
                reached, since = now, time.monotonic()

    def _inject(self, what: str) -> None:
        end = time.monotonic() + NO_TARGET
        while time.monotonic() < end:
            at = time.monotonic()
            found = self.faults[what]()
            if found is not None:
                self.injected[what] += 1
                self.kills.append(Kill(what, at, found.pids))
                self.back.append((what, found.back))
                return
            time.sleep(0.02)
