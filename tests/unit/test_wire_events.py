"""The wire form of events: cursors, JSON and Server-Sent Events."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.errors import BadCursor
from bide.core.jobs.record import Job, Progress, Status
from bide.core.wire.events import (
    EventCursor,
    EventMessage,
    progress_message,
    read_event_cursor,
    render_sse,
)
from bide.core.wire.http import Event, EventType, facts

EPOCHS = st.text("0123456789abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=16)
NUMBERS = st.integers(0, 10**18 - 1)
JOB = Job("0" * 26, "work", "default", 1.9e9, 1.9e9)
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(EPOCHS, NUMBERS)
def test_a_cursor_survives_its_text(epoch: str, number: int) -> None:
    cursor = EventCursor(epoch, number)
    assert read_event_cursor(str(cursor)) == cursor


@given(st.text())
def test_other_texts_are_bad_cursors(text: str) -> None:
    with contextlib.suppress(BadCursor):
        assert str(read_event_cursor(text)) == text


@given(JSON, EPOCHS, st.integers(1, 10**18 - 1))
def test_an_event_is_one_block_whatever_it_contains(output: Any, epoch: str, number: int) -> None:
    event = Event(number, JOB.id, "output", 1.9e9, facts(JOB, "output") | {"output": output})
    message = EventMessage(event, epoch)
    lines = message.sse.decode().split("\n")
    assert lines[:2] == ["event: output", f"id: {epoch}-{number}"]
    assert lines[3:] == ["", ""]
    document = json.loads(lines[2].removeprefix("data: "))
    assert document == json.loads(message.json)
    assert document["job"]["output"] == output
    assert (document["id"], document["jobId"]) == (f"{epoch}-{number}", JOB.id)


def test_instants_are_rendered_and_a_queue_has_no_job() -> None:
    known = facts(JOB) | {"due": 1.9e9, "nextAttemptAt": 1.9e9 + 1, "loggedAt": 1.9e9 + 2}
    wire = EventMessage(Event(7, JOB.id, "log", 1.9e9, known), "e").wire()
    assert wire.at == wire.job["due"] == "2030-03-17T17:46:40.000Z"
    assert wire.job["nextAttemptAt"].endswith("41.000Z") and wire.job["loggedAt"].endswith("42.000Z")
    assert known["due"] == 1.9e9, "the event itself is unchanged"
    queue = EventMessage(Event(8, "", "queue", 1.9e9, {"queue": "video", "paused": True}), "e").wire()
    assert (queue.job_id, queue.type, queue.job) == (None, "queue", {"queue": "video", "paused": True})


def test_progress_has_no_id() -> None:
    message = progress_message(JOB, Progress(percent=5.0), 1.9e9)
    assert message.is_progress and not message.ends
    assert message.sse.startswith(b"event: progress\ndata: {")
    document = json.loads(message.json)
    assert "id" not in document
    assert (document["type"], document["job"]["progress"]["percent"]) == ("progress", 5.0)


@pytest.mark.parametrize(
    ("type_", "status", "ends"),
    [
        ("status", Status.PENDING, False),
        ("status", Status.DONE, True),
        ("status", Status.PARTIAL_SUCCESS, True),
        ("log", Status.DONE, False),
        ("deleted", Status.PENDING, True),
    ],
)
def test_terminal_events_and_deletions_end_a_job(type_: EventType, status: Status, ends: bool) -> None:
    event = Event(1, JOB.id, type_, 1.9e9, facts(JOB) | {"status": status.value})
    assert EventMessage(event, "e").ends is ends


def test_other_blocks() -> None:
    assert render_sse("end", b"{}") == b"event: end\ndata: {}\n\n"
    assert render_sse("reset", b"{}", EventCursor("a", 1)) == b"event: reset\nid: a-1\ndata: {}\n\n"
