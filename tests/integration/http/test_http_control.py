"""Cancel, retry, delete, and their If-Match."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from bide.core.errors import ErrorInfo
from bide.core.jobs.record import Job, Progress
from bide.core.jobs.state_machine import Change, Refused, StepKept, Succeeded
from bide.server.progress import LiveProgress
from bide.server.store import Missing
from tests.integration.http.service import Service, attempt


async def test_a_waiting_job_is_cancelled_at_once(service: Service) -> None:
    job_id = await service.submit()
    reply = await service.call("POST", f"/jobs/{job_id}/cancel")
    assert (reply.status, reply.json()["status"]) == (200, "CANCELLED")
    assert reply.json()["finishedAt"] is not None


async def test_a_running_job_receives_one_cancel_request(service: Service) -> None:
    job_id = await service.submit()
    await service.claim()
    reply = await service.call("POST", f"/jobs/{job_id}/cancel")
    assert (reply.status, reply.json()["status"]) == (202, "PROCESSING")
    assert "retry-after" in reply.headers
    told = await service.events()
    assert (await service.call("POST", f"/jobs/{job_id}/cancel")).status == 202
    assert await service.events() == told  # once is enough


async def test_an_ended_job_cannot_be_cancelled(service: Service) -> None:
    job = await service.done()
    before = await service.events()
    reply = await service.call("POST", f"/jobs/{job.id}/cancel")
    assert (reply.status, reply.json()["code"]) == (409, "conflict")
    assert "DONE" in reply.json()["detail"]
    assert await service.events() == before


async def test_a_cancel_that_meets_a_claim_tells_the_worker(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between reading and writing, a worker takes the job: it must be asked, not have it pulled away unasked."""
    job_id = await service.submit()
    apply = service.store.apply

    def claimed_first(changes: list[Change]) -> Awaitable[list[Job | Refused | Missing]]:
        monkeypatch.setattr(service.store, "apply", apply)

        async def both() -> list[Job | Refused | Missing]:
            await service.claim()
            return await apply(changes)

        return both()

    monkeypatch.setattr(service.store, "apply", claimed_first)
    reply = await service.call("POST", f"/jobs/{job_id}/cancel")
    assert (reply.status, reply.json()["status"]) == (202, "PROCESSING")


async def test_a_failed_job_runs_again_and_keeps_its_steps(service: Service) -> None:
    job_id = await service.submit()
    job = await service.claim()
    await service.apply(StepKept(job_id=job_id, fence=job.fence, name="probe", result=msgspec.Raw(b"1")))
    await service.fail(job)
    service.engine.hints.clear()
    reply = await service.call("POST", f"/jobs/{job_id}/retry")
    again = reply.json()
    assert (reply.status, again["status"], again["attempt"]) == (202, "PENDING", 0)
    assert again["error"] is None
    assert [(step["name"], step["status"]) for step in again["steps"]] == [("probe", "DONE")]
    assert reply.headers["location"] == f"/jobs/{job_id}"
    assert service.engine.hints == [("default", "echo")]


async def test_retry_is_for_ended_jobs_that_did_not_succeed(service: Service) -> None:
    done = (await service.done()).id
    partial = await service.submit()
    job = await service.claim()
    error = ErrorInfo("PARTIAL_SUCCESS", "1 part failed", errors=[{"page": 7}])
    await service.apply(Succeeded(job_id=partial, fence=job.fence, error=error))
    cancelled = await service.submit()
    await service.call("POST", f"/jobs/{cancelled}/cancel")
    waiting = await service.submit()
    for job_id, status in ((done, 409), (waiting, 409), (partial, 202), (cancelled, 202)):
        assert (await service.call("POST", f"/jobs/{job_id}/retry")).status == status


