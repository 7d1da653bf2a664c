"""The PostgreSQL store passes the suite, and what only several processes on one database can get wrong."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, cast

import msgspec
import psycopg
import pytest
import pytest_asyncio
from msgspec.structs import replace

from bide.core.clock import Clock
from bide.core.errors import SetupError
from bide.core.jobs.record import FileInfo, Job, Status
from bide.core.jobs.state_machine import (
    CancelAsked,
    Cancelled,
    Failed,
    Refused,
    StepKept,
    StepStarted,
    Succeeded,
)
from bide.core.wire.http import Event, job_id
from bide.server.store import (
    ClaimRequest,
    CompletedUploads,
    EventFilter,
    Filter,
    InputFile,
    Inserted,
    Missing,
    Store,
    StoreUnavailable,
    migrations,
)
from bide.server.store.migrations import scripts
from bide.server.store.postgres import feed as postgres_feed
from bide.server.store.postgres import reads as postgres_reads
from bide.server.store.postgres import server as postgres_server
from bide.server.store.postgres.server import NUMBERING, PostgresServer, prepare, version
from bide.server.store.postgres.store import PostgresStore
from bide.server.store.postgres.transaction import PostgresTransaction
from bide.server.store.transactional_store import UploadFilter
from bide.server.upload_record import Upload, UploadStatus, Way, owner_of
from bide.testing import ManualClock
from bide.testing.store import StoreHarness, StoreSuite
from bide.testing.store.harness import LEASE, OOPS
from tests.servers.postgres import Postgres
from tests.servers.relay import Relay
from tests.waiting import eventually

ONE = msgspec.Raw(b"1")
WANT = ClaimRequest("default", ("work",), 100)


def url_of(server: Postgres, place: Path) -> str:
    """A schema for each place."""
    return f"{server.url}?schema=t{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"


TABLES = (
    *("jobs", "inputs", "steps", "events", "keys", "queues", "durations", "tombstones"),
    *("uploads", "upload_uses", "workers", "records", "search_terms", "rollups"),
)


@pytest.fixture(scope="module")
def prepared(postgres: Postgres) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """The URL of a schema, and a connection to it."""
    url = f"{postgres.url}?schema=suite"
    prepare(PostgresServer(url))
    with PostgresServer(url).connect() as connection:
        yield url, connection


class TestPostgresStore(StoreSuite):
    """Each test finds a schema that is there already, and empty: making one takes longer than most tests."""

    @pytest.fixture(autouse=True)
    def _emptied(self, prepared: tuple[str, psycopg.Connection[Any]]) -> None:
        self._url, connection = prepared
        self._places: set[Path] = set()
        connection.execute("; ".join(f"DELETE FROM {t}" for t in TABLES).encode(), prepare=False)

    def store(self, place: Path, clock: Clock) -> Store:
        self._places.add(place)
        assert len(self._places) == 1, "each place is to have a schema of its own"
        return PostgresStore(self._url, clock)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_hold_utf_8_is_refused(postgres: Postgres, encoding: str) -> None:
    name = f"in_{encoding.lower()}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    url = postgres.url.replace("/postgres", f"/{name}")
    # A start, and `bide doctor`.
    for look in (lambda: prepare(PostgresServer(url)), lambda: PostgresServer(url).describe()):
        with pytest.raises(SetupError, match=f"encoding is {encoding}.*createdb --encoding=UTF8"):
            look()
    with PostgresServer(url).connect() as connection:
        assert version(connection) == (0, 0), "nothing was made in there"


async def test_text_is_read_as_utf_8_whatever_the_address_and_the_environment_say(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    store = PostgresStore(url_of(postgres, tmp_path) + "&client_encoding=latin1")
    await store.open(lambda events: None)
    try:
        await store.pause("日本", True)
        assert [queue.name for queue in await store.queues()] == ["日本"]
    finally:
        await store.close()


async def test_a_store_that_cannot_be_opened_leaves_no_connection(
    postgres: Postgres, tmp_path: Path
) -> None:
    role = "CREATE ROLE one LOGIN CONNECTION LIMIT 1; GRANT CREATE ON DATABASE postgres TO one"
    connected = "SELECT FROM pg_stat_activity WHERE usename = 'one'"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(role)
        store = PostgresStore(url_of(postgres, tmp_path).replace("bide@", "one@"))
        with pytest.raises(SetupError, match="too many connections"):
            await store.open(lambda events: None)
        await eventually(lambda: connection.execute(connected).fetchone() is None)


class Process(StoreHarness):
    """One of several that have the same database."""

    store: Any

    def __init__(self, url: str, clock: ManualClock, numbers: count[int]) -> None:
        self.hints: list[tuple[str, str]] = []
        super().__init__(lambda: PostgresStore(url, clock), clock)
        self._numbers = numbers

    async def open(self) -> None:
        self.resets = 0
        await self.store.open(
            self._publish,
            lambda queue, kind: self.hints.append((queue, kind)),
            self._reset,
            self._follow,
        )

    def _reset(self) -> None:
        self.resets += 1


@pytest.fixture
def url(postgres: Postgres, tmp_path: Path) -> str:
    return url_of(postgres, tmp_path)


@pytest_asyncio.fixture
async def two(url: str) -> AsyncIterator[tuple[Process, Process]]:
    clock = ManualClock()
    numbers = count(1)
    first, second = Process(url, clock, numbers), Process(url, clock, numbers)
    await first.open()
    await second.open()
    yield first, second
    await first.store.close()
    await second.store.close()


async def remembered(process: Process, job_id: str) -> Job:
    """Read so often that polls are served from the cache: a notification of an earlier change may still be on its way."""
    async with asyncio.timeout(10):
        while process.store._job_cache.get(job_id) is None:
            await process.get(job_id)
            await asyncio.sleep(0.005)
    return await process.get(job_id)


def ids(claims: Sequence[Any]) -> list[str]:
    return [claim.job.id for claim in claims]


# --- several processes


async def test_the_tails_of_all_processes_have_all_events_in_the_same_order(
    two: tuple[Process, Process],
) -> None:
    first, second = two

    async def write(process: Process) -> None:
        for _ in range(30):
            await asyncio.gather(*(process.put() for _ in range(3)))

    await asyncio.gather(write(first), write(second))
    await second.claim(limit=20)
    events = await first.store.events()
    assert len(events) == 200
    for process in two:
        await process.followed_to(events[-1].id)
        assert msgspec.to_builtins(process.tail) == msgspec.to_builtins(events)
        assert len(set(process.epochs)) == 1


async def test_own_events_are_not_read_again(two: tuple[Process, Process]) -> None:
    first, second = two
    read: list[str] = []
    execute: Any = psycopg.AsyncConnection.execute

    async def watched(self: Any, query: str | bytes, *values: Any, **more: Any) -> Any:
        text = query if isinstance(query, str) else query.decode()
        if "FROM events WHERE id > " in text:
            read.append(text)
        return await execute(self, query, *values, **more)

    await second.store.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.AsyncConnection, "execute", watched)
        for _ in range(20):
            await first.put()
        await first.followed_to((await first.store.events())[-1].id)
    assert read == []
    await second.open()


async def test_a_new_epoch_is_noticed_by_running_services(two: tuple[Process, Process]) -> None:
    first, second = two
    await first.put()
    epoch = first.store.server.begin_epoch()
    await eventually(lambda: first.epochs[-1] == second.epochs[-1] == epoch)
    assert (await first.store.read_log(EventFilter())).epoch == epoch
    await second.put()
    last = (await second.store.events())[-1].id
    for process in two:
        await process.followed_to(last)
        assert process.epochs[-1] == epoch


async def test_a_restored_dump_begins_a_new_epoch(two: tuple[Process, Process]) -> None:
    first, second = two
    await second.store.close()
    before = first.epochs[-1]
    with first.store.server.connect() as connection:  # as pg_restore does
        connection.execute("ALTER TABLE log_state RENAME TO dumped")
        connection.execute("CREATE TABLE log_state (LIKE dumped INCLUDING ALL)")
        connection.execute("INSERT INTO log_state SELECT * FROM dumped")
    await second.open()
    assert second.epochs[-1] != before
    again = second.epochs[-1]
    await second.reopen()
    assert second.epochs[-1] == again


async def test_a_reader_of_the_log_never_finds_a_smaller_number_later(
    two: tuple[Process, Process], url: str
) -> None:
    read: list[int] = []
    writing = True

    def follow() -> None:
        with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
            schema = url.partition("schema=")[2]
            while writing:
                after = read[-1] if read else 0
                sql = f"SELECT id FROM {schema}.events WHERE id > %s ORDER BY id"
                read.extend(number for (number,) in connection.execute(sql.encode(), (after,)))

    async def write(process: Process) -> None:
        for _ in range(40):
            await asyncio.gather(*(process.put() for _ in range(3)))
            for claim in await process.claim(limit=3):
                await process.succeed(claim.job)

    follower = threading.Thread(target=follow)
    follower.start()
    await asyncio.gather(*(write(process) for process in two))
    writing = False
    await asyncio.to_thread(follower.join)
    log: list[Event] = []
    while page := await two[0].store.events(after=log[-1].id if log else 0):
        log += page
    assert len(log) >= 700
    assert len(read) > 100
    assert read == [event.id for event in log][: len(read)]


async def test_nobody_gets_a_job_that_another_process_has(two: tuple[Process, Process]) -> None:
    for _ in range(30):
        await two[0].put()
    rounds = await asyncio.gather(*(p.claim(limit=4) for _ in range(4) for p in two))
    found = [job_id for claims in rounds for job_id in ids(claims)]
    assert len(found) == len(set(found)) == 30


async def test_one_key_in_two_processes_makes_one_job(two: tuple[Process, Process]) -> None:
    calls = [p.store.insert([p.new(key=str(n))]) for n in range(20) for p in two]
    done = [answer for (answer,) in await asyncio.gather(*calls)]
    assert all(isinstance(d, Inserted) for d in done)
    assert sum(d.created for d in done) == 20
    assert len({d.job.id for d in done}) == 20
    assert len(await two[0].store.events()) == 20


async def test_each_hears_everything_once_and_new_work_of_others_is_hinted_at(
    two: tuple[Process, Process],
) -> None:
    first, second = two
    await asyncio.gather(*(p.put() for _ in range(5) for p in two))
    await second.put(run_at=second.clock.now() + 60, queue="later")
    await first.claim(limit=3)
    log = await first.store.events()
    assert len(log) == 14
    await eventually(lambda: len(first.published) >= 14 and len(second.published) >= 14)
    for process in two:
        assert sorted(e.id for e in process.published) == [e.id for e in log]
    mine = {e.id for e in first.published} - {e.id for e in log if e.job_id == log[0].job_id}
    assert mine
    assert set(first.hints) == set(second.hints) == {("default", "work")}


async def test_a_job_that_another_process_changes_leaves_the_cache(
    two: tuple[Process, Process],
) -> None:
    first, second = two
    job = await first.run()
    assert await remembered(second, job.id) == job
    await first.succeed(job)
    await eventually(lambda: second.store._job_cache.get(job.id) is None)
    assert (await remembered(second, job.id)).status is Status.DONE
    await first.store.delete(job.id)
    await eventually(lambda: second.store._job_cache.get(job.id) is None)
    assert await second.store.get([job.id]) == [Missing(gone=True)]


async def test_a_job_that_another_process_purges_leaves_the_cache(
    two: tuple[Process, Process],
) -> None:
    first, second = two
    job = await first.succeed(await first.run(keep=0.0))
    for process in two:
        assert (await remembered(process, job.id)).status is Status.DONE
    assert (await first.store.purge(tombstones=99.0, keys=99.0))[0] == [job.id]
    assert await first.store.get([job.id]) == [Missing(gone=True)]
    await eventually(lambda: second.store._job_cache.get(job.id) is None)
    assert await second.store.get([job.id]) == [Missing(gone=True)]


async def test_the_cache_is_not_used_while_no_events_can_arrive(
    two: tuple[Process, Process],
) -> None:
    first, second = two
    jobs = [await first.run() for _ in range(3)]
    for job in jobs:
        assert await remembered(second, job.id) == job
    await second.store._feed.close()
    assert not second.store._cache.fresh
    await first.succeed(jobs[0])
    await first.store.delete((await first.succeed(jobs[1])).id)
    await first.apply(CancelAsked(job_id=jobs[2].id))
    assert (await second.get(jobs[0].id)).status is Status.DONE
    assert await second.store.get([jobs[1].id]) == [Missing(gone=True)]
    assert (await second.get(jobs[2].id)).cancel_asked_at is not None


async def test_a_change_without_an_event_reaches_other_processes(two: tuple[Process, Process]) -> None:
    first, second = two
    parent = await first.run()
    child = await first.spawn(parent)
    held = await first.take(child.id)
    failed = await first.apply(Failed(job_id=parent.id, fence=1, error=OOPS))
    assert await remembered(second, parent.id) == failed
    await first.apply(Failed(job_id=child.id, fence=held.fence, error=OOPS))
    await eventually(lambda: second.store._job_cache.get(parent.id) is None)
    assert [c.status for c in (await second.get(parent.id)).children] == [Status.CANCELLED]


async def test_a_pause_holds_in_every_process(two: tuple[Process, Process]) -> None:
    first, second = two
    await first.put()
    assert await second.claim(queue="other") == []  # it knows now that nothing is paused
    await first.store.pause("default", True)
    await eventually(lambda: second.store._cache.paused is None)
    assert await second.claim() == []
    await first.store.pause("default", False)
    await eventually(lambda: second.store._cache.paused is None)
    assert len(await second.claim()) == 1


async def test_what_a_process_remembers_of_its_jobs_is_checked(two: tuple[Process, Process]) -> None:
    first, second = two
    await first.store._feed.close()  # it receives nothing
    cancelled, logged, settled = [await first.run() for _ in range(3)]
    await second.apply(CancelAsked(job_id=cancelled.id))
    after = await first.apply(Succeeded(job_id=cancelled.id, fence=1, result=ONE))
    assert after.status is Status.CANCELLED
    await second.apply(Failed(job_id=logged.id, fence=1, error=OOPS))
    await second.apply(Failed(job_id=settled.id, fence=1, error=OOPS))
    (refused,) = await first.store.apply(
        [Succeeded(job_id=settled.id, owner="worker", fence=1, result=ONE)]
    )
    assert isinstance(refused, Refused)
    assert refused.job.status is Status.ERROR
    assert await first.store.renew("worker", [(logged.id, 1)], LEASE) == [(logged.id, 1)]
    told = Counter(e.job_id for e in await first.store.events() if e.job["status"] == "ERROR")
    assert told == {logged.id: 1, settled.id: 1}


async def test_only_the_leases_of_ones_own_earlier_process_are_void(
    two: tuple[Process, Process],
) -> None:
    first, second = two
    mine, other = await first.put(), await first.put(queue="other")
    await first.claim(owner="here.1:10")
    await second.claim(queue="other", owner="there.1:10")
    assert await first.store.void("here.1:") == 1
    assert [job.id for job in (await second.store.lost_and_late()).leases] == [mine.id]
    assert (await second.get(other.id)).lease_until == first.clock.now() + LEASE


async def test_one_content_at_two_processes_is_one_job(two: tuple[Process, Process]) -> None:
    for round_ in range(20):
        failed = await two[0].put(content=b"c")
        await two[0].apply(Cancelled(job_id=failed.id))
        # Both read the key of the cancelled job, and one of them replaces it.
        done = await asyncio.gather(
            *(p.store.insert([p.new(content=b"c")]) for _ in range(3) for p in two)
        )
        made = [outcome for (outcome,) in done if isinstance(outcome, Inserted)]
        assert [outcome.created for outcome in made].count(True) == 1, round_
        assert len({outcome.job.id for outcome in made}) == 1
        await two[1].store.delete(made[0].job.id)


async def test_unique_values_at_two_processes_are_one_job(two: tuple[Process, Process]) -> None:
    for number in range(20):
        new = [(p, p.new(unique=str(number).encode(), unique_for=100.0)) for _ in range(3) for p in two]
        done = await asyncio.gather(*(p.store.insert([one]) for p, one in new))
        made = [outcome for (outcome,) in done if isinstance(outcome, Inserted)]
        assert [outcome.created for outcome in made].count(True) == 1, number
        assert len(made) == 6 and len({outcome.job.id for outcome in made}) == 1


async def test_two_processes_together_hold_no_more_jobs_of_a_key(two: tuple[Process, Process]) -> None:
    """Both claim and settle at the same time, until all jobs have ended."""
    keys = [f"work - {number}" for number in range(3)]
    await two[0].store.insert([two[0].new(concurrency_key=key) for key in keys for _ in range(40)])
    request = ClaimRequest("default", ("work",), 5, concurrency={"work": 2})
    held: Counter[str | None] = Counter()
    most: Counter[str | None] = Counter()
    ended = 0

    async def work(process: Process, owner: str) -> None:
        nonlocal ended
        while ended < 120:
            claims = await process.store.claim(owner, [request], 5, LEASE)
            held.update(one.job.concurrency_key for one in claims)
            most.update({key: held[key] - most[key] for key in held if held[key] > most[key]})
            await asyncio.sleep(0.005)  # the work
            for one in claims:
                # No longer counted before the commit, after which the other process may claim the next one.
                held[one.job.concurrency_key] -= 1
                await process.succeed(one.job)
                ended += 1

    async with asyncio.timeout(100):
        await asyncio.gather(*(work(two[number % 2], f"owner {number}") for number in range(4)))
    assert dict(most) == dict.fromkeys(keys, 2)


async def test_two_that_purge_at_once_remove_each_job_once(two: tuple[Process, Process]) -> None:
    first, second = two
    jobs = [await first.succeed(await first.run(keep=0.0)) for _ in range(30)]
    rounds = await asyncio.gather(
        *(p.store.purge(tombstones=99.0, keys=99.0, limit=7) for _ in range(5) for p in two)
    )
    removed = [job_id for some, _ in rounds for job_id in some]
    assert sorted(removed) == [job.id for job in jobs]
    assert {e.type for e in await second.store.events()} == {"deleted"}


async def test_an_upload_does_not_expire_under_a_job_that_another_process_has_just_stored(
    two: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    now = first.clock.now()
    upload = Upload(
        *(job_id(now, bytes(16)), Way.TUS, "a.mp4", now, now),
        status=UploadStatus.DONE,
        size=10,
        received=10,
        sha256="ab",
        blob="b",
        replica="here",
        expires_at=now,
    )
    await first.store.finish(CompletedUploads((upload,)))
    file = InputFile(owner_of(upload.id), FileInfo("a.mp4", "video/mp4", 10, "ab", "b"))
    find = first.store.uploads

    async def find_then_insert(filter: UploadFilter) -> list[Upload]:
        found = await find(filter)
        assert found == [upload]
        await second.store.insert([replace(second.new(), files=(file,))])
        return [upload]

    monkeypatch.setattr(first.store, "uploads", find_then_insert)
    assert await first.store.expire_uploads() == ([], False)
    assert isinstance(await second.store.upload(upload.id), Upload)


async def test_relatives_that_two_processes_change_at_once(two: tuple[Process, Process]) -> None:
    """Each locks a child and then its parent; the second one waits, or is retried."""
    first, _ = two
    parent = await first.run()
    children = [await first.spawn(parent, str(n)) for n in range(8)]
    held = ids(await first.claim("part", queue="parts"))
    assert len(held) == 8
    changes = [
        two[n % 2].store.apply([Failed(job_id=child.id, owner="worker", fence=1, error=OOPS)])
        for n, child in enumerate(children)
    ]
    assert all(isinstance(job, Job) for (job,) in await asyncio.gather(*changes))
    assert [c.status for c in (await first.get(parent.id)).children] == [Status.ERROR] * 8


async def test_an_operation_that_raises_takes_no_other_with_it(two: tuple[Process, Process]) -> None:
    first, _ = two
    one = first.new()
    calls = [first.store.insert([new]) for new in (one, first.new(), one, first.new())]
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(d) for d in done] == [list, list, psycopg.errors.UniqueViolation, list]
    assert len(await first.claim()) == 3
    assert len(await first.store.events()) == 6


# --- broken connections


def cut(url: str, *, how: str = "") -> None:
    """The server ends every connection of bide's that is open now."""
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'bide' "
            "AND pid <> pg_backend_pid()"
        )


