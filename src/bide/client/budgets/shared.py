"""Budgets that machines share exactly, through a place that all of them reach.

1. Nobody waits for the place: a purse that has no grant in hand asks for some, and is told to try again in a moment. A
   thread has the conversation.
2. Grants come as they are needed, a few at a time, and are void a moment later: see `teller`.
3. A refusal voids what is in hand at once, here; the others hear of it with their next word with the place.
4. While the place is away nobody draws on the budget. Who holds a seat sends one request a window, which was kept apart for
   that; without a documented limit nothing is sent. What has no limit at all goes on.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from bide.client.budgets import record as records
from bide.client.budgets.place import Away, Place
from bide.client.budgets.remote_clock import RemoteClock
from bide.client.budgets.teller import Ask, Heard, Teller, Told
from bide.core.budget import Budget, Limit
from bide.core.errors import SetupError
from bide.core.limits import read_pause, telling

log = logging.getLogger("bide.client")
OPENING = 10.0  # seconds that the first word may take
LEAVING = 1.5  # and the last
AGAIN = 0.25  # between two tries while the place is away
SILENT = 2.0  # without an answer for so long it is away
SHORTEST = 0.001  # between two looks whether an answer has come
MOST = 64  # grants at once
FEW, MOST_PENDING = 16, 256  # answers kept back when there is nothing to take, and in any case
IN_USE = 60.0  # seconds after its last change for which a record is somebody's
REFUSED = 60.0  # without advice, how long a seat is not used after a refusal


class SharedBudgets:
    """`wait`: how long a purse may wait for an answer itself, rather than be told to try again: for tests."""

    def __init__(
        self,
        place: Place,
        rng: random.Random | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        clock: RemoteClock | None = None,
        wait: float = 0.0,
    ) -> None:
        self._place = place
        self._rng = rng or random.Random()
        self._now = now
        self._clock = clock or RemoteClock()
        self._wait = wait
        self._purses: dict[str, SharedPurse] = {}
        self._errands: queue.SimpleQueue[Errand | None] = queue.SimpleQueue()
        self._salt: bytes | None = None
        self._thread = threading.Thread(target=self._work, name="bide budgets", daemon=True)
        self._thread.start()

    def open(self, name: str, limit: Limit | None = None) -> SharedPurse:
        """The first time it blocks until the place has answered; SetupError when that cannot be used."""
        purse = self._purses.get(name)
        if purse is None:
            teller = Teller(self._place, name, limit, self._clock, self._now, self._rng)
            found = self._first(teller.look)
            if found is not None and found.limit != records.named(limit):
                age = self._clock.there(self._now()) - found.at
                if age < IN_USE:
                    raise SetupError(
                        f"others that share this budget at {self._place.shown} have another limit "
                        f"({_written(found.limit)}): give all of them the same"
                    )
            teller.on_lost = self.keep_salt
            purse = SharedPurse(self, teller, limit)
            self._purses[name] = purse
        return purse

    @property
    def salt(self) -> bytes:
        """With which all who share here make the names of budgets. Blocks the first time."""
        if self._salt is None:
            self._salt = self._first(lambda: self._place.salt(secrets.token_bytes(32)))
        return self._salt

    @property
    def shown(self) -> str:
        return self._place.shown

    def close(self) -> None:
        for purse in self._purses.values():
            purse.close()
        self._purses.clear()
        self._errands.put(None)
        self._thread.join(LEAVING)

    def run(self, work: Callable[[], Any]) -> Errand:
        errand = Errand(work, self._now())
        self._errands.put(errand)
        if self._wait:
            errand.done.wait(self._wait)
        return errand

    def keep_salt(self) -> None:
        """The place has lost its records, and perhaps this: who comes new must find the same."""
        if self._salt is not None and self._place.salt(self._salt) != self._salt:
            log.error(
                "%s was emptied, and others have begun anew there: start again what shares a budget through it",
                self._place.shown,
            )

    def _first(self, work: Callable[[], Any]) -> Any:
        errand = self.run(work)
        if not errand.done.wait(OPENING):
            raise SetupError(f"budgets cannot be shared through {self._place.shown}: it does not answer")
        if errand.error is not None:
            if not isinstance(errand.error, Away):
                raise errand.error
            raise SetupError(
                f"budgets cannot be shared through {self._place.shown}: {errand.error}. Check the address, and "
                "that the server runs"
            ) from errand.error
        return errand.result

    def _work(self) -> None:
        while (errand := self._errands.get()) is not None:
            try:
                errand.result = errand.work()
            except Exception as error:
                errand.error = error
            errand.done.set()
        with contextlib.suppress(Exception):
            self._place.close()


class Errand:
    """Something that the thread does."""

    __slots__ = ("done", "error", "result", "since", "work")

    def __init__(self, work: Callable[[], Any], since: float) -> None:
        self.work = work
        self.since = since
        self.result: Any = None
        self.error: Exception | None = None
        self.done = threading.Event()


class SharedPurse:
    """This process's access to one shared budget."""

    def __init__(self, budgets: SharedBudgets, teller: Teller, limit: Limit | None) -> None:
        self._budgets = budgets
        self._teller = teller
        self._limit = limit
        self._clock = budgets._clock
        self._budget = Budget(records.rest_of(limit), rng=budgets._rng)  # as it was last heard of
        self._hand: deque[tuple[float, float]] = deque()  # grants: a moment of the server, and its cost
        self._sent: list[float] = []  # grants that were sent and not answered yet
        self._lost_grants: list[float] = []  # that were not sent
        self._pending: list[Heard] = []
        self._errand: tuple[Errand, Ask] | None = None
        self._overdue = self._refused = False  # there is news that must not wait; a refusal
        self._hurry = 1
        self._drawn = -math.inf
        self._next = -math.inf
        self._away_since: float | None = None
        self._seat: float | None = None  # until when
        self._alone = -math.inf  # when the seat may be used
        self._closed = False

    # --- Purse

    def ready(self, now: float, cost: float = 1.0) -> float:
        self._collect(now)
        if self._away_since is not None:
            return self._ready_alone(now)
        if self._hand and not self._refused:
            self._void(now)
            if self._hand:
                return self._clock.here(self._hand[0][0])
        if self._errand is not None:
            return self._soon(now)
        if self._overdue:
            self._start(Ask(now))
            return self._soon(now) if self._errand is not None else max(now, self._next)
        return self._next

    def take(self, now: float, cost: float = 1.0) -> float:
        self._collect(now)
        if self._away_since is not None:
            return self._take_alone(now)
        if self._grant(now, cost):
            return now
        if self._hand and not self._refused and self._hand[0][1] == cost:
            return self._clock.here(self._hand[0][0])
        if self._errand is not None:
            return self._soon(now)
        if self._next > now and not self._overdue and len(self._pending) < FEW:
            return self._next
        self._start(Ask(now, self._wanted(now), cost))
        return self._answered(now, cost)

    def _answered(self, now: float, cost: float) -> float:
        """What is to be told of a question that was just asked."""
        if self._errand is not None:
            return self._soon(now)
        if self._away_since is not None:
            return self._take_alone(now)
        return now if self._grant(now, cost) else max(self._next, now + SHORTEST)

    def heard(self, now: float, status: int, headers: Mapping[str, str], wall: float) -> None:
        told = telling(headers)
        self._pending.append((now, status, told or {}, wall))
        known = self._budget.state
        refused = status in (429, 503)
        if refused:
            self._refused = True
            self._drop()
            if self._away_since is not None:
                self._alone = max(self._alone, now + (read_pause(told or {}, wall) or REFUSED))
        if len(self._pending) > 2 * MOST_PENDING:  # a place that has been away for long
            del self._pending[0], self._sent[:1]
        waited_for = not known.met or known.strikes or known.meters
        if told is not None or waited_for or refused or not status or len(self._pending) >= MOST_PENDING:
            self._overdue = True
            self._collect(now)
            if self._errand is None and self._away_since is None:
                self._start(Ask(now))

    def rate(self, now: float) -> float | None:
        return self._budget.rate(self._clock.there(now))

    # --- beside it

    def settle(self) -> None:
        """Tells what was kept back; to be called now and then by who may fall silent."""
        now = self._budgets._now()
        self._collect(now)
        if self._pending and self._errand is None and self._away_since is None:
            self._start(Ask(now))

    def close(self) -> None:
        """Tells the rest, as far as the place answers."""
        if self._closed:
            return
        self._closed = True
        if self._errand is not None:
            self._errand[0].done.wait(LEAVING)
        now = self._budgets._now()
        self._collect(now)
        self._drop()
        if self._away_since is None:
            self._start(Ask(now, leaves=True))
            if self._errand is not None:
                self._errand[0].done.wait(LEAVING)

    # --- grants

    def _grant(self, now: float, cost: float) -> bool:
        self._void(now)
        if self._refused or not self._hand:
            return False
        at, of = self._hand[0]
        if of != cost or self._clock.here(at) > now:
            return False
        self._hand.popleft()
        self._sent.append(at)
        return True

    def _void(self, now: float) -> None:
        oldest = self._clock.there(now) - self._teller.moment
        while self._hand and self._hand[0][0] < oldest:
            self._lost_grants.append(self._hand.popleft()[0])

    def _drop(self) -> None:
        self._lost_grants.extend(at for at, _ in self._hand)
        self._hand.clear()

    def _wanted(self, now: float) -> int:
        """More at once for who comes back soon."""
        soon = now - self._drawn < self._teller.moment
        self._hurry = min(2 * self._hurry, MOST) if soon else max(1, self._hurry // 4)
        self._drawn = now
        return self._hurry

    # --- the conversation

    def _start(self, ask: Ask) -> None:
        ask.heard, ask.sent, ask.lost = list(self._pending), list(self._sent), list(self._lost_grants)
        self._errand = self._budgets.run(lambda: self._teller.run(ask)), ask
        self._collect(ask.now)

    def _soon(self, now: float) -> float:
        """When an answer will have come, probably."""
        assert self._errand is not None
        trip = self._clock.trip
        return max(self._errand[0].since + 1.2 * trip, now + max(SHORTEST, trip / 2))

    def _collect(self, now: float) -> None:
        """What has come of the last question."""
        if self._errand is None:
            return
        errand, ask = self._errand
        if not errand.done.is_set():
            if now - errand.since > SILENT and self._away_since is None:
                self._lost(now, "it does not answer")
            return
        self._errand = None
        if errand.error is not None:
            if not isinstance(errand.error, Away):
                log.error("a shared budget: %r", errand.error, exc_info=errand.error)
            self._lost(now, str(errand.error))
            return
        told: Told = errand.result
        self._found()
        self._budget, self._next, self._seat = told.budget, told.next, told.seat
        del self._pending[: len(ask.heard)], self._lost_grants[: len(ask.lost)]
        del self._sent[: min(len(ask.heard), len(ask.sent))]
        if not self._pending:
            self._overdue = self._refused = False
        self._hand.extend((at, ask.cost) for at in told.grants)
        if self._refused:
            self._drop()

    # --- while the place is away

    def _lost(self, now: float, reason: str) -> None:
        if self._away_since is None:
            self._away_since = now
            self._drop()
            may = "one request a window" if self._may_alone(now) else "nothing"
            log.warning("%s: %s; %s is sent until it is back", self._budgets.shown, reason, may)
        self._next = now + AGAIN

    def _found(self) -> None:
        if self._away_since is not None:
            self._away_since = None
            log.warning("%s is back: its budget is shared again", self._budgets.shown)

    def _may_alone(self, now: float) -> bool:
        return self._unlimited or (self._seat is not None and now < self._seat)

    @property
    def _unlimited(self) -> bool:
        return self._limit is not None and self._limit.requests >= 1e9

    def _knock(self, now: float) -> None:
        if self._errand is None and now >= self._next and not self._closed:
            self._start(Ask(now))

    def _ready_alone(self, now: float) -> float:
        self._knock(now)
        if self._away_since is None:
            return now
        paused = self._clock.here(self._budget.state.pause)
        at = max(self._alone, paused) if self._may_alone(now) else now + AGAIN
        return at if at <= now else min(at, now + AGAIN)

    def _take_alone(self, now: float) -> float:
        at = self._ready_alone(now)
        if self._away_since is None:
            return now + SHORTEST
        if at > now:
            return at
        if not self._unlimited and self._limit is not None:
            self._alone = now + records.window(self._limit)
        self._sent.append(self._clock.there(now))
        return now


def _written(limit: tuple[float, float, float | None] | None) -> str:
    if limit is None:
        return "none"
    requests, per, burst = limit
    return f"{requests:g}/{per:g}s" + (f":{burst:g}" if burst is not None else "")
