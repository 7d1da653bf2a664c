"""The status resource: a job with its live progress, its ETag and its Retry-After."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TypeVar

from bide.core.errors import Gone, NotFound, Problem
from bide.core.jobs.record import Job, Progress
from bide.core.wire.http import (
    ID_PATTERN,
    MAX_HOLD,
    MAX_WAIT,
    JobStatus,
    encode,
    etag,
    etag_matches,
    is_job_id,
    later_etag,
    wire_job,
)
from bide.server.http.request import Disconnected, Headers, HttpRequest, Response, json_response
from bide.server.http.routing import Parameter
from bide.server.progress import attempt_key
from bide.server.store import Missing

JOB_ID = Parameter(
    "jobId",
    "path",
    "The id of the job.",
    {"type": "string", "pattern": f"^{ID_PATTERN}$"},
    required=True,
)
PREFER = Parameter(
    "Prefer",
    "header",
    f"`wait=N`, with N up to {MAX_WAIT:g}: hold the response up to N seconds, and at most {MAX_HOLD:g}. "
    "Unknown preferences are ignored.",
)
IF_MATCH = Parameter(
    "If-Match", "header", "Apply the change only if the ETag matches, else 412. `*` matches any."
)
IF_NONE_MATCH = Parameter("If-None-Match", "header", "Respond with 304 if the ETag matches.")


Found = TypeVar("Found")
MAX_AGE = 60  # seconds that a browser or another private cache may keep a status
_VARY = (b"vary", b"Prefer, Authorization")
# For responses that depend on the time of the request: a long poll, the log.
UNCACHED: Headers = [(b"cache-control", b"no-store"), _VARY]
MAX_BODIES = 5000  # in Components.status_bodies
MAX_BODY_SIZE = 4096  # bytes of each
NO_JOB = "0" * 26  # an id that no job has


async def find(request: HttpRequest, job_id: str) -> Job:
    """Return the job. Raise NotFound if it never existed or is another tenant's, Gone if it was removed."""
    if not is_job_id(job_id):
        raise missing(job_id, Missing())
    components = request.components
    (job,) = await components.store.get((job_id,))
    if isinstance(job, Missing):
        removed = request.principal.sees_removed(job_id, job.tenant)
        raise missing(job_id, job if removed else Missing())
    if not request.principal.sees(job):
        await components.store.get((NO_JOB,))  # takes as long as for a job that does not exist
        raise missing(job_id, Missing())
    if not components.progress.is_fresh(job):
        await components.progress.fetch([attempt_key(job)])
    return job


def missing(job_id: str, absence: Missing) -> Problem:
    if absence.gone:
        return Gone(f"job {job_id} was deleted, or its retention time has passed")
    return NotFound(f"job {job_id[:50]!r} does not exist")


def retry_after_header(seconds: int | None) -> Headers:
    return [] if seconds is None else [(b"retry-after", b"%d" % seconds)]


@lru_cache(maxsize=1024)
def poll_headers(seconds: int | None) -> Headers:
    """Return Retry-After, and the headers that let a cache keep a response until then; for MAX_AGE if the job has ended."""
    age = MAX_AGE if seconds is None else min(seconds, MAX_AGE)
    return [*retry_after_header(seconds), (b"cache-control", b"private, max-age=%d" % age), _VARY]


class JobView:
    """A job with its current progress."""

    __slots__ = ("job", "progress", "reported_at", "request", "tag")

    def __init__(self, request: HttpRequest, job: Job) -> None:
        live = request.components.progress.live(job)
        self.request = request
        self.job = job
        self.progress: Progress | None = live.progress if live is not None else job.progress
        self.reported_at = live.at if live is not None else job.updated_at
        self.tag = etag(job, live.number if live is not None else 0)

    def matching_etag(self, names: str) -> str | None:
        """Return the ETag of the If-None-Match header that matches; None if the caller has an older state.

        Progress reaches the replicas at different times, so a later ETag than this replica's matches too.
        """
        if etag_matches(names, self.tag):
            return self.tag
        return later_etag(names, self.tag) if self.job.held else None

    def wire(self) -> JobStatus:
        components, eta = self.request.components, None
        if not self.job.status.terminal:
            eta = components.estimates.eta(
                self.job, self.progress, self.reported_at, components.store.now()
            )
        return wire_job(self.job, self.progress, eta, self.request.base)

    def body(self) -> bytes:
        """Return the JSON, from the cache if the ETag has not changed."""
        bodies = self.request.components.status_bodies
        key = (self.job.id, self.tag, self.request.base)
        body = bodies.get(key)
        if body is None:
            body = encode(self.wire())
            if len(body) <= MAX_BODY_SIZE:
                if len(bodies) >= MAX_BODIES:
                    bodies.clear()
                bodies[key] = body
        return body

    def retry_after(self) -> int | None:
        """Return the seconds until the next poll; None if the job has ended."""
        if self.job.status.terminal:
            return None
        components = self.request.components
        return components.estimates.retry_after(self.job, self.progress, components.store.now())

    def location(self) -> tuple[bytes, bytes]:
        return (b"location", f"{self.request.base}/jobs/{self.job.id}".encode())

    def submitted_body(self, *, replayed: bool) -> bytes:
        """Return the JSON for the response to a submission."""
        return self.body()[:-1] + (b',"replayed":true}' if replayed else b',"replayed":false}')

    def response(self, status: int, *more: tuple[bytes, bytes]) -> Response:
        return json_response(status, self.body(), *retry_after_header(self.retry_after()), *more)


async def view(request: HttpRequest, job_id: str) -> JobView:
    return JobView(request, await find(request, job_id))


async def hold(
    request: HttpRequest,
    job_id: str,
    seconds: float,
    read: Callable[[HttpRequest, str], Awaitable[Found]],
    enough: Callable[[Found], bool],
) -> Found:
    """Call `read` now and after each event of the job, until `enough` returns True, `seconds` or MAX_HOLD seconds have
    passed, or the service stops. Return what it has read last.

    Raise Disconnected if the client disconnects, and Unauthenticated if its credential is no longer valid.
    """
    components = request.components
    loop = asyncio.get_running_loop()
    until = loop.time() + min(seconds, MAX_HOLD)
    with components.notify.subscribe(job_id) as subscription:
        disconnected = loop.create_task(request.disconnected())
        disconnected.add_done_callback(lambda _: subscription.wake())
        try:
            while True:
                found = await read(request, job_id)
                remaining = until - loop.time()
                if enough(found) or remaining <= 0 or components.notify.closed:
                    return found
                await subscription.wait(remaining)
                if disconnected.done():
                    request.check_valid()
                    raise Disconnected
        finally:
            disconnected.cancel()
