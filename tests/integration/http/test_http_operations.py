"""Queues, kinds, workers, health, metrics and problem pages: the interface for operators."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bide.core.clock import render_instant
from bide.core.errors import ErrorInfo, InvalidInput, problems
from bide.core.jobs.breaker import BreakerSettings
from bide.core.jobs.retry_budget import RetryBudget
from bide.core.jobs.state_machine import FailedForNow, RetryClaim, StepKept, StepStarted
from bide.server.config import Config, EngineConfig
from bide.server.engine import ServiceWarning, WorkerState
from bide.server.http.metrics import MAX_STEPS
from bide.server.intake import Submission
from bide.server.store import BreakerReport, StoreUnavailable
from tests.integration.http.service import Service


async def test_queues_tell_backlog_oldest_age_and_running(service: Service) -> None:
    await service.submit()
    service.clock.advance(5)
    await service.submit()
    await service.submit("encode", input={"source": "s"}, runAt="2031-01-01T00:00:00Z")
    await service.submit("encode", input={"source": "s"})
    await service.claim("encode", "video")
    queues = {q["name"]: q for q in (await service.call("GET", "/queues")).json()["queues"]}
    assert queues["default"] == {
        "name": "default",
        "backlog": 2,
        "scheduled": 0,
        "running": 0,
        "oldestAge": 5.0,
        "paused": False,
        "served": True,
        "concurrency": None,
        "kinds": ["clip", "echo", "pay", "preview", "thumbnail"],
        "slots": 2,
        "predictedWait": None,  # nothing is known about the durations
    }
    video = queues["video"]
    assert (video["backlog"], video["scheduled"], video["running"]) == (0, 1, 1)
    assert video["oldestAge"] is None
    assert (queues["slow"]["concurrency"], queues["slow"]["backlog"]) == (1, 0)


async def test_the_predicted_wait_of_a_queue(service: Service) -> None:
    async def wait() -> float | None:
        queues = (await service.call("GET", "/queues")).json()["queues"]
        found: float | None = next(q["predictedWait"] for q in queues if q["name"] == "default")
        return found

    for _ in range(3):
        await service.submit()
        job = await service.claim()
        service.clock.advance(8)
        await service.finish(job)
    assert await wait() == 0.0
    for _ in range(5):
        await service.submit()
    await service.claim()
    assert await wait() == pytest.approx(40.0, rel=0.1)  # one runs, four wait
    await service.call("POST", "/queues/default/pause")
    assert await wait() is None


async def test_pause_and_resume(service: Service) -> None:
    job_id = await service.submit()
    paused = await service.call("POST", "/queues/default/pause")
    assert (paused.status, paused.json()["paused"], paused.json()["backlog"]) == (200, True, 1)
    with pytest.raises(ValueError, match="not enough values"):
        await service.claim()
    assert (await service.call("POST", "/queues/default/pause")).status == 200  # twice is once
    service.engine.hints.clear()
    resumed = await service.call("POST", "/queues/default/resume")
    assert (resumed.status, resumed.json()["paused"]) == (200, False)
    assert ("default", "echo") in service.engine.hints
    assert (await service.claim()).id == job_id


async def test_a_queue_without_kinds_can_be_paused_while_it_has_jobs(service: Service) -> None:
    service.engine.elsewhere = {"side"}
    await service.submit(queue="side")
    assert (await service.call("POST", "/queues/side/pause")).status == 200
    assert (await service.call("POST", "/queues/side/resume")).json()["paused"] is False


async def test_an_unknown_queue(service: Service) -> None:
    for name in ("nothing", "a b", "%00"):
        for what in ("pause", "resume"):
            reply = await service.call("POST", f"/queues/{name}/{what}")
            assert (reply.status, reply.json()["code"]) == (404, "not-found")
    assert {q["name"] for q in (await service.call("GET", "/queues")).json()["queues"]} == {
        "default",
        "slow",
        "video",
    }


async def test_kinds_tell_schemas_and_learned_durations(service: Service) -> None:
    kinds = {k["kind"]: k for k in (await service.call("GET", "/kinds")).json()["kinds"]}
    encode = kinds["encode"]
    assert encode["inputSchema"]["required"] == ["source"]
    assert encode["inputSchema"]["additionalProperties"] is False
    assert (encode["queue"], encode["maxAttempts"]) == ("video", 3)
    assert (encode["description"], encode["steps"]) == ("Encodes a video.", {"probe": 1, "encode": 3})
    assert kinds["pay"]["requiresKey"] is True
    assert kinds["echo"]["durations"] is None
    for _ in range(30):
        await service.submit()
        job = await service.claim()
        service.clock.advance(4)
        await service.finish(job)
    await asyncio.sleep(0)  # published right after the write returns
    kinds = {k["kind"]: k for k in (await service.call("GET", "/kinds")).json()["kinds"]}
    durations = kinds["echo"]["durations"]
    assert durations["jobs"] == 30
    assert durations["p10"] <= durations["p50"] <= durations["p90"]
    assert 3 < durations["p50"] < 5


async def test_workers(service: Service) -> None:
    child = WorkerState("child-1", 4711, "busy", "sync", ["01J"], "2030-01-01T00:00:00Z", 7)
    service.engine.children = [child]
    await service.submit()
    until = (await service.claim()).lease_until
    assert until is not None
    assert (await service.call("GET", "/workers")).json() == {
        "workers": [
            {
                "name": "child-1",
                "pid": 4711,
                "state": "busy",
                "runs": "sync",
                "jobs": ["01J"],
                "startedAt": "2030-01-01T00:00:00Z",
                "jobsDone": 7,
            }
        ],
        "leases": [
            {"owner": "worker-1", "until": render_instant(until), "seconds": 30.0, "remaining": 30.0}
        ],
    }


# --- health


async def test_alive_and_ready(service: Service) -> None:
    assert (await service.call("GET", "/healthz")).json() == {"status": "ok"}
    ready = await service.call("GET", "/readyz")
    assert (ready.status, ready.json()) == (200, {"status": "ready", "warnings": []})


async def test_what_keeps_jobs_from_being_run_is_a_warning(service: Service) -> None:
    """The service accepts jobs and responds, so it must stay in rotation."""
    service.engine.elsewhere = {"forgotten"}
    await service.submit(queue="forgotten")
    service.engine.unserved = {"video", "forgotten", "slow"}
    service.engine.warned = [
        ServiceWarning("children-failing", "handler children cannot start: ImportError")
    ]
    reply = await service.call("GET", "/readyz")
    assert (reply.status, reply.json()["status"]) == (200, "ready")
    # `slow` has neither kinds nor jobs: nothing is wrong with it.
    assert reply.json()["warnings"] == [
        {
            "code": "queue-unserved",
            "detail": "No worker serves queue forgotten. 1 job is waiting. Start a worker for this queue.",
        },
        {
            "code": "queue-unserved",
            "detail": "No worker serves queue video. Start a worker for this queue.",
        },
        {"code": "children-failing", "detail": "handler children cannot start: ImportError"},
    ]
    metrics = await _metrics(service)
    assert metrics['bide_warnings{code="queue-unserved"}'] == 2
    assert metrics['bide_warnings{code="children-failing"}'] == 1
    assert metrics['bide_warnings{code="no-workers"}'] == 0


async def test_not_ready_while_stopping(service: Service) -> None:
    service.app.health.stopping = True
    reply = await service.call("GET", "/readyz")
    assert (reply.status, reply.json()["detail"]) == (503, "the service is stopping")
    assert int(reply.headers["retry-after"]) >= 1
    assert (await service.call("GET", "/healthz")).status == 200


async def test_not_ready_when_the_store_cannot_be_written(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = 0

    async def check() -> None:
        nonlocal checks
        checks += 1
        raise StoreUnavailable("the disk is full: make room")

    monkeypatch.setattr(service.store, "check_writable", check)
    reply = await service.call("GET", "/readyz")
    assert (reply.status, reply.json()["code"]) == (503, "unavailable")
    assert reply.json()["detail"] == "the store is not writable: the disk is full: make room"
    monkeypatch.undo()
    assert (await service.call("GET", "/readyz")).status == 200


async def test_many_who_ask_whether_it_is_ready_share_a_write(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = 0
    check = service.store.check_writable

    async def counted() -> None:
        nonlocal checks
        checks += 1
        await check()

    monkeypatch.setattr(service.store, "check_writable", counted)
    replies = await asyncio.gather(*(service.call("GET", "/readyz") for _ in range(20)))
    assert {reply.status for reply in replies} == {200}
    assert checks == 1


# --- unknown queues


@pytest.mark.parametrize("queue", ["video", "slow", "default", "workers-only"])
async def test_a_queue_that_the_app_or_a_worker_knows_is_accepted(service: Service, queue: str) -> None:
    """Also when no worker is there yet for a queue of the app."""
    service.engine.unserved = {"video", "slow", "default"}
    service.engine.elsewhere = {"workers-only"}
    await service.submit(queue=queue)


async def test_a_queue_that_nobody_knows_is_refused(service: Service) -> None:
    """One such job would wait for ever, and what it waits in would be warned of for as long."""
    job = {"kind": "echo", "queue": "nowhere"}
    reply = await service.call("POST", "/jobs", json=job)
    assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, "/queue")
    batch = await service.call("POST", "/jobs/batch", json={"jobs": [job, {"kind": "echo"}]})
    assert [j.get("status") for j in batch.json()["jobs"]] == [422, "PENDING"]
    form = (
        b'--x\r\nContent-Disposition: form-data; name="job"\r\n\r\n{"kind": "thumbnail", "queue": "nowhere"}\r\n'
        b'--x\r\nContent-Disposition: form-data; name="video"; filename="a"\r\n\r\nbytes\r\n--x--\r\n'
    )
    headers = {"content-type": "multipart/form-data; boundary=x", "content-length": str(len(form))}
    reply = await service.call("POST", "/jobs", body=form, headers=headers)
    assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, "/queue")
    wanted = {"name": "a", "size": 5, "kind": "thumbnail", "queue": "nowhere"}
    reply = await service.call("POST", "/uploads/presign", json=wanted)
    assert reply.status == 422
    with pytest.raises(InvalidInput, match="nowhere"):
        await service.intake.submit(Submission("echo", queue="nowhere"), trace_id="")


async def test_a_queue_that_was_known_when_the_upload_began_is_accepted_at_its_end(
    service: Service,
) -> None:
    service.engine.elsewhere = {"gpu"}
    wanted = {"name": "a", "size": 5, "kind": "thumbnail", "queue": "gpu"}
    begun = (await service.call("POST", "/uploads/presign", json=wanted)).json()
    service.engine.elsewhere = set()
    target = begun["url"].partition("//")[2].partition("/")[2]
    headers = {**begun["headers"], "content-length": "5"}
    put = await service.call(begun["method"], f"/{target}", body=b"bytes", headers=headers)
    assert put.status == 200, put.body
    done = await service.call("POST", f"/uploads/{begun['uploadId']}/complete")
    assert done.status in (200, 202), done.body
    job = await service.call("GET", f"/jobs/{begun['job']['jobId']}")
    assert (job.json()["status"], job.json()["queue"]) == ("PENDING", "gpu")


async def test_a_repeat_is_answered_after_the_last_worker_of_its_queue_has_left(
    service: Service,
) -> None:
    """The client did not get the first answer. Its job was accepted, so the repeat must say so."""
    key = {"idempotency-key": "k"}
    job = {"kind": "echo", "queue": "gpu"}
    form = (
        b'--x\r\nContent-Disposition: form-data; name="job"\r\n\r\n{"kind": "thumbnail", "queue": "gpu"}\r\n'
        b'--x\r\nContent-Disposition: form-data; name="video"; filename="a"\r\n\r\nbytes\r\n--x--\r\n'
    )
    multipart = {"content-type": "multipart/form-data; boundary=x", "content-length": str(len(form))}
    wanted = {"name": "a", "size": 5, "kind": "thumbnail", "queue": "gpu", "idempotencyKey": "p"}

    async def send() -> list[str]:
        one = await service.call("POST", "/jobs", json=job, headers=key)
        same = await service.call("POST", "/jobs", json={**job, "dedupe": "content"})
        batch = await service.call("POST", "/jobs/batch", json={"jobs": [job, job]}, headers=key)
        file = await service.call("POST", "/jobs", body=form, headers={**multipart, **key})
        presigned = await service.call("POST", "/uploads/presign", json=wanted)
        replies = [one.json(), same.json(), *batch.json()["jobs"], file.json(), presigned.json()["job"]]
        return [reply["jobId"] for reply in replies]

    service.engine.elsewhere = {"gpu"}
    first = await send()
    service.engine.elsewhere = set()
    assert await send() == first
    other = await service.call("POST", "/jobs", json={**job, "priority": 1}, headers=key)
    assert other.json()["code"] == "idempotency-conflict"
    new = await service.call("POST", "/jobs", json=job, headers={"idempotency-key": "new"})
    assert (new.status, new.json()["errors"][0]["pointer"]) == (422, "/queue")


async def test_a_setting_allows_queues_that_nobody_knows(tmp_path: Path) -> None:
    config = Config(data=tmp_path, engine=EngineConfig(allow_unknown_queues=True))
    async with Service(tmp_path, config=config).opened() as service:
        service.engine.unserved = {"nowhere"}
        await service.submit(queue="nowhere")
        (warning,) = (await service.call("GET", "/readyz")).json()["warnings"]
        assert warning["code"] == "queue-unserved"


# --- metrics


async def _metrics(service: Service) -> dict[str, float]:
    await asyncio.sleep(0)  # events are published right after a write returns
    text = (await service.call("GET", "/metrics")).body.decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


async def test_metrics(service: Service) -> None:
    await service.submit()
    service.clock.advance(3)
    await service.submit("encode", input={"source": "s"})
    await service.fail(await service.claim("encode", "video"))
    await service.submit("encode", input={"source": "s"})
    await service.claim("encode", "video")
    service.engine.unserved = {"slow"}
    service.engine.children = [
        WorkerState(f"c{i}", i, state, "sync", [], "", 0)
        for i, state in enumerate(["idle", "busy", "busy"])
    ]
    await service.call("POST", "/queues/default/pause")
    found = await _metrics(service)
    assert found['bide_queue_backlog{queue="default"}'] == 1
    assert found['bide_queue_oldest_age_seconds{queue="default"}'] == 3
    assert found['bide_queue_running{queue="video"}'] == 1
    assert found['bide_queue_paused{queue="default"}'] == 1
    assert found['bide_queue_paused{queue="video"}'] == 0
    assert found['bide_queue_unserved{queue="slow"}'] == 1
    assert found['bide_queue_unserved{queue="video"}'] == 0
    assert found['bide_jobs_ended_total{kind="encode",status="ERROR"}'] == 1
    assert found['bide_workers{state="busy"}'] == 2
    assert found['bide_workers{state="starting"}'] == 0
    assert found["bide_long_polls"] == 0


async def test_metrics_in_the_format_that_the_scraper_asks_for(service: Service) -> None:
    plain = await service.call("GET", "/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    modern = await service.call("GET", "/metrics", headers=accept)
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    assert modern.body.endswith(b"# EOF\n")


# --- problems

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


async def test_every_problem_has_a_page_for_people_and_for_programs(service: Service) -> None:
    listed = (await service.call("GET", "/problems")).json()["problems"]
    assert {p["code"] for p in listed} == {p.code for p in problems()}
    for problem in problems():
        reply = await service.call("GET", f"/problems/{problem.code}")
        assert reply.json()["status"] == problem.status
        assert reply.json()["meaning"]
        assert reply.json()["remedy"]
        page = await service.call("GET", f"/problems/{problem.code}", headers=BROWSER)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert problem.code.encode() in page.body


async def test_the_list_of_problems_links_to_each(service: Service) -> None:
    page = (await service.call("GET", "/problems", headers=BROWSER, mount="/api")).body.decode()
    links = set(re.findall(r'href="/api/problems/([^"]+)"', page))
    assert links == {p.code for p in problems()}


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        ("text/html", True),
        ("text/html;q=0.5, application/json;q=0.9", False),
        ("text/html;q=0", False),
        ("text/html;q=x", False),
        ("application/json, text/html", False),
        ("*/*", False),
        ("", False),
        ("image/png", False),
    ],
)
async def test_who_gets_html(service: Service, accept: str, html: bool) -> None:
    reply = await service.call("GET", "/problems/gone", headers={"Accept": accept})
    assert reply.headers["content-type"].startswith("text/html") is html


async def test_an_unknown_problem(service: Service) -> None:
    reply = await service.call("GET", "/problems/%3Cscript%3E", headers=BROWSER)
    assert (reply.status, reply.json()["code"]) == (404, "not-found")


async def test_waiting_and_running_times_are_histograms(service: Service) -> None:
    for seconds in (0.3, 20.0):
        await service.submit()
        service.clock.advance(2)
        job = await service.claim()
        await service.apply(StepStarted(job_id=job.id, fence=job.fence, name="probe"))
        service.clock.advance(seconds)
        await service.apply(
            StepKept(job_id=job.id, fence=job.fence, name="probe", result=msgspec.Raw(b"1"))
        )
        service.clock.advance(1)
        await service.finish(job)
    metrics = await _metrics(service)

    def buckets(name: str, labels: str = "") -> dict[str, float]:
        start = f'{name}_bucket{{kind="echo",le="'
        found = {key: value for key, value in metrics.items() if key.startswith(start)}
        return {key.removeprefix(start).partition('"')[0]: n for key, n in found.items()}

    waiting = buckets("bide_job_waiting_seconds")
    assert (waiting["1.0"], waiting["2.5"], waiting["+Inf"]) == (0, 2, 2)
    assert metrics['bide_job_waiting_seconds_sum{kind="echo"}'] == pytest.approx(4)
    running = buckets("bide_job_running_seconds")
    assert (running["1.0"], running["2.5"], running["10.0"], running["30.0"]) == (0, 1, 1, 2)
    assert metrics['bide_job_running_seconds_sum{kind="echo"}'] == pytest.approx(22.3)
    assert metrics['bide_step_running_seconds_count{kind="echo",step="probe"}'] == 2
    assert metrics['bide_step_running_seconds_sum{kind="echo",step="probe"}'] == pytest.approx(20.3)


async def test_a_handler_that_makes_up_steps_has_a_limited_number_of_series(service: Service) -> None:
    await service.submit()
    job = await service.claim()
    for number in range(MAX_STEPS + 10):
        name = f"page {number}"
        await service.apply(StepStarted(job_id=job.id, fence=job.fence, name=name))
        await service.apply(
            StepKept(job_id=job.id, fence=job.fence, name=name, result=msgspec.Raw(b"1"))
        )
    counts = {
        k: v
        for k, v in (await _metrics(service)).items()
        if k.startswith("bide_step_running_seconds_count")
    }
    assert len(counts) == MAX_STEPS + 1
    assert counts['bide_step_running_seconds_count{kind="echo",step="other"}'] == 10


async def test_a_job_that_runs_too_long_is_overdue(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        await service.submit()
        job = await service.claim()
        service.clock.advance(1)
        await service.finish(job)
    job_id = await service.submit()
    job = await service.claim()
    service.clock.advance(2)
    await service.parts.upkeep.recover()
    assert (await service.call("GET", f"/jobs/{job_id}")).json()["overdue"] is False
    service.clock.advance(8)
    for _ in range(2):
        await service.parts.upkeep.recover()
        service.clock.advance(1)
    reply = await service.call("GET", f"/jobs/{job_id}")
    assert reply.json()["overdue"] is True
    assert reply.headers["etag"] == f'"{job.version + 1}.0"'
    (listed,) = (await service.call("GET", "/jobs?status=PROCESSING")).json()["jobs"]
    assert listed["overdue"] is True
    assert (await _metrics(service))['bide_jobs_overdue{kind="echo"}'] == 1
    (line,) = (await service.call("GET", f"/jobs/{job_id}/log")).json()["log"]
    assert (line["level"], line["logger"]) == ("warning", "bide.upkeep")
    assert line["message"].startswith(
        "the attempt has run for 10 s, longer than 3 times the 99th percentile"
    )
    (said,) = [r for r in caplog.records if "overdue" in r.getMessage()]
    assert said.levelname == "WARNING" and job_id in said.getMessage()
    await service.finish(job)
    assert (await service.call("GET", f"/jobs/{job_id}")).json()["overdue"] is False
    assert (await _metrics(service))['bide_jobs_overdue{kind="echo"}'] == 0


async def test_breakers_and_retry_budgets_are_visible(service: Service) -> None:
    store, settings = service.parts.store, BreakerSettings()
    for number in range(settings.failures):
        job = str(number)
        await store.report_calls(BreakerReport("vendor", settings, 1.0, job=job))
    waits: dict[str, Any] = {"due": service.clock.now() + 1000, "waits_for": "breaker vendor"}
    ids = []
    for more in (waits, {"budgeted": RetryClaim("encode", RetryBudget(0.2, 1.0), 1e10)}) * 2:
        ids.append(await service.submit("encode", input={"source": "a"}))
        job_ = await service.claim("encode", "video")
        error = ErrorInfo(code="DOWN", message="down", retryable=True)
        retry_at = service.clock.now() + 30
        change = FailedForNow(job_id=job_.id, fence=job_.fence, error=error, retry_at=retry_at, **more)
        await service.apply(change)
    found = (await service.call("GET", "/queues")).json()
    (breaker,) = found["breakers"]
    at = render_instant(service.clock.now() + 30)
    assert (breaker["name"], breaker["state"], breaker["probeAt"]) == ("vendor", "open", at)
    assert (breaker["opened"], breaker["waiting"]) == (1, 2)
    (budget,) = found["retryBudgets"]
    assert budget == {"kind": "encode", "ratio": 0.2, "minimum": 60, "available": 0, "waiting": 1}
    metrics = await _metrics(service)
    assert metrics['bide_breaker_state{breaker="vendor",state="open"}'] == 1
    assert metrics['bide_breaker_state{breaker="vendor",state="closed"}'] == 0
    assert metrics['bide_breaker_opened_total{breaker="vendor"}'] == 1
    assert metrics['bide_breaker_waiting_jobs{breaker="vendor"}'] == 2
    assert metrics['bide_retries_waiting{kind="encode"}'] == 1
    assert metrics['bide_retry_budget_available{kind="encode"}'] == 0
    warnings = (await service.call("GET", "/readyz")).json()["warnings"]
    assert "breaker-open" in [warning["code"] for warning in warnings]
    reply = await service.call("GET", f"/jobs/{ids[0]}")
    assert (reply.json()["status"], reply.json()["nextAttemptAt"]) == ("RETRYING", at)
    assert int(reply.headers["retry-after"]) <= 60, "not until the latest time at which it starts"
