"""Each API that comes with bide, run by the real client over a socket against answers in that API's shapes.

A minute of the client's time is less than a second here, so that pauses and backoffs are real and the tests short.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from bide.client.apis import load, names
from bide.client.client import AsyncClient
from bide.client.timing import Timing
from bide.core.errors import BideError, JobFailed, SetupError
from bide.core.jobs.record import Status
from bide.core.wire.http import JobStatus
from tests.integration.api_others import OTHERS
from tests.integration.api_vendors import VENDORS, Vendor, at, description
from tests.integration.replay import Replay, play, said
from tests.unit.fake_service import EMPTY, HTML_502, TRUNCATED

KEY = "sk-0123456789-not-to-be-seen"
SPEED = 400.0


def those(*vendors: Vendor) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vendor", vendors, ids=lambda vendor: vendor.api)


each = those(*VENDORS, *OTHERS)


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


@pytest.fixture(scope="module")
def running() -> Iterator[Replay]:
    with Replay() as server:
        yield server


@pytest.fixture
def server(running: Replay, caplog: pytest.LogCaptureFixture) -> Iterator[Replay]:
    caplog.set_level(logging.DEBUG)
    running.forget()
    yield running
    assert KEY not in caplog.text


@asynccontextmanager
async def account(server: Replay, vendor: Vendor, speed: float = SPEED) -> AsyncIterator[AsyncClient]:
    """The shipped description, at the vendor's address. bide's own is taken as any other, too."""
    key = None if not vendor.auth[0] or vendor.auth[1].startswith("AWS4") else KEY
    api = load(description(vendor.api), server.url + vendor.base)
    async with AsyncClient(None, key, api=api, timing=Timing(speed)) as client:
        yield client


def test_there_is_a_vendor_for_each_api() -> None:
    assert [one.api for one in VENDORS] == names()


@each
async def test_happy(vendor: Vendor, server: Replay, tmp_path: Path) -> None:
    play(server, vendor, said(vendor.live), said(vendor.live), said(vendor.done))
    heard: list[JobStatus] = []
    async with account(server, vendor) as client:
        job = await client.submit(vendor.kind, vendor.input)
        result = await job.result(timeout=10, on_change=heard.append)
        assert result == at(server.url, vendor.result)
        assert job.latest is not None and job.latest.status is Status.DONE
        if vendor.fetch is not None and vendor.result == "{url}" + vendor.fetch[0]:
            path = await job.download("result", tmp_path / "file")
            assert path.read_bytes() == vendor.fetch[1][1]
    what, path_, body = server.sent[0]
    assert (what, path_) == vendor.submit
    assert vendor.sent is ... or body == (vendor.input if vendor.sent is None else vendor.sent)
    assert [(route, server.bodies_of(route)) for route, _ in vendor.after] == [
        (r, [b]) for r, b in vendor.after
    ]
    name, value = vendor.auth
    proofs = {request.headers.get(name or "Authorization") for request in server.asked}
    assert all(str(proof).startswith(value.replace("KEY", KEY)) for proof in proofs) or not name
    assert name or proofs == {None}
    shares = {one.progress.percent for one in heard if one.progress is not None}
    assert vendor.progress is None or vendor.progress in shares


@each
async def test_failed(vendor: Vendor, server: Replay) -> None:
    play(server, vendor, said(vendor.live), said(vendor.failed))
    async with account(server, vendor) as client:
        job = await client.submit(vendor.kind, vendor.input)
        with pytest.raises(JobFailed) as caught:
            await job.result(timeout=10)
    assert caught.value.status is Status.ERROR
    assert caught.value.error is not None
    message, _, quote = caught.value.error.message.partition(' without a message: "')
    if quote:
        message += " without a message"
        assert quote.startswith("{")
    assert (caught.value.error.code, message) == vendor.error


@each
async def test_cancelled(vendor: Vendor, server: Replay) -> None:
    play(server, vendor, said(vendor.live))
    async with account(server, vendor) as client:
        job = await client.submit(vendor.kind, vendor.input)
        if vendor.cancel is None:
            with pytest.raises(BideError, match="cannot cancel"):
                await job.cancel()
        else:
            server.tell(vendor.cancel, vendor.cancel_answer)
            await job.cancel()
            sent = [
                body
                for body in server.bodies_of(vendor.cancel)
                if body not in dict(vendor.after).values()
            ]
            assert len(sent) == 1 and vendor.cancel_sent in (sent[0], ...)
        if vendor.cancelled is None:  # it knows no such end
            return
        server.tell(vendor.ask, (400 if "__type" in vendor.cancelled else 200, vendor.cancelled, {}))
        with pytest.raises(JobFailed) as caught:
            await job.result(timeout=10)
    assert caught.value.status == vendor.ends


@those(*(vendor for vendor in VENDORS if vendor.late is not None))
async def test_a_cancel_that_comes_too_late_changes_nothing(vendor: Vendor, server: Replay) -> None:
    assert vendor.late is not None and vendor.cancel is not None
    play(server, vendor, said(vendor.done))
    server.tell(vendor.cancel, vendor.late)
    async with account(server, vendor) as client:
        job = await client.submit(vendor.kind, vendor.input)
        assert (await job.cancel()).status is Status.DONE
        assert await job.result(timeout=10) == at(server.url, vendor.result)


@each
async def test_throttled(vendor: Vendor, server: Replay) -> None:
    """Submissions and questions: each is paused for, and then sent again."""
    play(server, vendor, vendor.throttle, said(vendor.live), vendor.throttle, said(vendor.done))
    server.tell(vendor.submit, vendor.throttle, vendor.accepted)
    async with account(server, vendor) as client:
        job = await client.submit(vendor.kind, vendor.input)
        assert await job.result(timeout=20) == at(server.url, vendor.result)
    assert len(server.bodies_of(vendor.submit)) == 2
    assert len(server.bodies_of(vendor.ask)) == 4
    if "Retry-After" in vendor.throttle[2]:
        assert server.came[1] - server.came[0] > 0.9 * 5 / SPEED
        assert server.came[3] - server.came[2] > 0.9 * 5 / SPEED


@each
async def test_odd(vendor: Vendor, server: Replay, caplog: pytest.LogCaptureFixture) -> None:
    """A web page, half a document, nothing at all, and an unknown status: none of them ends a job."""
    odd = said(vendor.odd)
    play(server, vendor, HTML_502, TRUNCATED, EMPTY, odd, said(vendor.live), odd, said(vendor.done))
    async with account(server, vendor) as client:
        job = await client.submit(vendor.kind, vendor.input)
        assert await job.result(timeout=20) == at(server.url, vendor.result)
    if vendor.api != "azure":  # there any other status is one of a running job
        loud = [r for r in caplog.records if ", which the description of " in r.getMessage()]
        assert len(loud) == 1
    assert len(server.bodies_of(vendor.ask)) == 7


@each
async def test_not_there_yet_and_gone(vendor: Vendor, server: Replay) -> None:
    """Some do not know a job right after they took it. One that stays unknown ends the wait, precisely."""
    if vendor.grace is not None:
        play(server, vendor, vendor.grace, vendor.grace, said(vendor.done))
        # Slow enough that it is asked in time on a busy machine, too.
        async with account(server, vendor, speed=SPEED / 40) as client:
            job = await client.submit(vendor.kind, vendor.input)
            assert await job.result(timeout=10) == at(server.url, vendor.result)
    play(server, vendor, said(vendor.live), vendor.grace or vendor.absent)
    async with account(server, vendor) as client:
        job = await client.submit(vendor.kind, vendor.input)
        with pytest.raises(JobFailed) as caught:
            await job.result(timeout=10)
    assert caught.value.error is not None and caught.value.error.code == "JOB_NOT_FOUND"


@those(*(vendor for vendor in VENDORS if vendor.batch is not None))
async def test_many_in_one_request(vendor: Vendor, server: Replay) -> None:
    assert vendor.batch is not None
    ids = [f"{number:08d}" for number in range(40)]
    field = {"bide": "jobId"}.get(vendor.api, "id")
    items = {"bide": "jobs", "github-actions": "workflow_runs"}.get(vendor.api)
    done = dict.fromkeys(ids, False)

    async def many(request: web.Request) -> web.StreamResponse:
        told = []
        for id in ids:
            told.append({**(vendor.done if done[id] else vendor.live), field: id})
            done[id] = True
        return web.json_response({items: told} if items else told)

    server.tell(vendor.batch, many)
    async with account(server, vendor) as client:
        written = "octocat/hello/{}" if vendor.api == "github-actions" else "{}"
        handles = [client.job(written.format(id)) for id in ids]
        await client.wait_all(handles, timeout=15)
        assert {handle.latest.status for handle in handles if handle.latest} == {Status.DONE}
    asked = [(what, path) for what, path, _ in server.sent]
    assert set(asked) == {vendor.batch}
    assert len(asked) <= 20


@each
async def test_another_process_finds_the_job_by_what_was_printed(vendor: Vendor, server: Replay) -> None:
    """By `Api.text`, which `bide submit --api` prints."""
    play(server, vendor, said(vendor.done))
    async with account(server, vendor) as client:
        written = client._account.api.text((await client.submit(vendor.kind, vendor.input)).ref)
    async with account(server, vendor) as client:
        assert await client.job(written).result(timeout=10) == at(server.url, vendor.result)


@each
async def test_a_key_that_it_cannot_take_is_refused_before_anything_is_sent(
    vendor: Vendor, server: Replay
) -> None:
    play(server, vendor, said(vendor.done))
    async with account(server, vendor) as client:
        if client._account.api.submissions.keyed:
            await client.submit(vendor.kind, vendor.input, idempotency_key="order-7")
            request, (_, _, body) = server.asked[0], server.sent[0]
            assert "order-7" in f"{request.headers.get('Idempotency-Key')} {body}"
        else:
            with pytest.raises(SetupError, match="has no idempotency keys"):
                await client.submit(vendor.kind, vendor.input, idempotency_key="order-7")
            assert server.sent == []
