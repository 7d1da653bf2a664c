"""GET /events and GET /jobs/{id}/events: streams over real sockets, and pages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from bide.core.jobs.record import Progress
from bide.core.jobs.state_machine import Emitted, Rerun
from bide.core.wire.http import Event
from bide.server.config import Config, EventsConfig, HttpConfig
from bide.server.events import broadcaster as broadcasting
from bide.server.http import events as serving
from bide.server.http.events import wants_stream
from bide.server.progress import LiveProgress
from bide.server.store import EventFilter, LogPage
from bide.service.httpd.connection import ConnectionLimits
from bide.service.httpd.server import HttpServer, bind
from tests.integration.http.service import Service, attempt
from tests.waiting import eventually

SSE = {"Accept": "text/event-stream"}


@pytest.fixture
async def client(service: Service) -> AsyncIterator[aiohttp.ClientSession]:
    async with listening(service) as session:
        yield session


@asynccontextmanager
async def listening(service: Service) -> AsyncIterator[aiohttp.ClientSession]:
    """The service on a real socket, and a client of it."""
    listener = bind("127.0.0.1", 0)
    server = HttpServer(service.app, ConnectionLimits.of(service.config.http, 100))
    await server.start(listener)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with aiohttp.ClientSession(base, timeout=aiohttp.ClientTimeout(20)) as session:
        yield session
    service.notify.close()
    service.parts.events.close()
    await server.stop()
    listener.close()


@dataclass
class Heard:
    event: str
    id: str | None
    data: Any
    retry: int | None = None


async def listen(answer: aiohttp.ClientResponse) -> AsyncGenerator[Heard, None]:
    """The events of a stream."""
    fields: dict[str, str] = {}
    async for line in answer.content:
        text = line.decode().rstrip("\n")
        if text:
            name, _, value = text.partition(": ")
            fields[name] = value
        elif "data" in fields:
            retry = int(fields["retry"]) if "retry" in fields else None
            yield Heard(fields["event"], fields.get("id"), json.loads(fields["data"]), retry)
            fields = {}
        else:
            renewed = fields == {"retry": "10"}  # the credential is no longer valid
            assert renewed or not fields or set(fields) == {":"}, f"a block without an event: {fields}"
            fields = {}


async def hear(client: aiohttp.ClientSession, path: str, **headers: str) -> list[Heard]:
    """All events of a stream until it closes."""
    async with client.get(path, headers={**SSE, **headers}) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream"), await answer.text()
        return [heard async for heard in listen(answer)]


def statuses(heard: list[Heard]) -> list[str]:
    return [h.data["job"]["status"] for h in heard if h.event == "status"]


async def test_a_stream_begins_with_a_snapshot_and_ends_after_the_terminal_event(
    service: Service, client: aiohttp.ClientSession
) -> None:
    job_id = await service.submit()
    async with client.get(f"/jobs/{job_id}/events", headers=SSE) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert "Accept" in answer.headers["Vary"]
        async with aclosing(listen(answer)) as stream:
            snapshot = await anext(stream)
            assert (snapshot.event, snapshot.data["status"]) == ("snapshot", "PENDING")
            assert snapshot.retry is not None and 1000 <= snapshot.retry <= 5000
            job = await service.claim()
            started = await anext(stream)
            assert (started.event, started.data["job"]["status"]) == ("status", "PROCESSING")
            assert (started.id, started.retry) == (started.data["id"], None)
            assert started.data["jobId"] == job_id
            await service.finish(job)
            rest = [heard async for heard in stream]
    assert [h.event for h in rest] == ["status", "end"]
    terminal = rest[0]
    assert terminal.data["job"]["status"] == "DONE"
    again = {**SSE, "Last-Event-ID": terminal.id or ""}
    async with client.get(f"/jobs/{job_id}/events", headers=again) as answer:
        assert (answer.status, await answer.read()) == (204, b"")


async def test_a_stream_continues_after_any_event(
    service: Service, client: aiohttp.ClientSession
) -> None:
    job_id = await service.submit()
    await service.finish(await service.claim())
    events = (await service.call("GET", f"/jobs/{job_id}/events")).json()["events"]
    assert [e["job"]["status"] for e in events] == ["PENDING", "PROCESSING", "DONE"]
    epoch = events[0]["id"].partition("-")[0]
    for seen, cursor in enumerate([f"{epoch}-0", *(e["id"] for e in events[:-1])]):
        for headers, query in (({"Last-Event-ID": cursor}, ""), ({}, f"?after={cursor}")):
            heard = await hear(client, f"/jobs/{job_id}/events{query}", **headers)
            assert [h.data for h in heard[:-1]] == events[seen:]
            assert heard[-1].event == "end"
            assert heard[0].retry is not None


async def test_a_retried_job_continues_its_stream(
    service: Service, client: aiohttp.ClientSession
) -> None:
    job_id = await service.submit()
    await service.fail(await service.claim())
    await service.apply(Rerun(job_id=job_id))
    first = (await service.call("GET", f"/jobs/{job_id}/events")).json()
    assert not first["ended"]
    epoch = first["next"].partition("-")[0]
    path = f"/jobs/{job_id}/events?after={epoch}-0"
    async with client.get(path, headers=SSE) as answer, aclosing(listen(answer)) as stream:
        seen = [(await anext(stream)).data["job"]["status"] for _ in range(4)]
        assert seen == ["PENDING", "PROCESSING", "ERROR", "PENDING"]
        await service.finish(await service.claim())
        rest = [heard async for heard in stream]
    assert (statuses(rest), rest[-1].event) == (["PROCESSING", "DONE"], "end")


@pytest.mark.parametrize("path", ["/jobs/{}/stream", "/jobs/{}/events?type=output"])
async def test_a_stream_without_the_terminal_event_ends_with_a_cursor_too(
    service: Service, client: aiohttp.ClientSession, path: str
) -> None:
    job_id = await service.submit()
    path = path.format(job_id)
    job = await service.claim()
    chunk = (msgspec.Raw(b'"a"'),)
    await service.store.apply([Emitted(job_id=job.id, owner=job.owner, fence=job.fence, chunks=chunk)])
    page = (await service.call("GET", path)).json()
    async with (
        client.get(path, headers={**SSE, "Last-Event-ID": page["events"][-1]["id"]}) as answer,
        aclosing(listen(answer)) as stream,
    ):
        await service.finish(job)
        (end,) = [heard async for heard in stream]
    assert end.event == "end" and end.id is not None
    again = {**SSE, "Last-Event-ID": end.id}
    async with client.get(path, headers=again) as answer:
        assert answer.status == 204
    # A listener that has missed the end still gets it.
    (missed,) = await hear(client, path, **{"Last-Event-ID": page["events"][-1]["id"]})
    assert (missed.event, missed.id) == ("end", end.id)
    (late,) = (await service.call("GET", path)).json()["events"]
    assert late["type"] == "output"


@pytest.mark.parametrize("cursor", ["other-1", "{epoch}-999999"])
async def test_a_cursor_that_cannot_be_continued_gets_a_reset(
    service: Service, client: aiohttp.ClientSession, cursor: str
) -> None:
    job_id = await service.submit()
    page = (await service.call("GET", f"/jobs/{job_id}/events")).json()
    cursor = cursor.format(epoch=page["next"].partition("-")[0])
    for path in (f"/jobs/{job_id}/events", "/events"):
        async with (
            client.get(path, headers={**SSE, "Last-Event-ID": cursor}) as answer,
            aclosing(listen(answer)) as stream,
        ):
            reset = await anext(stream)
        assert (reset.event, reset.id) == ("reset", page["next"])
        (event,) = (found := (await service.call("GET", f"{path}?after={cursor}")).json())["events"]
        assert (event["type"], event["job"], found["next"]) == ("reset", reset.data, page["next"])


async def test_a_cursor_that_is_too_old_gets_a_reset(
    service: Service, client: aiohttp.ClientSession
) -> None:
    kept, first, second = [await service.submit() for _ in range(3)]
    old = (await service.call("GET", "/events")).json()["next"]
    for job_id in (first, second):
        await service.store.delete(job_id)
    here = (await service.call("GET", "/events")).json()["next"]
    service.clock.advance(service.config.upkeep.tombstones + 1)
    await service.store.purge(tombstones=service.config.upkeep.tombstones, keys=1.0)
    begin = old.partition("-")[0] + "-0"
    for cursor, event in ((begin, "reset"), (old, "reset"), (here, "status")):
        async with (
            client.get(f"/events?after={cursor}", headers=SSE) as answer,
            aclosing(listen(answer)) as stream,
        ):
            if event == "status":
                await service.claim()
            assert (await anext(stream)).event == event
    # Of a job, all events are there for as long as the job.
    for cursor, count in ((begin, 2), (old, 1)):
        page = (await service.call("GET", f"/jobs/{kept}/events?after={cursor}")).json()
        assert [e["type"] for e in page["events"]] == ["status"] * count
    # Without a cursor, a page has what is kept.
    assert len((await service.call("GET", "/events")).json()["events"]) == 2


async def test_a_page_of_a_sparse_filter_examines_a_part_of_the_log(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcasting, "PAGE", 10)
    monkeypatch.setattr(serving, "MAX_EXAMINED", 30)
    for _ in range(70):
        await service.submit()
    job_id = await service.submit(labels={"of": "ann"})
    for _ in range(25):
        await service.submit()
    reads: list[int] = []
    read_log = service.store.read_log

    async def counted(filter: EventFilter) -> LogPage:
        page = await read_log(filter)
        reads.append(len(page.events))
        return page

    monkeypatch.setattr(service.store, "read_log", counted)
    pages: list[dict[str, Any]] = []
    after = ""
    while not pages or pages[-1].get("more"):
        reads.clear()
        # A request that may wait does not wait while the log has events that it has not examined.
        headers = {"Prefer": "wait=50"} if len(pages) < 2 else {}
        reply = await service.call("GET", f"/events?label=of:ann{after}", headers=headers)
        pages.append(reply.json())
        after = f"&after={pages[-1]['next']}"
        assert sum(reads) <= 30
        assert max(reads) <= 10
    assert [[e["jobId"] for e in page["events"]] for page in pages] == [[], [], [job_id], []]
    assert [page.get("more") for page in pages] == [True, True, True, None]


@pytest.mark.parametrize("cursor", ["", "x", "1", "a-", "a-01", "-1", "A-1", "a-1 ", "é-1"])
async def test_a_malformed_cursor_is_refused(service: Service, cursor: str) -> None:
    job_id = await service.submit()
    for path in (f"/jobs/{job_id}/events", "/events"):
        reply = await service.call("GET", path, headers={**SSE, "Last-Event-ID": cursor or "?"})
        assert (reply.status, reply.json()["code"]) == (400, "bad-cursor")


async def test_events_of_unknown_and_removed_jobs(service: Service) -> None:
    job_id = await service.submit()
    await service.store.delete(job_id)
    for accept in (SSE, {}):
        assert (await service.call("GET", f"/jobs/{job_id}/events", headers=accept)).status == 410
        assert (await service.call("GET", f"/jobs/{'0' * 26}/events", headers=accept)).status == 404
    (event,) = (await service.call("GET", "/events")).json()["events"]
    assert (event["type"], event["jobId"]) == ("deleted", job_id)


async def test_a_head_request_has_no_stream(service: Service) -> None:
    job_id = await service.submit()
    for path in (f"/jobs/{job_id}/events", "/events"):
        reply = await service.call("HEAD", path, headers=SSE)
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
        assert reply.body == b""


async def test_all_events_by_kind_queue_label_type_and_id(
    service: Service, client: aiohttp.ClientSession
) -> None:
    async def read(query: str) -> list[tuple[str, str]]:
        found = (await service.call("GET", f"/events?{query}")).json()["events"]
        return [(e["jobId"], e["type"]) for e in found]

    video = await service.submit("encode", input={"source": "a"})
    other = await service.submit(labels={"of": "ann"})
    job = await service.claim("encode", "video")
    assert job.id == video
    await service.store.log(job.id, job.owner or "", job.fence, [{"message": "hello"}])
    token = (msgspec.Raw(b'"token"'),)
    await service.store.apply([Emitted(job_id=job.id, owner=job.owner, fence=job.fence, chunks=token)])
    assert await read("kind=encode") == [(video, "status"), (video, "status"), (video, "log")]
    assert await read("queue=video&type=log,step") == [(video, "log")]
    assert await read("type=output") == [(video, "output")]
    assert await read("label=of:ann") == await read(f"id={other}") == [(other, "status")]
    assert await read("label=of:bob") == await read(f"id={'0' * 26}") == []
    assert len(await read(f"id={other}&id={video}")) == 4
    for wrong in ("type=x", "id=x", "label=x", "color=red"):
        assert (await service.call("GET", f"/events?{wrong}")).status == 422
    # The stream selects in the same way.
    async with (
        client.get("/events?label=of:ann&type=status", headers=SSE) as answer,
        aclosing(listen(answer)) as stream,
    ):
        snapshot = await anext(stream)
        assert {q["name"] for q in snapshot.data["queues"]} >= {"video", "default"}
        await service.finish(job)
        await service.store.delete(other)
        third = await service.submit(labels={"of": "ann"})
        assert (await anext(stream)).data["jobId"] == third


async def test_pages_follow_each_other(service: Service) -> None:
    job_id = await service.submit()
    job = await service.claim()
    await service.store.log(job.id, job.owner or "", job.fence, [{"message": n} for n in range(1500)])
    await service.finish(job)
    found: list[Any] = []
    after, ended, pages = "", False, 0
    while not ended:
        page = (await service.call("GET", f"/jobs/{job_id}/events{after}")).json()
        found += page["events"]
        after, ended, pages = f"?after={page['next']}", page["ended"], pages + 1
    assert pages == 2
    assert [e["type"] for e in found] == ["status", "status", *["log"] * 1500, "status"]
    numbers = [int(e["id"].partition("-")[2]) for e in found]
    assert numbers == sorted(set(numbers))
    last = (await service.call("GET", f"/jobs/{job_id}/events{after}")).json()
    assert last == {"events": [], "next": after.removeprefix("?after="), "ended": True}


async def test_a_page_can_wait_for_an_event(service: Service, client: aiohttp.ClientSession) -> None:
    job_id = await service.submit()
    page = (await service.call("GET", f"/jobs/{job_id}/events")).json()

    async def wait() -> Any:
        path = f"/jobs/{job_id}/events?after={page['next']}"
        async with client.get(path, headers={"Prefer": "wait=30"}) as answer:
            assert answer.headers["Preference-Applied"] == "wait=30"
            return await answer.json()

    waiting = asyncio.create_task(wait())
    await eventually(lambda: service.parts.events.subscriptions)
    await service.claim()
    found = await waiting
    assert [e["job"]["status"] for e in found["events"]] == ["PROCESSING"]
    assert service.parts.events.subscriptions == 0


async def test_a_page_ends_its_wait_without_an_event(service: Service) -> None:
    job_id = await service.submit()
    first = (await service.call("GET", f"/jobs/{job_id}/events")).json()
    path = f"/jobs/{job_id}/events?after={first['next']}"
    reply = await service.call("GET", path, headers={"Prefer": "wait=1"})
    assert reply.json() == {"events": [], "next": first["next"], "ended": False}


async def test_a_shutdown_closes_streams_without_an_end(
    service: Service, client: aiohttp.ClientSession
) -> None:
    job_id = await service.submit()
    async with client.get(f"/jobs/{job_id}/events", headers=SSE) as answer:
        stream = listen(answer)
        assert (await anext(stream)).event == "snapshot"
        await eventually(lambda: service.parts.events.index)
        service.parts.events.close()
        assert [heard async for heard in stream] == []
    async with client.get(f"/jobs/{job_id}/events", headers=SSE) as answer:
        assert answer.status == 503


async def test_progress_has_no_id_and_is_sent_at_most_four_times_per_second(
    service: Service, client: aiohttp.ClientSession
) -> None:
    job_id = await service.submit()
    job = await service.claim()
    async with client.get(f"/jobs/{job_id}/events", headers=SSE) as answer:
        stream = listen(answer)
        assert (await anext(stream)).event == "snapshot"
        await eventually(lambda: service.parts.events.index)
        for percent in range(100):
            live = LiveProgress(percent + 1, Progress(percent=float(percent)), service.clock.now())
            service.progress.publish(attempt(job_id, job.fence), live)
            await asyncio.sleep(0.005)
        await service.finish(job)
        heard = [h async for h in stream]
    progress = [h for h in heard if h.event == "progress"]
    assert 1 <= len(progress) <= 5
    assert all(h.id is None for h in progress)
    percents = [h.data["job"]["progress"]["percent"] for h in progress]
    assert percents == sorted(set(percents))
    assert [h.event for h in heard if h.event != "progress"] == ["status", "end"]


# --- limits and other servers


def long_lines(service: Service, job_id: str, count: int) -> list[Event]:
    """Events with 200 kB of text each, after the last one."""
    last = service.parts.events.last
    facts = {
        "kind": "echo",
        "queue": "default",
        "status": "PROCESSING",
        "log": {"message": "x" * 200_000},
    }
    return [
        Event(last + 1 + i, job_id, "log", service.clock.now(), {**facts, "number": i})
        for i in range(count)
    ]


@pytest.mark.parametrize(("events", "size"), [(10, 1 << 30), (1000, 1 << 20)])
async def test_a_slow_listener_is_disconnected_and_delays_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: int, size: int
) -> None:
    monkeypatch.setattr(serving, "MAX_WAITING_BYTES", size)
    config = Config(events=EventsConfig(buffer=events))
    async with Service(tmp_path, config=config).opened() as service, listening(service) as client:
        broadcaster = service.parts.events
        job_id = await service.submit()
        path = f"/jobs/{job_id}/events"
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        url = client._base_url
        assert url is not None
        stuck.connect(("127.0.0.1", url.port or 0))
        stuck.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n".encode())
        async with client.get(path, headers=SSE, read_bufsize=1 << 20) as answer:
            await eventually(lambda: broadcaster.subscriptions == 2)
            for event in long_lines(service, job_id, 60):
                broadcaster.on_log(broadcaster.epoch, event.id, [event])
                read = b""
                while b'"number":%d}' % event.job["number"] not in read:
                    read = read[-1000:] + await answer.content.readany()
            assert broadcaster.subscriptions == 1
        # It gets what was sent, and can continue after its last event.
        stuck.setblocking(False)
        got = b""
        with contextlib.closing(stuck):
            loop = asyncio.get_running_loop()
            while not got.endswith(b"\r\n0\r\n\r\n"):
                got = got[-1000:] + await loop.sock_recv(stuck, 1 << 20)
        assert b"event: end" not in got
        await eventually(lambda: broadcaster.subscriptions == 0)


async def test_a_stream_outlives_the_deadline_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcasting, "KEEP_ALIVE", 0.5)
    config = Config(http=HttpConfig(request_timeout=0.5))
    async with Service(tmp_path, config=config).opened() as service, listening(service) as client:
        job_id = await service.submit()
        async with client.get(f"/jobs/{job_id}/events", headers=SSE) as answer:
            comments = 0
            while comments < 2:
                comments += (await answer.content.readline()) == b":\n"
            await service.claim()
            while not (line := await answer.content.readline()).startswith(b"data: "):
                pass
            assert json.loads(line[6:])["job"]["status"] == "PROCESSING"


async def test_another_epoch_resets_open_streams(
    service: Service, client: aiohttp.ClientSession
) -> None:
    job_id = await service.submit()
    broadcaster = service.parts.events
    async with (
        client.get(f"/jobs/{job_id}/events", headers=SSE) as answer,
        client.get("/events", headers=SSE) as all_events,
        aclosing(listen(answer)) as one,
        aclosing(listen(all_events)) as all_,
    ):
        for stream in (one, all_):
            assert (await anext(stream)).event == "snapshot"
        await service.claim()
        for stream in (one, all_):
            assert (await anext(stream)).event == "status"
        broadcaster.on_log("another", 1, ())
        for stream in (one, all_):
            reset = await anext(stream)
            assert (reset.event, reset.id) == ("reset", "another-1")
        event = Event(2, job_id, "log", service.clock.now(), {"kind": "echo", "log": {}, "queue": "x"})
        broadcaster.on_log("another", 2, [event])
        for stream in (one, all_):
            assert (await anext(stream)).id == "another-2"


async def test_another_epoch_resets_a_page_that_waits(service: Service) -> None:
    job_id = await service.submit()
    for path in (f"/jobs/{job_id}/events", "/events"):
        start = (await service.call("GET", path)).json()["next"]
        waiting = asyncio.ensure_future(
            service.call("GET", f"{path}?after={start}", headers={"Prefer": "wait=20"})
        )
        await eventually(lambda: service.parts.events.subscriptions == 1)
        service.parts.events.on_log("another", 7, ())
        page = (await waiting).json()
        assert [event["type"] for event in page["events"]] == ["reset"]
        assert page["next"] == "another-7"
        service.parts.events.on_log(start.partition("-")[0], int(start.partition("-")[2]), ())


async def test_a_server_that_bides_authors_did_not_write(service: Service) -> None:
    uvicorn = pytest.importorskip("uvicorn")
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(service.app, lifespan="off", log_level="error"))
    serving = asyncio.create_task(server.serve([listener]))
    await eventually(lambda: server.started)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    job_id = await service.submit()
    async with aiohttp.ClientSession(base) as client:
        async with client.get(f"/jobs/{job_id}/events", headers=SSE) as answer:
            stream = listen(answer)
            assert (await anext(stream)).event == "snapshot"
            await service.finish(await service.claim())
            heard = [h async for h in stream]
            assert (statuses(heard), heard[-1].event) == (["PROCESSING", "DONE"], "end")
        other = await service.submit()
        async with client.get(f"/jobs/{other}/events", headers=SSE) as answer:
            await eventually(lambda: service.parts.events.subscriptions)
        await eventually(lambda: not service.parts.events.subscriptions, "it noticed the disconnect")
    server.should_exit = True
    await serving
    listener.close()


@pytest.mark.parametrize(
    ("accept", "stream"),
    [
        ("text/event-stream", True),
        ("text/event-stream, */*;q=0.1", True),
        ("Text/Event-Stream;q=0.9, application/json;q=0.8", True),
        ("application/json, text/event-stream", False),
        ("*/*", False),
        ("text/event-stream;q=0", False),
        ("text/event-stream;q=x", False),
        ("", False),
        (None, False),
    ],
)
def test_the_accept_header_chooses_the_form(accept: str | None, stream: bool) -> None:
    assert wants_stream(accept) is stream
