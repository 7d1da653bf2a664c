"""Lists: jobs by filter, newest first, in pages; and the backlog of each queue."""

from __future__ import annotations

import asyncio

import pytest

from bide.core.jobs.record import Status
from bide.core.jobs.state_machine import Cancelled, FailedForNow, Parked, Rerun
from bide.server.store import Filter, Missing, Position, QueueState, Term
from bide.testing.store.harness import OOPS, StoreHarness


async def found(harness: StoreHarness, **filter: object) -> list[str]:
    return [job.id for job in await harness.store.find(Filter(**filter))]  # type: ignore[arg-type]


class Lists:
    async def test_newest_first(self, harness: StoreHarness) -> None:
        first = await harness.put()
        harness.clock.advance(1)
        second = await harness.put(tenant="other")
        assert await harness.store.find(Filter()) == [second, first]

    async def test_by_status_kind_queue_and_all_of_them(self, harness: StoreHarness) -> None:
        plain = await harness.put()
        thing = await harness.put(kind="thing")
        video = await harness.put(queue="video")
        runs = await harness.run(kind="thing", queue="video")
        assert await found(harness, kind="thing") == [runs.id, thing.id]
        assert await found(harness, queue="video") == [runs.id, video.id]
        assert await found(harness, status=frozenset({Status.PROCESSING})) == [runs.id]
        both = frozenset({Status.PROCESSING, Status.PENDING})
        assert await found(harness, status=both) == [runs.id, video.id, thing.id, plain.id]
        assert await found(harness, status=both, kind="thing", queue="default") == [thing.id]
        assert await found(harness, status=frozenset({Status.DONE})) == []

    async def test_odd_names_find_nothing(self, harness: StoreHarness) -> None:
        await harness.put()
        for name in ("\0", "wo\0rk", "'", "%", "ü"):
            assert await found(harness, kind=name) == await found(harness, queue=name) == []
            assert await found(harness, terms=(Term(f"label.{name}", name),)) == []

    @pytest.mark.parametrize("name", ["team", "a.b", 'quo"te', "back\\slash", "ü 'x'", "$", "[0]", ""])
    async def test_by_label_whatever_its_name(self, harness: StoreHarness, name: str) -> None:
        one = await harness.put(labels={name: "x", "more": "y"})
        await harness.put(labels={name: "other"})
        await harness.put(labels={"another": "x"})
        await harness.put()
        assert await found(harness, terms=(Term(f"label.{name}", "x"),)) == [one.id]

    async def test_odd_ids_are_missing_and_keep_no_other_from_being_found(
        self, harness: StoreHarness
    ) -> None:
        job = await harness.put()
        odd = ("\0", "a\0b", f"{job.id}\0", "'", "%", "ü", "")
        found = await asyncio.gather(harness.store.get([job.id]), *(harness.store.get([i]) for i in odd))
        assert found == [[job], *[[Missing()] for _ in odd]]
        assert await harness.store.get([*odd, job.id]) == [*[Missing() for _ in odd], job]

    async def test_page_after_page(self, harness: StoreHarness) -> None:
        made = []
        for number in range(7):
            made.append((await harness.put(kind="odd" if number % 2 else "even")).id)
            harness.clock.advance(0.5)
        pages = [await found(harness, limit=3)]
        while len(pages[-1]) == 3:
            pages.append(await found(harness, limit=3, after=Position(pages[-1][-1])))
        assert [len(page) for page in pages] == [3, 3, 1]
        assert [i for page in pages for i in page] == made[::-1]
        assert await found(harness, kind="even", after=Position(made[4]), limit=1) == [made[2]]

    async def test_queues_count_what_waits_what_is_scheduled_and_what_runs(
        self, harness: StoreHarness
    ) -> None:
        assert await harness.store.queues() == []
        now = harness.clock.now()
        await harness.run(queue="video")
        harness.clock.advance(5)
        await harness.put(queue="video")
        harness.clock.advance(5)
        await harness.put(queue="video")
        await harness.put(queue="video", run_at=now + 99)
        await harness.put(queue="audio", status=Status.UPLOADING, due=None)
        await harness.succeed(await harness.run(queue="done"))
        await harness.store.pause("idle", True)
        assert await harness.store.queues() == [
            QueueState("idle", paused=True),
            QueueState("video", waiting=2, scheduled=1, running=1, oldest=now + 5),
        ]

    async def test_a_parked_parent_is_neither_waiting_nor_running(self, harness: StoreHarness) -> None:
        parent = await harness.run()
        child = await harness.spawn(parent)
        await harness.apply(Parked(job_id=parent.id, fence=1, waiting_for=(child.id,)))
        assert [(q.name, q.waiting, q.running) for q in await harness.store.queues()] == [
            ("parts", 1, 0)
        ]

    async def test_a_retry_is_scheduled_until_it_is_woken(self, harness: StoreHarness) -> None:
        job = await harness.run()
        at = harness.clock.now() + 5
        await harness.apply(FailedForNow(job_id=job.id, fence=1, error=OOPS, retry_at=at))
        assert await harness.store.queues() == [QueueState("default", scheduled=1)]
        harness.clock.advance(5)
        await harness.store.wake()
        assert await harness.store.queues() == [QueueState("default", waiting=1, oldest=at)]

    async def test_counts_of_queues_are_the_same_after_a_restart(self, harness: StoreHarness) -> None:
        at = harness.clock.now() + 5
        await harness.put(queue="video", run_at=at)
        await harness.put(queue="video", run_at=at + 94)
        await harness.run(queue="audio")
        before = await harness.store.queues()
        await harness.reopen()
        assert await harness.store.queues() == before
        harness.clock.advance(5)
        await harness.store.wake()
        assert QueueState("video", waiting=1, scheduled=1, oldest=at) in await harness.store.queues()

    async def test_counts_of_queues_follow_cancels_and_removals(self, harness: StoreHarness) -> None:
        first, second, later = (
            await harness.put(),
            await harness.put(),
            await harness.put(run_at=harness.clock.now() + 5),
        )
        await harness.apply(Cancelled(job_id=first.id))
        await harness.store.delete(later.id)
        assert [(q.waiting, q.scheduled) for q in await harness.store.queues()] == [(1, 0)]
        await harness.store.delete(second.id)
        await harness.apply(Rerun(job_id=first.id))
        assert [(q.waiting, q.scheduled) for q in await harness.store.queues()] == [(1, 0)]
        await harness.store.delete(first.id)
        assert await harness.store.queues() == []
