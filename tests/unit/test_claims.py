"""Where the runner looks for work, and what it takes as a sign that there is none."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import Change, HandedBack, Lost, Succeeded
from bide.server.config import WorkerConfig
from bide.server.registry import Registry
from bide.server.runner.runner import Runner
from bide.server.store import Claim, ClaimRequest, OnClaims, StoreUnavailable
from bide.server.worker import protocol as p


class Child:
    """A child that is always idle or runs what it was given."""

    is_async, state, killed, started = False, "idle", False, 0.0
    last_heartbeat = math.inf
    exit_text = "exit code 1"

    def __init__(self, name: str) -> None:
        self.name = name
        self.jobs_done = 0
        self.jobs: list[p.RunJob] = []
        self.accepts = True  # jobs of the writer's thread

    def send(self, message: Any, *, at_once: bool = False) -> None:
        self.jobs.append(message)

    def hand_over(self, message: Any) -> bool:
        if self.accepts:
            self.jobs.append(message)
        return self.accepts

    def request_stop(self, job_id: str, fence: int) -> None: ...


class Yard:
    """A store with so many jobs per queue, and so many idle children. It is the runner's store, pool and progress sink."""

    problem = None

    def __init__(self, jobs: dict[str, int], idle: int) -> None:
        registry = Registry(queues={"wide": 2, "narrow": 1})
        for queue in ("wide", "narrow"):
            registry.job(name=f"in-{queue}", queue=queue)(lambda: None)
        self.jobs = jobs
        self.asked: list[list[ClaimRequest]] = []
        self.started: list[str] = []
        # Called after the writer's thread has given the jobs to children, before the loop gets the claims.
        self.before_the_loop: Callable[[], None] | None = None
        self.applied: list[Change] = []
        self.logged: list[str] = []
        self.children = {Child(str(number)) for number in range(idle)}
        self.runner = Runner(
            registry,
            cast(Any, self),
            WorkerConfig(workers=4),
            SimpleNamespace(work=Path("/nowhere"), owner="w"),
            cast(Any, self),
            prepare_spawn=cast(Any, None),
            progress=cast(Any, self),
        )

    # --- the store

    def now(self) -> float:
        return 0.0

    def claim(
        self,
        owner: str,
        requests: list[ClaimRequest],
        limit: int,
        lease: float,
        stored: OnClaims | None = None,
    ) -> Awaitable[list[Claim]]:
        self.asked.append(requests)
        found: list[Claim] = []
        for request in requests:
            n = min(request.limit, limit - len(found), self.jobs.get(request.queue, 0))
            self.jobs[request.queue] = self.jobs.get(request.queue, 0) - n
            found += [self._job(request) for _ in range(n)]
        if self.before_the_loop is not None and stored is not None and found:
            stored(found)
            self.before_the_loop()
        future: asyncio.Future[list[Claim]] = asyncio.get_running_loop().create_future()
        future.set_result(found)
        return future

    def _job(self, request: ClaimRequest) -> Claim:
        job_id = f"{request.queue}-{len(self.asked)}-{self.jobs[request.queue]}-{len(self.started)}"
        self.started.append(request.queue)
        held: dict[str, Any] = {
            "status": Status.PROCESSING,
            "owner": "w",
            "fence": 1,
            "lease_until": 9.0,
        }
        return Claim(
            Job(job_id + str(id(held)), request.kinds[0], request.queue, 0.0, 0.0, **held), b"{}"
        )

    async def apply(self, changes: Sequence[Change]) -> list[Change]:
        self.applied += changes
        return list(changes)

    async def log(self, job_id: str, owner: str, fence: int, lines: Sequence[dict[str, Any]]) -> None:
        self.logged += [line["message"] for line in lines]

    async def renew(self, owner: str, held: Any, lease: float) -> list[Any]:
        return []

    # --- the pool and the progress sink

    async def open(self, listener: Runner) -> None:
        for child in self.children:
            listener.ready(cast(Any, child))

    def fill(self) -> None: ...

    def check(self) -> None: ...

    async def close(self, grace: float) -> None: ...

    def publish(self, attempt: Any, live: Any) -> None: ...

    def ended(self, attempt: Any) -> None: ...

    def end(self, queue: str) -> None:
        """A job of this queue returns."""
        attempt = next(a for a in self.runner.attempts.values() if a.job.queue == queue)
        done = p.AttemptDone(attempt.job.id, 1, None, None, None, [], None)
        self.runner.received(attempt.child, done)


@asynccontextmanager
async def opened(jobs: dict[str, int], idle: int) -> AsyncIterator[Yard]:
    """With its first claims answered."""
    yard = Yard(jobs, idle)
    await yard.runner.start()
    await settle()
    yield yard
    yard.runner.stop_now()
    for attempt in list(yard.runner.attempts.values()):
        yard.end(attempt.job.queue)
    await yard.runner.stop(0.0)


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def test_a_queue_that_gave_all_it_was_asked_for_is_asked_again() -> None:
    async with opened({"narrow": 3}, idle=4) as yard:
        assert yard.started == ["narrow"]  # its limit is 1, and the other queue had nothing
        yard.end("narrow")
        await settle()
        yard.end("narrow")
        await settle()
        assert yard.started == ["narrow"] * 3


async def test_an_empty_queue_is_not_asked_again_without_a_hint() -> None:
    async with opened({"wide": 1}, idle=4) as yard:
        asked = len(yard.asked)
        yard.end("wide")
        await settle()
        assert len(yard.asked) == asked
        yard.jobs["wide"] = 1
        yard.runner.hint("wide", "in-wide")
        await settle()
        assert yard.started == ["wide", "wide"]


