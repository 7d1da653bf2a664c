"""GET /jobs/{id}/events and GET /events: the event log as Server-Sent Events, and as pages of JSON.

1. A stream begins with a snapshot, or continues after a cursor. A cursor that cannot be continued gets `reset` with a
   snapshot, never a gap.
2. The stream of a job ends with `end` after the job's terminal event. A stream that closes otherwise was interrupted.
3. An event is written to the connection when it is committed, without a task switch, unless the client reads slowly. Then
   events wait up to a limit, and the stream of a client that is slower than that is closed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.clock import render_instant
from bide.core.errors import (
    BadCursor,
    Forbidden,
    Gone,
    InvalidInput,
    NotFound,
    Problem,
    QuotaExceeded,
    Unavailable,
)
from bide.core.wire.events import (
    ALL_TYPES,
    COMMENT,
    CURSOR_PATTERN,
    LOG_TYPES,
    SSE_TYPE,
    EventCursor,
    EventMessage,
    WireEvent,
    encode,
    read_event_cursor,
    render_sse,
)
from bide.core.wire.http import ID_PATTERN, MAX_HOLD, is_job_id, read_prefer
from bide.server.events.broadcaster import COURSE, Broadcaster, EventSubscription
from bide.server.events.selection import EventSelection
from bide.server.http.continuation import finish
from bide.server.http.queues import known_queues
from bide.server.http.request import (
    STREAM,
    Disconnected,
    Headers,
    HttpRequest,
    Receive,
    Response,
    Scope,
    Send,
    object_response,
    wrong_parameter,
)
from bide.server.http.routing import TOKEN, HttpOperation, Parameter, ResponseSpec
from bide.server.http.status import JOB_ID, PREFER, JobView, find
from bide.server.identities import Principal
from bide.server.store import EventFilter

MAX_EVENTS = 1000  # of one page
MAX_EXAMINED = 10_000  # events that are read for one page; a filter may select few of them
MAX_IDS = 100
MAX_WAITING_BYTES = 16 * 1024 * 1024  # of events that wait for a slow listener
# Milliseconds; random, so that the listeners of a service that restarts do not return all at once.
RETRY = (1000, 5000)
# At the end of a stream whose credential is no longer valid: a listener with a newer token continues at once.
RENEW = b"retry: 10\n\n"
_VARY = (b"vary", b"Accept, Prefer, Authorization")
_NO_STORE: Headers = [(b"cache-control", b"no-store"), _VARY]
_SSE: Headers = [
    (b"content-type", SSE_TYPE.encode()),
    *_NO_STORE,
    (b"x-accel-buffering", b"no"),
]


class WireEventPage(msgspec.Struct):
    """Events. `next` is the `after` of the next request. `ended`: the job has ended, and no events follow. `more`, only if
    it is true: the log already has later events, which may be selected, also if this page is empty.
    """

    events: list[WireEvent]
    next: str
    ended: bool
    more: bool | msgspec.UnsetType = msgspec.UNSET


# --- requests


async def of_job(request: HttpRequest) -> Response:
    job_id = request.args[0]
    job = await find(request, job_id)
    selection = EventSelection(
        request.tenant, jobs=frozenset({job.id}), types=_types(request.query.get("type", ()), ALL_TYPES)
    )
    return await _respond(request, selection, JobView(request, job))


async def output(request: HttpRequest) -> Response:
    """The output stream of a job. Without a cursor it begins with the first chunk."""
    job = await find(request, request.args[0])
    selection = EventSelection(request.tenant, jobs=frozenset({job.id}), types=frozenset({"output"}))
    return await _respond(request, selection, JobView(request, job), begin=0)


async def of_all(request: HttpRequest) -> Response:
    return await _respond(request, read_selection(request.principal, request.query), None)


def read_selection(principal: Principal, fields: Mapping[str, Sequence[str]]) -> EventSelection:
    """Read the parameters of a filter. Raises InvalidInput, or Forbidden if the caller may not see the events of queues,
    which belong to the service and not to a tenant.
    """
    ids = fields.get("id", ())
    if len(ids) > MAX_IDS:
        raise wrong_parameter("id", f"{len(ids)} ids; at most {MAX_IDS} are allowed per request")
    for job_id in ids:
        if not is_job_id(job_id):
            raise wrong_parameter("id", f"{job_id[:50]!r} is not the id of a job")
    types = _types(fields.get("type", ()), ALL_TYPES - {"output"})
    if not principal.allows("admin"):
        if any("queue" in value.split(",") for value in fields.get("type", ())):
            raise Forbidden("`queue` events need the scope `admin`")
        types -= {"queue"}
    jobs = frozenset(ids)
    if principal.jobs is not None:
        jobs = jobs & principal.jobs if ids else principal.jobs
        if not jobs:
            raise Forbidden("the token is for none of these jobs")
    return EventSelection(
        principal.tenant,
        jobs,
        frozenset(fields.get("kind", ())),
        frozenset(fields.get("queue", ())),
        frozenset(map(_label, fields.get("label", ()))) | (principal.labels or frozenset()),
        types,
    )


def _types(values: Sequence[str], default: frozenset[str]) -> frozenset[str]:
    names = {name.strip(" ") for value in values for name in value.split(",")}
    if unknown := names - ALL_TYPES:
        detail = f"unknown: {', '.join(sorted(unknown))[:100]}; use {', '.join(sorted(ALL_TYPES))}"
        raise wrong_parameter("type", detail)
    return frozenset(names) or default


def _label(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise wrong_parameter("label", "write it as key:value")
    return name, value


def _cursor(request: HttpRequest) -> EventCursor | None:
    """The cursor of the request. `Last-Event-ID` counts more: a browser repeats the URL when it reconnects."""
    after = request.one("after")
    cursor = None if after is None else read_event_cursor(after)
    last = request.header(b"last-event-id")
    return read_event_cursor(last) if last else cursor


def wants_stream(accept: str | None) -> bool:
    """Whether an Accept header prefers Server-Sent Events to JSON."""
    quality = {"text/event-stream": 0.0, "application/json": 0.0}
    for part in (accept or "").split(","):
        name, *parameters = (text.strip().lower() for text in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if name in quality:
            quality[name] = max(quality[name], weight)
    return quality["text/event-stream"] > quality["application/json"]


async def _respond(
    request: HttpRequest,
    selection: EventSelection,
    view: JobView | None,
    begin: int | None = None,
) -> Response:
    """`begin` is the position of a stream without a cursor; None: it begins with a snapshot."""
    broadcaster = request.components.events
    cursor = _cursor(request)
    position = begin
    if cursor is not None:
        position = await find_position(broadcaster, selection, cursor, view)
    if not wants_stream(request.header(b"accept")):
        return await _page(request, selection, view, cursor, position)
    over = False  # the caller has seen the terminal event
    if view is not None and view.job.status.terminal and position is not None:
        if not await follows(broadcaster, selection, position):
            return Response(204, _NO_STORE)
        over = not await follows(broadcaster, selection, position, COURSE)
    if request.scope["method"] == "HEAD":
        return Response(200, _SSE)
    if broadcaster.closed:
        raise Unavailable("the service is stopping")

    close = await request.components.limits.open_stream(request.tenant)

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            opened = EventStream(request, selection, view, send)
            await opened.run(position, cursor, over=over)
        finally:
            close()

    return Response(200, _SSE, stream=stream)


async def find_position(
    broadcaster: Broadcaster, selection: EventSelection, cursor: EventCursor, view: JobView | None
) -> int | None:
    """The number after which the caller continues; None if the cursor cannot be continued."""
    log = await broadcaster.read(EventFilter(selection.tenant, limit=0))
    # The events of a job are in the log as long as the job. Of removed jobs, only the newest removals are.
    floor = 0 if view is not None else log.floor
    if cursor.epoch != log.epoch or not floor <= cursor.number <= log.last:
        return None
    return cursor.number


async def follows(
    broadcaster: Broadcaster, selection: EventSelection, position: int, types: tuple[str, ...] = ()
) -> bool:
    """Whether the log has later events of the selected jobs, of these types."""
    rest = replace(selection.in_log(position, None, 1), types=types)
    return bool((await broadcaster.read(rest)).events)


# --- snapshots


async def make_snapshot(request: HttpRequest, view: JobView | None) -> bytes:
    """What a listener needs to know before it gets events: the job, or the counts of all queues."""
    if view is not None:
        return view.body()
    if not request.principal.allows("admin"):  # the counts are those of all tenants
        return encode({"queues": []})
    return encode({"queues": await known_queues(request.components)})


async def _reset_event(request: HttpRequest, view: JobView | None, cursor: EventCursor) -> WireEvent:
    return WireEvent(
        id=str(cursor),
        job_id=None if view is None else view.job.id,
        type="reset",
        at=render_instant(request.components.store.now()),
        job=msgspec.json.decode(await make_snapshot(request, view)),
    )


# --- pages


class _Wake:
    """A subscriber that only waits for the next event."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def deliver(self, messages: Sequence[EventMessage]) -> None:
        if not all(message.is_progress for message in messages):
            self.event.set()

    def keep_alive(self) -> None:
        pass

    def restart(self) -> None:
        self.event.set()

    def stop(self) -> None:
        self.event.set()


