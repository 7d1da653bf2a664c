"""Statistics: counts per minute that are written together with the jobs, merged into hours, and removed when old."""

from __future__ import annotations

from collections import Counter

import msgspec

from bide.core.jobs.histogram import bucket_of
from bide.core.jobs.record import Status
from bide.core.jobs.state_machine import (
    Begun,
    Cancelled,
    Failed,
    FailedForNow,
    Parked,
    Rerun,
    StepKept,
    StepStarted,
)
from bide.server.store import ClaimRequest
from bide.server.store.rollups import GRACE, HOUR, KEEP_HOURS, KEEP_MINUTES, MINUTE, RollupQuery
from bide.testing.store.harness import LEASE, OOPS, StoreHarness


async def counts(
    harness: StoreHarness,
    *,
    width: int = MINUTE,
    tenant: str = "-",
    kind: str | None = None,
    queue: str | None = None,
) -> Counter[str]:
    """All counts until now, summed up."""
    end = int(harness.clock.now()) + MINUTE
    query = RollupQuery(tenant, 0, end, width, kind, queue)
    found: Counter[str] = Counter()
    for _, name, count in await harness.store.statistics(query):
        found[name] += count
    return found


class StoredStatistics:
    async def test_every_way_to_end_is_counted(self, harness: StoreHarness) -> None:
        await harness.succeed(await harness.run())
        job = await harness.run()
        harness.clock.advance(2)
        await harness.apply(Failed(job_id=job.id, fence=1, error=OOPS))
        await harness.apply(Cancelled(job_id=(await harness.put()).id))
        found = await counts(harness)
        assert found == {
            "submitted": 3,
            "started": 2,
            "done": 1,
            "failed:OOPS": 1,
            "cancelled": 1,
            "wait.0": 2,
            "run.0": 1,
            f"run.{bucket_of(2)}": 1,
        }
        await harness.reopen()
        assert await counts(harness) == found

    async def test_each_attempt_starts_and_a_job_ends_once_per_run(self, harness: StoreHarness) -> None:
        job = await harness.run()
        retry = harness.clock.now() + 5
        await harness.apply(FailedForNow(job_id=job.id, fence=1, error=OOPS, retry_at=retry))
        harness.clock.advance(8)
        await harness.store.wake()
        again = await harness.take(job.id)
        await harness.apply(Failed(job_id=job.id, fence=again.fence, error=OOPS))
        await harness.refuse(Failed(job_id=job.id, fence=again.fence, error=OOPS))
        await harness.apply(Rerun(job_id=job.id))
        await harness.succeed(await harness.take(job.id))
        found = await counts(harness)
        assert (found["submitted"], found["started"]) == (1, 3)
        assert (found["failed:OOPS"], found["done"]) == (1, 1)
        assert found[f"wait.{bucket_of(3)}"] == 1

    async def test_a_prefetched_job_starts_when_it_begins(self, harness: StoreHarness) -> None:
        await harness.put()
        await harness.put()
        request = ClaimRequest("default", ("work",), 2, begin=1)
        _, reserved = await harness.store.claim("worker", [request], 2, LEASE)
        assert (await counts(harness))["started"] == 1
        begun = Begun(job_id=reserved.job.id, fence=1, started_at=harness.clock.now(), waited=4.0)
        await harness.apply(begun)
        found = await counts(harness)
        assert (found["started"], found[f"wait.{bucket_of(4)}"]) == (2, 1)

    async def test_a_parked_job_continues_its_attempt(self, harness: StoreHarness) -> None:
        parent = await harness.run()
        child = await harness.spawn(parent)
        await harness.apply(Parked(job_id=parent.id, fence=1, waiting_for=(child.id,)))
        await harness.succeed(await harness.take(child.id))
        await harness.succeed(await harness.take(parent.id))
        found = await counts(harness)
        assert (found["submitted"], found["started"], found["done"]) == (2, 2, 2)

    async def test_steps_have_durations(self, harness: StoreHarness) -> None:
        job = await harness.run()
        for name in ("page 1", "page 22"):
            await harness.apply(StepStarted(job_id=job.id, fence=1, name=name))
            harness.clock.advance(3)
            await harness.apply(StepKept(job_id=job.id, fence=1, name=name, result=msgspec.Raw(b"1")))
        assert (await counts(harness))[f"step.{bucket_of(3)}:page #"] == 2

    async def test_by_kind_queue_and_tenant(self, harness: StoreHarness) -> None:
        await harness.put(kind="a", queue="x")
        await harness.put(kind="a", queue="y")
        await harness.put(kind="b", queue="y")
        await harness.put(kind="a", queue="x", tenant="other")
        assert (await counts(harness))["submitted"] == 3
        assert (await counts(harness, kind="a"))["submitted"] == 2
        assert (await counts(harness, kind="a", queue="y"))["submitted"] == 1
        assert (await counts(harness, queue="y"))["submitted"] == 2
        assert (await counts(harness, tenant="other"))["submitted"] == 1
        assert await counts(harness, kind="\0") == await counts(harness, tenant="none") == {}

    async def test_points(self, harness: StoreHarness) -> None:
        harness.clock.advance(HOUR - harness.clock.now() % HOUR)
        start = int(harness.clock.now())
        for minute in range(4):
            for _ in range(minute + 1):
                await harness.put()
            harness.clock.advance(MINUTE)
        query = RollupQuery("-", start, start + 4 * MINUTE, 2 * MINUTE)
        found = await harness.store.statistics(query)
        assert sorted(found) == [(start, "submitted", 3), (start + 2 * MINUTE, "submitted", 7)]

    async def test_samples_of_the_load(self, harness: StoreHarness) -> None:
        await harness.put(kind="a")
        await harness.put(kind="a", status=Status.RETRYING)
        await harness.run(kind="b")
        for _ in range(2):
            await harness.store.sample_load()
        found = await counts(harness)
        assert (found["waiting"], found["running"], found["samples"]) == (4, 2, 2)
        of_kind = await counts(harness, kind="b")
        assert (of_kind["waiting"], of_kind["running"], of_kind["samples"]) == (0, 2, 2)

    async def test_hours_have_the_same_counts_and_old_ones_are_removed(
        self, harness: StoreHarness
    ) -> None:
        for _ in range(5):
            await harness.put()
            harness.clock.advance(HOUR / 2)
        before = await counts(harness)
        harness.clock.advance(HOUR + GRACE)
        while await harness.store.merge_rollups():
            pass
        assert await counts(harness) == await counts(harness, width=HOUR) == before
        await harness.put()
        assert (await counts(harness, width=HOUR))["submitted"] == before["submitted"] + 1
        harness.clock.advance(KEEP_MINUTES + HOUR)
        while await harness.store.merge_rollups():
            pass
        assert (await counts(harness, width=HOUR))["submitted"] == before["submitted"] + 1
        harness.clock.advance(KEEP_HOURS + 86400)
        await harness.put()
        while await harness.store.merge_rollups():
            pass
        if await self.removes_old_counts(harness):
            assert (await counts(harness, width=HOUR))["submitted"] == 1

    async def removes_old_counts(self, harness: StoreHarness) -> bool:
        """Whether the store merges minutes: after the removal of all minutes, the first ones are gone."""
        query = RollupQuery("-", 0, int(harness.clock.now()) - KEEP_HOURS, HOUR)
        return not await harness.store.statistics(query)
