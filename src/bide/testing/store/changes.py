"""Changes: only along the table, only by the holder of the lease; a refused change has no effect."""

from __future__ import annotations

import msgspec
import pytest

from bide.core.errors import ErrorInfo
from bide.core.job import (
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
from bide.core.record import FileInfo, Job, Progress, Status
from bide.server.store import Missing
from bide.testing.store.bench import OOPS, Bench

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
    async def test_a_change_is_kept_with_its_event_and_a_greater_version(self, bench: Bench) -> None:
        job = await bench.run()
        bench.clock.advance(5)
        file = FileInfo("out.mp4", "video/mp4", 3, "ab", "blob")
        error = ErrorInfo("PARTIAL_SUCCESS", "1 part failed", errors=[{"part": 1}])
        progress = Progress(percent=99.5, message="almost")
        after = await bench.apply(
            Succeeded(job_id=job.id, fence=1, result=ONE, files=(file,), error=error, progress=progress)
        )
        assert (after.status, after.version) == (Status.PARTIAL_SUCCESS, job.version + 1)
        assert (after.finished_at, after.lease_until) == (bench.clock.now(), None)
        await bench.reopen()
        kept = await bench.get(job.id)
        assert kept == after
        assert (kept.error, kept.files, kept.progress) == (error, (file,), progress)
        last = (await bench.store.events(job_id=job.id))[-1]
        assert last.job["status"] == "PARTIAL_SUCCESS"
        assert last.job["version"] == after.version

    async def test_a_stale_worker_changes_nothing(self, bench: Bench) -> None:
        job = await bench.run()
        await bench.apply(Lost(job_id=job.id, fence=1))
        assert (await bench.take(job.id)).fence == 2
        for change in worker_changes(job.id, 1, bench.clock.now()):
            assert isinstance(await bench.refuse(change), Stale), change

    async def test_a_worker_that_gave_up_its_lease_changes_nothing(self, bench: Bench) -> None:
        job = await bench.run()
        child = await bench.spawn(job)
        await bench.apply(Parked(job_id=job.id, fence=1, waiting_for=(child.id,)))
        for change in worker_changes(job.id, 1, bench.clock.now()):
            assert isinstance(await bench.refuse(change), Stale), change

    async def test_an_ended_job_takes_no_workers_change(self, bench: Bench) -> None:
        job = await bench.succeed(await bench.run())
        for change in worker_changes(job.id, 1, bench.clock.now()):
            assert isinstance(await bench.refuse(change), WrongStatus), change

    async def test_another_version_than_the_callers_is_refused(self, bench: Bench) -> None:
        job = await bench.put()
        assert isinstance(await bench.refuse(Cancelled(job_id=job.id, version=9)), WrongVersion)
        assert (await bench.apply(Cancelled(job_id=job.id, version=1))).status is Status.CANCELLED

    async def test_a_change_of_an_unknown_job_is_missing(self, bench: Bench) -> None:
        assert await bench.store.apply([Rerun(job_id="nobody")]) == [Missing(gone=False)]

    async def test_a_refused_change_does_not_hold_up_the_others(self, bench: Bench) -> None:
        first, second = await bench.run(), await bench.put()
        answers = await bench.store.apply(
            [
                Succeeded(job_id=first.id, fence=7, result=ONE),
                Cancelled(job_id="nobody"),
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
    async def test_a_job_can_fail_before_any_attempt(self, bench: Bench, status: Status) -> None:
        job = await bench.put(status=status)
        after = await bench.apply(Failed(job_id=job.id, error=OOPS))
        assert (after.status, after.attempt, after.error) == (Status.ERROR, 0, OOPS)
        assert await bench.claim() == []

    async def test_an_uploaded_job_can_be_claimed(self, bench: Bench) -> None:
        job = await bench.put(status=Status.UPLOADING, due=None)
        await bench.apply(Uploaded(job_id=job.id))
        assert (await bench.take(job.id)).id == job.id

    async def test_a_cancel_that_its_worker_has_not_heard_of_still_holds(self, bench: Bench) -> None:
        job = await bench.run()
        await bench.apply(CancelAsked(job_id=job.id))
        retry_at = bench.clock.now()
        after = await bench.apply(FailedForNow(job_id=job.id, fence=1, error=OOPS, retry_at=retry_at))
        assert after.status is Status.CANCELLED
        assert await bench.claim() == []

    async def test_a_rerun_starts_anew_and_keeps_finished_steps(self, bench: Bench) -> None:
        job = await bench.run(keep=60.0)
        await bench.apply(StepKept(job_id=job.id, fence=1, name="probe", result=ONE))
        await bench.apply(StepStarted(job_id=job.id, fence=1, name="transcode"))
        failed = await bench.apply(Failed(job_id=job.id, fence=1, error=OOPS))
        assert failed.expires_at == bench.clock.now() + 60
        again = await bench.apply(Rerun(job_id=job.id))
        assert (again.status, again.run, again.error) == (Status.PENDING, 2, None)
        assert (again.finished_at, again.expires_at, again.attempt) == (None, None, 0)
        (claim,) = await bench.claim()
        assert claim.job.fence == 2
        assert [s.name for s in claim.job.steps] == ["probe"]
        assert {name: bytes(raw) for name, raw in claim.steps.items()} == {"probe": b"1"}

    async def test_a_step_that_is_told_twice_is_kept_once(self, bench: Bench) -> None:
        """The worker did not get the response, and repeats the change."""
        job = await bench.run()
        started = StepStarted(job_id=job.id, fence=1, name="probe")
        kept = StepKept(job_id=job.id, fence=1, name="probe", result=ONE)
        assert await bench.apply(started) == await bench.apply(started)
        assert await bench.apply(kept) == await bench.apply(kept)
        steps = [e.job["step"]["status"] for e in await bench.store.events() if e.type == "step"]
        assert steps == ["PROCESSING", "DONE"]

    async def test_a_done_job_does_not_run_again(self, bench: Bench) -> None:
        job = await bench.succeed(await bench.run())
        assert isinstance(await bench.refuse(Rerun(job_id=job.id)), Refused)

    async def test_a_renewal_prolongs_the_lease_and_is_no_change(self, bench: Bench) -> None:
        job = await bench.run()
        events = await bench.store.events()
        bench.clock.advance(20)
        assert await bench.store.renew("worker", [(job.id, 1)], 30) == []
        after = await bench.get(job.id)
        assert after.lease_until == bench.clock.now() + 30
        assert (after.version, after.updated_at) == (job.version, job.updated_at)
        assert await bench.store.events() == events

    async def test_a_renewal_names_the_leases_that_are_lost(self, bench: Bench) -> None:
        mine, ended, taken = [await bench.run() for _ in range(3)]
        await bench.succeed(ended)
        await bench.apply(Lost(job_id=taken.id, fence=1))
        await bench.take(taken.id)
        held = [(ended.id, 1), (mine.id, 1), (taken.id, 1), ("nobody", 1)]
        assert await bench.store.renew("worker", held, 60) == [
            (ended.id, 1),
            (taken.id, 1),
            ("nobody", 1),
        ]
        assert (await bench.get(ended.id)).lease_until is None
        assert (await bench.get(taken.id)).lease_until == bench.clock.now() + 30
