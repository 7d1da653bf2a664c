"""Changes: only along the table, only by the holder of the lease; a refused change has no effect."""

from __future__ import annotations

import msgspec
import pytest

from bide.core.errors import ErrorInfo
from bide.core.jobs.record import FileInfo, Job, Progress, Status
from bide.core.jobs.state_machine import (
    CancelAsked,
    Cancelled,
    Change,
    Failed,
    FailedForNow,
    HandedBack,
    Lost,
    Parked,
    Refused,
    Rerun,
    Stale,
    StepKept,
    StepStarted,
    Succeeded,
    Uploaded,
    WrongStatus,
    WrongVersion,
)
from bide.server.store import Missing
from bide.testing.store.harness import OOPS, StoreHarness

ONE = msgspec.Raw(b"1")


def worker_changes(job_id: str, fence: int, now: float) -> list[Change]:
    """Return one of each change that a worker makes."""
    return [
        StepStarted(job_id=job_id, fence=fence, name="s"),
        StepKept(job_id=job_id, fence=fence, name="s", result=ONE),
        Parked(job_id=job_id, fence=fence, waiting_for=()),
        Succeeded(job_id=job_id, fence=fence, result=ONE),
        FailedForNow(job_id=job_id, fence=fence, error=OOPS, retry_at=now),
        Failed(job_id=job_id, fence=fence, error=OOPS),
        Lost(job_id=job_id, fence=fence),
        HandedBack(job_id=job_id, fence=fence),
        Cancelled(job_id=job_id, fence=fence),
    ]


