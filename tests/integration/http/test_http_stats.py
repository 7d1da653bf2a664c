"""GET /stats: points over time, from the rollups."""

from __future__ import annotations

from typing import Any

import pytest

from bide.core.clock import render_instant
from tests.integration.http.service import Service


async def stats(service: Service, query: str = "") -> Any:
    reply = await service.call("GET", f"/stats?{query}" if query else "/stats")
    assert reply.status == 200, reply.body
    return reply.json()


async def test_points_and_total(service: Service) -> None:
    begin = service.clock.now()
    await service.submit()
    job = await service.claim()
    service.clock.advance(2)
    await service.finish(job)
    await service.submit()
    await service.fail(await service.claim(), "BROKEN")
    await service.submit("encode", input={"source": "s"})
    await service.store.sample_load()
    found = await stats(service)
    assert found["step"] == 300
    assert 288 <= len(found["points"]) <= 290
    total = found["total"]
    assert (total["submitted"], total["started"], total["done"]) == (3, 2, 1)
    assert total["failed"] == {"BROKEN": 1}
    assert 1.6 < total["run"]["p95"] < 2.4
    assert total["wait"]["p50"] < 0.002
    assert (total["waiting"], total["running"]) == (1.0, 0.0)
    points = [point for point in found["points"] if point["submitted"]]
    assert sum(point["submitted"] for point in points) == 3
    assert points[0]["at"] <= render_instant(begin)
    of_kind = (await stats(service, "kind=encode"))["total"]
    assert (of_kind["submitted"], of_kind["started"], of_kind["run"]) == (1, 0, None)
    assert (await stats(service, "queue=video"))["total"]["submitted"] == 1
    assert (await stats(service, "kind=unknown"))["total"]["submitted"] == 0


async def test_a_range_and_a_width(service: Service) -> None:
    service.clock.advance(60 - service.clock.now() % 60)
    begin = service.clock.now()
    for _ in range(3):
        await service.submit()
        service.clock.advance(60)
    start, end = render_instant(begin), render_instant(begin + 120)
    found = await stats(service, f"from={start}&to={end}&step=60")
    assert (found["from"], found["to"], found["step"]) == (start, end, 60)
    assert [point["submitted"] for point in found["points"]] == [1, 1]
    assert [point["at"] for point in found["points"]] == [start, render_instant(begin + 60)]
    assert (await stats(service, f"from={render_instant(begin - 86400 * 80)}"))["total"][
        "submitted"
    ] == 3


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("from=yesterday", "?from"),
        ("from=2030-01-01T00:00:00Z&to=2029-01-01T00:00:00Z", "?from"),
        ("step=7", "?step"),
        ("step=0", "?step"),
        ("from=2029-01-01T00:00:00Z&to=2030-01-01T00:00:00Z&step=60", "?step"),
        ("kind=a&kind=b", "?kind"),
    ],
)
async def test_bad_parameters_are_named(service: Service, query: str, place: str) -> None:
    reply = await service.call("GET", f"/stats?{query}")
    assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, place)
