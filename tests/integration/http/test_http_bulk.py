"""POST /bulk: dry run, confirm, and the job that acts on all jobs that match."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bide.core.errors import QueryTimeout, SetupError
from bide.core.jobs.record import Job
from bide.server import bulk
from bide.server.registry import Registry
from bide.server.store import BulkPage, StoreUnavailable
from tests.integration.http.service import Reply, Service
from tests.waiting import eventually


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path).opened() as service:
        await service.parts.bulk.start()
        try:
            yield service
        finally:
            await service.parts.bulk.stop()


async def post(service: Service, action: str, filter: dict[str, Any], **more: Any) -> Reply:
    service.clock.advance(0.01)
    return await service.call("POST", "/bulk", json={"action": action, "filter": filter, **more})


async def count(service: Service, action: str, filter: dict[str, Any], **more: Any) -> int:
    reply = await post(service, action, filter, dryRun=True, **more)
    assert reply.status == 200, reply.body
    assert list(reply.json()) == ["count"]
    number: int = reply.json()["count"]
    return number


async def start(service: Service, action: str, filter: dict[str, Any], **more: Any) -> str:
    reply = await post(service, action, filter, **more)
    assert reply.status == 202, reply.body
    job = reply.json()
    assert (job["kind"], job["queue"], job["replayed"]) == ("bide.bulk", "bide", False)
    assert reply.headers["location"] == f"/jobs/{job['jobId']}"
    service.clock.advance(0.01)
    return str(job["jobId"])


async def ended(service: Service, job_id: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            reply = await service.call("GET", f"/jobs/{job_id}", headers={"prefer": "wait=5"})
            if reply.json()["finishedAt"] is not None:
                job: dict[str, Any] = reply.json()
                return job


async def run(service: Service, action: str, filter: dict[str, Any], **more: Any) -> dict[str, Any]:
    job = await ended(service, await start(service, action, filter, **more))
    assert job["status"] == "DONE", job
    result: dict[str, Any] = job["result"]
    assert job["progress"]["done"] == result["changed"] + result["refused"] + result["skipped"]
    return result


async def failed(service: Service, number: int = 1) -> list[Job]:
    found = []
    for _ in range(number):
        service.clock.advance(0.01)  # ids of the same millisecond are in no order
        await service.submit()
        found.append(await service.fail(await service.claim()))
    return found


async def status_of(service: Service, job_id: str) -> str:
    return str((await service.call("GET", f"/jobs/{job_id}")).json().get("status"))


async def test_a_dry_run_counts_and_changes_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "COUNT_IDS", 2)
    await failed(service, 5)
    await service.submit(labels={"team": "ops"})
    before = await service.events()
    assert await count(service, "retry", {}) == 5
    assert await count(service, "retry", {"status": "ERROR", "code": "BROKEN"}) == 5
    assert await count(service, "retry", {"status": ["CANCELLED"]}) == 0
    assert await count(service, "cancel", {"label": "team:ops"}) == 1
    assert await count(service, "cancel", {"q": "label.team:ops kind:other"}) == 0
    assert await count(service, "cancel", {"q": "kind:echo kind:other"}) == 0
    assert await count(service, "priority", {"queue": "default"}, priority=3) == 1
    assert await count(service, "delete", {"kind": "echo"}) == 6
    assert await count(service, "delete", {"createdAfter": "2999-01-01T00:00:00Z"}) == 0
    assert await service.events() == before


async def test_every_action(service: Service) -> None:
    jobs = await failed(service, 3)
    result = await run(service, "retry", {"q": "error:BROKEN"})
    assert result == {
        "action": "retry",
        "count": 3,
        "changed": 3,
        "refused": 0,
        "skipped": 0,
        "errors": [],
    }
    assert [await status_of(service, job.id) for job in jobs] == ["PENDING"] * 3
    assert (await run(service, "priority", {"kind": "echo"}, priority=7))["changed"] == 3
    assert (await run(service, "priority", {"kind": "echo"}, priority=7))["skipped"] == 3
    claimed = await service.claim()
    assert claimed.priority == 7
    assert (await run(service, "cancel", {"kind": "echo"}))["changed"] == 3
    assert await status_of(service, claimed.id) == "PROCESSING"  # was asked to stop
    assert (await run(service, "delete", {"kind": "echo"}, confirm=2))["changed"] == 2
    replies = [await service.call("GET", f"/jobs/{job.id}") for job in jobs]
    assert sorted(reply.status for reply in replies) == [200, 410, 410]


async def test_an_action_on_jobs_by_their_ids(service: Service) -> None:
    jobs = await failed(service, 3)
    done = await service.done()
    ids = [jobs[2].id, jobs[0].id, done.id, jobs[0].id, "0" * 26]
    assert await count(service, "retry", {"id": ids}) == 2
    assert (await run(service, "retry", {"id": ids}))["changed"] == 2
    assert [await status_of(service, job.id) for job in jobs] == ["PENDING", "ERROR", "PENDING"]
    assert await status_of(service, done.id) == "DONE"
    reply = await post(service, "delete", {"id": [done.id]}, confirm=2)
    assert (reply.status, reply.json()["code"]) == (409, "not-confirmed")
    assert (await run(service, "delete", {"id": [done.id]}, confirm=1))["changed"] == 1


async def test_the_job_shows_its_input_and_removes_the_files_of_deleted_jobs(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = await failed(service)
    removed: list[str] = []

    async def remove(owner: str) -> None:
        removed.append(owner)

    monkeypatch.setattr(service.blobs, "remove", remove)
    bulk_id = await start(service, "delete", {"status": "ERROR"}, confirm=1)
    await ended(service, bulk_id)
    shown = (await service.call("GET", f"/jobs/{bulk_id}?include=input")).json()
    assert shown["input"]["action"] == "delete"
    assert shown["input"]["filter"] == {"status": "ERROR"}
    assert removed == [job.id]


async def test_delete_needs_the_count_that_was_seen(service: Service) -> None:
    await failed(service, 2)
    for more in ({}, {"confirm": 1}, {"confirm": 3}):
        reply = await post(service, "delete", {"status": "ERROR"}, **more)
        assert (reply.status, reply.json()["code"]) == (409, "not-confirmed")
        assert "2 jobs match" in reply.json()["detail"]
    assert (await post(service, "retry", {}, confirm=1)).status == 409
    assert (await run(service, "delete", {"status": "ERROR"}, confirm=2))["changed"] == 2


async def test_a_repeated_request_with_a_key_gets_the_first_job(service: Service) -> None:
    await failed(service, 2)
    body = {"action": "delete", "filter": {"status": "ERROR"}, "confirm": 2}
    key = {"idempotency-key": "once"}
    service.clock.advance(0.01)
    first = await service.call("POST", "/bulk", json=body, headers=key)
    assert first.status == 202
    await ended(service, first.json()["jobId"])
    again = await service.call("POST", "/bulk", json=body, headers=key)
    assert (again.status, again.json()["jobId"]) == (202, first.json()["jobId"])
    assert again.headers["idempotency-replayed"] == "true"
    other = await service.call("POST", "/bulk", json={**body, "confirm": 3}, headers=key)
    assert (other.status, other.json()["code"]) == (422, "idempotency-conflict")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"action": "retry", "filter": {"status": "DONE"}}, "/filter/status"),
        ({"action": "cancel", "filter": {"q": "status:ERROR"}}, "/filter/status"),
        ({"action": "delete", "filter": {"status": "PROCESSING"}}, "/filter/status"),
        ({"action": "priority", "filter": {}}, "/priority"),
        ({"action": "cancel", "filter": {}, "priority": 1}, "/priority"),
        ({"action": "priority", "filter": {}, "priority": 1001}, "/priority"),
        ({"action": "cancel", "filter": {"createdAfter": "today"}}, "/filter/createdAfter"),
        ({"action": "cancel", "filter": {"label": "team"}}, "/filter/label"),
        ({"action": "cancel", "filter": {"status": "LOST"}}, "/filter/status"),
        ({"action": "cancel", "filter": {"q": "input.height:1"}}, "/filter/q"),
        ({"action": "cancel", "filter": {"q": '"'}}, "/filter/q"),
        ({"action": "cancel", "filter": {"colour": "red"}}, "/filter/colour"),
        ({"action": "cancel", "filter": {"id": ["x"]}}, "/filter/id/0"),
        ({"action": "cancel", "filter": {"id": ["0" * 26], "kind": "echo"}}, "/filter/id"),
        ({"action": "cancel"}, ""),
        ({"action": "burn", "filter": {}}, "/action"),
    ],
)
async def test_a_wrong_request_is_refused(service: Service, body: dict[str, Any], pointer: str) -> None:
    for dry in (False, True):
        reply = await service.call("POST", "/bulk", json={**body, "dryRun": dry})
        assert reply.status == 422, reply.body
        assert reply.json()["errors"][0]["pointer"] == pointer
    assert await service.events() == 0


async def test_a_body_that_no_filter_needs_is_refused_by_its_size(service: Service) -> None:
    most_ids = ["0" * 26] * bulk.MAX_IDS
    assert await count(service, "retry", {"id": most_ids}) == 0
    reply = await post(service, "retry", {"q": "x" * 300_000})
    assert (reply.status, reply.json()["code"]) == (413, "payload-too-large")


async def test_jobs_that_are_created_later_are_not_touched(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not if they are created before the walk reaches their ids."""
    first = await service.submit()
    begun, go_on = asyncio.Event(), asyncio.Event()
    act = service.store.act

    async def held(page: BulkPage) -> Any:
        begun.set()
        await go_on.wait()
        return await act(page)

    monkeypatch.setattr(service.store, "act", held)
    bulk_id = await start(service, "cancel", {})
    later = await service.submit()
    await begun.wait()
    go_on.set()
    result = (await ended(service, bulk_id))["result"]
    assert (result["count"], result["changed"]) == (1, 1)
    assert await status_of(service, first) == "CANCELLED"
    assert await status_of(service, later) == "PENDING"


