"""The ledger in one SQLite file. Notes are collected and written every half second, all other data immediately."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from bide.client.apis.answers import Found, Ref
from bide.client.apis.values import without_credentials
from bide.client.ledger import (
    ApiAddress,
    Counts,
    Key,
    LearnedState,
    LedgerRow,
    WaitSettings,
    sqlite_file,
)
from bide.client.ledger.outbox import PendingFile, PendingSubmission
from bide.client.ledger.writer import LedgerWriter, Operation
from bide.core.errors import ErrorInfo, SetupError
from bide.core.jobs.record import SUCCESSFUL, Progress

log = logging.getLogger("bide.ledger")
Submit = Callable[[Operation], "asyncio.Future[Any]"]
EVERY = 0.5  # seconds between two writes of notes

FORMAT = sqlite_file.FileFormat(
    mark=0x62696465,  # "bide"
    instead="another file for the ledger",
    steps=(
        """
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY,
  api TEXT NOT NULL, base TEXT NOT NULL, job_id TEXT NOT NULL,
  ref BLOB, kind TEXT NOT NULL, size TEXT NOT NULL, submitted_at REAL, since REAL,
  asked_at REAL, status TEXT, progress BLOB, etag TEXT, requests INTEGER NOT NULL,
  ended INTEGER NOT NULL, finished_at REAL, result BLOB, result_url TEXT, files BLOB, error BLOB,
  acknowledged INTEGER NOT NULL,
  UNIQUE (api, base, job_id)
);
CREATE TABLE durations (
  api TEXT NOT NULL, kind TEXT NOT NULL, size TEXT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (api, kind, size)
) WITHOUT ROWID;
CREATE TABLE budgets (fingerprint TEXT PRIMARY KEY, at REAL NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE outbox (
  base TEXT NOT NULL, what TEXT NOT NULL, key TEXT, since REAL NOT NULL, files BLOB NOT NULL, job_id TEXT,
  PRIMARY KEY (base, what)
) WITHOUT ROWID;
CREATE TABLE settings (
  api TEXT NOT NULL, base TEXT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (api, base)
) WITHOUT ROWID;
""",
    ),
)

_FIELDS = LedgerRow.__struct_fields__
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM jobs"
_THIS = "api = ? AND base = ? AND job_id = ?"
_INSERT = f"INSERT INTO jobs ({', '.join(_FIELDS)}) VALUES ({', '.join('?' * len(_FIELDS))})"
_NOTED = ("asked_at", "status", "progress", "etag", "requests")
_NOTE = f"UPDATE jobs SET {', '.join(f'{c} = ?' for c in _NOTED)} WHERE {_THIS} AND NOT ended"
_OUTCOME = (*_NOTED, "ended", "finished_at", "result", "result_url", "files", "error")
_END = (
    f"{_INSERT} ON CONFLICT (api, base, job_id) DO UPDATE SET "
    f"{', '.join(f'{c} = excluded.{c}' for c in _OUTCOME)} WHERE NOT ended"
)
_encode = msgspec.json.Encoder().encode
_files = msgspec.json.Decoder(dict[str, PendingFile]).decode
_settings = msgspec.json.Decoder(WaitSettings).decode


class SqliteLedger:
    outbox: SqliteOutbox

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._lock: int | None = None  # a file descriptor
        self._writer: LedgerWriter | None = None  # while it is open
        self._do: Submit = _not_open
        self._salt = b""
        self._noted: dict[Key, LedgerRow] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._warned = False
        self.settings: dict[ApiAddress, WaitSettings] = {}  # of the places, read by `open`

    @property
    def salt(self) -> bytes:
        return self._salt

    async def open(self) -> None:
        try:
            # Beside the file: closing any descriptor of the file itself would release SQLite's own locks.
            self._lock = sqlite_file.lock(
                self._path.with_name(self._path.name + "-lock"),
                f"uses the ledger {self._path}",
                "another file",
            )
        except OSError as error:
            raise self._unusable(error) from error
        try:
            connection = await asyncio.to_thread(sqlite_file.connect, self._path, FORMAT)
            (self._salt,) = connection.execute("SELECT salt FROM secret").fetchone()
            rows = connection.execute("SELECT api, base, data FROM settings").fetchall()
            self.settings = {ApiAddress(api, base): _settings(data) for api, base, data in rows}
        except BaseException as error:
            self._release()
            if isinstance(error, OSError | sqlite3.Error):
                raise self._unusable(error) from error
            raise
        self._writer = LedgerWriter(connection, self._unusable)
        self._do = self._writer.submit
        self.outbox = SqliteOutbox(self._do)

    async def close(self) -> None:
        if self._writer is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self._noted:
                noted, self._noted = self._noted, {}
                await self._do(_notes(noted))
        finally:
            writer, self._writer = self._writer, None
            await writer.close()
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def add(self, rows: Sequence[LedgerRow]) -> list[LedgerRow]:
        given = [(row.key, _values(row)) for row in rows]

        def write(connection: sqlite3.Connection) -> list[Any]:
            connection.executemany(f"{_INSERT} ON CONFLICT DO NOTHING", [values for _, values in given])
            return [connection.execute(f"{_SELECT} WHERE {_THIS}", key).fetchone() for key, _ in given]

        return [_row(values) for values in await self._do(write)]

    def note(self, row: LedgerRow) -> None:
        self._noted[row.key] = row
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._flush)

    def end(self, row: LedgerRow) -> Awaitable[None]:
        self._noted.pop(row.key, None)
        row.ended = True
        values = _values(row)
        return self._do(lambda connection: _nothing(connection.execute(_END, values)))

    def acknowledge(self, keys: Iterable[Key]) -> Awaitable[None]:
        these = list(keys)
        return self._do(
            lambda c: _nothing(c.executemany(f"UPDATE jobs SET acknowledged = 1 WHERE {_THIS}", these))
        )

    async def rows(self, place: ApiAddress | None = None) -> list[LedgerRow]:
        where, values = ("", ()) if place is None else ("WHERE api = ? AND base = ?", tuple(place))
        found = await self._do(
            lambda c: c.execute(f"{_SELECT} {where} ORDER BY number", values).fetchall()
        )
        return [_row(values) for values in found]

    async def counts(self) -> dict[ApiAddress, Counts]:
        groups = await self._do(
            lambda c: c.execute(
                "SELECT api, base, acknowledged, status, count(*) FROM jobs "
                "GROUP BY api, base, acknowledged, status ORDER BY min(number)"
            ).fetchall()
        )
        found: dict[ApiAddress, Counts] = {}
        for api, base, acknowledged, status, number in groups:
            counts = found.setdefault(ApiAddress(api, base), Counts())
            if not acknowledged:
                counts.unacknowledged += number
            else:
                counts.acknowledged += number
                counts.failed += number if status not in SUCCESSFUL else 0
        return found

    def learn(self, learned: LearnedState) -> Awaitable[None]:
        durations = [(*key, _encode(data)) for key, data in learned.durations.items()]
        budgets = [(name, at, _encode(data)) for name, (at, data) in learned.budgets.items()]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany("REPLACE INTO durations VALUES (?, ?, ?, ?)", durations)
            connection.executemany("REPLACE INTO budgets VALUES (?, ?, ?)", budgets)

        return self._do(write)

    async def learned(self) -> LearnedState:
        def read(connection: sqlite3.Connection) -> LearnedState:
            durations = connection.execute("SELECT * FROM durations").fetchall()
            budgets = connection.execute("SELECT * FROM budgets").fetchall()
            return LearnedState(
                durations={(a, k, s): msgspec.json.decode(data) for a, k, s, data in durations},
                budgets={name: (at, msgspec.json.decode(data)) for name, at, data in budgets},
            )

        found: LearnedState = await self._do(read)
        return found

    def remember(self, settings: Mapping[ApiAddress, WaitSettings]) -> Awaitable[None]:
        """Replace the settings of these places; others stay. Return after they are on disk."""
        self.settings = {**self.settings, **settings}
        rows = [(*place, _encode(found)) for place, found in settings.items()]
        return self._do(
            lambda c: _nothing(c.executemany("REPLACE INTO settings VALUES (?, ?, ?)", rows))
        )

    def _flush(self) -> None:
        self._timer = None
        noted, self._noted = self._noted, {}
        if not noted or self._writer is None:
            return

        def written(future: asyncio.Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is None:
                self._warned = False
                return
            if not self._warned:
                log.warning("%s. The wait continues; the client tries to write again", error)
            self._warned = True
            self._noted = noted | self._noted  # newer notes replace these
            if self._timer is None and self._writer is not None:
                self._timer = asyncio.get_running_loop().call_later(EVERY, self._flush)

        self._do(_notes(noted)).add_done_callback(written)

    def _unusable(self, error: OSError | sqlite3.Error) -> SetupError:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        return SetupError(
            f"the ledger {self._path} cannot be used: {reason}. Free space on its disk, give this user write access to "
            "it, or move it away to start a new one"
        )


class SqliteOutbox:
    """The outbox in the ledger's file."""

    def __init__(self, do: Submit) -> None:
        self._do = do

    async def get(self, base: str, what: str) -> PendingSubmission | None:
        row = await self._do(
            lambda c: c.execute(
                "SELECT key, since, files, job_id FROM outbox WHERE base = ? AND what = ?",
                (without_credentials(base), what),
            ).fetchone()
        )
        if row is None:
            return None
        key, since, files, job_id = row
        return PendingSubmission(
            base=base, what=what, key=key, since=since, files=_files(files), job_id=job_id
        )

    async def put(self, pending: PendingSubmission) -> None:
        files = _encode(pending.files)
        row = (pending.base, pending.what, pending.key, pending.since, files, pending.job_id)
        await self._do(
            lambda c: _nothing(c.execute("REPLACE INTO outbox VALUES (?, ?, ?, ?, ?, ?)", row))
        )

    async def drop(self, pending: PendingSubmission) -> None:
        this = pending.base, pending.what
        await self._do(
            lambda c: _nothing(c.execute("DELETE FROM outbox WHERE base = ? AND what = ?", this))
        )

    async def forget(self, base: str, job_id: str) -> None:
        this = without_credentials(base), job_id
        await self._do(
            lambda c: _nothing(c.execute("DELETE FROM outbox WHERE base = ? AND job_id = ?", this))
        )


def _not_open(operation: Operation) -> NoReturn:
    raise RuntimeError("the ledger is not open")


def _notes(noted: dict[Key, LedgerRow]) -> Operation:
    """Write notes with the values that they have now."""
    rows = [
        (
            row.asked_at,
            row.status,
            None if row.progress is None else _encode(row.progress),
            row.etag,
            row.requests,
            *row.key,
        )
        for row in noted.values()
    ]
    return lambda connection: connection.executemany(_NOTE, rows)


def _nothing(_: object) -> None:
    return None


def _values(row: LedgerRow) -> tuple[Any, ...]:
    """In the order of the columns."""
    values = {name: getattr(row, name) for name in _FIELDS}
    for name in ("progress", "error", "ref", "files"):
        values[name] = _encode(values[name]) if values[name] else None
    values["result"] = None if row.result is None else bytes(row.result)
    return tuple(values.values())


def _row(found: Sequence[Any]) -> LedgerRow:
    values = dict(zip(_FIELDS, found, strict=True))
    for name, form in (("progress", Progress), ("error", ErrorInfo), ("ref", Ref)):
        if values[name] is not None:
            values[name] = msgspec.json.decode(values[name], type=form)
    files = values["files"]
    values["files"] = () if files is None else msgspec.json.decode(files, type=tuple[Found, ...])
    if values["result"] is not None:
        values["result"] = msgspec.Raw(values["result"])
    values["ended"], values["acknowledged"] = bool(values["ended"]), bool(values["acknowledged"])
    return LedgerRow(**values)
