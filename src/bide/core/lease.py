"""How long a claim holds, and when an observer may call it lost. Pure: the caller passes its own time in.

A worker renews at a third of the lease, so two renewals may be late before it is lost.

1. A lease is lost only after an observer saw the same owner and the same `until` for one whole lease of its own time.
   No clock is compared with `until`: it only shows whether the lease was renewed.
2. Time in which the observer did not look does not count. A look that comes more than a third of a lease after the one
   before it begins the observation of that lease anew.
3. A worker cannot renew while the store takes no writes. So the observer writes too, once a lease is suspect: the store must
   have taken its writes for a third of the lease, and a write that fails begins all observations anew.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

LEASE = 30.0
LOOKS = 10  # per lease
SUSPECT = 0.6  # of a lease without a renewal; a worker that lives renews at a third
SHORTEST_PACE = 0.02


def renewal_interval(lease: float = LEASE) -> float:
    return lease / 3


class Lease(msgspec.Struct, frozen=True):
    """What one owner holds until the same instant: all of it was claimed or renewed by one transaction."""

    owner: str
    until: float
    seconds: float | None = None  # its length; None: claimed by an older version


class LeaseObserver:
    """What one process has seen of the leases of all others."""

    def __init__(self, usual: float) -> None:
        """`usual`: the length of a lease that does not say its own."""
        self._usual = usual
        self._first_seen: dict[Lease, float] = {}
        self._last_look: float | None = None
        self._writable_since: float | None = None
        self.pace = usual / LOOKS  # seconds until the next look

    def look(self, leases: Iterable[Lease], asked: float, answered: float) -> None:
        """These are all leases that are held: the store was asked at `asked`, and has answered at `answered`."""
        gap = None if self._last_look is None else answered - self._last_look
        self._last_look = answered
        known, self._first_seen = self._first_seen, {}
        shortest = self._usual
        for lease in leases:
            seconds = self._length(lease)
            shortest = min(shortest, seconds)
            since = known.get(lease)
            late = gap is None or gap > renewal_interval(seconds)
            self._first_seen[lease] = answered if since is None or late else since
        self._asked = asked
        self.pace = max(SHORTEST_PACE, shortest / LOOKS)

    @property
    def suspects(self) -> bool:
        """Whether a lease was not renewed for so long that its worker must be in trouble."""
        return any(self._asked - since >= SUSPECT * self._length(lease) for lease, since in self._seen())

    def lost(self) -> list[Lease]:
        """Those that were seen unchanged for their whole length while the store took writes."""
        since = self._writable_since
        if since is None:
            return []
        return [
            lease
            for lease, seen in self._seen()
            if self._asked - seen >= (seconds := self._length(lease))
            and self._asked - since >= renewal_interval(seconds)
        ]

    def writable(self, at: float) -> None:
        """The store has taken a write."""
        if self._writable_since is None:
            self._writable_since = at

    def calm(self) -> None:
        """No lease is suspect: whether the store takes writes is not known from here on."""
        self._writable_since = None

    def restart(self) -> None:
        """The store took no write: what was seen until now proves nothing."""
        self._writable_since = self._last_look = None

    def _length(self, lease: Lease) -> float:
        return lease.seconds or self._usual

    def _seen(self) -> Iterable[tuple[Lease, float]]:
        return self._first_seen.items()
