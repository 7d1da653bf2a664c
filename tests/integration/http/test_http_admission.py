"""Back-pressure over HTTP: what is refused first, what a refusal says, and where operators see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bide.server.config import AdmissionConfig, Config
from tests.integration.http.service import Reply, Service


@asynccontextmanager
async def bounded(folder: Path, **bounds: Any) -> AsyncIterator[Service]:
    config = Config(admission=AdmissionConfig.read(bounds))
    async with Service(folder, config=config).opened() as service:
        await service.parts.admission.start()
        try:
            yield service
        finally:
            await service.parts.admission.stop()


async def post(service: Service, **more: Any) -> Reply:
    service.parts.admission._read_at = -1e9  # the counts are read again, although no time has passed
    return await service.call("POST", "/jobs", json={"kind": "echo", **more})


async def metric(service: Service, name: str) -> float:
    text = (await service.call("GET", "/metrics")).body.decode()
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} "))


async def test_lists_and_statistics_are_refused_before_status_and_submissions(tmp_path: Path) -> None:
    async with bounded(tmp_path, lag=0.05) as service:
        job = (await post(service)).json()["jobId"]
        for target in ("/jobs", "/jobs?q=kind:echo", "/stats"):
            assert (await service.call("GET", target)).status == 200, target
        for target in ("/jobs", "/jobs?q=kind:echo", "/stats"):
            time.sleep(0.5)  # the event loop is late
            while service.parts.admission.delay < 0.2:
                await asyncio.sleep(0.01)
            refused = await service.call("GET", target)
            assert (refused.status, refused.json()["code"]) == (503, "overloaded"), target
            assert int(refused.headers["retry-after"]) == refused.json()["retryAfter"] > 0
            assert (await service.call("GET", f"/jobs/{job}")).status == 200
            assert (await post(service)).status == 202
        assert await metric(service, "bide_delay_seconds") > 0
        assert await metric(service, 'bide_refused_requests_total{reason="overloaded"}') == 3
        ready = await service.call("GET", "/readyz")
        assert ready.status == 200
        assert "overloaded" in {warning["code"] for warning in ready.json()["warnings"]}


async def test_low_priorities_are_refused_first(tmp_path: Path) -> None:
    async with bounded(tmp_path, backlog=10) as service:
        accepted = {}
        for priority in (-1, 0, 1):
            accepted[priority] = 0
            while (reply := await post(service, priority=priority)).status == 202:
                accepted[priority] += 1
            assert (reply.status, reply.json()["code"]) == (503, "overloaded")
        assert accepted == {-1: 8, 0: 2, 1: 2}
        assert await metric(service, 'bide_refused_requests_total{reason="overloaded"}') == 3


async def test_a_job_that_cannot_meet_its_deadline_is_refused_with_the_predicted_wait(
    tmp_path: Path,
) -> None:
    async with bounded(tmp_path, deadlines=True) as service:
        for _ in range(3):
            await post(service)
            job = await service.claim()
            service.clock.advance(60)
            await service.finish(job)
        for _ in range(12):
            assert (await post(service)).status == 202
        now = service.clock.now()
        late = await post(service, deadline=_at(now + 120))
        assert (late.status, late.json()["code"]) == (503, "overloaded"), late
        found = late.json()
        # Twelve jobs of 60 s wait for two children: the next one starts after six minutes.
        assert 300 <= found["predictedWait"] <= 420
        # It could be accepted when the wait is shorter by as much as it would be late.
        assert 0.5 <= found["retryAfter"] / (found["predictedWait"] + 60 - 120) <= 2
        assert (await post(service, deadline=_at(now + 3600))).status == 202
        assert (await post(service)).status == 202


def _at(instant: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(instant))
