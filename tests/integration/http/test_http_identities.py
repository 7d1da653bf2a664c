"""API keys, scopes and tenants, over every operation of the service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import websockets.asyncio.client
from websockets.exceptions import ConnectionClosed, InvalidStatus

from bide.core.jobs.record import Job
from bide.server.config import AuthConfig, Config, HttpConfig, WebhookConfig
from bide.server.http.routing import HttpOperation
from bide.server.identities import Scope, authenticator
from bide.server.identities.keys import USE_INTERVAL
from bide.server.store import EventFilter, Filter, RecordFilter, StoreUnavailable
from bide.server.store.transactional_store import TransactionalStore, UploadFilter
from bide.server.webhooks import publisher
from bide.server.webhooks.retry import BREAKER_FAILURES
from tests.integration.http.service import MAX_BODY, Reply, Service, kinds
from tests.integration.http.test_http_events import SSE, listen, listening
from tests.integration.http.test_http_webhooks import deliver
from tests.receiver import Receiver
from tests.servers.postgres import Postgres
from tests.waiting import eventually

TUS = {"Tus-Resumable": "1.0.0"}
READ: tuple[Scope, ...] = ("read",)


@dataclass
class Site:
    """A service with a tenant `a` that has resources, and a tenant `b` that has none."""

    service: Service
    a: str
    b: str

    def operations(self) -> list[HttpOperation]:
        return self.service.app.operations


def protected(folder: Path) -> Service:
    config = Config(
        http=HttpConfig(max_body=MAX_BODY),
        auth=AuthConfig("keys"),
        webhooks=WebhookConfig(allow_private=True),
    )
    return Service(folder, kinds(), config)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with protected(tmp_path).opened() as service:
        yield Site(service, await service.key("a"), await service.key("b"))


@pytest.fixture(params=["sqlite", "postgres"])
async def stored(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    """The same on both stores."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        monkeypatch.setenv("BIDE_TEST_STORE", server.url)
    else:
        monkeypatch.delenv("BIDE_TEST_STORE", raising=False)
    async with protected(tmp_path).opened() as service:
        yield Site(service, await service.key("a"), await service.key("b"))


async def submit(site: Site, key: str, kind: str = "echo", **more: Any) -> str:
    reply = await site.service.call("POST", "/jobs", json={"kind": kind, **more}, key=key)
    assert reply.status == 202, reply.body
    job_id: str = reply.json()["jobId"]
    return job_id


# --- scopes


# What an operation needs besides its path, so that only the identity can be wrong.
BODIES: dict[str, dict[str, Any]] = {
    "patchFile": {
        "headers": {
            **TUS,
            "Upload-Offset": "0",
            "Content-Type": "application/offset+octet-stream",
        },
        "body": b"x",
    },
    "headFile": {"headers": TUS},
    "deleteFile": {"headers": TUS},
    "overrideFileMethod": {"headers": {**TUS, "X-HTTP-Method-Override": "DELETE"}},
    "putChunk": {"body": b"x", "headers": {"Content-Length": "1"}},
    "signParts": {"json": {"numbers": [1]}},
    "updateWebhook": {"json": {"enabled": False}},
    "replayWebhook": {"json": {"from": "2026-01-01T00:00:00Z"}},
}
SAFE = ("GET", "HEAD", "OPTIONS")


def path_of(operation: HttpOperation, **ids: str) -> str:
    """The path with these ids, and with any text for other parameters."""
    return re.sub(r"\{(\w+)\}", lambda name: ids.get(name[1], "1"), operation.path)


async def call(site: Site, operation: HttpOperation, path: str, key: str | None = None) -> Reply:
    return await site.service.call(operation.method, path, key=key, **BODIES.get(operation.name, {}))


async def test_a_probe_shows_details_to_an_admin_only(site: Site) -> None:
    site.service.engine.unserved.add("video")
    for key in (None, "wrong", await site.service.key("a", "read")):
        reply = await site.service.call("GET", "/readyz", key=key)
        assert (reply.status, reply.json()) == (200, {"status": "ready"})
    reply = await site.service.call("GET", "/readyz", key=site.a)
    assert reply.json()["warnings"][0]["code"] == "queue-unserved"


