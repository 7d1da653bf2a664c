"""Starts the jobs that wait for a breaker: one to probe, and all of them, in growing batches, after it has closed. Starts
the retries that wait for the budget of their kind.

Every replica does this. The store decides in one transaction how many jobs may start, so that two replicas release no more
than one would.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

import msgspec

from bide.core.jobs.breaker import MOST_BATCH, RELEASE_EVERY, BreakerState, next_batch
from bide.core.jobs.retry import BREAKER, RETRIES
from bide.core.jobs.retry_budget import RetryBudgetState
from bide.core.wire.http import Event
from bide.server.engine import ServiceWarning
from bide.server.registry import Registry, policy_of
from bide.server.store import BreakerStore, RecordFilter, RecordStore, RecordTable, StoreUnavailable

log = logging.getLogger("bide.upkeep")
IDLE_CHECK = 30.0  # seconds between two checks without an event
MOST_COUNTED = 1000  # waiting jobs of a breaker that are counted
PAGE = 100  # breakers, or kinds with a retry budget
FEW = 10  # waiting jobs that are read to start one, because some may have been cancelled
_read = msgspec.json.Decoder(BreakerState).decode
_read_budget = msgspec.json.Decoder(RetryBudgetState).decode


class WaitingStore(BreakerStore, RecordStore, Protocol):
    """The breakers, and the records of the jobs that wait for them."""


class WaitingJobs:
    """Follows the breakers and retry budgets that jobs wait for."""

    def __init__(self, store: WaitingStore, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._task: asyncio.Task[None] | None = None
        self._wake_up = asyncio.Event()
        self._states: dict[str, BreakerState] = {}  # as of the last check

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == "log" and "waitsFor" in event.job:
                self._wake_up.set()

    async def _run(self) -> None:
        waiting = True
        while True:
            self._wake_up.clear()
            try:
                waiting = await self.tick()
            except (StoreUnavailable, OSError) as error:
                log.error(
                    "cannot start the jobs that wait for a breaker or a retry budget; retrying: %s",
                    error,
                )
            except Exception:
                log.exception(
                    "cannot start the jobs that wait for a breaker or a retry budget; retrying"
                )
            if waiting:
                await asyncio.sleep(RELEASE_EVERY / 2)
                continue
            try:
                async with asyncio.timeout(IDLE_CHECK):
                    await self._wake_up.wait()
            except TimeoutError:
                continue

    async def tick(self) -> bool:
        """Release the jobs that may start now. Return whether any job waits."""
        waiting = False
        for name, state in (await self.states()).items():
            room, _ = next_batch(state, prober_lives=False, now=self._store.now())
            records = await self._waiting(f"{BREAKER} {name}", max(FEW, room))
            waiting = waiting or bool(records)
            if records and room:
                await self._store.release_waiting(name, records)
        return await self._release_retries() or waiting

    async def _release_retries(self) -> bool:
        waiting = False
        for kind, state in (await self.budgets()).items():
            policy = policy_of(self._registry, kind)
            if policy is None:  # a service that knows the kind releases them
                continue
            records = await self._waiting(f"{RETRIES} {kind}", MOST_BATCH)
            # Not by `state.waiting` alone: a job may have joined while the last release was being stored.
            if not records and not state.waiting:
                continue
            waiting = True
            last = len(records) < MOST_BATCH
            await self._store.release_retries(kind, policy.budget, records, last=last)
        return waiting

    async def budgets(self) -> dict[str, RetryBudgetState]:
        """The retry budgets of kinds, as of their last use."""
        found = await self._all("retry_budgets")
        return {kind: _read_budget(text) for kind, text in found.items()}

    async def states(self) -> dict[str, BreakerState]:
        found = await self._all("breakers")
        self._states = {name: _read(text) for name, text in found.items()}
        return self._states

    async def _all(self, table: RecordTable) -> dict[str, str]:
        """All records of a table that has few. A page of them is read faster than a table of any size."""
        found = await self._store.records(table, RecordFilter(tenant="-", limit=PAGE))
        return found if len(found) < PAGE else await self._store.records(table, RecordFilter(tenant="-"))

    async def waiting(self, waits_for: str) -> int:
        """How many jobs are in a waiting list, at most MOST_COUNTED."""
        return len(await self._waiting(waits_for, MOST_COUNTED))

    async def _waiting(self, waits_for: str, limit: int) -> dict[str, str]:
        return await self._store.records(
            "waiting_jobs", RecordFilter(tenant="-", prefix=f"{waits_for} ", limit=limit)
        )

    def warnings(self) -> list[ServiceWarning]:
        """The breakers that were not closed at the last check."""
        return [
            ServiceWarning(
                "breaker-open",
                f"The breaker {name} is {state.status}: calls of this dependency fail, and the jobs that call it wait.",
            )
            for name, state in sorted(self._states.items())
            if state.status != "closed"
        ]
