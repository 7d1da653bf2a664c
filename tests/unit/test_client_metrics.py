"""The metrics of clients: requests, refusals and budgets of each API."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bide.client import metrics
from bide.client.client import AsyncClient
from bide.client.metrics import metrics_file, metrics_text
from tests.unit.fake_service import FakeService, job, job_id, problem, says
from tests.unit.test_waiting import quick


def read() -> dict[str, float]:
    lines = [line.rpartition(" ") for line in metrics_text().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


@pytest.fixture(autouse=True)
def nothing_before() -> None:
    metrics._closed.clear()


async def test_requests_and_refusals_stay_after_the_client_is_closed(service: FakeService) -> None:
    refused = problem(429, "too-many")
    service.script(1, refused, refused, says(job(1, result=1)))
    async with AsyncClient(service.url, timing=quick()) as client:
        assert await client.job(job_id(1)).result(timeout=30) == 1
        assert read()['bide_client_requests_total{api="bide"}'] == 3
        assert read()['bide_client_refused_requests_total{api="bide"}'] == 2
    found = read()
    assert found['bide_client_requests_total{api="bide"}'] == 3
    assert found['bide_client_refused_requests_total{api="bide"}'] == 2
    assert found['bide_client_waiting_jobs{api="bide"}'] == 0


async def test_accounts_of_one_api_are_one_series(service: FakeService) -> None:
    service.on("POST", "/jobs", says(job(1, "PENDING")))
    async with (
        AsyncClient(service.url, limit="1/1m") as first,
        AsyncClient(service.url, key="other", limit="60/1m") as second,
    ):
        for client in (first, second):
            await client.submit("transcode")
        found = read()
    assert found['bide_client_requests_total{api="bide"}'] == 2
    # The first account may send one request per minute, and has just sent one.
    assert 30 < found['bide_client_budget_wait_seconds{api="bide"}'] <= 61.5
    assert 61 / 62 < found['bide_client_budget_requests_per_second{api="bide"}'] <= 61 / 60


async def test_a_file_is_replaced_while_and_after_the_wait(service: FakeService, tmp_path: Path) -> None:
    service.on("POST", "/jobs", says(job(1, "PENDING")))
    path = tmp_path / "bide.prom"
    async with metrics_file(path), AsyncClient(service.url) as client:
        assert "# TYPE bide_client_requests_total counter" in path.read_text()
        await client.submit("transcode")
    assert 'bide_client_requests_total{api="bide"} 1\n' in path.read_text()
    assert os.listdir(tmp_path) == ["bide.prom"]  # noqa: PTH208
    async with metrics_file(None):
        pass