async def test_connections_that_are_cut_are_made_again(url: str) -> None:
    harness = Process(url, ManualClock(), count(1))
    await harness.open()
    job = await harness.run()
    for _ in range(3):
        await asyncio.to_thread(cut, url)
        assert await harness.get(job.id) == job
        other = await harness.put(queue="other")
        assert (await harness.get(other.id)).id == other.id
    assert (await harness.succeed(job)).status is Status.DONE
    await eventually(lambda: bool(harness.store._cache.fresh))
    writes = [e.id for e in await harness.store.events()]
    assert len(writes) == len(set(writes)) == 6
    await eventually(lambda: len(harness.published) == 6)
    await harness.store.close()


async def test_what_others_wrote_during_a_break_is_heard_afterwards(
    two: tuple[Process, Process], url: str
) -> None:
    first, second = two
    await asyncio.to_thread(cut, url)
    jobs = [await first.put() for _ in range(3)]
    await eventually(lambda: len(second.published) >= 3)
    assert [e.job_id for e in second.published] == [job.id for job in jobs]
    await eventually(lambda: bool(second.store._cache.fresh))
    await second.put()
    assert len({e.id for e in second.published}) == len(second.published)


def end_all(url: str) -> None:
    """Every connection of the stores, as when another server takes over."""
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'bide' AND pid <> "
            "pg_backend_pid()"
        )


