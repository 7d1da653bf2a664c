"""GET /jobs/{id}/log: its lines, levels and pages, and the long poll."""

from __future__ import annotations

import asyncio
from typing import Any

from bide.core.jobs.record import Job
from tests.integration.http.service import Service


async def write(service: Service, job: Job, *lines: dict[str, Any]) -> None:
    await service.store.log(job.id, job.owner or "", job.fence, list(lines))


async def running(service: Service) -> Job:
    await service.submit()
    return await service.claim()


async def test_lines_have_time_attempt_and_level(service: Service) -> None:
    job = await running(service)
    at = service.clock.now()
    service.clock.advance(10)
    record = {"level": "warning", "logger": "shop", "message": "two", "at": at + 2.5}
    await write(service, job, {"message": "one", "page": 1}, record)
    page = (await service.call("GET", f"/jobs/{job.id}/log")).json()
    assert page["log"] == [
        {
            "level": "info",
            "message": "one",
            "page": 1,
            "at": "2030-03-17T17:46:50.000Z",
            "attempt": 1,
        },
        {
            "level": "warning",
            "logger": "shop",
            "message": "two",
            "at": "2030-03-17T17:46:42.500Z",
            "attempt": 1,
        },
    ]
    assert page["ended"] is False
    included = (await service.call("GET", f"/jobs/{job.id}?include=log")).json()["log"]
    assert included == page["log"]


async def test_only_lines_of_a_level_and_above(service: Service) -> None:
    job = await running(service)
    levels = ["debug", "info", "warning", "error", "critical", "ERROR", 7, ["x"]]
    await write(service, job, *({"level": level, "message": str(level)} for level in levels))

    async def shown(query: str) -> list[str]:
        page = (await service.call("GET", f"/jobs/{job.id}/log{query}")).json()
        return [line["message"] for line in page["log"]]

    assert await shown("?level=error") == ["error", "critical", "ERROR"]
    # A level that `ctx.log` has invented counts as info.
    assert await shown("?level=info") == [str(level) for level in levels[1:]]
    assert await shown("?level=debug") == await shown("") == [str(level) for level in levels]


async def test_a_long_log_has_pages_and_an_end(service: Service) -> None:
    job = await running(service)
    await write(service, job, *({"message": str(number)} for number in range(2500)))
    await service.finish(job)
    found, after, ended = [], "", False
    for size in (1000, 1000, 500):
        assert not ended
        page = (await service.call("GET", f"/jobs/{job.id}/log{after}")).json()
        assert len(page["log"]) == size
        found += [line["message"] for line in page["log"]]
        after, ended = f"?after={page['next']}", page["ended"]
    assert found == [str(number) for number in range(2500)] and ended
    last = (await service.call("GET", f"/jobs/{job.id}/log{after}")).json()
    assert last == {"log": [], "next": page["next"], "ended": True}


async def test_a_long_poll_waits_for_the_next_line_or_the_end(service: Service) -> None:
    job = await running(service)
    wait = {"Prefer": "wait=30"}
    call = asyncio.create_task(service.call("GET", f"/jobs/{job.id}/log", headers=wait))
    while not service.notify.has_subscribers(job.id):
        await asyncio.sleep(0)
    await write(service, job, {"message": "one"})
    reply = await call
    assert reply.headers["preference-applied"] == "wait=30"
    first = reply.json()
    assert ([line["message"] for line in first["log"]], first["ended"]) == (["one"], False)
    path = f"/jobs/{job.id}/log?after={first['next']}"
    call = asyncio.create_task(service.call("GET", path, headers=wait))
    while not service.notify.has_subscribers(job.id):
        await asyncio.sleep(0)
    await service.finish(job)
    assert (await call).json()["ended"] is True


async def test_wrong_requests_are_refused(service: Service) -> None:
    job = await running(service)
    for query, status, code in (
        ("level=loud", 422, "invalid-input"),
        ("after=E-1x", 400, "bad-cursor"),
        ("before=1", 422, "invalid-input"),
    ):
        reply = await service.call("GET", f"/jobs/{job.id}/log?{query}")
        assert (reply.status, reply.json()["code"]) == (status, code)
    assert (await service.call("GET", "/jobs/unknown/log")).status == 404
