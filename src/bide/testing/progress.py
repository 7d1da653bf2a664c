"""The conformance suite of progress stores. Say how to create one:

    class TestMyProgressStore(ProgressSuite):
        async def progress_store(self) -> ProgressStore:
            return MyProgressStore(...)

The suite calls `progress_store` several times; each result stands for one process that shares. Needs pytest and
pytest-asyncio.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from itertools import count

import pytest_asyncio

from bide.core.jobs.record import Job, Progress, Status
from bide.server.progress import LiveProgress, ProgressStore, attempt_key
from bide.server.progress.publisher import ProgressPublisher

PATIENCE = 20.0


def running(fence: int = 1, job_id: str | None = None) -> Job:
    return Job(
        id=job_id or secrets.token_hex(13),
        kind="echo",
        queue="default",
        created_at=1.0,
        updated_at=1.0,
        status=Status.PROCESSING,
        version=1 + fence,
        fence=fence,
        owner="worker",
        lease_until=1e12,
    )


class Replica:
    """One process: its publisher, and the jobs whose subscribers were notified."""

    def __init__(self, store: ProgressStore) -> None:
        self.notified: list[str] = []
        self.watching: set[str] = set()
        self._moved = asyncio.Event()
        self.progress = ProgressPublisher(store, self._changed, self.watching.__contains__)

    def _changed(self, job_id: str) -> None:
        self.notified.append(job_id)
        self._moved.set()

    async def poll(self, job: Job) -> int:
        """Return the number of the progress that a poll would return; 0 for none."""
        await self.progress.refresh([job])
        live = self.progress.live(job)
        return 0 if live is None else live.number

    async def wait_until(self, enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not enough():
                self._moved.clear()
                await self._moved.wait()


class ProgressSuite:
    """Every rule of `bide.server.progress` that can be observed from outside."""

    async def progress_store(self) -> ProgressStore:
        """Return the store of one process; all of them share the progress."""
        raise NotImplementedError

    @pytest_asyncio.fixture
    async def replicas(self) -> AsyncIterator[tuple[Replica, Replica]]:
        one, two = Replica(await self.progress_store()), Replica(await self.progress_store())
        for replica in (one, two):
            await replica.progress.open()
        yield one, two
        for replica in (one, two):
            await replica.progress.close()

    async def test_a_progress_store_has_what_was_put_last(self) -> None:
        mine, other = await self.progress_store(), await self.progress_store()
        job, second = running(), running()
        whole = Progress(41.5, "Ünïcode \U0001f600", "a step", 1245.0, 3000.0, "frames")
        try:
            await mine.put({(job.id, 1): LiveProgress(1, Progress(percent=1.0), 1.5)})
            await mine.put(
                {(job.id, 1): LiveProgress(2, whole, 2.5), (second.id, 7): LiveProgress(1, Progress())}
            )
            found = await other.get([(job.id, 1), (second.id, 7), ("unknown", 1)])
            assert found == {
                (job.id, 1): LiveProgress(2, whole, 2.5),
                (second.id, 7): LiveProgress(1, Progress()),
            }
        finally:
            await mine.close()
            await other.close()

    async def test_an_attempt_that_has_lost_its_job_hides_nothing(self) -> None:
        stale, current = await self.progress_store(), await self.progress_store()
        job_id = running().id
        try:
            await stale.put({(job_id, 1): LiveProgress(9, Progress(percent=90.0))})
            await current.put({(job_id, 2): LiveProgress(1, Progress(percent=10.0))})
            await stale.put({(job_id, 1): LiveProgress(10, Progress(percent=99.0))})
            assert await stale.get([(job_id, 2)]) == {
                (job_id, 2): LiveProgress(1, Progress(percent=10.0))
            }
        finally:
            await stale.close()
            await current.close()

    async def test_what_one_runs_the_other_tells(self, replicas: tuple[Replica, Replica]) -> None:
        one, two = replicas
        job = running()
        two.watching.add(job.id)
        one.progress.publish(attempt_key(job), LiveProgress(0, Progress()))
        assert await one.poll(job) == await two.poll(job) == 0
        one.progress.publish(attempt_key(job), LiveProgress(1, Progress(percent=10.0), 5.0))
        assert await one.poll(job) == 1  # immediately in the process that runs the job
        await two.wait_until(lambda: job.id in two.notified)
        assert two.progress.live(job) == one.progress.live(job)
        # Of many changes between two reads, the others get only the latest.
        for number in range(2, 500):
            one.progress.publish(attempt_key(job), LiveProgress(number, Progress(done=float(number))))
        await two.wait_until(lambda: (live := two.progress.live(job)) is not None and live.number == 499)
        assert two.notified.count(job.id) < 10

    async def test_the_first_read_returns_the_latest_progress(
        self, replicas: tuple[Replica, Replica]
    ) -> None:
        one, two = replicas
        jobs = [running() for _ in range(3)]
        for job, number in zip(jobs, count(1), strict=False):
            one.progress.publish(attempt_key(job), LiveProgress(number, Progress(percent=1.0)))
        watcher = jobs[2]
        two.watching.add(watcher.id)
        await two.poll(watcher)
        await two.wait_until(lambda: two.progress.live(watcher) is not None)  # so all three are stored
        assert await asyncio.gather(*map(two.poll, jobs)) == [1, 2, 3]

    async def test_only_the_attempt_of_the_record_is_reported(
        self, replicas: tuple[Replica, Replica]
    ) -> None:
        one, two = replicas
        first, second = running(1), running(2)
        second = running(2, first.id)
        two.watching.add(first.id)
        await two.poll(first)
        one.progress.publish(attempt_key(first), LiveProgress(5, Progress(percent=50.0)))
        await two.wait_until(lambda: two.progress.live(first) is not None)
        assert await two.poll(second) == await one.poll(second) == 0
        two.progress.publish(attempt_key(second), LiveProgress(1, Progress(percent=1.0)))
        one.watching.add(first.id)
        await one.wait_until(
            lambda: (live := one.progress.live(second)) is not None and live.number == 1
        )
        free = Job(first.id, "echo", "default", 1.0, 1.0, fence=2, version=9)
        assert one.progress.live(free) is two.progress.live(free) is None

    async def test_reported_progress_does_not_go_back(self, replicas: tuple[Replica, Replica]) -> None:
        one, two = replicas
        job = running()
        two.watching.add(job.id)
        await two.poll(job)
        one.progress.publish(attempt_key(job), LiveProgress(7, Progress(percent=70.0)))
        await two.wait_until(lambda: two.progress.live(job) is not None)
        late = await self.progress_store()
        try:
            await late.put({(job.id, 1): LiveProgress(3, Progress(percent=30.0))})
        finally:
            await late.close()
        other = running()
        two.watching.add(other.id)
        await two.poll(other)
        one.progress.publish(attempt_key(other), LiveProgress(1, Progress(percent=30.0)))
        await two.wait_until(lambda: two.progress.live(other) is not None)  # so it has read since then
        assert await two.poll(job) == 7