async def test_a_cancel_in_the_middle_and_a_retry_that_goes_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)
    jobs = await failed(service, 6)
    act, pages = service.store.act, 0
    cancelled: list[Reply] = []

    async def cancelling(page: BulkPage) -> Any:
        nonlocal pages
        pages += 1
        if pages == 3:  # the first only stores the count
            cancelled.append(await service.call("POST", f"/jobs/{page.job_id}/cancel"))
        return await act(page)

    monkeypatch.setattr(service.store, "act", cancelling)
    bulk_id = await start(service, "retry", {})
    job = await ended(service, bulk_id)
    assert [reply.status for reply in cancelled] == [202]
    assert job["status"] == "CANCELLED"
    assert (job["progress"]["done"], job["progress"]["total"]) == (2, 6)
    assert [await status_of(service, one.id) for one in jobs] == ["PENDING"] * 2 + ["ERROR"] * 4
    assert (await service.call("POST", f"/jobs/{bulk_id}/retry")).status == 202
    result = (await ended(service, bulk_id))["result"]
    assert (result["count"], result["changed"], result["skipped"]) == (6, 6, 0)
    for one in jobs:
        events = await service.store.events(job_id=one.id)
        assert sum(event.job["status"] == "PENDING" and event.job["run"] == 2 for event in events) == 1