async def _page(
    request: HttpRequest,
    selection: EventSelection,
    view: JobView | None,
    cursor: EventCursor | None,
    position: int | None,
) -> Response:
    broadcaster = request.components.events
    ended = view is not None and view.job.status.terminal
    if cursor is not None and position is None:
        return await _reset_page(request, view)
    wait = read_prefer((request.header(b"prefer") or "",)).wait
    held = [] if wait is None else [(b"preference-applied", b"wait=%d" % wait)]
    waiter = _Wake()
    loop = asyncio.get_running_loop()
    until = loop.time() + min(wait or 0.0, MAX_HOLD)
    with broadcaster.subscribe(selection, waiter) as subscription:
        subscription.begin(position or 0)
        page, more = await _read_page(subscription)
        while wait and not page and not more and not ended and not broadcaster.closed:
            async for _ in subscription.history():  # nothing, or what has just happened
                waiter.event.set()
            disconnected = loop.create_task(request.disconnected())
            disconnected.add_done_callback(lambda _: waiter.event.set())
            timer = loop.call_later(max(0.0, until - loop.time()), waiter.event.set)
            try:
                await waiter.event.wait()
            finally:
                timer.cancel()
                disconnected.cancel()
            if disconnected.done():
                request.check_valid()
                raise Disconnected
            waiter.event.clear()
            if cursor is not None and broadcaster.epoch != cursor.epoch:
                return await _reset_page(request, view)
            view = await _again(request, view)
            ended = view is not None and view.job.status.terminal
            subscription.begin(position or 0)
            page, more = await _read_page(subscription)
            if loop.time() >= until:
                break
        after = max(subscription.position, position or 0)
    found = WireEventPage(
        [message.wire() for message in page],
        str(EventCursor(subscription.epoch, after)),
        ended and not more,
        more or msgspec.UNSET,
    )
    return object_response(found, *_NO_STORE, *held)


