"""Which events an endpoint receives, and the body that it receives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from bide.core.clock import render_instant
from bide.core.jobs.record import TERMINAL
from bide.core.wire.http import Event

_TERMINAL = frozenset(status.value for status in TERMINAL)
TEST_TYPE = "webhook.test"


def matches(
    event: Event, events: Sequence[str], kinds: Sequence[str] = (), labels: Mapping[str, str] = {}
) -> bool:
    """Whether an endpoint with these filters receives the event."""
    ended = event.type == "status" and event.job.get("status") in _TERMINAL
    if event.type not in events and not (ended and "terminal" in events):
        return False
    if kinds and event.job.get("kind") not in kinds:
        return False
    found = event.job.get("labels") or {}
    return all(found.get(name) == value for name, value in labels.items())


def type_of(event: Event) -> str:
    return f"queue.{event.type}" if not event.job_id else f"job.{event.type}"


def message_id(epoch: str, event: Event) -> str:
    """The id of the event. It contains no dot, which separates the parts of the signed content."""
    return f"evt_{epoch}-{event.id}"


def render(event: Event, data: bytes) -> bytes:
    """The body. `data` is the event as all readers of the log see it."""
    return body_of(type_of(event), event.at, data)


def body_of(type_: str, at: float, data: bytes) -> bytes:
    return msgspec.json.encode(
        {"type": type_, "timestamp": render_instant(at), "data": msgspec.Raw(data)}
    )
