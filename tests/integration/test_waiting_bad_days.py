"""Waiting while a server fails: the wait survives, or ends with a precise error, and nothing spins."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web

from bide.client.http import sender
from bide.client.polling import poller
from bide.core.errors import JobFailed, ServiceError, ServiceUnreachable, WaitTimeout
from tests.integration import third_party as their
from tests.integration.third_party import (
    KEY,
    SPEED,
    ThirdParty,
    done,
    film,
    generation,
    going_on,
    sync_so,
    tells,
)
from tests.unit import fake_service as fake
from tests.unit.fake_service import Reply, problem


@pytest.fixture
def server(caplog: pytest.LogCaptureFixture) -> Iterator[ThirdParty]:
    caplog.set_level(logging.DEBUG)
    with ThirdParty() as running:
        yield running
    assert KEY not in caplog.text


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hanging request times out after a moment instead of 30 seconds."""
    monkeypatch.setattr(sender, "ANSWER_TIMEOUT", 0.15)
    monkeypatch.setattr(poller, "SWEEP", 0.05)


BAD_DAYS: dict[str, Reply] = {
    "500": problem(500, "internal"),
    "502 with HTML": fake.HTML_502,
    "200 with HTML": fake.text(200, "<html>Log in</html>", "text/html"),
    "503": problem(503, "unavailable"),
    "truncated JSON": fake.TRUNCATED,
    "cut off": fake.cut_off,
    "empty 200": fake.EMPTY,
    "reset": fake.reset,
    "endless header": their.raw(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000),
    "broken chunks": their.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "bad gzip": their.raw(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"),
    "another job": tells(generation(7)),
    "a list": tells([1, 2, 3]),
    "deep JSON": fake.text(200, "[" * 100_000, "application/json"),
    "409": problem(409, "conflict"),
    "429": problem(429, "too-many"),
}


@pytest.mark.parametrize("name", BAD_DAYS)
async def test_a_failed_poll_backs_off_and_goes_on(name: str, server: ThirdParty) -> None:
    bad = BAD_DAYS[name]
    server.generation(1, bad, bad, bad, bad, done())
    async with sync_so(server) as client:
        job = client.job("gen-1")
        assert await job.result(timeout=20) == film()
        assert len(server.asked) == client.requests == job.requests == 5


async def test_nothing_spins_on_a_day_that_does_not_end(server: ThirdParty) -> None:
    async def suffer(name: str) -> None:
        """Three jobs, for a minute of the client's own time."""
        jobs = [f"gen-{name.replace(' ', '-')}-{number}" for number in range(3)]
        for job in jobs:
            server.on("GET", f"/v2/generate/{job}", BAD_DAYS[name])
        async with sync_so(server) as client:
            with pytest.raises(WaitTimeout):
                await client.wait_all([client.job(job) for job in jobs], timeout=0.6)

    await asyncio.gather(*map(suffer, BAD_DAYS))
    for name in BAD_DAYS:
        asked = server.count(f"gen-{name.replace(' ', '-')}-")
        assert 3 <= asked <= 3 * 16, name


@pytest.mark.parametrize("bad", [their.hang, their.drip], ids=["silence", "a byte now and then"])
async def test_a_request_that_hangs_is_given_up_and_asked_again(
    bad: Reply, server: ThirdParty, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    server.generation(1, bad, bad, done())
    async with sync_so(server) as client:
        client._account.api.longpoll = None  # held, it would be given ten seconds more
        assert await client.job("gen-1").result(timeout=20) == film()
    assert "it took too long" in caplog.text
    assert len(server.asked) == 3


async def test_a_hanging_server_takes_no_more_than_a_few_connections(
    server: ThirdParty, impatient: None
) -> None:
    server.rest = their.hang
    async with sync_so(server, limit="1000/1s:1000") as client:
        handles = [client.job(f"gen-{number}") for number in range(300)]
        with pytest.raises(WaitTimeout):
            await client.wait_all(handles, timeout=0.5)
    assert len(server.asked) <= 2 * poller.CONNECTIONS


async def test_a_redirect_loop_ends_with_a_precise_error(server: ThirdParty) -> None:
    server.rest = their.leads_to("/v2/generate/gen-1")
    async with sync_so(server) as client:
        with pytest.raises(ServiceError, match="redirects the request more than 5 times"):
            await client.job("gen-1").result(timeout=20)
    assert len(server.asked) <= 7


async def test_a_redirect_to_nowhere_ends_with_a_precise_error(server: ThirdParty) -> None:
    server.generation(1, their.leads_to("mailto:jobs@example.com"))
    async with sync_so(server) as client:
        with pytest.raises(ServiceError, match="302"):
            await client.job("gen-1").result(timeout=20)
    assert len(server.asked) == 1


SLOW_TO_SHOW = """
name = "slow-to-show"
[submit]
path = "/tasks"
id = "id"
[ask]
path = "/tasks/{id}"
grace = 30
[read]
status = "state"
id = "id"
live = ["busy"]
done = ["ready"]
[result]
value = "value"
"""


async def test_404_right_after_the_submission_is_waited_out(server: ThirdParty, tmp_path: Path) -> None:
    unknown = problem(404, "not-found")
    server.on("POST", "/tasks", tells({"id": "t1"}, 201))
    server.on("GET", "/tasks/t1", unknown, unknown, tells({"id": "t1", "state": "ready", "value": 7}))
    async with their.described(tmp_path, server, SLOW_TO_SHOW) as client:
        job = await client.submit("any", {})
        assert await job.result(timeout=20) == 7
    assert len(server.asked) == 4


async def test_404_that_stays_ends_the_wait_after_the_grace(server: ThirdParty, tmp_path: Path) -> None:
    server.on("POST", "/tasks", tells({"id": "t1"}, 201))
    async with their.described(tmp_path, server, SLOW_TO_SHOW) as client:
        job = await client.submit("any", {})
        with pytest.raises(JobFailed, match="JOB_NOT_FOUND"):
            await job.result(timeout=20)
        stranger = client.job("t2")  # its age is unknown, so there is nothing to wait for
        with pytest.raises(JobFailed, match="JOB_NOT_FOUND"):
            await stranger.result(timeout=20)
        assert stranger.requests == 1
    assert len(server.asked) <= 20


@pytest.mark.parametrize("status,code", [(404, "JOB_NOT_FOUND"), (410, "JOB_GONE")])
async def test_an_unknown_job_ends_its_own_wait_at_once(
    status: int, code: str, server: ThirdParty
) -> None:
    server.generation(1, problem(status, "gone"))
    server.generation(2, going_on(2), done(2))
    async with sync_so(server) as client:
        lost, found = client.job("gen-1"), client.job("gen-2")
        await client.wait_all([lost, found], timeout=20)
        with pytest.raises(JobFailed, match=code):
            await lost.result()
        assert await found.result() == film(2)
        assert lost.requests == 1


async def test_an_unknown_status_is_waited_out_and_reported_once(
    server: ThirdParty, caplog: pytest.LogCaptureFixture
) -> None:
    odd = tells(generation(1, "FROBNICATING"))
    server.generation(1, odd, odd, odd, done())
    async with sync_so(server) as client:
        assert await client.job("gen-1").result(timeout=20) == film()
    assert caplog.text.count("which the description of sync.so does not have") == 1


RETRY_AFTER = ["-5", "0", "1e9", "999999999999999999999", "soon", "Tue, 99 Foo 2030", "0.001", "nan"]


@pytest.mark.parametrize("value", RETRY_AFTER[:4])
async def test_an_absurd_retry_after_neither_stops_nor_hurries_a_wait(
    value: str, server: ThirdParty
) -> None:
    absurd = going_on(Retry_After=value)
    server.generation(1, *[absurd] * 5, done())
    async with sync_so(server, speed=2000.0) as client:
        assert await client.job("gen-1").result(timeout=20) == film()


@pytest.mark.parametrize("value", RETRY_AFTER)
async def test_an_absurd_retry_after_of_a_refusal_is_survived_without_hurry(
    value: str, server: ThirdParty
) -> None:
    refused = tells({"message": "slow down"}, 429, Retry_After=value)
    server.generation(1, *[refused] * 3, done())
    async with sync_so(server, speed=20_000.0) as client:
        assert await client.job("gen-1").result(timeout=20) == film()
    spans = [(b - a) * 20_000.0 for a, b in zip(server.came, server.came[1:], strict=False)]
    assert min(spans) >= 0.5


async def test_a_changed_result_after_the_end_changes_nothing(
    server: ThirdParty, tmp_path: Path
) -> None:
    other = tells(generation(1, "FAILED", error="no, it failed"))
    server.generation(1, done(), other)
    for _ in range(2):
        async with sync_so(server, ledger=tmp_path / "ledger") as client:
            job = client.job("gen-1")
            assert await job.result(timeout=20) == film()
            assert await job.result(timeout=20) == film()
            assert (await job.status()).status == "DONE"
    assert len(server.asked) == 1


async def test_one_429_pauses_all_and_one_goes_first_afterwards(server: ThirdParty) -> None:
    async def reply(request: web.Request) -> web.StreamResponse:
        number = int(request.path.rpartition("-")[2])
        if len(server.asked) == 30:
            return web.json_response({}, status=429, headers={"Retry-After": "50"})
        late = len(server.asked) > 50
        return web.json_response(generation(number, "COMPLETED" if late else "PROCESSING"))

    server.rest = reply
    async with sync_so(server, 25.0, limit="120/1m", price=0.01) as client:
        client._account.api.longpoll = None
        await client.wait_all([client.job(f"gen-{n}") for n in range(20)], timeout=30)
    refused = server.came[29]
    # Two seconds at fifty requests per second; some may have been on their way when it was refused.
    assert sum(refused < at < refused + 2.0 for at in server.came) <= 10
    pauses = [b - a for a, b in zip(server.came, server.came[1:], strict=False)]
    assert max(pauses) > 1.6


async def test_a_submission_that_is_one_too_many_is_waited_out(server: ThirdParty) -> None:
    crowded = tells({"errorCode": "CONCURRENCY_LIMIT", "message": "too many concurrent jobs"}, 429)
    server.on("POST", "/v2/generate", crowded, crowded, tells({"id": "gen-1"}, 201))
    server.generation(1, done())
    server.generation(2, done(2))
    async with sync_so(server) as client:
        other = asyncio.create_task(client.job("gen-2").result())
        job = await asyncio.wait_for(client.submit("lipsync", {"video": "x"}), 20)
        assert await other == film(2)  # it does not apply to polls: they continue
        assert await job.result(timeout=20) == film()
    assert [request.method for request in server.asked].count("POST") == 3


async def test_a_limit_for_submissions_alone_is_kept(server: ThirdParty) -> None:
    """sync.so allows 60 per minute; by this clock a minute is 0.6 s."""
    server.on("POST", "/v2/generate", tells({"id": "gen-1"}, 201))
    called = []
    async with sync_so(server, limit="100000/1s") as client:
        for number in range(130):
            called.append(time.monotonic())
            await client.submit("lipsync", {"number": number})
    # From the call, and not from the arrival: a request that arrives late does not bring the later ones closer.
    assert all(b - a > 0.58 for a, b in zip(called, server.came[60:], strict=False))


async def test_a_submission_that_is_throttled_is_waited_out_however_often(server: ThirdParty) -> None:
    refused = tells({"message": "slow down"}, 429)
    server.on("POST", "/v2/generate", *[refused] * 12, tells({"id": "gen-1"}, 201))
    async with sync_so(server, speed=2000.0) as client:
        job = await asyncio.wait_for(client.submit("lipsync", {}), 20)
    assert job.id == "gen-1"
    assert len(server.asked) == 13


async def test_a_refused_submission_is_reported_at_once_and_sent_once(server: ThirdParty) -> None:
    server.on("POST", "/v2/generate", tells({"error": "no such model"}, 422))
    async with sync_so(server) as client:
        with pytest.raises(ServiceError, match="no such model"):
            await client.submit("lipsync", {})
        (outcome,) = await client.submit_many([{"kind": "lipsync", "input": {}}])
        assert isinstance(outcome, ServiceError)
    assert len(server.asked) == 2


@pytest.mark.parametrize("bad", ["500", "reset", "truncated JSON"])
async def test_a_submission_without_a_key_is_not_repeated_when_it_may_have_been_taken(
    bad: str, server: ThirdParty
) -> None:
    server.on("POST", "/v2/generate", BAD_DAYS[bad], tells({"id": "gen-1"}, 201))
    async with sync_so(server) as client:
        with pytest.raises((ServiceError, ServiceUnreachable)):
            await client.submit("lipsync", {})
        assert len(server.asked) == 1
        server.on("POST", "/v2/generate", BAD_DAYS["500"], tells({"id": "gen-1"}, 201))
        job = await client.submit("lipsync", {}, idempotency_key="k1")
        assert job.id == "gen-1"
    assert server.header("Idempotency-Key")[-2:] == ["k1", "k1"]


# --- clocks


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
async def test_a_clock_that_is_an_hour_off_changes_no_age_duration_or_estimate(
    off: float, server: ThirdParty, tmp_path: Path
) -> None:
    began = time.time()

    def theirs() -> float:
        """Their clock runs as fast as the client's."""
        return began + (time.time() - began) * SPEED + off

    async def reply(request: web.Request) -> web.StreamResponse:
        left = began + off + 60.0 - theirs()
        document = {
            "id": request.path.rpartition("/")[2],
            "state": "busy" if left > 0 else "ready",
            "created": began + off - 100.0,  # a hundred seconds old when it is first asked about
            "eta": theirs() + left,
            "finished": theirs() + left if left <= 0 else None,
        }
        return web.json_response(document, headers={"Date": formatdate(theirs(), usegmt=True)})

    server.rest = reply
    text = SLOW_TO_SHOW.replace("[read]", f"[read]{TIMES}")
    async with their.described(tmp_path, server, text) as client:
        jobs = [client.job(f"t{number}") for number in range(8)]
        await client.wait_all(jobs, timeout=20)
        await client._account.open()
        poller = client._account._poller
        assert poller is not None
        (kind,) = poller.schedule.kinds.values()
        took = kind.plans.sketch.table(exact=False).quantile(0.5)
        trust = kind.report("eta").sketch.table(exact=False).quantile(0.5)
    for job in jobs:
        submitted = job._state.submitted_at
        assert submitted is not None
        assert submitted == pytest.approx(began - 100.0, abs=10.0)
    assert took == pytest.approx(160.0, rel=0.3)
    assert trust == pytest.approx(1.0, rel=0.5)  # what was left in fact, by what was said
    assert len(server.asked) <= 8 * 12


TIMES = """
started_at = "created"
eta = "eta"
finished_at = "finished"
"""
