"""Asks the store for work: as much as could start now, where there may be any.

1. A claim under way has its room set aside, so that the next one does not count on it too.
2. A hint that arrives while a claim is under way is newer than it, and leads to another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from bide.server.engine.slots import Slots
from bide.server.store import Claim, Want

log = logging.getLogger("bide.engine")


class Taker(Protocol):
    """Who runs what was claimed."""

    def free(self, is_async: bool) -> int:
        """How many more jobs could be started."""
        ...

    def start_job(self, claim: Claim, is_async: bool) -> None: ...


class Claims:
    """Hints on the one side, claimed jobs on the other."""

    def __init__(
        self,
        slots: Slots,
        claim: Callable[[list[Want], int], Awaitable[list[Claim]]],
        taker: Taker,
    ) -> None:
        self.closed = False
        self._slots = slots
        self._claim = claim
        self._taker = taker
        self._hints: dict[tuple[str, str], int] = {}
        self._number = 0
        self._asked_for = {False: 0, True: 0}

    def nudge(self, queue: str, kind: str) -> None:
        self._number += 1
        self._hints[queue, kind] = self._number
        self.look()

    def look_everywhere(self) -> None:
        """There may be work anywhere: as at the start, and now and then in case that a hint was lost."""
        for pair in self._slots.pairs():
            self._hints.setdefault(pair, 0)
        self.look()

    def look(self) -> None:
        if self._hints and not self.closed:
            for is_async in (False, True):
                free = self._taker.free(is_async) - self._asked_for[is_async]
                if free > 0:
                    self._look(is_async, free)

    def _look(self, is_async: bool, free: int) -> None:
        wants = self._slots.wants(is_async, self._hints, free)
        if not wants:
            return
        limit = min(free, sum(want.limit for want in wants))
        hints = {(w.queue, k): self._hints[w.queue, k] for w in wants for k in w.kinds}
        self._set_aside(is_async, wants, limit, 1)

        def claimed(future: asyncio.Future[list[Claim]]) -> None:
            self._set_aside(is_async, wants, limit, -1)
            if future.cancelled() or future.exception() is not None:
                # The hints stay: the next tick asks again.
                log.error("jobs cannot be claimed: %s", future.cancelled() or future.exception())
                return
            claims = future.result()
            if len(claims) < limit:
                self._forget(hints)
            for claim in claims:
                self._taker.start_job(claim, is_async)
            self.look()

        asyncio.ensure_future(self._claim(wants, limit)).add_done_callback(claimed)

    def _set_aside(self, is_async: bool, wants: list[Want], limit: int, sign: int) -> None:
        self._asked_for[is_async] += sign * limit
        for want in wants:
            self._slots.running[is_async, want.queue] += sign * want.limit

    def _forget(self, hints: dict[tuple[str, str], int]) -> None:
        """Nothing more was found there, unless a hint is newer than the claim."""
        for pair, number in hints.items():
            if self._hints.get(pair) == number:
                del self._hints[pair]