async def test_a_log_that_has_gone_back_is_heard_anew(two: tuple[Process, Process], url: str) -> None:
    """A standby that lagged behind was promoted: the last events, and what they were about, have never been."""
    first, second = two
    job = await first.put()
    ended = await first.succeed((await first.claim())[0].job)
    await eventually(lambda: len(second.published) == 3)
    assert (await remembered(second, job.id)).status is Status.DONE
    with PostgresServer(url).connect() as connection:
        connection.execute("DELETE FROM events WHERE id > 1")
        connection.execute("SELECT setval('event_numbers', 1)")
        connection.execute(
            "UPDATE jobs SET status = 'PENDING', version = 1, fence = 0, attempt = 0, owner = NULL, lease_until = NULL, "
            "started_at = NULL, finished_at = NULL, result = NULL, due = created_at, ready = true"
        )
    await asyncio.to_thread(end_all, url)
    await eventually(lambda: first.resets == second.resets == 1)
    await eventually(lambda: bool(second.store._cache.fresh))
    assert (await remembered(second, job.id)).status is Status.PENDING
    second.published.clear()
    (claim,) = await first.claim(owner="other")
    assert claim.job.fence == ended.fence == 1
    await eventually(lambda: [e.job["status"] for e in second.published] == ["PROCESSING"])
    assert (await remembered(second, job.id)).status is Status.PROCESSING
    await first.succeed(claim.job)
    await eventually(lambda: len(second.published) == 2)
    assert (await remembered(second, job.id)).status is Status.DONE
    assert [process.resets for process in two] == [1, 1]


