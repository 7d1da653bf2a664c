"""The peers: how plain loops, libraries and SDKs poll. Each job has its own timer, with their default settings."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from bide.core.errors import SetupError

Dice = random.Random


class PollTimer(Protocol):
    """Decides when to poll one job."""

    def first(self, dice: Dice) -> float:
        """Return the age at the first poll."""
        ...

    def pending(self, age: float, dice: Dice) -> float:
        """Return the seconds until the next poll, after a response that the job is still running."""
        ...

    def refused(self, retry_after: float | None, dice: Dice) -> float:
        """Return the seconds until the next poll, after a 429."""
        ...


class FixedInterval:
    """The plain loop: sleep, poll. Azure and boto poll at once, then sleep."""

    __slots__ = ("_every", "_first", "_obeys_retry_after")

    def __init__(
        self, every: float, first: float | None = None, obeys_retry_after: bool = False
    ) -> None:
        self._every = every
        self._first = every if first is None else first
        self._obeys_retry_after = obeys_retry_after

    def first(self, dice: Dice) -> float:
        return self._first

    def pending(self, age: float, dice: Dice) -> float:
        return self._every

    def refused(self, retry_after: float | None, dice: Dice) -> float:
        return self._every if retry_after is None or not self._obeys_retry_after else retry_after


class JitteredBackoff:
    """Exponential backoff with full jitter."""

    __slots__ = ("_cap", "_factor", "_obeys_retry_after", "_wait")

    def __init__(self, first: float, factor: float, cap: float, obeys_retry_after: bool = True) -> None:
        self._wait = first
        self._factor = factor
        self._cap = cap
        self._obeys_retry_after = obeys_retry_after

    def first(self, dice: Dice) -> float:
        return self._wait

    def pending(self, age: float, dice: Dice) -> float:
        self._wait = min(self._cap, self._wait * self._factor)
        return dice.uniform(0.0, self._wait)

    def refused(self, retry_after: float | None, dice: Dice) -> float:
        wait = self.pending(0.0, dice)
        return max(wait, retry_after) if retry_after is not None and self._obeys_retry_after else wait


class DoubleOn429:
    """Polls every second; each 429 doubles the interval for the rest of the wait."""

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


class RandomInterval:
    """Polls every 5 to 10 s, ± 2 s; a 429 doubles the interval until the next success."""

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


class GrowingInterval:
    """Polls at once, then after 2 s; each interval is 1.5 times the last, up to 10 s."""

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


class SteppedInterval:
    """Polls every 2 s, after 30 s every 10 s, after 2 minutes every 30 s."""

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


PEERS: dict[str, Callable[[], PollTimer]] = {
    "azure": lambda: FixedInterval(30.0, first=0.0, obeys_retry_after=True),
    "boto": lambda: FixedInterval(15.0, first=0.0),
    "google": lambda: JitteredBackoff(1.0, 1.5, 20.0, obeys_retry_after=False),
    "grow-2-to-10": GrowingInterval,
    "double-on-429": DoubleOn429,
    "random-5-to-10": RandomInterval,
    "steps-2-10-30": SteppedInterval,
}
OURS = ("adaptive", "oracle")
DEFAULTS = (*OURS, "fixed:30", *PEERS, "backoff:1,2,60")


def peer(name: str) -> Callable[[], PollTimer]:
    """Return the factory of a policy's timers. `fixed:S` and `backoff:F,G,C` carry their own numbers."""
    if name in PEERS:
        return PEERS[name]
    form, _, text = name.partition(":")
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if form == "fixed" and len(numbers) == 1 and numbers[0] > 0:
        return lambda: FixedInterval(numbers[0])
    if form == "backoff" and len(numbers) == 3 and numbers[0] > 0 and numbers[1] >= 1 and numbers[2] > 0:
        first, factor, cap = numbers
        return lambda: JitteredBackoff(first, factor, cap)
    known = ", ".join((*OURS, *PEERS, "fixed:SECONDS", "backoff:FIRST,FACTOR,CAP"))
    raise SetupError(f"There is no policy {name!r}. The policies are {known}")
