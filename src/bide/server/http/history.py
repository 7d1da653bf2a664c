"""The attempts and the log of a job, read from its events: `?include=attempts,log` and GET /jobs/{id}/log."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from bide.core.clock import render_instant
from bide.core.errors import BadCursor, Gone, InvalidInput, NotFound
from bide.core.wire.http import LOG_LEVELS, Event, read_prefer
from bide.server.http.request import HttpRequest, Response, object_response, wrong_parameter
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec
from bide.server.http.status import JOB_ID, PREFER, UNCACHED, find, hold
from bide.server.store import EventLog

PAGE = 1000
MAX_LINES = 1000  # of one response


class WireLog(msgspec.Struct):
    """Lines of a job's log. `next` is the `after` of the next request. `ended`: the job has ended, and no lines follow."""

    log: list[dict[str, Any]]
    next: str
    ended: bool


async def attempts_and_log(
    store: EventLog, tenant: str, job_id: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All attempts, and the newest lines of the log."""
    attempts: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    after = 0
    while True:
        page = await store.events(after=after, job_id=job_id, limit=PAGE, tenant=tenant)
        for event in page:
            if event.type == "status":
                _add_attempt(attempts, event)
            elif event.type == "log":
                lines.append(_line(event))
        del lines[:-MAX_LINES]
        if len(page) < PAGE:
            return attempts, lines
        after = page[-1].id
        await asyncio.sleep(0)  # a long history does not block other requests


def _line(event: Event) -> dict[str, Any]:
    at = event.job.get("loggedAt", event.at)
    return {
        "level": "info",
        **event.job["log"],
        "at": render_instant(at),
        "attempt": event.job["attempt"],
    }


def _level(line: dict[str, Any]) -> str:
    """The level of a line for the filter; `ctx.log` may have set the field to anything."""
    level = str(line["level"]).lower()
    return level if level in LOG_LEVELS else "info"


def _add_attempt(attempts: list[dict[str, Any]], event: Event) -> None:
    """A new fence begins an attempt; the first event without a worker ends it.

    The outcome is the status of the job at that event. PENDING: the worker was lost or returned the job. PARKED: the
    handler waits for its children, and a later entry continues the same attempt.
    """
    facts = event.job
    worker = facts.get("worker")
    current = attempts[-1] if attempts else None
    if worker is not None:
        if current is None or current["fence"] != facts["fence"]:
            attempts.append(_begun(event))
    elif current is not None and current["endedAt"] is None:
        current["endedAt"] = render_instant(event.at)
        current["outcome"] = "PARKED" if facts.get("parked") else facts["status"]
        if not facts.get("parked"):
            current["error"] = facts.get("error")


def _begun(event: Event) -> dict[str, Any]:
    return {
        "run": event.job["run"],
        "attempt": event.job["attempt"],
        "fence": event.job["fence"],
        "worker": event.job["worker"],
        "startedAt": render_instant(event.at),
        "endedAt": None,
        "outcome": None,
        "error": None,
    }


# --- GET /jobs/{id}/log


async def log(request: HttpRequest) -> Response:
    job_id = request.args[0]
    after, levels = _after(request.one("after")), _levels(request.one("level"))

    async def read(request: HttpRequest, job_id: str) -> WireLog:
        # The last lines are stored before the end of the job, so the job is read first.
        job = await find(request, job_id)
        return await _read(
            request.components.store, job.tenant, job_id, after, levels, job.status.terminal
        )

    preferred = request.header(b"prefer")
    wait = read_prefer((preferred,)).wait if preferred is not None else None
    if wait is None:
        return object_response(await read(request, job_id), *UNCACHED)
    found = await hold(request, job_id, wait, read, lambda page: bool(page.log) or page.ended)
    return object_response(found, *UNCACHED, (b"preference-applied", b"wait=%d" % wait))


async def _read(
    store: EventLog,
    tenant: str,
    job_id: str,
    after: int,
    levels: frozenset[str] | None,
    ended: bool,
) -> WireLog:
    """The lines after the event with this number."""
    lines: list[dict[str, Any]] = []
    while True:
        page = await store.events(after=after, job_id=job_id, limit=PAGE, tenant=tenant)
        for event in page:
            after = event.id
            if event.type == "log":
                line = _line(event)
                if levels is None or _level(line) in levels:
                    lines.append(line)
                    if len(lines) == MAX_LINES:
                        return WireLog(lines, str(after), False)
        if len(page) < PAGE:
            return WireLog(lines, str(after), ended)
        await asyncio.sleep(0)


def _after(text: str | None) -> int:
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadCursor(f"after: {text[:50]!r} is not the `next` of an earlier response")
    return int(text)


def _levels(text: str | None) -> frozenset[str] | None:
    """The levels from this one on; None for all lines."""
    if text is None or text == LOG_LEVELS[0]:
        return None
    if text not in LOG_LEVELS:
        raise wrong_parameter("level", f"unknown: {text[:50]!r}; use {', '.join(LOG_LEVELS)}")
    return frozenset(LOG_LEVELS[LOG_LEVELS.index(text) :])


OPERATIONS = [
    HttpOperation(
        "GET",
        "/jobs/{jobId}/log",
        log,
        "getLog",
        "Get the log of a job",
        "jobs",
        description="The lines of `ctx.log` and the records of Python's `logging`, oldest first. With `Prefer: wait=N` the "
        "service holds the response until there is a line after `after`, or the job has ended.",
        parameters=(
            JOB_ID,
            PREFER,
            Parameter(
                "level",
                "query",
                "Only lines of this level and above.",
                {"type": "string", "enum": list(LOG_LEVELS)},
            ),
            Parameter(
                "after",
                "query",
                "`next` of an earlier response.",
                {"type": "string", "pattern": "^[0-9]{1,18}$"},
            ),
        ),
        scope="read",
        responses=(
            ResponseSpec(
                200,
                f"Up to {MAX_LINES} lines.",
                WireLog,
                headers=("Cache-Control", "Vary", "Preference-Applied"),
            ),
        ),
        problems=(NotFound, Gone, BadCursor, InvalidInput),
        example="$BASE/jobs/JOB_ID/log -H 'Prefer: wait=30'",
    ),
]
