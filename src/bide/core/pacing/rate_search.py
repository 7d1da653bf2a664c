"""The search for a limit that is neither advertised nor documented: faster until refused, then just below the limit.

1. Until the first refusal the rate grows by one for each response while requests wait for it: it doubles about every
   second. At most ROOM requests are on their way, plus one per fifty granted, because all of them may be refused.
2. After a refusal the rate is what the API accepted over the whole cycle, including the pause: for a fixed window and
   for a bucket that is the limit itself. One refusal lowers the rate to an eighth at most.
3. From then on the rate grows by a twentieth at a time, at intervals that double with each refusal, up to an hour. So
   refusals become rare.
4. The rate does not grow while no request waits for it, and is never zero.
"""

from __future__ import annotations

import msgspec

from bide.core.clock import LONG_AGO

START = 5.0
BURST = 5.0
ROOM, ROOM_SHARE = 8.0, 0.02  # requests on their way at once, plus a share of all that were granted
SLOWEST = 1 / 60
STEP = 1.05
SHORT = 10.0  # seconds between two steps while the rate is far below the last refusal
FIRST_INTERVAL, LONGEST_INTERVAL = 30.0, 3600.0


class RateSearch(msgspec.Struct, array_like=True):
    rate: float = START
    found: bool = False  # the API has refused; before that the rate only keeps the start gentle
    next: float = LONG_AGO
    pace: float = LONG_AGO
    pressed: bool = False  # a request had to wait for the rate since the last response
    interval: float = FIRST_INTERVAL
    grown: float = LONG_AGO
    began: float = LONG_AGO  # start of the measured cycle
    accepted: float = 0.0
    ceiling: float = 0.0  # the rate at the last refusal
    used: float = 0.0  # the rate at the current refusal; 0: none

    def spend(self, now: float, cost: float) -> None:
        if self.began < LONG_AGO / 2:  # nothing was sent yet
            self.began = self.grown = now
        gap = 1.0 / self.rate
        if now < self.pace + 0.25 * gap:  # it was sent as soon as the rate allowed
            self.pressed = True
        self.pace = max(self.pace, now) + cost * gap
        self.next = self.pace if self.found else self.pace - gap * BURST

    def accept(self, now: float, took: float) -> None:
        """Record that a request was accepted; its response took `took` seconds."""
        self.accepted += 1.0
        if self.used:
            self._recover(now)
        elif self.pressed:
            if not self.found:
                room = ROOM + ROOM_SHARE * self.accepted
                self.rate = max(START, min(self.rate + 1.0, room / max(took, 1e-6)))
            elif now - self.grown >= (self.interval if self.rate > 0.85 * self.ceiling else SHORT):
                self.rate *= STEP
                self.grown = self.began = now
                self.accepted = 0.0
        self.pressed = False

    def refuse(self, now: float) -> None:
        if self.used:
            return  # part of the same refusal
        measured = (self.accepted + 1.0) / max(now - self.began, 1.0 / self.rate)
        if not self.found:  # the rate has doubled since the refused requests were sent
            measured = max(measured, self.rate / 2)
        self.used = max(min(self.rate, measured), SLOWEST)
        if self.found:
            self.interval = min(self.interval * 2, LONGEST_INTERVAL)
        self.found = True

    def _recover(self, now: float) -> None:
        """The first success after a refusal: set the rate to what was accepted in the cycle, per second."""
        measured = 0.95 * self.accepted / max(now - self.began, 1e-3)
        self.rate = max(min(0.9 * self.used, measured), self.used / 8, SLOWEST)
        self.ceiling, self.used, self.accepted = self.used, 0.0, 0.0
        self.began = self.grown = now
        self.pace = self.next = now + 1.0 / self.rate

    def shift(self, by: float) -> None:
        self.next += by
        self.pace += by
        self.grown += by
        self.began += by