class Changes:
    async def test_a_change_is_kept_with_its_event_and_a_greater_version(
        self, harness: StoreHarness
    ) -> None:
        job = await harness.run()
        harness.clock.advance(5)
        file = FileInfo("out.mp4", "video/mp4", 3, "ab", "blob")
        error = ErrorInfo("PARTIAL_SUCCESS", "1 part failed", errors=[{"part": 1}])
        progress = Progress(percent=99.5, message="almost")
        after = await harness.apply(
            Succeeded(job_id=job.id, fence=1, result=ONE, files=(file,), error=error, progress=progress)
        )
        assert (after.status, after.version) == (Status.PARTIAL_SUCCESS, job.version + 1)
        assert (after.finished_at, after.lease_until) == (harness.clock.now(), None)
        await harness.reopen()
        kept = await harness.get(job.id)
        assert kept == after
        assert (kept.error, kept.files, kept.progress) == (error, (file,), progress)
        last = (await harness.store.events(job_id=job.id))[-1]
        assert last.job["status"] == "PARTIAL_SUCCESS"
        assert last.job["version"] == after.version

    async def test_a_stale_worker_changes_nothing(self, harness: StoreHarness) -> None:
        job = await harness.run()
        await harness.apply(Lost(job_id=job.id, fence=1))
        assert (await harness.take(job.id)).fence == 2
        for change in worker_changes(job.id, 1, harness.clock.now()):
            assert isinstance(await harness.refuse(change), Stale), change

    async def test_a_worker_that_gave_up_its_lease_changes_nothing(self, harness: StoreHarness) -> None:
        job = await harness.run()
        child = await harness.spawn(job)
        await harness.apply(Parked(job_id=job.id, fence=1, waiting_for=(child.id,)))
        for change in worker_changes(job.id, 1, harness.clock.now()):
            assert isinstance(await harness.refuse(change), Stale), change

    async def test_an_ended_job_takes_no_workers_change(self, harness: StoreHarness) -> None:
        job = await harness.succeed(await harness.run())
        for change in worker_changes(job.id, 1, harness.clock.now()):
            assert isinstance(await harness.refuse(change), WrongStatus), change

    async def test_another_version_than_the_callers_is_refused(self, harness: StoreHarness) -> None:
        job = await harness.put()
        assert isinstance(await harness.refuse(Cancelled(job_id=job.id, version=9)), WrongVersion)
        assert (await harness.apply(Cancelled(job_id=job.id, version=1))).status is Status.CANCELLED

    async def test_a_change_of_an_unknown_job_is_missing(self, harness: StoreHarness) -> None:
        assert await harness.store.apply([Rerun(job_id="unknown")]) == [Missing(gone=False)]

    async def test_a_refused_change_does_not_hold_up_the_others(self, harness: StoreHarness) -> None:
        first, second = await harness.run(), await harness.put()
        answers = await harness.store.apply(
            [
                Succeeded(job_id=first.id, fence=7, result=ONE),
                Cancelled(job_id="unknown"),
                Cancelled(job_id=second.id),
                Succeeded(job_id=first.id, owner="worker", fence=1, result=ONE),
            ]
        )
        assert [type(a) for a in answers[:2]] == [Stale, Missing]
        assert [a.status for a in answers[2:] if isinstance(a, Job)] == [
            Status.CANCELLED,
            Status.DONE,
        ]

    @pytest.mark.parametrize("status", [Status.PENDING, Status.UPLOADING])
    async def test_a_job_can_fail_before_any_attempt(
        self, harness: StoreHarness, status: Status
    ) -> None:
        job = await harness.put(status=status)
        after = await harness.apply(Failed(job_id=job.id, error=OOPS))
        assert (after.status, after.attempt, after.error) == (Status.ERROR, 0, OOPS)
        assert await harness.claim() == []

    async def test_an_uploaded_job_can_be_claimed(self, harness: StoreHarness) -> None:
        job = await harness.put(status=Status.UPLOADING, due=None)
        await harness.apply(Uploaded(job_id=job.id))
        assert (await harness.take(job.id)).id == job.id

    async def test_a_cancel_that_its_worker_has_not_heard_of_still_holds(
        self, harness: StoreHarness
    ) -> None:
        job = await harness.run()
        await harness.apply(CancelAsked(job_id=job.id))
        retry_at = harness.clock.now()
        after = await harness.apply(FailedForNow(job_id=job.id, fence=1, error=OOPS, retry_at=retry_at))
        assert after.status is Status.CANCELLED
        assert await harness.claim() == []

    async def test_a_rerun_starts_anew_and_keeps_finished_steps(self, harness: StoreHarness) -> None:
        job = await harness.run(keep=60.0)
        await harness.apply(StepKept(job_id=job.id, fence=1, name="probe", result=ONE))
        await harness.apply(StepStarted(job_id=job.id, fence=1, name="transcode"))
        failed = await harness.apply(Failed(job_id=job.id, fence=1, error=OOPS))
        assert failed.expires_at == harness.clock.now() + 60
        again = await harness.apply(Rerun(job_id=job.id))
        assert (again.status, again.run, again.error) == (Status.PENDING, 2, None)
        assert (again.finished_at, again.expires_at, again.attempt) == (None, None, 0)
        (claim,) = await harness.claim()
        assert claim.job.fence == 2
        assert [s.name for s in claim.job.steps] == ["probe"]
        assert {name: bytes(raw) for name, raw in claim.steps.items()} == {"probe": b"1"}

    async def test_a_step_that_is_reported_twice_is_stored_once(self, harness: StoreHarness) -> None:
        """The worker did not get the response, and repeats the change."""
        job = await harness.run()
        started = StepStarted(job_id=job.id, fence=1, name="probe")
        kept = StepKept(job_id=job.id, fence=1, name="probe", result=ONE)
        assert await harness.apply(started) == await harness.apply(started)
        assert await harness.apply(kept) == await harness.apply(kept)
        steps = [e.job["step"]["status"] for e in await harness.store.events() if e.type == "step"]
        assert steps == ["PROCESSING", "DONE"]

    async def test_a_done_job_does_not_run_again(self, harness: StoreHarness) -> None:
        job = await harness.succeed(await harness.run())
        assert isinstance(await harness.refuse(Rerun(job_id=job.id)), Refused)

    async def test_a_renewal_prolongs_the_lease_and_is_no_change(self, harness: StoreHarness) -> None:
        job = await harness.run()
        events = await harness.store.events()
        harness.clock.advance(20)
        assert await harness.store.renew("worker", [(job.id, 1)], 30) == []
        after = await harness.get(job.id)
        assert after.lease_until == harness.clock.now() + 30
        assert (after.version, after.updated_at) == (job.version, job.updated_at)
        assert await harness.store.events() == events

    async def test_a_renewal_names_the_leases_that_are_lost(self, harness: StoreHarness) -> None:
        mine, ended, taken = [await harness.run() for _ in range(3)]
        await harness.succeed(ended)
        await harness.apply(Lost(job_id=taken.id, fence=1))
        await harness.take(taken.id)
        held = [(ended.id, 1), (mine.id, 1), (taken.id, 1), ("unknown", 1)]
        assert await harness.store.renew("worker", held, 60) == [
            (ended.id, 1),
            (taken.id, 1),
            ("unknown", 1),
        ]
        assert (await harness.get(ended.id)).lease_until is None
        assert (await harness.get(taken.id)).lease_until == harness.clock.now() + 30
