"""A job's past, from its events: the attempts that were made, and the lines that its handler logged."""

from __future__ import annotations

import asyncio
from typing import Any

from bide.core.clock import render_instant
from bide.core.wire import Event
from bide.server.store import JobStore

PAGE = 1000
MOST_LINES = 1000  # the newest ones


async def attempts_and_log(
    store: JobStore, job_id: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    attempts: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    after = 0
    while True:
        page = await store.events(after=after, job_id=job_id, limit=PAGE)
        for event in page:
            if event.type == "status":
                _note(attempts, event)
            elif event.type == "log":
                lines.append(_line(event))
        del lines[:-MOST_LINES]
        if len(page) < PAGE:
            return attempts, lines
        after = page[-1].id
        await asyncio.sleep(0)  # a long history does not keep others waiting


def _line(event: Event) -> dict[str, Any]:
    ours = {"at": render_instant(event.at), "attempt": event.job["attempt"]}
    return {**event.job["log"], **ours}


def _note(attempts: list[dict[str, Any]], event: Event) -> None:
    """A fence that was not seen before begins an attempt; the first event without its worker ends it.

    The outcome is the status that the job had then. PENDING: the worker was lost or gave the job back. PARKED: the
    handler stepped aside for its children, and a later entry goes on with the same attempt.
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
