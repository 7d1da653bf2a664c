"""Removal: expired jobs, deleted jobs, and what is kept of them."""

from __future__ import annotations

import pytest

from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import (
    Cancelled,
    Failed,
    FailedForNow,
    Parked,
    Succeeded,
    WrongStatus,
    WrongVersion,
)
from bide.server.store import Inserted, KeyConflict, KeyGone, Missing
from bide.testing.store.harness import OOPS, StoreHarness

DAY = 86400.0


async def purge(harness: StoreHarness, limit: int = 500) -> tuple[list[str], bool]:
    return await harness.store.purge(tombstones=30 * DAY, keys=DAY, limit=limit)


class Removal:
    async def test_an_expired_job_is_removed_and_said_to_be_gone(self, harness: StoreHarness) -> None:
        job = await harness.succeed(await harness.run(keep=60.0))
        forever = await harness.succeed(await harness.run(keep=None))
        live = await harness.put(keep=0.0)
        harness.clock.advance(59)
        assert await purge(harness) == ([], False)
        harness.clock.advance(1)
        assert await purge(harness) == ([job.id], False)
        assert await harness.store.get([job.id, forever.id, live.id]) == [
            Missing(gone=True),
            forever,
            live,
        ]
        assert [e.type for e in await harness.store.events(job_id=job.id)] == ["deleted"]
        assert await harness.store.apply([Failed(job_id=job.id, error=OOPS)]) == [Missing(gone=True)]
        assert await harness.store.known([job.id, live.id, "unknown"]) == {live.id}

    async def test_what_is_gone_stays_gone_over_reopening_and_is_forgotten_in_the_end(
        self, harness: StoreHarness
    ) -> None:
        job = await harness.succeed(await harness.run(keep=0.0))
        await purge(harness)
        await harness.reopen()
        assert await harness.store.get([job.id]) == [Missing(gone=True)]
        harness.clock.advance(30 * DAY)
        await purge(harness)
        assert await harness.store.get([job.id]) == [Missing(gone=False)]

    async def test_a_purge_removes_up_to_its_limit_and_says_when_there_is_more(
        self, harness: StoreHarness
    ) -> None:
        jobs = [await harness.succeed(await harness.run(keep=0.0)) for _ in range(5)]
        removed: list[str] = []
        more = True
        while more:
            some, more = await purge(harness, limit=2)
            assert len(some) <= 2
            removed += some
        assert sorted(removed) == [job.id for job in jobs]

    async def test_a_child_is_kept_as_long_as_its_parent_may_ask_for_it(
        self, harness: StoreHarness
    ) -> None:
        parent = await harness.run(keep=3 * DAY)
        child = await harness.spawn(parent, keep=0.0)
        await harness.succeed(await harness.take(child.id))
        harness.clock.advance(DAY)
        assert await purge(harness) == ([], False)
        await harness.apply(Parked(job_id=parent.id, fence=1, waiting_for=(child.id,)))
        (claim,) = await harness.claim()
        assert claim.children[child.id].status is Status.DONE
        failed = await harness.apply(Failed(job_id=parent.id, fence=2, error=OOPS))
        assert await purge(harness) == ([], False), "a retry of the parent would ask for it"
        harness.clock.set(failed.expires_at or 0)
        assert await purge(harness) == ([parent.id], False)
        assert await purge(harness) == ([child.id], False)

    async def test_the_children_of_a_done_parent_expire_on_their_own(
        self, harness: StoreHarness
    ) -> None:
        parent = await harness.run(keep=DAY)
        child = await harness.spawn(parent, keep=0.0)
        await harness.succeed(await harness.take(child.id))
        await harness.succeed(parent)
        assert await purge(harness) == ([child.id], False)

    async def test_a_key_is_forgotten_a_day_after_the_end_of_its_job(
        self, harness: StoreHarness
    ) -> None:
        job = await harness.run(key="k", keep=None)
        for _ in range(5):  # it is valid until its job has ended
            harness.clock.advance(0.7 * DAY)
            await purge(harness)
            await harness.store.renew("worker", [(job.id, 1)], DAY)
            (again,) = await harness.store.insert([harness.new(key="k")])
            assert again == Inserted(await harness.get(job.id), created=False)
        done = await harness.succeed(job)
        for _ in range(2):
            harness.clock.advance((DAY - 1) / 2)
            await purge(harness)
            (again,) = await harness.store.insert([harness.new(key="k")])
            assert again == Inserted(done, created=False)
        harness.clock.advance(1)
        await purge(harness)
        (new,) = await harness.store.insert([harness.new(key="k", fingerprint=b"another body")])
        assert isinstance(new, Inserted)
        assert new.created

    async def test_the_key_of_a_purged_job_says_that_it_is_gone(self, harness: StoreHarness) -> None:
        job = await harness.succeed(await harness.run(key="k", keep=60.0))
        harness.clock.advance(60)
        assert await purge(harness) == ([job.id], False)
        for wait in (0.0, DAY - 61):
            harness.clock.advance(wait)
            await purge(harness)
            await harness.reopen()
            other = harness.new(key="k", fingerprint=b"another body")
            assert await harness.store.insert([harness.new(key="k"), other]) == [
                KeyGone(job.id),
                KeyConflict(job.id),
            ]
        assert [e.type for e in await harness.store.events()] == ["deleted"], "nothing was stored"
        harness.clock.advance(1)
        await purge(harness)
        (new,) = await harness.store.insert([harness.new(key="k")])
        assert isinstance(new, Inserted) and new.created

    async def test_the_key_of_a_deleted_job_says_that_it_is_gone(self, harness: StoreHarness) -> None:
        job = await harness.put(key="k")
        harness.clock.advance(DAY)
        deleting = harness.store.delete(job.id)  # in one transaction with the insert
        (gone,) = await harness.store.insert([harness.new(key="k")])
        assert gone == KeyGone(job.id)
        await deleting
        harness.clock.advance(DAY - 1)
        await purge(harness)
        assert await harness.store.insert([harness.new(key="k")]) == [KeyGone(job.id)]
        harness.clock.advance(1)
        await purge(harness)
        assert (await harness.put(key="k")).id != job.id

    async def test_a_key_of_content_is_free_when_its_job_is_removed(self, harness: StoreHarness) -> None:
        for how in ("deleted", "deleted in the same transaction", "purged"):
            content = how.encode()
            first = await harness.succeed(await harness.run(content=content, keep=0.0))
            if how == "purged":
                assert await purge(harness) == ([first.id], False)
            deleting = harness.store.delete(first.id)
            if how == "deleted":
                await deleting
            assert (await harness.put(content=content, keep=0.0)).id != first.id
            await deleting

    async def test_one_purge_removes_old_keys_and_keeps_those_of_live_jobs(
        self, harness: StoreHarness
    ) -> None:
        jobs = [await harness.put(key=f"k{n}") for n in range(5)]
        for n in range(5):
            await harness.succeed(await harness.run(key=f"o{n}", queue="other"))
        harness.clock.advance(DAY)
        await purge(harness, limit=1)
        again = await harness.store.insert([harness.new(key=f"k{n}") for n in range(5)])
        assert again == [Inserted(job, created=False) for job in jobs]
        new = await harness.store.insert([harness.new(key=f"o{n}") for n in range(5)])
        assert {done.created for done in new if isinstance(done, Inserted)} == {True}

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.PROCESSING}))
    async def test_a_job_that_does_not_run_can_be_deleted(
        self, harness: StoreHarness, status: Status
    ) -> None:
        job = await harness.put(status=status)
        assert await harness.store.delete(job.id) == job
        assert await harness.store.get([job.id]) == [Missing(gone=True)]
        assert await harness.store.delete(job.id) == Missing(gone=True)
        assert await harness.claim() == []

    async def test_a_job_that_runs_or_is_parked_is_not_deleted(self, harness: StoreHarness) -> None:
        job = await harness.run()
        assert isinstance(await harness.store.delete(job.id), WrongStatus)
        child = await harness.spawn(job)
        parked = await harness.apply(Parked(job_id=job.id, fence=1, waiting_for=(child.id,)))
        assert isinstance(await harness.store.delete(job.id), WrongStatus)
        assert await harness.get(job.id) == parked

    async def test_a_delete_of_another_version_is_refused(self, harness: StoreHarness) -> None:
        job = await harness.put()
        assert isinstance(await harness.store.delete(job.id, version=2), WrongVersion)
        assert await harness.get(job.id) == job
        assert isinstance(await harness.store.delete(job.id, version=1), Job)

    async def test_a_child_is_not_deleted_while_its_parent_lives(self, harness: StoreHarness) -> None:
        parent = await harness.run()
        child = await harness.spawn(parent)
        assert isinstance(await harness.store.delete(child.id), WrongStatus)
        await harness.apply(Succeeded(job_id=parent.id, fence=1))
        assert isinstance(await harness.store.delete(child.id), Job)

    async def test_deleting_a_waiting_parent_cancels_its_children(self, harness: StoreHarness) -> None:
        parent = await harness.run()
        waits, runs = await harness.spawn(parent, "0"), await harness.spawn(parent, "1", priority=1)
        (held,) = await harness.claim("part", queue="parts", limit=1)
        assert held.job.id == runs.id
        at = harness.clock.now() + 60
        await harness.apply(FailedForNow(job_id=parent.id, fence=1, error=OOPS, retry_at=at))
        assert isinstance(await harness.store.delete(parent.id), Job)
        assert await harness.statuses(waits.id) == [Status.CANCELLED]
        assert (await harness.get(runs.id)).cancel_asked_at is not None
        ended = await harness.apply(Cancelled(job_id=runs.id, fence=held.job.fence))
        assert ended.status is Status.CANCELLED, "it needs no parent to end"

    async def test_an_unknown_job_cannot_be_deleted(self, harness: StoreHarness) -> None:
        assert await harness.store.delete("unknown") == Missing(gone=False)

    async def test_a_store_has_one_id_over_reopening(self, harness: StoreHarness) -> None:
        first = await harness.store.identity()
        assert first and first.isascii() and first == await harness.store.identity()
        await harness.reopen()
        assert await harness.store.identity() == first
