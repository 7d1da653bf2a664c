"""The event log: numbered in commit order, published after the commit, and kept over restarts."""

from __future__ import annotations

import asyncio

import msgspec

from bide.core.jobs.record import Status
from bide.core.jobs.state_machine import Emitted, FailedForNow, HandedBack, StepKept, StepStarted
from bide.server.store import EventFilter
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
        assert [e.id > last for e in await harness.store.events()] == [True, True]

    async def test_the_holder_of_a_job_can_log_and_nobody_else(self, harness: StoreHarness) -> None:
        job = await harness.run()
        await harness.store.log(job.id, "worker", 1, [{"message": "one"}, {"message": "two"}])
        await harness.store.log(job.id, "worker", 7, [{"message": "stale"}])
        await harness.store.log("unknown", "worker", 1, [{"message": "nowhere"}])
        lines = [e.job["log"] for e in await harness.store.events() if e.type == "log"]
        assert lines == [{"message": "one"}, {"message": "two"}]
        assert (await harness.get(job.id)).version == job.version

    async def test_the_holder_of_a_job_can_emit_output_and_nobody_else(
        self, harness: StoreHarness
    ) -> None:
        job = await harness.run()
        await harness.emit(job, "one", {"two": 2})
        stale = Emitted(job_id=job.id, fence=7, chunks=(msgspec.Raw(b"3"),), first=2)
        await harness.refuse(stale)
        page = await harness.store.read_log(EventFilter(jobs=(job.id,), types=("output",)))
        output = [e.job for e in page.events]
        assert {(e["attempt"], e["run"], e["kind"]) for e in output} == {(1, 1, "work")}
        assert [(e["generation"], e["index"], e["total"], e["output"]) for e in output] == [
            (1, 0, 5, "one"),
            (1, 1, 14, {"two": 2}),
        ]
        assert (await harness.get(job.id)).version == job.version

    async def test_output_that_is_written_again_is_stored_once(self, harness: StoreHarness) -> None:
        job = await harness.run()
        await harness.emit(job, "one", "two")
        await harness.emit(job, "one", "two", "three", repeated=True)
        output = [e.job["output"] for e in await harness.store.events() if e.type == "output"]
        assert output == ["one", "two", "three"]

    async def test_a_new_attempt_knows_how_much_output_there_is(self, harness: StoreHarness) -> None:
        job = await harness.run()
        await harness.emit(job, "one")
        await harness.apply(HandedBack(job_id=job.id, fence=job.fence))
        (claim,) = await harness.claim()
        assert (claim.job.fence, claim.emitted) == (2, 5)

    async def test_a_page_has_the_events_of_its_tenant_jobs_and_types(
        self, harness: StoreHarness
    ) -> None:
        one = await harness.run()
        two = await harness.put(tenant="other")
        three = await harness.put(queue="quiet")
        await harness.store.log(one.id, "worker", 1, [{"message": "hello"}])
        read = harness.store.read_log
        ours = await read(EventFilter())
        assert [e.job_id for e in ours.events] == [one.id, one.id, three.id, one.id]
        assert [e.job_id for e in (await read(EventFilter("other"))).events] == [two.id]
        assert (await read(EventFilter(jobs=(two.id,)))).events == []
        both = await read(EventFilter(jobs=(one.id, three.id), types=("log", "status")))
        assert both.events == ours.events
        (line,) = (await read(EventFilter(jobs=(one.id,), types=("log",)))).events
        assert line == ours.events[-1]
        second = ours.events[1].id
        assert (await read(EventFilter(until=second))).events == ours.events[:2]
        assert (await read(EventFilter(after=second, limit=1))).events == ours.events[2:3]
        empty = await read(EventFilter(after=second, limit=0))
        assert (empty.events, empty.epoch, empty.floor) == ([], ours.epoch, 0)
        assert empty.last >= ours.events[-1].id

    async def test_the_tail_has_all_events_in_order(self, harness: StoreHarness) -> None:
        jobs = await asyncio.gather(*(harness.put() for _ in range(20)))
        await harness.claim(limit=10)
        await harness.store.delete(jobs[-1].id)
        await harness.store.pause("default", True)
        last = (await harness.store.events())[-1].id
        await harness.followed_to(last)
        numbers = [event.id for event in harness.tail]
        assert numbers == sorted(set(numbers))
        assert [event.type for event in harness.tail][-2:] == ["deleted", "queue"]
        kept = {event.id for event in await harness.store.events()}
        assert kept < set(numbers), "the events of the deleted job are only in the tail"
        assert len(set(harness.epochs)) == 1

    async def test_the_epoch_stays_when_the_store_is_reopened(self, harness: StoreHarness) -> None:
        await harness.put()
        epoch = (await harness.store.read_log(EventFilter())).epoch
        assert epoch.isalnum()
        await harness.reopen()
        assert (await harness.store.read_log(EventFilter())).epoch == epoch
        assert set(harness.epochs) == {epoch}

    async def test_pausing_a_queue_is_an_event_if_it_changes_something(
        self, harness: StoreHarness
    ) -> None:
        for paused in (False, True, True, False):
            await harness.store.pause("video", paused)
        events = await harness.store.events()
        facts = [{"queue": "video", "paused": paused} for paused in (True, False)]
        assert [(e.type, e.job_id, e.job) for e in events] == [("queue", "", fact) for fact in facts]

    async def test_a_deleted_job_leaves_only_an_event_about_it(self, harness: StoreHarness) -> None:
        job = await harness.put(labels={"of": "ann"}, run_at=harness.clock.now() + 60)
        await harness.store.delete(job.id)
        (event,) = await harness.store.events(job_id=job.id)
        assert (event.type, event.job["status"], event.job["labels"]) == (
            "deleted",
            Status.PENDING,
            {"of": "ann"},
        )

    async def test_a_job_that_is_stored_and_deleted_in_one_commit_leaves_one_event(
        self, harness: StoreHarness
    ) -> None:
        new = harness.new()
        await asyncio.gather(harness.store.insert([new]), harness.store.delete(new.job.id))
        assert [e.type for e in await harness.store.events()] == ["deleted"]

    async def test_events_about_removed_jobs_are_kept_as_long_as_tombstones(
        self, harness: StoreHarness
    ) -> None:
        job = await harness.put(keep=10.0)
        await harness.succeed(await harness.take(job.id))
        harness.clock.advance(11)
        removed, _ = await harness.store.purge(tombstones=100.0, keys=100.0)
        assert removed == [job.id]
        (event,) = await harness.store.events()
        assert (event.type, event.job["status"]) == ("deleted", Status.DONE)
        harness.clock.advance(99)
        await harness.store.purge(tombstones=100.0, keys=100.0)
        assert await harness.store.events() == [event]
        harness.clock.advance(2)
        await harness.store.purge(tombstones=100.0, keys=100.0)
        page = await harness.store.read_log(EventFilter())
        assert (page.events, page.floor) == ([], event.id)
