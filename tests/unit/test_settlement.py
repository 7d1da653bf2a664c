"""The engine's pen, when the store cannot be written for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import Begun, Change, Refused, Reserved, Succeeded
from bide.server.runner import settlement
from bide.server.runner.settlement import SettlementWriter
from bide.server.store import JobStore, NewJob, StoreUnavailable
from bide.server.store.sqlite.store import SqliteStore


class Paper:
    """A store that refuses so many writes, and then takes them."""

    def __init__(self, error: Exception, failures: int) -> None:
        self.error = error
        self.failures = failures
        self.written: list[str] = []

    async def apply(self, changes: Sequence[Change]) -> list[Any]:
        if self.failures > 0:
            self.failures -= 1
            raise self.error
        self.written += [change.job_id for change in changes]
        return [change.job_id for change in changes]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "RETRY_AFTER", 0.01)


async def told(paper: Paper, *names: str, pause: float = 0.002) -> list[str]:
    """The callbacks of writes, in order. Each write is submitted before the previous one is stored."""
    pen = SettlementWriter(cast(JobStore, paper))
    heard: list[str] = []
    for name in names:
        pen.write([Change(job_id=name)], heard.append)
        await asyncio.sleep(pause)
    async with asyncio.timeout(5):
        while len(heard) < len(names):
            await asyncio.sleep(0.005)
    assert pen.blocked == []
    return heard


async def test_what_a_full_disk_holds_up_is_written_in_its_order() -> None:
    paper = Paper(StoreUnavailable("full"), failures=3)
    assert await told(paper, "a", "b", "c", "d") == ["a", "b", "c", "d"]
    assert paper.written == ["a", "b", "c", "d"]


async def test_a_fault_of_one_holds_up_nobody_else() -> None:
    paper = Paper(AssertionError("a bug"), failures=1)
    assert await told(paper, "a", "b", "c", pause=0) == ["b", "c", "a"]


class Ledger:
    """A real store that has no room for the first write, while the second is on its way already."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.full = True

    async def apply(self, changes: Sequence[Change]) -> list[Any]:
        full, self.full = self.full, False
        await asyncio.sleep(0.005)
        if full:
            raise StoreUnavailable("full")
        return await self.store.apply(changes)


