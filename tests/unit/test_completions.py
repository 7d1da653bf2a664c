"""Many waits at once: loops that are left, waits that share a job, time that runs out, callbacks that fail."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import bide.client.job
from bide.client import account
from bide.client.client import AsyncClient
from bide.client.job import JobHandle
from bide.client.options import LONGEST_WAIT
from bide.client.polling.kinds import TIMEOUTS, pages
from bide.client.timing import Timing
from bide.core.errors import WaitTimeout
from bide.core.wire.http import JobStatus
from tests.unit import fake_service as fake
from tests.unit.fake_service import FakeService, Reply, job, job_id, says
from tests.waiting import eventually

API = """
name = "tasks"
[ask]
path = "/tasks/{id}"
[read]
status = "state"
live = ["busy"]
done = ["ready"]
[result]
value = "value"
[cancel]
path = "/tasks/{id}/cancel"
"""


class Tasks:
    """Tasks of an API that run until the test ends them."""

    def __init__(self, service: FakeService, tmp_path: Path) -> None:
        self.service = service
        self.ready: set[str] = set()
        self.cancelled: list[str] = []
        self._path = tmp_path / "tasks.toml"
        self._path.write_text(API)

    def client(self, speed: float = 50.0, **options: object) -> AsyncClient:
        url = self.service.url
        return AsyncClient(url, api=str(self._path), timing=Timing(speed), **options)  # type: ignore[arg-type]

    def script(self, *names: str) -> None:
        for name in names:
            self.service.on("GET", f"/tasks/{name}", self._state(name))
            self.service.on("POST", f"/tasks/{name}/cancel", self._cancel(name))

    def asked(self, name: str) -> int:
        return sum(request.path == f"/tasks/{name}" for request in self.service.asked)

    def _state(self, name: str) -> Reply:
        async def reply(request: web.Request) -> web.StreamResponse:
            done = name in self.ready
            return web.json_response({"state": "ready" if done else "busy", "value": name})

        return reply

    def _cancel(self, name: str) -> Reply:
        async def reply(request: web.Request) -> web.StreamResponse:
            self.cancelled.append(name)
            return web.json_response({})

        return reply


@pytest.fixture
def tasks(service: FakeService, tmp_path: Path) -> Tasks:
    made = Tasks(service, tmp_path)
    made.script("a", "b", "c", "d")
    return made


# --- a loop that is left


async def test_a_loop_that_is_left_asks_no_more(tasks: Tasks) -> None:
    tasks.ready.add("a")
    async with tasks.client(price=0.001) as client:
        async for handle in client.as_completed(map(client.job, "abc")):
            assert handle.id == "a"
            break
        await client._account.open()
        poller = client._account._poller
        assert poller is not None
        await eventually(lambda: poller.schedule.waiting == 0)
        before = tasks.asked("b") + tasks.asked("c")
        waiting = asyncio.create_task(client.job("d").result())
        await eventually(lambda: tasks.asked("d") >= 5)
        assert tasks.asked("b") + tasks.asked("c") <= before + 2  # requests that were already sent
        tasks.ready.add("d")
        await waiting


async def test_a_loop_that_is_left_asks_no_more_of_a_service(service: FakeService) -> None:
    service.script(1, says(job(1)))
    service.script(2, fake.held(job(2), threading.Event()))
    async with AsyncClient(service.url) as client:
        async for handle in client.as_completed([client.job(job_id(1)), client.job(job_id(2))]):
            assert handle.id == job_id(1)
            break
        poller = client._account._poller
        assert poller is not None
        await eventually(lambda: poller.schedule.waiting == 0)


async def test_a_loop_that_was_left_can_be_taken_up_again(tasks: Tasks) -> None:
    tasks.ready.add("a")
    async with tasks.client() as client:
        handles = [client.job(name) for name in "abc"]
        async for _ in client.as_completed(handles):
            break
        tasks.ready.update("bc")
        ended = {handle.id async for handle in client.as_completed(handles, timeout=10)}
    assert ended == set("abc")


# --- waits that share a job


async def test_two_waits_for_the_same_job_both_hear_of_its_end(tasks: Tasks) -> None:
    async with tasks.client() as client:
        handle = client.job("a")
        first = asyncio.create_task(handle.result(timeout=10))
        second = asyncio.create_task(client.wait_all([handle, client.job("b")], timeout=10))
        await client._account.open()
        poller = client._account._poller
        assert poller is not None
        await eventually(lambda: poller.schedule.waiting == 2)  # one for each job, not for each wait
        tasks.ready.update("ab")
        assert await first == "a"
        assert await (await second)[0].result() == "a"


async def test_a_wait_that_gives_up_leaves_the_others_for_the_same_job_alone(tasks: Tasks) -> None:
    async with tasks.client() as client:
        handle = client.job("a")
        patient = asyncio.create_task(handle.result(timeout=10))
        with pytest.raises(WaitTimeout):
            await handle.result(timeout=0.05)
        tasks.ready.add("a")
        assert await patient == "a"


@pytest.mark.parametrize("count", [2, 40])
async def test_a_job_that_is_given_twice_comes_out_once(tasks: Tasks, count: int) -> None:
    tasks.ready.add("a")
    async with tasks.client() as client:
        handle = client.job("a")
        ended = [one async for one in client.as_completed([handle] * count, timeout=10)]
        assert ended == [handle]
        assert await client.wait_all([handle] * count, timeout=10) == [handle] * count


async def test_two_handles_on_the_same_job_come_out_each(tasks: Tasks) -> None:
    tasks.ready.add("a")
    async with tasks.client() as client:
        handles = [client.job("a"), client.job("a")]
        ended = {one async for one in client.as_completed(handles, timeout=10)}
        assert ended == set(handles)


# --- time that runs out


async def test_what_is_left_when_time_runs_out_is_cancelled_when_that_is_wanted(tasks: Tasks) -> None:
    tasks.ready.add("a")
    async with tasks.client() as client:
        handles = [client.job(name) for name in "abc"]
        with pytest.raises(WaitTimeout, match=r"b, c did not end within 0\.2 s"):
            await client.wait_all(handles, timeout=0.2)
        assert tasks.cancelled == []
        with pytest.raises(WaitTimeout):
            await client.wait_all(handles, timeout=0.1, cancel_on_timeout=True)
        assert sorted(tasks.cancelled) == ["b", "c"]
        with pytest.raises(WaitTimeout):
            await handles[1].result(timeout=0.1, cancel_on_timeout=True)
        assert sorted(tasks.cancelled) == ["b", "b", "c"]


async def test_a_dead_service_does_not_hold_up_who_wants_to_cancel(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bide.client.job, "CANCEL_WITHIN", 0.2)
    never = threading.Event()
    for number in range(20):
        service.script(number, fake.held(job(number), never))
        service.on("POST", f"/jobs/{job_id(number)}/cancel", fake.held(job(number), never))
    began = time.monotonic()
    async with AsyncClient(service.url) as client:
        handles = [client.job(job_id(number)) for number in range(20)]
        with pytest.raises(WaitTimeout):
            await client.wait_all(handles, timeout=0.1, cancel_on_timeout=True)
    never.set()
    assert time.monotonic() - began < 5.0


def test_the_number_of_pages_is_a_size() -> None:
    sizes = {count: pages(count) for count in (0, 1, 10, 11, 37, 50, 51, 4000)}
    assert [count for count, size in sizes.items() if size == "small"] == [0, 1, 10]
    assert [count for count, size in sizes.items() if size == "medium"] == [11, 37, 50]
    assert [count for count, size in sizes.items() if size == "large"] == [51, 4000]
    with pytest.raises(ValueError, match="-1 pages"):
        pages(-1)


async def test_a_size_brings_a_time_out_with_it(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    assert TIMEOUTS == {"small": 60.0, "medium": 180.0, "large": 600.0}
    monkeypatch.setitem(TIMEOUTS, "small", 0.1)
    async with tasks.client(size=pages(7)) as client:
        with pytest.raises(WaitTimeout, match=r"within 0\.1 s"):
            await client.wait_all([client.job("a")])
        with pytest.raises(WaitTimeout, match=r"within 0\.1 s"):
            await client.job("b").result(cancel_on_timeout=True)
        assert tasks.cancelled == ["b"]
        tasks.ready.add("c")
        assert await client.job("c").result(timeout=10) == "c"  # what the caller says counts


async def test_without_a_size_a_wait_ends_after_seven_days_and_says_so(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LONGEST_WAIT == 7 * 86400
    monkeypatch.setattr(account, "LONGEST_WAIT", 0.1)
    text = (
        r"a did not end within 0\.1 s, the default maximum; it still runs. To wait longer, set `timeout`"
    )
    async with tasks.client() as client:
        with pytest.raises(WaitTimeout, match=text):
            await client.job("a").result()
        with pytest.raises(WaitTimeout, match=text):
            await client.wait_all([client.job("a")])


@pytest.mark.parametrize("way", ["result", "as_completed", "client"])
async def test_a_timeout_of_none_is_no_timeout(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(account, "LONGEST_WAIT", 0.1)
    options: dict[str, Any] = {"timeout": None} if way == "client" else {}
    async with tasks.client(price=0.1, **options) as client:
        job = client.job("a")
        if way == "result":
            waiting = asyncio.create_task(job.result(timeout=None))
        elif way == "client":
            waiting = asyncio.create_task(job.result())
        else:
            waiting = asyncio.create_task(client.wait_all([job], timeout=None))
        await asyncio.wait([waiting], timeout=0.3)
        assert not waiting.done()
        tasks.ready.add("a")
        await waiting


async def test_the_timeout_of_a_client_counts_for_waits_that_have_none(tasks: Tasks) -> None:
    async with tasks.client(timeout=0.1) as client:
        with pytest.raises(WaitTimeout, match=r"within 0\.1 s; it still runs"):
            await client.job("a").result()


# --- callbacks that fail


class Oops(Exception):
    pass


def fails(seen: JobStatus) -> None:
    raise Oops(seen.job_id)


@pytest.mark.parametrize("how", ["wait_all", "result"])
async def test_a_callback_that_fails_ends_its_own_wait_and_no_other(tasks: Tasks, how: str) -> None:
    async with tasks.client() as client:
        handle = client.job("a")
        other = asyncio.create_task(handle.result(timeout=10))
        with pytest.raises(Oops):
            if how == "result":
                await handle.result(timeout=10, on_change=fails)
            else:
                await client.wait_all([handle], timeout=10, on_change=fails)
        tasks.ready.add("a")
        assert await other == "a"


async def test_a_callback_that_fails_ends_a_wait_for_a_service_too(service: FakeService) -> None:
    service.script(1, says(job(1)))
    async with AsyncClient(service.url) as client:
        with pytest.raises(Oops):
            await client.job(job_id(1)).result(timeout=10, on_change=fails)


async def test_what_a_callback_hears_ends_with_the_end(tasks: Tasks) -> None:
    heard: list[str] = []
    async with tasks.client() as client:
        handle: JobHandle = client.job("a")

        def hear(seen: JobStatus) -> None:
            heard.append(seen.status)
            tasks.ready.add("a")

        await handle.result(timeout=10, on_change=hear)
    assert heard == ["PROCESSING", "DONE"]
