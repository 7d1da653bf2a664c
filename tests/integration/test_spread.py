"""Polling that is spread over processes: the same as with one, whatever becomes of them."""

from __future__ import annotations

import asyncio
import bisect
import logging
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.client.apis import Api, load
from bide.client.apis.form import Secret
from bide.client.blocking import Client
from bide.client.client import AsyncClient
from bide.client.job import JobHandle
from bide.client.ledger.sqlite import SqliteLedger
from bide.client.polling.kinds import KindStats
from bide.client.polling.poller import HOLDS
from bide.client.polling.processes import messages
from bide.client.polling.processes import poller as parent
from bide.client.polling.processes.kind_sync import KindSync
from bide.client.polling.processes.poller import ProcessPoller
from bide.client.polling.schedule import PollSettings
from bide.core.errors import JobFailed, ServiceError
from bide.core.pacing.hazard import Sketch
from bide.lab.scenario import Rules
from bide.lab.vendor import Vendor
from tests.acceptance.vendors import Shop, start
from tests.servers.warm import warm
from tests.unit.fake_service import FakeService, job, job_id
from tests.waiting import eventually

KEY = "sk-secret-1"
INPUT: dict[str, Any] = {"model": "lipsync-2", "input": []}
PLENTY = Rules(requests=1e6, per=1.0, burst=1e6, advertised=False)


