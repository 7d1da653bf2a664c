"""W3C trace context: the headers `traceparent` and `tracestate`, and the ids of the spans of a job.

The ids of spans are derived from the job and the fence of its attempt. So a process knows the id of a span that another
process exports, and nothing has to be stored for it.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
MAX_STATE = 512  # characters; a longer tracestate is dropped, as the specification allows
_STATE = re.compile(r"[\x20-\x7e]*")


class TraceParent(NamedTuple):
    """The span of a caller."""

    trace_id: str
    span_id: str
    sampled: bool
    state: str  # the header tracestate


def read_trace(traceparent: str, tracestate: str | None = None) -> TraceParent | None:
    """Read the headers; None if traceparent is not valid."""
    text = traceparent.strip()
    match = _TRACEPARENT.fullmatch(text)
    if match is None or text.startswith("ff") or {"0"} in (set(match[1]), set(match[2])):
        return None
    state = (tracestate or "").strip()
    if len(state) > MAX_STATE or _STATE.fullmatch(state) is None:
        state = ""
    return TraceParent(match[1], match[2], bool(int(match[3], 16) & 1), state)


def read_traceparent(value: str) -> str | None:
    """Return the trace id of a W3C traceparent header; None if it has none."""
    found = read_trace(value)
    return None if found is None else found.trace_id


def render_traceparent(trace_id: str, span_id: int) -> str:
    """The header of a sampled span."""
    return f"00-{trace_id}-{span_id:016x}-01"


def send_span_id(job_id: str) -> int:
    """The id of the span in which the job was submitted."""
    return derived_span_id(job_id)


def process_span_id(job_id: str, fence: int) -> int:
    """The id of the span of an attempt."""
    return derived_span_id(f"{job_id}/{fence}")


def derived_span_id(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) or 1
