"""The status resource: one job with its live progress, its ETag, and the hint when to ask again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bide.core.errors import Gone, NotFound, Problem
from bide.core.record import Job, Progress
from bide.core.wire import (
    MAX_WAIT,
    Eta,
    WireJob,
    encode,
    etag,
    etag_matches,
    is_job_id,
    later_etag,
    wire_job,
)
from bide.server.http import Parts
from bide.server.http.exchange import Answer, Disconnected, Headers, Request, json_answer
from bide.server.http.operations import Parameter
from bide.server.store import Missing

JOB_ID = Parameter("jobId", "path", "The job's id.", {"type": "string"}, required=True)
PREFER = Parameter(
    "Prefer",
    "header",
    f"`wait=N`: hold the answer up to N seconds, at most {MAX_WAIT:g}. Unknown preferences are ignored.",
)
IF_MATCH = Parameter(
    "If-Match", "header", "Only when the job still has this ETag; 412 otherwise. `*` for any."
)
IF_NONE_MATCH = Parameter("If-None-Match", "header", "304 while the ETag is still this one.")


MOST_KEPT, LARGEST_KEPT = 5000, 4096  # rendered jobs, and bytes of each


async def find(parts: Parts, job_id: str) -> Job:
    """NotFound for what never was, Gone for what was removed."""
    if is_job_id(job_id):
        (job,) = await parts.store.get((job_id,))
        if not isinstance(job, Missing):
            if not parts.progress.is_fresh(job):
                await parts.progress.refresh((job,))
            return job
        raise missing(job_id, job)
    raise missing(job_id, Missing())


def missing(job_id: str, absence: Missing) -> Problem:
    if absence.gone:
        return Gone(f"job {job_id} was deleted, or purged after its retention time")
    return NotFound(f"there is no job {job_id[:50]!r}")


class Shown:
    """A job as it is at this moment."""

    __slots__ = ("job", "progress", "reported_at", "request", "tag")

    def __init__(self, request: Request, job: Job) -> None:
        live = request.parts.progress.live(job)
        self.request = request
        self.job = job
        self.progress: Progress | None = live.progress if live is not None else job.progress
        self.reported_at = live.at if live is not None else job.updated_at
        self.tag = etag(job, live.number if live is not None else 0)

    def known_as(self, names: str) -> str | None:
        """The ETag of those in an If-None-Match header under which the caller knows it; None: there is something new.

        Progress reaches replicas one after the other: who knows a later one than this replica has nothing new to hear.
        """
        if etag_matches(names, self.tag):
            return self.tag
        return later_etag(names, self.tag) if self.job.held else None

    def wire(self) -> WireJob:
        return wire_job(self.job, self.progress, self._eta(), self.request.base)

    def _eta(self) -> Eta | None:
        if self.job.status.terminal:
            return None
        parts = self.request.parts
        return parts.estimates.eta(self.job, self.progress, self.reported_at, parts.store.now())

    def body(self) -> bytes:
        """Rendered once for each ETag: most polls find what the last one found."""
        base = self.request.base
        rendered = self.request.rendered
        key = (self.job.id, self.tag, base)
        body = rendered.get(key)
        if body is None:
            body = encode(self.wire())
            if len(body) <= LARGEST_KEPT:
                if len(rendered) >= MOST_KEPT:
                    rendered.clear()
                rendered[key] = body
        return body

    def retry_after(self) -> int | None:
        """None once it has ended."""
        if self.job.status.terminal:
            return None
        parts = self.request.parts
        return parts.estimates.retry_after(self.job, self.progress, parts.store.now())

    def hint(self) -> Headers:
        seconds = self.retry_after()
        return [] if seconds is None else [(b"retry-after", b"%d" % seconds)]

    def location(self) -> tuple[bytes, bytes]:
        return (b"location", f"{self.request.base}/jobs/{self.job.id}".encode())

    def answer(self, status: int, *more: tuple[bytes, bytes]) -> Answer:
        return json_answer(status, self.body(), *self.hint(), *more)


async def hold(request: Request, job_id: str, seconds: float, enough: Callable[[Shown], bool]) -> Shown:
    """The job once it is `enough`, or as it is when the time is over or the service stops.

    Disconnected when the caller leaves meanwhile: its watch goes with it.
    """
    parts = request.parts
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    with parts.notify.subscribe(job_id) as watch:
        left = loop.create_task(request.left())
        left.add_done_callback(lambda _: watch.wake())
        try:
            while True:
                shown = Shown(request, await find(parts, job_id))
                remaining = until - loop.time()
                if enough(shown) or remaining <= 0 or parts.notify.closed:
                    return shown
                await watch.wait(remaining)
                if left.done():
                    raise Disconnected
        finally:
            left.cancel()