@pytest.mark.parametrize(
    "header",
    ["Basic YTpi", "Bearer", "Bearer ", "Bearer {key} x", "{key}", "Bearer {key}, Bearer {key}"],
)
async def test_only_one_bearer_token_counts(site: Site, header: str) -> None:
    lines = {"authorization": header.format(key=site.a)}
    assert (await site.service.call("GET", "/jobs", headers=lines)).status == 401
    for accepted in (f"bearer {site.a}", f"Bearer  {site.a}"):
        reply = await site.service.call("GET", "/jobs", headers={"authorization": accepted})
        assert reply.status == 200


async def test_only_one_form_of_a_header_is_kept(site: Site) -> None:
    """Otherwise one caller could fill the memory with long headers, and displace those of the other callers."""
    authenticator = site.service.parts.authenticator
    assert authenticator is not None
    known = authenticator._known
    assert (await site.service.call("GET", "/jobs", key=site.a)).status == 200
    before = set(known)
    for count in (2, 300):
        lines = {"authorization": f"Bearer{' ' * count}{site.a}{' ' * count}"}
        assert (await site.service.call("GET", "/jobs", headers=lines)).status == 200
    assert set(known) == before


async def test_the_document_names_the_scope_of_each_operation(site: Site) -> None:
    document = (await site.service.call("GET", "/openapi.json", key=site.a)).json()
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert document["paths"]["/jobs"]["post"]["security"] == [{"bearer": ["submit"]}]
    assert "security" not in document["paths"]["/healthz"]["get"]


# --- other tenants


async def resources(site: Site) -> dict[str, list[str]]:
    """Resources of tenant `a`, by the names of path parameters."""
    service, key = site.service, site.a
    waiting = await submit(site, key)
    done = await submit(site, key, "encode", input={"source": "x"})
    await service.finish(await service.claim("encode", "video"))
    removed = await submit(site, key)
    assert (await service.call("POST", f"/jobs/{removed}/cancel", key=key)).status == 200
    assert (await service.call("DELETE", f"/jobs/{removed}", key=key)).status == 204
    tus = await service.call(
        "POST", "/files", key=key, headers={**TUS, "Upload-Length": "10", "Content-Length": "0"}
    )
    chunked = await service.call(
        "POST", "/uploads/chunked", key=key, json={"size": 2 << 20, "chunkSize": 1 << 20}
    )
    signed = await service.call(
        "POST", "/uploads/presign", key=key, json={"size": 20 << 20, "multipart": True}
    )
    whole = await service.call("POST", "/uploads", key=key, body=b"data")
    gone = await service.call("POST", "/uploads", key=key, body=b"old")
    gone_id = gone.json()["uploadId"]
    assert (await service.call("DELETE", f"/uploads/{gone_id}", key=key)).status == 204
    webhook = await service.call("POST", "/webhooks", key=key, json={"url": "http://127.0.0.1:9/"})
    assert [r.status for r in (tus, chunked, signed, whole, webhook)] == [201] * 5
    return {
        "jobId": [waiting, done, removed],
        "uploadId": [
            tus.headers["location"].rpartition("/")[2],
            *(r.json()["uploadId"] for r in (chunked, signed, whole)),
            gone_id,
        ],
        "webhookId": [webhook.json()["id"]],
    }


async def everything(service: Service) -> Any:
    """All rows that a request could change."""
    store = service.store
    assert isinstance(store, TransactionalStore)
    uploads = await store.uploads(UploadFilter())
    records = {
        table: await store.records(table, RecordFilter())
        for table in ("webhooks", "deliveries", "replays")
    }
    events = [(await store.read_log(EventFilter(tenant))).events for tenant in ("a", "b", "-")]
    jobs = await store.find(Filter(limit=1000))
    return jobs, sorted(uploads, key=lambda upload: upload.id), records, events


@pytest.mark.parametrize("stored", ["postgres"], indirect=True)
async def test_resources_of_another_tenant_do_not_exist_in_postgres(stored: Site) -> None:
    """With SQLite, tests/acceptance/test_adversary.py shows it over the socket."""
    site = stored
    known = await resources(site)
    unknown = "01" + "0" * 24
    before = await everything(site.service)
    tried = set()
    for operation in site.operations():
        if operation.scope is None:
            continue
        for name, ids in known.items():
            if f"{{{name}}}" not in operation.path:
                continue
            tried.add(operation.name)
            absent = await call(site, operation, path_of(operation, **{name: unknown}), site.b)
            assert absent.status == 404, (operation.name, absent)
            for foreign in ids:
                reply = await call(site, operation, path_of(operation, **{name: foreign}), site.b)
                assert reply.status == 404, (operation.name, reply)
                assert _anonymous(reply, foreign) == _anonymous(absent, unknown), operation.name
                assert reply.headers.keys() == absent.headers.keys()
    assert await everything(site.service) == before
    with_ids = {
        o.name for o in site.operations() if o.scope and re.search(r"\{(job|upload|webhook)Id\}", o.path)
    }
    assert tried == with_ids and len(tried) > 20
    own = await site.service.call("GET", f"/jobs/{known['jobId'][2]}", key=site.a)
    assert own.status == 410
    assert (await site.service.call("GET", f"/uploads/{known['uploadId'][4]}", key=site.a)).status == 410


