"""The search for a limit that nobody tells: faster while all goes well, slower when refused, then just below it.

1. Until the first refusal the rate grows by one for each answer that it had held up: it doubles every second or so. But
   no more are on their way than a few, and one more for every fifty that were granted: all of them may be refused.
2. After a refusal the rate is what was in truth accepted over the whole cycle, pause included: for a fixed window as
   for a bucket that is the limit itself. It falls to an eighth at most at once.
3. From then on it grows by a twentieth at a time, at intervals that double with each refusal, up to an hour: in a
   long run refusals become rare.
4. It never grows while nobody wants more, and is never zero.
"""

from __future__ import annotations

import msgspec

from bide.core.clock import LONG_AGO

START = 5.0
BURST = 5.0
ROOM, ROOM_SHARE = 8.0, 0.02  # on their way at once: these, and a part of all that were granted
SLOWEST = 1 / 60
STEP = 1.05
SHORT = 10.0  # between two steps while it is far below where it was refused
FIRST_INTERVAL, LONGEST_INTERVAL = 30.0, 3600.0


class Seeker(msgspec.Struct, array_like=True):
    rate: float = START
    found: bool = False  # was ever refused: before that it only keeps the start gentle
    next: float = LONG_AGO
    pace: float = LONG_AGO
    pressed: bool = False  # the rate has held something up since the last answer
    interval: float = FIRST_INTERVAL
    grown: float = LONG_AGO
    began: float = LONG_AGO  # the cycle that is measured
    accepted: float = 0.0
    ceiling: float = 0.0  # the rate at which it was last refused
    used: float = 0.0  # the rate at which it was refused; 0: not in a refusal

    def spend(self, now: float, cost: float) -> None:
        if self.began < LONG_AGO / 2:  # nothing was sent yet
            self.began = self.grown = now
        gap = 1.0 / self.rate
        if now < self.pace + 0.25 * gap:  # it went as soon as it might
            self.pressed = True
        self.pace = max(self.pace, now) + cost * gap
        self.next = self.pace if self.found else self.pace - gap * BURST

    def accept(self, now: float, took: float) -> None:
        """One was granted; its answer took so long."""
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
            return  # the same refusal goes on
        measured = (self.accepted + 1.0) / max(now - self.began, 1.0 / self.rate)
        if not self.found:  # it had doubled since those were sent that are refused now
            measured = max(measured, self.rate / 2)
        self.used = max(min(self.rate, measured), SLOWEST)
        if self.found:
            self.interval = min(self.interval * 2, LONGEST_INTERVAL)
        self.found = True

    def _recover(self, now: float) -> None:
        """The first success after a refusal: what was accepted in the cycle, by how long it took."""
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
