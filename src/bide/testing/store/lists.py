"""Lists: jobs by filter, newest first, in pages; and the backlog of each queue."""

from __future__ import annotations

import asyncio

import pytest

from bide.core.job import Cancelled, FailedForNow, Parked, Rerun
from bide.core.record import Status
from bide.server.store import Filter, Missing, QueueState
from bide.testing.store.bench import OOPS, Bench


async def found(bench: Bench, **filter: object) -> list[str]:
    return [job.id for job in await bench.store.find(Filter(**filter))]  # type: ignore[arg-type]


class Lists:
    async def test_newest_first(self, bench: Bench) -> None:
        first = await bench.put()
        bench.clock.advance(1)
        second = await bench.put(tenant="other")
        assert await bench.store.find(Filter()) == [second, first]

    async def test_by_status_kind_queue_and_all_of_them(self, bench: Bench) -> None:
        plain = await bench.put()
        thing = await bench.put(kind="thing")
        video = await bench.put(queue="video")
        runs = await bench.run(kind="thing", queue="video")
        assert await found(bench, kind="thing") == [runs.id, thing.id]
        assert await found(bench, queue="video") == [runs.id, video.id]
        assert await found(bench, status=frozenset({Status.PROCESSING})) == [runs.id]
        both = frozenset({Status.PROCESSING, Status.PENDING})
        assert await found(bench, status=both) == [runs.id, video.id, thing.id, plain.id]
        assert await found(bench, status=both, kind="thing", queue="default") == [thing.id]
        assert await found(bench, status=frozenset({Status.DONE})) == []

    async def test_odd_names_find_nothing(self, bench: Bench) -> None:
        await bench.put()
        for name in ("\0", "wo\0rk", "'", "%", "ü"):
            assert await found(bench, kind=name) == await found(bench, queue=name) == []
            assert await found(bench, label=(name, name)) == []

    @pytest.mark.parametrize("name", ["team", "a.b", 'quo"te', "back\\slash", "ü 'x'", "$", "[0]", ""])
    async def test_by_label_whatever_its_name(self, bench: Bench, name: str) -> None:
        one = await bench.put(labels={name: "x", "more": "y"})
        await bench.put(labels={name: "other"})
        await bench.put(labels={"another": "x"})
        await bench.put()
        assert await found(bench, label=(name, "x")) == [one.id]

    async def test_odd_ids_are_missing_and_keep_no_other_from_being_found(self, bench: Bench) -> None:
        job = await bench.put()
        odd = ("\0", "a\0b", f"{job.id}\0", "'", "%", "ü", "")
        found = await asyncio.gather(bench.store.get([job.id]), *(bench.store.get([i]) for i in odd))
        assert found == [[job], *[[Missing()] for _ in odd]]
        assert await bench.store.get([*odd, job.id]) == [*[Missing() for _ in odd], job]

    async def test_page_after_page(self, bench: Bench) -> None:
        made = []
        for number in range(7):
            made.append((await bench.put(kind="odd" if number % 2 else "even")).id)
            bench.clock.advance(0.5)
        pages = [await found(bench, limit=3)]
        while len(pages[-1]) == 3:
            pages.append(await found(bench, limit=3, before=pages[-1][-1]))
        assert [len(page) for page in pages] == [3, 3, 1]
        assert [i for page in pages for i in page] == made[::-1]
        assert await found(bench, kind="even", before=made[4], limit=1) == [made[2]]

    async def test_queues_count_what_waits_what_is_scheduled_and_what_runs(self, bench: Bench) -> None:
        assert await bench.store.queues() == []
        now = bench.clock.now()
        await bench.run(queue="video")
        bench.clock.advance(5)
        await bench.put(queue="video")
        bench.clock.advance(5)
        await bench.put(queue="video")
        await bench.put(queue="video", run_at=now + 99)
        await bench.put(queue="audio", status=Status.UPLOADING, due=None)
        await bench.succeed(await bench.run(queue="done"))
        await bench.store.pause("idle", True)
        assert await bench.store.queues() == [
            QueueState("idle", paused=True),
            QueueState("video", waiting=2, scheduled=1, running=1, oldest=now + 5),
        ]

    async def test_a_parked_parent_is_neither_waiting_nor_running(self, bench: Bench) -> None:
        parent = await bench.run()
        child = await bench.spawn(parent)
        await bench.apply(Parked(job_id=parent.id, fence=1, waiting_for=(child.id,)))
        assert [(q.name, q.waiting, q.running) for q in await bench.store.queues()] == [("parts", 1, 0)]

    async def test_a_retry_is_scheduled_until_it_is_woken(self, bench: Bench) -> None:
        job = await bench.run()
        at = bench.clock.now() + 5
        await bench.apply(FailedForNow(job_id=job.id, fence=1, error=OOPS, retry_at=at))
        assert await bench.store.queues() == [QueueState("default", scheduled=1)]
        bench.clock.advance(5)
        await bench.store.wake()
        assert await bench.store.queues() == [QueueState("default", waiting=1, oldest=at)]

    async def test_counts_of_queues_are_the_same_after_a_restart(self, bench: Bench) -> None:
        at = bench.clock.now() + 5
        await bench.put(queue="video", run_at=at)
        await bench.put(queue="video", run_at=at + 94)
        await bench.run(queue="audio")
        before = await bench.store.queues()
        await bench.reopen()
        assert await bench.store.queues() == before
        bench.clock.advance(5)
        await bench.store.wake()
        assert QueueState("video", waiting=1, scheduled=1, oldest=at) in await bench.store.queues()

    async def test_counts_of_queues_follow_cancels_and_removals(self, bench: Bench) -> None:
        first, second, later = (
            await bench.put(),
            await bench.put(),
            await bench.put(run_at=bench.clock.now() + 5),
        )
        await bench.apply(Cancelled(job_id=first.id))
        await bench.store.delete(later.id)
        assert [(q.waiting, q.scheduled) for q in await bench.store.queues()] == [(1, 0)]
        await bench.store.delete(second.id)
        await bench.apply(Rerun(job_id=first.id))
        assert [(q.waiting, q.scheduled) for q in await bench.store.queues()] == [(1, 0)]
        await bench.store.delete(first.id)
        assert await bench.store.queues() == []
