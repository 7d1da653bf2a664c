"""Faults between a service and its database.

Every operation of a store, including reads, has a number. A fault is planned for a number, or for all operations of a time:

- refused: the database reports an error, and nothing is stored;
- late: the response takes longer than callers wait;
- unheard: the operation is stored, and the response is lost;
- broken: the connection breaks once, before or after the commit, and the store retries.
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
        self.met: list[tuple[int, Mode]] = []  # operations with a fault
        self._failing: Mode | None = None  # the fault of the current operation
        self._statements = 0  # statements that succeed before it fails

    def plan(self, number: int, mode: Mode) -> None:
        """Plan a fault for the `number`th operation from now on."""
        self._planned[self.count + number] = mode

    def take_out(self, seconds: float) -> None:
        """Make the database unavailable for this long."""
        self._out_until = max(self._out_until, self._loop.time() + seconds)

    def end(self) -> None:
        """Cancel all planned faults."""
        self._planned.clear()
        self._out_until = 0.0

    @property
    def out(self) -> bool:
        return self._loop.time() < self._out_until

    def next(self) -> Mode | None:
        """The fault of the next operation, if any."""
        self.count += 1
        mode = self._planned.pop(self.count, None)
        if mode is not None:
            self.met.append((self.count, mode))
        return mode

    def duration(self) -> float:
        """A delay: shorter than callers wait, longer than that, or longer than a lease."""
        return self._rng.choice((1.0, 8.0, 25.0))

    @contextmanager
    def meet(self, mode: Mode) -> Iterator[None]:
        """Apply a fault to the operation inside the context."""
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
        """End a fault that happens only once."""
        self._failing = None
