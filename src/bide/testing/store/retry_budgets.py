"""Retry budgets: all processes share them, and a retry beyond the budget waits."""

from __future__ import annotations

from bide.core.jobs.record import Job, Status
from bide.core.jobs.retry_budget import RetryBudget
from bide.core.jobs.state_machine import Cancelled, FailedForNow, RetryClaim
from bide.server.store import FirstAttempts, RecordFilter
from bide.testing.store.harness import OOPS, StoreHarness

BUDGET = RetryBudget(0.5, 2.0)
DAY = 86400.0


async def fail(harness: StoreHarness, first_attempts: int = 0) -> Job:
    """Store a job whose first attempt fails. It may start again after 5 seconds, if the budget allows it."""
    job = await harness.run()
    now = harness.clock.now()
    wanted = RetryClaim("work", BUDGET, now + DAY, first_attempts)
    change = FailedForNow(job_id=job.id, fence=job.fence, error=OOPS, retry_at=now + 5, budgeted=wanted)
    return await harness.apply(change)


async def waiting(harness: StoreHarness) -> dict[str, str]:
    return await harness.store.records("waiting_jobs", RecordFilter(tenant="-", prefix="retries work "))


async def release(harness: StoreHarness, budget: RetryBudget | None = BUDGET) -> int:
    records = await waiting(harness)
    return await harness.store.release_retries("work", budget, records, last=True)


class RetryBudgets:
    async def test_retries_beyond_the_budget_wait_for_it(self, harness: StoreHarness) -> None:
        jobs = [await fail(harness) for _ in range(5)]
        now = harness.clock.now()
        soon = [job.due == now + 5 for job in jobs]
        assert soon == [True, True, False, False, False], "the minimum is two per minute"
        assert {(job.status, job.failures, job.next_attempt_at) for job in jobs} == {
            (Status.RETRYING, 1, now + 5)
        }
        (line,) = [e.job for e in await harness.store.events(job_id=jobs[2].id) if e.type == "log"]
        assert line["log"]["message"] == "the job waits, because 'work' has too many retries"
        assert await release(harness) == 0
        await harness.reopen()
        harness.clock.advance(30)
        assert await release(harness) == 1
        assert (await harness.get(jobs[2].id)).due == harness.clock.now()
        await harness.store.wake()
        assert len(await harness.claim()) == 3
        assert (await fail(harness)).due != harness.clock.now() + 5, "earlier ones wait"
        assert len(await waiting(harness)) == 3

    async def test_first_attempts_of_all_processes_earn_retries(self, harness: StoreHarness) -> None:
        await harness.store.report_first_attempts([FirstAttempts("work", BUDGET, 4)])
        jobs = [await fail(harness, 2)] + [await fail(harness) for _ in range(5)]
        soon = [job.due == harness.clock.now() + 5 for job in jobs]
        assert soon == [True] * 5 + [False], "three are earned, and two are the minimum"
        harness.clock.advance(600)
        await harness.store.report_first_attempts([FirstAttempts("other", BUDGET, 100)])
        assert await release(harness) == 1

    async def test_a_retry_that_waits_is_released_after_its_backoff_or_cancelled(
        self, harness: StoreHarness
    ) -> None:
        jobs = [await fail(harness) for _ in range(5)]
        await harness.apply(Cancelled(job_id=jobs[2].id))
        await harness.store.report_first_attempts([FirstAttempts("work", BUDGET, 2)])
        assert await release(harness) == 2, "the record of the cancelled job is removed, too"
        assert (await harness.get(jobs[3].id)).due == harness.clock.now() + 5
        assert await release(harness, None) == 1, "without a budget all of them start"
        assert (await fail(harness)).due != harness.clock.now() + 5