async def test_a_hint_that_comes_while_a_claim_is_under_way_is_not_lost() -> None:
    async with opened({}, idle=4) as yard:
        yard.runner.hint("wide", "in-wide")  # nothing there yet
        yard.jobs["wide"] = 1
        yard.runner.hint("wide", "in-wide")  # before the first claim has come back
        await settle()
        assert yard.started == ["wide"]


async def test_no_more_is_asked_for_than_fits() -> None:
    async with opened({"wide": 9, "narrow": 9}, idle=2) as yard:
        assert len(yard.started) == 2
        slots = yard.runner._slots
        assert slots.available(False, "narrow") >= 0 and slots.available(False, "wide") >= 0


async def test_a_store_that_cannot_be_asked_is_complained_of_once_and_asked_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened({}, idle=1) as yard:
        yard.jobs["wide"] = 1
        claim: Callable[..., Awaitable[list[Claim]]] = yard.claim
        reasons = ["away", "away", "full", "away", "full"]

        def refuse(*request: Any, **_: object) -> Awaitable[list[Claim]]:
            if not reasons:
                return claim(*request)
            future: asyncio.Future[list[Claim]] = asyncio.get_running_loop().create_future()
            future.set_exception(StoreUnavailable(reasons.pop(0)))
            return future

        monkeypatch.setattr(yard, "claim", refuse)
        yard.runner.hint("wide", "in-wide")
        for _ in range(5):
            await settle()
            yard.runner.tick(0.0)
        await settle()
        assert [r.getMessage() for r in caplog.records] == [
            "cannot claim jobs; retrying: away",
            "cannot claim jobs; retrying: full",
        ]
        assert yard.started == ["wide"]


async def test_a_job_whose_claim_was_under_way_at_the_end_is_handed_back() -> None:
    async with opened({}, idle=1) as yard:
        yard.jobs["wide"] = 1
        yard.runner.hint("wide", "in-wide")
        assert yard.applied == []
        await yard.runner.stop(0.0)
        assert [type(change) for change in yard.applied] == [HandedBack]
        asked = len(yard.asked)
        yard.runner.hint("narrow", "in-narrow")
        await settle()
        assert len(yard.asked) == asked


# --- jobs that the writer's thread gives to children


@asynccontextmanager
async def handing_over(before_the_loop: Callable[[Yard, Child], None]) -> AsyncIterator[Yard]:
    """One child and one job. The function is called before the loop gets the claim."""
    async with opened({}, idle=1) as yard:
        (child,) = yard.children
        yard.before_the_loop = lambda: before_the_loop(yard, child)
        yard.jobs["wide"] = 1
        yard.runner.hint("wide", "in-wide")
        await settle()
        yield yard


async def test_the_writer_gives_a_job_to_a_child_and_the_loop_does_not_send_it_again() -> None:
    given: list[int] = []
    async with handing_over(lambda yard, child: given.append(len(child.jobs))) as yard:
        (child,) = yard.children
        assert given == [1] == [len(child.jobs)]
        assert [attempt.child.name for attempt in yard.runner.attempts.values()] == [child.name]
        yard.end("wide")
        yard.jobs["wide"] = 1
        yard.runner.hint("wide", "in-wide")
        await settle()
        assert len(child.jobs) == 2, "the child is idle again after its job"


async def test_a_job_may_end_before_the_loop_knows_that_it_started() -> None:
    def end(yard: Yard, child: Child) -> None:
        run = child.jobs[0]
        line = p.JobLogLine(run.job_id, run.fence, {"message": "first"})
        yard.runner.received(cast(Any, child), line)
        done = p.AttemptDone(run.job_id, run.fence, b"1", None, None, [], None)
        yard.runner.received(cast(Any, child), done)

    async with handing_over(end) as yard:
        assert [type(change) for change in yard.applied] == [Succeeded]
        assert yard.logged == ["first"]
        assert not yard.runner.attempts


@pytest.mark.parametrize("ended", [False, True])
async def test_a_child_may_exit_before_the_loop_knows_that_its_job_started(ended: bool) -> None:
    def exit_(yard: Yard, child: Child) -> None:
        run = child.jobs[0]
        if ended:
            done = p.AttemptDone(run.job_id, run.fence, b"1", None, None, [], None)
            yard.runner.received(cast(Any, child), done)
        child.state = "gone"
        yard.runner.exited(cast(Any, child))

    async with handing_over(exit_) as yard:
        assert [type(change) for change in yard.applied] == [Succeeded if ended else Lost]
        assert not yard.runner.attempts
        assert not yard.runner._slots._idle, "no job is given to a child that has exited"


async def test_a_job_that_no_child_accepts_from_the_writer_is_sent_by_the_loop() -> None:
    given: list[int] = []
    async with opened({}, idle=2) as yard:
        for child in yard.children:
            child.accepts = False
        yard.before_the_loop = lambda: given.extend(len(child.jobs) for child in yard.children)
        yard.jobs["wide"] = 2
        yard.runner.hint("wide", "in-wide")
        await settle()
        assert given == [0, 0]
        assert [len(child.jobs) for child in yard.children] == [1, 1]
        assert len(yard.runner.attempts) == 2


async def test_the_writer_gives_no_job_to_a_child_of_a_runner_that_stops() -> None:
    async with opened({}, idle=1) as yard:
        yard.before_the_loop = lambda: None
        (child,) = yard.children
        yard.runner._stopping = True
        yard.runner._hand_over([yard._job(ClaimRequest("wide", ("in-wide",), 1))])
        assert child.jobs == []
        yard.runner._stopping = False