def _anonymous(reply: Reply, own_id: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(reply.body.replace(own_id.encode(), b"ID") or b"{}")
    document.pop("traceId", None)
    return document


async def test_lists_and_statistics_are_of_one_tenant(stored: Site) -> None:
    site = stored
    known = await resources(site)
    service, first = site.service, known["jobId"][0]
    mine = await submit(site, site.b)

    async def jobs(path: str) -> list[str]:
        reply = (await service.call("GET", path, key=site.b)).json()
        return [job["jobId"] for job in reply["jobs"]]

    assert await jobs("/jobs") == [mine]
    assert await jobs(f"/jobs?q={first}") == []
    assert await jobs("/jobs?status=DONE") == []
    by_id = (await service.call("GET", f"/jobs?id={first}&id={mine}", key=site.b)).json()
    assert ([job["jobId"] for job in by_id["jobs"]], by_id["missing"]) == ([mine], [first])
    counted = (await service.call("GET", "/jobs?count=true", key=site.b)).json()
    assert counted["count"] == {"value": 1, "more": False}
    stats = (await service.call("GET", "/stats", key=site.b)).json()
    assert stats["total"]["submitted"] == 1
    bulk = {"action": "cancel", "filter": {}, "dryRun": True}
    assert (await service.call("POST", "/bulk", json=bulk, key=site.b)).json() == {"count": 1}
    named = {"action": "cancel", "filter": {"id": [first, mine]}, "dryRun": True}
    assert (await service.call("POST", "/bulk", json=named, key=site.b)).json() == {"count": 1}
    assert (await service.call("GET", "/uploads", key=site.b)).json()["uploads"] == []
    assert (await service.call("GET", "/webhooks", key=site.b)).json() == {"webhooks": []}
    secrets = [
        (await service.call("GET", "/webhooks/secret", key=key)).json() for key in (site.a, site.b)
    ]
    assert secrets[0] != secrets[1]
    page = (await service.call("GET", "/events", key=site.b)).json()
    assert {event["jobId"] for event in page["events"]} == {mine}
    page = (await service.call("GET", f"/events?id={first}", key=site.b)).json()
    assert page["events"] == []


async def test_live_events_are_of_one_tenant(site: Site) -> None:
    """An event stream, and a WebSocket with the ids of jobs of another tenant and without a filter."""
    service = site.service
    foreign, unknown = await submit(site, site.a), "01" + "0" * 24
    async with listening(service) as client, contextlib.AsyncExitStack() as opened:
        bearer = {"Authorization": f"Bearer {site.b}"}
        stream = listen(await client.get("/events", headers={**SSE, **bearer}))
        snapshot = await anext(stream)
        url = str(client._base_url).rstrip("/").replace("http", "ws", 1) + "/ws"
        connect = websockets.asyncio.client.connect(url, proxy=None, additional_headers=bearer)
        socket = await opened.enter_async_context(connect)

        async def hear() -> dict[str, Any]:
            heard: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), 20))
            return heard

        answers = []
        for job_id in (foreign, unknown):
            await socket.send(json.dumps({"subscribe": {"jobs": [job_id]}}))
            answers.append(json.dumps((await hear())["problem"]).replace(job_id, "ID"))
        assert answers[0] == answers[1] and "does not exist" in answers[0]
        await socket.send(json.dumps({"subscribe": {"filter": {}}}))
        for text in map(json.dumps, (snapshot.data, await hear())):
            assert foreign not in text and '"PENDING": 1' not in text, text
        await service.finish(await service.claim())  # the job of `a`
        mine = await submit(site, site.b)
        assert (await hear())["jobId"] == mine
        heard = await asyncio.wait_for(anext(stream), 20)
        assert heard.data["jobId"] == mine


