"""A server's time, computed from this machine's monotonic clock.

Each exchange bounds the difference between the two clocks. The bounds of all exchanges are kept and widen slowly,
because clocks drift. If a new bound contradicts them, the server's clock was set: only the new bound counts.
"""

from __future__ import annotations

import math

DRIFT = 500e-6  # seconds per second; more than any synchronised clock


class RemoteClock:
    def __init__(self) -> None:
        self._low, self._high = -math.inf, math.inf
        self._measured_at = -math.inf
        self._ahead = 0.0
        self.round_trip = 0.001  # seconds, moving average

    def to_server(self, now: float) -> float:
        return now + self._ahead

    def to_local(self, at: float) -> float:
        return at - self._ahead

    def measured(self, sent: float, server: float, received: float) -> None:
        """The server's clock showed `server` between `sent` and `received`."""
        self.round_trip += 0.2 * (received - sent - self.round_trip)
        wider = max(0.0, received - self._measured_at) * DRIFT
        low, high = server - received, server - sent
        both = max(low, self._low - wider), min(high, self._high + wider)
        self._low, self._high = both if both[0] <= both[1] else (low, high)
        self._measured_at = received
        self._ahead = (self._low + self._high) / 2
