"""Which jobs can be claimed now, and which child runs them. No I/O.

1. One child is reserved for each queue, so that thumbnails do not wait behind transcodes; the queues share the rest. With
   fewer children than queues, they share all of them. A number in `App(queues={...})` replaces this limit. Async jobs need
   no child of their own and have one limit per queue.
2. A claim in flight reserves its slots, so that the next claim does not count them again.
3. A hint that arrives while a claim is in flight is newer than the claim and leads to another claim.
4. Each sync child has a queue of claimed jobs, of which the head runs. Only short jobs are prefetched behind a head, as
   many as take TARGET seconds. All prefetched jobs of a child come from one job queue, in its order, so that its limit and
   its priorities hold.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from bide.core.jobs.record import Job
from bide.server.registry import DEFAULT_QUEUE, Kind, Registry, is_reserved
from bide.server.runner.attempt import Attempt
from bide.server.store import Claim, ClaimRequest
from bide.server.worker.supervisor import ChildProcess

ASYNC_AT_ONCE = 1000  # jobs per claim for the async child; the limit of the queue is lower
TARGET = 0.005  # seconds of work to prefetch per child
MAX_DEPTH = 128
MAX_HEAD_AGE = 0.02  # seconds that a head may have run when more jobs are prefetched behind it
SHORT = 0.0025  # prefetch a kind if two of its jobs fit into TARGET
Pair = tuple[str, str]  # a queue and a kind


def served(registry: Registry) -> set[str]:
    """The queues of an app."""
    return {DEFAULT_QUEUE, *registry.queues, *registry.concurrency}


class Durations:
    """Moving averages of the attempts' durations, by kind."""

    def __init__(self) -> None:
        self._average: dict[str, float] = {}

    def learn(self, kind: str, seconds: float) -> None:
        before = self._average.get(kind, seconds)
        # React quickly to long attempts and slowly to short ones.
        weight = 0.5 if seconds > before else 0.1
        self._average[kind] = before + weight * (seconds - before)

    def depth(self, kind: Kind) -> int:
        """How many jobs of this kind a child may hold."""
        average = self._average.get(kind.name)
        if average is None or average > SHORT or kind.policy.at_most_once:
            return 1
        return max(2, min(MAX_DEPTH, int(TARGET / max(average, 1e-6))))


class PlannedClaim(NamedTuple):
    """A claim to send, whose slots are reserved."""

    requests: list[ClaimRequest]
    limit: int
    is_async: bool
    prefetches: bool  # for children that are busy with short jobs
    hints: Mapping[Pair, int]  # the hints that led to it, with their numbers


