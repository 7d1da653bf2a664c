"""The HTTP vocabulary of both ends: the status resource, problems and headers.

`render_*` never fails for data of the store; `read_*` never raises for any input, except where its docstring names the
Problem.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec

from bide.core.clock import read_instant, render_instant
from bide.core.errors import BadCursor, ErrorInfo, InvalidInput, MalformedRequest, Problem
from bide.core.jobs.record import Job, Progress, Status
from bide.core.wire.traces import render_traceparent, send_span_id

INLINE_RESULT = 64 * 1024
MAX_WAIT = 60.0  # seconds; the service reads a longer `Prefer: wait=N` as this
MAX_HOLD = 55.0  # seconds; many proxies close a connection after a minute without bytes
PROBLEM_TYPE = "application/problem+json"
JSON_TYPE = "application/json"
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")  # of the lines of a job's log
# How a submission is recognised by its content: by its files and input, or also by the names of the files.
Dedupe = Literal["content", "content+name"]
DEDUPE_MODES: tuple[str, ...] = get_args(Dedupe)


class WireStep(msgspec.Struct, rename="camel"):
    name: str
    status: Status
    started_at: str | None = None
    finished_at: str | None = None


class WireChild(msgspec.Struct, rename="camel"):
    job_id: str
    kind: str
    status: Status | None = None


class WireFile(msgspec.Struct, rename="camel"):
    name: str
    content_type: str
    size: int
    sha256: str
    url: str


class Eta(msgspec.Struct, rename="camel"):
    finish_at: str
    low: str
    high: str


class JobStatus(msgspec.Struct, rename="camel", kw_only=True):
    """The status resource."""

    job_id: str
    kind: str
    status: Status
    cancel_requested: bool = False
    overdue: bool = False
    progress: Progress | None = None
    eta: Eta | None = None
    attempt: int = 0
    max_attempts: int = 1
    priority: int = 0
    queue: str = "default"
    labels: dict[str, str] = {}
    created_at: str
    run_at: str | None = None
    started_at: str | None = None
    next_attempt_at: str | None = None
    finished_at: str | None = None
    updated_at: str
    expires_at: str | None = None
    deadline: str | None = None
    steps: tuple[WireStep, ...] = ()
    children: tuple[WireChild, ...] = ()
    result: Any = None  # a Raw when it is rendered, a value when it was read
    files: tuple[WireFile, ...] = ()
    error: ErrorInfo | None = None
    trace_id: str | None = None
    links: dict[str, str] = {}
    # Only in the response to a submission: whether an earlier submission has created the job.
    replayed: bool | msgspec.UnsetType = msgspec.UNSET
    # Only with ?include=
    input: Any = msgspec.UNSET
    attempts: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    log: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


EventType = Literal["status", "step", "log", "output", "deleted", "queue"]


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of the event log; ids are in commit order. An event of a queue has no job: its `job_id` is empty."""

    id: int
    job_id: str
    type: EventType
    at: float
    job: dict[str, Any]
    tenant: str = "-"


def facts(job: Job, type_: EventType = "status") -> dict[str, Any]:  # noqa: PLR0912 — a branch per field
    """Return the fields of a job that an event of this type contains."""
    known: dict[str, Any] = {
        "kind": job.kind,
        "queue": job.queue,
        "status": job.status,
        "version": job.version,
        "run": job.run,
        "attempt": job.attempt,
        "fence": job.fence,
    }
    if job.webhook is not None:
        known["webhook"] = job.webhook
    if type_ in ("output", "deleted"):
        # There are many events of output, and a deleted job has no future.
        if job.labels:
            known["labels"] = job.labels
        return known
    # The first event always has them, so that a reader can tell a job without labels from an event of an older version.
    if job.labels or job.version == 1:
        known["labels"] = job.labels
    if job.owner is not None:
        known["worker"] = job.owner
    if job.due is not None:
        known["due"] = job.due
    if job.next_attempt_at is not None:
        known["nextAttemptAt"] = job.next_attempt_at
    if job.cancel_asked_at is not None:
        known["cancelAsked"] = True
    if job.parked:
        known["parked"] = True
    if job.overdue_at is not None:
        known["overdue"] = True
    if job.error is not None and job.status is not Status.PROCESSING:
        known["error"] = job.error
    if job.finished_at is not None and job.started_at is not None:
        known["seconds"] = job.finished_at - job.started_at
    if job.tracestate is not None:
        known.update(_trace_of(job))
    return known


