"""GET /queues, pause and resume, GET /kinds, GET /workers."""

from __future__ import annotations

from typing import Any

import msgspec

from bide.core.clock import render_instant
from bide.core.errors import NotFound
from bide.core.jobs.breaker import BreakerStatus
from bide.core.jobs.retry import BREAKER, RETRIES
from bide.core.jobs.retry_budget import available, deposited
from bide.core.wire.http import Dedupe
from bide.server.engine import WorkerState
from bide.server.http import Components
from bide.server.http.request import HttpRequest, Response, object_response
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec
from bide.server.registry import NAME, SERVICE_QUEUE, Kind, policy_of
from bide.server.store import QueueState


class Queue(msgspec.Struct, rename="camel"):
    """A queue: `backlog` counts the jobs that could start now, `oldestAge` is the age of the oldest in seconds.

    `slots` is how many of its jobs the live workers run at once if no other queue has jobs. `predictedWait` is the time in
    seconds until a job that is submitted now would start, from the backlog and the learned durations. Both are null if
    they are unknown.
    """

    name: str
    backlog: int
    scheduled: int
    running: int
    oldest_age: float | None
    paused: bool
    served: bool
    concurrency: int | None
    kinds: list[str]
    slots: int | None
    predicted_wait: float | None


class BreakerInfo(msgspec.Struct, rename="camel"):
    """The breaker of a dependency. `since`: when it opened, or closed again. `probeAt`: when it may be probed, while it is
    open. `opened`: how often it has opened. `waiting`: jobs that wait for it, at most 1,000 are counted.
    """

    name: str
    state: BreakerStatus
    since: str | None
    probe_at: str | None
    opened: int
    waiting: int


class RetryBudgetInfo(msgspec.Struct, rename="camel"):
    """The retry budget of a kind that has used it. `available`: retries that it allows now. `waiting`: jobs whose retries
    wait, at most 1,000 are counted.
    """

    kind: str
    ratio: float
    minimum: float
    available: int
    waiting: int


class QueueList(msgspec.Struct, rename="camel"):
    queues: list[Queue]
    breakers: list[BreakerInfo]
    retry_budgets: list[RetryBudgetInfo]


class KindInfo(msgspec.Struct, rename="camel"):
    """A kind of job: its input schema and learned durations (null while there are too few)."""

    kind: str
    queue: str
    description: str
    input_schema: dict[str, Any]
    max_attempts: int
    timeout: float | None
    stall: float | None
    steps: dict[str, float]
    at_most_once: bool
    requires_key: bool
    dedupe: Dedupe | None
    retention: float | None
    durations: dict[str, float] | None


class KindList(msgspec.Struct):
    kinds: list[KindInfo]


class WireLease(msgspec.Struct, rename="camel"):
    """The claim of a worker process, or of the service, on the jobs that it runs. It renews them together; if it does not,
    the service gives the jobs to other workers.
    """

    owner: str
    until: str
    seconds: float | None  # its length; null: an older version claimed the jobs
    remaining: float  # seconds, by the clock of the store


class WorkerList(msgspec.Struct):
    workers: list[WorkerState]
    leases: list[WireLease]


async def known_queues(components: Components) -> list[Queue]:
    """Return every queue that a kind uses, that has jobs, or that is paused."""
    states = {state.name: state for state in await components.store.queues()}
    kinds = components.registry.queues
    now = components.store.now()
    return [
        _queue(components, states.get(name) or QueueState(name), kinds.get(name, []), now)
        for name in sorted({*states, *kinds, *components.registry.concurrency})
    ]


def _queue(components: Components, state: QueueState, kinds: list[Kind], now: float) -> Queue:
    service = state.name == SERVICE_QUEUE  # its jobs run in the service, not in workers
    served = service or components.fleet.serves(state.name)
    slots = components.fleet.slots(state.name) if served and not service else None
    names = sorted(kind.name for kind in kinds)
    wait = None
    if not state.paused:
        wait = components.estimates.predicted_wait(names, state.waiting, state.running, slots)
    return Queue(
        name=state.name,
        backlog=state.waiting,
        scheduled=state.scheduled,
        running=state.running,
        oldest_age=None if state.oldest is None else round(max(0.0, now - state.oldest), 3),
        paused=state.paused,
        served=served,
        concurrency=components.registry.concurrency.get(state.name),
        kinds=names,
        slots=slots,
        predicted_wait=None if wait is None else round(wait, 3),
    )


async def known_breakers(components: Components) -> list[BreakerInfo]:
    """Return every breaker that has been used and has failed."""
    waiting = components.waiting_jobs
    return [
        BreakerInfo(
            name,
            state.status,
            render_instant(state.since) if state.since else None,
            render_instant(state.retry_at) if state.status == "open" else None,
            state.total,
            await waiting.waiting(f"{BREAKER} {name}"),
        )
        for name, state in (await waiting.states()).items()
    ]


