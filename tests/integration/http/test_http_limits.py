"""Limits of tenants and kinds: 429, Retry-After, RateLimit and RateLimit-Policy."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bide.core.jobs.record import Child, Job
from bide.core.jobs.state_machine import Spawned
from bide.core.pacing.limits import limit_headers, read_limits
from bide.core.pacing.rate_limit import SLOTS
from bide.server.config import Config, LimitsConfig
from bide.server.intake import Intake
from bide.server.worker.protocol import Spawn
from tests.integration.http.service import Reply, Service, scope
from tests.integration.http.test_http_tus import TUS, begun, create, metadata, patch
from tests.waiting import eventually

ECHO = {"kind": "echo"}


@asynccontextmanager
async def limited(folder: Path, **limits: Any) -> AsyncIterator[Service]:
    config = Config(limits=LimitsConfig.read(limits))
    async with Service(folder, config=config).opened() as service:
        yield service


async def submit(service: Service, **more: Any) -> Reply:
    headers = more.pop("headers", None)
    return await service.call("POST", "/jobs", json={**ECHO, **more}, headers=headers)


async def test_submissions_over_the_limit_are_refused_until_they_fit(tmp_path: Path) -> None:
    async with limited(tmp_path, submit="5/1m") as service:
        for left in (4, 3, 2, 1, 0):
            reply = await submit(service)
            assert reply.status == 202
            assert reply.headers["ratelimit-policy"] == '"default";q=5;w=60'
            assert reply.headers["ratelimit"] == f'"default";r={left};t=60'
            # The client reads the same from it.
            (seen,) = read_limits(limit_headers(reply.headers) or {}, 0.0)
            assert (seen.quota, seen.window, seen.remaining) == (5, 60, left)
        service.clock.advance(20.5)
        for _ in range(3):
            reply = await submit(service)
            assert reply.status == 429
            assert reply.headers["retry-after"] == "40"
            assert reply.headers["ratelimit"] == '"default";r=0;t=40'
            problem = reply.json()
            assert (problem["code"], problem["limit"], problem["retryable"]) == (
                "quota-exceeded",
                "submit",
                True,
            )
            assert problem["violated-policies"] == ["default"]
            assert "5/1m" in problem["detail"]
        service.clock.advance(39.4)
        assert (await submit(service)).status == 429
        service.clock.advance(0.2)
        reply = await submit(service)
        assert (reply.status, reply.headers["ratelimit"]) == (202, '"default";r=4;t=60')
        # An invalid submission does not count, and shows what is left.
        reply = await submit(service, priority="high")
        assert (reply.status, reply.headers["ratelimit"]) == (422, '"default";r=4;t=60')


async def test_retry_after_is_right_within_20_percent(tmp_path: Path) -> None:
    async with limited(tmp_path, submit="20/1m:4") as service:
        for pause in (0.0, 0.5, 3.0, 0.0, 12.0, 0.0, 0.0, 40.0) * 3:
            service.clock.advance(pause)
            while (reply := await submit(service)).status == 202:
                pass
            told, real = int(reply.headers["retry-after"]), 0.0
            while (await submit(service)).status == 429:
                service.clock.advance(0.05)
                real += 0.05
            # Whole seconds, and at least one.
            assert real - 0.05 <= told <= max(1.2 * real, math.ceil(real))


async def test_an_idempotent_repeat_is_neither_counted_nor_refused(tmp_path: Path) -> None:
    async with limited(tmp_path, submit="2/1m") as service:
        key = {"idempotency-key": "a"}
        first = await submit(service, headers=key)
        for _ in range(5):
            assert (await submit(service, headers=key)).headers["ratelimit"] == '"default";r=1;t=60'
        assert (await submit(service)).status == 202
        assert (await submit(service)).status == 429
        again = await submit(service, headers=key)
        assert (again.status, again.json()["jobId"]) == (202, first.json()["jobId"])
        assert again.headers["idempotency-replayed"] == "true"
        # The key of a refused submission is not used up.
        other = {"idempotency-key": "b"}
        assert (await submit(service, headers=other)).status == 429
        service.clock.advance(61)
        assert (await submit(service, value=1, headers=other)).status == 422  # an unknown field
        created = await submit(service, input={"value": 2}, headers=other)
        assert (created.status, created.json()["replayed"]) == (202, False)


async def test_each_job_of_a_batch_counts(tmp_path: Path) -> None:
    async with limited(tmp_path, submit="3/1m") as service:
        reply = await service.call("POST", "/jobs/batch", json={"jobs": [ECHO] * 5})
        assert (reply.status, reply.headers["ratelimit"]) == (202, '"default";r=0;t=60')
        entries = reply.json()["jobs"]
        assert ["jobId" in entry for entry in entries] == [True] * 3 + [False] * 2
        assert {(e["code"], e["status"], e["retryAfter"]) for e in entries[3:]} == {
            ("quota-exceeded", 429, 60)
        }


async def test_a_kind_has_a_limit_besides_that_of_the_tenant(tmp_path: Path) -> None:
    async with limited(tmp_path, submit="3/1m", kinds={"echo": {"submit": "1/10s"}}) as service:
        reply = await submit(service)
        assert reply.headers["ratelimit-policy"] == '"default";q=3;w=60, "kind:echo";q=1;w=10'
        assert reply.headers["ratelimit"] == '"default";r=2;t=60, "kind:echo";r=0;t=10'
        refused = await submit(service)
        assert (refused.status, refused.headers["retry-after"]) == (429, "10")
        assert refused.json()["violated-policies"] == ["kind:echo"]
        encode = {"kind": "encode", "input": {"source": "a"}}
        for _ in range(2):
            reply = await service.call("POST", "/jobs", json=encode)
            assert (reply.status, reply.headers["ratelimit-policy"]) == (202, '"default";q=3;w=60')
        assert (await service.call("POST", "/jobs", json=encode)).status == 429


async def test_limits_survive_a_restart(tmp_path: Path) -> None:
    async with limited(tmp_path, submit="3/1m") as service:
        for _ in range(3):
            assert (await submit(service)).status == 202
        now = service.clock.now()
    async with limited(tmp_path, submit="3/1m") as service:
        service.clock.advance(now + 10 - service.clock.now())
        reply = await submit(service)
        assert (reply.status, reply.headers["retry-after"]) == (429, "50")


async def test_waiting_jobs_are_limited(tmp_path: Path) -> None:
    async with limited(tmp_path, waiting=3, kinds={"encode": {"waiting": 1}}) as service:
        first = await submit(service)
        assert first.status == 202 and "ratelimit" not in first.headers
        encode = {"kind": "encode", "input": {"source": "a"}}
        assert (await service.call("POST", "/jobs", json=encode)).status == 202
        reply = await service.call("POST", "/jobs", json=encode)
        assert (reply.status, reply.json()["limit"]) == (429, "waiting")
        assert reply.json()["violated-policies"] == ["kind:encode"]
        assert (await submit(service)).status == 202
        reply = await submit(service)
        assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        assert "3 waiting jobs" in reply.json()["detail"]
        await service.claim()
        service.clock.advance(1)
        reply = await service.call("POST", "/jobs/batch", json={"jobs": [ECHO] * 2})
        assert ["jobId" in entry for entry in reply.json()["jobs"]] == [True, False]
        # A form is one more submission.
        service.clock.advance(1)
        form = (
            b'--x\r\nContent-Disposition: form-data; name="job"\r\n\r\n{"kind": "thumbnail"}\r\n'
            b'--x\r\nContent-Disposition: form-data; name="video"; filename="a"\r\n\r\nabc\r\n--x--\r\n'
        )
        headers = {"content-type": "multipart/form-data; boundary=x"}
        assert (await service.call("POST", "/jobs", body=form, headers=headers)).status == 429
        await service.claim()
        service.clock.advance(1)
        assert (await service.call("POST", "/jobs", body=form, headers=headers)).status == 202


async def test_jobs_that_run_again_count_as_waiting(tmp_path: Path) -> None:
    async with limited(tmp_path, waiting=4) as service:
        cancelled = [await service.submit() for _ in range(4)]
        for job_id in cancelled:
            assert (await service.call("POST", f"/jobs/{job_id}/cancel")).status == 200
        service.clock.advance(1)
        for _ in range(3):
            assert (await submit(service)).status == 202
        reply = await service.call("POST", f"/jobs/{cancelled[0]}/retry")
        assert reply.status == 202
        reply = await service.call("POST", f"/jobs/{cancelled[1]}/retry")
        assert (reply.status, reply.json()["limit"]) == (429, "waiting")
        assert (await service.call("POST", f"/jobs/{cancelled[0]}/retry")).status == 409
        service.clock.advance(1)
        assert (await submit(service)).status == 429
        # Also all at once: as many as fit.
        await service.claims("echo")
        await service.parts.bulk.start()
        service.clock.advance(1)
        for _ in range(2):
            assert (await submit(service)).status == 202
        body = {"action": "retry", "filter": {"status": "CANCELLED"}}
        bulk = (await service.call("POST", "/bulk", json=body)).json()["jobId"]

        async def result() -> Any:
            reply = await service.call("GET", f"/jobs/{bulk}", headers={"prefer": "wait=30"})
            return reply.json()["result"]

        found = await result()
        await service.parts.bulk.stop()
        assert (found["changed"], found["refused"]) == (2, 1)
        assert "4 waiting jobs" in found["errors"][0]["detail"]


async def test_spawned_jobs_take_the_place_of_others(tmp_path: Path) -> None:
    async with limited(tmp_path, waiting=4) as service:
        assert (await submit(service)).status == 202  # the jobs are counted: there are three places
        parent = await service.claim()
        intake = Intake(service.registry, service.store, limits=service.parts.limits)
        for number in range(6):  # more than the limit: a job that has begun is never refused
            child = f"{number:026}"
            message = Spawn(parent.id, parent.fence, child, child, "echo", b"{}", [])
            new = await intake.prepare_spawn(message, parent)
            change = Spawned(
                job_id=parent.id,
                owner=parent.owner,
                fence=parent.fence,
                child=Child(child, "echo", child),
            )
            assert isinstance(await service.store.spawn(change, new), Job)
        assert (await submit(service)).status == 429


async def test_an_upload_that_has_begun_becomes_a_job_and_counts(tmp_path: Path) -> None:
    async with limited(tmp_path, submit="2/1m") as service:
        about = {"upload-metadata": metadata(filename="a.bin", kind="thumbnail")}
        place = await begun(service, 3, **about)
        assert (await submit(service)).status == 202
        assert (await submit(service)).status == 429
        assert (await create(service, 3, **about)).status == 429
        done = await patch(service, place, 0, b"abc")
        assert done.status == 204 and "job-location" in done.headers
        service.clock.advance(30)
        assert (await submit(service)).headers["retry-after"] == "30"


@pytest.mark.parametrize("way", ["tus", "chunked", "presign"])
async def test_uploads_that_begin_together_do_not_exceed_the_limit(tmp_path: Path, way: str) -> None:
    async with limited(tmp_path, submit="2/1m") as service:

        async def begin(key: str) -> int:
            about = {"kind": "thumbnail", "idempotencyKey": key}
            if way == "tus":
                lines = {"upload-metadata": metadata(filename="a.bin", **about)}
                return (await create(service, 3, **lines)).status
            body = {"name": "a.bin", "size": 3, **about}
            if way == "presign":  # the job is created when the file is complete
                body["dedupe"] = "content"
            return (await service.call("POST", f"/uploads/{way}", json=body)).status

        assert [await begin(key) for key in "abc"] == [201, 201, 429]
        assert (await submit(service)).status == 429
        service.clock.advance(60)
        assert (await submit(service)).headers["ratelimit"] == '"default";r=1;t=60'


@pytest.mark.parametrize("limit", ["50/1s", "50/1s:5"])
async def test_a_flood_gets_the_limit_and_not_more(tmp_path: Path, limit: str) -> None:
    async with limited(tmp_path, submit=limit) as service:
        accepted = 0
        for _ in range(200):  # ten seconds
            replies = [await submit(service) for _ in range(6)]
            accepted += sum(reply.status == 202 for reply in replies)
            service.clock.advance(0.05)
        assert 500 * (1 - 2 / SLOTS) <= accepted <= 550


async def test_uploads_under_way_and_stored_bytes_are_limited(tmp_path: Path) -> None:
    async with limited(tmp_path, uploads=2, bytes=100) as service:
        place = await begun(service, 30)
        await begun(service, 30)
        reply = await create(service, 10)
        assert (reply.status, reply.json()["limit"]) == (429, "uploads")
        assert (await patch(service, place, 0, b"x" * 30)).status == 204
        reply = await create(service, 41)
        assert (reply.status, reply.json()["limit"]) == (429, "bytes")
        await begun(service, 40)
        plain = {"content-type": "text/plain", "content-length": "1"}
        reply = await service.call("POST", "/uploads?name=a", body=b"x", headers=plain)
        assert (reply.status, reply.json()["limit"]) == (429, "bytes")
        # A deleted upload makes room, and a result takes it.
        assert (await service.call("DELETE", place, headers=TUS)).status == 204
        service.clock.advance(5)
        await service.submit()
        await service.finish(await service.claim(), result=b'"' + b"y" * 27 + b'"')
        assert await service.store.stored_bytes("-") == 99
        service.clock.advance(5)
        assert (await service.call("POST", "/uploads?name=a", body=b"x", headers=plain)).status == 201
        service.clock.advance(5)
        assert (await service.call("POST", "/uploads?name=a", body=b"x", headers=plain)).status == 429


async def test_bytes_of_uploads_without_a_size_are_limited(tmp_path: Path) -> None:
    async with limited(tmp_path, bytes=100) as service:
        deferred = {**TUS, "upload-defer-length": "1"}
        places = [
            (await service.call("POST", "/files", headers=deferred)).headers["location"]
            for _ in range(3)
        ]
        # The size arrives later.
        reply = await patch(service, places[0], 0, b"", **{"upload-length": "101"})
        assert (reply.status, reply.json()["limit"]) == (429, "bytes")
        assert (await patch(service, places[0], 0, b"x" * 40, **{"upload-length": "40"})).status == 204
        # The size never arrives.
        assert (await patch(service, places[1], 0, b"x" * 40)).status == 204
        reply = await patch(service, places[2], 0, b"x" * 21)
        assert (reply.status, reply.json()["limit"]) == (429, "bytes")
        # A body without Content-Length, and a form.
        plain = {"content-type": "text/plain"}
        reply = await service.call("POST", "/uploads?name=a", body=b"x" * 21, headers=plain)
        assert (reply.status, reply.json()["limit"]) == (429, "bytes")
        form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--b--\r\n'
        lines = {"content-type": "multipart/form-data; boundary=b"}
        reply = await service.call("POST", "/uploads", body=form, headers=lines)
        assert (reply.status, reply.json()["limit"]) == (429, "bytes")
        reply = await service.call("POST", "/uploads?name=a", body=b"x" * 20, headers=plain)
        assert reply.status == 201
        assert await service.store.stored_bytes("-") == 100


async def test_a_slow_upload_counts_from_its_begin(tmp_path: Path) -> None:
    async with limited(tmp_path, bytes=100) as service:
        parts, rest, sent = [b"x" * 10], asyncio.Event(), list[Any]()

        async def receive() -> dict[str, Any]:
            if parts:
                return {"type": "http.request", "body": parts.pop(), "more_body": True}
            await rest.wait()
            return {"type": "http.request", "body": b"x" * 50, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        def lines(size: int) -> dict[str, str]:
            return {"content-type": "text/plain", "content-length": str(size)}

        begun = scope("POST", "/uploads?name=a", lines(60))
        slow = asyncio.ensure_future(service.app(begun, receive, send))
        await eventually(lambda: not parts)
        service.clock.advance(60)
        target = "/uploads?name=b"
        reply = await service.call("POST", target, body=b"x" * 41, headers=lines(41))
        assert (reply.status, reply.json()["limit"]) == (429, "bytes")
        reply = await service.call("POST", target, body=b"x" * 40, headers=lines(40))
        assert reply.status == 201
        rest.set()
        await slow
        assert sent[0]["status"] == 201 and await service.store.stored_bytes("-") == 100


async def test_open_streams_are_limited(tmp_path: Path) -> None:
    async with limited(tmp_path, streams=1) as service:
        leaves = asyncio.Event()
        lines = {"accept": "text/event-stream"}
        first = asyncio.ensure_future(service.send(scope("GET", "/events", lines), [b""], leaves))
        await eventually(lambda: service.parts.events.subscriptions == 1)
        reply = await service.call("GET", "/events", headers=lines)
        assert (reply.status, reply.json()["limit"]) == (429, "streams")
        assert reply.headers["retry-after"] == "10"
        # Pages are no streams.
        assert (await service.call("GET", "/events")).status == 200
        leaves.set()
        await first
        again = await service.app._components.limits.open_stream("-")
        again()
        metrics = (await service.call("GET", "/metrics")).body.decode()
        assert 'bide_refused_requests_total{reason="streams"} 1.0' in metrics
