"""Breakers: all processes share them, one attempt probes at a time, and waiting jobs are released step by step."""

from __future__ import annotations

from bide.core.jobs.breaker import BreakerSettings, BreakerState, CallCount
from bide.core.jobs.record import Job, Status
from bide.core.jobs.retry import PATIENCE, deadline_passed
from bide.core.jobs.state_machine import Cancelled, Delayed, FailedForNow, HandedBack, Lost
from bide.server.store import BreakerReport, BreakerVerdict, RecordFilter
from bide.testing.store.harness import OOPS, StoreHarness

SETTINGS = BreakerSettings(failures=2, open_for=10.0, open_cap=40.0)


async def report(
    harness: StoreHarness, job: str | None = None, successes: int = 0, at: float = 0.0
) -> BreakerVerdict:
    calls = CallCount(successes, at)
    return await harness.store.report_calls(BreakerReport("vendor", SETTINGS, 1.0, calls, job))


async def probed(harness: StoreHarness, job: Job, success: bool | None) -> BreakerState:
    done = BreakerReport("vendor", SETTINGS, 1.0, job=job.id, prober=job.fence, success=success)
    verdict = await harness.store.report_calls(done)
    assert verdict.spared, "a probe does not count"
    return verdict.state


async def opened(harness: StoreHarness) -> BreakerState:
    """Open the breaker for 10 seconds."""
    await report(harness, "a")
    state = (await report(harness, "b")).state
    assert state.status == "open"
    return state


async def enter(harness: StoreHarness, job: Job) -> bool:
    return (await harness.store.enter_breaker("vendor", job.id, job.fence)).allowed


async def wait(harness: StoreHarness, job: Job, *, counts: bool = False) -> Job:
    """End an attempt because the breaker is open."""
    now = harness.clock.now()
    change = (FailedForNow if counts else Delayed)(
        job_id=job.id,
        fence=job.fence,
        error=OOPS,
        retry_at=now + 10,
        due=now + PATIENCE,
        waits_for="breaker vendor",
    )
    return await harness.apply(change)


async def waiting(harness: StoreHarness) -> dict[str, str]:
    prefix = RecordFilter(tenant="-", prefix="breaker vendor ")
    return await harness.store.records("waiting_jobs", prefix)


async def release(harness: StoreHarness) -> int:
    return await harness.store.release_waiting("vendor", await waiting(harness))


