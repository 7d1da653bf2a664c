"""A server's time as this machine's monotonic clock tells it: each exchange bounds how far apart they are.

The bounds of all exchanges are kept, a little wider with time, for clocks drift. A server whose clock was set is believed
with its next word.
"""

from __future__ import annotations

import math

DRIFT = 500e-6  # seconds a second; more than any clock that is kept right


class RemoteClock:
    def __init__(self) -> None:
        self._low, self._high = -math.inf, math.inf
        self._at = -math.inf
        self._ahead = 0.0
        self.trip = 0.001  # seconds that an exchange takes

    def there(self, now: float) -> float:
        return now + self._ahead

    def here(self, at: float) -> float:
        return at - self._ahead

    def measured(self, sent: float, server: float, received: float) -> None:
        """It was `server` there at some moment between these two."""
        self.trip += 0.2 * (received - sent - self.trip)
        wider = max(0.0, received - self._at) * DRIFT
        low, high = server - received, server - sent
        both = max(low, self._low - wider), min(high, self._high + wider)
        self._low, self._high = both if both[0] <= both[1] else (low, high)
        self._at = received
        self._ahead = (self._low + self._high) / 2
