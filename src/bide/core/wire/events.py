"""The wire form of the event log: cursors, events as JSON, and Server-Sent Events.

1. A cursor is `E-N`: the epoch of the numbering, and the number of an event in it.
2. An event is rendered once for all its receivers.
3. `progress` has no id, because it is not in the log. So a reconnecting listener continues after the last event of the log.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, get_args

import msgspec

from bide.core.clock import render_instant
from bide.core.errors import BadCursor
from bide.core.jobs.record import TERMINAL, Job, Progress
from bide.core.wire.http import Event, EventType

SSE_TYPE = "text/event-stream"
CURSOR_PATTERN = "[0-9a-z]{1,16}-(0|[1-9][0-9]{0,17})"
LOG_TYPES: tuple[str, ...] = get_args(EventType)
ALL_TYPES = frozenset({*LOG_TYPES, "progress"})
COMMENT = b":\n\n"  # keeps a connection open
_CURSOR = re.compile(CURSOR_PATTERN)
_TERMINAL = frozenset(status.value for status in TERMINAL)
_INSTANTS = ("due", "nextAttemptAt", "loggedAt")
# The events of a transaction have the same time.
_instant = lru_cache(256)(render_instant)
_instant_bytes = lru_cache(256)(lambda at: render_instant(at).encode())
_SSE = b'event: %b\nid: %b-%d\ndata: {"id":"%b-%d","jobId":%b,"type":"%b","at":"%b","job":%b}\n\n'
encode = msgspec.json.Encoder().encode


class EventCursor(msgspec.Struct, frozen=True):
    """The place after an event. Number 0 is before the first one."""

    epoch: str
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.number}"


def read_event_cursor(text: str) -> EventCursor:
    """Read a cursor; BadCursor if the text is not one."""
    if _CURSOR.fullmatch(text) is None:
        raise BadCursor(f"{text[:50]!r} is not the id of an event, nor `next` of an earlier response")
    epoch, _, number = text.partition("-")
    return EventCursor(epoch, int(number))


class WireEvent(msgspec.Struct, rename="camel", kw_only=True):
    """An event. `id` is its cursor; `progress` has none. `jobId` is null for an event of a queue."""

    id: str | msgspec.UnsetType = msgspec.UNSET
    job_id: str | None
    type: str
    at: str
    job: dict[str, Any]


class EventMessage:
    """An event on its way to its receivers. `number` is 0 for `progress`."""

    __slots__ = ("_json", "_sse", "epoch", "event")

    def __init__(self, event: Event, epoch: str) -> None:
        self.event = event
        self.epoch = epoch
        self._json: bytes | None = None
        self._sse: bytes | None = None

    @property
    def number(self) -> int:
        return self.event.id

    @property
    def type(self) -> str:
        return self.event.type

    @property
    def is_progress(self) -> bool:
        return not self.event.id

    @property
    def ends(self) -> bool:
        """Whether no event of the job follows, unless it is retried."""
        event = self.event
        return event.type == "deleted" or (event.type == "status" and event.job["status"] in _TERMINAL)

    @property
    def cursor(self) -> EventCursor:
        return EventCursor(self.epoch, self.event.id)

    def wire(self) -> WireEvent:
        event = self.event
        return WireEvent(
            id=f"{self.epoch}-{event.id}" if event.id else msgspec.UNSET,
            job_id=event.job_id or None,
            type=event.type if event.id else "progress",
            at=_instant(event.at),
            job=self._facts,
        )

    @property
    def _facts(self) -> dict[str, Any]:
        facts = self.event.job
        if "due" in facts or "nextAttemptAt" in facts or "loggedAt" in facts:
            return {
                name: _instant(value) if name in _INSTANTS else value for name, value in facts.items()
            }
        return facts

    @property
    def json(self) -> bytes:
        """`wire` as JSON."""
        if self._json is None:
            self._json = encode(self.wire())
        return self._json

    @property
    def sse(self) -> bytes:
        """`wire` as a Server-Sent Event."""
        found = self._sse
        if found is None:
            event = self.event
            if not event.id:
                found = b"event: progress\ndata: %b\n\n" % self.json
            else:  # without `wire`, because most events are sent to streams; none of these texts needs escapes
                epoch, number, name = self.epoch.encode(), event.id, event.type.encode()
                job_id = b'"%b"' % event.job_id.encode() if event.job_id else b"null"
                head = (name, epoch, number, epoch, number, job_id, name, _instant_bytes(event.at))
                found = _SSE % (*head, encode(self._facts))
            self._sse = found
        return found


def progress_message(job: Job, progress: Progress, at: float) -> EventMessage:
    """The message of a running job's progress."""
    facts: dict[str, Any] = {
        "kind": job.kind,
        "queue": job.queue,
        "status": job.status,
        "version": job.version,
        "run": job.run,
        "attempt": job.attempt,
        "progress": progress,
    }
    if job.labels:
        facts["labels"] = job.labels
    return EventMessage(Event(0, job.id, "status", at, facts, job.tenant), "")


def render_sse(name: str, data: bytes, cursor: EventCursor | None = None) -> bytes:
    """A Server-Sent Event. `data` is JSON, which has no line breaks."""
    id_ = b"" if cursor is None else b"id: %b\n" % str(cursor).encode()
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), id_, data)


class ServerSentEvent(msgspec.Struct, frozen=True):
    """An event of a stream, as it was received. `retry` is in milliseconds."""

    type: str
    data: str
    id: str | None = None
    retry: int | None = None


class SseDecoder:
    """Decodes the bytes of an event stream, in parts of any size. Comments are skipped."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        found: list[ServerSentEvent] = []
        *lines, self._rest = (self._rest + data).split(b"\n")
        for raw in lines:
            line = raw.decode("utf-8", "replace").removesuffix("\r")
            if not line:
                found += self._take()
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            else:  # the name of a comment is empty
                self._fields[name] = value
        return found

    def _take(self) -> list[ServerSentEvent]:
        fields, self._fields = self._fields, {}
        data, self._data = self._data, []
        if not data:
            return []
        retry = fields.get("retry", "")
        milliseconds = int(retry) if retry.isascii() and retry.isdigit() and len(retry) < 8 else None
        return [
            ServerSentEvent(
                fields.get("event", "message"), "\n".join(data), fields.get("id"), milliseconds
            )
        ]
