"""The event log: numbered in commit order, published after the commit, and kept over restarts."""

from __future__ import annotations

import asyncio

import msgspec

from bide.core.jobs.state_machine import FailedForNow, StepKept, StepStarted
from bide.testing.store.harness import OOPS, StoreHarness


class Events:
    async def test_the_log_tells_a_jobs_life_in_order(self, harness: StoreHarness) -> None:
        job = await harness.run()
        await harness.apply(StepStarted(job_id=job.id, fence=1, name="probe"))
        await harness.apply(StepKept(job_id=job.id, fence=1, name="probe", result=msgspec.Raw(b"1")))
        harness.clock.advance(2)
        retry_at = harness.clock.now() + 8
        await harness.apply(FailedForNow(job_id=job.id, fence=1, error=OOPS, retry_at=retry_at))
        events = await harness.store.events()
        published = [(e.type, e.job["status"], e.job["version"]) for e in events]
        assert published == [
            ("status", "PENDING", 1),
            ("status", "PROCESSING", 2),
            ("step", "PROCESSING", 3),
            ("step", "PROCESSING", 4),
            ("status", "RETRYING", 5),
        ]
        steps = [e.job["step"] for e in events if e.type == "step"]
        assert steps == [
            {"name": "probe", "status": "PROCESSING"},
            {"name": "probe", "status": "DONE"},
        ]
        assert events[1].job["worker"] == "worker"
        assert events[-1].at == harness.clock.now()
        assert events[-1].job["nextAttemptAt"] == retry_at
        assert events[-1].job["error"]["failedStep"] == "first"

    async def test_numbers_grow_in_commit_order_over_all_jobs(self, harness: StoreHarness) -> None:
        await asyncio.gather(*(harness.put() for _ in range(10)))
        await harness.claim(limit=5)
        numbers = [e.id for e in await harness.store.events()]
        assert len(numbers) == 15
        assert numbers == sorted(set(numbers))

    async def test_published_events_are_those_of_the_log(self, harness: StoreHarness) -> None:
        job = await harness.run()
        await harness.apply(
            FailedForNow(job_id=job.id, fence=1, error=OOPS, retry_at=harness.clock.now())
        )
        log = await harness.store.events()
        assert len(log) == 3
        await asyncio.sleep(0)  # published right after the write returns
        assert msgspec.to_builtins(harness.published) == msgspec.to_builtins(log)

    async def test_an_event_is_published_only_after_its_commit(self, harness: StoreHarness) -> None:
        job = await harness.put()
        await asyncio.sleep(0)
        (event,) = harness.published
        assert (event.job_id, event.tenant) == (job.id, "-")
        assert [e.id for e in await harness.store.events()] == [event.id]

    async def test_reading_goes_on_after_a_number_for_one_job_or_all(
        self, harness: StoreHarness
    ) -> None:
        one = await harness.put()
        two = await harness.put()
        await harness.claim()
        events = await harness.store.events()
        assert await harness.store.events(after=events[1].id) == events[2:]
        assert await harness.store.events(limit=2) == events[:2]
        of_two = [e for e in events if e.job_id == two.id]
        assert await harness.store.events(job_id=two.id) == of_two
        assert await harness.store.events(job_id=two.id, after=of_two[0].id) == of_two[1:]
        assert one.id not in {e.job_id for e in of_two}

    async def test_the_log_and_its_numbering_survive_reopening(self, harness: StoreHarness) -> None:
        await harness.run()
        before = await harness.store.events()
        await harness.reopen()
        assert await harness.store.events() == before
        await harness.put()
        after = await harness.store.events()
        assert after[:-1] == before
        assert after[-1].id > before[-1].id

    async def test_numbers_are_not_used_again_when_jobs_are_removed(self, harness: StoreHarness) -> None:
        job = await harness.put()
        last = (await harness.store.events())[-1].id
        await harness.store.delete(job.id)
        await harness.reopen()
        await harness.put()
        assert [e.id > last for e in await harness.store.events()] == [True]

    async def test_the_holder_of_a_job_can_log_and_nobody_else(self, harness: StoreHarness) -> None:
        job = await harness.run()
        await harness.store.log(job.id, "worker", 1, [{"message": "one"}, {"message": "two"}])
        await harness.store.log(job.id, "worker", 7, [{"message": "stale"}])
        await harness.store.log("unknown", "worker", 1, [{"message": "nowhere"}])
        lines = [e.job["log"] for e in await harness.store.events() if e.type == "log"]
        assert lines == [{"message": "one"}, {"message": "two"}]
        assert (await harness.get(job.id)).version == job.version
