"""Amounts that all replicas of a service share, up to a limit per tenant: open streams, incomplete uploads, stored bytes.

The record of a tenant has what is in the store, as of a time (`used`), and what each replica holds besides it. A change of
the record locks it, so the sum of both is never above the limit. To need few changes:

1. A replica holds up to a hundredth of the limit more than it uses. It returns more than that at once.
2. What is in the store is read again after AGE seconds, and when an amount does not fit, at most every `pause` seconds.
3. An amount that is in the store at its end is settled: it moves from what the replica holds to `used`.

Each process has an id and a heartbeat, which is a record, too. What a process without a heartbeat held is free. The only
service of a SQLite file keeps all of this in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from bide.server.store import (
    ALL_RECORDS,
    RecordAccess,
    RecordFilter,
    RecordTable,
    StoreUnavailable,
)

T = TypeVar("T")
log = logging.getLogger("bide.limits")
AGE = 5.0  # seconds
RENEW = 2.0  # seconds between two heartbeats
LEASE = 10.0  # seconds without a heartbeat after which a process holds nothing
SHARE = 100  # a replica holds up to this part of a limit more than it uses
MOST_IDLE = 10_000  # tenants without anything in use whose state is kept
HEARTBEAT = "replica:"  # the begin of the name of a heartbeat


class AllowanceStore(Protocol):
    def now(self) -> float: ...

    async def records(
        self, table: RecordTable, filter: RecordFilter = ALL_RECORDS
    ) -> dict[str, str]: ...

    def change_records(self, change: Callable[[RecordAccess], T]) -> Awaitable[T]: ...


class Processes:
    """The processes of a service that are alive: this one, and those whose heartbeats it has read."""

    def __init__(self, store: AllowanceStore, *, shared: bool) -> None:
        self.id = secrets.token_hex(8)
        self.shared = shared
        self.stopped = False  # True: without a heartbeat this process holds nothing
        self._store = store
        self._alive: frozenset[str] = frozenset()
        self._read_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def is_dead(self, process: str, changed_at: float) -> bool:
        """Whether a process that has changed a record at this time is known to have ended. It had a heartbeat then."""
        return process != self.id and process not in self._alive and changed_at < self._read_at

    async def start(self) -> None:
        if self.shared:
            await self.renew()
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        self.stopped = True
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        with contextlib.suppress(StoreUnavailable):
            await self._store.change_records(lambda tx: tx.put_text("limits", HEARTBEAT + self.id, None))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(RENEW)
            try:
                await self.renew()
            except StoreUnavailable:
                log.debug("no heartbeat: the store is unavailable")
            except Exception:
                log.exception("the heartbeat failed; the service tries again")

    async def renew(self) -> None:
        """Write the heartbeat, read those of others, and remove those of processes that ended long ago."""
        now = self._store.now()
        found = await self._store.records("limits", RecordFilter(tenant="-", prefix=HEARTBEAT))
        beats = {name.removeprefix(HEARTBEAT): float(text) for name, text in found.items()}
        old = [name for name, at in beats.items() if at < now - 100 * LEASE]

        def change(tx: RecordAccess) -> None:
            tx.put_text("limits", HEARTBEAT + self.id, repr(tx.now))
            for name in old:
                tx.put_text("limits", HEARTBEAT + name, None)

        await self._store.change_records(change)
        self._alive = frozenset(name for name, at in beats.items() if at > now - LEASE)
        self._read_at = now


class Held(msgspec.Struct, array_like=True):
    """What a process holds, since when."""

    amount: int
    at: float


class TenantAmounts(msgspec.Struct, omit_defaults=True):
    """The record of a tenant."""

    used: int = 0  # in the store at `read_at`, and settled since then
    read_at: float = 0.0
    settled: int = 0  # ever
    held: dict[str, Held] = {}  # by process


_decode = msgspec.json.Decoder(TenantAmounts).decode
_encode = msgspec.json.Encoder().encode


class _Local:
    """What this process has of a tenant."""

    __slots__ = ("held", "lock", "reporting", "settling", "used", "wanted")

    def __init__(self) -> None:
        self.used = 0  # with `settling`
        self.settling = 0  # what the record does not have as settled yet
        self.held = 0  # according to the record
        self.wanted = 0  # by callers that wait for the lock
        self.lock = asyncio.Lock()  # held while the record changes
        self.reporting: asyncio.Task[None] | None = None


class _Outcome(NamedTuple):
    fits: bool
    total: int  # what the tenant uses, with all that processes hold
    held: int  # by this process
    read_at: float  # when the store was read
    age: float  # seconds since then
    settled: int


class _Reading(NamedTuple):
    """What was read from the store, what had been settled before that, and when it was read the previous time."""

    stored: int
    settled: int
    previous: float


class Allowance:
    """One limit. `read` returns what a tenant has in the store, up to the limit; None: this limit counts nothing there."""

    def __init__(
        self,
        name: str,
        store: AllowanceStore,
        processes: Processes,
        read: Callable[[str, int], Awaitable[int]] | None = None,
        pause: float = 0.0,
    ) -> None:
        self._name = name
        self._store = store
        self._processes = processes
        self._read = read
        self._pause = pause
        self._locals: dict[str, _Local] = {}
        self._own: dict[str, TenantAmounts] = {}  # if there is no other process

    async def take(self, tenant: str, amount: int, most: int) -> int | None:
        """Count an amount. Return None if it fits, else what the tenant uses; 0 does not fit if nothing is left. After an
        amount that fits, the caller calls `settle` or `give_back`.
        """
        local = self._locals.get(tenant) or self._new(tenant)
        if self._has(local, amount):
            local.used += amount
            return None
        local.wanted += amount
        try:
            await local.lock.acquire()
        finally:
            local.wanted -= amount
        try:
            if not self._has(local, amount, locked=True):
                outcome = await self._try(tenant, local, amount, most)
                if not outcome.fits:
                    return outcome.total
            local.used += amount
            return None
        finally:
            local.lock.release()

    def give_back(self, tenant: str, amount: int, most: int) -> None:
        """An amount is no longer used."""
        local = self._locals[tenant]
        local.used -= amount
        if local.held - local.used > most // SHARE or not local.used:
            self._report(tenant, local, most)

    def settle(self, tenant: str, amount: int, most: int) -> None:
        """An amount is in the store now, or was given up: then it counts until the store is read again."""
        if amount:
            local = self._locals[tenant]
            local.settling += amount
            self._report(tenant, local, most)

    @staticmethod
    def _has(local: _Local, amount: int, *, locked: bool = False) -> bool:
        """Whether this process holds the amount already, and the record does not change now."""
        return 0 < amount <= local.held - local.used and (locked or not local.lock.locked())

    def _new(self, tenant: str) -> _Local:
        if len(self._locals) >= MOST_IDLE:
            for name, local in list(self._locals.items()):
                if not (local.used or local.held or local.wanted or local.lock.locked()):
                    del self._locals[name]
                    self._own.pop(name, None)
        local = self._locals[tenant] = _Local()
        return local

    async def _try(self, tenant: str, local: _Local, amount: int, most: int) -> _Outcome:
        outcome = await self._change(tenant, local, amount, most)
        if self._read is None:
            return outcome
        if outcome.age >= AGE or (not outcome.fits and outcome.age >= self._pause):
            # What is settled from now on may not be in what is read.
            reading = _Reading(await self._read(tenant, most), outcome.settled, outcome.read_at)
            outcome = await self._change(tenant, local, amount, most, reading)
        return outcome

    async def _change(
        self,
        tenant: str,
        local: _Local,
        amount: int,
        most: int,
        reading: _Reading | None = None,
    ) -> _Outcome:
        """Change the record: report what is settled, and hold what is used and `amount`, if it fits."""
        settling, own = local.settling, local.used - local.settling
        extra = local.wanted + most // SHARE if self._processes.shared else 0
        counts = self._read is not None

        def change(amounts: TenantAmounts, now: float) -> _Outcome:
            dead = self._processes.is_dead
            amounts.held = {p: h for p, h in amounts.held.items() if not dead(p, h.at)}
            amounts.held.pop(self._processes.id, None)
            # Not if another process has read the store meanwhile: it knows more of what was settled.
            if reading is not None and amounts.read_at == reading.previous:
                amounts.used = reading.stored + amounts.settled - reading.settled
                amounts.read_at = now
            amounts.used += settling if counts else 0
            amounts.settled += settling
            others = sum(held.amount for held in amounts.held.values())
            free = most - amounts.used - others - own
            age = now - amounts.read_at
            # The amount is not held yet if the store must be read first.
            fits = amount <= free and free > 0 and (not counts or age < AGE)
            hold = own + (min(free, amount + extra) if fits and (amount or own) else 0)
            if hold:
                amounts.held[self._processes.id] = Held(hold, now)
            return _Outcome(fits, most - free, hold, amounts.read_at, age, amounts.settled)

        if self._processes.shared:
            outcome = await self._store.change_records(lambda tx: self._in_store(tx, tenant, change))
        else:
            amounts = self._own.setdefault(tenant, TenantAmounts(read_at=-math.inf))
            outcome = change(amounts, self._store.now())
        local.settling -= settling
        local.used -= settling
        local.held = outcome.held
        return outcome

    def _in_store(
        self,
        tx: RecordAccess,
        tenant: str,
        change: Callable[[TenantAmounts, float], _Outcome],
    ) -> _Outcome:
        text = tx.text("limits", self._name, tenant)
        amounts = TenantAmounts() if text is None else _decode(text)
        outcome = change(amounts, tx.now)
        tx.put_text("limits", self._name, _encode(amounts).decode(), tenant)
        return outcome

    def _report(self, tenant: str, local: _Local, most: int) -> None:
        """Change the record in a task, because something was settled or is no longer used."""
        if local.reporting is None and not self._processes.stopped:
            local.reporting = asyncio.get_running_loop().create_task(
                self._report_now(tenant, local, most)
            )

    async def _report_now(self, tenant: str, local: _Local, most: int) -> None:
        try:
            async with local.lock:
                local.reporting = None  # what is settled from now on needs another report
                await self._change(tenant, local, 0, most)
        except StoreUnavailable:
            log.debug(
                "the limit %s of %s was not reported: the store is unavailable", self._name, tenant
            )
