"""Webhooks: endpoints, deliveries, retries, secrets, tests and replays, with a receiver that verifies every message."""

from __future__ import annotations

import asyncio
import json
import random
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bide.core.clock import render_instant
from bide.server.config import Config, HttpConfig, WebhookConfig
from bide.server.webhooks import publisher as publishing
from bide.server.webhooks.retry import BREAKER_FAILURES, DELAYS
from tests.integration.http.service import MAX_BODY, Reply, Service
from tests.receiver import Receiver
from tests.waiting import eventually

PRIVATE = Config(http=HttpConfig(max_body=MAX_BODY), webhooks=WebhookConfig(allow_private=True))
DAY = 86400.0


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, config=PRIVATE).opened() as service:
        try:
            yield service
        finally:
            await service.parts.webhooks.publisher.stop()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver().serving() as receiver:
        yield receiver


async def create(service: Service, receiver: Receiver, path: str = "", **more: Any) -> dict[str, Any]:
    reply = await service.call("POST", "/webhooks", json={"url": receiver.url + path, **more})
    assert reply.status == 201, reply.body
    created: dict[str, Any] = reply.json()
    receiver.secrets.append(created["secret"])
    assert created["secret"].startswith("whsec_")
    return created


async def deliver(service: Service) -> None:
    """Send everything that is due now."""
    publisher = service.parts.webhooks.publisher
    async with asyncio.timeout(30):
        while True:
            pause = await publisher.tick()
            if not publisher._tasks and pause > 0:
                return
            await publisher.settled()


async def deliveries(service: Service, webhook: dict[str, Any], query: str = "") -> list[dict[str, Any]]:
    reply = await service.call("GET", f"/webhooks/{webhook['id']}/deliveries{query}")
    found: list[dict[str, Any]] = reply.json()["deliveries"]
    return found


async def get(service: Service, webhook: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (await service.call("GET", f"/webhooks/{webhook['id']}")).json()
    return found


# --- endpoints


async def test_a_webhook_is_created_listed_changed_and_deleted(service: Service) -> None:
    url = "https://example.org/hook"
    reply = await service.call("POST", "/webhooks", json={"url": url, "kinds": ["echo"]})
    created = reply.json()
    secret = created.pop("secret")
    assert reply.headers["location"] == f"/webhooks/{created['id']}"
    assert (created["events"], created["kinds"], created["enabled"]) == (["terminal"], ["echo"], True)
    listed = await service.call("GET", "/webhooks")
    assert listed.json() == {"webhooks": [created]}
    patch = {"enabled": False, "events": ["status", "step", "status"], "labels": {"team": "ops"}}
    changed = (await service.call("PATCH", f"/webhooks/{created['id']}", json=patch)).json()
    assert changed["events"] == ["status", "step"]
    assert (changed["enabled"], changed["labels"], changed["kinds"]) == (
        False,
        patch["labels"],
        ["echo"],
    )
    assert await get(service, created) == changed
    rotated = (await service.call("POST", f"/webhooks/{created['id']}/rotate")).json()
    assert rotated.pop("secret") not in (secret, "")
    assert secret.encode() not in listed.body
    assert (await service.call("DELETE", f"/webhooks/{created['id']}")).status == 204
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/test"), ("GET", "/deliveries")):
        reply = await service.call(method, f"/webhooks/{created['id']}{path}")
        assert reply.status == 404
    assert (await service.call("GET", "/webhooks")).json() == {"webhooks": []}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"url": "ftp://example.org"}, "/url"),
        ({"url": "example.org/hook"}, "/url"),
        ({"url": "https://user:pass@example.org/"}, "/url"),
        ({"url": "https://example.org/#part"}, "/url"),
        ({"url": "https://example.org:99999/"}, "/url"),
        ({"url": "https://example.org/a b"}, "/url"),
        ({"url": "https://example.org/", "events": []}, "/events"),
        ({"url": "https://example.org/", "events": ["nothing"]}, "/events/0"),
        ({"url": "https://example.org/", "secret": "whsec_"}, "/secret"),
        ({"url": "https://example.org/", "kinds": "echo"}, "/kinds"),
    ],
)
async def test_a_wrong_webhook_is_refused(service: Service, body: Any, pointer: str) -> None:
    reply = await service.call("POST", "/webhooks", json=body)
    assert reply.status == 422
    assert reply.json()["errors"][0]["pointer"] == pointer


