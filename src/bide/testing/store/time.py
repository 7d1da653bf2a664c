"""Time: jobs that become due, lost leases, deadlines, and jobs of an earlier process."""

from __future__ import annotations

from collections.abc import Sequence

from bide.core.jobs.lease import Lease
from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import (
    CancelAsked,
    Cancelled,
    FailedForNow,
    Lost,
    MarkedOverdue,
    Stale,
    Succeeded,
    WrongStatus,
)
from bide.core.pacing.hazard import Sketch
from bide.testing.store.harness import LEASE, OOPS, StoreHarness


def ids(jobs: Sequence[Job]) -> set[str]:
    return {job.id for job in jobs}


class Time:
    async def test_the_stores_time_is_the_clocks(self, harness: StoreHarness) -> None:
        harness.clock.advance(12.5)
        assert harness.store.now() == harness.clock.now()

    async def test_waking_names_what_can_be_claimed_now_and_when_the_next_is_due(
        self, harness: StoreHarness
    ) -> None:
        now = harness.clock.now()
        await harness.put(run_at=now + 10)
        await harness.put(run_at=now + 10, queue="other", kind="thing")
        await harness.put(run_at=now + 25)
        assert await harness.store.wake() == (set(), now + 10)
        harness.clock.advance(10)
        assert await harness.store.wake() == ({("default", "work"), ("other", "thing")}, now + 25)
        assert len(await harness.claim()) == 1
        assert await harness.store.wake() == (set(), now + 25)

    async def test_nothing_scheduled_is_nothing_to_wait_for(self, harness: StoreHarness) -> None:
        await harness.put()
        await harness.run()
        assert await harness.store.wake() == (set(), None)

    async def test_a_retry_is_due_at_its_time(self, harness: StoreHarness) -> None:
        job = await harness.run()
        retry_at = harness.clock.now() + 8
        after = await harness.apply(FailedForNow(job_id=job.id, fence=1, error=OOPS, retry_at=retry_at))
        assert (after.status, after.next_attempt_at) == (Status.RETRYING, retry_at)
        assert await harness.claim() == []
        assert await harness.store.wake() == (set(), retry_at)
        harness.clock.advance(8)
        await harness.reopen()
        await harness.store.wake()
        assert (await harness.take(job.id)).next_attempt_at is None

    async def test_a_cancelled_job_does_not_wake(self, harness: StoreHarness) -> None:
        job = await harness.put(run_at=harness.clock.now() + 10)
        await harness.apply(Cancelled(job_id=job.id))
        harness.clock.advance(10)
        assert await harness.store.wake() == (set(), None)
        assert await harness.claim() == []

    async def test_leases_are_listed_and_no_clock_makes_one_lost(self, harness: StoreHarness) -> None:
        now = harness.clock.now()
        first, also = await harness.put(), await harness.put()
        await harness.claim()
        harness.clock.advance(LEASE / 2)
        second = await harness.run()
        earlier, later = Lease("worker", now + LEASE, LEASE), Lease("worker", now + 1.5 * LEASE, LEASE)
        assert set(await harness.store.leases()) == {earlier, later}
        harness.clock.advance(3600)
        assert (await harness.store.lost_and_late()).leases == (), "an observer decides, not the time"
        assert ids((await harness.store.lost_and_late([earlier])).leases) == {first.id, also.id}
        assert len((await harness.store.lost_and_late([earlier], limit=1)).leases) == 1
        for job in (first, also):
            await harness.apply(Lost(job_id=job.id, fence=1, lease=earlier.until))
        assert (await harness.store.lost_and_late([earlier])).leases == ()
        assert await harness.store.leases() == [later]
        assert ids((await harness.store.lost_and_late([earlier, later])).leases) == {second.id}

    async def test_the_leases_of_two_owners_are_separate(self, harness: StoreHarness) -> None:
        await harness.put(queue="one")
        other = await harness.put(queue="other")
        await harness.claim(queue="one", owner="a")
        await harness.claim(queue="other", owner="b")
        until = harness.clock.now() + LEASE
        assert {lease.owner for lease in await harness.store.leases()} == {"a", "b"}
        assert ids((await harness.store.lost_and_late([Lease("b", until, LEASE)])).leases) == {other.id}

    async def test_whether_the_store_takes_writes_can_be_asked(self, harness: StoreHarness) -> None:
        for _ in range(2):
            await harness.store.check_writable()
        assert await harness.store.events() == []

    async def test_a_lease_that_was_renewed_since_it_was_seen_unchanged_is_not_lost(
        self, harness: StoreHarness
    ) -> None:
        job = await harness.run()
        harness.clock.advance(LEASE)
        (seen,) = (await harness.store.lost_and_late(await harness.store.leases())).leases
        assert await harness.store.renew("worker", [(job.id, 1)], LEASE) == []
        lost = Lost(job_id=job.id, fence=seen.fence, lease=seen.lease_until)
        assert isinstance(await harness.refuse(lost), Stale)

    async def test_deadlines_pass_wherever_the_job_is(self, harness: StoreHarness) -> None:
        deadline = harness.clock.now() + 5
        ended = await harness.run(deadline=deadline)
        await harness.apply(Succeeded(job_id=ended.id, fence=1))
        runs = await harness.run(deadline=deadline)
        waits = await harness.put(deadline=deadline)
        later = await harness.put(deadline=deadline + 1)
        assert (await harness.store.lost_and_late()).deadlines == ()
        harness.clock.advance(5)
        assert ids((await harness.store.lost_and_late()).deadlines) == {runs.id, waits.id}
        assert len((await harness.store.lost_and_late(limit=1)).deadlines) == 1
        harness.clock.advance(1)
        assert later.id in ids((await harness.store.lost_and_late()).deadlines)

    async def test_void_ends_the_leases_of_an_earlier_process(self, harness: StoreHarness) -> None:
        job = await harness.run()
        await harness.put()
        await harness.reopen()
        assert (await harness.store.lost_and_late()).leases == ()
        assert await harness.store.void() == 1
        (lost,) = (await harness.store.lost_and_late()).leases
        assert (lost.id, lost.version) == (job.id, job.version)
        assert await harness.store.renew("worker", [(job.id, 1)], LEASE) == [(job.id, 1)]
        await harness.apply(Lost(job_id=job.id, fence=lost.fence))
        assert await harness.statuses(job.id) == [Status.PENDING]

    async def test_void_ends_the_lease_of_a_job_that_was_just_changed(
        self, harness: StoreHarness
    ) -> None:
        job = await harness.run()
        await harness.apply(CancelAsked(job_id=job.id))
        assert await harness.store.void() == 1
        (lost,) = (await harness.store.lost_and_late()).leases
        await harness.apply(Lost(job_id=job.id, fence=lost.fence, lease=lost.lease_until))
        assert await harness.statuses(job.id) == [Status.CANCELLED]

    async def test_long_running_jobs_are_found_until_they_are_marked(
        self, harness: StoreHarness
    ) -> None:
        began = harness.clock.now()
        long = await harness.run()
        other = await harness.run(kind="other", queue="others")
        await harness.put()  # waits
        ended = await harness.run(kind="ended", queue="ended")
        await harness.succeed(ended)
        harness.clock.advance(5)
        await harness.take((await harness.put(queue="later")).id)
        since = {"work": began + 1, "ended": began + 1}
        assert ids(await harness.store.long_running(since)) == {long.id}
        assert await harness.store.long_running({"work": began}) == []
        both = {**since, "other": began + 1}
        assert ids(await harness.store.long_running(both)) == {long.id, other.id}
        assert len(await harness.store.long_running(both, limit=1)) == 1
        mark = MarkedOverdue(job_id=long.id, fence=1, message="too long")
        marked = await harness.apply(mark)
        assert (marked.overdue_at, marked.version) == (began + 5, long.version + 1)
        status, line = (await harness.store.events())[-2:]
        assert (status.type, status.job["overdue"]) == ("status", True)
        assert (line.type, line.job["log"]["message"]) == ("log", "too long")
        assert await harness.store.long_running(since) == []
        assert await harness.store.overdue_counts() == {"work": 1}
        assert isinstance(await harness.refuse(mark), WrongStatus)
        await harness.succeed(marked)
        assert await harness.store.overdue_counts() == {}

    async def test_learned_durations_are_kept(self, harness: StoreHarness) -> None:
        assert await harness.store.durations() == {}
        sketch = Sketch()
        for duration in (1.5, 2.5, 300.0):
            sketch.learn(duration)
        await harness.store.learn({"work": {"count": 0, "bins": {}}, "other": sketch.dump()})
        await harness.store.learn({"work": sketch.dump()})
        await harness.reopen()
        assert await harness.store.durations() == {"work": sketch.dump(), "other": sketch.dump()}

    async def test_a_check_writes_and_changes_nothing(self, harness: StoreHarness) -> None:
        job = await harness.put()
        await harness.store.check_writable()
        assert await harness.get(job.id) == job
        assert len(await harness.store.events()) == 1
