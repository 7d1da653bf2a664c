"""Unique values: a submission with the values of a job that has not ended returns that job."""

from __future__ import annotations

import asyncio
from typing import Any

from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import Cancelled, Failed, Rerun
from bide.server.store import Inserted
from bide.testing.store.harness import OOPS, StoreHarness


async def submit(harness: StoreHarness, unique: bytes = b"one", **fields: Any) -> tuple[Job, bool]:
    """Submit a job with these values. Return the stored job, and whether it is new."""
    (done,) = await harness.store.insert([harness.new(unique=unique, **fields)])
    assert isinstance(done, Inserted)
    return done.job, done.created


class Uniqueness:
    async def test_values_are_unique_while_their_job_waits_or_runs(self, harness: StoreHarness) -> None:
        first, created = await submit(harness)
        assert created
        assert await submit(harness) == (first, False)
        assert (await submit(harness, b"two"))[1], "other values"
        assert (await submit(harness, tenant="other"))[1], "of another tenant"
        assert (await submit(harness, kind="other"))[1], "of another kind"
        running = await harness.take(first.id)
        assert await submit(harness) == (running, False)
        await harness.reopen()
        assert await submit(harness) == (running, False)
        await harness.succeed(running)
        again, created = await submit(harness)
        assert created
        assert await submit(harness) == (again, False)

    async def test_values_stay_unique_for_a_while_after_the_creation(
        self, harness: StoreHarness
    ) -> None:
        job, _ = await submit(harness, unique_for=100.0)
        done = await harness.succeed(await harness.take(job.id))
        harness.clock.advance(99)
        assert await submit(harness, unique_for=100.0) == (done, False)
        harness.clock.advance(1)
        assert (await submit(harness, unique_for=100.0))[1]

    async def test_a_failed_job_gives_its_values_up(self, harness: StoreHarness) -> None:
        for _ in range(2):
            job, created = await submit(harness, unique_for=100.0)
            assert created
            await harness.apply(Cancelled(job_id=job.id))
        job, created = await submit(harness, unique_for=100.0)
        assert created
        await harness.apply(Failed(job_id=job.id, error=OOPS))
        last, created = await submit(harness, unique_for=100.0)
        assert created
        await harness.apply(Rerun(job_id=job.id))  # a retry is no submission
        assert await submit(harness, unique_for=100.0) == (last, False)

    async def test_a_removed_job_gives_its_values_up(self, harness: StoreHarness) -> None:
        job, _ = await submit(harness, unique_for=100.0)
        await harness.apply(Cancelled(job_id=job.id))
        await harness.store.delete(job.id)
        assert (await submit(harness, unique_for=100.0))[1]

    async def test_one_of_many_at_the_same_time_is_created(self, harness: StoreHarness) -> None:
        found = await asyncio.gather(*(submit(harness) for _ in range(20)))
        assert sum(created for _, created in found) == 1
        assert len({job.id for job, _ in found}) == 1

    async def test_unique_values_beside_a_key_and_a_content(self, harness: StoreHarness) -> None:
        first, _ = await submit(harness, key="k", content=b"c")
        assert await submit(harness, key="k2") == (first, False)
        assert await submit(harness, b"two", key="k2") == (first, False), "the key remembers it"
        assert await submit(harness, b"two", content=b"c") == (first, False)
        done = await harness.succeed(await harness.take(first.id))
        other, created = await submit(harness, b"two")
        assert created, "a submission that found a job by its content keeps no other key"
        assert await submit(harness, b"one", content=b"c") == (done, False)
        assert await submit(harness, b"two", content=b"d") == (other, False)
        assert (await submit(harness, b"three", content=b"d"))[0].status is Status.PENDING
