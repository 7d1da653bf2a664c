"""GET /jobs/{id} and GET /jobs: how a job is going, and which jobs there are."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bide.core.errors import BadCursor, Gone, InvalidInput, NotFound
from bide.core.record import Status
from bide.core.wire import (
    WireJob,
    encode,
    is_job_id,
    read_cursor,
    read_prefer,
    render_cursor,
)
from bide.server.http.exchange import Answer, Request, json_answer, object_answer, wrong_parameter
from bide.server.http.history import attempts_and_log
from bide.server.http.operations import Operation, Parameter, Reply
from bide.server.http.status import IF_NONE_MATCH, JOB_ID, PREFER, Shown, find, hold
from bide.server.store import Filter, Missing

INCLUDES = frozenset({"input", "attempts", "log"})
MOST_IDS = 100
MOST_LISTED = 100


class Jobs(msgspec.Struct):
    """Jobs; `next` is the cursor for the ones after them, `missing` are the ids that are no jobs."""

    jobs: list[WireJob]
    next: str | None = None
    missing: list[str] = []


# --- one


async def status(request: Request) -> Answer:
    job_id = request.args[0]
    includes = _includes(request) if request.scope["query_string"] else frozenset[str]()
    known = request.header(b"if-none-match")
    preferred = request.header(b"prefer")
    wait = read_prefer((preferred,)).wait if preferred is not None else None
    if wait is None:
        shown = Shown(request, await find(request.parts, job_id))
        applied = []
    else:
        shown = await hold(request, job_id, wait, _news(known))
        applied = [(b"preference-applied", b"wait=%d" % wait)]
    # A log line is no version: whoever asks for the log always gets it.
    same = shown.known_as(known) if known is not None and "log" not in includes else None
    headers = [(b"etag", (same or shown.tag).encode()), *shown.hint(), *applied]
    if same is not None:
        return Answer(304, headers)
    if not includes:
        return json_answer(200, shown.body(), *headers)
    wire = shown.wire()
    await _add(request, wire, includes)
    return json_answer(200, encode(wire), *headers)


def _news(known: str | None) -> Callable[[Shown], bool]:
    """Whether there is something to tell: the end, or, to those who name what they know, any change."""
    if known is None:
        return lambda shown: shown.job.status.terminal
    return lambda shown: shown.job.status.terminal or shown.known_as(known) is None


def _includes(request: Request) -> frozenset[str]:
    names = {name.strip() for value in request.query.get("include", ()) for name in value.split(",")} - {
        ""
    }
    if unknown := names - INCLUDES:
        detail = f"no {', '.join(sorted(unknown))[:100]}; there are {', '.join(sorted(INCLUDES))}"
        raise wrong_parameter("include", detail)
    return frozenset(names)


async def _add(request: Request, wire: WireJob, includes: frozenset[str]) -> None:
    if "input" in includes:
        wire.input = msgspec.Raw(await request.parts.store.input(wire.job_id))
    if includes & {"attempts", "log"}:
        attempts, log = await attempts_and_log(request.parts.store, wire.job_id)
        if "attempts" in includes:
            wire.attempts = attempts
        if "log" in includes:
            wire.log = log


# --- many


async def listing(request: Request) -> Answer:
    if "id" in request.query:
        return await _by_id(request, request.query["id"])
    filter = _filter(request)
    # One more than asked for tells whether there are more.
    found = await request.parts.store.find(msgspec.structs.replace(filter, limit=filter.limit + 1))
    page = found[: filter.limit]
    await request.parts.progress.refresh(page)
    return object_answer(
        Jobs(
            [Shown(request, job).wire() for job in page],
            render_cursor(page[-1].id) if len(found) > len(page) else None,
        )
    )


async def _by_id(request: Request, ids: list[str]) -> Answer:
    others = [name for name in request.query if name != "id"]
    if others:
        raise wrong_parameter(others[0], "cannot be combined with id")
    if len(ids) > MOST_IDS:
        raise wrong_parameter("id", f"{len(ids)} ids; at most {MOST_IDS} are answered at once")
    wanted = list(dict.fromkeys(ids))
    possible = [job_id for job_id in wanted if is_job_id(job_id)]
    found = await request.parts.store.get(possible)
    there_are = [job for job in found if not isinstance(job, Missing)]
    await request.parts.progress.refresh(there_are)
    shown = [Shown(request, job) for job in there_are]
    there = {s.job.id for s in shown}
    hints = [seconds for s in shown if (seconds := s.retry_after()) is not None]
    headers = [(b"retry-after", b"%d" % min(hints))] if hints else []
    jobs = Jobs([s.wire() for s in shown], None, [job_id for job_id in wanted if job_id not in there])
    return object_answer(jobs, *headers)


def _filter(request: Request) -> Filter:
    cursor = request.one("cursor")
    return Filter(
        status=frozenset(_status(value) for value in request.query.get("status", ())),
        kind=request.one("kind"),
        queue=request.one("queue"),
        label=_label(request.one("label")),
        before=read_cursor(cursor) if cursor is not None else None,
        limit=_limit(request.one("limit")),
    )


def _status(text: str) -> Status:
    try:
        return Status(text)
    except ValueError:
        there_are = ", ".join(s.value for s in Status)
        raise wrong_parameter("status", f"no {text[:50]!r}; there are {there_are}") from None


def _label(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, colon, value = text.partition(":")
    if not colon:
        raise wrong_parameter("label", "write it as key:value")
    return name, value


def _limit(text: str | None) -> int:
    if text is None:
        return 50
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MOST_LISTED):
        raise wrong_parameter("limit", f"a whole number from 1 to {MOST_LISTED} is needed")
    return int(text)


def _query(name: str, description: str, **schema: object) -> Parameter:
    return Parameter(name, "query", description, dict(schema) or {"type": "string"})


OPERATIONS = [
    Operation(
        "GET",
        "/jobs/{jobId}",
        status,
        "getJob",
        "How a job is going",
        "jobs",
        description="With `Prefer: wait=N` the answer is held until the job has ended or, with `If-None-Match`, "
        "until the ETag differs. `Retry-After` says when it is worth asking again.",
        parameters=(
            JOB_ID,
            PREFER,
            IF_NONE_MATCH,
            _query(
                "include",
                "What else to tell: `input`, `attempts`, `log`, separated by commas.",
                type="string",
                examples=["input,attempts,log"],
                pattern=r"^ *(input|attempts|log)? *(, *(input|attempts|log)? *)*$",
            ),
        ),
        replies=(
            Reply(200, "The job.", WireJob, headers=("ETag", "Retry-After", "Preference-Applied")),
            Reply(304, "The ETag is still the same.", headers=("ETag", "Retry-After")),
        ),
        problems=(NotFound, Gone, InvalidInput),
        example="$BASE/jobs/JOB_ID -H 'Prefer: wait=30'",
    ),
    Operation(
        "GET",
        "/jobs",
        listing,
        "listJobs",
        "Many jobs at once, or the list of jobs",
        "jobs",
        description="With `id`: these jobs, and which of the ids are none. Without: the list, newest first; "
        "`next` is the `cursor` of the following page.",
        parameters=(
            _query(
                "id",
                f"A job's id; up to {MOST_IDS} of them, and no other parameter.",
                type="array",
                items={"type": "string"},
                maxItems=MOST_IDS,
            ),
            _query(
                "status",
                "Only jobs in one of these statuses.",
                type="array",
                items={"type": "string", "enum": [s.value for s in Status]},
            ),
            _query("kind", "Only jobs of this kind."),
            _query("queue", "Only jobs of this queue."),
            _query(
                "label", "Only jobs with this label, as key:value.", type="string", pattern="^[^:]*:"
            ),
            _query("limit", "How many.", type="integer", minimum=1, maximum=MOST_LISTED, default=50),
            _query("cursor", "`next` of the page before."),
        ),
        replies=(Reply(200, "The jobs.", Jobs, headers=("Retry-After",)),),
        problems=(BadCursor, InvalidInput),
        example="'$BASE/jobs?status=ERROR&limit=10'",
    ),
]
