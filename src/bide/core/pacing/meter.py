"""One advertised limit: how much of it is left, when it resets, and so how fast it may be spent.

1. The level is never above what is really left, as far as responses show: requests on their way count as spent, and a
   response raises the level only if a new window has started or if no other request was on its way.
2. `until` is never before the real reset: whole seconds are read as one more, and the earliest of several readings
   counts. So a new window is spent only after it has started.
3. What is left is spent evenly until the reset; at most a tenth of it at once.
4. No wait is longer than an hour, whatever the headers say.

A fixed window and a token bucket look alike in headers. The limit counts as a window, which is right on average for
both. If what is left grows within a window, and the policy has a rate, the limit is a bucket and refills continuously.

Headers contain whole seconds, so they do not show when a window of a few seconds starts. Such a window is spent at one
even pace that keeps the limit wherever the window starts. If what is left hardly falls meanwhile, it is a bucket.
"""

from __future__ import annotations

import math

import msgspec

from bide.core.clock import LONG_AGO
from bide.core.pacing.limits import WEEK, AdvertisedLimit

LONGEST_PAUSE = 3600.0
SHARE = 0.1  # of what is left that may be sent at once
CAUTIOUS_SHARE = 0.02  # of a level below half, per second, if no header contains a time
NEVER = -LONG_AGO
CLOSE = 0.02  # added to an exact reset, because two clocks never agree exactly
ANSWERED = 5.0  # seconds after which the first request of a new window counts as lost
SLACK = 1.0  # seconds: the most network jitter that an even pace allows for
LEAST_SLACK = 0.02  # and the least, however fast the responses are
SHORT = 8.0  # seconds: a shorter window is spent evenly, whatever the headers say about its start
PERIODS = 4  # short windows for which the start of the next is computed from one that was seen to start
ENOUGH = 2.5  # requests per short window that distinguish a bucket from a window