async def test_bulk_actions_leave_each_other_out(service: Service) -> None:
    await service.store.pause("bide", True)
    first = await start(service, "cancel", {"kind": "echo"})
    assert await count(service, "cancel", {}) == 0
    assert await count(service, "cancel", {"kind": "bide.bulk"}) == 1
    ready = (await service.call("GET", "/readyz")).json()
    assert ready["warnings"] == []
    second = await start(service, "cancel", {"kind": "bide.bulk"})
    await service.store.pause("bide", False)
    assert (await ended(service, first))["status"] in ("DONE", "CANCELLED")
    assert (await ended(service, second))["status"] == "DONE"


async def test_a_query_that_takes_too_long_is_repeated(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "RETRY_AFTER", 0.001)
    await failed(service)
    ids, late = service.store.ids, 3

    async def slow(filter: Any) -> list[str]:
        nonlocal late
        late -= 1
        if late >= 0:
            raise QueryTimeout("too long")
        return await ids(filter)

    monkeypatch.setattr(service.store, "ids", slow)
    assert (await run(service, "retry", {}))["changed"] == 1
    late = 1000
    job = await ended(service, await start(service, "retry", {}))
    assert (job["status"], job["error"]["code"]) == ("ERROR", "QUERY_TIMEOUT")
    assert (await post(service, "retry", {}, dryRun=True)).status == 503