@pytest.fixture(scope="module", autouse=True)
def forked_children() -> Iterator[None]:
    """A child is a fork: a new interpreter takes 0.3 s of processor time to import bide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parent, "subprocess", warm().children())
        yield


@pytest.fixture
def short() -> Any:
    return lambda rng: rng.uniform(0.3, 1.5)


@asynccontextmanager
async def waiting(
    vendor: Vendor, jobs: int, **options: Any
) -> AsyncIterator[tuple[AsyncClient, list[JobHandle]]]:
    given = {"processes": 2, "limit": "1000/1s:100", **options}
    async with AsyncClient(vendor.url, KEY, api="sync.so", **given) as client:
        yield client, [await client.submit("film", INPUT) for _ in range(jobs)]


async def spread_of(client: AsyncClient) -> ProcessPoller:
    await client._account.open()
    found = client._account._poller
    assert isinstance(found, ProcessPoller)
    return found


def arrivals(vendor: Vendor) -> list[tuple[float, str]]:
    """Fills with the moment and the job of each poll."""
    found: list[tuple[float, str]] = []
    names: dict[int, str] = {}
    ask = vendor.world.poll

    def noted(now: float, tasks: Any) -> Any:
        for task in tasks:
            if id(task) not in names:
                names.update((id(one), name) for name, one in vendor.jobs.items())
            found.append((now, names[id(task)]))
        return ask(now, tasks)

    vendor.world.poll = noted  # type: ignore[method-assign]
    return found


# --- good days


async def test_every_job_ends_as_it_does_with_one_process(short: Any) -> None:
    with Vendor(PLENTY, takes=short, fails=0.2, key=KEY) as vendor:
        async with waiting(vendor, 60) as (client, jobs):
            changes: list[str] = []
            ended = [
                job
                async for job in client.as_completed(
                    jobs, timeout=30, on_change=lambda job: changes.append(job.job_id)
                )
            ]
            assert {job.id for job in ended} == set(vendor.jobs)
            assert set(changes) == set(vendor.jobs)
            assert client.advice() is None
            for job in jobs:
                if job.id in vendor._failed:
                    with pytest.raises(JobFailed, match="no face"):
                        await job.result()
                else:
                    assert await job.result() == f"{vendor.url}/v2/files/{job.id}.mp4"
            shares = [len(share.jobs) for share in (await spread_of(client))._children]
            assert shares == [0, 0]
        fetched = len(jobs) - len(vendor._failed)  # a result has an address of its own
        assert client.requests == vendor.requests + fetched
        assert sum(job.requests for job in jobs) == vendor.requests + fetched


async def test_together_they_keep_to_one_limit() -> None:
    with Vendor(PLENTY, takes=lambda rng: 2.5, progress="none", key=KEY) as vendor:
        polls = arrivals(vendor)
        async with waiting(vendor, 30, limit="40/1s", processes=3, price=0.001) as (client, jobs):
            await client.wait_all(jobs, timeout=30)
        moments = sorted(at for at, _ in polls)
        most = max(bisect.bisect_left(moments, at + 1.0) - i for i, at in enumerate(moments))
        assert 25 < most <= 44, "40, and what is jolted on the way"


async def test_what_one_hears_of_a_limit_all_obey(short: Any) -> None:
    with Vendor(Rules(requests=3000, per=60.0, burst=20), takes=short, key=KEY) as vendor:
        async with waiting(vendor, 40, limit="3000/1m:20") as (client, jobs):
            await client.wait_all(jobs, timeout=30)
        assert vendor.refused == 0


async def test_a_job_that_nobody_waits_for_is_not_asked_about_any_more() -> None:
    with Vendor(PLENTY, takes=lambda rng: 60.0, progress="none", key=KEY) as vendor:
        polls = arrivals(vendor)
        async with waiting(vendor, 4, price=0.001) as (client, jobs):
            spread = await spread_of(client)
            leaving = client.as_completed(jobs)
            first = asyncio.ensure_future(anext(leaving))
            await eventually(lambda: len(polls) > 8, "polls")
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await leaving.aclose()  # type: ignore[attr-defined]
            assert spread.schedule.waiting == 0
            await eventually(lambda: time.monotonic() - vendor._start > polls[-1][0] + 0.5, "silence")


def test_the_client_without_await_has_it_too(short: Any) -> None:
    with (
        Vendor(PLENTY, takes=short, key=KEY) as vendor,
        Client(vendor.url, KEY, api="sync.so", processes=2, limit="1000/1s:100") as client,
    ):
        jobs = [client.submit("film", INPUT) for _ in range(5)]
        assert {job.id for job in client.as_completed(jobs, timeout=30)} == set(vendor.jobs)


async def test_what_was_learned_and_what_ended_is_in_the_ledger(short: Any, tmp_path: Path) -> None:
    with Vendor(PLENTY, takes=short, key=KEY) as vendor:
        async with waiting(vendor, 30, ledger=tmp_path / "ledger") as (client, jobs):
            await client.wait_all(jobs, timeout=30)
    ledger = SqliteLedger(tmp_path / "ledger")
    await ledger.open()
    learned = await ledger.learned()
    assert learned.durations["sync.so", "film", ""]["durations"]["count"] == 30
    assert len(learned.budgets) == 1
    assert {entry.status for entry in await ledger.rows()} == {"DONE"}
    await ledger.close()
    assert KEY.encode() not in (tmp_path / "ledger").read_bytes()


async def test_many_jobs_of_a_service_are_asked_about_in_batches_by_each_process() -> None:
    count = 3 * HOLDS
    asked: list[tuple[int, str | None]] = []

    async def reply(request: web.Request) -> web.StreamResponse:
        ids = request.query.getall("id")
        asked.append((len(ids), request.headers.get("Authorization")))
        jobs = [job(number, result=number) for number in range(count) if job_id(number) in ids]
        return web.json_response({"jobs": jobs, "next": None, "missing": []})

    with FakeService() as service:
        service.on("GET", "/jobs", reply)
        async with AsyncClient(service.url, KEY, processes=2) as client:
            ended = await client.wait_all([client.job(job_id(n)) for n in range(count)], timeout=30)
            assert [await handle.result() for handle in ended] == list(range(count))
            # Each process asks for the event stream, which this service does not have.
            assert client.requests == len(asked) + 2 < count
    assert {proof for _, proof in asked} == {f"Bearer {KEY}"}


def test_bide_wait_has_processes_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    how = ("--json", "--ledger", "films.ledger", "--limit", "40/1s", "--processes", "2")
    with Shop(30, "{ uniform = [0.5, 3.0] }") as shop:
        first = start(tmp_path, *shop.jobs, "--api", "sync.so", "--url", shop.url, *how)
        assert first.stdout is not None
        early = [first.stdout.readline() for _ in range(5)]
        first.kill()
        early += first.communicate()[0].splitlines()
        second = start(tmp_path, *how)
        late = second.communicate(timeout=30)[0].splitlines()
        assert second.returncode == 0
        told = [msgspec.json.decode(line) for line in (*early, *late)]
        assert {line["jobId"] for line in told} == set(shop.jobs)
        assert {line["status"] for line in told} == {"DONE"}


# --- bad days


async def test_a_child_that_is_killed_loses_nothing_and_nothing_is_asked_in_a_rush(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Vendor(PLENTY, takes=lambda rng: rng.uniform(4.0, 5.0), key=KEY) as vendor:
        polls = arrivals(vendor)
        # Of a kind of unknown duration the first jobs are polled often.
        async with waiting(vendor, 30, expected=4.5) as (client, jobs):
            ending = asyncio.create_task(client.wait_all(jobs, timeout=60))
            share = (await spread_of(client))._children[0]
            await eventually(lambda: len(share.jobs) == 15, "its share")
            await eventually(
                lambda: all(assigned.job.seen for assigned in share.jobs.values()), "first answers"
            )
            mine = {assigned.job.ref.id for assigned in share.jobs.values()}
            before = share.pid
            assert before is not None
            os.kill(before, signal.SIGKILL)
            killed = vendor.now()
            await eventually(lambda: share.pid != before and share.alive, "another")
            asked = [id for at, id in polls if killed < at < vendor.now() and id in mine]
            assert len(asked) <= 5
            await ending
        assert "exited (signal 9); another takes over" in caplog.text
        assert {job.latest.status for job in jobs if job.latest} == {"DONE"}


async def test_a_child_that_stands_still_is_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parent, "HEARTBEAT", 0.2)
    monkeypatch.setattr(parent, "MISSED_HEARTBEATS", 150)
    with Vendor(PLENTY, takes=lambda rng: 1.5, key=KEY) as vendor:
        async with waiting(vendor, 10) as (client, jobs):
            ending = asyncio.create_task(client.wait_all(jobs, timeout=60))
            share = (await spread_of(client))._children[0]
            pid = await eventually(lambda: share.alive and share.pid, "a child")
            os.kill(pid, signal.SIGSTOP)
            monkeypatch.setattr(parent, "MISSED_HEARTBEATS", 9)
            await eventually(lambda: share.pid != pid, "another")
            monkeypatch.setattr(parent, "MISSED_HEARTBEATS", 150)
            await ending
        assert "signal 9" in caplog.text


async def test_others_take_the_jobs_of_one_that_cannot_start(
    short: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spawn, calls = parent._spawn, 0

    def fails_after_the_first(sock: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError("no more processes")
        return spawn(sock)

    monkeypatch.setattr(parent, "_spawn", fails_after_the_first)
    monkeypatch.setattr(parent, "FAILED_STARTS", 1)
    with Vendor(PLENTY, takes=short, key=KEY) as vendor:
        async with waiting(vendor, 10) as (client, jobs):
            spread = await spread_of(client)
            await eventually(lambda: spread._children[0].alive, "the first")
            await client.wait_all(jobs, timeout=30)
    assert "no more processes" in caplog.text


async def test_an_api_that_does_not_answer_is_reported_and_waited_for(
    short: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with Vendor(PLENTY, takes=short, key=KEY) as vendor:
        async with waiting(vendor, 4) as (client, jobs):
            real, left = vendor.world.poll, 6

            def sometimes(now: float, tasks: Any) -> Any:
                nonlocal left
                left -= 1
                if left >= 0:
                    raise RuntimeError("the vendor has a bad day")
                return real(now, tasks)

            vendor.world.poll = sometimes  # type: ignore[method-assign]
            logging.getLogger("aiohttp.server").disabled = True
            try:
                await client.wait_all(jobs, timeout=30)
            finally:
                logging.getLogger("aiohttp.server").disabled = False
    assert "Retrying" in caplog.text


# --- the credential


async def test_children_know_the_key_from_their_socket_alone(
    short: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        parent, "subprocess", subprocess
    )  # /proc shows the command and variables of no fork
    with Vendor(PLENTY, takes=short, key=KEY) as vendor:
        async with waiting(vendor, 6) as (client, jobs):
            spread = await spread_of(client)
            await eventually(lambda: all(share.alive for share in spread._children), "children")
            for share in spread._children:
                for name in ("cmdline", "environ"):
                    assert KEY not in Path(f"/proc/{share.pid}/{name}").read_text()
            assert KEY not in repr(spread.credential_update())
            await client.wait_all(jobs, timeout=30)


async def test_a_key_that_has_changed_is_read_again_by_the_parent(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    form = load("sync.so").form
    auth = msgspec.structs.replace(form.auth, secret=Secret(file=str(file)))
    with Vendor(PLENTY, takes=lambda rng: 2.0, key=KEY) as vendor:
        api = Api(msgspec.structs.replace(form, auth=auth), vendor.url)
        async with AsyncClient(api=api, processes=2, limit="1000/1s:100") as client:
            jobs = [await client.submit("film", INPUT) for _ in range(8)]
            vendor._key = "sk-secret-2"
            file.write_text("sk-secret-2")
            await client.wait_all(jobs, timeout=30)
            assert {job.latest.status for job in jobs if job.latest} == {"DONE"}


async def test_a_key_that_is_refused_ends_the_wait_for_all(short: Any) -> None:
    with Vendor(PLENTY, takes=short, key=KEY) as vendor:
        async with waiting(vendor, 6) as (client, jobs):
            vendor._key = "another"
            await client.wait_all(jobs, timeout=30)
            for job in jobs:
                with pytest.raises(ServiceError, match="401"):
                    await job.result()


# --- the end

ORPHANS = """
import asyncio, sys
from bide.client.client import AsyncClient
async def main():
    async with AsyncClient(sys.argv[1], "k", api="sync.so", processes=2) as client:
        job = await client.submit("film", {"model": "lipsync-2", "input": []})
        ending = asyncio.create_task(job.result())
        await client._account.open()
        spread = client._account._poller
        assert spread is not None
        while not all(share.alive for share in spread._children):
            await asyncio.sleep(0.01)
        print(*(share.pid for share in spread._children), spread._folder, flush=True)
        await ending
