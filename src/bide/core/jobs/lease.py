"""How long a claim is valid, and when an observer may declare it lost. Pure: the caller passes its own time.

A worker renews its lease after a third of its length, so two renewals may fail before the lease is lost.

1. A lease is lost only after an observer saw the same owner and the same `until` for one whole lease of its own time.
   No clock is compared with `until`: it only shows whether the lease was renewed.
2. Time in which the observer did not look does not count. A look more than a third of a lease after the last one
   restarts the observation of that lease.
3. A worker cannot renew while the store accepts no writes. So the observer writes too once a lease is suspect: the store
   must have accepted its writes for a third of the lease, and a failed write restarts all observations.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

LEASE = 30.0
LOOKS = 10  # per lease
SUSPECT = 0.6  # of a lease without a renewal; a healthy worker renews after a third
SHORTEST_PACE = 0.02


def renewal_interval(lease: float = LEASE) -> float:
    return lease / 3


class Lease(msgspec.Struct, frozen=True):
    """The jobs that one owner holds until the same instant: one transaction claimed or renewed all of them."""

    owner: str
    until: float
    seconds: float | None = None  # its length; None: claimed by an older version


class LeaseObserver:
    """The leases of all other processes, as one process has observed them."""

    def __init__(self, usual: float) -> None:
        """`usual`: the length of a lease without a stored length."""
        self._usual = usual
        self._first_seen: dict[Lease, float] = {}
        self._last_look: float | None = None
        self._writable_since: float | None = None
        self.pace = usual / LOOKS  # seconds until the next look

    def look(self, leases: Iterable[Lease], asked: float, answered: float) -> None:
        """Observe all current leases, queried at `asked` and returned at `answered`."""
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
        """Whether a lease has not been renewed for so long that its worker may be lost."""
        return any(self._asked - since >= SUSPECT * self._length(lease) for lease, since in self._seen())

    def lost(self) -> list[Lease]:
        """Return the leases seen unchanged for their whole length while the store accepted writes."""
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
        """The store has accepted a write."""
        if self._writable_since is None:
            self._writable_since = at

    def calm(self) -> None:
        """No lease is suspect, so the observer no longer writes."""
        self._writable_since = None

    def restart(self) -> None:
        """The store rejected a write, so earlier observations prove nothing."""
        self._writable_since = self._last_look = None

    def _length(self, lease: Lease) -> float:
        return lease.seconds or self._usual

    def _seen(self) -> Iterable[tuple[Lease, float]]:
        return self._first_seen.items()