async def test_keys_of_submissions_are_of_one_tenant(site: Site) -> None:
    echo = {"kind": "echo", "input": {"value": 1}}
    unique = {"kind": "preview", "input": {"video": "v"}}
    for path, job, headers in (
        ("/jobs", echo, {"Idempotency-Key": "one"}),
        ("/jobs?dedupe=content", echo, {}),
        ("/jobs", unique, {}),
    ):
        replies = [
            await site.service.call("POST", path, json=job, key=key, headers=headers)
            for key in (site.a, site.b, site.a)
        ]
        ids = [reply.json()["jobId"] for reply in replies]
        assert ids[0] == ids[2] != ids[1]
        assert [reply.json()["replayed"] for reply in replies] == [False, False, True]


async def test_files_of_another_tenant_are_no_input(site: Site) -> None:
    service = site.service
    upload = (await service.call("POST", "/uploads", key=site.a, body=b"data")).json()["uploadId"]
    for ref in ({"upload": upload}, {"upload": "01" + "0" * 24}):
        job = {"kind": "thumbnail", "input": {"video": ref}}
        reply = await service.call("POST", "/jobs", json=job, key=site.b)
        assert reply.status == 422 and "does not exist" in reply.json()["detail"]
    job = {"kind": "thumbnail", "input": {"video": {"upload": upload}}}
    assert (await service.call("POST", "/jobs", json=job, key=site.a)).status == 202
    parts = []
    for key in (site.a, site.b):
        lines = {**TUS, "Upload-Length": "0", "Upload-Concat": "partial", "Content-Length": "0"}
        made = await service.call("POST", "/files", key=key, headers=lines)
        parts.append(made.headers["location"])
    lines = {**TUS, "Upload-Concat": f"final;{' '.join(parts)}", "Content-Length": "0"}
    assert (await service.call("POST", "/files", key=site.b, headers=lines)).status == 404


async def test_a_job_and_its_uploads_have_the_tenant_of_the_key(site: Site) -> None:
    service = site.service
    chunked = {"size": 1, "kind": "thumbnail", "name": "a.mp4"}
    begun = (await service.call("POST", "/uploads/chunked", json=chunked, key=site.a)).json()
    done = await service.call("PUT", f"/uploads/{begun['uploadId']}/chunks/0", body=b"x", key=site.a)
    job_id = done.json()["jobId"]
    job = (await service.store.get([job_id]))[0]
    assert isinstance(job, Job) and job.tenant == "a"
    batch = await service.call("POST", "/jobs/batch", json={"jobs": [{"kind": "echo"}]}, key=site.a)
    (one,) = batch.json()["jobs"]
    assert (await service.call("GET", f"/jobs/{one['jobId']}", key=site.a)).status == 200
    assert (await service.call("GET", f"/jobs/{one['jobId']}", key=site.b)).status == 404


async def test_webhooks_receive_the_events_of_their_tenant(site: Site) -> None:
    service = site.service
    async with Receiver().serving() as receiver:
        hooks = {}
        for name, key in (("a", site.a), ("b", site.b)):
            hook = {"url": f"{receiver.url}/{name}", "events": ["terminal"]}
            made = (await service.call("POST", "/webhooks", json=hook, key=key)).json()
            receiver.secrets.append(made["secret"])
            hooks[name] = made["id"]
        job_id = await submit(site, site.a)
        await service.finish(await service.claim())
        try:
            await deliver(service)
        finally:
            await service.parts.webhooks.publisher.stop()
        counts = {}
        for name, key in (("a", site.a), ("b", site.b)):
            reply = await service.call("GET", f"/webhooks/{hooks[name]}/deliveries", key=key)
            counts[name] = [json.loads(d["body"])["data"]["jobId"] for d in reply.json()["deliveries"]]
        assert counts == {"a": [job_id], "b": []}


async def test_failed_messages_of_a_tenant_do_not_delay_those_of_others(site: Site) -> None:
    """Tenants may have webhooks at the same host."""
    service = site.service
    receiver = Receiver(answer=lambda message: 500 if message.path.endswith("/b") else None)
    async with receiver.serving():
        for name, key in (("a", site.a), ("b", site.b)):
            hook = {"url": f"{receiver.url}/{name}", "events": ["terminal"]}
            made = (await service.call("POST", "/webhooks", json=hook, key=key)).json()
            receiver.secrets.append(made["secret"])
        for _ in range(BREAKER_FAILURES):
            await submit(site, site.b)
            await service.finish(await service.claim())
        try:
            await deliver(service)
            job_id = await submit(site, site.a)
            await service.finish(await service.claim())
            await deliver(service)
        finally:
            await service.parts.webhooks.publisher.stop()
        assert receiver.statuses(job_id) == ["DONE"]