async def _reset_page(request: HttpRequest, view: JobView | None) -> Response:
    """The current state instead of events, because the cursor cannot be continued."""
    here = request.components.events.cursor
    view = await _again(request, view)
    reset = await _reset_event(request, view, here)
    ended = view is not None and view.job.status.terminal
    return object_response(WireEventPage([reset], str(here), ended), *_NO_STORE)


async def _read_page(subscription: EventSubscription) -> tuple[list[EventMessage], bool]:
    """Up to MAX_EVENTS events, and whether the log has more."""
    found: list[EventMessage] = []
    types = subscription.selection.types  # the subscription of one job has its `status` events, too
    async for messages in subscription.read(most=MAX_EXAMINED):
        found += [message for message in messages if message.type in types]
        if len(found) >= MAX_EVENTS:
            del found[MAX_EVENTS:]
            subscription.position = found[-1].number
            return found, True
    return found, not subscription.at_end


async def _again(request: HttpRequest, view: JobView | None) -> JobView | None:
    """The job as it is now."""
    return None if view is None else JobView(request, await find(request, view.job.id))


# --- streams


class EventStream:
    """A response with Server-Sent Events. It is the `Subscriber` of its subscription."""

    def __init__(
        self,
        request: HttpRequest,
        selection: EventSelection,
        view: JobView | None,
        send: Send,
    ) -> None:
        self._request = request
        self._view = view
        self._send = send
        self._selection = selection
        self._broadcaster = request.components.events
        # A listener that names its jobs waits for their events.
        self._subscription = self._broadcaster.subscribe(selection, self, batched=not selection.jobs)
        self._limit = request.components.config.events.buffer
        # Of other servers it is not known whether `send` works outside of a task.
        self._direct = STREAM in (request.scope.get("extensions") or {})
        self._busy = True  # the task of the request sends
        self._blocked: Any = None  # a `send` that waits for the client
        self._backlog: list[bytes] = []
        self._waiting = 0  # events in the backlog
        self._waiting_bytes = 0
        self._progress: dict[str, bytes] = {}  # the latest, while the client reads slowly
        self._wake = asyncio.Event()
        self._ended = self._restarts = self._closed = False
        self._ended_after = 0  # the number of the last event before `end`
        self._retry = b"retry: %d\n" % random.randint(*RETRY)

    # --- Subscriber

    def deliver(self, messages: Sequence[EventMessage]) -> None:
        if self._ended or self._closed:
            return
        if self._view is not None:
            for i, message in enumerate(messages):
                if message.ends:
                    self._ended, self._ended_after = True, message.number
                    messages = messages[: i + 1]
                    self._wake.set()
                    break
        if len(self._selection.jobs) == 1:
            # The subscription to one job also has the events that begin and end it.
            types = self._selection.types
            messages = [m for m in messages if m.is_progress or m.type in types]
        if self._direct and not self._busy:
            self._write(b"".join([m.sse for m in messages]))
            return
        for message in messages:
            if message.is_progress:
                self._progress[message.event.job_id] = message.sse
            else:
                self._waiting += 1
                self._waiting_bytes += len(message.sse)
                self._backlog.append(message.sse)
        self._wake.set()
        if self._waiting > self._limit or self._waiting_bytes > MAX_WAITING_BYTES:
            self._close()

    def keep_alive(self) -> None:
        if self._direct and not self._busy:
            self._write(COMMENT)
        elif not self._backlog:
            self._backlog.append(COMMENT)
            self._wake.set()

    def restart(self) -> None:
        self._restarts = True
        self._wake.set()

    def stop(self) -> None:
        self._close()

    def _close(self) -> None:
        self._closed = True
        self._subscription.end()
        self._backlog.clear()
        self._progress.clear()
        self._wake.set()

    # --- the response

    async def run(self, position: int | None, cursor: EventCursor | None, *, over: bool) -> None:
        """Send events after `position`; None: a snapshot first, which is a `reset` if the caller had a cursor. `over`: no
        terminal event follows.
        """
        reset = cursor is not None
        await self._send({"type": "http.response.start", "status": 200, "headers": _SSE})
        loop = asyncio.get_running_loop()
        disconnected = loop.create_task(self._request.disconnected())
        disconnected.add_done_callback(lambda _: self._close())
        try:
            with self._subscription as subscription:
                if cursor is not None and cursor.epoch != self._broadcaster.epoch:
                    position, over = None, False  # it has just changed
                while not self._closed:
                    self._restarts = False
                    if position is None:
                        await self._start(subscription, reset=reset)
                    else:
                        subscription.begin(position)
                        await self._part(COMMENT)
                    await self._follow(subscription, over=over)
                    if not self._restarts or self._ended:
                        break
                    position, reset, over = None, True, False
            if self._ended:
                # A listener that does not get the terminal event has no other cursor that leads to 204.
                here = EventCursor(self._subscription.epoch, self._ended_after)
                await self._part(render_sse("end", b"{}", here))
            elif self._closed and not self._request.is_valid:
                await self._part(RENEW)
            await self._part(b"", more=False)
        except Problem:  # the job was removed, and the caller finds out when it reconnects
            await self._part(b"", more=False)
        finally:
            disconnected.cancel()
            if self._blocked is not None:
                self._blocked[0].close()

    async def _start(self, subscription: EventSubscription, *, reset: bool) -> None:
        """Send the current state. Events that it includes do not follow."""
        here = self._broadcaster.cursor
        if self._view is not None:
            self._view = await _again(self._request, self._view)
            assert self._view is not None
        subscription.begin(here.number, 0 if self._view is None else self._view.job.version)
        # What waits has numbers of another epoch, or will be read from the log.
        self._backlog, self._waiting, self._waiting_bytes = [], 0, 0
        snapshot = await make_snapshot(self._request, self._view)
        await self._part(
            self._take_retry() + render_sse("reset" if reset else "snapshot", snapshot, here)
        )
        self._ended = self._view is not None and self._view.job.status.terminal
        self._ended_after = here.number

    async def _follow(self, subscription: EventSubscription, *, over: bool) -> None:
        """Send events until the stream ends."""
        if self._ended:
            return
        ends = over
        async for messages in subscription.history():
            if self._closed or self._restarts:
                return
            # A terminal event that is followed by a retry does not end the stream.
            for message in messages:
                if message.ends or message.type == "status":
                    ends = message.ends
            types = self._selection.types
            data = b"".join([m.sse for m in messages if m.type in types])
            if data:
                await self._part(self._take_retry() + data)
        if self._view is not None and ends:
            self._ended, self._ended_after = True, subscription.position
        while not (self._closed or self._restarts):
            if self._blocked is not None:
                blocked, self._blocked = self._blocked, None
                await finish(*blocked)
            elif self._backlog or self._progress:
                parts = [*self._backlog, *self._progress.values()]
                self._backlog, self._progress, self._waiting, self._waiting_bytes = [], {}, 0, 0
                await self._part(self._take_retry() + b"".join(parts))
            elif self._ended:
                return
            else:
                self._busy = False
                await self._wake.wait()
                self._wake.clear()
                self._busy = True

    def _take_retry(self) -> bytes:
        """The field `retry` once, before the first event."""
        retry, self._retry = self._retry, b""
        return retry

    def _write(self, data: bytes) -> None:
        """Send without a task switch. If the client is not ready, the request's task continues."""
        if self._retry and data != COMMENT:
            data = self._take_retry() + data
        work: Any = self._send({"type": "http.response.body", "body": data, "more_body": True})
        try:
            waiting = work.send(None)
        except StopIteration:
            return
        self._busy = True
        self._blocked = (work, waiting)
        self._wake.set()

    async def _part(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


_AFTER = Parameter(
    "after",
    "query",
    "Continue after this event: its `id`, or `next` of an earlier response.",
    {"type": "string", "pattern": f"^{CURSOR_PATTERN}$"},
)
_LAST_EVENT_ID = Parameter(
    "Last-Event-ID",
    "header",
    "As `after`, and counts more. Browsers send it when they reconnect.",
    {"type": "string", "pattern": f"^({CURSOR_PATTERN})?$"},
)
_TYPE = Parameter(
    "type",
    "query",
    "Only events of these types, separated by commas.",
    {"type": "array", "items": {"type": "string", "enum": [*LOG_TYPES, "progress"]}},
)


def _any_of(name: str, description: str, **schema: Any) -> Parameter:
    items = {"type": "string", **schema}
    return Parameter(name, "query", description, {"type": "array", "items": items})


_RESPONSES = (
    ResponseSpec(
        200,
        f"Server-Sent Events with `Accept: text/event-stream`, otherwise up to {MAX_EVENTS} events.",
        WireEventPage,
        content_types=("application/json", SSE_TYPE),
        headers=("Cache-Control", "Vary", "Preference-Applied"),
    ),
)

OPERATIONS = [
    HttpOperation(
        "GET",
        "/jobs/{jobId}/events",
        of_job,
        "getJobEvents",
        "Get the events of a job, as a stream or in pages",
        "events",
        description="A stream begins with `snapshot`, the status resource, or continues after a cursor; `reset` has a new "
        "snapshot if that is not possible. After the terminal event it sends `end` and closes. A page has the events after "
        "the cursor; with `Prefer: wait=N` the service holds the response until there is one.",
        parameters=(JOB_ID, _AFTER, _LAST_EVENT_ID, PREFER, _TYPE, TOKEN),
        scope="read",
        responses=(
            *_RESPONSES,
            ResponseSpec(
                204,
                "The job has ended, and no events follow the cursor of the stream.",
                headers=("Cache-Control", "Vary"),
            ),
        ),
        problems=(NotFound, Gone, BadCursor, InvalidInput, Unavailable, QuotaExceeded),
        example="-N $BASE/jobs/JOB_ID/events -H 'Accept: text/event-stream'",
    ),
    HttpOperation(
        "GET",
        "/jobs/{jobId}/stream",
        output,
        "getJobOutput",
        "Get the output stream of a job",
        "events",
        description="What the handler has emitted with `ctx.emit`: `output` is the data, `generation` changes when another "
        "attempt begins, and `index` is the number of the chunk in it. As a stream or in pages, like the events of the job; "
        "without a cursor from the first chunk on.",
        parameters=(JOB_ID, _AFTER, _LAST_EVENT_ID, PREFER, TOKEN),
        scope="read",
        responses=(
            *_RESPONSES,
            ResponseSpec(
                204,
                "The job has ended, and no output follows the cursor of the stream.",
                headers=("Cache-Control", "Vary"),
            ),
        ),
        problems=(NotFound, Gone, BadCursor, InvalidInput, Unavailable, QuotaExceeded),
        example="-N $BASE/jobs/JOB_ID/stream -H 'Accept: text/event-stream'",
    ),
    HttpOperation(
        "GET",
        "/events",
        of_all,
        "getEvents",
        "Get the events of all jobs, as a stream or in pages",
        "events",
        description="As the events of one job. The snapshot has the counts of all queues. Events of the type `output` are "
        "only included with `type=output`.",
        parameters=(
            _any_of("kind", "Only events of jobs of one of these kinds."),
            _any_of("queue", "Only events of jobs of one of these queues, and of the queues."),
            _any_of(
                "label", "Only events of jobs with all these labels, as key:value.", pattern="^[^:]*:"
            ),
            _TYPE,
            Parameter(
                "id",
                "query",
                f"Only events of these jobs, at most {MAX_IDS}.",
                {
                    "type": "array",
                    "items": {"type": "string", "pattern": f"^{ID_PATTERN}$"},
                    "maxItems": MAX_IDS,
                },
            ),
            _AFTER,
            _LAST_EVENT_ID,
            PREFER,
            TOKEN,
        ),
        scope="read",
        narrows=True,
        responses=_RESPONSES,
        problems=(BadCursor, InvalidInput, Unavailable, QuotaExceeded),
        example="'$BASE/events?type=status&kind=encode'",
    ),
]