class Meter(msgspec.Struct, array_like=True):
    quota: float = 1.0
    window: float = 0.0  # 0: unknown
    level: float = 0.0
    until: float = LONG_AGO
    at: float = LONG_AGO  # when the level was measured
    pace: float = LONG_AGO  # up to when an even pace has spent the limit
    next: float = LONG_AGO  # when one more request may be sent
    lowest: float = NEVER  # reported in this window
    rolled: float = LONG_AGO  # when a new window was last seen
    flows: bool = False  # a bucket that fills at quota / window
    timed: bool = False  # some header contains a time
    timed_policy: bool = False  # the policy contains the window
    guessed: bool = False  # this window has started by our clock; no response has confirmed it yet
    top: float = 0.0  # the most that was ever left, before the request that showed it
    risen: int = 0  # how often more was left than a window can have
    needed: int = 2  # `risen` that makes it a bucket
    flying: float = 0.0  # requests on their way at the last change
    margin: float = 0.0  # left unused in a bucket, for other users of the credential
    counted: bool = False  # headers contain what is left, not only the policy
    stragglers: int = 0  # responses of the last window that may still arrive
    reading: float = -1.0  # the last bare number, to find out its unit
    milliseconds: bool = False
    slack: float = SLACK  # measured jitter
    turned: float = -NEVER  # when a new short window was last seen; `lowest` belongs to it
    highest: float = -NEVER  # reported since `rolled`, as is the next
    deepest: float = NEVER
    responses: int = 0  # responses since then
    unit: float = 1.0  # the cost of a request

    def update(self, seen: AdvertisedLimit, now: float, flying: float, alone: bool, took: float) -> None:
        """Learn from one response, `took` seconds after its request; `flying` requests may not be counted yet, `alone`
        if no other request overlapped."""
        if seen.remaining is None:
            self._update_policy(seen)
            return
        self.counted, self.flying = True, flying
        reset = self._reset(seen, now)
        self.timed = self.timed or reset is not None or seen.window is not None
        self.timed_policy = self.timed_policy or seen.window is not None
        self.quota = max(seen.quota or max(self.quota, seen.remaining), 1.0)
        self.window = seen.window or max(self.window, reset or 0.0)
        self.top = min(max(self.top, seen.remaining + 1.0), max(self.quota, 1.0))
        # Never quite empty: jitter can make requests arrive closer together than they were sent.
        jolted = self.slack * self.quota / self.window if self.window else 0.0
        self.margin = max(min(1.0 + jolted, self.top / 2), 0.995 * self.margin)
        left = seen.remaining - flying
        if not self.timed:
            self.level, self.at = left, now
        elif self.flows:
            # The bucket has filled since it counted this request; the margin is for the case that it just did.
            since = min(self.quota / self.window * took, max(0.0, self.margin - 1.0))
            known = seen.remaining if alone else min(self.filled(now), left + since)
            self.level, self.at = known, now
            empty = seen.remaining < 1 and reset is not None
            self.until = now + min(reset or 0.0, LONGEST_PAUSE) if empty else LONG_AGO
        elif self.short:
            self._update_short_window(seen.remaining, now, flying, reset)
        else:
            self._update_window(seen.remaining, now, flying, reset, alone)
        self.plan(now)

    @property
    def short(self) -> bool:
        return self.timed_policy and not self.flows and self.window < SHORT

    @property
    def even(self) -> float:
        """Seconds between two requests such that no window gets more than its quota, wherever it starts."""
        slack = self.slack if self.window < SHORT else SLACK
        return (self.window + slack) / self.quota

    def _update_short_window(
        self, remaining: float, now: float, flying: float, reset: float | None
    ) -> None:
        if self.turned < -NEVER / 2:
            # The first response: what was counted before it counts as sent at the even pace.
            before = min(self.quota - remaining + flying, self.quota)
            self.turned, self.pace = now - self.window, now + before * self.even
        # Responses overtake each other: a smaller number may arrive after a larger one.
        overtaken = max(flying, 0.5)
        if remaining > self.lowest + overtaken:
            self.turned, self.lowest = now, remaining
        self.lowest = min(self.lowest, remaining)
        # A request that is on its way for longer than a window does not belong to the window of this response.
        self.level, self.at = remaining - min(flying, self.window / self.even), now
        self.until = now + (self.window if reset is None else min(reset, self.window))
        windows = math.ceil((now - self.turned) / self.window) or 1
        if windows <= PERIODS:  # each may start with the first request after the last window
            self.until = min(self.until, self.turned + windows * self.window + (windows - 1) * self.even)
        self._look_for_bucket(remaining, now)

    def _look_for_bucket(self, remaining: float, now: float) -> None:
        """Detect a bucket: what is left of a window falls with each request; a bucket refills."""
        self.highest, self.deepest = max(self.highest, remaining), min(self.deepest, remaining)
        self.responses += 1
        span = now - self.rolled
        if span < 2.0 * self.window + self.slack:  # contains a whole window
            return
        counted = self.responses * self.window / span
        flat = counted >= ENOUGH and self.highest - self.deepest < (counted - 1.0) / 2
        self.risen = self.risen + 1 if flat else 0
        self.rolled, self.highest, self.deepest, self.responses = now, -NEVER, NEVER, 0
        if self.risen >= self.needed:
            self.flows, self.until = True, LONG_AGO

    def _update_policy(self, seen: AdvertisedLimit) -> None:
        if not self.counted and seen.quota and seen.window:
            self.quota, self.window = seen.quota, seen.window

    def _reset(self, seen: AdvertisedLimit, now: float) -> float | None:
        """Return the seconds until the reset, never too few."""
        reset = seen.reset
        if reset is None:
            return None
        if seen.vague:
            passed, fallen = now - self.at, self.reading - reset
            if self.reading >= 0 and passed > 0.1 and fallen > 0:
                self.milliseconds = fallen / passed > 50
            self.reading = reset
            if self.milliseconds:
                return reset / 1000
        return min(reset, WEEK) + (SLACK if seen.coarse else CLOSE)

    def _update_window(
        self, remaining: float, now: float, flying: float, reset: float | None, alone: bool
    ) -> None:
        ends = now + (self.window if reset is None else reset)
        if self.timed_policy:
            # The request was counted in this window, so the window ends within its length.
            ends = min(ends, now + self.window)
        apart = max(0.5 * self.window, 2.0)
        grown = alone and remaining > self.lowest + 0.5
        anew = now >= self.until or ends > self.until + apart or (reset is None and grown)
        if reset is not None and not anew and ends < self.until - apart:
            self.stragglers -= 1
            if self.stragglers >= 0:
                return  # it belongs to the last window and says nothing about this one
            anew = True  # there are too many of them, so the later reset was wrong
            self.window = self.window if self.timed_policy else reset
        if anew or self.guessed:
            early = now - self.rolled < 0.5 * self.window - 1.0
            self.risen = self.risen + 1 if grown and early else 0
            left = remaining - flying
            if early and self.timed_policy and not alone:
                # Probably not a new window: responses overtake each other, and no bucket fills faster than this.
                filled = max(self.level, 0.0) + self.quota / self.window * (now - self.at)
                left = min(left, filled)
            self.level, self.until, self.rolled = left, ends, now
            self.lowest, self.stragglers, self.guessed = remaining, math.ceil(flying), False
        else:
            # Within a window what is left cannot grow; in a bucket it does.
            self.risen += grown and self.window >= 8.0
            later = remaining > self.lowest or remaining < 1
            self.lowest = min(self.lowest, remaining)
            # When all requests have been answered, the lowest number is right.
            self.level = min(self.level, remaining - flying) if flying else self.lowest
            if reset is not None:
                # If more is left than before, this may be the next window. If none is left, a bucket's reset moves with
                # each request.
                self.until = max(self.until, ends) if later else min(self.until, ends)
        self.at = now
        if self.timed_policy and self.risen >= self.needed:
            self.flows, self.level, self.until = True, remaining - flying, LONG_AGO

    def filled(self, now: float) -> float:
        """Return the level of a bucket now."""
        return min(self.top, self.level + self.quota / self.window * max(0.0, now - self.at))

    def spend(self, now: float, cost: float, flying: float) -> None:
        if not self.counted:
            self.pace = max(self.pace, now) + cost * self.even
            self.next = min(self.pace, now + LONGEST_PAUSE)
            return
        if self.short:
            if now >= self.until:
                self.level, self.until = self.quota, now + self.window
            self.level -= cost
            self.pace = max(self.pace, now) + cost * self.even
            self.plan(now)
            return
        if self.flows:
            self.level, self.at = self.filled(now), now
        elif self.timed and now >= self.until and (self.level < cost or not flying):
            # There must be a new window, though no response has shown it yet. One request goes first, and its response
            # shows what is left: the reset of a bucket may mean a single token.
            self.level, self.until, self.at = 0.0, now + min(self.window or ANSWERED, ANSWERED), now
            self.pace, self.guessed = now, True
        self.level = max(0.0, self.level - cost)
        self.flying = flying + cost
        if not self.flows:
            gap = self._gap(now) if self.timed else 1 / self._cautious_rate(cost)
            self.pace = max(self.pace, now) + gap
        self.plan(now)

    def plan(self, now: float) -> None:
        """Set when one more request may be sent."""
        cost = self.unit
        if self.flows:
            missing = cost + self.margin - self.level
            wait = missing * self.window / self.quota
            self.next = max(self.at + wait, self.until)
        elif self.short:
            self.next = self.pace if self.level >= cost else max(self.pace, self.until)
        elif not self.timed:
            self.next = LONG_AGO if self.level >= self.quota / 2 else self.pace
        elif self.level < cost:
            self.next = self._anew(now)
        else:
            gap = self._gap(now)
            burst = max(1.0, SHARE * self.level)
            self.pace = min(self.pace, now + burst * gap)
            self.next = min(self.pace - (burst - 1.0) * gap, self._anew(now))
        self.next = min(self.next, now + LONGEST_PAUSE)

    def _anew(self, now: float) -> float:
        """Return when a request may be sent because there must be a new window. Responses still to come may show it."""
        return max(self.until, now + ANSWERED) if self.flying else self.until

    def _gap(self, now: float) -> float:
        """Return the seconds between two requests such that the last is sent shortly before the reset."""
        even = (self.until - min(2.0, 0.05 * self.window) - now) / max(self.level, 1.0)
        return max(even, 0.25 * self.window / self.quota)

    def _cautious_rate(self, cost: float) -> float:
        return (
            max(CAUTIOUS_SHARE * self.level / cost, 1 / 60) if self.level < self.quota / 2 else math.inf
        )

    def emptied(self, now: float) -> None:
        """A request was refused: nothing is left."""
        if self.flows:
            self.margin = min(max(1.0, 2 * self.margin), self.top / 2)
            if self.filled(now) >= 2.0:  # a bucket would have granted it, so this may be a window
                self.flows, self.risen, self.needed = False, 0, min(2 * self.needed, 1000)
                self.until = now + self.window
        self.level, self.at = 0.0, now
        self.plan(now)

    def lose(self, now: float, cost: float, flying: float) -> None:
        """A request got no response; it may have been counted."""
        self.lowest -= cost
        self.land(now, flying)

    def land(self, now: float, flying: float) -> None:
        """A response without limits arrived; `flying` requests are still on their way."""
        self.flying = flying
        if self.guessed and self.timed_policy and not flying:
            # The first request of a new window has been counted. The next may follow as fast as a bucket fills.
            self.until = min(self.until, now + self.even)
        if self.counted:
            self.plan(now)

    def rate(self, now: float, unit: float) -> float | None:
        """Return the requests per second that this limit can sustain."""
        if not self.counted:
            return 1.0 / self.even
        if not self.timed:
            cautious = self._cautious_rate(unit)
            return None if cautious == math.inf else cautious
        if not self.window:
            return None
        if self.short:
            return max(1.0 / (self.even * unit), 1 / LONGEST_PAUSE)
        steady = self.quota / self.window
        if not self.flows and now < self.until and not self.guessed:
            # Over the length of a window: what is left of this one, then the start of the next.
            rest = min(1.0, (self.until - now) / self.window)
            steady = min(steady, max(self.level, 0.0) / self.window + steady * (1.0 - rest))
        return max(steady / unit, 1 / LONGEST_PAUSE)

    def shift(self, by: float) -> None:
        """Move all times, because another process has another monotonic clock."""
        for name in ("until", "at", "pace", "next", "rolled", "turned"):
            setattr(self, name, getattr(self, name) + by)
