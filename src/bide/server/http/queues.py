"""GET /queues, pause and resume, GET /kinds, GET /workers: what waits, what can be run, and who runs it."""

from __future__ import annotations

from typing import Any

import msgspec

from bide.core.errors import NotFound
from bide.server.engine import WorkerState
from bide.server.http import Parts
from bide.server.http.exchange import Answer, Request, object_answer
from bide.server.http.operations import Operation, Parameter, Reply
from bide.server.registry import Kind
from bide.server.store import QueueState


class Queue(msgspec.Struct, rename="camel"):
    """A queue: `backlog` jobs could start now, `oldestAge` is how long the first of them has waited, in seconds."""

    name: str
    backlog: int
    scheduled: int
    running: int
    oldest_age: float | None
    paused: bool
    served: bool
    concurrency: int | None
    kinds: list[str]


class QueueList(msgspec.Struct):
    queues: list[Queue]


class KindInfo(msgspec.Struct, rename="camel"):
    """A kind of job: what it takes, and how long it has taken so far (null while too little is known)."""

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
    retention: float | None
    durations: dict[str, float] | None


class KindList(msgspec.Struct):
    kinds: list[KindInfo]


class WorkerList(msgspec.Struct):
    workers: list[WorkerState]


async def known_queues(parts: Parts) -> list[Queue]:
    """Every queue that a kind belongs to, that has jobs, or that was paused."""
    states = {state.name: state for state in await parts.store.queues()}
    kinds = parts.registry.queues
    now = parts.store.now()
    return [
        _queue(parts, states.get(name) or QueueState(name), kinds.get(name, []), now)
        for name in sorted({*states, *kinds, *parts.registry.concurrency})
    ]


def _queue(parts: Parts, state: QueueState, kinds: list[Kind], now: float) -> Queue:
    return Queue(
        name=state.name,
        backlog=state.waiting,
        scheduled=state.scheduled,
        running=state.running,
        oldest_age=None if state.oldest is None else round(max(0.0, now - state.oldest), 3),
        paused=state.paused,
        served=parts.engine.serves(state.name),
        concurrency=parts.registry.concurrency.get(state.name),
        kinds=sorted(kind.name for kind in kinds),
    )


async def _find(request: Request) -> Queue:
    name = request.args[0]
    for queue in await known_queues(request.parts):
        if queue.name == name:
            return queue
    raise NotFound(f"there is no queue {name[:100]!r}: no kind belongs to it, and it has no jobs")


async def queues(request: Request) -> Answer:
    return object_answer(QueueList(await known_queues(request.parts)))


async def pause(request: Request) -> Answer:
    queue = await _find(request)
    await request.parts.store.pause(queue.name, True)
    return object_answer(await _find(request))


async def resume(request: Request) -> Answer:
    queue = await _find(request)
    parts = request.parts
    await parts.store.pause(queue.name, False)
    # A submission may name another queue than its kind's, so any kind may have been waiting here.
    for kind in parts.registry.kinds:
        parts.engine.hint(queue.name, kind)
    # It may have been known only because it was paused.
    return object_answer(next((q for q in await known_queues(parts) if q.name == queue.name), queue))


async def kinds(request: Request) -> Answer:
    estimates = request.parts.estimates
    return object_answer(
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
                    retention=kind.retention,
                    durations=estimates.describe(kind.name),
                )
                for _, kind in sorted(request.parts.registry.kinds.items())
            ]
        )
    )


async def workers(request: Request) -> Answer:
    return object_answer(WorkerList(request.parts.engine.workers()))


_NAME = Parameter("name", "path", "The queue's name.", required=True)

OPERATIONS = [
    Operation(
        "GET",
        "/queues",
        queues,
        "listQueues",
        "The queues: backlog, oldest age, running",
        "queues",
        replies=(Reply(200, "Every queue.", QueueList),),
        example="$BASE/queues",
    ),
    Operation(
        "POST",
        "/queues/{name}/pause",
        pause,
        "pauseQueue",
        "Start no more jobs of a queue",
        "queues",
        description="What runs goes on; submissions are still accepted. It stays paused over a restart.",
        parameters=(_NAME,),
        replies=(Reply(200, "The queue.", Queue),),
        problems=(NotFound,),
        example="-X POST $BASE/queues/NAME/pause",
    ),
    Operation(
        "POST",
        "/queues/{name}/resume",
        resume,
        "resumeQueue",
        "Start jobs of a queue again",
        "queues",
        parameters=(_NAME,),
        replies=(Reply(200, "The queue.", Queue),),
        problems=(NotFound,),
        example="-X POST $BASE/queues/NAME/resume",
    ),
    Operation(
        "GET",
        "/kinds",
        kinds,
        "listKinds",
        "The kinds of jobs: input schemas and learned durations",
        "kinds",
        replies=(Reply(200, "Every kind.", KindList),),
        example="$BASE/kinds",
    ),
    Operation(
        "GET",
        "/workers",
        workers,
        "listWorkers",
        "Who is alive",
        "workers",
        replies=(Reply(200, "Every handler child.", WorkerList),),
        example="$BASE/workers",
    ),
]
