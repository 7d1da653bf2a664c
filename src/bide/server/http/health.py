"""GET /healthz and /readyz: liveness and readiness of the service."""

from __future__ import annotations

import asyncio
import time

import msgspec

from bide.core.errors import Unavailable
from bide.server.engine import WARNINGS, ServiceWarning
from bide.server.http import Components
from bide.server.http.queues import Queue, known_queues
from bide.server.http.request import HttpRequest, Response, json_response, object_response
from bide.server.http.routing import HttpOperation, ResponseSpec
from bide.server.store import StoreUnavailable

CHECK_AGE = 1.0  # seconds that a successful write counts as proof that the store is writable


class Alive(msgspec.Struct):
    status: str


class Readiness(msgspec.Struct, omit_defaults=True):
    """Readiness, and the conditions that keep jobs from running. `warnings` is omitted if `Host` is not trusted,
    and for callers without the scope `admin`.
    """

    status: str
    warnings: list[ServiceWarning] | msgspec.UnsetType = msgspec.UNSET


class Health:
    """Liveness and readiness."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._written_at: float | None = None  # None: never
        self._writing: asyncio.Future[None] | None = None
        self.stopping = False
        codes = "".join(f"\n- `{code}`: {meaning}" for code, meaning in WARNINGS.items())
        self.operations = [
            HttpOperation(
                "GET",
                "/healthz",
                self._alive,
                "getHealth",
                "Liveness",
                "health",
                scope=None,
                responses=(ResponseSpec(200, "The service is alive.", Alive),),
                example="$BASE/healthz",
            ),
            HttpOperation(
                "GET",
                "/readyz",
                self._ready,
                "getReadiness",
                "Readiness",
                "health",
                description="503 while the service stops or cannot write to its store. `warnings` lists the conditions "
                f"that keep jobs from running:\n{codes}",
                scope=None,
                responses=(
                    ResponseSpec(200, "The service accepts jobs and answers requests.", Readiness),
                ),
                problems=(Unavailable,),
                example="$BASE/readyz",
            ),
        ]

    async def _alive(self, request: HttpRequest) -> Response:
        return json_response(200, b'{"status":"ok"}')

    async def _ready(self, request: HttpRequest) -> Response:
        if self.stopping or self._components.notify.closed:
            raise Unavailable("the service is stopping")
        try:
            await self._check_store()
        except StoreUnavailable as error:
            details = request.details and request.principal.allows("admin")
            reason = f": {error}" if details else ""
            raise Unavailable(f"the store is not writable{reason}") from None
        if not request.details or not request.principal.allows("admin"):
            return object_response(Readiness("ready"))
        found = warnings(self._components, await known_queues(self._components))
        return object_response(Readiness("ready", found))

    async def _check_store(self) -> None:
        """Write at most once per second, for any number of requests."""
        if self._written_at is not None and time.monotonic() - self._written_at < CHECK_AGE:
            return
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._components.store.check_writable())
            self._writing.add_done_callback(self._written)
        await asyncio.shield(self._writing)

    def _written(self, task: asyncio.Future[None]) -> None:
        self._writing = None
        if not task.cancelled() and task.exception() is None:
            self._written_at = time.monotonic()


def warnings(components: Components, queues: list[Queue]) -> list[ServiceWarning]:
    """Return the conditions that keep jobs from running."""
    found = []
    for queue in queues:
        if not queue.served and (queue.kinds or queue.backlog):
            jobs = "1 job is" if queue.backlog == 1 else f"{queue.backlog} jobs are"
            waiting = f" {jobs} waiting." if queue.backlog else ""
            detail = f"No worker serves queue {queue.name}.{waiting} Start a worker for this queue."
            found.append(ServiceWarning("queue-unserved", detail))
    return (
        found
        + components.fleet.warnings()
        + components.webhooks.warnings()
        + components.admission.warnings()
        + components.waiting_jobs.warnings()
    )
