"""The SQLite ledger passes the suite, and what only a file and a kill can do to it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from bide.client.ledger import ApiAddress, LearnedState, Ledger, WaitSettings, sqlite_file
from bide.client.ledger.sqlite import FORMAT, SqliteLedger
from bide.core.errors import SetupError
from bide.testing.ledger import LedgerSuite, entry


class TestSqliteLedger(LedgerSuite):
    def ledger(self, place: Path) -> Ledger:
        return SqliteLedger(place / "wait.ledger")


WAITER = """
import asyncio, sys, time
from pathlib import Path
from bide.client.ledger.sqlite import SqliteLedger
from bide.testing.ledger import entry

async def main():
    ledger = SqliteLedger(Path(sys.argv[1]))
    await ledger.open()
    await ledger.add([entry(f"w{i}") for i in range(500)])
    ended = 0
    while True:
        for i in range(500):
            ledger.note(entry(f"w{i}", requests=ended, asked_at=time.time()))
        await ledger.end(entry(f"j{ended}", status="DONE"))
        print(ended, time.time(), flush=True)
        ended += 1
        await asyncio.sleep(0.002)

asyncio.run(main())
"""


def test_after_a_kill_every_reported_outcome_is_there_and_notes_are_at_most_a_second_old(
    tmp_path: Path,
) -> None:
    path = tmp_path / "wait.ledger"
    process = subprocess.Popen(
        [sys.executable, "-c", WAITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        first = last = process.stdout.readline().split()
        while float(last[1]) - float(first[1]) < 2.0 or int(last[0]) < 50:
            last = process.stdout.readline().split()
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().splitlines()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    # Its own time, because a busy machine may have stopped it for longer before the signal.
    number, at = rest[-1].split() if rest else last
    reported, alive = int(number), float(at)

    async def read() -> None:
        ledger = SqliteLedger(path)
        await ledger.open()
        rows = await ledger.rows()
        ended = {row.job_id for row in rows if row.ended}
        waiting = [row for row in rows if not row.ended]
        await ledger.close()
        assert ended >= {f"j{i}" for i in range(reported + 1)}
        asked = [e.asked_at for e in waiting]
        assert len(asked) == 500
        assert min(at or 0.0 for at in asked) > alive - 1.5

    asyncio.run(read())


async def test_notes_are_written_without_being_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "wait.ledger"
    ledger = SqliteLedger(path)
    await ledger.open()
    await ledger.add([entry()])
    ledger.note(entry(requests=5))
    reader = sqlite3.connect(path)
    deadline = time.monotonic() + 10
    while reader.execute("SELECT requests FROM jobs").fetchone() != (5,):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    reader.close()
    await ledger.close()


async def test_one_commit_covers_what_ends_together(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "wait.ledger")
    await ledger.open()
    await ledger.add([entry(f"j{i}") for i in range(500)])
    writer = ledger._writer
    assert writer is not None
    commits: list[str] = []
    writer._connection.set_trace_callback(lambda s: commits.append(s) if s == "COMMIT" else None)
    await asyncio.gather(*(ledger.end(entry(f"j{i}", status="DONE")) for i in range(500)))
    assert len(commits) < 50
    await ledger.close()


async def test_a_ledger_that_cannot_be_written_says_so_and_keeps_its_notes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = SqliteLedger(tmp_path / "wait.ledger")
    await ledger.open()
    await ledger.add([entry()])
    writer = ledger._writer
    assert writer is not None
    writer._connection.execute("PRAGMA query_only = ON")  # every write fails from now on
    with pytest.raises(SetupError, match="cannot be used"):
        await ledger.end(entry("other", status="DONE"))
    with caplog.at_level(logging.WARNING, "bide.ledger"):
        ledger.note(entry(requests=5))
        for _ in range(2):
            ledger._flush()
            with pytest.raises(SetupError):  # in line behind it, so that it has failed too
                await ledger.end(entry("other", status="DONE"))
    assert len(caplog.records) == 1, "it complains once"
    writer._connection.execute("PRAGMA query_only = OFF")
    await ledger.close()
    again = SqliteLedger(tmp_path / "wait.ledger")
    await again.open()
    assert [e.requests for e in await again.rows()] == [5]
    await again.close()


async def test_the_file_belongs_to_this_user_alone_and_has_no_credential(tmp_path: Path) -> None:
    from bide.client.budgets import fingerprint

    path = tmp_path / "wait.ledger"
    ledger = SqliteLedger(path)
    await ledger.open()
    await ledger.add([entry(base="https://me:sk-secret@api.example?key=sk-secret")])
    name = fingerprint("sk-secret", ledger.salt)
    await ledger.learn(LearnedState(budgets={name: (1.0, {})}))
    await ledger.close()
    for file in tmp_path.iterdir():
        assert b"sk-secret" not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a database at all, but long enough to be looked at" * 50, "cannot be used"),
        ("CREATE TABLE a (b)", "another program"),
        ("PRAGMA application_id = 1651074149; PRAGMA user_version = 99", "newer version of bide"),
    ],
)
async def test_a_file_that_is_no_ledger_is_left_alone(
    tmp_path: Path, content: bytes | str, message: str
) -> None:
    path = tmp_path / "file"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        other = sqlite3.connect(path)
        other.executescript(content)
        other.close()
    before = path.read_bytes()
    for _ in range(2):  # the lock is released again
        with pytest.raises(SetupError, match=message):
            await SqliteLedger(path).open()
    assert path.read_bytes() == before


async def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="No such file"):
        await SqliteLedger(tmp_path / "no" / "file").open()


async def test_the_refusal_names_the_process_that_has_it(tmp_path: Path) -> None:
    first, second = (SqliteLedger(tmp_path / "wait.ledger") for _ in range(2))
    await first.open()
    with pytest.raises(SetupError, match=str(os.getpid())):
        await second.open()
    await first.close()


def test_a_beginning_that_was_cut_off_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "wait.ledger"
    path.touch()  # made, and killed before anything was written
    connection = sqlite_file.connect(path, FORMAT)
    assert len(connection.execute("SELECT salt FROM secret").fetchall()) == 1
    connection.close()
    connection = sqlite_file.connect(path, FORMAT)
    assert len(connection.execute("SELECT salt FROM secret").fetchall()) == 1
    connection.close()


def test_a_file_of_an_earlier_format_is_upgraded(tmp_path: Path) -> None:
    steps = ("CREATE TABLE a (b);", "CREATE TABLE c (d);")
    for known in (1, 2, 2):
        form = sqlite_file.FileFormat(mark=7, instead="another file", steps=steps[:known])
        connection = sqlite_file.connect(tmp_path / "file", form)
        if known == 1:
            connection.execute("INSERT INTO a VALUES (5)")
        else:
            assert connection.execute("SELECT b FROM a").fetchall() == [(5,)]
            assert connection.execute("SELECT * FROM c").fetchall() == []
        assert len(connection.execute("SELECT salt FROM secret").fetchall()) == 1
        connection.close()


async def test_the_settings_of_a_place_are_stored_and_replaced(tmp_path: Path) -> None:
    path, place = tmp_path / "wait.ledger", ApiAddress("sync.so", "https://api.sync.so")
    found: list[dict[ApiAddress, WaitSettings]] = []
    first = WaitSettings(limit="20/1s", out="/films")
    for settings in (first, msgspec.structs.replace(first, timeout=60.0)):
        ledger = SqliteLedger(path)
        await ledger.open()
        found.append(ledger.settings)
        await ledger.remember({place: settings})
        await ledger.close()
    assert found == [{}, {place: first}]
