"""GET /healthz and /readyz: whether the service lives, and whether it accepts jobs and answers."""

from __future__ import annotations

import asyncio
import time

import msgspec

from bide.core.errors import Unavailable
from bide.server.engine import WARNINGS, ServiceWarning
from bide.server.http import Parts
from bide.server.http.exchange import Answer, Request, json_answer, object_answer
from bide.server.http.operations import Operation, Reply
from bide.server.http.queues import Queue, known_queues
from bide.server.store import StoreUnavailable

CHECK_AGE = 1.0  # for so many seconds a write that succeeded shows that others do


class Alive(msgspec.Struct):
    status: str


class Readiness(msgspec.Struct, omit_defaults=True):
    """That jobs are accepted, and what keeps them from being run. `warnings` is left out where `Host` is not trusted."""

    status: str
    warnings: list[ServiceWarning] | msgspec.UnsetType = msgspec.UNSET


class Health:
    """How the service is."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._written_at: float | None = None  # None: never
        self._writing: asyncio.Future[None] | None = None
        self.stopping = False
        codes = "".join(f"\n- `{code}`: {meaning}" for code, meaning in WARNINGS.items())
        self.operations = [
            Operation(
                "GET",
                "/healthz",
                self._alive,
                "getHealth",
                "Whether the service lives",
                "health",
                replies=(Reply(200, "The service is alive.", Alive),),
                example="$BASE/healthz",
            ),
            Operation(
                "GET",
                "/readyz",
                self._ready,
                "getReadiness",
                "Whether the service accepts jobs and answers",
                "health",
                description="503 while the service stops or cannot write to its store. `warnings` has what keeps jobs "
                f"from being run:\n{codes}",
                replies=(Reply(200, "The service accepts jobs and answers requests.", Readiness),),
                problems=(Unavailable,),
                example="$BASE/readyz",
            ),
        ]

    async def _alive(self, request: Request) -> Answer:
        return json_answer(200, b'{"status":"ok"}')

    async def _ready(self, request: Request) -> Answer:
        if self.stopping or self._parts.notify.closed:
            raise Unavailable("the service is stopping")
        try:
            await self._check_store()
        except StoreUnavailable as error:
            reason = f": {error}" if request.details else ""
            raise Unavailable(f"the store cannot be written{reason}") from None
        if not request.details:
            return object_answer(Readiness("ready"))
        found = warnings(self._parts, await known_queues(self._parts))
        return object_answer(Readiness("ready", found))

    async def _check_store(self) -> None:
        """Writes at most once a second, however often it is asked."""
        if self._written_at is not None and time.monotonic() - self._written_at < CHECK_AGE:
            return
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._parts.store.check_writable())
            self._writing.add_done_callback(self._written)
        await asyncio.shield(self._writing)

    def _written(self, task: asyncio.Future[None]) -> None:
        self._writing = None
        if not task.cancelled() and task.exception() is None:
            self._written_at = time.monotonic()


def warnings(parts: Parts, queues: list[Queue]) -> list[ServiceWarning]:
    """What keeps jobs from being run."""
    found = []
    for queue in queues:
        if not queue.served and (queue.kinds or queue.backlog):
            jobs = "1 job is" if queue.backlog == 1 else f"{queue.backlog} jobs are"
            waiting = f" {jobs} waiting." if queue.backlog else ""
            detail = f"No worker serves queue {queue.name}.{waiting} Start a worker for this queue."
            found.append(ServiceWarning("queue-unserved", detail))
    return found + parts.engine.warnings()
