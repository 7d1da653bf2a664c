"""The session between poller and ledger: it restores the knowledge of other processes and does not overwrite newer data."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bide.client.account import Account
from bide.client.apis import Ref, Seen, load
from bide.client.http.transport import Transport
from bide.client.job_state import JobState
from bide.client.ledger.session import LedgerSession
from bide.client.ledger.sqlite import SqliteLedger
from bide.client.options import ClientOptions
from bide.client.polling.kinds import KindStats
from bide.client.polling.knowledge import AccountKnowledge
from bide.client.polling.schedule import PollSchedule
from bide.core.errors import ErrorInfo
from bide.core.jobs.record import Status
from bide.core.pacing.budget import Budget, Limit

NOW = 1_900_000_000.0
API = load("sync.so", "http://127.0.0.1:1")


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    book = SqliteLedger(tmp_path / "ledger")
    await book.open()
    yield book
    await book.close()


def session(ledger: SqliteLedger, clock: Clock) -> LedgerSession:
    return LedgerSession(ledger, API, clock)


def job(id: str = "gen-1", submitted_at: float | None = NOW) -> JobState:
    return JobState(Ref(id), "lipsync", submitted_at)


async def test_a_job_that_ended_is_over_at_once_with_its_outcome(
    ledger: SqliteLedger, clock: Clock
) -> None:
    first = session(ledger, clock)
    good, bad = job("gen-1"), job("gen-2")
    await first.add([good, bad])
    url = "https://films.example/1"
    good.seen = Seen(state="done", word="COMPLETED", result_url=url, finished_at=NOW + 60.0)
    good.requests = 4
    bad.seen = Seen(state="failed", word="FAILED", error=ErrorInfo("NO_FACE", "no face found"))
    await first.ended(good)
    await first.ended(bad)
    again = [job("gen-1", None), job("gen-2", None)]
    await session(ledger, clock).add(again)
    found, lost = again
    assert found.over and lost.over
    assert found.status is Status.DONE and lost.status is Status.ERROR
    record = found.latest
    assert record is not None and record.result == url and record.finished_at is not None
    assert found.requests == 4
    assert found.seen is not None and found.seen.result_url == url  # it can still be fetched
    assert lost.seen is not None and lost.seen.error == ErrorInfo("NO_FACE", "no face found")


async def test_ages_and_the_time_of_the_last_question_come_back(
    ledger: SqliteLedger, clock: Clock, tmp_path: Path
) -> None:
    first = session(ledger, clock)
    before = job()
    await first.add([before])
    clock.now += 30.0
    before.seen = Seen(state="live", word="PROCESSING", progress=0.4, etag='"7"')
    before.etag = '"7"'
    first.noted(before)
    await ledger.close()
    clock.now += 600.0  # a process later
    await ledger.open()
    after = job(submitted_at=None)
    (entry,) = await session(ledger, clock).add([after])
    assert entry.submitted_at == after.submitted_at == NOW
    assert after.asked_at == NOW + 30.0
    assert after.etag == '"7"'
    assert after.status is Status.PROCESSING and not after.over
    assert after.seen is not None and after.seen.progress == pytest.approx(0.4)


class Ear:
    wants_changes = True

    def changed(self, job: JobState) -> None: ...

    def ended(self, job: JobState) -> None: ...


async def test_a_resumed_wait_goes_on_at_the_age_that_the_job_has(ledger: SqliteLedger) -> None:
    async with _account(ledger) as account:
        wall = account._timing.wall()
        assert account.session is not None
        old = job(submitted_at=wall - 500.0)
        old.seen = Seen(state="live", word="PROCESSING")
        early = LedgerSession(ledger, API, lambda: wall - 400.0)
        await early.add([old])
        early.noted(old)
        resumed = job(submitted_at=None)
        await account.session.add([resumed])
        account.watch([resumed], Ear())
        planned = resumed.planned
        assert planned is not None
        assert account._timing.now() - planned.submitted == pytest.approx(500.0, abs=5.0)
        assert planned.asked == pytest.approx(100.0, abs=5.0)  # when it was seen, and not now
        account.unwatch(resumed, EAR)


EAR = Ear()


class _account:
    """An account without requests: its budget grants nothing for a while."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self._transport = Transport()
        self._account = Account(API, self._transport, None, ClientOptions(ledger=ledger))

    async def __aenter__(self) -> Account:
        await self._account.open()
        poller = self._account._poller
        assert poller is not None
        poller.schedule.budget.state.pause = self._account._timing.now() + 3600.0  # type: ignore[attr-defined]
        poller.schedule.budget._plan()  # type: ignore[attr-defined]
        return self._account

    async def __aexit__(self, *_: object) -> None:
        await self._account.close()
        await self._transport.close()


