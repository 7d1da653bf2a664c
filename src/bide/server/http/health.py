"""GET /healthz and /readyz: whether the service lives, and whether a job that is sent now would be run."""

from __future__ import annotations

import msgspec

from bide.core.errors import Unavailable
from bide.server.http import Parts
from bide.server.http.exchange import Answer, Request, json_answer
from bide.server.http.operations import Operation, Reply
from bide.server.http.queues import known_queues


class Health(msgspec.Struct):
    status: str


async def healthz(request: Request) -> Answer:
    return json_answer(200, b'{"status":"ok"}')


async def readyz(request: Request) -> Answer:
    wrong = await troubles(request.parts)
    if wrong:
        raise Unavailable("; ".join(wrong), errors=[{"detail": trouble} for trouble in wrong])
    return json_answer(200, b'{"status":"ready"}')


async def troubles(parts: Parts) -> list[str]:
    """What keeps jobs from being run, in words for a person."""
    wrong = ["the service is stopping"] if parts.notify.closed else []
    for queue in await known_queues(parts):
        if not queue.served and (queue.kinds or queue.backlog):
            waiting = f"; {queue.backlog} wait" if queue.backlog else ""
            wrong.append(f"no worker serves queue {queue.name}{waiting}")
    return wrong + [trouble for trouble in parts.engine.troubles() if trouble not in wrong]


OPERATIONS = [
    Operation(
        "GET",
        "/healthz",
        healthz,
        "getHealth",
        "Whether the service lives",
        "health",
        replies=(Reply(200, "It does.", Health),),
        example="$BASE/healthz",
    ),
    Operation(
        "GET",
        "/readyz",
        readyz,
        "getReadiness",
        "Whether jobs that are sent now will be run",
        "health",
        description="503 names what is wrong, for example a queue that no worker serves.",
        replies=(Reply(200, "They will.", Health),),
        problems=(Unavailable,),
        example="$BASE/readyz",
    ),
]
