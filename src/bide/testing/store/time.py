"""Time: jobs that become due, overdue jobs, and jobs of an earlier process."""

from __future__ import annotations

from bide.core.hazard import Sketch
from bide.core.job import CancelAsked, Cancelled, FailedForNow, Lost, Stale, Succeeded
from bide.core.lease import Lease
from bide.core.record import Job, Status
from bide.testing.store.bench import LEASE, OOPS, Bench


def ids(jobs: tuple[Job, ...]) -> set[str]:
    return {job.id for job in jobs}


class Time:
    async def test_the_stores_time_is_the_clocks(self, bench: Bench) -> None:
        bench.clock.advance(12.5)
        assert bench.store.now() == bench.clock.now()

    async def test_waking_names_what_can_be_claimed_now_and_when_the_next_is_due(
        self, bench: Bench
    ) -> None:
        now = bench.clock.now()
        await bench.put(run_at=now + 10)
        await bench.put(run_at=now + 10, queue="other", kind="thing")
        await bench.put(run_at=now + 25)
        assert await bench.store.wake() == (set(), now + 10)
        bench.clock.advance(10)
        assert await bench.store.wake() == ({("default", "work"), ("other", "thing")}, now + 25)
        assert len(await bench.claim()) == 1
        assert await bench.store.wake() == (set(), now + 25)

    async def test_nothing_scheduled_is_nothing_to_wait_for(self, bench: Bench) -> None:
        await bench.put()
        await bench.run()
        assert await bench.store.wake() == (set(), None)

    async def test_a_retry_is_due_at_its_time(self, bench: Bench) -> None:
        job = await bench.run()
        retry_at = bench.clock.now() + 8
        after = await bench.apply(FailedForNow(job_id=job.id, fence=1, error=OOPS, retry_at=retry_at))
        assert (after.status, after.next_attempt_at) == (Status.RETRYING, retry_at)
        assert await bench.claim() == []
        assert await bench.store.wake() == (set(), retry_at)
        bench.clock.advance(8)
        await bench.reopen()
        await bench.store.wake()
        assert (await bench.take(job.id)).next_attempt_at is None

    async def test_a_cancelled_job_does_not_wake(self, bench: Bench) -> None:
        job = await bench.put(run_at=bench.clock.now() + 10)
        await bench.apply(Cancelled(job_id=job.id))
        bench.clock.advance(10)
        assert await bench.store.wake() == (set(), None)
        assert await bench.claim() == []

    async def test_leases_are_told_and_no_clock_makes_one_overdue(self, bench: Bench) -> None:
        now = bench.clock.now()
        first, also = await bench.put(), await bench.put()
        await bench.claim()
        bench.clock.advance(LEASE / 2)
        second = await bench.run()
        earlier, later = Lease("worker", now + LEASE, LEASE), Lease("worker", now + 1.5 * LEASE, LEASE)
        assert set(await bench.store.leases()) == {earlier, later}
        bench.clock.advance(3600)
        assert (await bench.store.overdue()).leases == (), "an observer decides, not the time"
        assert ids((await bench.store.overdue([earlier])).leases) == {first.id, also.id}
        assert len((await bench.store.overdue([earlier], limit=1)).leases) == 1
        for job in (first, also):
            await bench.apply(Lost(job_id=job.id, fence=1, lease=earlier.until))
        assert (await bench.store.overdue([earlier])).leases == ()
        assert await bench.store.leases() == [later]
        assert ids((await bench.store.overdue([earlier, later])).leases) == {second.id}

    async def test_the_leases_of_two_owners_are_told_apart(self, bench: Bench) -> None:
        await bench.put(queue="one")
        other = await bench.put(queue="other")
        await bench.claim(queue="one", owner="a")
        await bench.claim(queue="other", owner="b")
        until = bench.clock.now() + LEASE
        assert {lease.owner for lease in await bench.store.leases()} == {"a", "b"}
        assert ids((await bench.store.overdue([Lease("b", until, LEASE)])).leases) == {other.id}

    async def test_whether_the_store_takes_writes_can_be_asked(self, bench: Bench) -> None:
        for _ in range(2):
            await bench.store.check_writable()
        assert await bench.store.events() == []

    async def test_a_lease_that_was_renewed_since_it_was_seen_overdue_is_not_lost(
        self, bench: Bench
    ) -> None:
        job = await bench.run()
        bench.clock.advance(LEASE)
        (seen,) = (await bench.store.overdue(await bench.store.leases())).leases
        assert await bench.store.renew("worker", [(job.id, 1)], LEASE) == []
        lost = Lost(job_id=job.id, fence=seen.fence, lease=seen.lease_until)
        assert isinstance(await bench.refuse(lost), Stale)

    async def test_deadlines_are_overdue_wherever_the_job_is(self, bench: Bench) -> None:
        deadline = bench.clock.now() + 5
        ended = await bench.run(deadline=deadline)
        await bench.apply(Succeeded(job_id=ended.id, fence=1))
        runs = await bench.run(deadline=deadline)
        waits = await bench.put(deadline=deadline)
        later = await bench.put(deadline=deadline + 1)
        assert (await bench.store.overdue()).deadlines == ()
        bench.clock.advance(5)
        assert ids((await bench.store.overdue()).deadlines) == {runs.id, waits.id}
        assert len((await bench.store.overdue(limit=1)).deadlines) == 1
        bench.clock.advance(1)
        assert later.id in ids((await bench.store.overdue()).deadlines)

    async def test_void_ends_the_leases_of_an_earlier_process(self, bench: Bench) -> None:
        job = await bench.run()
        await bench.put()
        await bench.reopen()
        assert (await bench.store.overdue()).leases == ()
        assert await bench.store.void() == 1
        (overdue,) = (await bench.store.overdue()).leases
        assert (overdue.id, overdue.version) == (job.id, job.version)
        assert await bench.store.renew("worker", [(job.id, 1)], LEASE) == [(job.id, 1)]
        await bench.apply(Lost(job_id=job.id, fence=overdue.fence))
        assert await bench.statuses(job.id) == [Status.PENDING]

    async def test_void_ends_the_lease_of_a_job_that_was_just_changed(self, bench: Bench) -> None:
        job = await bench.run()
        await bench.apply(CancelAsked(job_id=job.id))
        assert await bench.store.void() == 1
        (overdue,) = (await bench.store.overdue()).leases
        await bench.apply(Lost(job_id=job.id, fence=overdue.fence, lease=overdue.lease_until))
        assert await bench.statuses(job.id) == [Status.CANCELLED]

    async def test_learned_durations_are_kept(self, bench: Bench) -> None:
        assert await bench.store.durations() == {}
        sketch = Sketch()
        for duration in (1.5, 2.5, 300.0):
            sketch.learn(duration)
        await bench.store.learn({"work": {"count": 0, "bins": {}}, "other": sketch.dump()})
        await bench.store.learn({"work": sketch.dump()})
        await bench.reopen()
        assert await bench.store.durations() == {"work": sketch.dump(), "other": sketch.dump()}

    async def test_a_check_writes_and_changes_nothing(self, bench: Bench) -> None:
        job = await bench.put()
        await bench.store.check_writable()
        assert await bench.get(job.id) == job
        assert len(await bench.store.events()) == 1