asyncio.run(main())
"""


def test_children_end_and_tidy_up_when_their_parent_is_killed() -> None:
    with Vendor(PLENTY, takes=lambda rng: 60.0) as vendor:
        command = [sys.executable, "-c", ORPHANS, vendor.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            *pids, folder = process.stdout.readline().split()
            assert len(pids) == 2
            assert Path(folder).stat().st_mode & 0o777 == 0o700
            process.kill()
        deadline = time.monotonic() + 20
        while Path(folder).exists() or any(_runs(int(pid)) for pid in pids):
            assert time.monotonic() < deadline, "they are still there"
            time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_nothing_is_left_behind(short: Any) -> None:
    with Vendor(PLENTY, takes=short, key=KEY) as vendor:
        async with waiting(vendor, 3) as (client, jobs):
            spread = await spread_of(client)
            await client.wait_all(jobs, timeout=30)
            pids = [share.pid for share in spread._children]
        assert not spread._folder.exists()
        assert not any(_runs(pid) for pid in pids if pid is not None)


async def test_a_client_that_is_closed_at_once_ends_its_children() -> None:
    with Vendor(PLENTY, key=KEY) as vendor:
        async with waiting(vendor, 0) as (client, _):
            spread = await spread_of(client)
        assert not spread._folder.exists()


def test_so_many_processes_there_cannot_be() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        AsyncClient(processes=-1)


# --- learning


def test_what_several_learn_is_what_one_would_have_learned() -> None:
    rng = random.Random(1)
    alone = KindStats()
    syncs = [KindSync(KindStats()) for _ in range(3)]
    for i in range(90):
        one = syncs[i % 3]
        took = rng.lognormvariate(3.0, 0.5)
        for kind in (alone, one.kind):
            _watch_end(kind, took)
        if i % 4 == 0:
            _tell(one, syncs)
    for one in syncs:
        _tell(one, syncs)
    for one in syncs:
        _assert_alike(one.kind.plans.sketch, alone.plans.sketch)
        _assert_alike(one.kind.report("progress 1").sketch, alone.report("progress 1").sketch)
        assert one.news() is None, "each end is reported once"


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.floats(1.0, 500.0), st.just(1.0) | st.floats(1.5, 12.0), st.booleans()
        ),
        min_size=1,
        max_size=40,
    )
)
def test_ends_between_two_polls_are_sent_to_the_other_processes(
    ends: list[tuple[int, float, float, bool]],
) -> None:
    """Each end lies between two polls; which process saw it, and when it reported it, makes no difference."""
    alone = KindStats()
    syncs = [KindSync(KindStats()) for _ in range(3)]
    for number, low, factor, tells in ends:
        one = syncs[number]
        for sketch in (alone.plans.sketch, one.kind.plans.sketch):
            sketch.survived(0.0, low)
            sketch.learn_between(low, low * factor)
        if tells:
            _tell(one, syncs)
    for one in syncs:
        _tell(one, syncs)
    expected = _counts(alone)
    for one in syncs:
        found = _counts(one.kind)
        assert found.keys() == expected.keys()
        for place, count in expected.items():  # the order in which they were learned fades them a little
            assert found[place] == pytest.approx(count, rel=0.25), place
        assert one.news() is None, "each end is reported once"


def _counts(kind: KindStats) -> dict[Any, float]:
    dump = kind.plans.sketch.dump()
    ended = {bin: values[0] for bin, values in dump["bins"].items() if values[0] > 1e-6}
    return ended | {(i, j): weight for i, j, weight in dump["cells"] if weight > 1e-6}


def test_a_process_does_not_send_what_it_has_received() -> None:
    sender, receiver = KindSync(KindStats()), KindSync(KindStats())
    for _ in range(100):
        sender.kind.plans.sketch.learn_between(10.0, 50.0)
        receiver.kind.plans.sketch.learn(3.0)
    _tell(sender, [receiver])
    news = receiver.news()
    assert news is not None
    assert news["durations"]["count"] == 100
    assert news["durations"]["cells"] == []


def test_a_parent_learns_the_median_that_its_child_learned() -> None:
    rng = random.Random(5)
    parent, child = KindSync(KindStats()), KindSync(KindStats())
    for i in range(150):
        took = rng.lognormvariate(math.log(80.0), 0.3)
        asked = 0.0
        while (following := asked + rng.uniform(10.0, 60.0)) < took:
            child.kind.plans.sketch.survived(asked, following)
            asked = following
        child.kind.plans.sketch.learn_between(asked, following)
        if i % 10 == 9:
            _tell(child, [parent])
    learned = child.kind.plans.sketch.table().quantile(0.5)
    assert learned == pytest.approx(80.0, rel=0.15)
    assert parent.kind.plans.sketch.table().quantile(0.5) == pytest.approx(learned, rel=0.02)


def _watch_end(kind: KindStats, took: float) -> None:
    asked = 0.0
    while asked < took:
        kind.plans.sketch.survived(asked, min(asked + 5.0, took))
        asked += 5.0
    kind.plans.sketch.learn_between(took, took)
    kind.report("progress 1").sketch.learn(took / 20.0)


def _tell(one: KindSync, all: list[KindSync]) -> None:
    news = one.news()
    for other in all:
        if news is not None and other is not one:
            other.absorb(msgspec.json.decode(msgspec.json.encode(news)))


def _assert_alike(one: Sketch, other: Sketch) -> None:
    assert one.count == other.count
    for q in (0.1, 0.5, 0.9):
        assert one.table().quantile(q) == pytest.approx(other.table().quantile(q), rel=0.05)


def test_messages_survive_the_way() -> None:
    form = load("sync.so").form
    start = messages.StartPolling(
        form, "https://x", False, None, None, PollSettings(), "/b", (1.0, 0.0), ["a"]
    )
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(start), type=messages.ParentMessage)
    assert again == start
    assert "x-api-key" not in repr(messages.CredentialUpdate(1, {"x-api-key": KEY}, {}, ""))