async def test_delete_takes_the_files_along(service: Service) -> None:
    job_id = await service.submit()
    job = await service.claim()
    file = service.blobs.put(job_id, job.fence, "a.txt", b"a", "text/plain")
    running = await service.call("DELETE", f"/jobs/{job_id}")
    assert (running.status, running.json()["code"]) == (409, "conflict")
    await service.finish(job, files=(file,))
    assert service.blobs.path(file.blob).exists()
    reply = await service.call("DELETE", f"/jobs/{job_id}")
    assert (reply.status, reply.body) == (204, b"")
    assert not service.blobs.path(file.blob).exists()
    assert (await service.call("GET", f"/jobs/{job_id}")).status == 410
    assert (await service.call("DELETE", f"/jobs/{job_id}")).status == 410


@pytest.mark.parametrize(("method", "path"), [("POST", "/cancel"), ("POST", "/retry"), ("DELETE", "")])
async def test_unknown_jobs(service: Service, method: str, path: str) -> None:
    for job_id in ("nothing", "0" * 26):
        assert (await service.call(method, f"/jobs/{job_id}{path}")).status == 404


# --- If-Match

Prepare = Callable[[Service], Awaitable[Job]]


async def _waiting(service: Service) -> Job:
    await service.submit()
    (job,) = await service.store.get([(await service.call("GET", "/jobs")).json()["jobs"][0]["jobId"]])
    assert isinstance(job, Job)
    return job


async def _failed(service: Service) -> Job:
    await service.submit()
    return await service.fail(await service.claim())


CASES = [
    pytest.param("POST", "/cancel", _waiting, 200, id="cancel"),
    pytest.param("POST", "/retry", _failed, 202, id="retry"),
    pytest.param("DELETE", "", _failed, 204, id="delete"),
]


@pytest.mark.parametrize(("method", "path", "prepare", "good"), CASES)
async def test_if_match_must_name_the_present_etag(
    service: Service, method: str, path: str, prepare: Prepare, good: int
) -> None:
    job = await prepare(service)
    target, before = f"/jobs/{job.id}{path}", await service.events()
    for old in ('"0.0"', f'"{job.version}.9"', f'W/"{job.version}.0"', str(job.version), ""):
        reply = await service.call(method, target, headers={"If-Match": old})
        assert (reply.status, reply.json()["code"]) == (412, "version-mismatch"), old
    assert await service.events() == before
    tag = (await service.call("GET", f"/jobs/{job.id}")).headers["etag"]
    reply = await service.call(method, target, headers={"If-Match": f'"0.0", {tag}'})
    assert reply.status == good


@pytest.mark.parametrize(("method", "path", "prepare", "good"), CASES)
async def test_any_etag_will_do(
    service: Service, method: str, path: str, prepare: Prepare, good: int
) -> None:
    job = await prepare(service)
    reply = await service.call(method, f"/jobs/{job.id}{path}", headers={"If-Match": "*"})
    assert reply.status == good


async def test_progress_is_part_of_the_etag(service: Service) -> None:
    job_id = await service.submit()
    await service.claim()
    service.progress.publish(attempt(job_id, 1), LiveProgress(3, Progress(percent=1.0)))
    old = await service.call("POST", f"/jobs/{job_id}/cancel", headers={"If-Match": '"2.2"'})
    assert old.status == 412
    present = await service.call("POST", f"/jobs/{job_id}/cancel", headers={"If-Match": '"2.3"'})
    assert present.status == 202


@pytest.mark.parametrize(
    ("method", "path", "write"), [("POST", "/cancel", "apply"), ("DELETE", "", "delete")]
)
async def test_a_change_after_the_etag_was_compared_is_seen(
    service: Service, monkeypatch: pytest.MonkeyPatch, method: str, path: str, write: str
) -> None:
    job_id = await service.submit()
    original = getattr(service.store, write)

    def after_a_claim(*args: object) -> Awaitable[object]:
        async def both() -> object:
            await service.claim()
            return await original(*args)

        return both()

    monkeypatch.setattr(service.store, write, after_a_claim)
    reply = await service.call(method, f"/jobs/{job_id}{path}", headers={"If-Match": '"1.0"'})
    assert reply.status == 412
    monkeypatch.undo()
    assert (await service.call("GET", f"/jobs/{job_id}")).json()["status"] == "PROCESSING"
