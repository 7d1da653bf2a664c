"""The change feed of a worker: only changes that other processes make to the jobs that this process holds.

1. A process that changes a job which another process holds notifies a separate channel. The feed reads those jobs and
   delivers their state.
2. The job cache is not kept up to date, because a worker answers no polls.
3. Each change is delivered again with the next ping, because a cancel may overtake the response to the claim.
4. After a reconnect every held job is delivered, because any of them may have been cancelled.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import psycopg

from bide.core.wire.http import Event, facts
from bide.server.store.postgres.feed import ChangeFeed
from bide.server.store.postgres.server import held_channel
from bide.server.store.rows import COLUMNS, job_of

_JOBS = f"SELECT {COLUMNS} FROM jobs WHERE id = ANY(%s)"


class WorkerFeed(ChangeFeed):
    """`ChangeFeed` of a worker."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._repeat: set[str] = set()
        self._connected = False  # whether there was a connection before

    @property
    def channel(self) -> str:
        return held_channel(self._server.channel)

    async def _catch_up(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        if self._connected:  # anything may have changed since
            self._on_reset()
        self._connected = True
        await self._deliver_held(connection, list(self._cache.own))

    async def _handle_notifications(
        self, connection: psycopg.AsyncConnection[tuple[Any, ...]], notes: Sequence[str]
    ) -> None:
        changed: set[str] = set()
        for note in notes:
            code, origin, *rest = note.split(" ")
            if origin == self._origin:
                continue
            if code == "h":
                changed.update(rest[0].split(","))
            elif code == "p":
                self._cache.pauses += 1
        self._repeat |= changed
        await self._deliver_held(connection, changed)

    async def _ping(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        await super()._ping(connection)
        again, self._repeat = self._repeat, set()
        await self._deliver_held(connection, again)

    async def _deliver_held(
        self, connection: psycopg.AsyncConnection[tuple[Any, ...]], job_ids: Collection[str]
    ) -> None:
        held = [job_id for job_id in job_ids if job_id in self._cache.own]
        if not held:
            return
        self._cache.forget(held)
        found = await connection.execute(_JOBS.encode(), (held,))
        jobs = [job_of(row) for row in await found.fetchall()]
        now = self._clock.now()
        # Number 0: these are not events of the log, only the current state of the jobs.
        self._on_events([Event(0, job.id, "status", now, facts(job), job.tenant) for job in jobs])
