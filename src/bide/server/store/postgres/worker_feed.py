"""What other processes have done to the jobs that this one holds: a worker hears of nothing else.

1. Whoever changes a job that another process holds says so on a channel of its own; those jobs are read and told.
2. What was remembered for polls is not kept up to date: whoever listens here answers none.
3. What was told is told again a second later: a cancel may overtake the answer to the claim that it is about.
4. After a break every job that is held is told anew, for any of them may have been cancelled meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import psycopg

from bide.core.wire import Event, facts
from bide.server.store.postgres.feed import ChangeFeed
from bide.server.store.postgres.server import held_channel
from bide.server.store.rows import COLUMNS, job_of

_JOBS = f"SELECT {COLUMNS} FROM jobs WHERE id = ANY(%s)"


class WorkerFeed(ChangeFeed):
    """`Feed` of a worker."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._again: set[str] = set()
        self._connected = False  # before this time

    @property
    def channel(self) -> str:
        return held_channel(self._server.channel)

    async def _catch_up(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        if self._connected:  # anything may have happened meanwhile
            self._reset()
        self._connected = True
        await self._tell_held(connection, list(self._memory.mine))

    async def _noted(
        self, connection: psycopg.AsyncConnection[tuple[Any, ...]], notes: Sequence[str]
    ) -> None:
        changed: set[str] = set()
        for note in notes:
            what, origin, *rest = note.split(" ")
            if origin == self._origin:
                continue
            if what == "h":
                changed.update(rest[0].split(","))
            elif what == "p":
                self._memory.pauses += 1
        self._again |= changed
        await self._tell_held(connection, changed)

    async def _ping(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        await super()._ping(connection)
        again, self._again = self._again, set()
        await self._tell_held(connection, again)

    async def _tell_held(
        self, connection: psycopg.AsyncConnection[tuple[Any, ...]], job_ids: Collection[str]
    ) -> None:
        mine = [job_id for job_id in job_ids if job_id in self._memory.mine]
        if not mine:
            return
        self._memory.forget(mine)
        found = await connection.execute(_JOBS.encode(), (mine,))
        jobs = [job_of(row) for row in await found.fetchall()]
        now = self._clock.now()
        # No event of the log, which has numbers: only what the last of them came to.
        self._heard([Event(0, job.id, "status", now, facts(job), job.tenant) for job in jobs])
