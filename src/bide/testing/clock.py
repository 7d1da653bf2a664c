"""A clock that changes only when a test advances it. Like every clock of bide, it never goes back."""

from __future__ import annotations

START = 1_900_000_000.0  # in the year 2030


class ManualClock:
    """A `core.clock.Clock` for tests: `clock.advance(30)` moves it by thirty seconds."""

    def __init__(self, start: float = START) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> float:
        """Move the clock. Return the new time."""
        self.set(self._now + seconds)
        return self._now

    def set(self, at: float) -> None:
        if not at >= self._now:
            raise ValueError(
                f"A clock never goes back: it shows {self._now}, so it cannot be set to {at}"
            )
        self._now = at
