"""The ledger in one SQLite file: notes are gathered on the loop and written each half second, the rest at once."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bide.client.apis.answers import Found, Ref
from bide.client.ledger import Entry, Key, Learned
from bide.client.ledger.file import Lock, connect, unusable
from bide.client.ledger.sqlite_outbox import SqliteOutbox
from bide.client.ledger.writer import Writer
from bide.core.errors import ErrorInfo
from bide.core.record import Progress

T = TypeVar("T")
log = logging.getLogger("bide.ledger")
EVERY = 0.5  # seconds between two writings of what was noted
_COLUMNS = tuple(f for f in Entry.__struct_fields__)
_JOB = f"SELECT {', '.join(_COLUMNS)} FROM jobs"
_THIS = "api = ? AND base = ? AND job_id = ?"
_INSERT = f"INSERT INTO jobs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_MOVING = ("created_at", "asked_at", "status", "progress", "etag", "requests")
_NOTE = f"UPDATE jobs SET {', '.join(f'{c} = ?' for c in _MOVING)} WHERE {_THIS} AND NOT ended"
_ENDING = (*_MOVING, "ended", "finished_at", "result", "result_url", "files", "error")
_END = (
    f"{_INSERT} ON CONFLICT (api, base, job_id) DO UPDATE SET "
    f"{', '.join(f'{c} = excluded.{c}' for c in _ENDING)} WHERE NOT ended"
)
_encode = msgspec.json.Encoder().encode


class SqliteLedger:
    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._lock = Lock(self._path)
        self._writer: Writer | None = None
        self._salt = b""
        self._noted: dict[Key, Entry] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._complained = False
        self.outbox = SqliteOutbox(self._do)

    @property
    def salt(self) -> bytes:
        return self._salt

    async def open(self) -> None:
        self._lock.acquire()
        try:
            connection = await asyncio.to_thread(connect, self._path)
            (self._salt,) = connection.execute("SELECT salt FROM secret").fetchone()
        except BaseException:
            self._lock.release()
            raise
        self._writer = Writer(connection, self._explain)

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self._noted:
                await self._do(_Notes(self._noted), writer)
                self._noted = {}
        finally:
            await writer.close()
            self._lock.release()

    def add(self, entries: Sequence[Entry]) -> Awaitable[list[Entry]]:
        rows = [(entry.key, _row(entry)) for entry in entries]

        def write(connection: sqlite3.Connection) -> list[Entry]:
            connection.executemany(f"{_INSERT} ON CONFLICT DO NOTHING", [row for _, row in rows])
            found = (connection.execute(f"{_JOB} WHERE {_THIS}", key).fetchone() for key, _ in rows)
            return [_entry(row) for row in found]

        return self._do(write)

    def note(self, entry: Entry) -> None:
        self._noted[entry.key] = entry
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._flush)

    def end(self, entry: Entry) -> Awaitable[None]:
        self._noted.pop(entry.key, None)
        entry.ended = True
        row = _row(entry)
        return self._do(lambda connection: _nothing(connection.execute(_END, row)))

    def tell(self, keys: Iterable[Key]) -> Awaitable[None]:
        told = list(keys)
        return self._do(
            lambda c: _nothing(c.executemany(f"UPDATE jobs SET told = 1 WHERE {_THIS}", told))
        )

    async def entries(self, ended: bool | None = None) -> list[Entry]:
        where = {None: "", True: "WHERE ended", False: "WHERE NOT ended"}[ended]
        rows = await self._do(lambda c: c.execute(f"{_JOB} {where} ORDER BY number").fetchall())
        return [_entry(row) for row in rows]

    def forget(self, keys: Iterable[Key]) -> Awaitable[None]:
        gone = list(keys)
        for key in gone:
            self._noted.pop(key, None)
        return self._do(lambda c: _nothing(c.executemany(f"DELETE FROM jobs WHERE {_THIS}", gone)))

    def learn(self, learned: Learned) -> Awaitable[None]:
        durations = [(*key, _encode(data)) for key, data in learned.durations.items()]
        budgets = [(name, at, _encode(data)) for name, (at, data) in learned.budgets.items()]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany("REPLACE INTO durations VALUES (?, ?, ?, ?)", durations)
            connection.executemany("REPLACE INTO budgets VALUES (?, ?, ?)", budgets)

        return self._do(write)

    async def learned(self) -> Learned:
        def read(connection: sqlite3.Connection) -> Learned:
            durations = connection.execute("SELECT * FROM durations").fetchall()
            budgets = connection.execute("SELECT * FROM budgets").fetchall()
            return Learned(
                durations={(a, k, s): msgspec.json.decode(data) for a, k, s, data in durations},
                budgets={name: (at, msgspec.json.decode(data)) for name, at, data in budgets},
            )

        return await self._do(read)

    def _flush(self) -> None:
        self._timer = None
        noted, self._noted = self._noted, {}
        writer = self._writer
        if not noted or writer is None:
            return

        def written(future: asyncio.Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is None:
                self._complained = False
                return
            if not self._complained:
                log.warning("%s. The wait goes on, and writes it down when that is possible", error)
            self._complained = True
            self._noted = noted | self._noted  # the newer ones win
            if self._timer is None and self._writer is not None:
                self._timer = asyncio.get_running_loop().call_later(EVERY, self._flush)

        writer.submit(_Notes(noted)).add_done_callback(written)

    def _do(
        self, operation: Callable[[sqlite3.Connection], T], writer: Writer | None = None
    ) -> asyncio.Future[T]:
        writer = writer or self._writer
        if writer is None:
            raise RuntimeError("the ledger is not open")
        return writer.submit(operation)

    def _explain(self, error: sqlite3.Error) -> Exception:
        return unusable(self._path, str(error))


class _Notes:
    """Writes what was noted, as it was when it was handed over."""

    def __init__(self, noted: dict[Key, Entry]) -> None:
        self._rows = [
            (e.created_at, e.asked_at, e.status, _json(e.progress), e.etag, e.requests, *e.key)
            for e in noted.values()
        ]

    def __call__(self, connection: sqlite3.Connection) -> None:
        connection.executemany(_NOTE, self._rows)


def _nothing(_: object) -> None:
    return None


def _json(value: Progress | ErrorInfo | Ref | tuple[Found, ...] | None) -> bytes | None:
    return _encode(value) if value else None


def _row(entry: Entry) -> tuple[Any, ...]:
    values = {name: getattr(entry, name) for name in _COLUMNS}
    values["progress"] = _json(entry.progress)
    values["error"] = _json(entry.error)
    values["ref"] = _json(entry.ref)
    values["files"] = _json(entry.files)
    values["result"] = None if entry.result is None else bytes(entry.result)
    return tuple(values.values())


def _entry(row: Sequence[Any]) -> Entry:
    values = dict(zip(_COLUMNS, row, strict=True))
    for name, form in (("progress", Progress), ("error", ErrorInfo), ("ref", Ref)):
        if values[name] is not None:
            values[name] = msgspec.json.decode(values[name], type=form)
    files = values["files"]
    values["files"] = () if files is None else msgspec.json.decode(files, type=tuple[Found, ...])
    if values["result"] is not None:
        values["result"] = msgspec.Raw(values["result"])
    values["ended"], values["told"] = bool(values["ended"]), bool(values["told"])
    return Entry(**values)
