"""The SQLite store when its disk is full, at every statement in turn, and when its clock was set back."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
import pytest

from bide.core.jobs.record import Job
from bide.core.jobs.state_machine import Parked, StepKept, StepStarted, Succeeded
from bide.core.wire.http import Event
from bide.server.blobs.files import FileBlobs
from bide.server.blobs.orphans import Orphans
from bide.server.config import Config, UpkeepConfig
from bide.server.estimates import Estimates
from bide.server.registry import Registry
from bide.server.store import StoreUnavailable
from bide.server.store.sqlite.store import SqliteStore
from bide.server.upkeep import CleanUp, Upkeep
from bide.testing import ManualClock
from bide.testing.store import StoreHarness
from bide.testing.store.harness import LEASE

T = TypeVar("T")


class Disk(sqlite3.Connection):
    """Fails `failures` writes of transactions, after so many that went well."""

    before: ClassVar[float] = float("inf")
    failures: ClassVar[float] = 1
    statements: ClassVar[int] = 0

    def _write(self, sql: str) -> None:
        if (self.in_transaction or sql.startswith("BEGIN")) and sql != "ROLLBACK":
            Disk.statements += 1
            if Disk.statements > Disk.before and Disk.failures > 0:
                Disk.failures -= 1
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self._write(sql)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        self._write(sql)
        return super().executemany(sql, parameters)


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Disk))
    yield
    room()


def full(after: int = 0, failures: float = float("inf")) -> None:
    Disk.before, Disk.failures, Disk.statements = after, failures, 0


def room() -> None:
    Disk.before, Disk.statements = float("inf"), 0


async def opened(folder: Path, clock: ManualClock | None = None) -> StoreHarness:
    clock = clock or ManualClock()
    folder.mkdir(exist_ok=True)
    harness = StoreHarness(lambda: SqliteStore(folder / "bide.db", clock), clock)
    await harness.open()
    return harness


async def insist(make: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await make()
        except StoreUnavailable as error:
            assert "free space" in str(error)


async def life(harness: StoreHarness) -> tuple[list[Job], list[Event]]:
    """A family from its submission to its end; whatever cannot be written is tried again."""
    new = [harness.new(key="k"), harness.new()]
    await insist(lambda: harness.store.insert(new))
    parent = next(c.job for c in await insist(harness.claim) if c.job.id == new[0].job.id)
    fields: dict[str, Any] = {"job_id": parent.id, "owner": parent.owner, "fence": parent.fence}
    kept = StepKept(name="one", result=msgspec.Raw(b'"kept"'), **fields)
    await insist(lambda: harness.store.apply([StepStarted(name="one", **fields), kept]))
    await insist(lambda: harness.store.log(parent.id, "worker", parent.fence, [{"message": "hello"}]))
    child = await insist(lambda: harness.spawn(parent))
    await insist(lambda: harness.store.apply([Parked(waiting_for=(child.id,), **fields)]))
    (claim,) = await insist(lambda: harness.claim("part", queue="parts"))
    done = Succeeded(job_id=child.id, owner="worker", fence=claim.job.fence, result=msgspec.Raw(b"1"))
    await insist(lambda: harness.store.apply([done]))
    (claim,) = await insist(harness.claim)
    assert claim.steps == {"one": msgspec.Raw(b'"kept"')}
    held = [(parent.id, claim.job.fence)]
    assert await insist(lambda: harness.store.renew("worker", held, LEASE)) == []
    done = Succeeded(job_id=parent.id, owner="worker", fence=claim.job.fence, result=msgspec.Raw(b"2"))
    await insist(lambda: harness.store.apply([done]))
    await insist(lambda: harness.store.delete(child.id))
    jobs = [await harness.get(item.job.id) for item in new]
    events = await harness.store.events()
    await asyncio.sleep(0)  # published right after the write returns
    kept_events = [e for e in harness.published if e.job_id != child.id or e.type == "deleted"]
    assert kept_events == events, "published once, in order"
    await harness.reopen()
    assert await harness.store.events() == events
    assert [await harness.get(item.job.id) for item in new] == jobs
    await harness.store.close()
    return jobs, events


class Plain(StoreHarness):
    """A harness whose children have the same ids, however often they were tried."""

    async def spawn(self, parent: Job, key: str = "0", **fields: Any) -> Job:
        return await super().spawn(parent, key, id="0" * 26, **fields)


async def test_a_full_disk_at_every_statement_leaves_the_same_record(tmp_path: Path) -> None:
    async def lived(name: str) -> tuple[list[Job], list[Event]]:
        folder = tmp_path / name
        folder.mkdir()
        clock = ManualClock()
        harness = Plain(lambda: SqliteStore(folder / "bide.db", clock), clock)
        await harness.open()
        Disk.statements = 0
        return await life(harness)

    whole = await lived("whole")
    statements = Disk.statements
    assert statements > 50
    for number in range(statements):
        full(number, failures=3)
        assert await lived(str(number)) == whole, number
        assert Disk.failures < 3, "it did fail"


async def test_a_renewal_that_could_not_be_written_counts(tmp_path: Path) -> None:
    harness = await opened(tmp_path)
    works, hangs = await harness.run(), await harness.run()
    before = harness.clock.now() + LEASE
    harness.clock.advance(LEASE - 1)
    full()
    with pytest.raises(StoreUnavailable):
        await harness.store.renew("worker", [(works.id, works.fence)], LEASE)
    renewed = harness.clock.now() + LEASE
    assert {lease.until for lease in await harness.store.leases()} == {before, renewed}
    (unchanged,) = [lease for lease in await harness.store.leases() if lease.until == before]
    assert [job.id for job in (await harness.store.lost_and_late([unchanged])).leases] == [hangs.id]
    harness.clock.advance(LEASE)
    room()
    assert await harness.store.renew("worker", [(works.id, works.fence)], LEASE) == []
    assert [job.id for job in (await harness.store.lost_and_late([unchanged])).leases] == [hangs.id]
    assert {lease.until for lease in await harness.store.leases()} == {before, renewed + LEASE}
    await harness.store.close()


async def test_a_renewal_that_changes_nothing(tmp_path: Path) -> None:
    harness = await opened(tmp_path)
    job = await harness.run()
    for _ in range(2):
        assert await harness.store.renew("worker", [(job.id, job.fence)], LEASE) == []
    assert await harness.get(job.id) == job
    await harness.store.close()


@pytest.mark.parametrize(
    ("code", "raised"),
    [(sqlite3.SQLITE_IOERR, StoreUnavailable), (sqlite3.SQLITE_ERROR, sqlite3.OperationalError)],
)
async def test_a_read_that_fails_says_what_to_do_unless_the_statement_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, raised: type[Exception]
) -> None:
    harness = await opened(tmp_path)
    job = await harness.run()

    def fail(connection: Disk, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        error = sqlite3.OperationalError("it failed")
        error.sqlite_errorcode = code
        raise error

    with monkeypatch.context() as patch, pytest.raises(raised, match=r"failed|free space"):
        patch.setattr(Disk, "execute", fail)
        await harness.store.input(job.id)
    await harness.store.close()


async def test_files_are_swept_when_nothing_can_be_written(tmp_path: Path) -> None:
    harness = await opened(tmp_path, ManualClock())
    orphan = tmp_path / "work" / "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    orphan.mkdir(parents=True)
    os.utime(orphan, (0, 0))
    blobs = FileBlobs(tmp_path / "blobs")
    orphans = Orphans(blobs, harness.store.identity, UpkeepConfig().quarantine)
    clean_up = CleanUp(harness.store, blobs, orphans, tmp_path / "work", UpkeepConfig())
    upkeep = Upkeep(harness.store, Registry(), Estimates(), Config(), lambda queue, kind: None, clean_up)
    full()
    with pytest.raises(StoreUnavailable, match="free space"):
        await upkeep.tick()
    assert not orphan.exists(), "which is what makes room"
    room()
    await upkeep.tick()
    await harness.store.close()


async def test_time_goes_on_after_the_clock_was_set_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = 1_900_000_000.0
    first = await opened(tmp_path, ManualClock(start))
    job = await first.run()
    await first.store.close()
    clock = ManualClock(start - 3600)
    with caplog.at_level(logging.WARNING, "bide.store"):
        later = await opened(tmp_path, clock)
    assert "3600 s behind" in caplog.text and "set it right" in caplog.text
    assert later.store.now() == start
    clock.advance(LEASE + 1)
    await later.succeed(job)
    times = [event.at for event in await later.store.events()]
    assert times == [start, start, start + (LEASE + 1) / 2], (
        "at half speed, until the clock has caught up"
    )
    await later.store.close()


async def test_a_clock_that_is_far_behind_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = await opened(tmp_path, ManualClock(1_900_000_000.0))
    await first.put()
    await first.store.close()
    later = await opened(tmp_path, ManualClock(1_000_000_000.0))
    assert later.store.now() == 1_000_000_000.0
    assert "days behind" in caplog.text and "Set the clock right" in caplog.text
    await later.store.close()


async def test_a_clock_that_is_ahead_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = await opened(tmp_path, ManualClock(1_900_000_000.0))
    await first.put()
    await first.store.close()
    later = await opened(tmp_path, ManualClock(1_900_000_001.0))
    assert later.store.now() == 1_900_000_001.0 and caplog.text == ""
    await later.store.close()


async def test_a_check_fails_while_nothing_can_be_written(tmp_path: Path) -> None:
    harness = await opened(tmp_path)
    full()
    with pytest.raises(StoreUnavailable, match="free space"):
        await harness.store.check_writable()
    room()
    await harness.store.check_writable()
    await harness.store.close()
