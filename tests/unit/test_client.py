"""The client against a service over a socket: submit, lists, files, secrets, addresses, and without await."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bide.client.apis.values import retry_after, without_credentials
from bide.client.blocking import Client, Loop
from bide.client.client import AsyncClient
from bide.client.http.addresses import proxy_for
from bide.client.options import ClientOptions
from bide.client.submission import BATCH, JobSubmission, batches, render_submission
from bide.client.timing import Timing
from bide.core.errors import (
    BideError,
    JobFailed,
    ServiceError,
    SetupError,
    WaitTimeout,
)
from bide.core.pacing.limits import read_retry_after
from tests.unit import fake_service as fake
from tests.unit.fake_service import FakeService, failed, job, job_id, problem, says

# --- submit


async def test_submit_sends_the_contracts_body_and_headers(service: FakeService) -> None:
    service.on("POST", "/jobs", says(job(1, "PENDING")))
    async with AsyncClient(service.url, key="s3cret") as client:
        handle = await client.submit(
            "transcode",
            {"height": 480},
            idempotency_key='a "key"',
            priority=3,
            run_at=datetime(2030, 1, 31, 12, tzinfo=UTC),
            deadline=1_900_000_000.0,
            labels={"team": "ops"},
            webhook="https://example.org/hook",
            wait=5,
        )
    assert handle.id == job_id(1)
    assert handle.latest is not None
    assert handle.latest.status == "PENDING"
    assert service.bodies == [
        {
            "kind": "transcode",
            "input": {"height": 480},
            "priority": 3,
            "runAt": "2030-01-31T12:00:00.000Z",
            "deadline": "2030-03-17T17:46:40.000Z",
            "labels": {"team": "ops"},
            "webhook": {"url": "https://example.org/hook"},
        }
    ]
    headers = service.asked[0].headers
    assert headers["Idempotency-Key"] == '"a \\"key\\""'
    assert headers["Prefer"] == "wait=5"
    assert headers["Authorization"] == "Bearer s3cret"


async def test_an_empty_page_of_events_is_not_the_end_of_the_log(service: FakeService) -> None:
    event = {"id": "e-7", "jobId": job_id(1), "type": "status", "at": "2030-01-31T12:00:00Z", "job": {}}
    pages = [
        {"events": [], "next": "e-5", "ended": False, "more": True},
        {"events": [event], "next": "e-9", "ended": False},
    ]
    service.on("GET", "/events", *map(says, pages))
    async with AsyncClient(service.url) as client:
        found = [event async for event in client.events(label=("of", "ann"), follow=False)]
    assert [event.id for event in found] == ["e-7"]
    assert [request.query.get("after") for request in service.asked] == [None, "e-5"]


async def test_a_refused_submission_names_the_places(service: FakeService) -> None:
    document = {
        "status": 422,
        "code": "invalid-input",
        "detail": "the input does not fit",
        "errors": [{"pointer": "/input/height", "detail": "not a number"}],
    }

    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response(document, status=422, content_type="application/problem+json")

    service.on("POST", "/jobs", refuse)
    async with AsyncClient(service.url) as client:
        with pytest.raises(ServiceError, match="/input/height: not a number") as caught:
            await client.submit("transcode", {"height": "x"})
    assert caught.value.status == 422
    assert caught.value.code == "invalid-input"


async def test_misspelt_options_and_naive_times_are_reported_before_anything_is_sent(
    service: FakeService,
) -> None:
    async with AsyncClient(service.url) as client:
        with pytest.raises(TypeError, match="priorty"):
            await client.submit("transcode", priorty=3)  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="time zone"):
            await client.submit("transcode", run_at=datetime(2030, 1, 1))
    assert service.asked == []


async def test_submit_many_gives_a_handle_or_a_refusal_for_each_in_order(service: FakeService) -> None:
    refusal = {"status": 422, "code": "unknown-kind", "detail": "there is no kind 'x'"}
    service.on("POST", "/jobs/batch", says({"jobs": [job(1, "PENDING"), refusal, job(2, "PENDING")]}))
    async with AsyncClient(service.url) as client:
        first, second, third = await client.submit_many(
            [
                {"kind": "transcode", "input": {"n": 1}},
                {"kind": "x"},
                {"kind": "transcode", "priority": 1},
            ],
            idempotency_key="import-7",
        )
    assert not isinstance(first, ServiceError) and first.id == job_id(1)
    assert isinstance(second, ServiceError) and second.code == "unknown-kind"
    assert not isinstance(third, ServiceError) and third.id == job_id(2)
    assert service.bodies[0]["jobs"][2] == {"kind": "transcode", "priority": 1}
    assert service.header("Idempotency-Key") == ['"import-7"']


def test_batches_are_cut_by_number_and_by_size() -> None:
    small: list[JobSubmission] = [{"kind": "k"}] * (2 * BATCH + 1)
    assert [len(batch) for batch in batches(small)] == [BATCH, BATCH, 1]
    large: list[JobSubmission] = [{"kind": "k", "input": {"text": "x" * 200_000}}] * 5
    assert [len(batch) for batch in batches(large)] == [2, 2, 1]
    assert list(batches([])) == []


def test_a_submission_leaves_out_what_was_not_given() -> None:
    assert render_submission("k", None, {"queue": None}) == {"kind": "k"}


# --- lists and control


async def test_list_follows_the_cursor_up_to_the_limit(service: FakeService) -> None:
    service.on(
        "GET",
        "/jobs",
        says({"jobs": [job(3), job(2)], "next": "c1", "missing": []}),
        says({"jobs": [job(1)], "next": None, "missing": []}),
    )
    async with AsyncClient(service.url) as client:
        found = await client.list(
            status=["DONE", "ERROR"], kind="transcode", label=("team", "ops"), limit=None
        )
    assert [one.job_id for one in found] == [job_id(3), job_id(2), job_id(1)]
    first, second = (request.query for request in service.asked)
    assert first.getall("status") == ["DONE", "ERROR"]
    assert (first["kind"], first["label"]) == ("transcode", "team:ops")
    assert "cursor" not in first and second["cursor"] == "c1"


async def test_list_asks_for_no_more_than_is_wanted(service: FakeService) -> None:
    service.on("GET", "/jobs", says({"jobs": [job(3), job(2)], "next": "c1", "missing": []}))
    async with AsyncClient(service.url) as client:
        assert len(await client.list(limit=2)) == 2
    assert [request.query["limit"] for request in service.asked] == ["2"]


async def test_a_misspelt_filter_is_refused(service: FakeService) -> None:
    """Without it, a list or a bulk action would match more jobs than the caller wants."""
    async with AsyncClient(service.url) as client:
        for call in (client.list, partial(client.bulk, "delete"), partial(client.bulk_count, "delete")):
            with pytest.raises(TypeError, match="has no knd; there are status, kind"):
                await call(knd="transcode")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="events has no knd"):
            client.events(knd="transcode")  # type: ignore[call-arg]
    assert service.asked == []


async def test_cancel_retry_delete_and_queues(service: FakeService) -> None:
    here = f"/jobs/{job_id(1)}"
    service.on("POST", f"{here}/cancel", says(job(1, "CANCELLED")))
    service.on("POST", f"{here}/retry", says(job(1, "PENDING")))
    service.on("DELETE", here, fake.text(204, "", "application/json"))
    service.on("GET", "/queues", says({"queues": [{"name": "video", "waiting": 3}]}))
    service.on("POST", "/queues/a%2Fb/pause", says({}))
    service.on("POST", "/queues/a/b/pause", says({}))
    async with AsyncClient(service.url) as client:
        assert (await client.cancel(job_id(1))).status == "CANCELLED"
        handle = client.job(job_id(1))
        assert (await handle.retry()).status == "PENDING"
        assert handle.latest is not None and not handle.latest.status.terminal
        await client.delete(job_id(1))
        assert await client.queues() == [{"name": "video", "waiting": 3}]
        await client.pause_queue("a/b")
    assert service.asked[-1].raw_path == "/queues/a%2Fb/pause"


# --- files


def _with_file(content: bytes, name: str = "video.mp4") -> dict[str, Any]:
    sha256 = hashlib.sha256(content).hexdigest()
    file = {
        "name": name,
        "contentType": "video/mp4",
        "size": len(content),
        "sha256": sha256,
        "url": "/x",
    }
    return job(1, result=1, files=[file])


async def test_a_broken_download_goes_on_where_it_ended(service: FakeService, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4000

    async def part(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(content))})
        await response.prepare(request)
        await response.write(content[:300_000])
        assert request.transport is not None
        request.transport.close()
        return response

    async def rest(request: web.Request) -> web.StreamResponse:
        start = int(request.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        return web.Response(status=206, body=content[start:])

    service.script(1, says(_with_file(content)))
    service.on("GET", f"/jobs/{job_id(1)}/files/video.mp4", part, rest)
    async with AsyncClient(service.url, timing=Timing(50.0)) as client:
        path = await client.job(job_id(1)).download("video.mp4", tmp_path)
    assert path == tmp_path / "video.mp4"
    assert path.read_bytes() == content
    assert service.header("Range")[-1] not in (None, "bytes=0-")
    assert [entry.name for entry in tmp_path.iterdir()] == ["video.mp4"]


async def test_a_damaged_file_never_appears(service: FakeService, tmp_path: Path) -> None:
    service.script(1, says(_with_file(b"right")))
    service.on("GET", f"/jobs/{job_id(1)}/files/video.mp4", fake.text(200, "wrong", "video/mp4"))
    async with AsyncClient(service.url) as client:
        with pytest.raises(BideError, match="checksum mismatch"):
            await client.job(job_id(1)).download("video.mp4", tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_a_file_name_cannot_lead_out_of_the_folder(service: FakeService, tmp_path: Path) -> None:
    service.script(1, says(_with_file(b"x", "../evil")))
    async with AsyncClient(service.url) as client:
        with pytest.raises(BideError, match="leads to another folder"):
            await client.job(job_id(1)).download("../evil", tmp_path)


# --- secrets, addresses, proxies


async def test_the_key_appears_in_no_error_log_or_repr(
    service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    service.on("POST", "/jobs", problem(401, "no-key", "who are you?"))
    service.script(1, fake.reset, problem(403, "forbidden"))
    shown = []
    with caplog.at_level(logging.DEBUG):
        async with AsyncClient(service.url, key="s3cret", timing=Timing(50.0)) as client:
            shown += [repr(client), repr(client._transport), repr(client.job("x"))]
            for work in (client.submit("transcode"), client.job(job_id(1)).result()):
                with pytest.raises(ServiceError) as caught:
                    await work
                shown += [str(caught.value), repr(caught.value)]
    assert "s3cret" not in "\n".join(shown) + caplog.text
    assert service.header("Authorization") == ["Bearer s3cret"] * 3


@pytest.mark.parametrize("limit", [None, "100/1s"])  # by long poll, and by the scheduler
async def test_the_key_does_not_follow_a_redirect_to_another_host(
    service: FakeService, limit: str | None
) -> None:
    with FakeService() as other:
        other.script(1, says(job(1, result=1)))
        elsewhere = f"{other.url}/jobs/{job_id(1)}"
        service.script(1, lambda request: _redirected(elsewhere))
        options = ClientOptions(headers={"X-Team": "films"}, limit=limit)
        async with AsyncClient(service.url, key="s3cret", **options) as client:
            assert await client.job(job_id(1)).result(timeout=20) == 1
        assert (service.header("Authorization"), service.header("X-Team")) == (
            ["Bearer s3cret"],
            ["films"],
        )
        assert other.header("Authorization") == [None]


async def _redirected(url: str) -> web.StreamResponse:
    return web.Response(status=307, headers={"Location": url})


@pytest.mark.parametrize("url", ["127.0.0.1:8642", "ftp://x", "http://", ""])
def test_a_wrong_address_is_reported_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDE_URL", "gopher://x")
    with pytest.raises(SetupError, match="not the address of a service"):
        AsyncClient(url)


def test_the_address_comes_from_the_environment_when_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BIDE_URL", raising=False)
    assert AsyncClient().url == "http://127.0.0.1:8642"
    monkeypatch.setenv("BIDE_URL", "http://jobs.example/api/")
    assert AsyncClient().url == "http://jobs.example/api"
    assert AsyncClient("http://other.example").url == "http://other.example"


def test_proxies_are_obeyed_except_where_they_are_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "http_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://user:pa%20ss@proxy.example:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    assert proxy_for("https://jobs.example/api") == (
        "http://proxy.example:3128",
        "Basic dXNlcjpwYSBzcw==",
    )
    assert proxy_for("http://jobs.example") == ("http://proxy.example:3128", None)
    assert proxy_for("https://a.inside.example") == (None, None)
    assert proxy_for("http://127.0.0.1:8642") == proxy_for("http://localhost:1") == (None, None)


async def test_requests_go_through_the_proxy(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.script(1, says(job(1, result="through")))
    monkeypatch.setenv("http_proxy", service.url.replace("//", "//me:pw@"))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with AsyncClient("http://jobs.invalid") as client:
        assert await client.job(job_id(1)).result() == "through"
    assert service.asked[0].headers["Host"] == "jobs.invalid"
    assert service.asked[0].headers["Proxy-Authorization"] == "Basic bWU6cHc="


def test_credentials_in_an_address_are_not_shown() -> None:
    shown = "http://host:1/x"
    for given in (
        "u:p@host:1/x?key=1",
        "host:1/x",
        "u:p@host:1/x#key",
        "u:p?q@host:1/x",
        "t@host:1/x?a=//b@c",
    ):
        assert without_credentials(f"http://{given}") == shown, given
    assert without_credentials("/jobs?next=//u:p@host") == "/jobs"
    assert "p4ss" not in repr(AsyncClient("http://u:p4ss@host"))


def test_retry_after_is_read_in_both_forms_and_nonsense_is_none() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    assert read_retry_after(" 12 ", None, at) == 12.0
    assert read_retry_after("Tue, 01 Jan 2030 00:01:00 GMT", None, at) == 60.0
    assert read_retry_after("Mon, 31 Dec 2029 00:00:00 GMT", None, at) == 0.0
    wrong_clock = {
        "Retry-After": "Tue, 01 Jan 2030 00:01:00 GMT",
        "Date": "Tue, 01 Jan 2030 00:00:30 GMT",
    }
    assert read_retry_after(wrong_clock["Retry-After"], wrong_clock["Date"], at - 3600.0) == 30.0
    assert retry_after(wrong_clock) == 30.0
    for nonsense in ("", "-5", "soon", "1e9", "Tue, 99 Foo"):
        assert read_retry_after(nonsense, None, at) is None


# --- without await


def test_the_sync_client_does_the_same(service: FakeService, tmp_path: Path) -> None:
    later = threading.Event()
    service.on("POST", "/jobs", says(job(1, "PENDING")))
    service.script(1, fake.held(job(1, result={"n": 1}), later))
    service.script(2, says(failed(2)))
    service.on("GET", "/jobs", says({"jobs": [job(1)], "next": None, "missing": []}))
    with Client(service.url) as client:
        first, second = client.submit("transcode", {"height": 480}), client.job(job_id(2))
        order = []
        for done in client.as_completed([first, second]):
            order.append(done)
            later.set()
        assert order == [second, first]
        assert first.result() == {"n": 1}
        with pytest.raises(JobFailed, match="OCR_TIMEOUT"):
            second.result()
        assert [one.job_id for one in client.list(limit=1)] == [job_id(1)]
        assert client.requests == len(service.asked)
    with pytest.raises(BideError, match="closed"):
        client.queues()


def test_a_sync_wait_times_out(service: FakeService) -> None:
    never = threading.Event()
    service.script(1, fake.held(job(1), never))
    with Client(service.url) as client, pytest.raises(WaitTimeout):
        client.job(job_id(1)).result(timeout=0.05)
    never.set()


def test_a_sync_client_that_is_let_go_leaves_no_thread(service: FakeService) -> None:
    service.script(1, says(job(1, result=5)))

    def use() -> Any:
        return Client(service.url).job(job_id(1)).result()

    assert use() == 5
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name == "bide-client"]


def test_an_interrupt_within_the_lock_of_a_future_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def result(self: object) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("cannot release un-acquired lock")  # as threading.Condition does

    loop = Loop()
    with monkeypatch.context() as patched:
        patched.setattr("concurrent.futures.Future.result", result)
        with pytest.raises(KeyboardInterrupt):
            loop.run(asyncio.sleep(0))
    loop.stop(asyncio.sleep(0))