async def test_a_tenant_with_slow_receivers_leaves_requests_for_others(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "IN_TOTAL", 4)
    service, hangs = site.service, asyncio.Event()
    monkeypatch.setattr(service.parts.webhooks.publisher._sender, "_timeout", 600.0)
    async with Receiver().serving() as receiver, Receiver(hangs=hangs).serving() as hanging:
        for place, key in ((receiver, site.a), (hanging, site.b)):
            hook = {"url": place.url, "events": ["terminal"]}
            made = (await service.call("POST", "/webhooks", json=hook, key=key)).json()
            place.secrets.append(made["secret"])
        for key in (site.b,) * 4 + (site.a,):
            await submit(site, key)
            await service.finish(await service.claim())
            await service.parts.webhooks.publisher.tick()
        try:
            await eventually(lambda: len(receiver.messages) == 1)
        finally:
            hangs.set()
            await deliver(service)
            await service.parts.webhooks.publisher.stop()
        assert len(hanging.messages) == 4


async def test_events_of_queues_need_admin(site: Site) -> None:
    service = site.service
    operator, reader = await service.key("-"), await service.key("-", "read", "control")
    assert (await service.call("POST", "/queues/video/pause", key=operator)).status == 200
    for key, seen in ((operator, ["queue"]), (reader, []), (site.b, [])):
        page = (await service.call("GET", "/events", key=key)).json()
        assert [event["type"] for event in page["events"]] == seen
    assert (await service.call("GET", "/events?type=status,queue", key=reader)).status == 403
    hook = {"url": "http://127.0.0.1:9/", "events": ["queue"]}
    assert (await service.call("POST", "/webhooks", json=hook, key=reader)).status == 403
    made = (
        await service.call("POST", "/webhooks", json={**hook, "events": ["status"]}, key=reader)
    ).json()
    change = {"events": ["queue"]}
    reply = await service.call("PATCH", f"/webhooks/{made['id']}", json=change, key=reader)
    assert reply.status == 403
    # Nor may others send the messages of an operator's webhook elsewhere, sign them, or read them.
    made = (await service.call("POST", "/webhooks", json=hook, key=operator)).json()
    place, ago = f"/webhooks/{made['id']}", {"from": "2020-01-01T00:00:00Z"}
    calls: list[tuple[str, str, Any]] = [
        ("PATCH", "", {"url": "http://127.0.0.1:10/"}),
        ("POST", "/rotate", None),
        ("POST", "/replay", ago),
        ("GET", "/deliveries", None),
    ]
    for method, path, body in calls:
        reply = await service.call(method, place + path, json=body, key=reader)
        assert reply.status == 403, (method, path)
    shown = (await service.call("GET", place, key=operator)).json()
    assert shown["url"] == hook["url"]


# --- keys


async def test_the_life_of_a_key(stored: Site) -> None:
    site = stored
    service, admin = site.service, site.a
    new = {"name": "robot", "scopes": ["read"], "tenant": "c", "expiresAt": "2100-01-01T00:00:00Z"}
    made = await service.call("POST", "/keys", json=new, key=admin)
    assert made.status == 201 and made.headers["cache-control"] == "no-store"
    key = made.json()
    assert re.fullmatch(r"bide_[0-9a-z]{12}_[0-9A-Za-z]{43}", key["key"])
    assert key["key"].split("_")[1] == key["id"]
    assert (await service.call("GET", "/jobs", key=key["key"])).status == 200
    (listed,) = [k for k in (await service.call("GET", "/keys", key=admin)).json()["keys"] if k["name"]]
    assert "key" not in listed and listed["tenant"] == "c" and listed["scopes"] == ["read"]
    # The secret is in no record of the store.
    records = await service.store.records("api_keys", RecordFilter(tenant="-"))
    assert key["key"].split("_")[2] not in "".join(records.values())

    rotated = await service.call("POST", f"/keys/{key['id']}/rotate", json={"overlap": 60}, key=admin)
    again = rotated.json()
    assert again["id"] == key["id"] and again["key"] != key["key"]
    for text in (key["key"], again["key"]):
        assert (await service.call("GET", "/jobs", key=text)).status == 200
    service.clock.advance(61)
    assert (await service.call("GET", "/jobs", key=key["key"])).status == 401
    assert (await service.call("GET", "/jobs", key=again["key"])).status == 200

    last = (
        await service.call("POST", f"/keys/{key['id']}/rotate", json={"overlap": 0}, key=admin)
    ).json()
    assert (await service.call("GET", "/jobs", key=again["key"])).status == 401
    assert (await service.call("GET", "/jobs", key=last["key"])).status == 200
    assert (await service.call("DELETE", f"/keys/{key['id']}", key=admin)).status == 204
    reply = await service.call("GET", "/jobs", key=last["key"])
    assert reply.status == 401 and "error=" in reply.headers["www-authenticate"]
    for method, path in (("DELETE", ""), ("POST", "/rotate")):
        assert (await service.call(method, f"/keys/{key['id']}{path}", key=admin)).status == 404