def _trace_of(job: Job) -> dict[str, str]:
    """The trace context of a traced job."""
    parent = render_traceparent(job.trace_id or "", send_span_id(job.id))
    return {"traceparent": parent, **({"tracestate": job.tracestate} if job.tracestate else {})}


def _instant(at: float | None) -> str | None:
    return None if at is None else render_instant(at)


def wire_job(job: Job, progress: Progress | None, eta: Eta | None, base: str = "") -> JobStatus:
    """The status resource; `progress` is the live one when there is one, `base` where the API is mounted."""
    here = f"{base}/jobs/{job.id}"
    links = {
        "self": here,
        "result": here + "/result",
        "cancel": here + "/cancel",
        "retry": here + "/retry",
    }
    if job.parent is not None:
        links["parent"] = f"{base}/jobs/{job.parent}"
    created_at = render_instant(job.created_at)
    return JobStatus(
        job_id=job.id,
        kind=job.kind,
        status=job.status,
        cancel_requested=job.cancel_asked_at is not None,
        overdue=job.overdue_at is not None,
        progress=progress or job.progress,
        eta=eta,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        priority=job.priority,
        queue=job.queue,
        labels=job.labels,
        created_at=created_at,
        run_at=_instant(job.run_at),
        started_at=_instant(job.started_at),
        next_attempt_at=_instant(job.next_attempt_at),
        finished_at=_instant(job.finished_at),
        updated_at=created_at if job.updated_at == job.created_at else render_instant(job.updated_at),
        expires_at=_instant(job.expires_at),
        deadline=_instant(job.deadline),
        steps=tuple(
            [
                WireStep(s.name, s.status, _instant(s.started_at), _instant(s.finished_at))
                for s in job.steps
            ]
        ),
        children=tuple([WireChild(c.job_id, c.kind, c.status) for c in job.children]),
        result=job.result,
        files=tuple(
            [
                WireFile(f.name, f.content_type, f.size, f.sha256, f"{here}/files/{quote(f.name)}")
                for f in job.files
            ]
        ),
        error=job.error,
        trace_id=job.trace_id or None,
        links=links,
    )


encode = msgspec.json.Encoder().encode
_read_job_status = msgspec.json.Decoder(JobStatus)


def read_job(body: bytes) -> JobStatus:
    """msgspec.ValidationError or DecodeError when it is not a status resource."""
    return _read_job_status.decode(body)


def etag(job: Job, progress_number: int) -> str:
    return f'"{job.version}.{progress_number}"'


def render_problem(problem: Problem, instance: str, trace_id: str, base: str = "") -> bytes:
    document: dict[str, Any] = {
        "type": f"{base}/problems/{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": instance,
        "code": problem.code,
        "retryable": problem.retryable,
        "traceId": trace_id,
    }
    if problem.errors is not None:
        document["errors"] = problem.errors
    if problem.members:
        document.update(problem.members)
    return encode(document)


class Preferences(msgspec.Struct, frozen=True):
    """The preferences in a Prefer header (RFC 7240) that bide supports."""

    wait: float | None = None
    respond_async: bool = False


_NO_PREFERENCES = Preferences()


