"""The metrics that operators alert on: failures by code, lost workers, throttled tenants, `eta`, and the workers needed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from bide.client.metrics import metrics_text
from bide.core.errors import ErrorInfo, Problem
from bide.core.jobs.record import Job
from bide.core.jobs.state_machine import FailedForNow, Lost, PriorityChanged, Succeeded
from bide.server.config import AdmissionConfig, Config, LimitsConfig
from bide.server.http.metrics import MAX_CODES
from bide.server.limits import MOST_SERIES
from tests.integration.http.service import Service


async def read(service: Service) -> dict[str, float]:
    await asyncio.sleep(0)  # events are published right after a write returns
    text = (await service.call("GET", "/metrics")).body.decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


async def encoding(service: Service) -> Job:
    await service.submit("encode", input={"source": "s"})
    return await service.claim("encode", "video")


async def test_failures_are_counted_by_code(service: Service) -> None:
    job = await encoding(service)
    error = ErrorInfo("OCR_TIMEOUT", "too slow", attempt=1)
    await service.apply(
        FailedForNow(job_id=job.id, fence=job.fence, error=error, retry_at=service.clock.now() + 5)
    )
    # Another change of a job that waits for its retry is not another failure.
    await service.apply(PriorityChanged(job_id=job.id, priority=3))
    await service.fail(await encoding(service), "BROKEN")
    await service.done()
    found = {k: v for k, v in (await read(service)).items() if k.startswith("bide_failures")}
    assert found == {
        'bide_failures_total{code="OCR_TIMEOUT",kind="encode",outcome="retried"}': 1,
        'bide_failures_total{code="BROKEN",kind="encode",outcome="final"}': 1,
    }


async def test_a_handler_that_makes_up_codes_has_a_limited_number_of_series(service: Service) -> None:
    for number in range(MAX_CODES + 5):
        await service.fail(await encoding(service), f"CODE_{number}")
    found = {k: v for k, v in (await read(service)).items() if k.startswith("bide_failures")}
    assert len(found) == MAX_CODES + 1
    assert found['bide_failures_total{code="other",kind="encode",outcome="final"}'] == 5


async def test_lost_workers_are_counted(service: Service) -> None:
    job = await encoding(service)
    job = await service.apply(Lost(job_id=job.id, fence=job.fence))
    job = await service.claim("encode", "video")
    await service.apply(Lost(job_id=job.id, fence=job.fence, lease=job.lease_until))
    poisoned = await service.claim("encode", "video")
    await service.fail(poisoned, "POISONED")
    found = {k: v for k, v in (await read(service)).items() if k.startswith("bide_leases_lost")}
    assert found == {
        'bide_leases_lost_total{kind="encode",reason="process"}': 2,
        'bide_leases_lost_total{kind="encode",reason="lease"}': 1,
    }


async def test_the_accuracy_of_eta(service: Service) -> None:
    for seconds in (2, 2, 2, 2, 2, 2, 60, 0.1):
        await service.submit()
        job = await service.claim()
        # A caller that asks makes the service predict.
        await service.call("GET", f"/jobs/{job.id}")
        service.clock.advance(seconds)
        await service.finish(job)
    found = await read(service)
    of_echo = {k: v for k, v in found.items() if k.startswith("bide_eta_outcomes")}
    # Nothing is predicted from fewer than three durations.
    assert of_echo['bide_eta_outcomes_total{basis="durations",kind="echo",outcome="within"}'] >= 3
    assert of_echo['bide_eta_outcomes_total{basis="durations",kind="echo",outcome="late"}'] == 1
    assert of_echo['bide_eta_outcomes_total{basis="durations",kind="echo",outcome="early"}'] == 1
    assert (
        found['bide_eta_error_seconds_count{basis="durations",kind="echo"}']
        == sum(of_echo.values())
        == 5
    )
    assert 55 < found['bide_eta_error_seconds_sum{basis="durations",kind="echo"}'] < 65


async def test_the_accuracy_of_eta_by_progress(service: Service) -> None:
    for seconds, predicted in ((2, (1.7, 2, 2.5)), (5, (1.7, 2, 2.5)), (1, (1.7, 2, 2.5)), (9, None)):
        await service.submit()
        job = await service.claim()
        service.clock.advance(seconds)
        await service.apply(Succeeded(job_id=job.id, fence=job.fence, predicted=predicted))
    found = await read(service)
    name = 'bide_eta_outcomes_total{basis="progress",kind="echo",outcome="%s"}'
    assert [found[name % outcome] for outcome in ("early", "within", "late")] == [1, 1, 1]
    assert found['bide_eta_error_seconds_sum{basis="progress",kind="echo"}'] == 4


async def test_throttled_tenants_have_a_limited_number_of_series(tmp_path: Path) -> None:
    config = Config(limits=LimitsConfig.read({"submit": "1/1h"}))
    async with Service(tmp_path, config=config).opened() as service:
        await service.submit()
        reply = await service.call("POST", "/jobs", json={"kind": "echo"})
        assert reply.status == 429
        batch = {"jobs": [{"kind": "echo"}] * 2}
        await service.call("POST", "/jobs/batch", json=batch)
        name = 'bide_throttled_requests_total{limit="submit",tenant="%s"}'
        assert (await read(service))[name % "-"] == 3
        limits = service.app._components.limits
        problem = _refused(service)
        for number in range(MOST_SERIES + 10):
            limits.count(problem, f"tenant {number}")
        found = await read(service)
        assert found[name % "other"] == 11  # `-` has a series, too
        assert len([key for key in found if key.startswith("bide_throttled")]) == MOST_SERIES + 1


def _refused(service: Service) -> Problem:
    with pytest.raises(Problem) as caught:
        service.app._components.limits.check("-", "echo")
    return caught.value


async def test_workers_are_needed_while_jobs_wait(service: Service) -> None:
    async def needed(queue: str = "default") -> float:
        return (await read(service))[f'bide_workers_needed{{queue="{queue}"}}']

    assert await needed() == 0
    await service.submit()
    assert await needed() == 1  # no duration is known
    for seconds in (60, 60, 60):
        job = await service.claim()
        service.clock.advance(seconds)
        await service.finish(job)
        await service.submit()
    running = [await service.claim()]
    assert await needed() == 1
    for _ in range(10):
        await service.submit()
    # 30 s of waiting and 60 s of work: each additional slot starts one job at once, and half a job later.
    assert await needed() == 8
    found = await read(service)
    assert found['bide_queue_predicted_wait_seconds{queue="default"}'] > 300
    assert found['bide_queue_slots{queue="default"}'] == 2
    await service.call("POST", "/queues/default/pause")
    assert await needed() == len(running)  # more workers would not help
    await service.submit("echo", queue="slow")
    assert await needed("slow") == 1  # its concurrency
    assert 'bide_queue_predicted_wait_seconds{queue="default"}' not in await read(service)


async def test_the_disk_and_the_process(service: Service) -> None:
    found = await read(service)
    assert 0 < found["bide_disk_free_bytes"] <= found["bide_disk_size_bytes"]
    assert found["process_open_fds"] > 0 and found["process_cpu_seconds_total"] > 0


async def test_every_metric_is_described_in_the_reference(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
    described = dict(re.findall(r"^\| `(bide_\w+)` \| (\w+) \|", page.read_text(), flags=re.MULTILINE))
    config = Config(admission=AdmissionConfig.read({"lag": 0.5}))
    async with Service(tmp_path, config=config).opened() as service:
        text = (await service.call("GET", "/metrics")).body.decode() + metrics_text()
    kinds = dict(re.findall(r"^# TYPE (bide_\w+) (\w+)$", text, flags=re.MULTILINE))
    assert kinds == described
