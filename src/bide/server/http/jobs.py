"""GET /jobs/{id} and GET /jobs: the status of one job, and lists of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from bide.core.errors import BadCursor, Gone, InvalidInput, NotFound, Overloaded, QueryTimeout
from bide.core.jobs.record import Status
from bide.core.wire.http import (
    JobStatus,
    encode,
    is_job_id,
    read_cursor,
    read_instant_at,
    read_prefer,
    render_cursor,
)
from bide.core.wire.query import MAX_LENGTH
from bide.server.http.history import attempts_and_log
from bide.server.http.request import (
    HttpRequest,
    Response,
    json_response,
    object_response,
    wrong_parameter,
)
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec
from bide.server.http.status import (
    IF_NONE_MATCH,
    JOB_ID,
    PREFER,
    UNCACHED,
    JobView,
    find,
    hold,
    poll_headers,
    retry_after_header,
    view,
)
from bide.server.search import FilterFields, read_filter
from bide.server.store import Filter, Missing, Order, Position, position_of

INCLUDES = frozenset({"input", "attempts", "log"})
MAX_IDS = 100
MAX_LIMIT = 100
MAX_COUNT = 10_000
RENDERED = 3  # jobs of a list that are rendered at once, in a tenth of a millisecond
ORDERS: tuple[Order, ...] = get_args(Order)


class WireCount(msgspec.Struct):
    """How many jobs match, counted up to a limit; `more`: there are more than that."""

    value: int
    more: bool


class WireJobs(msgspec.Struct):
    """Jobs; `next` is the cursor of the next page, `missing` lists the ids for which no job exists."""

    jobs: list[JobStatus]
    next: str | None = None
    missing: list[str] = []
    count: WireCount | msgspec.UnsetType = msgspec.UNSET  # only with ?count=true


# --- one job


async def status(request: HttpRequest) -> Response:
    job_id = request.args[0]
    includes = _includes(request) if request.scope["query_string"] else frozenset[str]()
    known = request.header(b"if-none-match")
    preferred = request.header(b"prefer")
    wait = read_prefer((preferred,)).wait if preferred is not None else None
    if wait is None:
        shown = JobView(request, await find(request, job_id))
        held = []
    else:
        shown = await hold(request, job_id, wait, view, _end_of_poll(known))
        held = [(b"preference-applied", b"wait=%d" % wait)]
    # A log line does not change the ETag, so a request for the log never gets 304.
    same = shown.matching_etag(known) if known is not None and "log" not in includes else None
    seconds = shown.retry_after()
    headers = [(b"etag", (same or shown.tag).encode())]
    if held or "log" in includes:
        headers += [*retry_after_header(seconds), *UNCACHED, *held]
    else:
        headers += poll_headers(seconds)
    if same is not None:
        return Response(304, headers)
    if not includes:
        return json_response(200, shown.body(), *headers)
    wire = shown.wire()
    await _add(request, wire, includes)
    return json_response(200, encode(wire), *headers)


def _end_of_poll(known: str | None) -> Callable[[JobView], bool]:
    """Return the condition that ends a long poll: the end of the job or, with If-None-Match, any change."""
    if known is None:
        return lambda shown: shown.job.status.terminal
    return lambda shown: shown.job.status.terminal or shown.matching_etag(known) is None


def _includes(request: HttpRequest) -> frozenset[str]:
    values = request.query.get("include", ())
    names = {name.strip(" ") for value in values for name in value.split(",")} - {""}
    if unknown := names - INCLUDES:
        detail = f"unknown: {', '.join(sorted(unknown))[:100]}; use {', '.join(sorted(INCLUDES))}"
        raise wrong_parameter("include", detail)
    return frozenset(names)


async def _add(request: HttpRequest, wire: JobStatus, includes: frozenset[str]) -> None:
    if "input" in includes:
        raw = await request.components.store.input(wire.job_id)
        wire.input = msgspec.Raw(request.components.registry.shown_input(wire.kind, raw))
    if includes & {"attempts", "log"}:
        attempts, log = await attempts_and_log(request.components.store, request.tenant, wire.job_id)
        if "attempts" in includes:
            wire.attempts = attempts
        if "log" in includes:
            wire.log = log


# --- lists


async def listing(request: HttpRequest) -> Response:
    if "id" in request.query:
        return await _by_id(request, request.query["id"])
    request.components.admission.check_load()
    filter, counted = _filter(request), _flag(request, "count")
    if filter is None:
        return object_response(WireJobs([], count=WireCount(0, False) if counted else msgspec.UNSET))
    store = request.components.store
    # Read one more than requested, to know whether there is a next page.
    found = await store.find(replace(filter, limit=filter.limit + 1))
    page = found[: filter.limit]
    await request.components.progress.refresh(page)
    rendered: list[Any] = []
    for number, job in enumerate(page):
        if number and number % RENDERED == 0:
            await asyncio.sleep(0)  # let other requests be answered
        rendered.append(msgspec.Raw(encode(JobView(request, job).wire())))
    jobs = WireJobs(rendered)
    if len(found) > len(page):
        last = position_of(page[-1], filter.order)
        jobs.next = render_cursor(last.id, last.rank)
    if counted:
        whole = filter.after is None and len(found) <= filter.limit and filter.order != "longest"
        number = len(found) if whole else await store.count(filter, MAX_COUNT + 1)
        jobs.count = WireCount(min(number, MAX_COUNT), number > MAX_COUNT)
    return object_response(jobs)


async def _by_id(request: HttpRequest, ids: list[str]) -> Response:
    others = [name for name in request.query if name != "id"]
    if others:
        raise wrong_parameter(others[0], "cannot be combined with id")
    if len(ids) > MAX_IDS:
        raise wrong_parameter("id", f"{len(ids)} ids; at most {MAX_IDS} are allowed per request")
    wanted = list(dict.fromkeys(ids))
    possible = [job_id for job_id in wanted if is_job_id(job_id)]
    found = await request.components.store.get(possible)
    sees = request.principal.sees
    existing = [job for job in found if not isinstance(job, Missing) and sees(job)]
    await request.components.progress.refresh(existing)
    shown = [JobView(request, job) for job in existing]
    found_ids = {s.job.id for s in shown}
    hints = [seconds for s in shown if (seconds := s.retry_after()) is not None]
    seconds = min(hints, default=None)
    jobs = WireJobs(
        [s.wire() for s in shown], None, [job_id for job_id in wanted if job_id not in found_ids]
    )
    return object_response(jobs, *poll_headers(seconds))


def _filter(request: HttpRequest) -> Filter | None:
    """The filter of the request; None if no job can match."""
    cursor, order = request.one("cursor"), _order(request.one("order"))
    fields = FilterFields(
        q=request.one("q"),
        status=tuple(_status(value) for value in request.query.get("status", ())),
        kind=request.one("kind"),
        queue=request.one("queue"),
        label=_label(request.one("label")),
        code=request.one("code"),
        created_after=read_instant_parameter(request, "createdAfter"),
        created_before=read_instant_parameter(request, "createdBefore"),
    )
    limit = read_limit(request.one("limit"))
    after = None if cursor is None else Position(*read_cursor(cursor))
    if after is not None and (after.rank is not None) != (order == "longest"):
        raise BadCursor("the cursor belongs to a list in another order")
    found = read_filter(fields, request.components.registry, request.tenant)
    return None if found is None else replace(found, order=order, after=after, limit=limit)


def _order(text: str | None) -> Order:
    if text is None:
        return "newest"
    for order in ORDERS:
        if text == order:
            return order
    raise wrong_parameter("order", f"unknown: {text[:50]!r}; use {', '.join(ORDERS)}")


def _flag(request: HttpRequest, name: str) -> bool:
    text = request.one(name)
    if text not in (None, "true", "false"):
        raise wrong_parameter(name, "must be true or false")
    return text == "true"


def read_instant_parameter(request: HttpRequest, name: str) -> float | None:
    text = request.one(name)
    return None if text is None else read_instant_at(f"?{name}", text)


def _status(text: str) -> Status:
    try:
        return Status(text)
    except ValueError:
        known = ", ".join(s.value for s in Status)
        raise wrong_parameter("status", f"unknown: {text[:50]!r}; use {known}") from None


def _label(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, colon, value = text.partition(":")
    if not colon:
        raise wrong_parameter("label", "write it as key:value")
    return name, value


def read_limit(text: str | None) -> int:
    if text is None:
        return 50
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MAX_LIMIT):
        raise wrong_parameter("limit", f"must be a whole number from 1 to {MAX_LIMIT}")
    return int(text)


def _query(name: str, description: str, **schema: object) -> Parameter:
    return Parameter(name, "query", description, dict(schema) or {"type": "string"})


OPERATIONS = [
    HttpOperation(
        "GET",
        "/jobs/{jobId}",
        status,
        "getJob",
        "Get a job",
        "jobs",
        description="With `Prefer: wait=N` the service holds the response until the job has ended or, with "
        "`If-None-Match`, until the ETag differs. `Retry-After` says when to poll again.",
        parameters=(
            JOB_ID,
            PREFER,
            IF_NONE_MATCH,
            _query(
                "include",
                "Additional fields: `input`, `attempts`, `log`, separated by commas.",
                type="string",
                examples=["input,attempts,log"],
                pattern=r"^ *(input|attempts|log)? *(, *(input|attempts|log)? *)*$",
            ),
        ),
        scope="read",
        responses=(
            ResponseSpec(
                200,
                "The job.",
                JobStatus,
                headers=("ETag", "Retry-After", "Cache-Control", "Vary", "Preference-Applied"),
            ),
            ResponseSpec(
                304,
                "The ETag has not changed.",
                headers=("ETag", "Retry-After", "Cache-Control", "Vary"),
            ),
        ),
        problems=(NotFound, Gone, InvalidInput),
        example="$BASE/jobs/JOB_ID -H 'Prefer: wait=30'",
    ),
    HttpOperation(
        "GET",
        "/jobs",
        listing,
        "listJobs",
        "List jobs, or get many jobs by id",
        "jobs",
        description="With `id`: these jobs, and in `missing` the ids for which no job exists. Without: the jobs that match "
        "all parameters, newest first; `next` is the `cursor` of the next page.",
        parameters=(
            _query(
                "id",
                f"The id of a job; up to {MAX_IDS} of them, and no other parameter.",
                type="array",
                items={"type": "string"},
                maxItems=MAX_IDS,
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
            _query("code", "Only jobs with this code in their error."),
            _query(
                "createdAfter",
                "Only jobs that were created at this instant or later.",
                type="string",
                format="date-time",
            ),
            _query(
                "createdBefore",
                "Only jobs that were created before this instant.",
                type="string",
                format="date-time",
            ),
            _query(
                "q",
                "Terms that all must match, such as `kind:x status:ERROR label.team:ops input.video.id:42 "
                "error:OCR_TIMEOUT step:probe`. A term without a field is the begin of an id, or the value of a label.",
                type="string",
                maxLength=MAX_LENGTH,
            ),
            _query(
                "order",
                "`longest`: the running jobs first, then the ended ones by the duration of their last attempt.",
                type="string",
                enum=[*ORDERS],
                default="newest",
            ),
            _query(
                "count",
                f"`true`: also count the jobs that match, up to {MAX_COUNT:,}.",
                type="string",
                enum=["true", "false"],
            ),
            _query(
                "limit", "The number of jobs.", type="integer", minimum=1, maximum=MAX_LIMIT, default=50
            ),
            _query("cursor", "`next` of the previous page."),
        ),
        scope="read",
        responses=(
            ResponseSpec(200, "The jobs.", WireJobs, headers=("Retry-After", "Cache-Control", "Vary")),
        ),
        problems=(BadCursor, InvalidInput, QueryTimeout, Overloaded),
        example="'$BASE/jobs?status=ERROR&limit=10'",
    ),
]
