"""Claims jobs from the store: as many as can start now, from queues that may have any.

1. A claim in flight reserves its slots, so that the next claim does not count them again.
2. Claimed jobs are always started, even after `close`: the starter then hands them back.
3. A hint that arrives while a claim is in flight is newer than the claim and leads to another claim.
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
LOG_EVERY = 10.0


class JobStarter(Protocol):
    """Runs claimed jobs."""

    def free_slots(self, is_async: bool) -> int:
        """How many more jobs can start."""
        ...

    def prefetch_requests(self, hints: dict[tuple[str, str], int]) -> list[ClaimRequest]:
        """Claim requests for jobs to prefetch behind running jobs."""
        ...

    def start_job(self, claim: Claim, is_async: bool) -> None: ...


class Claimer:
    """Turns hints into claims, and starts the claimed jobs."""

    def __init__(
        self,
        limits: ConcurrencyLimits,
        claim: Callable[[list[ClaimRequest], int], Awaitable[list[Claim]]],
        starter: JobStarter,
    ) -> None:
        self.closed = False
        self._limits = limits
        self._claim = claim
        self._starter = starter
        self._hints: dict[tuple[str, str], int] = {}
        self._number = 0
        self._requested = {False: 0, True: 0}
        self._log_again_at: dict[str, float] = {}  # by error text
        self._in_flight: set[asyncio.Future[list[Claim]]] = set()
        # By queue: how many jobs the prefetch claims in flight may return.
        self._prefetching: Counter[str] = Counter()

    def hint(self, queue: str, kind: str) -> None:
        self._number += 1
        self._hints[queue, kind] = self._number
        self.claim_free()

    def hint_queue(self, queue: str) -> None:
        """Report that this queue may have jobs of any kind."""
        self._number += 1
        self._hints.update((pair, self._number) for pair in self._limits.pairs() if pair[0] == queue)
        self.claim_free()

    def hint_everywhere(self) -> None:
        """Report that every queue may have jobs. Called at the start, and periodically in case a hint was lost."""
        for pair in self._limits.pairs():
            self._hints.setdefault(pair, 0)
        self.claim_free()

    def claim_free(self, *, prefetch: bool = True) -> None:
        if self._hints and not self.closed:
            for is_async in (False, True):
                free = self._starter.free_slots(is_async) - self._requested[is_async]
                if free > 0:
                    self._claim_mode(is_async, free)
            if prefetch:
                self._claim_prefetched()

    def _claim_prefetched(self) -> None:
        """Prefetch short jobs behind running ones, unless another queue waits for a child."""
        requests = [
            replace(request, limit=more)
            for request in self._starter.prefetch_requests(self._hints)
            if (more := request.limit - self._prefetching[request.queue]) > 0
        ]
        if not requests or self._other_queue_waits({request.queue for request in requests}):
            return
        expected = Counter({request.queue: request.limit for request in requests})
        limit = expected.total()
        self._prefetching += expected

        def claimed(future: asyncio.Future[list[Claim]]) -> None:
            self._prefetching -= expected
            if future.cancelled() or future.exception() is not None:
                return
            for claim in future.result():
                self._starter.start_job(claim, False)
            self.claim_free(prefetch=len(future.result()) == limit)

        self._send(requests, limit, claimed)

    def _other_queue_waits(self, queues: set[str]) -> bool:
        """Whether another queue has a hint and no idle child. Prefetching stops then, so that a child becomes idle."""
        others = {queue for queue, _ in self._hints} - queues
        return any(self._limits.available(False, queue) > 0 for queue in others)

    def _claim_mode(self, is_async: bool, free: int) -> None:
        requests = self._limits.requests(is_async, self._hints, free)
        if not is_async:  # a prefetch in flight must get the first jobs of its queue
            requests = [request for request in requests if request.queue not in self._prefetching]
        if not requests:
            return
        limit = min(free, sum(request.limit for request in requests))
        hints = {(w.queue, k): self._hints[w.queue, k] for w in requests for k in w.kinds}
        self._reserve(is_async, requests, limit, 1)

        def claimed(future: asyncio.Future[list[Claim]]) -> None:
            self._reserve(is_async, requests, limit, -1)
            if future.cancelled() or future.exception() is not None:
                self._log_failure(future)
                return
            claims = future.result()
            if len(claims) < limit:
                self._forget(hints, requests, claims)
            for claim in claims:
                self._starter.start_job(claim, is_async)
            self.claim_free()

        self._send(requests, limit, claimed)

    def _send(
        self,
        requests: list[ClaimRequest],
        limit: int,
        claimed: Callable[[asyncio.Future[list[Claim]]], None],
    ) -> None:
        asking = asyncio.ensure_future(self._claim(requests, limit))
        self._in_flight.add(asking)
        asking.add_done_callback(claimed)
        asking.add_done_callback(self._in_flight.discard)

    async def close(self) -> None:
        """Stop claiming, and wait for claims in flight, because their jobs are already this worker's."""
        self.closed = True
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    def _log_failure(self, future: asyncio.Future[list[Claim]]) -> None:
        """The hints stay and the next tick claims again, so each reason is logged only every LOG_EVERY seconds."""
        reason = "cancelled" if future.cancelled() else str(future.exception())
        now = asyncio.get_running_loop().time()
        if now >= self._log_again_at.get(reason, -math.inf):
            recent = {other: until for other, until in self._log_again_at.items() if until > now}
            self._log_again_at = {**recent, reason: now + LOG_EVERY}
            log.error("cannot claim jobs; retrying: %s", reason)

    def _reserve(self, is_async: bool, requests: list[ClaimRequest], limit: int, sign: int) -> None:
        self._requested[is_async] += sign * limit
        for request in requests:
            self._limits.running[is_async, request.queue] += sign * request.limit

    def _forget(
        self, hints: dict[tuple[str, str], int], requests: list[ClaimRequest], claims: list[Claim]
    ) -> None:
        """Drop the hints of queues that returned fewer jobs than requested, unless a hint is newer than the claim."""
        given = Counter(claim.job.queue for claim in claims)
        exhausted = {request.queue for request in requests if given[request.queue] < request.limit}
        for pair, number in hints.items():
            if pair[0] in exhausted and self._hints.get(pair) == number:
                del self._hints[pair]