async def test_a_key_expires(site: Site) -> None:
    service = site.service
    now = service.store.now()
    _, text = await service.parts.keys.create(tenant="a", scopes=READ, expires_at=now + 10)
    assert (await service.call("GET", "/jobs", key=text)).status == 200
    service.clock.advance(10)
    reply = await service.call("GET", "/jobs", key=text)
    assert reply.status == 401
    past = {"expiresAt": "2001-01-01T00:00:00Z"}
    assert (await service.call("POST", "/keys", json=past, key=site.a)).status == 422


async def test_bad_keys_are_refused(site: Site) -> None:
    bodies: list[dict[str, Any]] = [
        {"scopes": []},
        {"scopes": ["root"]},
        {"tenant": ""},
        {"tenant": "a/b"},
        {"tenant": "a\n"},
        {"expiresAt": "soon"},
        {"name": "\0"},
    ]
    for body in bodies:
        reply = await site.service.call("POST", "/keys", json=body, key=site.a)
        assert reply.status == 422, body
    rotation = {"overlap": -1}
    reply = await site.service.call("POST", "/keys/x/rotate", json=rotation, key=site.a)
    assert reply.status == 422


async def test_the_last_use_is_written_once_per_minute(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "REFRESH", 0.01)
    service = site.service

    async def used() -> dict[str, str | None]:
        keys = (await service.call("GET", "/keys", key=site.a)).json()["keys"]
        return {key["tenant"]: key["lastUsedAt"] for key in keys}

    begin = (await used())["b"]
    assert begin is None
    await service.call("GET", "/jobs", key=site.b)
    service.clock.advance(2 * USE_INTERVAL)
    async with asyncio.timeout(20):
        while (first := (await used())["b"]) is None:
            await asyncio.sleep(0.01)
    await service.call("GET", "/jobs", key=site.b)
    service.clock.advance(USE_INTERVAL / 2)
    await asyncio.sleep(0.1)
    assert (await used())["b"] == first