class Breakers:
    async def test_a_breaker_opens_for_all_and_stays_open_after_a_restart(
        self, harness: StoreHarness
    ) -> None:
        assert await harness.store.breaker("vendor") == BreakerState()
        verdict = await report(harness, "a")
        assert (verdict.state.status, verdict.spared) == ("closed", False)
        await report(harness, successes=1, at=harness.clock.now())
        assert (await report(harness, "b")).state.status == "closed", "there was a success in between"
        assert (await report(harness, "c")).state.status == "open"
        await harness.reopen()
        state = await harness.store.breaker("vendor")
        assert (state.status, state.retry_at) == ("open", harness.clock.now() + 10)
        assert not await enter(harness, await harness.run())

    async def test_only_the_first_failure_of_a_job_counts_until_a_call_succeeds(
        self, harness: StoreHarness
    ) -> None:
        settings = BreakerSettings(failures=9)

        async def spared(calls: CallCount | None = None) -> bool:
            done = BreakerReport("vendor", settings, 1.0, calls or CallCount(), "a")
            return (await harness.store.report_calls(done)).spared

        assert [await spared(), await spared(), await spared()] == [False, True, True]
        before = harness.clock.now() - 1
        assert await spared(CallCount(1, before)), "that success was before the failures"
        harness.clock.advance(1)
        assert not await spared(CallCount(1, harness.clock.now()))

    async def test_one_attempt_probes_at_a_time(self, harness: StoreHarness) -> None:
        await opened(harness)
        one, two, three = [await harness.run() for _ in range(3)]
        assert not await enter(harness, one), "it is too early"
        harness.clock.advance(10)
        assert [await enter(harness, job) for job in (one, two, one)] == [True, False, True]
        assert (await harness.store.breaker("vendor")).prober == (one.id, one.fence)
        state = await probed(harness, one, False)
        assert (state.status, state.retry_at) == ("open", harness.clock.now() + 20), "twice as long"
        harness.clock.advance(20)
        assert await enter(harness, two)
        assert (await probed(harness, one, True)).status == "half-open", "it is no longer the prober"
        assert (await probed(harness, two, True)).status == "closed"
        assert await enter(harness, three)

    async def test_the_place_of_a_lost_prober_is_passed_on(self, harness: StoreHarness) -> None:
        await opened(harness)
        harness.clock.advance(10)
        one, two, three, four = [await harness.run() for _ in range(4)]
        assert await enter(harness, one)
        await harness.reopen()
        assert not await enter(harness, two), "a worker still holds the prober"
        await harness.apply(Lost(job_id=one.id, fence=one.fence))
        assert await enter(harness, two)
        await harness.apply(HandedBack(job_id=two.id, fence=two.fence))
        again = await harness.take(one.id)
        assert again.fence > one.fence
        assert await enter(harness, again)
        await probed(harness, again, None)
        assert [await enter(harness, job) for job in (three, four)] == [True, False]

    async def test_a_job_that_waits_does_not_start_and_has_a_reason(self, harness: StoreHarness) -> None:
        await opened(harness)
        job = await wait(harness, await harness.run(max_attempts=3))
        assert (job.status, job.failures, job.error) == (Status.RETRYING, 0, OOPS)
        assert job.next_attempt_at == harness.clock.now() + 10
        counted = await wait(harness, await harness.run(), counts=True)
        assert (counted.status, counted.failures) == (Status.RETRYING, 1)
        assert len(await waiting(harness)) == 2
        (line,) = [e.job for e in await harness.store.events(job_id=job.id) if e.type == "log"]
        assert line["log"]["message"] == "the job waits, because the breaker 'vendor' is open"
        assert line["waitsFor"] == "breaker vendor"
        harness.clock.advance(60)
        await harness.store.wake()
        assert await harness.claim() == []
        harness.clock.advance(PATIENCE)  # even if nothing releases it
        await harness.store.wake()
        assert {claim.job.id for claim in await harness.claim()} == {job.id, counted.id}

    async def test_one_waiting_job_after_another_probes(self, harness: StoreHarness) -> None:
        await opened(harness)
        jobs = []
        for _ in range(3):
            jobs.append(await wait(harness, await harness.run()))
            harness.clock.advance(1)
        assert await release(harness) == 0
        harness.clock.advance(8)
        assert [await release(harness), await release(harness)] == [1, 0]
        (first,) = [claim.job for claim in await harness.claim()]
        assert first.id == jobs[0].id
        assert await enter(harness, first)
        harness.clock.advance(60)
        assert await release(harness) == 0, "it still probes"
        await probed(harness, first, False)
        await wait(harness, first)
        harness.clock.advance(20)
        assert await release(harness) == 1
        (second,) = [claim.job for claim in await harness.claim()]
        assert second.id == jobs[1].id, "another one, in case the first job is at fault"
        harness.clock.advance(10)
        assert await release(harness) == 1, "the second has not asked yet, so a third may"

    async def test_waiting_jobs_are_released_in_growing_batches(self, harness: StoreHarness) -> None:
        await opened(harness)
        jobs = [await harness.run() for _ in range(30)]
        for job in jobs:
            await wait(harness, job)
        harness.clock.advance(10)
        prober = await harness.run()
        assert await enter(harness, prober)
        assert (await probed(harness, prober, True)).status == "closed"
        assert [await release(harness), await release(harness)] == [8, 0]
        due = sorted([(await harness.get(job.id)).due or 0.0 for job in jobs])[:8]
        assert due == [harness.clock.now() + i / 8 for i in range(8)]
        harness.clock.advance(1)
        await harness.store.wake()
        assert len(await harness.claim()) == 8
        assert await release(harness) == 16
        await harness.reopen()
        harness.clock.advance(1)
        assert await release(harness) == 6
        assert await waiting(harness) == {}

    async def test_a_job_that_waits_can_be_cancelled_and_has_a_deadline(
        self, harness: StoreHarness
    ) -> None:
        await opened(harness)
        late = await wait(harness, await harness.run(deadline=harness.clock.now() + 5))
        cancelled, other = [await wait(harness, await harness.run()) for _ in range(2)]
        await harness.apply(Cancelled(job_id=cancelled.id))
        harness.clock.advance(5)
        (found,) = (await harness.store.lost_and_late()).deadlines
        await harness.apply(deadline_passed(found))
        assert found.id == late.id
        harness.clock.advance(5)
        assert await release(harness) == 3, "the records of the ended jobs are removed, too"
        assert (await harness.get(other.id)).due == harness.clock.now()
        ended = [Status.ERROR, Status.CANCELLED, Status.RETRYING]
        assert await harness.statuses(late.id, cancelled.id, other.id) == ended
