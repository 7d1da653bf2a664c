"""Durable `POST /jobs` against FastAPI that calls Celery's `.delay()` on Redis.

Only acceptance is measured: bide's queue is paused, and no Celery worker runs.
"""

from __future__ import annotations

from pathlib import Path

from bench.service import servers
from bench.service.load import Samples, posting, wrk
from bench.service.table import Line

SECONDS = 3
BODY = '{"kind": "noop", "input": {"n": 1}}'


def measure(folder: Path, rounds: int) -> list[Line]:
    script = posting(folder / "post.lua", BODY)
    with (
        servers.bide(folder / "bide") as site,
        servers.redis_server(folder) as redis,
        servers.python_site(
            servers.peer_python(), "celery_api", folder, env=servers.celery_on(redis, redis)
        ) as api,
    ):
        site.ask("POST", "/queues/default/pause")
        samples = Samples()
        for _ in range(rounds):
            samples.add("bide", wrk(f"{site.url}/jobs", SECONDS, script=script))
            samples.add("threads", wrk(f"{api.url}/jobs", SECONDS, script=script))
            samples.add("loop", wrk(f"{api.url}/jobs/inline", SECONDS, script=script))
    return [
        Line(
            "durable POST /jobs : FastAPI + Celery .delay()",
            samples.ratio("bide", "threads"),
            "≥",
            8,
            detail=f"{samples['bide']:.0f} : {samples['threads']:.0f} jobs/s "
            f"(with .delay() in the event loop {samples['loop']:.0f})",
        )
    ]
