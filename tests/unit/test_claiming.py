"""Where the engine looks for work, and what it takes as a sign that there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from bide.core.jobs.record import Job, Status
from bide.server.engine.claiming import Claimer
from bide.server.engine.concurrency import ConcurrencyLimits
from bide.server.registry import Registry
from bide.server.store import Claim, ClaimRequest, StoreUnavailable


class Yard:
    """A store with so many jobs a queue, and so many idle children."""

    def __init__(self, jobs: dict[str, int], idle: int) -> None:
        registry = Registry(queues={"wide": 2, "narrow": 1})
        for queue in ("wide", "narrow"):
            registry.job(name=f"in-{queue}", queue=queue)(lambda: None)
        self.jobs = jobs
        self.idle = idle
        self.asked: list[list[ClaimRequest]] = []
        self.started: list[str] = []
        self.limits = ConcurrencyLimits(registry, 4, 10)
        self.claims = Claimer(self.limits, self.claim, self)

    def claim(self, requests: list[ClaimRequest], limit: int) -> Awaitable[list[Claim]]:
        self.asked.append(requests)
        found: list[Claim] = []
        for request in requests:
            n = min(request.limit, limit - len(found), self.jobs.get(request.queue, 0))
            self.jobs[request.queue] = self.jobs.get(request.queue, 0) - n
            found += [
                Claim(
                    Job(f"{request.queue}", "k", request.queue, 0.0, 0.0, status=Status.PROCESSING),
                    b"{}",
                )
            ] * n
        future: asyncio.Future[list[Claim]] = asyncio.get_running_loop().create_future()
        future.set_result(found)
        return future

    def free_slots(self, is_async: bool) -> int:
        return 0 if is_async else self.idle

    def prefetch_requests(self, hints: dict[tuple[str, str], int]) -> list[ClaimRequest]:
        return []

    def start_job(self, claim: Claim, is_async: bool) -> None:
        self.started.append(claim.job.queue)
        self.idle -= 1
        self.limits.acquire(False, claim.job.queue)

    def end(self, queue: str) -> None:
        self.idle += 1
        self.limits.release(False, queue)
        self.claims.claim_free()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_queue_that_gave_all_it_was_asked_for_is_asked_again() -> None:
    yard = Yard({"narrow": 3}, idle=4)
    yard.claims.hint_everywhere()
    await settle()
    assert yard.started == ["narrow"]  # its limit is 1, and the other queue had nothing
    yard.end("narrow")
    await settle()
    yard.end("narrow")
    await settle()
    assert yard.started == ["narrow"] * 3


async def test_an_empty_queue_is_not_asked_again_without_a_hint() -> None:
    yard = Yard({"wide": 1}, idle=4)
    yard.claims.hint_everywhere()
    await settle()
    asked = len(yard.asked)
    yard.claims.claim_free()
    await settle()
    assert len(yard.asked) == asked
    yard.jobs["wide"] = 1
    yard.claims.hint("wide", "in-wide")
    await settle()
    assert yard.started == ["wide", "wide"]


async def test_a_hint_that_comes_while_a_claim_is_under_way_is_not_lost() -> None:
    yard = Yard({}, idle=4)
    yard.claims.hint("wide", "in-wide")  # nothing there yet
    yard.jobs["wide"] = 1
    yard.claims.hint("wide", "in-wide")  # before the first claim has come back
    await settle()
    assert yard.started == ["wide"]


async def test_no_more_is_asked_for_than_fits() -> None:
    yard = Yard({"wide": 9, "narrow": 9}, idle=2)
    yard.claims.hint_everywhere()
    await settle()
    assert len(yard.started) == 2
    assert yard.limits.available(False, "narrow") >= 0 and yard.limits.available(False, "wide") >= 0


async def test_a_store_that_cannot_be_asked_is_complained_of_once_and_asked_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = Yard({"wide": 1}, idle=1)
    claim, reasons = yard.claim, ["away", "away", "full", "away", "full"]

    def refuse(requests: list[ClaimRequest], limit: int) -> Awaitable[list[Claim]]:
        if not reasons:
            return claim(requests, limit)
        future: asyncio.Future[list[Claim]] = asyncio.get_running_loop().create_future()
        future.set_exception(StoreUnavailable(reasons.pop(0)))
        return future

    monkeypatch.setattr(yard.claims, "_claim", refuse)
    yard.claims.hint("wide", "in-wide")
    for _ in range(5):
        await settle()
        yard.claims.claim_free()
    await settle()
    assert [r.getMessage() for r in caplog.records] == [
        "cannot claim jobs; retrying: away",
        "cannot claim jobs; retrying: full",
    ]
    assert yard.started == ["wide"]


async def test_what_was_asked_for_before_the_end_is_handed_over_before_it() -> None:
    yard = Yard({"wide": 1}, idle=1)
    yard.claims.hint("wide", "in-wide")
    assert yard.started == []
    await yard.claims.close()
    assert yard.started == ["wide"]
    yard.claims.hint("narrow", "in-narrow")
    await yard.claims.close()
    assert len(yard.asked) == 1