async def known_budgets(components: Components) -> list[RetryBudgetInfo]:
    """Return the retry budgets of kinds whose jobs have failed, or that have reported first attempts."""
    waiting, now = components.waiting_jobs, components.store.now()
    found = []
    for kind, state in (await waiting.budgets()).items():
        policy = policy_of(components.registry, kind)
        if policy is not None and policy.budget is not None:
            budget = policy.budget
            allowed = 0 if state.waiting else available(deposited(state, budget, 0, now))
            count = await waiting.waiting(f"{RETRIES} {kind}") if state.waiting else 0
            found.append(RetryBudgetInfo(kind, budget.ratio, budget.minimum, allowed, count))
    return found


async def _find(request: HttpRequest) -> Queue:
    name = request.args[0]
    for queue in await known_queues(request.components):
        if queue.name == name:
            return queue
    raise NotFound(f"queue {name[:100]!r} does not exist: no kind uses it, and it has no jobs")


async def queues(request: HttpRequest) -> Response:
    components = request.components
    return object_response(
        QueueList(
            await known_queues(components),
            await known_breakers(components),
            await known_budgets(components),
        )
    )


async def pause(request: HttpRequest) -> Response:
    queue = await _find(request)
    await request.components.store.pause(queue.name, True)
    return object_response(await _find(request))


async def resume(request: HttpRequest) -> Response:
    queue = await _find(request)
    components = request.components
    await components.store.pause(queue.name, False)
    # A submission may name another queue than its kind, so jobs of any kind may wait here.
    for kind in components.registry.kinds:
        components.work.hint(queue.name, kind)
    # A queue that only existed because it was paused no longer exists.
    return object_response(
        next((q for q in await known_queues(components) if q.name == queue.name), queue)
    )


async def kinds(request: HttpRequest) -> Response:
    estimates = request.components.estimates
    return object_response(
        KindList(
            [
                KindInfo(
                    kind=kind.name,
                    queue=kind.queue,
                    description=kind.doc,
                    input_schema=kind.schema,
                    max_attempts=kind.policy.retries + 1,
                    timeout=kind.timeout,
                    stall=kind.stall,
                    steps=kind.steps,
                    at_most_once=kind.policy.at_most_once,
                    requires_key=kind.require_key,
                    dedupe=kind.dedupe,
                    retention=kind.retention,
                    durations=estimates.describe(kind.name),
                )
                for _, kind in sorted(request.components.registry.kinds.items())
            ]
        )
    )


async def workers(request: HttpRequest) -> Response:
    components = request.components
    now = components.store.now()
    leases = sorted(await components.store.leases(), key=lambda lease: (lease.owner, lease.until))
    shown = [
        WireLease(one.owner, render_instant(one.until), one.seconds, round(one.until - now, 3))
        for one in leases
    ]
    return object_response(WorkerList(components.fleet.workers(), shown))


_NAME = Parameter(
    "name",
    "path",
    "The name of the queue.",
    {"type": "string", "pattern": f"^{NAME.pattern}$"},
    required=True,
)

OPERATIONS = [
    HttpOperation(
        "GET",
        "/queues",
        queues,
        "listQueues",
        "List queues with backlog, oldest age and running jobs, breakers and retry budgets",
        "queues",
        scope="admin",
        responses=(
            ResponseSpec(
                200, "Every queue, and the breakers and retry budgets that were used.", QueueList
            ),
        ),
        example="$BASE/queues",
    ),
    HttpOperation(
        "POST",
        "/queues/{name}/pause",
        pause,
        "pauseQueue",
        "Pause a queue",
        "queues",
        description="Running jobs continue, and submissions are accepted. The queue stays paused after a restart.",
        parameters=(_NAME,),
        scope="admin",
        responses=(ResponseSpec(200, "The queue.", Queue),),
        problems=(NotFound,),
        example="-X POST $BASE/queues/NAME/pause",
    ),
    HttpOperation(
        "POST",
        "/queues/{name}/resume",
        resume,
        "resumeQueue",
        "Resume a queue",
        "queues",
        parameters=(_NAME,),
        scope="admin",
        responses=(ResponseSpec(200, "The queue.", Queue),),
        problems=(NotFound,),
        example="-X POST $BASE/queues/NAME/resume",
    ),
    HttpOperation(
        "GET",
        "/kinds",
        kinds,
        "listKinds",
        "List kinds with input schemas and learned durations",
        "kinds",
        scope="read",
        responses=(ResponseSpec(200, "Every kind.", KindList),),
        example="$BASE/kinds",
    ),
    HttpOperation(
        "GET",
        "/workers",
        workers,
        "listWorkers",
        "List workers and leases",
        "workers",
        scope="admin",
        responses=(ResponseSpec(200, "Every handler child, and every lease.", WorkerList),),
        example="$BASE/workers",
    ),
]
