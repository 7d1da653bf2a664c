"""WS /ws over real sockets, with two client libraries."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import websockets.asyncio.client
from websockets.exceptions import ConnectionClosed, InvalidStatus

from bide.core.jobs.record import Progress
from bide.core.jobs.state_machine import Emitted, Rerun
from bide.server.config import Config, EventsConfig, HttpConfig, LimitsConfig
from bide.server.http import websocket
from bide.server.progress import LiveProgress
from bide.service.httpd.connection import ConnectionLimits
from bide.service.httpd.server import HttpServer, bind
from tests.integration.http.service import MAX_BODY, Service, attempt
from tests.integration.http.test_http_events import listening
from tests.waiting import eventually

TIMEOUT = 10.0


class Site:
    """A service behind a real server."""

    def __init__(self, service: Service, server: HttpServer, port: int) -> None:
        self.service = service
        self.server = server
        self.address = f"127.0.0.1:{port}"

    def connect(self, path: str = "/ws", **more: Any) -> websockets.asyncio.client.connect:
        more.setdefault("subprotocols", ["bide.v1"])
        return websockets.asyncio.client.connect(f"ws://{self.address}{path}", proxy=None, **more)


@pytest.fixture
async def site(service: Service) -> AsyncIterator[Site]:
    listener = bind("127.0.0.1", 0)
    server = HttpServer(service.app, ConnectionLimits.of(HttpConfig(), 100))
    await server.start(listener)
    yield Site(service, server, listener.getsockname()[1])
    service.parts.events.close()
    await server.stop()
    listener.close()


async def say(connection: Any, **message: Any) -> None:
    await connection.send(json.dumps(message))


async def hear(connection: Any) -> Any:
    return json.loads(await asyncio.wait_for(connection.recv(), TIMEOUT))


async def hear_until(connection: Any, type_: str) -> list[Any]:
    heard = [await hear(connection)]
    while heard[-1]["type"] != type_:
        heard.append(await hear(connection))
    return heard


async def closed(connection: Any) -> tuple[int, str]:
    with pytest.raises(ConnectionClosed) as raised:
        while True:
            await asyncio.wait_for(connection.recv(), TIMEOUT)
    received = raised.value.rcvd
    assert received is not None, raised.value
    return received.code, received.reason


def told(message: Any) -> tuple[str, str, str | None]:
    return message["jobId"], message["type"], (message.get("job") or {}).get("status")


# --- jobs


async def test_many_jobs_on_one_socket(service: Service, site: Site) -> None:
    one, two = await service.submit(), await service.submit()
    async with site.connect() as connection:
        assert connection.subprotocol == "bide.v1"
        await say(connection, subscribe={"jobs": [one]})
        snapshot = await hear(connection)
        assert told(snapshot) == (one, "snapshot", "PENDING")
        status = (await service.call("GET", f"/jobs/{one}")).json()
        assert snapshot["job"] == status and snapshot["id"] and snapshot["at"]
        await say(connection, subscribe={"jobs": [two, two]})
        assert told(await hear(connection)) == (two, "snapshot", "PENDING")
        first = await service.claim()
        second = await service.claim()
        await service.finish(second)
        await service.finish(first)
        heard = [await hear(connection) for _ in range(6)]
        assert [told(m) for m in heard] == [
            (one, "status", "PROCESSING"),
            (two, "status", "PROCESSING"),
            (two, "status", "DONE"),
            (two, "end", None),
            (one, "status", "DONE"),
            (one, "end", None),
        ]
        stored = (await service.call("GET", f"/jobs/{one}/events")).json()["events"]
        assert [m for m in heard if m["jobId"] == one][:2] == stored[1:]
    await eventually(lambda: not service.parts.events.subscriptions)


async def test_a_subscription_continues_after_any_event(service: Service, site: Site) -> None:
    job_id = await service.submit()
    await service.finish(await service.claim())
    events = (await service.call("GET", f"/jobs/{job_id}/events")).json()["events"]
    epoch = events[0]["id"].partition("-")[0]
    async with site.connect() as connection:
        for seen, cursor in enumerate([f"{epoch}-0", *(e["id"] for e in events)]):
            await say(connection, subscribe={"jobs": [job_id]}, after=cursor)
            heard = await hear_until(connection, "end")
            assert heard[:-1] == events[seen:]
            await say(connection, subscribe={"jobs": [job_id]}, after=heard[-1]["id"])
            assert (await hear(connection))["type"] == "end"
        await say(connection, subscribe={"jobs": [job_id]})
        assert [m["type"] for m in await hear_until(connection, "end")] == ["snapshot", "end"]


async def test_a_retried_job_continues(service: Service, site: Site) -> None:
    job_id = await service.submit()
    await service.fail(await service.claim())
    await service.apply(Rerun(job_id=job_id))
    epoch = service.parts.events.epoch
    async with site.connect() as connection:
        await say(connection, subscribe={"jobs": [job_id]}, after=f"{epoch}-0")
        heard = [told(await hear(connection))[2] for _ in range(4)]
        assert heard == ["PENDING", "PROCESSING", "ERROR", "PENDING"]
        await service.finish(await service.claim())
        rest = await hear_until(connection, "end")
        assert [told(m)[2] for m in rest] == ["PROCESSING", "DONE", None]


@pytest.mark.parametrize("cursor", ["other-1", "{epoch}-999999"])
async def test_a_cursor_that_cannot_be_continued(service: Service, site: Site, cursor: str) -> None:
    job_id = await service.submit()
    after = cursor.format(epoch=service.parts.events.epoch)
    async with site.connect() as connection:
        await say(connection, subscribe={"jobs": [job_id]}, after=after)
        assert told(await hear(connection)) == (job_id, "reset", "PENDING")
        await say(connection, subscribe={"filter": {"kind": "echo"}}, after=after)
        reset = await hear(connection)
        assert (reset["jobId"], reset["type"]) == (None, "reset") and reset["job"]["queues"]
        await service.claim()
        assert told(await hear(connection)) == (job_id, "status", "PROCESSING")


async def test_another_epoch_restarts_every_subscription(service: Service, site: Site) -> None:
    job_id = await service.submit()
    async with site.connect() as connection:
        await say(connection, subscribe={"jobs": [job_id]})
        await say(connection, subscribe={"filter": {}})
        assert [(await hear(connection))["type"] for _ in range(2)] == ["snapshot"] * 2
        events = service.parts.events
        events.on_log("later", events.last, [])
        heard = [await hear(connection) for _ in range(2)]
        assert [(m["type"], m["jobId"]) for m in heard] == [("reset", job_id), ("reset", None)]
        assert heard[0]["id"].startswith("later-")


async def test_a_job_that_does_not_exist_closes_nothing(service: Service, site: Site) -> None:
    gone, job_id = (await service.done()).id, await service.submit()
    assert (await service.call("DELETE", f"/jobs/{gone}")).status == 204
    async with site.connect() as connection:
        await say(connection, subscribe={"jobs": ["nothing", gone, job_id]})
        heard = [await hear(connection) for _ in range(3)]
        assert [(m["jobId"], m["type"]) for m in heard] == [
            ("nothing", "error"),
            (gone, "error"),
            (job_id, "snapshot"),
        ]
        assert [m["problem"]["code"] for m in heard[:2]] == ["not-found", "gone"]


async def test_a_deleted_job_ends(service: Service, site: Site) -> None:
    job_id = await service.submit()
    async with site.connect() as connection:
        await say(connection, subscribe={"jobs": [job_id]})
        await hear(connection)
        assert (await service.call("DELETE", f"/jobs/{job_id}")).status == 204
        assert [m["type"] for m in await hear_until(connection, "end")][-2:] == ["deleted", "end"]


async def test_unsubscribe(service: Service, site: Site) -> None:
    one, two = await service.submit(), await service.submit()
    async with site.connect() as connection:
        await say(connection, subscribe={"jobs": [one, two]})
        await say(connection, subscribe={"filter": {"type": "deleted"}})
        for _ in range(3):
            await hear(connection)
        await say(connection, unsubscribe={"jobs": [one, "unknown"]})
        await say(connection, unsubscribe={"filter": {"type": ["deleted"]}})
        await eventually(lambda: service.parts.events.subscriptions == 1)
        await service.claim()
        await service.claim()
        assert told(await hear(connection)) == (two, "status", "PROCESSING")


async def test_progress_reaches_the_subscribers_of_a_job(service: Service, site: Site) -> None:
    job_id = await service.submit()
    async with site.connect() as connection:
        await say(connection, subscribe={"jobs": [job_id]})
        await hear(connection)
        job = await service.claim()
        assert told(await hear(connection))[2] == "PROCESSING"
        live = LiveProgress(1, Progress(percent=40.0), service.clock.now())
        service.progress.publish(attempt(job_id, job.fence), live)
        progress = await hear(connection)
        assert (progress["type"], progress["job"]["progress"]["percent"]) == ("progress", 40.0)
        assert "id" not in progress


# --- filters


async def test_filters(service: Service, site: Site) -> None:
    async with site.connect() as connection:
        wanted = {"label": ["team:ops"], "type": "status,deleted"}
        await say(connection, subscribe={"filter": wanted})
        snapshot = await hear(connection)
        assert (snapshot["jobId"], snapshot["type"]) == (None, "snapshot")
        await service.submit()
        mine = await service.submit(labels={"team": "ops"})
        assert told(await hear(connection)) == (mine, "status", "PENDING")
        await service.claim()
        await service.finish(await service.claim())
        assert [told(await hear(connection)) for _ in range(2)] == [
            (mine, "status", "PROCESSING"),
            (mine, "status", "DONE"),
        ]
        # A filter does not end.
        assert (await service.call("DELETE", f"/jobs/{mine}")).status == 204
        assert told(await hear(connection))[:2] == (mine, "deleted")


async def test_an_event_is_sent_once_and_in_order(service: Service, site: Site) -> None:
    """Whatever number of subscriptions select it, and whether it is in the log or happens now."""
    ids = [await service.submit() for _ in range(3)]
    epoch = service.parts.events.epoch
    async with site.connect() as connection:
        await say(connection, subscribe={"filter": {"kind": "echo"}}, after=f"{epoch}-0")
        await say(connection, subscribe={"filter": {"queue": "default"}}, after=f"{epoch}-0")
        await say(connection, subscribe={"jobs": ids[:2]}, after=f"{epoch}-0")
        heard = [await hear(connection) for _ in range(3)]
        await eventually(lambda: service.parts.events.subscriptions == 4)
        for claim in await service.claims("echo"):  # one commit
            await service.finish(claim.job)
        heard += [await hear(connection) for _ in range(6 + 2)]
        numbers = [int(m["id"].partition("-")[2]) for m in heard if m["type"] != "end"]
        assert numbers == sorted(set(numbers)) and len(numbers) == 9
        assert [m["jobId"] for m in heard if m["type"] == "end"] == ids[:2]


# --- what closes it


@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [
        ("", 1007, "the message is invalid"),
        ("{", 1007, "the message is invalid"),
        ("[1]", 1007, "Expected `object`"),
        ("{}", 1007, "either `subscribe` or `unsubscribe`"),
        ('{"subscribe": {}}', 1007, "either `jobs` or `filter`"),
        ('{"subscribe": {"jobs": [], "filter": {}}}', 1007, "either `jobs` or `filter`"),
        ('{"subscribe": {"jobs": [1]}}', 1007, "$.subscribe.jobs[0]"),
        ('{"subscribe": {"jobs": []}, "unsubscribe": {"jobs": []}}', 1007, "either"),
        ('{"subscribe": {"filter": {"colour": "red"}}}', 1007, "colour"),
        ('{"subscribe": {"filter": {"type": "odd"}}}', 1007, "type: unknown: odd"),
        ('{"subscribe": {"filter": {"label": "team"}}}', 1007, "key:value"),
        ('{"subscribe": {"jobs": []}, "after": "yesterday"}', 1007, "yesterday"),
        ('{"publish": {}}', 1007, "publish"),
        (b"{}", 1003, "sent as text"),
        ("[" * 60_000, 1007, "the message is invalid"),
        ("x" * 10_000_000, 1009, "exceeds limit"),
    ],
)
async def test_garbage_gets_a_close_with_a_reason(
    site: Site, message: str | bytes, code: int, reason: str
) -> None:
    connection = await site.connect()
    with pytest.raises(ConnectionClosed) as raised:
        await connection.send(message)
        await asyncio.wait_for(connection.recv(), TIMEOUT)
    received = raised.value.rcvd
    assert received is not None and received.code == code and reason in received.reason, received


async def test_too_many_subscriptions(service: Service, site: Site) -> None:
    connection = await site.connect()
    for i in range(10):
        ids = [f"{i}-{j}" for j in range(1000)]
        try:
            await say(connection, subscribe={"jobs": ids})
        except ConnectionClosed:
            break
    code, reason = await closed(connection)
    assert (code, reason) == (1008, "a WebSocket may subscribe to 1000 jobs; open another one")
    connection = await site.connect()
    for i in range(websocket.MAX_FILTERS + 1):
        await say(connection, subscribe={"filter": {"kind": str(i)}})
    assert (await closed(connection))[0] == 1008
    await eventually(lambda: not service.parts.events.subscriptions)


async def test_a_slow_client_is_closed_and_the_others_are_not(tmp_path: Path) -> None:
    config = Config(http=HttpConfig(max_body=MAX_BODY), events=EventsConfig(buffer=10))
    listener = bind("127.0.0.1", 0)
    async with Service(tmp_path, config=config).opened() as service:
        server = HttpServer(service.app, ConnectionLimits.of(HttpConfig(), 100))
        await server.start(listener)
        site = Site(service, server, listener.getsockname()[1])
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        small.connect(listener.getsockname())
        small.setblocking(False)
        async with site.connect(max_queue=1, sock=small) as slow, site.connect() as fast:
            for connection in (slow, fast):
                await say(connection, subscribe={"filter": {}})
                await hear(connection)
            slow.transport.pause_reading()
            labels = {f"l{i}": "x" * 250 for i in range(50)}
            count, heard = 0, 0

            async def listen() -> None:
                nonlocal heard
                while True:
                    await hear(fast)
                    heard += 1

            listening = asyncio.create_task(listen())
            while service.parts.events.subscriptions == 2:
                body = {"jobs": [{"kind": "echo", "labels": labels}] * 4}
                assert (await service.call("POST", "/jobs/batch", json=body)).status == 202
                count += 4
                assert count < 5000
                await eventually(lambda: heard == count)  # noqa: B023
            slow.transport.resume_reading()
            code, reason = await closed(slow)
            assert code == 1013 and "continue after the last id" in reason
            await service.submit()
            await eventually(lambda: heard == count + 1)
            listening.cancel()
        await server.stop()
    listener.close()


async def test_a_long_output_is_sent_as_fast_as_the_client_reads(service: Service, site: Site) -> None:
    job_id = await service.submit()
    job = await service.claim()
    chunks = tuple(msgspec.Raw(b'"%060000d"' % n) for n in range(200))
    await service.store.apply([Emitted(job_id=job.id, owner=job.owner, fence=job.fence, chunks=chunks)])
    epoch = service.parts.events.epoch
    async with site.connect(max_queue=1) as connection:
        await say(connection, subscribe={"filter": {"type": "status"}})
        await hear(connection)
        connection.transport.pause_reading()
        await say(connection, subscribe={"jobs": [job_id]}, after=f"{epoch}-0")
        await eventually(lambda: service.parts.events.subscriptions == 2)
        for _ in range(20):  # while the output is being sent
            await service.submit()
        connection.transport.resume_reading()
        indexes: list[int] = []
        others = 0
        while len(indexes) < 200 or others < 20:
            event = await hear(connection)
            if event["type"] == "output":
                indexes.append(event["job"]["index"])
            others += event["type"] == "status" and event["jobId"] != job_id
    assert indexes == list(range(200))


async def test_a_stop_closes_without_an_end(service: Service, site: Site) -> None:
    job_id = await service.submit()
    async with site.connect() as used, site.connect() as unused:
        await say(used, subscribe={"jobs": [job_id]})
        await hear(used)
        service.parts.events.close()
        assert await closed(used) == (1001, "the service is stopping")
        with pytest.raises(InvalidStatus) as refused:
            await site.connect()
        assert refused.value.response.status_code == 503
        stopping = asyncio.create_task(site.server.stop())
        assert (await closed(unused))[0] == 1001
        await stopping


# --- the handshake


async def test_what_is_no_websocket(service: Service, site: Site) -> None:
    for path, status, code in (
        ("/jobs", 404, "not-found"),
        ("/wss", 404, "not-found"),
        ("/ws?colour=red", 422, "invalid-input"),
    ):
        with pytest.raises(InvalidStatus) as refused:
            await site.connect(path)
        response = refused.value.response
        assert (response.status_code, json.loads(response.body)["code"]) == (status, code)
    with pytest.raises(InvalidStatus) as refused:
        await site.connect(subprotocols=["mqtt"])
    assert refused.value.response.status_code == 400
    with pytest.raises(InvalidStatus) as refused:
        await site.connect(origin="http://evil.example")
    assert refused.value.response.status_code == 403
    async with site.connect(subprotocols=None, origin=f"http://{site.address}") as connection:
        assert connection.subprotocol is None
    reply = await service.call("GET", "/ws")
    assert (reply.status, reply.json()["code"]) == (426, "upgrade-required")
    assert reply.headers["upgrade"] == "websocket"


async def test_aiohttp(service: Service, site: Site) -> None:
    job_id = await service.submit()
    async with (
        aiohttp.ClientSession(f"http://{site.address}") as session,
        session.ws_connect("/ws/", protocols=["bide.v1"]) as connection,
    ):
        await connection.send_json({"subscribe": {"jobs": [job_id]}})
        assert (await connection.receive_json(timeout=TIMEOUT))["type"] == "snapshot"
        await service.finish(await service.claim())
        heard = [await connection.receive_json(timeout=TIMEOUT) for _ in range(3)]
        assert [m["type"] for m in heard] == ["status", "status", "end"]


async def test_open_websockets_are_limited(tmp_path: Path) -> None:
    config = Config(limits=LimitsConfig.read({"streams": 1}))
    async with Service(tmp_path, config=config).opened() as service, listening(service) as client:
        url = str(client._base_url).rstrip("/").replace("http", "ws", 1) + "/ws"
        connect = websockets.asyncio.client.connect
        async with connect(url, proxy=None):
            with pytest.raises(InvalidStatus) as refused:
                await connect(url, proxy=None)
            assert refused.value.response.status_code == 429
            assert refused.value.response.headers["Retry-After"] == "10"
            stream = await client.get("/events", headers={"Accept": "text/event-stream"})
            assert stream.status == 429
        async with asyncio.timeout(TIMEOUT):
            while True:  # the service learns that the first one has left
                try:
                    await (await connect(url, proxy=None)).close()
                    return
                except InvalidStatus:
                    await asyncio.sleep(0.01)
