"""The attempts and log lines of a job, read from its events."""

from __future__ import annotations

import asyncio
from typing import Any

from bide.core.clock import render_instant
from bide.core.wire.http import Event
from bide.server.store import EventLog

PAGE = 1000
MAX_LINES = 1000  # the newest ones


async def attempts_and_log(
    store: EventLog, job_id: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    attempts: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    after = 0
    while True:
        page = await store.events(after=after, job_id=job_id, limit=PAGE)
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
    base = {"at": render_instant(event.at), "attempt": event.job["attempt"]}
    return {**event.job["log"], **base}


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