async def test_a_full_disk_ends_no_account(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def full(learned: object) -> None:
        raise OSError("no space left on device")

    async with _account(ledger):
        monkeypatch.setattr(ledger, "learn", full)
    assert (
        "Learned durations and budgets were not written to the ledger: no space left on device"
        in caplog.text
    )


async def test_what_this_process_has_seen_is_not_overwritten_by_what_it_wrote(
    ledger: SqliteLedger, clock: Clock
) -> None:
    book = session(ledger, clock)
    one = job()
    await book.add([one])
    one.seen = Seen(state="done", result_url="https://films.example/1", expires_at=NOW + 9.0)
    await book.ended(one)
    await book.add([one])  # a second wait for it
    assert one.seen.expires_at == NOW + 9.0
    assert one.asked_at is None


async def test_the_first_outcome_stands(ledger: SqliteLedger, clock: Clock) -> None:
    book = session(ledger, clock)
    first, second = job(), job()
    await book.add([first])
    first.seen = Seen(state="done", result="first")
    await book.ended(first)
    second.seen = Seen(state="failed", error=ErrorInfo("LATE", "changed its mind"))
    await book.ended(second)
    again = job()
    await book.add([again])
    assert again.seen is not None and (again.seen.state, again.seen.result) == ("done", "first")


async def test_only_jobs_of_this_api_are_found(ledger: SqliteLedger, clock: Clock) -> None:
    book = session(ledger, clock)
    elsewhere = LedgerSession(ledger, load("sync.so", "http://127.0.0.1:2"), clock)
    await book.add([job("gen-1"), job("gen-2")])
    await elsewhere.add([job("gen-3")])
    assert [found.ref.id for found in await book.unacknowledged()] == ["gen-1", "gen-2"]
    assert [found.ref.id for found in await elsewhere.unacknowledged()] == ["gen-3"]


async def test_durations_and_budgets_come_back_unless_the_limit_is_another(
    ledger: SqliteLedger, clock: Clock
) -> None:
    limit = Limit(60.0, 60.0)
    rng = random.Random(1)
    plan = PollSchedule(Budget(limit, rng=rng), rng=rng)
    for _ in range(5):
        plan.kind("lipsync").plans.sketch.learn(120.0)
    plan.kind("large", size="large").plans.sketch.learn(900.0)
    plan.kind("never seen")
    plan.budget.record_response(0.0, 429, {"Retry-After": "300"}, NOW)
    first = AccountKnowledge(ledger, await ledger.learned(), API, "account", limit, clock)
    await first.save(plan, 0.0)
    clock.now += 100.0
    later = AccountKnowledge(ledger, await ledger.learned(), API, "account", limit, clock)
    kind = later.kind("lipsync", "", 1)
    assert kind is not None and kind.plans.sketch.count == 5
    assert isinstance(later.kind("large", "large", 1), KindStats)
    assert later.kind("never seen", "", 1) is None
    assert 190.0 <= later.budget(rng, 5000.0).ready(5000.0) - 5000.0 <= 230.0
    other = AccountKnowledge(ledger, await ledger.learned(), API, "account", Limit(5.0), clock)
    assert other.budget(rng, 5000.0).ready(5000.0) <= 5000.0