async def test_another_timeline_is_another_log_even_if_it_is_longer(
    two: tuple[Process, Process], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    await first.put()
    await eventually(lambda: len(second.published) == 1)
    monkeypatch.setattr(postgres_feed, "_TIMELINE", "SELECT 'FFFFFFFF'")
    await asyncio.to_thread(end_all, url)
    await eventually(lambda: first.resets == second.resets == 1)
    await asyncio.to_thread(end_all, url)
    await eventually(lambda: not second.store._cache.fresh)
    await eventually(lambda: bool(second.store._cache.fresh and first.store._cache.fresh))
    assert [process.resets for process in two] == [1, 1], "the same server again"


def lose_answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Each call makes the connection break right after the next commit, before its answer."""
    commit = PostgresTransaction.finish
    lose = False

    def next_one() -> None:
        nonlocal lose
        lose = True

    def unheard(self: PostgresTransaction, channel: str, origin: str) -> None:
        nonlocal lose
        commit(self, channel, origin)
        if lose and self.commit_sent:
            lose = False
            self._connection.close()
            raise psycopg.OperationalError("the server closed the connection unexpectedly")

    monkeypatch.setattr(PostgresTransaction, "finish", unheard)
    return next_one


async def test_a_commit_whose_answer_was_lost_is_neither_lost_nor_repeated(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Process(url, ManualClock(), count(1))
    await harness.open()
    lose_next = lose_answers(monkeypatch)
    lose_next()
    job = await harness.put()
    lose_next()
    keyed = await harness.put(key="k")
    assert [e.job_id for e in await harness.store.events()] == [job.id, keyed.id]
    lose_next()
    claims = await harness.claim()
    assert ids(claims) == [job.id, keyed.id], (
        "a claim without a response is given back, and claimed again"
    )
    assert [c.job.fence for c in claims] == [2, 2]
    assert [c.job.losses for c in claims] == [0, 0]
    one: dict[str, Any] = {"job_id": job.id, "owner": "worker", "fence": 2, "name": "probe"}
    lose_next()
    await harness.store.apply([StepStarted(**one), StepKept(**one, result=msgspec.Raw(b"1"))])
    told = [e.job["step"]["status"] for e in await harness.store.events() if e.type == "step"]
    assert told == [Status.PROCESSING, Status.DONE], "once, although both were carried out again"
    await harness.succeed(claims[0].job)
    await harness.store.close()


async def test_after_a_commit_whose_answer_was_lost_polls_and_listeners_see_what_it_did(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Process(url, ManualClock(), count(1))
    await harness.open()
    lose_next = lose_answers(monkeypatch)
    job = await harness.run()
    await eventually(lambda: bool(harness.store._cache.fresh))
    assert (await remembered(harness, job.id)).status is Status.PROCESSING
    lose_next()
    (answer,) = await harness.store.apply([Succeeded(job_id=job.id, owner=job.owner, fence=job.fence)])
    assert isinstance(answer, Refused), "it was stored the first time"
    await eventually(lambda: harness.resets == 1)
    assert (await harness.get(job.id)).status is Status.DONE
    await eventually(lambda: len(harness.published) == 3)
    assert harness.published == await harness.store.events(), "each event once, in order"
    await harness.store.close()


async def test_a_cancel_whose_answer_was_lost_is_heard_where_the_job_runs(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Process(url, ManualClock(), count(1))
    await harness.open()
    lose_next = lose_answers(monkeypatch)
    job = await harness.run()
    lose_next()
    await harness.store.apply([CancelAsked(job_id=job.id)])
    await eventually(lambda: any(e.job.get("cancelAsked") for e in harness.published))
    assert [e.id for e in harness.published] == [e.id for e in await harness.store.events()]
    await harness.store.close()


async def test_a_connection_that_breaks_before_the_commit_leaves_no_doubt(url: str) -> None:
    harness = Process(url, ManualClock(), count(1))
    await harness.open()
    await harness.put()
    await asyncio.to_thread(cut, url)
    assert len(await harness.claim()) == 1
    await asyncio.sleep(0)
    assert harness.resets == 0
    await harness.store.close()


async def test_a_claim_that_was_not_heard_of_is_given_back_after_the_database_was_away(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Process(url, ManualClock(), count(1))
    await harness.open()
    job = await harness.put()
    commit = PostgresTransaction.finish
    arguments = harness.store.server._arguments
    port = arguments["port"]

    def killed(self: PostgresTransaction, channel: str, origin: str) -> None:
        commit(self, channel, origin)
        monkeypatch.setattr(PostgresTransaction, "finish", commit)
        arguments["port"] = "1"
        self._connection.close()
        raise psycopg.OperationalError("the server closed the connection unexpectedly")

    monkeypatch.setattr(PostgresTransaction, "finish", killed)
    with pytest.raises(StoreUnavailable):
        await harness.claim()
    with pytest.raises(StoreUnavailable):
        await harness.claim()
    arguments["port"] = port
    (claim,) = await harness.claim()
    assert (claim.job.id, claim.job.fence, claim.job.losses) == (job.id, 2, 0)
    await harness.store.close()


async def test_a_commit_that_is_still_under_way_when_its_connection_is_cut_claims_nothing_behind_ones_back(
    postgres: Postgres, url: str
) -> None:
    wire = Relay(postgres.port)
    harness = Process(url.replace(f":{postgres.port}", f":{wire.port}"), ManualClock(), count(1))
    await harness.open()
    job = await harness.put()
    with psycopg.connect(postgres.url, autocommit=True) as other:

        def waiting() -> set[int]:
            rows = other.execute("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            return {pid for (pid,) in rows}

        log = (NUMBERING, harness.store.server.schema)
        other.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", log)
        claiming = asyncio.create_task(harness.claim())
        await eventually(lambda: bool(waiting()))
        first = waiting()
        wire.reset()  # the server has the whole of it, and notices nothing
        await eventually(lambda: claiming.done() or waiting().isdisjoint(first))
        other.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", log)
        claims = await claiming
        assert ids(claims or await harness.claim()) == [job.id], "it is claimed, and its worker knows it"
    await harness.store.close()
    wire.end()


async def test_a_database_that_is_away_is_reported_at_once_and_used_when_it_is_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Process(url, ManualClock(), count(1))
    await harness.open()
    job = await harness.put()
    port, nowhere = harness.store.server._arguments["port"], "1"
    harness.store.server._arguments["port"] = nowhere
    await asyncio.to_thread(cut, url)
    begin = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"does not answer.*check its log"):
        await harness.put()
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await harness.store.get([job.id])
    many = await asyncio.gather(
        *(harness.store.insert([harness.new()]) for _ in range(50)), return_exceptions=True
    )
    assert all(isinstance(answer, StoreUnavailable) for answer in many)
    assert time.monotonic() - begin < 3
    harness.store.server._arguments["port"] = port
    assert await harness.get(job.id) == job
    assert len(await harness.claim()) == 1
    await harness.store.close()


async def test_without_a_free_connection_a_read_is_refused_in_time(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_reads, "CONNECT_TIMEOUT", 0.2)
    store = PostgresStore(url, ManualClock(), connections=3)
    await store.open(lambda events: None)
    slow = [asyncio.create_task(store._reads.rows("SELECT pg_sleep(1)")) for _ in range(3)]
    await asyncio.sleep(0.05)
    begin = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"all connections.*--connections"):
        await store.get(["01Q9GD6E000000000000000001"])
    assert time.monotonic() - begin < 0.9
    await asyncio.gather(*slow)
    assert await store.get(["01Q9GD6E000000000000000001"]) == [Missing()]
    lists = [asyncio.create_task(store._reads.rows("SELECT pg_sleep(0.6)", long=True)) for _ in range(2)]
    await asyncio.sleep(0.05)
    assert await store.get(["01Q9GD6E000000000000000001"]) == [Missing()], "lists leave room for polls"
    done = await asyncio.gather(*lists, return_exceptions=True)
    assert [type(d) for d in done] == [list, StoreUnavailable]
    await store.close()


async def test_a_server_that_hangs_hangs_nobody(
    url: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.server.store.postgres.store.WRITE_TIMEOUT", 0.5)
    monkeypatch.setattr(postgres_reads, "QUERY_TIMEOUT", 0.5)
    harness = Process(url, ManualClock(), count(1))
    await harness.open()
    job = await harness.put(queue="other")
    begin = time.monotonic()
    postgres.stop()
    try:
        under_way = asyncio.ensure_future(harness.store.insert([harness.new()]))
        await asyncio.sleep(0.05)
        queued = [asyncio.ensure_future(harness.store.insert([harness.new()])) for _ in range(3)]
        reads = [harness.store.get([job.id]), harness.store.find(Filter()), harness.store.queues()]
        answers = await asyncio.gather(under_way, *queued, *reads, return_exceptions=True)
        assert time.monotonic() - begin < 5
    finally:
        postgres.stop(signal.SIGCONT)
    assert all(isinstance(answer, StoreUnavailable) for answer in answers), answers
    assert "unknown whether this was stored" in str(answers[0])
    assert await harness.get(job.id) == job
    assert len(await harness.claim()) == 1, (
        "the one that was under way; what waited behind it is not done"
    )
    await harness.store.close()


async def test_a_process_that_stops_within_a_transaction_does_not_hold_up_the_others(url: str) -> None:
    harness = Process(url, ManualClock(), count(1))
    await harness.open()
    job = await harness.run()
    options = "options=-c%20idle_in_transaction_session_timeout%3D300ms"
    stopped = PostgresServer(f"{url}&{options}").connect()
    stopped.execute("BEGIN")
    stopped.execute("SELECT 1 FROM jobs WHERE id = %s FOR UPDATE", (job.id,))
    leases = await harness.store.leases()
    assert (await harness.store.lost_and_late(leases)).leases == (), "it is not even waited for"
    begin = time.monotonic()
    assert (await harness.succeed(job)).status is Status.DONE
    assert 0.1 < time.monotonic() - begin < 4
    stopped.close()
    await harness.store.close()


async def test_a_lease_is_not_lost_while_one_of_its_jobs_is_locked(url: str) -> None:
    """As by a long UPDATE of an operator: the worker renews all of its jobs together, and cannot."""
    harness = Process(url, ManualClock(), count(1))
    await harness.open()
    jobs = [await harness.put() for _ in range(2)]
    assert len(await harness.claim()) == 2
    leases = await harness.store.leases()
    assert len(leases) == 1
    with PostgresServer(url).connect() as other:
        other.execute("BEGIN")
        other.execute("UPDATE jobs SET priority = priority WHERE id = %s", (jobs[0].id,))
        assert (await harness.store.lost_and_late(leases)).leases == ()
        other.execute("ROLLBACK")
    found = (await harness.store.lost_and_late(leases)).leases
    assert {job.id for job in found} == {job.id for job in jobs}
    await harness.store.close()


async def test_a_caller_that_has_left_harms_nobody(url: str) -> None:
    harness = Process(url, ManualClock(), count(1))
    await harness.open()
    job = await harness.put()
    left = asyncio.create_task(harness.store.get([job.id]))
    stays = asyncio.create_task(harness.store.get([job.id]))
    await asyncio.sleep(0)
    left.cancel()
    assert await stays == [job]
    await harness.store.close()


# --- time


async def test_its_time_is_the_databases_whatever_this_machines_clock_says(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3600)
    store = PostgresStore(url)
    await store.open(lambda events: None)
    assert abs(store.now() - right()) < 0.5
    await store.close()


# --- the schema, and the address


async def test_of_many_that_start_at_once_one_applies_each_migration(url: str) -> None:
    server = PostgresServer(url)
    applied = await asyncio.gather(*(asyncio.to_thread(prepare, server) for _ in range(5)))
    everything = [number for number, _ in scripts("postgres")]
    # Each migration once. Indexes are made outside of the lock's transaction, so another process may apply the next one.
    assert sorted(number for numbers in applied for number in numbers) == everything


async def test_a_failed_migration_leaves_nothing_behind(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = PostgresServer(url)
    prepare(server)
    newest = scripts("postgres")[-1][0]
    broken = (newest + 1, "CREATE TABLE half (x int); CREATE TABLE half (x int)")
    monkeypatch.setattr(migrations, "scripts", lambda dialect: [*scripts(dialect), broken])
    with pytest.raises(SetupError, match="half"):
        prepare(server)
    with server.connect() as connection:
        assert connection.execute("SELECT to_regclass('half')").fetchone() == (None,)
        assert connection.execute("SELECT max(version) FROM schema_version").fetchone() == (newest,)


async def test_data_of_a_newer_bide_is_left_alone(url: str) -> None:
    server = PostgresServer(url)
    prepare(server)
    with server.connect() as connection:
        connection.execute("INSERT INTO schema_version VALUES (999, 999)")
    with pytest.raises(SetupError, match=r"version 999.*install the newer bide"):
        await PostgresStore(url).open(lambda events: None)


async def test_data_of_a_newer_bide_is_used_when_that_has_only_added(url: str) -> None:
    server = PostgresServer(url)
    prepare(server)
    newest = scripts("postgres")[-1][0]
    with server.connect() as connection:
        connection.execute("INSERT INTO schema_version VALUES (999, %s)", (newest,))
    store = PostgresStore(url)
    await store.open(lambda events: None)
    await store.close()


async def test_a_migration_that_has_to_wait_makes_nobody_else_wait(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = PostgresServer(url)
    prepare(server)
    newest = scripts("postgres")[-1][0]
    wider = (newest + 1, f"-- usable from {newest}\nALTER TABLE jobs ADD COLUMN extra text")
    monkeypatch.setattr(migrations, "scripts", lambda dialect: [*scripts(dialect), wider])
    monkeypatch.setattr(postgres_server, "LOCK_TIMEOUT", 0.2)
    with server.connect() as slow, server.connect() as other:
        slow.execute("BEGIN")
        slow.execute("SELECT count(*) FROM jobs")
        migrating = asyncio.create_task(asyncio.to_thread(prepare, server))
        for _ in range(20):  # at each moment of it, waiting or resting
            other.execute("SET statement_timeout = '2s'")
            other.execute("SELECT count(*) FROM jobs")
            await asyncio.sleep(0.05)
        assert not migrating.done()
        slow.execute("COMMIT")
        assert await migrating == [newest + 1]
        assert version(other) == (newest + 1, newest)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("mysql://host/db", "postgresql://user@host:5432/database"),
        ("postgresql://h/d?schema=A-b", "lower-case letters"),
        ("postgresql://h/d?nonsense=1", "not a valid database URL"),
    ],
)
def test_a_wrong_address_is_refused_with_the_right_form(wrong: str, said: str) -> None:
    with pytest.raises(SetupError, match=said):
        PostgresServer(wrong)


def test_a_password_is_never_shown() -> None:
    server = PostgresServer("postgresql://me:secret@127.0.0.1:1/db?password=secret&schema=jobs")
    assert server.shown == "postgresql://me@127.0.0.1:1/db?schema=jobs"
    with pytest.raises(SetupError) as refusal:
        prepare(server)
    assert "secret" not in str(refusal.value)


async def test_a_check_fails_on_a_database_that_is_read_only(url: str) -> None:
    """As a standby is, and what some providers make of a database whose disk is full."""
    store = PostgresStore(url)
    await store.open(lambda events: None)
    try:
        await store.check_writable()
        await store._writer.submit(
            lambda tx: cast(Any, tx).execute("SET default_transaction_read_only = on")
        )
        with pytest.raises(StoreUnavailable, match="read-only"):
            await store.check_writable()
        await store._writer.submit(
            lambda tx: cast(Any, tx).execute("SET default_transaction_read_only = off")
        )
        await store.check_writable()
    finally:
        await store.close()


async def test_a_check_fails_while_the_table_of_jobs_is_locked(url: str) -> None:
    """CREATE INDEX locks it: renewals fail, and the check must not say that they could be written."""
    store = PostgresStore(f"{url}&options=-c%20lock_timeout%3D300ms")
    await store.open(lambda events: None)
    try:
        with PostgresServer(url).connect() as other:
            other.execute("BEGIN")
            other.execute("LOCK TABLE jobs IN SHARE MODE")
            with pytest.raises(StoreUnavailable):
                await store.check_writable()
            other.execute("ROLLBACK")
        await store.check_writable()
    finally:
        await store.close()