class Slots:
    """Counts running jobs, and knows the idle children and the prefetch queues of the busy ones."""

    def __init__(
        self,
        registry: Registry,
        children: int,
        async_limit: int,
        only: Collection[str] | None = None,
    ) -> None:
        """`only`: serve these queues, whether the app declares them or not."""
        self.queues = sorted(served(registry) if only is None else set(only))
        busy_queues = len(registry.queues.keys() & set(self.queues)) or 1
        shared = max(1, children - (busy_queues - 1) if children >= busy_queues else children)
        self._limits = {
            False: {q: registry.concurrency.get(q, shared) for q in self.queues},
            True: {q: registry.concurrency.get(q, async_limit) for q in self.queues},
        }
        self._children = children
        self._only_async = {
            queue for queue, kinds in registry.queues.items() if all(kind.is_async for kind in kinds)
        }
        self._kinds = registry.kinds
        self._concurrency = {
            k.name: k.concurrency for k in registry.kinds.values() if k.concurrency is not None
        }
        self._names = {
            mode: tuple(k.name for k in registry.kinds.values() if k.is_async is mode)
            for mode in (False, True)
        }
        self._max_jobs = registry.max_jobs_per_child
        self._hints: dict[Pair, int] = {}
        self._number = 0
        self._turn = 0
        self._running: Counter[tuple[bool, str]] = Counter()  # with the slots of claims in flight
        self._requested = {False: 0, True: 0}  # by claims in flight
        # By queue: how many jobs the prefetch claims in flight may return.
        self._prefetching: Counter[str] = Counter()
        self._idle: list[ChildProcess] = []
        self._async: set[ChildProcess] = set()
        self._prefetched: dict[ChildProcess, deque[Attempt]] = {}  # the first of each runs
        self.durations = Durations()

    def limit(self, queue: str) -> int:
        """How many jobs of this queue run at once, if no other queue has jobs."""
        if queue in self._only_async:
            return self._limits[True].get(queue, 0)
        return min(self._children, self._limits[False].get(queue, 0))

    # --- hints

    def hint(self, queue: str, kind: str) -> None:
        if is_reserved(kind):  # no child runs it
            return
        self._number += 1
        self._hints[queue, kind] = self._number

    def hint_queue(self, queue: str) -> None:
        """Record that this queue may have jobs of any kind."""
        self._number += 1
        self._hints.update((pair, self._number) for pair in self._pairs() if pair[0] == queue)

    def hint_everywhere(self) -> None:
        """Record that every queue may have jobs."""
        for pair in self._pairs():
            self._hints.setdefault(pair, 0)

    def _pairs(self) -> set[Pair]:
        return {(q, k) for q in self.queues for names in self._names.values() for k in names}

    # --- claims

    def plan(self, now: float, *, prefetch: bool = True) -> list[PlannedClaim]:
        """The claims to send now. Pass the result of each to `claimed`."""
        if not self._hints:
            return []
        planned = []
        for is_async in (False, True):
            free = self._free(is_async) - self._requested[is_async]
            if free > 0 and (claim := self._plan(is_async, free)) is not None:
                planned.append(claim)
        if prefetch and (claim := self._plan_prefetch(now)) is not None:
            planned.append(claim)
        return planned

    def claimed(self, planned: PlannedClaim, claims: Sequence[Claim] | None) -> None:
        """Release the reserved slots. `claims` is None if the claim has failed: then its hints stay."""
        if planned.prefetches:
            self._prefetching -= _expected(planned)
            return
        self._reserve(planned, -1)
        if claims is not None and len(claims) < planned.limit:
            self._forget(planned, claims)

    def available(self, is_async: bool, queue: str) -> int:
        return self._limits[is_async].get(queue, 0) - self._running[is_async, queue]

    def has_capacity(self, queue: str) -> bool:
        """Whether a job of this queue can start now. Thread-safe."""
        if self._idle and self.available(False, queue) > 0:
            return True
        ready = any(child.state == "idle" for child in list(self._async))
        return ready and self.available(True, queue) > 0

    def _free(self, is_async: bool) -> int:
        if is_async:
            return ASYNC_AT_ONCE if any(child.state == "idle" for child in self._async) else 0
        return len(self._idle)

    def _plan(self, is_async: bool, free: int) -> PlannedClaim | None:
        """A claim of up to `free` jobs; a different queue comes first each time."""
        requests = []
        for queue in self.queues:
            if not is_async and queue in self._prefetching:
                continue  # the prefetch in flight must get the first jobs of its queue
            kinds = tuple(k for k in self._names[is_async] if (queue, k) in self._hints)
            limit = min(self.available(is_async, queue), free)
            if kinds and limit > 0:
                requests.append(ClaimRequest(queue, kinds, limit, concurrency=self._limited(kinds)))
        if not requests:
            return None
        self._turn += 1
        at = self._turn % len(requests)
        requests = requests[at:] + requests[:at]
        limit = min(free, sum(request.limit for request in requests))
        hints = {(r.queue, k): self._hints[r.queue, k] for r in requests for k in r.kinds}
        planned = PlannedClaim(requests, limit, is_async, False, hints)
        self._reserve(planned, 1)
        return planned

    def _limited(self, kinds: Sequence[str]) -> Mapping[str, int]:
        """The limits on concurrent jobs of all kinds, if one of these has one."""
        return self._concurrency if not self._concurrency.keys().isdisjoint(kinds) else {}

    def _reserve(self, planned: PlannedClaim, sign: int) -> None:
        self._requested[planned.is_async] += sign * planned.limit
        for request in planned.requests:
            self._running[planned.is_async, request.queue] += sign * request.limit

    def _forget(self, planned: PlannedClaim, claims: Sequence[Claim]) -> None:
        """Drop the hints of queues that returned fewer jobs than requested, unless a hint is newer than the claim."""
        given = Counter(claim.job.queue for claim in claims)
        exhausted = {r.queue for r in planned.requests if given[r.queue] < r.limit}
        for pair, number in planned.hints.items():
            if pair[0] in exhausted and self._hints.get(pair) == number:
                del self._hints[pair]

    def _plan_prefetch(self, now: float) -> PlannedClaim | None:
        """Prefetch short jobs behind heads that have not run for long, unless another queue waits for a child."""
        capacity: dict[str, int] = {}
        for child, held in self._prefetched.items():
            head = held[0]
            more = self.durations.depth(head.kind) - len(held)
            if self._max_jobs is not None:
                more = min(more, self._max_jobs - child.jobs_done - len(held))
            fresh = head.started is not None and now - head.started < MAX_HEAD_AGE
            if more > 0 and fresh and child.state == "idle" and head.stopping is None:
                capacity[head.job.queue] = capacity.get(head.job.queue, 0) + more
        requests = []
        for queue, limit in capacity.items():
            kinds = tuple(k for q, k in self._hints if q == queue and not self._kinds[k].is_async)
            short = frozenset(k for k in kinds if self.durations.depth(self._kinds[k]) > 1)
            more = limit - self._prefetching[queue]
            if short and more > 0:
                requests.append(ClaimRequest(queue, kinds, more, 0, short, self._limited(kinds)))
        if not requests or self._other_queue_waits({request.queue for request in requests}):
            return None
        planned = PlannedClaim(requests, sum(r.limit for r in requests), False, True, {})
        self._prefetching += _expected(planned)
        return planned

    def _other_queue_waits(self, queues: set[str]) -> bool:
        """Whether another queue has a hint and no idle child. Prefetching stops then, so that a child becomes idle."""
        others = {queue for queue, _ in self._hints} - queues
        return any(self.available(False, queue) > 0 for queue in others)

    # --- children and their attempts

    def add_child(self, child: ChildProcess) -> None:
        """Give jobs to this child, which runs none."""
        if child.is_async:
            self._async.add(child)
        else:
            self._idle.append(child)

    def remove_child(self, child: ChildProcess) -> bool:
        """Give this child no more jobs. Its finished attempts stay until their ends are stored. Return whether it was
        an idle sync child.
        """
        self._async.discard(child)
        try:
            self._idle.remove(child)
        except ValueError:
            return False
        return True

    def take_child(self, job: Job, is_async: bool) -> ChildProcess | None:
        """The child for a claimed job; None if all such children are gone."""
        if is_async:
            return next((child for child in self._async if child.state == "idle"), None)
        busy = None if job.running else self._least_filled(job.queue)
        return self.take_idle() if busy is None else busy

    def take_idle(self) -> ChildProcess | None:
        """Take an idle sync child, for a job of a claim in flight. Thread-safe."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _least_filled(self, queue: str) -> ChildProcess | None:
        """The child with the fewest prefetched jobs of this queue."""
        found, fewest = None, 0
        for child, held in self._prefetched.items():
            if held[0].job.queue == queue and child.state == "idle":
                number = len(held)
                if found is None or (number, child.name) < (fewest, found.name):
                    found, fewest = child, number
        return found

    def add(self, attempt: Attempt) -> bool:
        """Give an attempt to its child. Return whether it runs now, or waits behind another one."""
        child = attempt.child
        if not child.is_async:
            held = self._prefetched.setdefault(child, deque())
            held.append(attempt)
            if len(held) > 1:
                return False
        self._running[child.is_async, attempt.job.queue] += 1
        return True

    def remove(self, attempt: Attempt, now: float) -> Attempt | None:
        """Free the slot of an attempt that has ended. Return the prefetched attempt that its child runs now."""
        child, queue = attempt.child, attempt.job.queue
        if attempt.kind.concurrency is not None:  # a job that waits for this one may start now
            self.hint(queue, attempt.kind.name)
        if attempt.started is not None:
            child.jobs_done += 1
            took = now - attempt.started if attempt.duration is None else attempt.duration
            self.durations.learn(attempt.kind.name, took)
        if child.is_async:
            self._running[True, queue] -= 1
            return None
        held = self._prefetched[child]
        was_head = held[0] is attempt
        held.remove(attempt)
        if held:
            return held[0] if was_head else None
        del self._prefetched[child]
        self._running[False, queue] -= 1
        return None

    def worn(self, child: ChildProcess) -> bool:
        """Whether the child has run `max_jobs_per_child` jobs."""
        return self._max_jobs is not None and child.jobs_done >= self._max_jobs

    def busy(self, child: ChildProcess) -> bool:
        """Whether a sync child holds attempts."""
        return child in self._prefetched

    def heads(self) -> list[Attempt]:
        """The running attempts of the sync children."""
        return [held[0] for held in self._prefetched.values()]

    def behind(self, attempt: Attempt) -> int:
        """How many prefetched attempts wait behind this one."""
        return len(self._prefetched[attempt.child]) - 1

    def well_filled(self, attempt: Attempt) -> bool:
        """Whether the child holds more than half as many attempts as it may."""
        return 2 * self.behind(attempt) > self.durations.depth(attempt.kind)


def _expected(planned: PlannedClaim) -> Counter[str]:
    """By queue: how many jobs a claim may return."""
    return Counter({request.queue: request.limit for request in planned.requests})