def read_prefer(values: Iterable[str]) -> Preferences:
    """Read Prefer headers. Unknown and malformed preferences are ignored (RFC 7240); the first of a name counts."""
    wait: float | None = None
    respond_async = False
    for value in values:
        for part in value.split(","):
            name, _, argument = part.split(";", 1)[0].partition("=")
            name = name.strip().lower()
            if name == "respond-async":
                respond_async = True
            elif name == "wait" and wait is None:
                digits = argument.strip().strip('"').strip()
                if digits.isascii() and digits.isdigit():
                    wait = min(float(digits[:9]), MAX_WAIT)
    return Preferences(wait, respond_async) if wait is not None or respond_async else _NO_PREFERENCES


_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')


def read_idempotency_key(value: str | None) -> str | None:
    """Read a structured-field string or a bare value, if there is one; MalformedRequest if it is neither."""
    if value is None:
        return None
    text = value.strip()
    if text.startswith('"'):
        match = _QUOTED.fullmatch(text)
        if match is None:
            raise MalformedRequest('Idempotency-Key: the quotes do not match. Use the form "a-key"')
        text = re.sub(r"\\(.)", r"\1", match[1])
    if not text or len(text) > 255 or not text.isascii() or not text.isprintable():
        raise MalformedRequest("Idempotency-Key must have 1 to 255 printable ASCII characters")
    return text


def etag_matches(header: str, etag: str, *, weak: bool = True) -> bool:
    """Return whether an If-None-Match (weak comparison) or If-Match (strong) header contains this ETag."""
    if header.strip() == "*":
        return True
    names = (name.strip() for name in header.split(","))
    if weak:
        return etag in (name.removeprefix("W/") for name in names)
    return etag in names


def later_etag(header: str, etag: str) -> str | None:
    """Return the ETag in an If-None-Match header that has the same version as this one and a later progress."""
    version, _, number = etag.strip('"').partition(".")
    for name in header.split(","):
        text = name.strip().removeprefix("W/")
        of, _, later = text.strip('"').partition(".")
        digits = later.isascii() and later.isdigit() and len(later) < 16
        if of == version and digits and text == f'"{of}.{later}"' and int(later) > int(number):
            return text
    return None


def render_cursor(job_id: str, rank: float | None = None) -> str:
    text = f"1:{job_id}" if rank is None else f"2:{job_id}:{rank!r}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(text: str) -> tuple[str, float | None]:
    """Return the job id after which a list continues, and its rank in a list by duration; BadCursor if the text is not a
    cursor.
    """
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
    except (binascii.Error, ValueError, UnicodeError):
        raw = ""
    version, _, rest = raw.partition(":")
    job_id, _, digits = rest.partition(":")
    if is_job_id(job_id):
        if version == "1" and not digits:
            return job_id, None
        if version == "2" and _RANK.fullmatch(digits):
            return job_id, float(digits)
    raise BadCursor("the cursor is not one that this service returned")


_RANK = re.compile(r"[0-9.e+-]{1,30}(?<![e.+-])")
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ID_CHARACTERS = frozenset(_ALPHABET)
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_FIVE_BITS = bytes(ord(_ALPHABET[byte & 31]) for byte in range(256))
ID_PATTERN = f"[{_ALPHABET}]{{26}}"
_JOB_ID = re.compile(ID_PATTERN)


def is_job_id(text: str) -> bool:
    return _JOB_ID.fullmatch(text) is not None


def job_id(now: float, randomness: bytes) -> str:
    """Return 26 characters that sort by time (48 bits of milliseconds) and cannot be guessed (80 random bits).

    Five bits of each of 16 random bytes are used.
    """
    ms = int(now * 1000)
    time = "".join([_PAIRS[ms >> shift & 1023] for shift in (40, 30, 20, 10, 0)])
    return time + randomness[:16].translate(_FIVE_BITS).decode()


def read_instant_at(pointer: str, text: str) -> float:
    """Return the instant of a field or of a query parameter; InvalidInput, which names it, if it is not RFC 3339."""
    try:
        return read_instant(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInput.at(pointer, f"not an RFC 3339 instant: {error}") from None


def quote(name: str) -> str:
    """Return a percent-encoded path segment."""
    from urllib.parse import quote as percent

    return percent(name, safe="")