async def test_a_shutdown_hands_the_action_back(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 1)
    jobs = await failed(service, 3)
    act, runner = service.store.act, service.parts.bulk
    stopping: list[asyncio.Task[None]] = []

    async def then_stop(page: BulkPage) -> Any:
        done = await act(page)
        if page.ids:
            stopping.append(asyncio.create_task(runner.stop()))
            await asyncio.sleep(0)
        return done

    monkeypatch.setattr(service.store, "act", then_stop)
    bulk_id = await start(service, "retry", {})
    await eventually(lambda: stopping)
    await stopping[0]
    assert await status_of(service, bulk_id) == "PENDING"
    assert [await status_of(service, job.id) for job in jobs] == ["PENDING", "ERROR", "ERROR"]
    monkeypatch.setattr(service.store, "act", act)
    another = bulk.BulkRunner(
        service.registry, service.store, service.blobs, service.progress, 30.0, lambda: "another:1"
    )
    await another.start()
    result = (await ended(service, bulk_id))["result"]
    assert (result["count"], result["changed"], result["skipped"]) == (3, 3, 0)
    await another.stop()


async def test_a_shutdown_while_the_store_is_unavailable_does_not_fail_the_action(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await failed(service)
    tried = asyncio.Event()

    async def unavailable(page: BulkPage) -> Any:
        tried.set()
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(service.store, "act", unavailable)
    bulk_id = await start(service, "retry", {})
    await tried.wait()
    await service.parts.bulk.stop()
    assert await status_of(service, bulk_id) == "PENDING"


async def test_reserved_kinds_cannot_be_submitted_or_declared(service: Service) -> None:
    for kind in ("bide.bulk", "bide.anything"):
        reply = await service.call("POST", "/jobs", json={"kind": kind, "input": {}})
        assert (reply.status, reply.json()["code"]) == (422, "unknown-kind")
        assert "reserved" in reply.json()["detail"]
    with pytest.raises(SetupError, match="reserved"):

        @Registry().job(name="bide.mine")
        def mine() -> None: ...


async def test_a_tenant_has_a_limited_number_of_bulk_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MAX_UNENDED", 3)
    async with Service(tmp_path).opened() as service:  # nothing runs them
        wanted = {"action": "cancel", "filter": {}}
        keyed = {"idempotency-key": "first"}
        first = await service.call("POST", "/bulk", json=wanted, headers=keyed)
        for _ in range(2):
            assert (await post(service, "cancel", {})).status == 202
        refused = await post(service, "cancel", {})
        assert (refused.status, refused.json()["limit"]) == (429, "bulk")
        assert await count(service, "cancel", {}) == 0
        again = await service.call("POST", "/bulk", json=wanted, headers=keyed)
        assert again.json()["jobId"] == first.json()["jobId"] and again.json()["replayed"]
        assert (await service.call("POST", f"/jobs/{first.json()['jobId']}/cancel")).status == 200
        assert (await post(service, "cancel", {})).status == 202
