"""A clock that stands still until a test moves it. Like every clock of bide, it never goes back."""

from __future__ import annotations

START = 1_900_000_000.0  # in the year 2030


class ManualClock:
    """`core.clock.Clock` in a test's hands: `clock.advance(30)` and thirty seconds have passed."""

    def __init__(self, start: float = START) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> float:
        """Lets time pass; the new time."""
        self.set(self._now + seconds)
        return self._now

    def set(self, at: float) -> None:
        if not at >= self._now:
            raise ValueError(f"a clock never goes back: it is {self._now}, not {at}")
        self._now = at
