"""What can go wrong between a service and its database, and when.

Every operation of a store, reads included, has a number. A fault is planned for a number, or for a while for all of them:

- refused: the database reports an error, and nothing is stored;
- late: the answer takes longer than callers wait;
- unheard: it is stored, and the answer is lost;
- broken: the connection breaks once, before or after the commit, and the store tries again by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from tests.simulation.loop import SimLoop

Mode = Literal["refused", "late", "unheard", "broken"]
MODES: tuple[Mode, ...] = ("refused", "late", "unheard", "broken")


class Faults:
    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self._planned: dict[int, Mode] = {}
        self._out_until = 0.0
        self.count = 0  # operations so far
        self.met: list[tuple[int, Mode]] = []  # those that went wrong
        self._failing: Mode | None = None  # what the operation that is carried out now meets
        self._statements = 0  # that succeed before it fails

    def plan(self, number: int, mode: Mode) -> None:
        """The `number`th operation from now on."""
        self._planned[self.count + number] = mode

    def take_out(self, seconds: float) -> None:
        """The database cannot be reached, or written, for so long."""
        self._out_until = max(self._out_until, self._loop.time() + seconds)

    def end(self) -> None:
        """From now on nothing fails."""
        self._planned.clear()
        self._out_until = 0.0

    @property
    def out(self) -> bool:
        return self._loop.time() < self._out_until

    def next(self) -> Mode | None:
        """What happens to the next operation."""
        self.count += 1
        mode = self._planned.pop(self.count, None)
        if mode is not None:
            self.met.append((self.count, mode))
        return mode

    def duration(self) -> float:
        """How late something is: within what callers wait for, or beyond it, or longer than a lease."""
        return self._rng.choice((1.0, 8.0, 25.0))

    @contextmanager
    def meet(self, mode: Mode) -> Iterator[None]:
        """For the operation that is carried out within."""
        self._failing, self._statements = mode, self._rng.randrange(6)
        try:
            yield
        finally:
            self._failing = None

    @property
    def current(self) -> Mode | None:
        return self._failing

    def fails_now(self) -> bool:
        """Whether the next statement of the current operation fails."""
        self._statements -= 1
        return self._statements < 0

    def passed(self) -> None:
        """A fault that happens once has happened."""
        self._failing = None