async def test_another_tenant_sees_none_of_it(service: Service, receiver: Receiver) -> None:
    webhook = await create(service, receiver)
    webhooks = service.parts.webhooks
    assert await webhooks.find("other") == []
    for call in (
        webhooks.get("other", webhook["id"]),
        webhooks.delete("other", webhook["id"]),
        webhooks.test("other", webhook["id"]),
        webhooks.deliveries("other", webhook["id"], None, 10),
    ):
        with pytest.raises(Exception, match="there is no webhook"):
            await call


# --- delivery


async def test_an_ended_job_is_delivered_signed_and_logged(
    service: Service, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await service.done()
    webhook = await create(service, receiver)
    job = await service.done()
    await deliver(service)
    (message,) = receiver.messages
    assert message.body["type"] == "job.status"
    assert message.body["timestamp"] == message.body["data"]["at"]
    assert (message.job_id, message.job_status) == (job.id, "DONE")
    assert message.id == f"evt_{message.body['data']['id']}"
    (logged,) = await deliveries(service, webhook)
    assert (logged["status"], logged["messageId"], logged["url"]) == (
        "delivered",
        message.id,
        receiver.url,
    )
    assert logged["attempts"][0]["status"] == 204
    assert webhook["secret"] not in str(logged) + caplog.text
    await deliver(service)
    assert len(receiver.messages) == 1


async def test_the_filters_select_events(service: Service, receiver: Receiver) -> None:
    await create(service, receiver, "/all", events=["status", "deleted"])
    await create(service, receiver, "/kind", kinds=["encode"])
    await create(service, receiver, "/label", labels={"team": "ops"})
    await create(service, receiver, "/queue", events=["queue"])
    job_id = await service.submit(labels={"team": "ops", "more": "x"})
    await service.finish(await service.claim())
    await service.call("DELETE", f"/jobs/{job_id}")
    await service.store.pause("video", True)
    await deliver(service)
    found: dict[str, list[str]] = {}
    for message in receiver.messages:
        found.setdefault(message.path, []).append(
            message.body["type"] + " " + message.body["data"]["job"].get("status", "")
        )
    assert found == {
        "/hook/all": [
            "job.status PENDING",
            "job.status PROCESSING",
            "job.status DONE",
            "job.deleted DONE",
        ],
        "/hook/label": ["job.status DONE"],
        "/hook/queue": ["queue.queue "],
    }


async def test_the_events_of_a_deleted_job_are_delivered_first_and_removed_later(
    service: Service, receiver: Receiver
) -> None:
    await create(service, receiver)
    await deliver(service)
    job = await service.done()
    assert (await service.call("DELETE", f"/jobs/{job.id}")).status == 204
    receiver.answer = lambda message: 500
    await deliver(service)
    assert receiver.statuses(job.id) == ["DONE"]
    assert list(await service.store.records("removals")) == [job.id]
    receiver.answer = None
    service.clock.advance(60)
    await deliver(service)
    assert receiver.statuses(job.id) == ["DONE", "DONE"]
    for _ in range(2):
        service.clock.advance(60)
        await deliver(service)
    assert [event.type for event in await service.store.events(job_id=job.id)] == ["deleted"]
    assert await service.store.records("removals") == {}


async def test_the_events_of_a_job_arrive_in_order_while_others_overtake(
    service: Service, receiver: Receiver
) -> None:
    await create(service, receiver, events=["status"])
    first = await service.submit()
    refused = iter([500, 500])
    receiver.answer = lambda m: next(refused, None) if m.job_id == first else None
    await deliver(service)
    job = await service.claim()
    await service.finish(job)
    second = await service.submit()
    await service.finish(await service.claim())
    await deliver(service)
    assert receiver.statuses(first) == ["PENDING"]
    assert receiver.statuses(second) == ["PENDING", "PROCESSING", "DONE"]
    for _ in range(2):
        service.clock.advance(60)
        await deliver(service)
    assert receiver.statuses(first) == ["PENDING", "PENDING", "PENDING", "PROCESSING", "DONE"]
    assert receiver.ids[0] == [m.id for m in receiver.messages if m.job_id == first][2]


async def test_more_deliveries_than_memory_holds_are_loaded_from_the_store(
    service: Service, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "MAX_LOADED", 10)
    monkeypatch.setattr(publishing, "PAGE", 25)
    await create(service, receiver, events=["status"])
    ids = [await service.submit() for _ in range(60)]
    await service.claims("echo")
    await deliver(service)
    assert [m.job_id for m in receiver.messages if m.job_status == "PENDING"] == ids
    assert len(set(receiver.ids)) == len(receiver.ids) == 70
    assert await service.store.records("pending_deliveries") == {}


async def test_a_new_publisher_continues_where_the_old_one_was_killed(
    service: Service, receiver: Receiver, tmp_path: Path
) -> None:
    await create(service, receiver)
    receiver.answer = lambda message: 503
    first = await service.done()
    await deliver(service)
    second = await service.done()
    before = list(receiver.ids)
    # As after a kill: the next publisher has only what is in the store.
    old = service.parts.webhooks.publisher
    new = publishing.Publisher(service.store, old._sender, shared=False)
    service.parts.webhooks.publisher = new
    receiver.answer = None
    service.clock.advance(60)
    await deliver(service)
    assert sorted(m.job_id or "" for m in receiver.messages[1:]) == sorted([first.id, second.id])
    assert before[0] in receiver.ids[1:]


# --- failures


async def test_a_failed_delivery_is_retried_for_a_day_and_then_disables_the_webhook(
    service: Service, receiver: Receiver
) -> None:
    webhook = await create(service, receiver)
    receiver.answer = lambda m: web.Response(status=500, text="x" * 5000)
    started = service.clock.now()
    await service.done()
    waiting: list[str] = []
    for _ in range(3000):
        await deliver(service)
        found = await get(service, webhook)
        if not found["enabled"]:
            break
        (logged,) = await deliveries(service, webhook)
        assert logged["status"] == "pending"
        waiting.append(logged["nextAttemptAt"])
        service.clock.advance(60)
    took = service.clock.now() - started
    assert len(receiver.messages) == len(DELAYS) + 1
    assert len(set(receiver.ids)) == 1
    assert 0.75 * DAY < took < 1.25 * DAY
    assert "No delivery has succeeded since" in found["reason"]
    (logged,) = await deliveries(service, webhook)
    assert (logged["status"], len(logged["attempts"])) == ("failed", len(DELAYS) + 1)
    assert logged["response"] == "x" * 1024
    # It is a warning, and no more is sent.
    ready = (await service.call("GET", "/readyz")).json()
    assert [w["code"] for w in ready["warnings"]] == ["webhook-disabled"]
    await service.done()
    await deliver(service)
    assert len(receiver.messages) == len(DELAYS) + 1
    # The caller enables it again, and replays what it has missed.
    receiver.answer = None
    await service.call("PATCH", f"/webhooks/{webhook['id']}", json={"enabled": True})
    await deliver(service)
    assert (await service.call("GET", "/readyz")).json()["warnings"] == []
    body = {"from": render_instant(started), "only": "failed"}
    reply = await service.call("POST", f"/webhooks/{webhook['id']}/replay", json=body)
    assert reply.status == 202
    service.clock.advance(60)  # the breaker of the host admits an attempt
    await deliver(service)
    assert len(receiver.messages) == len(DELAYS) + 3
    assert receiver.ids[-2] == receiver.ids[0]


async def test_a_receiver_that_is_gone_disables_the_webhook(
    service: Service, receiver: Receiver
) -> None:
    webhook = await create(service, receiver)
    receiver.answer = lambda m: 410
    await service.done()
    await deliver(service)
    found = await get(service, webhook)
    assert (found["enabled"], found["reason"]) == (False, "The endpoint answered 410 Gone.")
    service.clock.advance(DAY)
    await deliver(service)
    assert len(receiver.messages) == 1


async def test_the_webhook_of_a_job_ends_when_its_receiver_is_gone(
    service: Service, receiver: Receiver
) -> None:
    receiver.answer = lambda message: 410
    secret = (await service.call("GET", "/webhooks/secret")).json()["secret"]
    receiver.secrets.append(secret)
    hook = {"url": receiver.url, "events": ["status"]}
    first = await service.submit(webhook=hook)
    second = await service.submit(webhook=hook)
    await service.claims("echo")
    await deliver(service)
    await service.done()
    await deliver(service)
    assert receiver.statuses(first) == receiver.statuses(second) == ["PENDING"]
    assert await service.store.records("pending_deliveries") == {}


async def test_hosts_that_are_no_longer_used_are_forgotten(service: Service, receiver: Receiver) -> None:
    receiver.answer = lambda message: 503
    webhook = await create(service, receiver)
    await service.done()
    await deliver(service)
    publisher = service.parts.webhooks.publisher
    assert len(publisher._hosts) == 1
    await service.call("DELETE", f"/webhooks/{webhook['id']}")
    service.clock.advance(publishing.KEEP_HOST + 60)
    await deliver(service)
    assert publisher._hosts == {}


async def test_retry_after_is_obeyed(service: Service, receiver: Receiver) -> None:
    await create(service, receiver)
    receiver.answer = lambda m: web.Response(status=429, headers={"retry-after": "900"})
    await service.done()
    await deliver(service)
    receiver.answer = None
    service.clock.advance(899)
    await service.done()  # another delivery to the same endpoint waits, too
    await deliver(service)
    assert len(receiver.messages) == 1
    service.clock.advance(2)
    await deliver(service)
    assert len(receiver.messages) == 3


async def test_a_receiver_that_hangs_delays_no_other(
    service: Service, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = service.parts.webhooks.publisher
    monkeypatch.setattr(publisher._sender, "_timeout", 1.0)
    async with Receiver(hangs=asyncio.Event()).serving() as hanging:
        slow = await create(service, hanging)
        await create(service, receiver)
        jobs = [await service.done() for _ in range(50)]
        await publisher.tick()
        await eventually(lambda: len(receiver.messages) == len(jobs))
        assert all(message.status == 0 for message in hanging.messages)
        await deliver(service)
        (logged, *_) = [d for d in await deliveries(service, slow) if d["attempts"]]
        assert logged["attempts"][0]["error"] == "no response within 1 s"
        # The breaker admits one attempt at a time now.
        tried = len(hanging.messages)
        # Until it opens, a failed attempt makes place for another one.
        assert tried < publishing.PER_HOST + BREAKER_FAILURES
        service.clock.advance(1.5)
        await deliver(service)
        assert len(hanging.messages) == tried + 1
        assert hanging.hangs is not None
        hanging.hangs.set()
        service.clock.advance(600)
        await deliver(service)
        assert {m.job_id for m in hanging.messages if m.status} == {job.id for job in jobs}


# --- secrets


async def test_both_secrets_sign_for_a_day_after_a_rotation(
    service: Service, receiver: Receiver
) -> None:
    webhook = await create(service, receiver)
    (old,) = receiver.secrets
    reply = await service.call("POST", f"/webhooks/{webhook['id']}/rotate")
    new = reply.json()["secret"]
    for secrets, wait in (([old], 0.0), ([new], DAY - 1), ([new], 2.0)):
        receiver.secrets = secrets
        service.clock.advance(wait)
        await service.done()
        await deliver(service)
    assert [m.status for m in receiver.messages] == [204] * 3
    receiver.secrets = [old]
    await service.done()
    await deliver(service)
    assert len(receiver.messages) == 3, "the old secret has expired"


async def test_a_job_has_its_own_webhook(service: Service, receiver: Receiver) -> None:
    secret = (await service.call("GET", "/webhooks/secret")).json()["secret"]
    receiver.secrets = [secret]
    one = await service.submit(webhook={"url": receiver.url})
    two = await service.submit(webhook={"url": receiver.url, "events": ["status", "terminal"]})
    other = await service.submit()
    for _ in range(3):
        await service.finish(await service.claim())
    await deliver(service)
    assert receiver.statuses(one) == ["DONE"]
    assert sorted(receiver.statuses(two)) == ["DONE", "PENDING", "PROCESSING"]
    assert receiver.statuses(other) == []
    own = "whsec_" + "A" * 40
    receiver.secrets = [own]
    three = await service.submit(webhook={"url": receiver.url, "secret": own})
    await service.finish(await service.claim())
    await deliver(service)
    assert receiver.statuses(three) == ["DONE"]
    for text in (
        (await service.call("GET", f"/jobs/{three}?include=input")).body,
        str(await service.store.events(job_id=three)).encode(),
    ):
        assert own.encode() not in text
    # The tenant's secret rotates with an overlap.
    rotated = (await service.call("POST", "/webhooks/secret/rotate")).json()
    assert rotated["previous"] == secret
    for accepted in (secret, rotated["secret"]):
        receiver.secrets = [accepted]
        job_id = await service.submit(webhook={"url": receiver.url})
        await service.finish(await service.claim())
        await deliver(service)
        assert receiver.statuses(job_id) == ["DONE"]


async def test_the_job_of_an_upload_has_its_own_webhook(service: Service, receiver: Receiver) -> None:
    own = "whsec_" + "A" * 40
    receiver.secrets = [own]
    hook = {"url": receiver.url, "secret": own}
    tus = {"tus-resumable": "1.0.0"}

    def described(webhook: Any) -> str:
        fields = {"kind": "thumbnail", "filename": "a.mp4", "webhook": json.dumps(webhook)}
        return ",".join(f"{name} {b64encode(v.encode()).decode()}" for name, v in fields.items())

    async def begin(path: str, webhook: Any) -> Reply:
        if path == "/files":
            headers = {**tus, "upload-length": "3", "upload-metadata": described(webhook)}
            return await service.call("POST", path, headers=headers)
        return await service.call(
            "POST", path, json={"size": 3, "kind": "thumbnail", "webhook": webhook}
        )

    resumable, chunked, presigned = [
        await begin(path, hook) for path in ("/files", "/uploads/chunked", "/uploads/presign")
    ]
    for path in ("/files", "/uploads/chunked", "/uploads/presign"):
        wrong = await begin(path, {"url": receiver.url, "events": ["queue"]})
        assert (wrong.status, wrong.json()["errors"][0]["pointer"]) == (422, "/webhook/events/0")
    # What was accepted at the begin is not looked up again at the end.
    service.parts.webhooks._addresses.allow_private = False
    refused = await begin("/files", hook)
    assert (refused.status, refused.json()["errors"][0]["pointer"]) == (422, "/webhook/url")
    place = resumable.headers["location"]
    shown = await service.call("HEAD", place, headers=tus)
    assert "kind" in shown.headers["upload-metadata"]
    assert b64encode(own.encode()).decode()[:20] not in str(shown.headers)
    assert "webhook" not in shown.headers["upload-metadata"]
    patch = {**tus, "content-type": "application/offset+octet-stream", "upload-offset": "0"}
    done = [await service.call("PATCH", place, body=b"abc", headers={**patch, "content-length": "3"})]
    place = chunked.headers["location"]
    length = {"content-length": "3"}
    done.append(await service.call("PUT", f"{place}/chunks/0", body=b"abc", headers=length))
    signed = presigned.json()
    at = signed["url"].partition("/uploads/")[2]
    lines = {**signed["headers"], **length}
    assert (await service.call("PUT", f"/uploads/{at}", body=b"abc", headers=lines)).status == 200
    done.append(await service.call("POST", f"{presigned.headers['location']}/complete"))
    jobs = [reply.headers["job-location"].rpartition("/")[2] for reply in done]
    service.parts.webhooks._addresses.allow_private = True
    for claim in await service.claims("thumbnail"):
        await service.finish(claim.job)
    await deliver(service)
    assert len(set(jobs)) == 3
    assert [receiver.statuses(job_id) for job_id in jobs] == [["DONE"]] * 3


@pytest.mark.parametrize(
    ("webhook", "pointer"),
    [
        ({}, "/webhook"),
        ({"url": "nothing"}, "/webhook/url"),
        ({"url": "https://example.org", "secret": "short"}, "/webhook/secret"),
        ({"url": "https://example.org", "events": ["queue"]}, "/webhook/events/0"),
        ({"url": "https://example.org", "enabled": True}, "/webhook/enabled"),
    ],
)
async def test_a_wrong_webhook_in_a_submission_is_refused(
    service: Service, webhook: Any, pointer: str
) -> None:
    reply = await service.call("POST", "/jobs", json={"kind": "echo", "webhook": webhook})
    assert reply.status == 422
    assert reply.json()["errors"][0]["pointer"] == pointer


# --- tests and replays


async def test_a_test_is_sent_now_also_to_a_disabled_webhook(
    service: Service, receiver: Receiver
) -> None:
    webhook = await create(service, receiver)
    await service.call("PATCH", f"/webhooks/{webhook['id']}", json={"enabled": False})
    reply = await service.call("POST", f"/webhooks/{webhook['id']}/test")
    assert (reply.status, reply.json()["status"]) == (200, "delivered")
    service.clock.advance(1)
    receiver.answer = lambda m: web.Response(status=404, text="no such page")
    failed = (await service.call("POST", f"/webhooks/{webhook['id']}/test")).json()
    assert (failed["status"], failed["attempts"][0]["status"]) == ("failed", 404)
    assert failed["response"] == "no such page"
    assert [m.body["type"] for m in receiver.messages] == ["webhook.test"] * 2
    assert [d["status"] for d in await deliveries(service, webhook)] == ["failed", "delivered"]
    assert (await get(service, webhook))["enabled"] is False


async def test_a_replay_sends_a_range_again_also_to_a_disabled_webhook(
    service: Service, receiver: Receiver
) -> None:
    early = await service.done()
    service.clock.advance(100)
    webhook = await create(service, receiver)
    jobs = []
    for _ in range(3):
        service.clock.advance(100)
        jobs.append(await service.done())
        await deliver(service)
    first = list(receiver.ids)
    assert len(first) == 3
    # The service keeps the bodies of deliveries, but a job's events only as long as the job.
    await service.call("PATCH", f"/webhooks/{webhook['id']}", json={"enabled": False})

    async def replay(**body: Any) -> None:
        reply = await service.call("POST", f"/webhooks/{webhook['id']}/replay", json=body)
        assert reply.status == 202, reply.body
        await deliver(service)

    def instant(at: float) -> str:
        return render_instant(at)

    finished = [job.finished_at or 0.0 for job in jobs]
    await replay(**{"from": instant(finished[0] - 50), "to": instant(finished[1] + 50), "only": "all"})
    assert receiver.ids[3:] == first[:2]
    await replay(**{"from": instant(finished[0] - 50), "only": "failed"})
    assert len(receiver.ids) == 5, "all were accepted"
    await replay(**{"from": instant(finished[0] - 1000), "only": "all"})
    assert [m.job_id for m in receiver.messages[5:]] == [early.id, *(job.id for job in jobs)]
    assert (await get(service, webhook))["enabled"] is False
    replayed = [d for d in await deliveries(service, webhook) if d["replay"]]
    assert len(replayed) == 6


async def test_a_failed_replay_does_not_change_the_health(service: Service, receiver: Receiver) -> None:
    webhook = await create(service, receiver)
    await service.done()
    await deliver(service)
    receiver.answer = lambda m: 410
    body = {"from": render_instant(service.clock.now() - 60), "only": "all"}
    await service.call("POST", f"/webhooks/{webhook['id']}/replay", json=body)
    await deliver(service)
    assert len(receiver.messages) == 2
    assert (await get(service, webhook))["enabled"] is True


async def test_a_replay_needs_a_range(service: Service, receiver: Receiver) -> None:
    webhook = await create(service, receiver)
    at = f"/webhooks/{webhook['id']}/replay"
    for body, pointer in (
        ({}, ""),
        ({"from": "yesterday"}, "/from"),
        ({"from": "2030-01-02T00:00:00Z", "to": "2030-01-01T00:00:00Z"}, "/to"),
        ({"from": "2030-01-02T00:00:00Z", "only": "some"}, "/only"),
    ):
        reply = await service.call("POST", at, json=body)
        assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_deliveries_are_listed_in_pages(service: Service, receiver: Receiver) -> None:
    webhook = await create(service, receiver)
    for _ in range(5):
        await service.done()
    await deliver(service)
    found: list[str] = []
    at = f"/webhooks/{webhook['id']}/deliveries?limit=2"
    cursor: str | None = ""
    while cursor is not None:
        page = (await service.call("GET", at + (f"&cursor={cursor}" if cursor else ""))).json()
        found += [d["messageId"] for d in page["deliveries"]]
        cursor = page["next"]
    assert found == receiver.ids[::-1]
    assert (await service.call("GET", at + "&cursor=x")).status == 400
    assert (await service.call("GET", at.replace("=2", "=0"))).status == 422


async def test_the_deliveries_of_a_job_to_all_webhooks_are_listed_in_pages(
    service: Service, receiver: Receiver
) -> None:
    receiver.secrets.append((await service.call("GET", "/webhooks/secret")).json()["secret"])
    one = await create(service, receiver, "/one", events=["status"])
    two = await create(service, receiver, "/two")
    job_id = await service.submit(webhook={"url": receiver.url + "/own", "events": ["status"]})
    await service.finish(await service.claim())
    other = await service.done()
    receiver.answer = lambda message: 503 if message.path == "/hook/two" else None
    await deliver(service)

    async def listed(job_id: str, limit: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            at = f"/jobs/{job_id}/deliveries?limit={limit}" + (f"&cursor={cursor}" if cursor else "")
            page = (await service.call("GET", at)).json()
            assert len(page["deliveries"]) <= limit
            found += page["deliveries"]
            cursor = page["next"]
        return found

    found = await listed(job_id, 2)
    assert found == await listed(job_id, 100)
    ids = [d["id"] for d in found]
    assert ids == sorted(ids, reverse=True)
    assert Counter((d["webhookId"], d["status"]) for d in found) == {
        (one["id"], "delivered"): 3,
        (two["id"], "pending"): 1,
        (None, "delivered"): 3,
    }
    assert {d["webhookId"] for d in await listed(other.id, 2)} == {one["id"], two["id"]}
    service.clock.advance(60)
    receiver.answer = None
    await deliver(service)
    assert {d["status"] for d in await listed(job_id, 2)} == {"delivered"}
    assert (await service.call("GET", f"/jobs/{job_id}/deliveries?cursor=x")).status == 400
    assert (await service.call("GET", f"/jobs/{'0' * len(job_id)}/deliveries")).status == 404
    await service.call("DELETE", f"/jobs/{job_id}")
    assert (await service.call("GET", f"/jobs/{job_id}/deliveries")).status == 410


async def test_old_deliveries_are_removed(service: Service, receiver: Receiver) -> None:
    webhook = await create(service, receiver)
    other = await create(service, receiver, "/other")
    await service.done()
    await deliver(service)
    service.clock.advance(publishing.KEEP_DELIVERIES - 60)
    await service.done()
    await deliver(service)
    assert len(await deliveries(service, webhook)) == 2
    await service.call("DELETE", f"/webhooks/{other['id']}")
    service.clock.advance(61)
    await deliver(service)
    assert len(await deliveries(service, webhook)) == 1
    assert len(await service.store.records("deliveries")) == 1
    assert len(await service.store.records("job_deliveries")) == 1
    receiver.answer = lambda message: 503
    await service.done()
    await deliver(service)
    await service.call("DELETE", f"/webhooks/{webhook['id']}")
    service.clock.advance(61)
    await deliver(service)
    assert await service.store.records("pending_deliveries") == {}
    assert await service.store.records("job_deliveries") == {}


async def test_a_publisher_whose_position_was_moved_starts_again(
    service: Service, receiver: Receiver
) -> None:
    await create(service, receiver)
    await deliver(service)
    # Another process was the publisher for a moment, and has delivered this job.
    other = publishing.Publisher(service.store, service.parts.webhooks.publisher._sender, shared=False)
    first = await service.done()
    await other.tick()
    await other.settled()
    publisher = service.parts.webhooks.publisher
    second = await service.done()
    with pytest.raises(publishing.LeaseLost):
        await publisher.tick()
    publisher._forget()
    await deliver(service)
    assert [m.job_id for m in receiver.messages] == [first.id, second.id]


@pytest.mark.parametrize("seed", [1, 3])
async def test_replays_beside_new_events_lose_and_repeat_nothing(
    service: Service, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(publishing, "MAX_LOADED", 8)
    monkeypatch.setattr(publishing, "PAGE", 7)
    webhook = await create(service, receiver, events=["status"])
    for _ in range(20):
        await service.submit()
    await deliver(service)
    rng = random.Random(seed)
    change, read = service.store.change_records, service.store.records

    async def change_slowly(work: Any) -> Any:
        done = await change(work)
        for _ in range(rng.randrange(30)):  # another task may run before the caller continues
            await asyncio.sleep(0)
        return done

    async def read_slowly(*args: Any) -> Any:
        found = await read(*args)
        for _ in range(rng.randrange(30)):
            await asyncio.sleep(0)
        return found

    monkeypatch.setattr(service.store, "change_records", change_slowly)
    monkeypatch.setattr(service.store, "records", read_slowly)
    body = {"from": render_instant(service.clock.now() - DAY), "only": "all"}
    for _ in range(3):
        reply = await service.call("POST", f"/webhooks/{webhook['id']}/replay", json=body)
        assert reply.status == 202
    for _ in range(20):
        await service.submit()
    await deliver(service)
    counts = Counter(receiver.ids)
    assert len(counts) == 40
    found = await service.store.records("deliveries")
    assert sum(counts.values()) == len(found)
    assert await service.store.records("pending_deliveries") == {}
