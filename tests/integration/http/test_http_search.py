"""GET /jobs with a query, an order, times and a count; secret paths of the input."""

from __future__ import annotations

import sqlite3
import time
from typing import Any
from urllib.parse import quote

import pytest

from bide.core.clock import render_instant
from bide.core.errors import QueryTimeout
from bide.server.http import jobs as http_jobs
from bide.server.store import query_threads
from bide.server.store.sqlite.store import SqliteStore
from tests.integration.http.service import Service


async def submit(service: Service, video: Any = "v1", **more: Any) -> str:
    service.clock.advance(1)  # ids of the same millisecond are in no order
    return await service.submit("clip", input={"video": {"id": video}, "token": "sesame-street"}, **more)


async def ids(service: Service, q: str = "", **more: str) -> list[str]:
    query = "&".join(f"{name}={quote(value)}" for name, value in {"q": q, **more}.items())
    reply = await service.call("GET", f"/jobs?{query}")
    assert reply.status == 200, reply.body
    return [job["jobId"] for job in reply.json()["jobs"]]


async def refused(service: Service, q: str) -> str:
    reply = await service.call("GET", f"/jobs?q={quote(q)}")
    assert reply.status == 422, reply.body
    assert reply.json()["errors"][0]["pointer"] == "?q"
    detail: str = reply.json()["detail"]
    return detail


async def test_every_term(service: Service) -> None:
    echo = await service.submit(labels={"team": "ops", "shift": "late night"})
    first, second = await submit(service), await submit(service, 42, labels={"team": "dev"})
    failed = await service.fail(await service.claim("clip"), "BROKEN")
    assert failed.id == first
    for query, expected in {
        "": [second, first, echo],
        "kind:clip": [second, first],
        "kind:clip status:pending": [second],
        "queue:default": [second, first, echo],
        "label.team:ops": [echo],
        'label.shift:"late night"': [echo],
        "input.video.id:42": [second],
        "input.video.id:v1 error:BROKEN": [first],
        "error:BROKEN label.team:dev": [],
        "dev": [second],
        second: [second],
        f"kind:echo {second}": [],
        "kind:clip kind:echo": [],
        "status:DONE status:ERROR": [],
        "step:probe": [],
    }.items():
        assert await ids(service, query) == expected, query
    assert await ids(service, "kind:clip", code="BROKEN") == [first]
    assert await ids(service, "kind:clip", kind="echo") == []
    assert await ids(service, "status:ERROR", status="ERROR") == [first]
    assert await ids(service, "label.team:dev", label="team:ops") == []


async def test_a_bad_query_names_the_term(service: Service) -> None:
    assert "'colour:red'" in await refused(service, "colour:red")
    assert "no kind declares it" in await refused(service, "input.token:sesame-street")
    assert "input.video.id" in await refused(service, "input.video:1")
    assert "kind echo does not declare it" in await refused(service, "kind:echo input.video.id:1")
    begin = time.perf_counter()
    await refused(service, "kind:x " * 200)
    await refused(service, "input" + ".a" * 500 + ":1")
    assert time.perf_counter() - begin < 1


async def test_times_and_orders(service: Service) -> None:
    made = []
    for _ in range(3):
        made.append(await service.submit())
        service.clock.advance(10)
    middle = render_instant(service.clock.now() - 20)
    assert await ids(service, createdAfter=middle) == [made[2], made[1]]
    assert await ids(service, createdBefore=middle) == [made[0]]
    assert await ids(service, order="oldest") == made
    for job_id in made:
        job = await service.claim()
        service.clock.advance(made.index(job_id) + 1)
        await service.finish(job)
    assert await ids(service, order="longest") == made[::-1]


async def test_pages_in_every_order(service: Service) -> None:
    for number in range(5):
        service.clock.advance(1)
        await service.submit()
        job = await service.claim()
        service.clock.advance(1 + number % 2)
        await service.finish(job)
    for order in ("newest", "oldest", "longest"):
        whole = await ids(service, order=order)
        assert len(whole) == 5
        pages: list[str] = []
        cursor = ""
        while True:
            query = f"/jobs?order={order}&limit=2{cursor}"
            page = (await service.call("GET", query)).json()
            pages += [job["jobId"] for job in page["jobs"]]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert pages == whole
    assert (await service.call("GET", f"/jobs?order=newest{cursor}")).status == 400


async def test_a_count_has_a_limit(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_jobs, "MAX_COUNT", 2)
    for _ in range(2):
        await service.submit()

    async def count(query: str) -> Any:
        return (await service.call("GET", f"/jobs?count=true&limit=1&{query}")).json()["count"]

    assert await count("") == {"value": 2, "more": False}
    await service.submit()
    assert await count("") == {"value": 2, "more": True}
    assert await count("kind=none") == await count("q=kind:a%20kind:b") == {"value": 0, "more": False}
    assert "count" not in (await service.call("GET", "/jobs?count=false")).json()
    assert (await service.call("GET", "/jobs?count=yes")).status == 422


@pytest.mark.parametrize("query", ["order=random", "createdAfter=yesterday", "createdBefore=2030-01-01"])
async def test_a_bad_parameter_is_named(service: Service, query: str) -> None:
    reply = await service.call("GET", f"/jobs?{query}")
    assert reply.status == 422
    assert reply.json()["errors"][0]["pointer"] == f"?{query.partition('=')[0]}"


async def test_a_secret_is_not_shown(service: Service) -> None:
    job_id = await submit(service)
    shown = (await service.call("GET", f"/jobs/{job_id}?include=input")).json()
    assert shown["input"] == {"video": {"id": "v1"}, "token": "[secret]"}
    (claim,) = await service.claims("clip")
    assert b"sesame-street" in claim.input, "the handler gets it"
    for path in (f"/jobs/{job_id}?include=input,attempts,log", "/jobs", f"/jobs?id={job_id}"):
        assert b"sesame" not in (await service.call("GET", path)).body


async def test_a_query_that_takes_too_long_is_a_problem(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(service.store, SqliteStore):
        pytest.skip("the suite of the store tests it")
    monkeypatch.setattr(query_threads, "LIMIT", 0.0)
    await service.submit()
    reply = await service.call("GET", "/jobs")
    assert (reply.status, reply.json()["code"]) == (503, "query-timeout")
    assert int(reply.headers["retry-after"]) >= 1
    assert "createdAfter" in reply.json()["detail"]


async def test_sqlite_interrupts_a_long_query(service: Service) -> None:
    if not isinstance(service.store, SqliteStore):
        pytest.skip("of SQLite")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    begin = time.monotonic()
    with pytest.raises(QueryTimeout):
        await service.store.queries.run(lambda connection: connection.rows(endless, ()))
    assert 0.5 < time.monotonic() - begin < 3
    with pytest.raises(sqlite3.OperationalError):
        await service.store.queries.run(lambda connection: connection.rows("SELECT nothing", ()))
