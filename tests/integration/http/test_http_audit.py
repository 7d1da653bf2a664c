"""The audit log: which calls it has, what an entry contains, pages, retention, and a store that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bide.server.config import AuthConfig, Config, HttpConfig
from bide.server.identities import audit
from bide.server.store import RecordFilter, StoreUnavailable
from tests.integration.http.service import MAX_BODY, Service, kinds, scope
from tests.servers.postgres import Postgres

SECRET = "s3cr3t-of-the-caller"


def audited(folder: Path, auth: AuthConfig = AuthConfig("keys")) -> Service:  # noqa: B008
    http = HttpConfig(max_body=MAX_BODY, trusted_proxies=("10.0.0.0/8",))
    return Service(folder, kinds(), Config(http=http, auth=auth))


@pytest.fixture(params=["sqlite", "postgres"])
async def service(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Service]:
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        monkeypatch.setenv("BIDE_TEST_STORE", server.url)
    else:
        monkeypatch.delenv("BIDE_TEST_STORE", raising=False)
    async with audited(tmp_path).opened() as service:
        yield service


async def entries(service: Service, key: str, query: str = "") -> list[dict[str, Any]]:
    await service.parts.audit.write()
    reply = await service.call("GET", "/audit" + query, key=key)
    assert reply.status == 200, reply.body
    found: list[dict[str, Any]] = reply.json()["entries"]
    return found


async def call_from(service: Service, address: str, key: str, forwarded: str | None = None) -> None:
    headers = {"authorization": f"Bearer {key}"}
    if forwarded is not None:
        headers["x-forwarded-for"] = forwarded
    called = scope("POST", "/queues/default/pause", headers)
    called["client"] = (address, 1234)
    assert (await service.send(called, [b""])).status == 200


async def test_every_mutating_call_is_recorded(service: Service) -> None:
    admin, reader = await service.key("ops"), await service.key("a", "read")
    trace = "0af7651916cd43dd8448eb211c80319c"
    made = await service.call(
        "POST",
        f"/jobs?dedupe={SECRET}",
        json={"kind": "echo", "input": {"value": SECRET}},
        headers={"Traceparent": f"00-{trace}-b7ad6b7169203331-01", "Idempotency-Key": SECRET},
        key=admin,
    )
    assert made.status == 422
    made = await service.call(
        "POST", "/jobs", json={"kind": "echo", "input": {"value": SECRET}}, key=admin
    )
    job_id = made.json()["jobId"]
    assert (await service.call("GET", f"/jobs/{job_id}", key=admin)).status == 200
    assert (await service.call("POST", f"/jobs/{job_id}/cancel", key=reader)).status == 403
    assert (await service.call("POST", f"/jobs/{job_id}/cancel", key=admin)).status == 200
    assert (await service.call("DELETE", "/jobs/ü%00", key=admin)).status == 404
    assert (await service.call("POST", "/nowhere", key=admin)).status == 404  # no operation
    found = await entries(service, admin)
    assert [(e["operation"], e["status"], e["tenant"]) for e in found] == [
        ("deleteJob", 404, "ops"),
        ("cancelJob", 200, "ops"),
        ("cancelJob", 403, "a"),
        ("submitJob", 202, "ops"),
        ("submitJob", 422, "ops"),
    ]
    assert found[0]["path"] == "/jobs/%C3%BC%00"
    assert found[1]["path"] == f"/jobs/{job_id}/cancel" and found[1]["method"] == "POST"
    assert found[3]["resource"] == f"/jobs/{job_id}"
    assert found[4]["traceId"] == trace and found[4]["resource"] is None
    assert found[1]["subject"] == f"key:{admin.split('_')[1]}"
    assert found[2]["subject"] == f"key:{reader.split('_')[1]}"
    stored = await service.store.records("audit", RecordFilter())
    assert all(SECRET not in text for text in stored.values())
    assert all(admin.rpartition("_")[2] not in text for text in stored.values())


async def test_every_mutating_operation_has_an_entry(service: Service) -> None:
    admin = await service.key("ops")
    called = [
        operation
        for operation in service.app.operations
        if operation.method not in ("GET", "HEAD", "OPTIONS") and operation.scope is not None
    ]
    for operation in called:
        path = operation.path.replace("{", "").replace("}", "")
        await service.call(operation.method, path, key=admin)
    found = await entries(service, admin, "?limit=100")
    assert [e["operation"] for e in reversed(found)] == [operation.name for operation in called]


async def test_the_address_of_a_caller_is_from_trusted_proxies_only(service: Service) -> None:
    admin = await service.key("ops")
    await call_from(service, "192.0.2.1", admin, forwarded="198.51.100.1")
    await call_from(service, "10.0.0.1", admin, forwarded="203.0.113.9, 198.51.100.2, 10.0.0.2")
    await call_from(service, "10.0.0.1", admin, forwarded="198.51.100.3, <script>")
    await call_from(service, "10.0.0.1", admin)
    found = [e["address"] for e in reversed(await entries(service, admin))]
    assert found == ["192.0.2.1", "198.51.100.2", "10.0.0.1", "10.0.0.1"]


async def test_pages_and_filters(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "BATCH", 3)
    monkeypatch.setattr(audit, "READ_BATCH", 2)
    admin, other = await service.key("ops"), await service.key("b")
    for i in range(20):
        path = f"/queues/q{i}/pause"
        await service.call("POST", path, key=admin if i % 4 else other)
        if i % 5 == 4:
            await service.parts.audit.write()
            service.clock.advance(0.6)
    found = await entries(service, admin, "?limit=100")
    paths = [f"/queues/q{i}/pause" for i in range(19, -1, -1)]
    assert [e["path"] for e in found] == paths
    # Pages of any size have the same entries, once.
    for limit in (1, 3, 7):
        cursor, listed = "", []
        while True:
            reply = (await service.call("GET", f"/audit?limit={limit}{cursor}", key=admin)).json()
            listed += reply["entries"]
            if reply["next"] is None:
                break
            cursor = f"&cursor={reply['next']}"
        assert listed == found
    since, until = found[12]["at"], found[3]["at"]
    expected = [e for e in found if since <= e["at"] < until]
    assert 0 < len(expected) < 20
    assert await entries(service, admin, f"?since={since}&until={until}") == expected
    subject = f"key:{other.split('_')[1]}"
    of_other = [e for e in found if e["subject"] == subject]
    assert len(of_other) == 5
    assert await entries(service, admin, f"?subject={subject}") == of_other
    assert await entries(service, admin, "?tenant=b") == of_other
    assert await entries(service, admin, "?operation=pauseQueue&limit=100") == found
    assert await entries(service, admin, "?operation=submitJob") == []
    # A page with a filter ends after MAX_EXAMINED entries, and `next` continues it.
    monkeypatch.setattr(audit, "MAX_EXAMINED", 4)
    reply = (await service.call("GET", "/audit?tenant=b", key=admin)).json()
    assert len(reply["entries"]) < 5 and reply["next"] is not None
    for wrong in ("cursor=x", f"cursor={reply['next']}%0A", "since=yesterday", "limit=0"):
        assert (await service.call("GET", f"/audit?{wrong}", key=admin)).status in (400, 422), wrong


async def test_entries_of_several_processes_within_a_second_are_in_order(service: Service) -> None:
    admin = await service.key("ops")
    start = service.store.now() // 1 + 1
    for i in range(20):
        path = f"/queues/q{i}/pause"
        of_a_process = audit.AuditLog(service.store, 86400.0)
        of_a_process.add(
            audit.AuditEntry(start + i / 40, "cli:x", "-", "pauseQueue", "POST", path, "", "", 200, "")
        )
        await of_a_process.write()
    found = await entries(service, admin, "?limit=100")
    assert [e["path"] for e in found] == [f"/queues/q{i}/pause" for i in range(19, -1, -1)]


async def test_old_entries_are_removed(service: Service) -> None:
    admin = await service.key("ops")
    await service.call("POST", "/queues/old/pause", key=admin)
    await service.parts.audit.write()
    service.clock.advance(89 * 86400)
    await service.call("POST", "/queues/new/pause", key=admin)
    await service.parts.audit.write()
    await service.parts.upkeep.clean_up.tick()
    assert len(await entries(service, admin)) == 2
    service.clock.advance(86400 + 2)
    await service.parts.upkeep.clean_up.tick()
    assert [e["path"] for e in await entries(service, admin)] == ["/queues/new/pause"]


async def test_calls_without_a_valid_credential_do_not_fill_the_store(service: Service) -> None:
    admin = await service.key("ops")
    for _ in range(50):
        assert (await service.call("POST", "/jobs", json={"kind": "echo"})).status == 401
    found = await entries(service, admin)
    assert [(e["status"], e["subject"]) for e in found] == [(401, "-")] * audit.MAX_REFUSED


async def test_a_caller_that_disconnects_is_recorded(service: Service) -> None:
    admin = await service.key()
    left = asyncio.Event()
    headers = {
        "authorization": f"Bearer {admin}",
        "content-type": "application/json",
        "prefer": "wait=60",
    }
    called = asyncio.create_task(
        service.send(scope("POST", "/jobs", headers), [b'{"kind": "echo"}'], left)
    )
    while not await service.events():
        await asyncio.sleep(0)
    left.set()
    await called
    (entry,) = await entries(service, admin)
    assert entry["operation"] == "submitJob" and entry["status"] == 499


async def test_entries_wait_for_a_store_that_fails(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = await service.key("ops")
    await service.call("POST", "/queues/a/pause", key=admin)

    def refuse(change: object) -> None:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as failing:
        failing.setattr(service.store, "change_records", refuse)
        with pytest.raises(StoreUnavailable):
            await service.parts.audit.write()
    await service.call("POST", "/queues/b/pause", key=admin)
    paths = [e["path"] for e in await entries(service, admin)]
    assert paths == ["/queues/b/pause", "/queues/a/pause"]


async def test_a_shutdown_writes_the_last_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BIDE_TEST_STORE", raising=False)
    async with audited(tmp_path).opened() as service:
        service.parts.audit.start()
        admin = await service.key("ops")
        await service.call("POST", "/queues/a/pause", key=admin)
        await service.parts.audit.stop()
        assert len(await service.store.records("audit", RecordFilter())) == 1


@pytest.mark.parametrize("auth", [AuthConfig(), AuthConfig("keys", audit=0)])
async def test_without_authentication_or_retention_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auth: AuthConfig
) -> None:
    monkeypatch.delenv("BIDE_TEST_STORE", raising=False)
    async with audited(tmp_path, auth).opened() as service:
        admin = await service.key("ops")
        await service.call("POST", "/queues/a/pause", key=admin)
        assert await entries(service, admin) == []