async def test_what_was_refused_because_something_before_it_is_held_up_comes_after_that(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open(lambda events: None)
    try:
        job = Job(id="j", kind="k", queue="q", created_at=0.0, updated_at=0.0, due=0.0)
        await store.insert([NewJob(job, b"{}")])
        await store.apply([Reserved(job_id="j", owner="w", lease_until=store.now() + 30)])
        pen = SettlementWriter(cast(JobStore, Ledger(store)))
        outcomes: list[Any] = []
        pen.write([Begun(job_id="j", owner="w", fence=1, started_at=1.0)], outcomes.append)
        pen.write([Succeeded(job_id="j", owner="w", fence=1, result=msgspec.Raw(b"1"))], outcomes.append)
        async with asyncio.timeout(5):
            while len(outcomes) < 2:
                await asyncio.sleep(0.005)
        assert [outcome.status for outcome in outcomes] == [Status.PROCESSING, Status.DONE]
        late = Succeeded(job_id="j", owner="w", fence=1, result=msgspec.Raw(b"2"))
        pen.write([late], outcomes.append)  # nothing is delayed: it is reported immediately
        while len(outcomes) < 3:
            await asyncio.sleep(0.005)
        assert isinstance(outcomes[2], Refused)
    finally:
        await store.close()


class SlowAnswer:
    """A real store that has no room for the first write, and whose answer to the second comes after the next one."""

    def __init__(self, store: SqliteStore, *, stored_first: bool) -> None:
        self.store = store
        self.calls = 0
        self.stored_first = stored_first
        self.answers = asyncio.Event()

    async def apply(self, changes: Sequence[Change]) -> list[Any]:
        self.calls += 1
        if self.calls == 1:
            raise StoreUnavailable("full")
        if self.calls == 2:
            refused = await self.store.apply(changes)
            await self.answers.wait()
            return refused
        if self.calls == 3 and not self.stored_first:
            self.answers.set()
            await asyncio.sleep(0.05)  # the second write is refused again meanwhile
        if self.calls == 3:
            asyncio.get_running_loop().call_later(0.01, self.answers.set)
        return await self.store.apply(changes)


@pytest.mark.parametrize("stored_first", [True, False])
@pytest.mark.parametrize("begins", [True, False])
async def test_what_was_refused_because_its_beginning_was_written_again_is_written_again(
    tmp_path: Path, stored_first: bool, begins: bool
) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open(lambda events: None)
    try:
        job = Job(id="j", kind="k", queue="q", created_at=0.0, updated_at=0.0, due=0.0)
        await store.insert([NewJob(job, b"{}")])
        await store.apply([Reserved(job_id="j", owner="w", lease_until=store.now() + 30)])
        pen = SettlementWriter(cast(JobStore, SlowAnswer(store, stored_first=stored_first)))
        outcomes: list[Any] = []
        first = Begun(job_id="j", owner="w", fence=1, started_at=1.0)
        pen.write([first if begins else Change(job_id="another")])
        await asyncio.sleep(0)
        pen.write([Succeeded(job_id="j", owner="w", fence=1, result=msgspec.Raw(b"1"))], outcomes.append)
        async with asyncio.timeout(5):
            while not outcomes:
                assert ("j", 1) in pen.unwritten(), "its lease is renewed"
                await asyncio.sleep(0.005)
        if begins:
            assert outcomes[0].status is Status.DONE
        else:
            assert isinstance(outcomes[0], Refused), "it is not tried for ever"
    finally:
        await store.close()


@pytest.mark.parametrize("error", [StoreUnavailable("full"), AssertionError("a bug")])
async def test_what_is_not_stored_yet_is_known_all_the_while(error: Exception) -> None:
    """So that the leases of finished attempts are renewed until their results are stored."""
    paper = Paper(error, failures=3)
    pen = SettlementWriter(cast(JobStore, paper))
    heard: list[str] = []
    pen.write([Succeeded(job_id="a", owner="w", fence=7)], heard.append)
    async with asyncio.timeout(5):
        while not heard:
            assert pen.unwritten() == {("a", 7)}
            await asyncio.sleep(0.001)
    assert pen.unwritten() == set()


@pytest.mark.parametrize("error", [StoreUnavailable("full"), AssertionError("a bug")])
async def test_a_shutdown_waits_for_results_that_the_store_does_not_take_yet(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "RETRY_AFTER", 0.05)
    paper = Paper(error, failures=3)
    pen = SettlementWriter(cast(JobStore, paper))
    pen.write([Succeeded(job_id="a", owner="w", fence=7)])
    await pen.finish(5.0)
    await pen.close()
    assert paper.written == ["a"]


@pytest.mark.parametrize("error", [StoreUnavailable("full"), AssertionError("a bug")])
async def test_a_shutdown_names_the_jobs_whose_results_it_gives_up(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    paper = Paper(error, failures=1_000_000)
    pen = SettlementWriter(cast(JobStore, paper))
    pen.write([Succeeded(job_id="a", owner="w", fence=7)])
    pen.write([Succeeded(job_id="b", owner="w", fence=1)])
    await pen.finish(0.05)
    await pen.close()
    assert "2 jobs are discarded" in caplog.text and "a, b" in caplog.text
    tried = paper.failures
    await asyncio.sleep(0.05)
    assert paper.failures == tried, "the store may be closed by now"


async def test_a_second_signal_ends_the_wait_for_the_store() -> None:
    pen = SettlementWriter(cast(JobStore, Paper(StoreUnavailable("full"), failures=1_000_000)))
    pen.write([Succeeded(job_id="a", owner="w", fence=7)])
    asyncio.get_running_loop().call_later(0.05, setattr, pen, "skip_wait", True)
    async with asyncio.timeout(5):
        await pen.finish(60.0)
    await pen.close()