async def test_a_replica_notices_a_revoked_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second set of keys changes the store, as another replica does."""
    monkeypatch.setattr(authenticator, "REFRESH", 0.02)
    from bide.server.identities.keys import ApiKeys

    async with protected(tmp_path).opened() as service:
        elsewhere = ApiKeys(service.store)
        key, text = await elsewhere.create(tenant="a", scopes=READ)

        async def until(status: int) -> None:
            async with asyncio.timeout(20):
                while (await service.call("GET", "/jobs", key=text)).status != status:
                    await asyncio.sleep(0.01)

        await until(200)
        await elsewhere.revoke(key.id)
        await until(401)


async def test_while_keys_cannot_be_checked_requests_get_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "REFRESH", 0.02)
    monkeypatch.setattr(authenticator, "STALE", 0.1)
    async with protected(tmp_path).opened() as service:
        key = await service.key("a")

        async def until(status: int) -> None:
            async with asyncio.timeout(20):
                while (await service.call("GET", "/jobs", key=key)).status != status:
                    await asyncio.sleep(0.02)

        def failing(error: Exception) -> Callable[..., Awaitable[dict[str, str]]]:
            async def records(*_: Any) -> dict[str, str]:
                raise error

            return records

        for error in (StoreUnavailable("it is gone"), RuntimeError("a mistake")):
            await until(200)
            with monkeypatch.context() as patched:
                patched.setattr(service.store, "records", failing(error))
                await until(503)
        await until(200)


async def test_what_the_page_on_security_does_not_promise(site: Site) -> None:
    """Durations, kinds and event numbers come from all tenants; a signed URL outlives its key."""
    service = site.service
    for _ in range(3):
        await submit(site, site.a)
        job = await service.claim()
        service.clock.advance(2)
        await service.finish(job)
    mine = await submit(site, site.b)
    known = (await service.call("GET", "/kinds", key=site.b)).json()["kinds"]
    assert {one["kind"]: one["durations"] for one in known}["echo"]["jobs"] == 3
    page = (await service.call("GET", "/events", key=site.b)).json()
    assert [event["jobId"] for event in page["events"]] == [mine]
    assert int(page["next"].rpartition("-")[2]) > 3
    await service.claim()
    assert (await service.call("GET", f"/jobs/{mine}", key=site.b)).json()["eta"] is not None

    revoked = await service.key("b", "submit")
    wanted = {"name": "a.txt", "size": 3}
    lines = {"Host": "bide.example"}
    made = await service.call("POST", "/uploads/presign", json=wanted, headers=lines, key=revoked)
    signed = made.json()
    gone = f"/keys/{revoked.split('_')[1]}"
    assert (await service.call("DELETE", gone, key=site.a)).status == 204
    assert (await service.call("GET", "/uploads", key=revoked)).status == 401
    path = signed["url"].removeprefix("http://bide.example")
    lines = {**signed["headers"], "Content-Length": "3"}
    assert (await service.call(signed["method"], path, body=b"abc", headers=lines)).status == 200


# --- open streams


async def test_open_streams_end_when_the_key_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "REFRESH", 0.02)
    from bide.server.identities.keys import ApiKeys

    async with protected(tmp_path).opened() as service, listening(service) as client:
        key, text = await service.parts.keys.create(tenant="a", scopes=("read", "submit"))
        other = await service.key("a")
        bearer = {"Authorization": f"Bearer {text}"}
        made = await client.post("/jobs", json={"kind": "echo"}, headers=bearer)
        job_id = (await made.json())["jobId"]
        polls = [
            client.get(f"/jobs/{job_id}", headers={**bearer, "Prefer": "wait=50"}),
            client.get(f"/jobs/{job_id}/log", headers={**bearer, "Prefer": "wait=50"}),
            client.get(f"/events?after={await _end(service)}", headers={**bearer, "Prefer": "wait=50"}),
        ]
        held = [asyncio.ensure_future(poll) for poll in polls]
        kept = asyncio.ensure_future(
            client.get(
                f"/jobs/{job_id}",
                headers={"Authorization": f"Bearer {other}", "Prefer": "wait=50"},
            )
        )
        url = str(client._base_url).rstrip("/").replace("http", "ws", 1) + "/ws"
        async with (
            client.get("/events", headers={**SSE, **bearer}) as events,
            websockets.asyncio.client.connect(url, proxy=None, additional_headers=bearer) as socket,
        ):
            stream = listen(events)
            assert (await anext(stream)).event == "snapshot"
            await socket.send(json.dumps({"subscribe": {"jobs": [job_id]}}))
            assert json.loads(await socket.recv())["type"] == "snapshot"
            await eventually(lambda: service.notify.waiting == 3)
            await eventually(lambda: service.parts.events.subscriptions == 3)
            await ApiKeys(service.store).revoke(key.id)
            assert [heard async for heard in stream] == []
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(socket.recv(), 20)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        for poll in held:
            answer = await asyncio.wait_for(poll, 20)
            assert (answer.status, (await answer.json())["code"]) == (401, "unauthenticated")
        assert not kept.done()
        await service.finish(await service.claim())
        assert (await kept).status == 200
        with pytest.raises(InvalidStatus) as refused:
            await websockets.asyncio.client.connect(url, proxy=None, additional_headers=bearer)
        assert refused.value.response.status_code == 401


async def test_a_stream_ends_when_its_secret_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "REFRESH", 0.02)
    async with protected(tmp_path).opened() as service, listening(service) as client:
        key, text = await service.parts.keys.create(tenant="a", scopes=READ)
        bearer = {"Authorization": f"Bearer {text}"}
        async with client.get("/events", headers={**SSE, **bearer}) as events:
            stream = listen(events)
            assert (await anext(stream)).event == "snapshot"
            await service.parts.keys.rotate(key.id, overlap=60)
            service.clock.advance(59)
            assert (await service.call("GET", "/jobs", key=text)).status == 200
            service.clock.advance(1)
            assert (await service.call("GET", "/jobs", key=text)).status == 401
            async with asyncio.timeout(20):
                assert [heard async for heard in stream] == []


async def test_a_revoked_key_ends_everything_within_5_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Postgres
) -> None:
    """Event streams, WebSockets, long polls and uploads, on the replica that revokes the key and on another one."""
    monkeypatch.setenv("BIDE_TEST_STORE", postgres.url)
    async with (
        protected(tmp_path).opened() as one,
        protected(tmp_path).opened() as two,
        listening(one) as first,
        listening(two) as second,
        contextlib.AsyncExitStack() as opened,
    ):
        admin, text = await one.key("-"), await one.key("a", "read", "submit")
        bearer = {"Authorization": f"Bearer {text}"}

        async def knows_the_key() -> bool:
            return (await second.get("/jobs", headers=bearer)).status == 200

        async with asyncio.timeout(20):
            while not await knows_the_key():
                await asyncio.sleep(0.05)
        ends = [
            asyncio.ensure_future(end)
            for client in (first, second)
            for end in await _open_everything(client, bearer, opened)
        ]
        assert len(ends) == 8 and not [end for end in ends if end.done()]
        begin = time.monotonic()
        assert (await one.call("DELETE", f"/keys/{text.split('_')[1]}", key=admin)).status == 204
        ended = await asyncio.wait_for(asyncio.gather(*ends), 30)
        assert max(ended) - begin < 5, [round(end - begin, 1) for end in ended]


async def _open_everything(
    client: aiohttp.ClientSession, bearer: dict[str, str], opened: contextlib.AsyncExitStack
) -> list[Coroutine[Any, Any, float]]:
    """Open a stream, a WebSocket, a long poll and an upload. Each of the results returns when its own has ended."""
    made = await client.post("/jobs", json={"kind": "echo"}, headers=bearer)
    job_id = (await made.json())["jobId"]
    stream = listen(await client.get("/events", headers={**SSE, **bearer}))
    assert (await anext(stream)).event == "snapshot"
    url = str(client._base_url).rstrip("/").replace("http", "ws", 1) + "/ws"
    connect = websockets.asyncio.client.connect(url, proxy=None, additional_headers=bearer)
    socket = await opened.enter_async_context(connect)
    size = {"Upload-Length": str(1 << 30), **TUS}
    begun = await client.post("/files", headers={**size, **bearer})
    sent = asyncio.Event()

    async def send() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1024)
            sent.set()
            await asyncio.sleep(0.02)

    async def end_of_stream() -> float:
        assert "end" not in [heard.event async for heard in stream]
        return time.monotonic()

    async def end_of_socket() -> float:
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        return time.monotonic()

    async def end_of_poll(polled: asyncio.Future[aiohttp.ClientResponse]) -> float:
        assert (await polled).status == 401
        return time.monotonic()

    poll = client.get(f"/jobs/{job_id}", headers={**bearer, "Prefer": "wait=50"})
    lines = {**TUS, **bearer, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    upload = client.patch(begun.headers["Location"], data=send(), headers=lines)
    running = [asyncio.ensure_future(request) for request in (poll, upload)]
    await asyncio.wait_for(sent.wait(), 20)
    return [end_of_stream(), end_of_socket(), *map(end_of_poll, running)]


async def _end(service: Service) -> str:
    page = await service.store.read_log(EventFilter("a", limit=0))
    return f"{page.epoch}-{page.last}"


async def test_a_page_of_another_origin_may_ask_before_it_has_a_key(tmp_path: Path) -> None:
    config = Config(http=HttpConfig(origins=("https://page.example",)), auth=AuthConfig("keys"))
    async with Service(tmp_path, kinds(), config).opened() as service:
        lines = {"origin": "https://page.example", "host": "service.example"}
        asked = {**lines, "access-control-request-method": "GET"}
        preflight = await service.call("OPTIONS", "/jobs", headers=asked)
        assert preflight.status == 204
        assert "Authorization" in preflight.headers["access-control-allow-headers"]
        refused = await service.call("GET", "/jobs", headers=lines)
        assert refused.status == 401
        assert refused.headers["access-control-allow-origin"] == "https://page.example"


async def test_without_authentication_there_is_one_tenant(service: Service) -> None:
    """A service that ran with keys before, and runs without them now, shows nothing of other tenants."""
    theirs = await service.intake.submit(_echo(), trace_id="t", tenant="a")
    assert (await service.call("GET", f"/jobs/{theirs.job.id}")).status == 404
    mine = await service.submit()
    reply = await service.call("GET", f"/jobs/{mine}", key="anything")
    assert reply.status == 200


def _echo() -> Any:
    from bide.server.intake import Submission

    return Submission("echo")
