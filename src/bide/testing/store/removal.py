"""Removal: expired jobs, deleted jobs, and what is kept of them."""

from __future__ import annotations

import pytest

from bide.core.job import Cancelled, Failed, FailedForNow, Parked, Succeeded, WrongStatus, WrongVersion
from bide.core.record import Job, Status
from bide.server.store import BY_CONTENT, Inserted, KeyConflict, KeyGone, Missing
from bide.testing.store.bench import OOPS, Bench

DAY = 86400.0


async def purge(bench: Bench, limit: int = 500) -> tuple[list[str], bool]:
    return await bench.store.purge(tombstones=30 * DAY, keys=DAY, limit=limit)


class Removal:
    async def test_an_expired_job_is_removed_and_said_to_be_gone(self, bench: Bench) -> None:
        job = await bench.succeed(await bench.run(keep=60.0))
        forever = await bench.succeed(await bench.run(keep=None))
        live = await bench.put(keep=0.0)
        bench.clock.advance(59)
        assert await purge(bench) == ([], False)
        bench.clock.advance(1)
        assert await purge(bench) == ([job.id], False)
        assert await bench.store.get([job.id, forever.id, live.id]) == [
            Missing(gone=True),
            forever,
            live,
        ]
        assert await bench.store.events(job_id=job.id) == []
        assert await bench.store.apply([Failed(job_id=job.id, error=OOPS)]) == [Missing(gone=True)]
        assert await bench.store.known([job.id, live.id, "nobody"]) == {live.id}

    async def test_what_is_gone_stays_gone_over_reopening_and_is_forgotten_in_the_end(
        self, bench: Bench
    ) -> None:
        job = await bench.succeed(await bench.run(keep=0.0))
        await purge(bench)
        await bench.reopen()
        assert await bench.store.get([job.id]) == [Missing(gone=True)]
        bench.clock.advance(30 * DAY)
        await purge(bench)
        assert await bench.store.get([job.id]) == [Missing(gone=False)]

    async def test_a_purge_removes_up_to_its_limit_and_says_when_there_is_more(
        self, bench: Bench
    ) -> None:
        jobs = [await bench.succeed(await bench.run(keep=0.0)) for _ in range(5)]
        removed: list[str] = []
        more = True
        while more:
            some, more = await purge(bench, limit=2)
            assert len(some) <= 2
            removed += some
        assert sorted(removed) == [job.id for job in jobs]

    async def test_a_child_is_kept_as_long_as_its_parent_may_ask_for_it(self, bench: Bench) -> None:
        parent = await bench.run(keep=3 * DAY)
        child = await bench.spawn(parent, keep=0.0)
        await bench.succeed(await bench.take(child.id))
        bench.clock.advance(DAY)
        assert await purge(bench) == ([], False)
        await bench.apply(Parked(job_id=parent.id, fence=1, waiting_for=(child.id,)))
        (claim,) = await bench.claim()
        assert claim.children[child.id].status is Status.DONE
        failed = await bench.apply(Failed(job_id=parent.id, fence=2, error=OOPS))
        assert await purge(bench) == ([], False), "a retry of the parent would ask for it"
        bench.clock.set(failed.expires_at or 0)
        assert await purge(bench) == ([parent.id], False)
        assert await purge(bench) == ([child.id], False)

    async def test_the_children_of_a_done_parent_expire_on_their_own(self, bench: Bench) -> None:
        parent = await bench.run(keep=DAY)
        child = await bench.spawn(parent, keep=0.0)
        await bench.succeed(await bench.take(child.id))
        await bench.succeed(parent)
        assert await purge(bench) == ([child.id], False)

    async def test_a_key_is_forgotten_a_day_after_the_end_of_its_job(self, bench: Bench) -> None:
        job = await bench.run(key="k", keep=None)
        for _ in range(5):  # it is valid until its job has ended
            bench.clock.advance(0.7 * DAY)
            await purge(bench)
            await bench.store.renew("worker", [(job.id, 1)], DAY)
            (again,) = await bench.store.insert([bench.new(key="k")])
            assert again == Inserted(await bench.get(job.id), created=False)
        done = await bench.succeed(job)
        for _ in range(2):
            bench.clock.advance((DAY - 1) / 2)
            await purge(bench)
            (again,) = await bench.store.insert([bench.new(key="k")])
            assert again == Inserted(done, created=False)
        bench.clock.advance(1)
        await purge(bench)
        (new,) = await bench.store.insert([bench.new(key="k", fingerprint=b"another body")])
        assert isinstance(new, Inserted)
        assert new.created

    async def test_the_key_of_a_purged_job_says_that_it_is_gone(self, bench: Bench) -> None:
        job = await bench.succeed(await bench.run(key="k", keep=60.0))
        bench.clock.advance(60)
        assert await purge(bench) == ([job.id], False)
        for wait in (0.0, DAY - 61):
            bench.clock.advance(wait)
            await purge(bench)
            await bench.reopen()
            other = bench.new(key="k", fingerprint=b"another body")
            assert await bench.store.insert([bench.new(key="k"), other]) == [
                KeyGone(job.id),
                KeyConflict(job.id),
            ]
        assert [e.job_id for e in await bench.store.events()] == [], "nothing was stored"
        bench.clock.advance(1)
        await purge(bench)
        (new,) = await bench.store.insert([bench.new(key="k")])
        assert isinstance(new, Inserted) and new.created

    async def test_the_key_of_a_deleted_job_says_that_it_is_gone(self, bench: Bench) -> None:
        job = await bench.put(key="k")
        bench.clock.advance(DAY)
        deleting = bench.store.delete(job.id)  # in one transaction with the insert
        (gone,) = await bench.store.insert([bench.new(key="k")])
        assert gone == KeyGone(job.id)
        await deleting
        bench.clock.advance(DAY - 1)
        await purge(bench)
        assert await bench.store.insert([bench.new(key="k")]) == [KeyGone(job.id)]
        bench.clock.advance(1)
        await purge(bench)
        assert (await bench.put(key="k")).id != job.id

    async def test_a_key_of_content_is_free_when_its_job_is_removed(self, bench: Bench) -> None:
        for how in ("deleted", "deleted in the same transaction", "purged"):
            key = f"{BY_CONTENT}{how}"
            first = await bench.succeed(await bench.run(key=key, keep=0.0))
            if how == "purged":
                assert await purge(bench) == ([first.id], False)
            deleting = bench.store.delete(first.id)
            if how == "deleted":
                await deleting
            assert (await bench.put(key=key, keep=0.0)).id != first.id
            await deleting

    async def test_one_purge_removes_old_keys_and_keeps_those_of_live_jobs(self, bench: Bench) -> None:
        jobs = [await bench.put(key=f"k{n}") for n in range(5)]
        for n in range(5):
            await bench.succeed(await bench.run(key=f"o{n}", queue="other"))
        bench.clock.advance(DAY)
        await purge(bench, limit=1)
        again = await bench.store.insert([bench.new(key=f"k{n}") for n in range(5)])
        assert again == [Inserted(job, created=False) for job in jobs]
        new = await bench.store.insert([bench.new(key=f"o{n}") for n in range(5)])
        assert {done.created for done in new if isinstance(done, Inserted)} == {True}

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.PROCESSING}))
    async def test_a_job_that_does_not_run_can_be_deleted(self, bench: Bench, status: Status) -> None:
        job = await bench.put(status=status)
        assert await bench.store.delete(job.id) == job
        assert await bench.store.get([job.id]) == [Missing(gone=True)]
        assert await bench.store.delete(job.id) == Missing(gone=True)
        assert await bench.claim() == []

    async def test_a_job_that_runs_or_is_parked_is_not_deleted(self, bench: Bench) -> None:
        job = await bench.run()
        assert isinstance(await bench.store.delete(job.id), WrongStatus)
        child = await bench.spawn(job)
        parked = await bench.apply(Parked(job_id=job.id, fence=1, waiting_for=(child.id,)))
        assert isinstance(await bench.store.delete(job.id), WrongStatus)
        assert await bench.get(job.id) == parked

    async def test_a_delete_of_another_version_is_refused(self, bench: Bench) -> None:
        job = await bench.put()
        assert isinstance(await bench.store.delete(job.id, version=2), WrongVersion)
        assert await bench.get(job.id) == job
        assert isinstance(await bench.store.delete(job.id, version=1), Job)

    async def test_a_child_is_not_deleted_while_its_parent_lives(self, bench: Bench) -> None:
        parent = await bench.run()
        child = await bench.spawn(parent)
        assert isinstance(await bench.store.delete(child.id), WrongStatus)
        await bench.apply(Succeeded(job_id=parent.id, fence=1))
        assert isinstance(await bench.store.delete(child.id), Job)

    async def test_deleting_a_waiting_parent_cancels_its_children(self, bench: Bench) -> None:
        parent = await bench.run()
        waits, runs = await bench.spawn(parent, "0"), await bench.spawn(parent, "1", priority=1)
        (held,) = await bench.claim("part", queue="parts", limit=1)
        assert held.job.id == runs.id
        at = bench.clock.now() + 60
        await bench.apply(FailedForNow(job_id=parent.id, fence=1, error=OOPS, retry_at=at))
        assert isinstance(await bench.store.delete(parent.id), Job)
        assert await bench.statuses(waits.id) == [Status.CANCELLED]
        assert (await bench.get(runs.id)).cancel_asked_at is not None
        ended = await bench.apply(Cancelled(job_id=runs.id, fence=held.job.fence))
        assert ended.status is Status.CANCELLED, "it needs no parent to end"

    async def test_an_unknown_job_cannot_be_deleted(self, bench: Bench) -> None:
        assert await bench.store.delete("nobody") == Missing(gone=False)

    async def test_a_store_has_one_id_over_reopening(self, bench: Bench) -> None:
        first = await bench.store.identity()
        assert first and first.isascii() and first == await bench.store.identity()
        await bench.reopen()
        assert await bench.store.identity() == first
