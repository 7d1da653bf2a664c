"""The audit log: which caller has called which mutating operation, from where, and with which result.

1. `add` appends to a list. A task writes the list about once per WRITE_EVERY seconds, in records of up to BATCH entries,
   so that no request waits for it. `stop` writes the rest. A killed process loses the entries since its last write.
2. A record has entries of one second only, and its name begins with the milliseconds of its first entry. So a range of names
   is a range of time, and records of several processes are in the order of their first entries.
3. An entry has no query, no headers and no body, because these may contain secrets.
4. A caller without a valid credential cannot fill the store: at most MAX_REFUSED of its calls are recorded per write.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Sequence

import msgspec

from bide.server.store import RecordAccess, RecordFilter, RecordStore, StoreUnavailable

log = logging.getLogger("bide.audit")
WRITE_EVERY = 1.0  # seconds
BATCH = 100  # entries per record
WRITE_BATCH = 50  # records per transaction
MAX_WAITING = 100_000  # entries that wait for a store that cannot be written
MAX_REFUSED = 10
MAX_EXAMINED = 10_000  # entries per page
READ_BATCH = 100  # records
REMOVE_EVERY = 60.0  # seconds
REMOVE_TIME = 0.5  # seconds
CURSOR_PATTERN = r"[0-9]{14}-[0-9a-f]{8}-[0-9]{8}\.[0-9]{1,3}"
_CURSOR = re.compile(CURSOR_PATTERN)
_LAST_MILLISECOND = 10**14 - 1


class AuditEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One call, as it is stored."""

    at: float
    subject: str
    tenant: str
    operation: str
    method: str
    path: str
    resource: str  # the URL of what the call has created; empty: none
    address: str  # of the caller; empty: unknown
    status: int
    trace_id: str


class AuditFilter(msgspec.Struct, frozen=True):
    since: float | None = None
    until: float | None = None  # exclusive
    subject: str | None = None
    tenant: str | None = None
    operation: str | None = None

    def matches(self, entry: AuditEntry) -> bool:
        return (
            (self.since is None or entry.at >= self.since)
            and (self.until is None or entry.at < self.until)
            and self.subject in (None, entry.subject)
            and self.tenant in (None, entry.tenant)
            and self.operation in (None, entry.operation)
        )


_read_entries = msgspec.json.Decoder(list[AuditEntry]).decode


def is_cursor(text: str) -> bool:
    return _CURSOR.fullmatch(text) is not None


def _prefix(at: float) -> str:
    """The begin of the name of a record whose first entry is of this time."""
    return f"{min(max(round(at * 1000), 0), _LAST_MILLISECOND):014d}"


class AuditLog:
    """The audit log of one service. `retention`: seconds for which entries are kept."""

    def __init__(self, store: RecordStore, retention: float) -> None:
        self._store = store
        self._retention = retention
        self._writer = secrets.token_hex(4)  # no other process writes a record with this in its name
        self._records = 0  # rendered so far
        self._entries: list[AuditEntry] = []
        self._rendered: list[tuple[str, str]] = []  # records that are not yet written
        self._refused = 0  # calls without a valid credential since the last write
        self._lost = 0
        self._wake_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._next_removal = 0.0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Write the entries that are left. Call it after the last request."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        try:
            await self.write()
        except StoreUnavailable as error:
            left = sum(len(_read_entries(text)) for _, text in self._rendered)
            log.error("%d entries of the audit log are lost: %s", left, error)

    # --- writing

    def add(self, entry: AuditEntry) -> None:
        if entry.status == 401:
            if self._refused >= MAX_REFUSED:
                return
            self._refused += 1
        entries = self._entries
        if not entries:
            self._wake_up.set()
        elif len(entries) >= MAX_WAITING:
            self._lost += 1
            return
        entries.append(entry)

    async def _run(self) -> None:
        failing = False
        while True:
            await self._wake_up.wait()
            await asyncio.sleep(WRITE_EVERY)
            self._wake_up.clear()
            try:
                await self.write()
                failing = False
            except Exception as error:
                self._wake_up.set()
                if not failing:
                    unavailable = isinstance(error, StoreUnavailable)
                    log.error("the audit log waits: %s", error, exc_info=not unavailable)
                failing = True

    async def write(self) -> None:
        """Write all entries. Raises StoreUnavailable; the entries are then written by a later call."""
        self._render()
        while self._rendered:
            some = self._rendered[:WRITE_BATCH]

            def change(tx: RecordAccess, some: Sequence[tuple[str, str]] = tuple(some)) -> None:
                for name, text in some:
                    tx.put_text("audit", name, text)

            await self._store.change_records(change)
            del self._rendered[: len(some)]
        if self._lost:
            log.error("%d entries of the audit log are lost, because the store failed", self._lost)
            self._lost = 0

    def _render(self) -> None:
        """Make records of the entries, unless many records still wait for the store."""
        if len(self._rendered) * BATCH >= MAX_WAITING:
            return
        entries, self._entries, self._refused = self._entries, [], 0
        begin = 0
        for i in range(1, len(entries) + 1):
            same = i < len(entries) and int(entries[i].at) == int(entries[begin].at)
            if not same or i - begin == BATCH:
                name = f"{_prefix(entries[begin].at)}-{self._writer}-{self._records:08d}"
                self._rendered.append((name, msgspec.json.encode(entries[begin:i]).decode()))
                self._records += 1
                begin = i

    # --- reading

    async def read(
        self, filter: AuditFilter, cursor: str | None, limit: int
    ) -> tuple[list[AuditEntry], str | None]:
        """Entries, newest first, and the cursor of the next page; None: there is none. A page examines up to about
        MAX_EXAMINED entries, so it can have fewer entries than `limit` although others follow.
        """
        last, index = "", 0
        before = None if filter.until is None else _prefix(filter.until + 0.001)
        if cursor is not None:
            last, _, text = cursor.partition(".")
            index, before = int(text), last + "~"
        after = "" if filter.since is None else _prefix(filter.since - 1)
        found: list[AuditEntry] = []
        examined = 0
        while True:
            selected = RecordFilter("-", after=after, before=before, last=True, limit=READ_BATCH)
            records = await self._store.records("audit", selected)
            for name, text in records.items():
                entries = _read_entries(text)
                for i in range((index if name == last else len(entries)) - 1, -1, -1):
                    if filter.matches(entries[i]):
                        found.append(entries[i])
                        if len(found) == limit:
                            return found, f"{name}.{i}"
                examined += len(entries)
                before = name
                if examined >= MAX_EXAMINED:
                    return found, f"{name}.0"
            if len(records) < READ_BATCH:
                return found, None
            await asyncio.sleep(0)

    # --- retention

    async def remove_old(self) -> None:
        """Remove the entries that are older than the retention, in small transactions. Upkeep calls this."""
        now = self._store.now()
        if now < self._next_removal:
            return
        self._next_removal = now + REMOVE_EVERY
        old = RecordFilter("-", before=_prefix(now - self._retention - 1), limit=READ_BATCH)
        end = time.monotonic() + REMOVE_TIME
        while time.monotonic() < end and (names := list(await self._store.records("audit", old))):

            def change(tx: RecordAccess, names: Sequence[str] = tuple(names)) -> None:
                for name in names:
                    tx.put_text("audit", name, None)

            await self._store.change_records(change)
