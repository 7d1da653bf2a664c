"""The event log: numbered in commit order, published after the commit, and kept over restarts."""

from __future__ import annotations

import asyncio

import msgspec

from bide.core.job import FailedForNow, StepKept, StepStarted
from bide.testing.store.bench import OOPS, Bench


class Events:
    async def test_the_log_tells_a_jobs_life_in_order(self, bench: Bench) -> None:
        job = await bench.run()
        await bench.apply(StepStarted(job_id=job.id, fence=1, name="probe"))
        await bench.apply(StepKept(job_id=job.id, fence=1, name="probe", result=msgspec.Raw(b"1")))
        bench.clock.advance(2)
        retry_at = bench.clock.now() + 8
        await bench.apply(FailedForNow(job_id=job.id, fence=1, error=OOPS, retry_at=retry_at))
        events = await bench.store.events()
        told = [(e.type, e.job["status"], e.job["version"]) for e in events]
        assert told == [
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
        assert events[-1].at == bench.clock.now()
        assert events[-1].job["nextAttemptAt"] == retry_at
        assert events[-1].job["error"]["failedStep"] == "first"

    async def test_numbers_grow_in_commit_order_over_all_jobs(self, bench: Bench) -> None:
        await asyncio.gather(*(bench.put() for _ in range(10)))
        await bench.claim(limit=5)
        numbers = [e.id for e in await bench.store.events()]
        assert len(numbers) == 15
        assert numbers == sorted(set(numbers))

    async def test_what_was_heard_is_what_is_in_the_log(self, bench: Bench) -> None:
        job = await bench.run()
        await bench.apply(FailedForNow(job_id=job.id, fence=1, error=OOPS, retry_at=bench.clock.now()))
        log = await bench.store.events()
        assert len(log) == 3
        await asyncio.sleep(0)  # published right after the write returns
        assert msgspec.to_builtins(bench.heard) == msgspec.to_builtins(log)

    async def test_an_event_is_heard_only_when_it_is_true(self, bench: Bench) -> None:
        job = await bench.put()
        await asyncio.sleep(0)
        (event,) = bench.heard
        assert (event.job_id, event.tenant) == (job.id, "-")
        assert [e.id for e in await bench.store.events()] == [event.id]

    async def test_reading_goes_on_after_a_number_for_one_job_or_all(self, bench: Bench) -> None:
        one = await bench.put()
        two = await bench.put()
        await bench.claim()
        events = await bench.store.events()
        assert await bench.store.events(after=events[1].id) == events[2:]
        assert await bench.store.events(limit=2) == events[:2]
        of_two = [e for e in events if e.job_id == two.id]
        assert await bench.store.events(job_id=two.id) == of_two
        assert await bench.store.events(job_id=two.id, after=of_two[0].id) == of_two[1:]
        assert one.id not in {e.job_id for e in of_two}

    async def test_the_log_and_its_numbering_survive_reopening(self, bench: Bench) -> None:
        await bench.run()
        before = await bench.store.events()
        await bench.reopen()
        assert await bench.store.events() == before
        await bench.put()
        after = await bench.store.events()
        assert after[:-1] == before
        assert after[-1].id > before[-1].id

    async def test_numbers_are_not_used_again_when_jobs_are_removed(self, bench: Bench) -> None:
        job = await bench.put()
        last = (await bench.store.events())[-1].id
        await bench.store.delete(job.id)
        await bench.reopen()
        await bench.put()
        assert [e.id > last for e in await bench.store.events()] == [True]

    async def test_the_holder_of_a_job_can_log_and_nobody_else(self, bench: Bench) -> None:
        job = await bench.run()
        await bench.store.log(job.id, "worker", 1, [{"message": "one"}, {"message": "two"}])
        await bench.store.log(job.id, "worker", 7, [{"message": "stale"}])
        await bench.store.log("nobody", "worker", 1, [{"message": "nowhere"}])
        lines = [e.job["log"] for e in await bench.store.events() if e.type == "log"]
        assert lines == [{"message": "one"}, {"message": "two"}]
        assert (await bench.get(job.id)).version == job.version
