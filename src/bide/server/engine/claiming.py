"""Asks the store for work: as much as could start now, where there may be any.

1. A claim under way has its room set aside, so that the next one does not count on it too.
2. Whatever a claim brings is handed over, after the end too: whoever takes it then gives it back.
3. A hint that arrives while a claim is under way is newer than it, and leads to another one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec.structs import replace

from bide.server.engine.concurrency import ConcurrencyLimits
from bide.server.store import Claim, ClaimRequest

log = logging.getLogger("bide.engine")
COMPLAIN_EVERY = 10.0


class JobStarter(Protocol):
    """Who runs what was claimed."""

    def free(self, is_async: bool) -> int:
        """How many more jobs could be started."""
        ...

    def lining(self, hints: dict[tuple[str, str], int]) -> list[ClaimRequest]:
        """What could be reserved behind what runs."""
        ...

    def start_job(self, claim: Claim, is_async: bool) -> None: ...


class Claimer:
    """Hints on the one side, claimed jobs on the other."""

    def __init__(
        self,
        slots: ConcurrencyLimits,
        claim: Callable[[list[ClaimRequest], int], Awaitable[list[Claim]]],
        taker: JobStarter,
    ) -> None:
        self.closed = False
        self._slots = slots
        self._claim = claim
        self._taker = taker
        self._hints: dict[tuple[str, str], int] = {}
        self._number = 0
        self._asked_for = {False: 0, True: 0}
        self._complaints: dict[str, float] = {}  # when each may be repeated
        self._under_way: set[asyncio.Future[list[Claim]]] = set()
        self._lining: Counter[str] = Counter()  # by queue, what reservations under way may bring

    def nudge(self, queue: str, kind: str) -> None:
        self._number += 1
        self._hints[queue, kind] = self._number
        self.look()

    def nudge_all(self, queue: str) -> None:
        """There may be work of any kind in this queue."""
        self._number += 1
        self._hints.update((pair, self._number) for pair in self._slots.pairs() if pair[0] == queue)
        self.look()

    def look_everywhere(self) -> None:
        """There may be work anywhere: as at the start, and now and then in case that a hint was lost."""
        for pair in self._slots.pairs():
            self._hints.setdefault(pair, 0)
        self.look()

    def look(self, *, line_up: bool = True) -> None:
        if self._hints and not self.closed:
            for is_async in (False, True):
                free = self._taker.free(is_async) - self._asked_for[is_async]
                if free > 0:
                    self._look(is_async, free)
            if line_up:
                self._line_up()

    def _line_up(self) -> None:
        """Reserves short jobs behind those that run, unless another queue waits for a child."""
        wants = [
            replace(want, limit=more)
            for want in self._taker.lining(self._hints)
            if (more := want.limit - self._lining[want.queue]) > 0
        ]
        if not wants or self._someone_else_waits({want.queue for want in wants}):
            return
        expected = Counter({want.queue: want.limit for want in wants})
        limit = expected.total()
        self._lining += expected

        def claimed(future: asyncio.Future[list[Claim]]) -> None:
            self._lining -= expected
            if future.cancelled() or future.exception() is not None:
                return
            for claim in future.result():
                self._taker.start_job(claim, False)
            self.look(line_up=len(future.result()) == limit)

        self._ask(wants, limit, claimed)

    def _someone_else_waits(self, queues: set[str]) -> bool:
        """A hint that no idle child was there for: lines then run out, so that a child becomes idle."""
        others = {queue for queue, _ in self._hints} - queues
        return any(self._slots.room(False, queue) > 0 for queue in others)

    def _look(self, is_async: bool, free: int) -> None:
        wants = self._slots.wants(is_async, self._hints, free)
        if not is_async:  # what is being reserved comes first in its queue
            wants = [want for want in wants if want.queue not in self._lining]
        if not wants:
            return
        limit = min(free, sum(want.limit for want in wants))
        hints = {(w.queue, k): self._hints[w.queue, k] for w in wants for k in w.kinds}
        self._set_aside(is_async, wants, limit, 1)

        def claimed(future: asyncio.Future[list[Claim]]) -> None:
            self._set_aside(is_async, wants, limit, -1)
            if future.cancelled() or future.exception() is not None:
                self._complain(future)
                return
            claims = future.result()
            if len(claims) < limit:
                self._forget(hints, wants, claims)
            for claim in claims:
                self._taker.start_job(claim, is_async)
            self.look()

        self._ask(wants, limit, claimed)

    def _ask(
        self,
        wants: list[ClaimRequest],
        limit: int,
        claimed: Callable[[asyncio.Future[list[Claim]]], None],
    ) -> None:
        asking = asyncio.ensure_future(self._claim(wants, limit))
        self._under_way.add(asking)
        asking.add_done_callback(claimed)
        asking.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        """Asks for nothing more, and waits for what it has asked for: who is given a job must know it."""
        self.closed = True
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _complain(self, future: asyncio.Future[list[Claim]]) -> None:
        """The hints stay, and the next tick asks again; the log need not have each of them."""
        reason = "cancelled" if future.cancelled() else str(future.exception())
        now = asyncio.get_running_loop().time()
        if now >= self._complaints.get(reason, -math.inf):
            recent = {other: until for other, until in self._complaints.items() if until > now}
            self._complaints = {**recent, reason: now + COMPLAIN_EVERY}
            log.error("jobs cannot be claimed: %s", reason)

    def _set_aside(self, is_async: bool, wants: list[ClaimRequest], limit: int, sign: int) -> None:
        self._asked_for[is_async] += sign * limit
        for want in wants:
            self._slots.running[is_async, want.queue] += sign * want.limit

    def _forget(
        self, hints: dict[tuple[str, str], int], wants: list[ClaimRequest], claims: list[Claim]
    ) -> None:
        """Where a queue gave less than was wanted there is nothing more, unless a hint is newer than the claim."""
        given = Counter(claim.job.queue for claim in claims)
        exhausted = {want.queue for want in wants if given[want.queue] < want.limit}
        for pair, number in hints.items():
            if pair[0] in exhausted and self._hints.get(pair) == number:
                del self._hints[pair]
