"""The peers: how loops, libraries and SDKs wait, each job by itself, at their own defaults."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from bide.core.errors import SetupError

Dice = random.Random


class Peer(Protocol):
    """One job's timer. `first` is the age of the first question; the others say how long until the next."""

    def first(self, dice: Dice) -> float: ...

    def pending(self, age: float, dice: Dice) -> float:
        """It is not done."""
        ...

    def refused(self, retry_after: float | None, dice: Dice) -> float:
        """The answer was 429."""
        ...


class Fixed:
    """The plain loop: sleep, ask. Azure and boto ask at once."""

    __slots__ = ("_every", "_first", "_obeys")

    def __init__(self, every: float, first: float | None = None, obeys: bool = False) -> None:
        self._every = every
        self._first = every if first is None else first
        self._obeys = obeys

    def first(self, dice: Dice) -> float:
        return self._first

    def pending(self, age: float, dice: Dice) -> float:
        return self._every

    def refused(self, retry_after: float | None, dice: Dice) -> float:
        return self._every if retry_after is None or not self._obeys else retry_after


class Backoff:
    """Exponential backoff with full jitter."""

    __slots__ = ("_cap", "_factor", "_obeys", "_wait")

    def __init__(self, first: float, factor: float, cap: float, obeys: bool = True) -> None:
        self._wait = first
        self._factor = factor
        self._cap = cap
        self._obeys = obeys

    def first(self, dice: Dice) -> float:
        return self._wait

    def pending(self, age: float, dice: Dice) -> float:
        self._wait = min(self._cap, self._wait * self._factor)
        return dice.uniform(0.0, self._wait)

    def refused(self, retry_after: float | None, dice: Dice) -> float:
        wait = self.pending(0.0, dice)
        return max(wait, retry_after) if retry_after is not None and self._obeys else wait


class SeedLipsync:
    """Asks every second; a 429 doubles that for good."""

    __slots__ = ("_wait",)

    def __init__(self) -> None:
        self._wait = 1.0

    def first(self, dice: Dice) -> float:
        return 0.0

    def pending(self, age: float, dice: Dice) -> float:
        return self._wait

    def refused(self, retry_after: float | None, dice: Dice) -> float:
        self._wait = min(300.0, self._wait * 2.0)
        return self._wait * dice.uniform(1.0, 1.5)


class SeedLipsyncAdvice:
    """Every 5 to 10 seconds, ±2; a 429 doubles that until the next success."""

    __slots__ = ("_base", "_wait")

    def __init__(self) -> None:
        self._base = self._wait = 0.0

    def first(self, dice: Dice) -> float:
        self._base = self._wait = dice.uniform(5.0, 10.0)
        return self._base

    def pending(self, age: float, dice: Dice) -> float:
        self._wait = self._base
        return self._base + dice.uniform(-2.0, 2.0)

    def refused(self, retry_after: float | None, dice: Dice) -> float:
        self._wait = min(300.0, self._wait * 2.0)
        return self._wait + dice.uniform(-2.0, 2.0)


class SeedDocs:
    """At once, then 2 s and half as much more each time, up to 10."""

    __slots__ = ("_wait",)

    def __init__(self) -> None:
        self._wait = 2.0

    def first(self, dice: Dice) -> float:
        return 0.0

    def pending(self, age: float, dice: Dice) -> float:
        wait = self._wait
        self._wait = min(10.0, wait * 1.5)
        return wait

    def refused(self, retry_after: float | None, dice: Dice) -> float:
        return 60.0 if retry_after is None else retry_after


class SeedVideo:
    """Every 2 s, after half a minute every 10, after two minutes every 30."""

    __slots__ = ("_wait",)

    def __init__(self) -> None:
        self._wait = 2.0

    def first(self, dice: Dice) -> float:
        return 2.0

    def pending(self, age: float, dice: Dice) -> float:
        self._wait = 2.0 if age < 30.0 else 10.0 if age < 120.0 else 30.0
        return self._wait

    def refused(self, retry_after: float | None, dice: Dice) -> float:
        return self._wait if retry_after is None else retry_after


PEERS: dict[str, Callable[[], Peer]] = {
    "azure": lambda: Fixed(30.0, first=0.0, obeys=True),
    "boto": lambda: Fixed(15.0, first=0.0),
    "google": lambda: Backoff(1.0, 1.5, 20.0, obeys=False),
    "seed-docs": SeedDocs,
    "seed-lipsync": SeedLipsync,
    "seed-lipsync-advice": SeedLipsyncAdvice,
    "seed-video": SeedVideo,
}
OURS = ("adaptive", "oracle")
DEFAULTS = (*OURS, "fixed:30", *PEERS, "backoff:1,2,60")


def peer(name: str) -> Callable[[], Peer]:
    """What makes one job's timer; `fixed:S` and `backoff:F,G,C` have numbers of their own."""
    if name in PEERS:
        return PEERS[name]
    form, _, text = name.partition(":")
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if form == "fixed" and len(numbers) == 1 and numbers[0] > 0:
        return lambda: Fixed(numbers[0])
    if form == "backoff" and len(numbers) == 3 and numbers[0] > 0 and numbers[1] >= 1 and numbers[2] > 0:
        first, factor, cap = numbers
        return lambda: Backoff(first, factor, cap)
    known = ", ".join((*OURS, *PEERS, "fixed:SECONDS", "backoff:FIRST,FACTOR,CAP"))
    raise SetupError(f"no policy {name!r}; there are {known}")
