"""Bulk actions: a page of jobs and the position behind it are one transaction; and the ids of lists."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from bide.core.errors import ErrorInfo
from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import CancelAsked, Failed, Lost, PriorityChanged, Refused
from bide.server.store import (
    MOST_REFUSALS,
    BulkPage,
    BulkProgress,
    BulkState,
    Filter,
    Missing,
    Position,
    Term,
)
from bide.server.store.bulk_operations import read_state
from bide.testing.store.harness import OOPS, StoreHarness

ALL = frozenset(Status)


async def bulk_job(harness: StoreHarness) -> Job:
    return await harness.run(kind="bide.bulk", queue="bide")


def page(bulk: Job, *jobs: Job, **fields: Any) -> BulkPage:
    known: dict[str, Any] = {
        "job_id": bulk.id,
        "owner": bulk.owner,
        "fence": bulk.fence,
        "state": BulkState(),
        "ids": tuple(job.id for job in jobs),
        "action": "cancel",
        "status": ALL,
    }
    return BulkPage(**{**known, **fields})


async def act(harness: StoreHarness, wanted: BulkPage) -> BulkProgress:
    done = await harness.store.act(wanted)
    assert isinstance(done, BulkProgress), done
    assert read_state(await harness.store.step(wanted.job_id, "bide.bulk")) == done.state
    return done


async def failed(harness: StoreHarness, code: str = "OOPS") -> Job:
    job = await harness.run()
    error = ErrorInfo(code=code, message="it went wrong")
    return await harness.apply(Failed(job_id=job.id, fence=job.fence, error=error))


class Bulk:
    async def test_a_page_and_its_position_are_stored_together(self, harness: StoreHarness) -> None:
        running = await harness.run()
        waiting = await harness.put()
        bulk = await bulk_job(harness)
        done = await act(harness, page(bulk, running, waiting))
        assert done.changed == (running.id, waiting.id)
        assert done.state == BulkState(cursor=waiting.id, changed=2)
        assert (await harness.get(waiting.id)).status is Status.CANCELLED
        assert (await harness.get(running.id)).cancel_asked_at is not None
        assert await harness.get(bulk.id) == bulk
        await harness.reopen()
        assert read_state(await harness.store.step(bulk.id, "bide.bulk")) == done.state

    async def test_a_repeated_page_changes_nothing(self, harness: StoreHarness) -> None:
        first, second = await failed(harness), await failed(harness)
        bulk = await bulk_job(harness)
        wanted = page(bulk, first, action="retry")
        done = await act(harness, wanted)
        events = await harness.store.events()
        assert await act(harness, wanted) == BulkProgress(done.state)
        assert await harness.store.events() == events
        following = await act(harness, page(bulk, second, action="retry", state=done.state))
        assert following.state == BulkState(cursor=second.id, changed=2)
        assert [(await harness.get(job.id)).run for job in (first, second)] == [2, 2]

    async def test_only_the_attempt_that_holds_it_acts(self, harness: StoreHarness) -> None:
        job = await harness.put()
        bulk = await bulk_job(harness)
        for wrong in (page(bulk, job, fence=2), page(bulk, job, owner="other")):
            assert isinstance(await harness.store.act(wrong), Refused)
        await harness.apply(Lost(job_id=bulk.id, fence=bulk.fence))
        assert isinstance(await harness.store.act(page(bulk, job)), Refused)
        again = await harness.take(bulk.id)
        assert isinstance(await harness.store.act(page(bulk, job)), Refused)
        assert (await harness.get(job.id)).version == 1
        assert (await act(harness, page(again, job))).changed == (job.id,)
        assert isinstance(await harness.store.act(page(bulk, job, job_id="nothing")), Missing)

    async def test_nothing_is_changed_after_a_cancel(self, harness: StoreHarness) -> None:
        job = await harness.put()
        bulk = await bulk_job(harness)
        await harness.apply(CancelAsked(job_id=bulk.id))
        assert isinstance(await harness.store.act(page(bulk, job)), Refused)
        assert await harness.get(job.id) == job

    async def test_a_job_that_no_longer_matches_is_skipped(self, harness: StoreHarness) -> None:
        waiting, other = await harness.put(), await failed(harness, "OTHER")
        gone = await failed(harness)
        assert isinstance(await harness.store.delete(gone.id), Job)
        bulk = await bulk_job(harness)
        wanted = page(bulk, waiting, other, gone, action="retry", status=frozenset({Status.ERROR}))
        done = await act(harness, replace(wanted, code="OOPS"))
        assert done == BulkProgress(BulkState(cursor=gone.id, skipped=3))
        assert await harness.get(other.id) == other

    async def test_the_first_refusals_are_kept_with_their_reasons(self, harness: StoreHarness) -> None:
        jobs = [await harness.run() for _ in range(MOST_REFUSALS + 1)]
        bulk = await bulk_job(harness)
        done = await act(harness, page(bulk, *jobs, action="delete"))
        assert (done.state.refused, done.changed) == (len(jobs), ())
        assert [one.job_id for one in done.state.refusals] == [job.id for job in jobs[:-1]]
        assert "cancel it first" in done.state.refusals[0].detail

    async def test_delete_removes_the_jobs(self, harness: StoreHarness) -> None:
        jobs = [await failed(harness) for _ in range(2)]
        bulk = await bulk_job(harness)
        done = await act(harness, page(bulk, *jobs, action="delete"))
        assert done.changed == tuple(job.id for job in jobs)
        assert await harness.store.get([job.id for job in jobs]) == [Missing(gone=True)] * 2

    async def test_jobs_of_other_tenants_and_bulk_actions_are_left_out(
        self, harness: StoreHarness
    ) -> None:
        other = await harness.put(tenant="other")
        reserved = await harness.put(kind="bide.other")
        bulk = await bulk_job(harness)
        assert (await act(harness, page(bulk, other, reserved))).state == BulkState(cursor=reserved.id)
        named = page(bulk, reserved, state=BulkState(cursor=reserved.id), kind="bide.other")
        assert (await act(harness, named)).changed == (reserved.id,)
        assert await harness.get(other.id) == other

    async def test_a_new_priority_changes_the_order(self, harness: StoreHarness) -> None:
        first, second, third = [await harness.put() for _ in range(3)]
        bulk = await bulk_job(harness)
        done = await act(harness, page(bulk, second, action="priority", priority=5))
        assert done.changed == (second.id,)
        again = page(bulk, second, action="priority", priority=5, state=done.state)
        assert (await act(harness, again)).state.skipped == 1
        await harness.apply(PriorityChanged(job_id=first.id, priority=-1))
        claims = await harness.claim()
        assert [claim.job.id for claim in claims] == [second.id, third.id, first.id]

    async def test_ids_are_those_of_the_list(self, harness: StoreHarness) -> None:
        made = [await harness.put(labels={"team": "ops" if i % 2 else "dev"}) for i in range(6)]
        await harness.apply(Failed(job_id=made[1].id, error=OOPS))
        for wanted in (
            Filter(),
            Filter(order="oldest", limit=2),
            Filter(order="oldest", after=Position(made[1].id), end=made[5].id),
            Filter(
                order="oldest", terms=(Term("label.team", "ops"),), status=frozenset({Status.PENDING})
            ),
            Filter(terms=(Term("label.team", "ops"), Term("", made[1].id))),
            Filter(kind="other"),
            Filter(kind="\0"),
        ):
            found = await harness.store.find(wanted)
            assert await harness.store.ids(wanted) == [job.id for job in found]
