"""Waiting for many jobs while a bide service fails: the same poller polls them in lists."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bide.client.http import sender
from bide.client.polling import poller
from bide.core.clock import render_instant
from bide.core.errors import ServiceError, WaitTimeout
from tests.integration import third_party as their
from tests.integration.test_waiting_bad_days import BAD_DAYS
from tests.integration.third_party import KEY, ThirdParty, ids, own, page, tells
from tests.unit import fake_service as fake

MANY = 40  # more than are waited for by a long poll each


@pytest.fixture
def server(caplog: pytest.LogCaptureFixture) -> Iterator[ThirdParty]:
    caplog.set_level(logging.DEBUG)
    with ThirdParty() as running:
        yield running
    assert KEY not in caplog.text


@pytest.mark.parametrize("name", [n for n in BAD_DAYS if n not in ("another job", "409")])
async def test_a_failed_poll_about_many_backs_off_and_goes_on(name: str, server: ThirdParty) -> None:
    bad = BAD_DAYS[name]
    server.on("GET", "/jobs", bad, bad, bad, bad, page())
    async with own(server) as client:
        handles = [client.job(id) for id in ids(MANY)]
        ended = await client.wait_all(handles, timeout=20)
        assert [await handle.result() for handle in ended] == list(range(MANY))
    assert len(server.asked) <= 12


async def test_nothing_spins_when_the_list_of_many_is_broken_for_good(server: ThirdParty) -> None:
    server.rest = fake.HTML_502
    async with own(server) as client:
        with pytest.raises(WaitTimeout):
            await client.wait_all([client.job(id) for id in ids(200)], timeout=0.6)
    assert len(server.asked) <= 25


async def test_many_of_which_some_are_unknown(server: ThirdParty) -> None:
    async def reply(request: web.Request) -> web.StreamResponse:
        known = [id for id in request.query.getall("id") if id != ids(MANY)[3]]
        jobs = [fake.job(int(id[-6:]), result=1) for id in known]
        return web.json_response({"jobs": jobs, "next": None, "missing": [ids(MANY)[3]]})

    server.on("GET", "/jobs", reply)
    async with own(server) as client:
        handles = await client.wait_all([client.job(id) for id in ids(MANY)], timeout=20)
        with pytest.raises(ServiceError, match="not-found"):
            await handles[3].result()
        assert await handles[4].result() == 1


async def test_an_unknown_status_word_among_many_does_not_end_their_wait(server: ThirdParty) -> None:
    """A newer service may have more words than this client."""
    words = iter(["FROBNICATING"] * 3)
    odd = ids(MANY)[0]

    def state(id: str) -> str:
        return next(words, "DONE") if id == odd else "DONE"

    server.on("GET", "/jobs", page(state))
    server.on("GET", f"/jobs/{odd}", tells(fake.job(0, "FROBNICATING")), tells(fake.job(0, result=0)))
    async with own(server) as client:
        handles = await client.wait_all([client.job(id) for id in ids(MANY)], timeout=20)
        assert [await handle.result() for handle in handles] == list(range(MANY))
    assert len(server.asked) <= 15


@pytest.mark.parametrize("bad", [their.hang, their.drip], ids=["silence", "a byte now and then"])
async def test_a_list_that_hangs_is_given_up_and_asked_for_again(
    bad: fake.Reply, server: ThirdParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "ANSWER_TIMEOUT", 0.15)
    monkeypatch.setattr(poller, "SWEEP", 0.05)
    server.on("GET", "/jobs", bad, page())
    async with own(server) as client:
        await client.wait_all([client.job(id) for id in ids(MANY)], timeout=20)
    assert len(server.asked) <= 4


async def test_a_list_that_leads_in_a_circle_ends_all_waits_with_a_precise_error(
    server: ThirdParty,
) -> None:
    server.rest = their.leads_to("/jobs")
    async with own(server) as client:
        handles = await client.wait_all([client.job(id) for id in ids(100)], timeout=20)
        for handle in handles:
            with pytest.raises(ServiceError, match="redirects the request more than 5 times"):
                await handle.result()
    assert len(server.asked) <= 14  # the list and the event stream


async def test_a_list_that_is_far_too_long_is_not_read_to_its_end(server: ThirdParty) -> None:
    sent = [0]

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while sent[0] < 1 << 28 and request.transport is not None:
            await response.write(b" " * 65536)
            sent[0] += 65536
        return response

    server.on("GET", "/jobs", endless, page())
    async with own(server) as client:
        await client.wait_all([client.job(id) for id in ids(MANY)], timeout=20)
    assert sent[0] < 40 << 20


async def test_a_changed_result_after_the_end_changes_nothing(
    server: ThirdParty, tmp_path: Path
) -> None:
    server.on("GET", "/jobs", page(), page(lambda id: "ERROR"))
    for _ in range(2):
        async with own(server, ledger=tmp_path / "ledger") as client:
            handles = await client.wait_all([client.job(id) for id in ids(MANY)], timeout=20)
            assert [await handle.result() for handle in handles] == list(range(MANY))
    assert [request.path for request in server.asked].count("/jobs") == 1


async def test_jobs_that_had_ended_before_the_wait_teach_nothing(server: ThirdParty) -> None:
    """Their age is unknown: the wait began long after them."""

    async def reply(request: web.Request) -> web.StreamResponse:
        jobs = [fake.job(int(id[-6:])) for id in request.query.getall("id")]
        return web.json_response({"jobs": jobs, "next": None, "missing": []})

    server.rest = reply
    async with own(server) as client:
        await client.wait_all([client.job(id) for id in ids(MANY)], timeout=20)
        assert client._account._poller is not None
        (kind,) = client._account._poller.schedule.kinds.values()
        assert kind.plans.sketch.count == 0


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
async def test_a_clock_that_is_an_hour_off_changes_no_learned_duration(
    off: float, server: ThirdParty
) -> None:
    began = 0.0  # set by the first poll, so that it finds the jobs running
    speed = 15.0  # a response that is one second late changes the durations by 15 s

    def theirs() -> float:
        return began + (time.time() - began) * speed + off

    def record(id: str) -> dict[str, Any]:
        left = began + off + 60.0 - theirs()
        ended = render_instant(theirs() + left) if left <= 0 else None
        return fake.job(
            int(id[-6:]),
            "DONE" if ended else "PROCESSING",
            createdAt=render_instant(began + off),
            startedAt=render_instant(began + off),
            finishedAt=ended,
            eta=dict.fromkeys(("finishAt", "low", "high"), render_instant(theirs() + left)),
            result=7,
        )

    async def reply(request: web.Request) -> web.StreamResponse:
        nonlocal began
        began = began or time.time()
        date = {"Date": formatdate(theirs(), usegmt=True)}
        if "id" not in request.query:
            return web.json_response(record(request.path.rpartition("/")[2]), headers=date)
        jobs = [record(id) for id in request.query.getall("id")]
        return web.json_response({"jobs": jobs, "next": None, "missing": []}, headers=date)

    server.rest = reply
    async with own(server, speed) as client:
        await client.wait_all([client.job(id) for id in ids(MANY)], timeout=20)
        await client._account.open()
        assert client._account._poller is not None
        (kind,) = client._account._poller.schedule.kinds.values()
        assert kind.plans.sketch.table(exact=False).quantile(0.5) == pytest.approx(60.0, rel=0.3)
    assert len(server.asked) <= 60
