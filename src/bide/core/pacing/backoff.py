"""When to retry a failing request: exponential backoff, and a circuit breaker per host."""

from __future__ import annotations

import math
import random


def backoff(failures: int, base: float, cap: float, rng: random.Random) -> float:
    """Return an exponential backoff with full jitter: between 0 and base·2^failures, at most the cap."""
    ceiling = min(cap, base * 2.0 ** min(failures, 60))
    return rng.uniform(0, ceiling)


class Breaker:
    """A circuit breaker for one host: it opens after `threshold` failures in a row, then allows one probe at a time.

    A successful probe closes it; a failed one opens it again for longer, with jitter between half of the pause and the
    whole. If a probe gets no response within `patience`, the next one is allowed. Responses to requests sent before it
    opened neither close it nor keep it open.
    """

    __slots__ = (
        "_base",
        "_cap",
        "_failures",
        "_opened",
        "_patience",
        "_probing",
        "_rng",
        "_threshold",
        "_until",
    )

    def __init__(
        self,
        *,
        rng: random.Random,
        threshold: int = 5,
        base: float = 1.0,
        cap: float = 60.0,
        patience: float = 60.0,
    ) -> None:
        self._rng = rng
        self._threshold = threshold
        self._base = base
        self._cap = cap
        self._patience = patience
        self._failures = 0  # in a row
        self._opened = 0  # times in a row
        self._until = -math.inf
        self._probing = False

    @property
    def closed(self) -> bool:
        return not self._opened

    def ready(self, now: float) -> float:
        """Return when a request may be sent; a time not after `now` means at once."""
        return self._until if self._opened else now

    def spend(self, now: float) -> None:
        """Count a request that is sent now. If the breaker is open, it is the probe."""
        if self._opened and now >= self._until:
            self._probing = True
            self._until = now + self._patience

    def succeeded(self, now: float) -> None:
        """The host has responded, with any status that does not mean an outage."""
        if not self._opened or self._probing:
            self._failures = self._opened = 0
            self._probing = False

    def failed(self, now: float) -> None:
        """There was no response, or one that means an outage."""
        self._failures += 1
        if self._probing or (not self._opened and self._failures >= self._threshold):
            ceiling = min(self._cap, self._base * 2.0 ** min(self._opened, 60))
            self._until = now + self._rng.uniform(ceiling / 2, ceiling)
            self._opened += 1
            self._probing = False
