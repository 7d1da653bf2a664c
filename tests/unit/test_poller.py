"""The poller: one budget for polls and everything else, in turns; an end is in the ledger before it is reported."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from bide.client.apis import load
from bide.client.client import AsyncClient
from bide.client.http.signer import Signer
from bide.client.http.transport import Transport
from bide.client.job_state import JobState
from bide.client.polling.poller import JobLedger, Poller
from bide.client.timing import Timing
from bide.core.errors import WaitTimeout
from bide.core.pacing.budget import Budget, Limit
from tests.unit.fake_service import FakeService, problem, says
from tests.waiting import eventually


class Ear:
    """Records notifications of jobs."""

    wants_changes = True

    def __init__(self) -> None:
        self.over: list[str] = []

    def changed(self, job: JobState) -> None: ...

    def ended(self, job: JobState) -> None:
        self.over.append(job.ref.id)


def generation(name: str, status: str = "PROCESSING") -> dict[str, str]:
    return {"id": name, "status": status}


@asynccontextmanager
async def poller(
    service: FakeService, limit: Limit | None = None, ledger: JobLedger | None = None
) -> AsyncIterator[Poller]:
    api = load("sync.so", service.url)
    api.longpoll = None
    transport = Transport()
    timing = Timing(50.0)
    signer = Signer(api, api.credential("some-key"), transport, timing.wall)
    budget = Budget(limit or Limit(600.0, 1.0), rng=random.Random(1))
    made = Poller(api, transport, signer, budget, timing=timing, ledger=ledger)
    try:
        yield made
    finally:
        await made.close()
        await transport.close()


def watch(made: Poller, ear: Ear, *names: str) -> list[JobState]:
    kind = made.schedule.kind("any")
    jobs = [JobState(made.api.references.ref(name)) for name in names]
    for job in jobs:
        made.watch(job, ear, kind=kind)
    return jobs


# --- in turns


@pytest.mark.parametrize("flood", [1, 5, 50])
async def test_a_flood_of_submissions_does_not_starve_the_polls_nor_they_it(
    service: FakeService, flood: int
) -> None:
    names = [f"gen-{number}" for number in range(20)]
    for name in names:
        service.on("GET", f"/v2/generate/{name}", says(generation(name)))
    service.on("POST", "/v2/generate", says({"id": "gen-99"}))

    async def submit() -> None:
        while True:
            await client.submit("lipsync", {})

    # Fifty requests per second, and more jobs than that can poll.
    options = {"limit": "60/1m", "price": 0.01}
    async with AsyncClient(
        service.url,
        "k",
        api="sync.so",
        timing=Timing(50.0),
        **options,  # type: ignore[arg-type]
    ) as client:
        client._account.api.longpoll = None
        waiting = asyncio.create_task(client.wait_all(map(client.job, names)))
        sending = [asyncio.create_task(submit()) for _ in range(flood)]
        await eventually(lambda: len(service.asked) >= 50)
        for task in (waiting, *sending):
            task.cancel()
        await asyncio.gather(waiting, *sending, return_exceptions=True)
    methods = [request.method for request in service.asked[:50]]
    assert 20 <= methods.count("GET") <= 30


async def test_who_waits_alone_is_not_held_up_by_nobodys_turn(service: FakeService) -> None:
    service.on("POST", "/v2/generate", says({"id": "gen-1"}))
    async with AsyncClient(service.url, "k", api="sync.so", timing=Timing(50.0)) as client:
        for _ in range(10):
            await asyncio.wait_for(client.submit("lipsync", {}), 5)
    assert len(service.asked) == 10


# --- ends


class Slow:
    """A ledger that writes when the test lets it."""

    def __init__(self, fails: bool = False) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.kept: list[str] = []
        self._fails = fails

    def noted(self, job: JobState) -> None: ...

    async def ended(self, job: JobState) -> None:
        self.asked.set()
        await self.go.wait()
        if self._fails:
            raise OSError("no space left on device")
        self.kept.append(job.ref.id)


async def test_an_end_is_reported_after_the_ledger_has_it(service: FakeService) -> None:
    service.on("GET", "/v2/generate/gen-1", says(generation("gen-1", "COMPLETED")))
    book, ear = Slow(), Ear()
    async with poller(service, ledger=book) as made:
        watch(made, ear, "gen-1")
        await book.asked.wait()
        assert ear.over == []
        book.go.set()
        await eventually(lambda: ear.over == ["gen-1"])
        assert book.kept == ["gen-1"]


async def test_a_full_disk_keeps_no_end_from_who_waits(
    service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    service.on("GET", "/v2/generate/gen-1", says(generation("gen-1", "COMPLETED")))
    book, ear = Slow(fails=True), Ear()
    book.go.set()
    async with poller(service, ledger=book) as made:
        watch(made, ear, "gen-1")
        await eventually(lambda: ear.over == ["gen-1"])
    assert "not written to the ledger: no space left on device" in caplog.text


async def test_closing_waits_for_ends_that_are_being_written(service: FakeService) -> None:
    service.on("GET", "/v2/generate/gen-1", says(generation("gen-1", "COMPLETED")))
    book, ear = Slow(), Ear()
    async with poller(service, ledger=book) as made:
        watch(made, ear, "gen-1")
        await eventually(lambda: made.schedule.waiting == 0)
        asyncio.get_running_loop().call_later(0.05, book.go.set)
    assert book.kept == ear.over == ["gen-1"]


# --- jobs without a waiter


async def test_a_job_that_is_let_go_is_not_asked_about(service: FakeService) -> None:
    for name in ("gen-1", "gen-2"):
        service.on("GET", f"/v2/generate/{name}", says(generation(name)))
    ear = Ear()

    def asked(name: str) -> int:
        return sum(request.path.endswith(name) for request in service.asked)

    async with poller(service) as made:
        job, _ = watch(made, ear, "gen-1", "gen-2")
        await eventually(lambda: asked("gen-1") >= 3)
        made.unwatch(job, ear)
        before, other = asked("gen-1"), asked("gen-2")
        await eventually(lambda: asked("gen-2") >= other + 5)
        assert asked("gen-1") <= before + 1
    assert ear.over == [] and job.planned is None


async def test_a_fault_of_a_listener_stops_no_other_job(
    service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    class Deaf(Ear):
        def ended(self, job: JobState) -> None:
            raise RuntimeError("a fault")

    for name in ("gen-1", "gen-2"):
        service.on("GET", f"/v2/generate/{name}", says(generation(name, "COMPLETED")))
    ear = Ear()
    with caplog.at_level(logging.ERROR):
        async with poller(service) as made:
            watch(made, Deaf(), "gen-1")
            watch(made, ear, "gen-2")
            await eventually(lambda: ear.over == ["gen-2"])


async def test_trouble_and_its_end_are_each_reported_once(
    service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    names = [f"gen-{number}" for number in range(4)]
    bad = problem(503, "unavailable")
    for name in names:
        done = says(generation(name, "COMPLETED"))
        service.on("GET", f"/v2/generate/{name}", bad, done)
    ear = Ear()
    async with poller(service) as made:
        watch(made, ear, *names)
        await eventually(lambda: len(ear.over) == 4)
    texts = [record.message for record in caplog.records]
    assert 1 <= sum("Retrying" in text for text in texts) <= 3
    assert texts[-1] == "sync.so answers again"


async def test_a_job_that_moves_is_asked_about_where_it_went(service: FakeService) -> None:
    async def moved(request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    service.on("GET", "/v2/generate/gen-1", moved)
    service.on("GET", "/elsewhere", says(generation("gen-1", "COMPLETED")))
    ear = Ear()
    async with poller(service) as made:
        watch(made, ear, "gen-1")
        await eventually(lambda: ear.over == ["gen-1"])
    assert [request.path for request in service.asked] == ["/v2/generate/gen-1", "/elsewhere"]
    assert service.header("x-api-key") == ["some-key"] * 2


async def test_an_api_that_does_not_hold_a_question_is_asked_as_planned(service: FakeService) -> None:
    """Otherwise it would be polled four times per second while the job runs."""
    service.on("GET", "/v2/generate/a", says(generation("a")))
    async with AsyncClient(service.url, "some-key", api="sync.so", timing=Timing(100.0)) as client:
        with pytest.raises(WaitTimeout):
            await client.job("a").result(timeout=1.0)  # a hundred seconds by its clock
    held = ["wait" in request.query for request in service.asked]
    # An answer that a busy machine delays by some milliseconds looks held at this speed, so a few more may ask for it.
    assert held[:2] == [True, True] and sum(held) < len(held) / 2
    assert 5 < len(held) < 40


async def test_an_api_that_holds_questions_is_asked_again_at_once(service: FakeService) -> None:
    answers = iter([generation("a")] * 4 + [generation("a", "COMPLETED")])

    async def hold(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.1)  # ten seconds by the client's clock
        return web.json_response(next(answers))

    service.on("GET", "/v2/generate/a", hold)
    async with AsyncClient(service.url, "some-key", api="sync.so", timing=Timing(100.0)) as client:
        await client.wait_all([client.job("a")], timeout=20)
    assert ["wait" in request.query for request in service.asked] == [True] * 5
