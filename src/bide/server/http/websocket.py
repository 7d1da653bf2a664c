"""WS /ws: many subscriptions to the event log on one WebSocket, over ASGI only.

1. The client sends JSON messages that subscribe and unsubscribe; the service sends the events of `server/http/events.py`.
   Anything else closes the WebSocket, with a code and a reason that says what was wrong.
2. A subscription to a job ends with `end` after the job's terminal event, and a filter never. A subscription whose cursor
   cannot be continued gets `reset` with a snapshot.
3. Events of several subscriptions that happen now are sent in the order of their numbers. An event that several
   subscriptions select is sent once.
4. The service never waits for a slow client: up to `events.buffer` events wait for it, then the WebSocket is closed. It
   reads the log for a new subscription only as fast as the client reads.
5. A WebSocket without anything to send has two tasks: one receives, and one waits for the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from bide.core.clock import render_instant
from bide.core.errors import (
    MalformedRequest,
    Problem,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
    UpgradeRequired,
)
from bide.core.wire.events import ALL_TYPES, EventCursor, EventMessage, encode, read_event_cursor
from bide.server.events.broadcaster import BATCH_INTERVAL, COURSE, Broadcaster, EventSubscription
from bide.server.events.selection import EventSelection
from bide.server.http.events import find_position, follows, make_snapshot, read_selection
from bide.server.http.request import HttpRequest, Response, Scope, Send
from bide.server.http.routing import TOKEN, HttpOperation, ResponseSpec
from bide.server.http.status import JobView, find
from bide.server.identities import Principal
from bide.server.identities.authenticator import Authenticator
from bide.server.identities.tokens import PREFIX, cached_text
from bide.server.store import StoreUnavailable

log = logging.getLogger("bide.http")

PATH = "/ws"
SUBPROTOCOL = "bide.v1"
DENIAL = "websocket.http.response"  # the ASGI extension for a response instead of a WebSocket
MAX_MESSAGE = 64 * 1024  # bytes; bide's own server has the same limit, other servers have a larger one
MAX_JOBS = 1000
MAX_FILTERS = 20
PART = 250  # events of the log that are queued at once
PART_BYTES = 1024 * 1024  # of the log, beyond which no more events are queued; far below MAX_BYTES
CLOSE_TIMEOUT = 5.0
MAX_REASON = 123  # bytes, by RFC 6455; some servers fail to send a longer one
MAX_BYTES = 4 * 1024 * 1024  # of events that wait for the client

# Close codes of RFC 6455 and of the registry of IANA.
STOPPING = 1001
UNSUPPORTED = 1003
INVALID = 1007
TOO_MANY = 1008
TOO_LARGE = 1009
FAILED = 1011
TRY_LATER = 1013

Values = str | list[str]


class EventFields(msgspec.Struct, forbid_unknown_fields=True):
    """A filter: the parameters of GET /events."""

    kind: Values = []
    queue: Values = []
    label: Values = []
    type: Values = []
    id: Values = []

    def selection(self, principal: Principal) -> EventSelection:
        """Return what the filter selects. Raise a Problem if a value is not allowed."""
        found = {name: _listed(getattr(self, name)) for name in self.__struct_fields__}
        return read_selection(principal, found)


class SubscriptionTarget(msgspec.Struct, forbid_unknown_fields=True):
    """What a message subscribes to: either field."""

    jobs: list[str] | msgspec.UnsetType = msgspec.UNSET
    filter: EventFields | msgspec.UnsetType = msgspec.UNSET


class ClientMessage(msgspec.Struct, forbid_unknown_fields=True):
    subscribe: SubscriptionTarget | msgspec.UnsetType = msgspec.UNSET
    unsubscribe: SubscriptionTarget | msgspec.UnsetType = msgspec.UNSET
    token: str | msgspec.UnsetType = msgspec.UNSET
    after: str | None = None


_decode = msgspec.json.Decoder(ClientMessage).decode


class _Invalid(Exception):
    """The client sent something that closes the WebSocket. `args` are the code and the reason."""


def _listed(values: Values) -> list[str]:
    return [values] if isinstance(values, str) else values


# --- the handshake


async def deny(response: Response, scope: Scope, send: Send) -> None:
    """Answer a handshake with a response. A server without the extension sends 403 without a body instead."""
    if DENIAL not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": TOO_MANY})
        return
    start = {"type": f"{DENIAL}.start", "status": response.status, "headers": response.headers}
    await send(start)
    await send({"type": f"{DENIAL}.body", "body": response.body})


def check_handshake(request: HttpRequest) -> None:
    """Raise a Problem if the WebSocket cannot be accepted."""
    offered = request.scope.get("subprotocols") or []
    if offered and SUBPROTOCOL not in offered:
        names = ", ".join(offered)[:200]
        raise MalformedRequest(f"Sec-WebSocket-Protocol offers {names}; offer {SUBPROTOCOL}, or none")
    if request.components.events.closed:
        raise Unavailable("the service is stopping")


async def get_without_upgrade(request: HttpRequest) -> Response:
    raise UpgradeRequired(
        f"{PATH} is a WebSocket: connect with ws:// or wss:// and a GET request of HTTP/1.1 with `Connection: Upgrade`, "
        "`Upgrade: websocket`, `Sec-WebSocket-Version: 13` and a `Sec-WebSocket-Key`. A proxy must pass them on.",
        headers={"Upgrade": "websocket", "Sec-WebSocket-Version": "13"},
    )


# --- subscriptions


class SocketSubscription:
    """A job or a filter that the client has subscribed to; the `Subscriber` of its events."""

    __slots__ = (
        "_socket",
        "began",
        "cursor",
        "is_live",
        "job_id",
        "resets",
        "selection",
        "subscription",
    )

    def __init__(
        self,
        socket: EventSocket,
        selection: EventSelection,
        job_id: str | None,
        cursor: EventCursor | None,
    ) -> None:
        self._socket = socket
        self.selection = selection
        self.job_id = job_id  # None: a filter
        self.cursor = cursor
        self.resets = cursor is not None  # whether a snapshot is a `reset`
        self.subscription: EventSubscription | None = None
        self.began = 0  # events with a greater number are sent
        self.is_live = False  # False: the log is read for it, or will be

    # --- Subscriber

    def deliver(self, messages: Sequence[EventMessage]) -> None:
        self._socket.collect(self, messages)

    def keep_alive(self) -> None:
        """The pings of the server keep the WebSocket open."""

    def restart(self) -> None:
        self._socket.reopen(self)

    def stop(self) -> None:
        self._socket.close(STOPPING, "the service is stopping")

    # ---

    def has_sent(self, message: EventMessage) -> bool:
        """Whether this event is among those that were sent, or will be, because of this subscription."""
        subscription = self.subscription
        if subscription is None or not self.began < message.number <= subscription.position:
            return False
        event, version = message.event, subscription.version
        if version and event.type in ("status", "step") and event.job["version"] <= version:
            return False  # the snapshot had it
        return event.type in self.selection.types and self.selection.matches(event)

    def enter(self, broadcaster: Broadcaster) -> EventSubscription:
        if self.subscription is None:
            self.subscription = broadcaster.subscribe(self.selection, self).__enter__()
        return self.subscription

    def leave(self) -> None:
        if self.subscription is not None:
            self.subscription.__exit__()
            self.subscription = None


class EventSocket:
    """An accepted WebSocket."""

    def __init__(self, request: HttpRequest, send: Send) -> None:
        self._request = request
        self._send = send
        self._events = request.components.events
        self._limit = request.components.config.events.buffer
        self._jobs: dict[str, SocketSubscription] = {}
        self._filters: dict[EventSelection, SocketSubscription] = {}
        self._opening: deque[SocketSubscription] = deque()
        self._opener: asyncio.Task[None] | None = None
        # What happens now, by number; an `end` follows the event with the same number.
        self._now: dict[tuple[int, int], bytes] = {}
        self._flushing: asyncio.Handle | None = None
        self._flush_at = 0.0  # when it is due
        self._flushed_at = -math.inf
        # What waits for the client.
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._progress: dict[str, bytes] = {}  # the latest of each job
        self._writer: asyncio.Task[None] | None = None
        self._drained: asyncio.Event | None = None
        self._closing: tuple[int, str] | None = None  # code and reason
        self._ended = asyncio.Event()
        self._watching = contextlib.ExitStack()

    async def run(self) -> None:
        """Serve the WebSocket until it is closed."""
        offered = self._request.scope.get("subprotocols") or []
        accept: dict[str, Any] = {"type": "websocket.accept"}
        if SUBPROTOCOL in offered:
            accept["subprotocol"] = SUBPROTOCOL
        await self._send(accept)
        reader = asyncio.get_running_loop().create_task(self._read())
        reader.add_done_callback(lambda _: self._ended.set())
        authenticator = self._request.components.authenticator
        try:
            if authenticator is None:
                await self._ended.wait()
            else:
                with self._watching:
                    self._watch(authenticator)
                    await self._ended.wait()
            if self._closing is not None:
                # Granian sends a close only if no `receive` waits.
                reader.cancel()
                await asyncio.wait([reader])
                await self._send_close(*self._closing)
            else:
                reader.result()
        finally:
            self._leave_all()
            for waiting in (reader, self._opener, self._writer, self._flushing):
                if waiting is not None:
                    waiting.cancel()

    def _watch(self, authenticator: Authenticator) -> None:
        """Close the WebSocket when its principal is no longer valid."""
        self._watching.close()
        self._watching.enter_context(authenticator.watching(self._request.principal, self._revoked))

    async def _renew(self, token: str) -> None:
        """Continue with a newer token for the same jobs."""
        authenticator, before = self._request.components.authenticator, self._request.principal
        if authenticator is None:
            return
        if not token.startswith(PREFIX):
            raise _Invalid(INVALID, "`token` is a token of POST /tokens")
        after = await authenticator.verify(token, cached_text(token))
        if (after.tenant, after.jobs, after.labels) != (before.tenant, before.jobs, before.labels):
            raise _Invalid(TOO_MANY, "the token is for other jobs than the one before")
        if not after.allows("read"):
            raise _Invalid(TOO_MANY, "the token lacks the scope `read`")
        self._request.principal = after
        self._watch(authenticator)

    def _revoked(self) -> None:
        self.close(TOO_MANY, "the credential was revoked or has expired")

    async def _read(self) -> None:
        while (message := await self._request.receive())["type"] == "websocket.receive":
            try:
                await self._handle(message)
            except _Invalid as error:
                self.close(*error.args)
            if self._closing is not None:
                return

    def close(self, code: int, reason: str) -> None:
        """Send nothing more but a close, and do not wait for a client that reads slowly."""
        if self._closing is None:
            self._closing = (code, reason.encode()[:MAX_REASON].decode(errors="ignore"))
            self._ended.set()
            self._leave_all()
            self._outbox.clear()
            self._progress.clear()
            self._now.clear()

    async def _send_close(self, code: int, reason: str) -> None:
        message = {"type": "websocket.close", "code": code, "reason": reason}
        try:
            # In some servers a close waits for the client to read. Then the end of the request closes the connection.
            await asyncio.wait_for(self._send(message), CLOSE_TIMEOUT)
        except Exception as error:  # the client has disconnected; each server reports it in its own way
            log.debug("a WebSocket was not closed: %r", error)

    def _leave_all(self) -> None:
        for feed in (*self._jobs.values(), *self._filters.values()):
            feed.leave()
        self._jobs.clear()
        self._filters.clear()
        self._opening.clear()

    # --- messages of the client

    async def _handle(self, received: Any) -> None:
        text = received.get("text")
        if text is None:
            raise _Invalid(UNSUPPORTED, "messages are JSON objects, sent as text")
        if len(text) > MAX_MESSAGE:
            raise _Invalid(TOO_LARGE, f"a message may have {MAX_MESSAGE} bytes")
        try:
            message = _decode(text)
            cursor = None if message.after is None else read_event_cursor(message.after)
            if message.token is not msgspec.UNSET:
                await self._renew(message.token)
            elif message.subscribe is not msgspec.UNSET and message.unsubscribe is msgspec.UNSET:
                self._subscribe(message.subscribe, cursor)
            elif message.unsubscribe is not msgspec.UNSET and message.subscribe is msgspec.UNSET:
                self._unsubscribe(message.unsubscribe)
            else:
                raise _Invalid(INVALID, "a message has either `subscribe` or `unsubscribe`, or `token`")
        except msgspec.MsgspecError as error:
            raise _Invalid(INVALID, f"the message is invalid: {error}") from None
        except Unauthenticated as problem:
            raise _Invalid(TOO_MANY, problem.detail) from None
        except Unavailable as problem:
            raise _Invalid(TRY_LATER, problem.detail) from None
        except Problem as problem:
            raise _Invalid(INVALID, problem.detail) from None

    def _targets(self, target: SubscriptionTarget) -> tuple[Sequence[str], EventSelection | None]:
        if target.jobs is not msgspec.UNSET and target.filter is msgspec.UNSET:
            return target.jobs, None
        if target.filter is not msgspec.UNSET and target.jobs is msgspec.UNSET:
            return (), target.filter.selection(self._request.principal)
        raise _Invalid(INVALID, "give either `jobs` or `filter`")

    def _subscribe(self, target: SubscriptionTarget, cursor: EventCursor | None) -> None:
        jobs, selection = self._targets(target)
        tenant = self._request.tenant
        for job_id in dict.fromkeys(jobs):
            if job_id not in self._jobs and len(self._jobs) >= MAX_JOBS:
                raise _Invalid(
                    TOO_MANY, f"a WebSocket may subscribe to {MAX_JOBS} jobs; open another one"
                )
            self._discard(self._jobs.get(job_id))
            of_job = EventSelection(tenant, jobs=frozenset({job_id}), types=ALL_TYPES)
            self._jobs[job_id] = self._open(SocketSubscription(self, of_job, job_id, cursor))
        if selection is not None:
            if selection not in self._filters and len(self._filters) >= MAX_FILTERS:
                raise _Invalid(TOO_MANY, f"a WebSocket may have {MAX_FILTERS} filters; open another one")
            self._discard(self._filters.get(selection))
            self._filters[selection] = self._open(SocketSubscription(self, selection, None, cursor))

    def _unsubscribe(self, target: SubscriptionTarget) -> None:
        jobs, selection = self._targets(target)
        for job_id in jobs:
            self._discard(self._jobs.get(job_id))
        if selection is not None:
            self._discard(self._filters.get(selection))

    def _discard(self, feed: SocketSubscription | None) -> None:
        if feed is None:
            return
        feed.leave()
        if feed.job_id is not None:
            self._jobs.pop(feed.job_id, None)
        else:
            self._filters.pop(feed.selection, None)
        if feed in self._opening:
            self._opening.remove(feed)

    def _is_current(self, feed: SocketSubscription) -> bool:
        if feed.job_id is not None:
            return self._jobs.get(feed.job_id) is feed
        return self._filters.get(feed.selection) is feed

    # --- from the log

    def _open(self, feed: SocketSubscription) -> SocketSubscription:
        self._opening.append(feed)
        if self._opener is None:
            self._opener = asyncio.get_running_loop().create_task(self._open_all())
        return feed

    def reopen(self, feed: SocketSubscription) -> None:
        """The epoch has changed: the subscription begins again with `reset`."""
        feed.cursor, feed.resets = None, True
        if feed.is_live:  # otherwise it is waiting, or the opener notices it
            feed.is_live = False
            self._open(feed)

    async def _open_all(self) -> None:
        try:
            while self._opening:
                feed = self._opening.popleft()
                try:
                    await self._read_log(feed)
                except Problem as problem:
                    if self._is_current(feed):
                        self._discard(feed)
                        await self._queue([self._error(feed, problem)])
        except StoreUnavailable as error:
            self.close(TRY_LATER, f"the store is unavailable: {error}")
        except Exception:
            about = {
                "request": f"GET {PATH}",
                "trace_id": self._request.trace_id,
                "tenant": self._request.tenant,
            }
            log.exception("%s failed [%s]", PATH, self._request.trace_id, extra=about)
            self.close(
                FAILED,
                f"the service failed unexpectedly; its log has the error [{self._request.trace_id}]",
            )
        finally:
            self._opener = None

    async def _read_log(self, feed: SocketSubscription) -> None:
        """Send what the log has for a subscription. Then the subscription gets what happens."""
        view = None
        if feed.job_id is not None:
            view = JobView(self._request, await find(self._request, feed.job_id))
        position, over = await self._place(feed, view)
        if not self._is_current(feed):
            return
        if feed.cursor is not None and feed.cursor.epoch != self._events.epoch:
            position, over = None, False  # it has just changed
        subscription = feed.enter(self._events)
        if position is None:
            over = await self._send_state(feed, subscription)
        else:
            subscription.begin(position)
            feed.began = position
        if position is not None or not over:
            over = await self._send_history(feed, subscription, over)
        if not self._is_current(feed):
            subscription.__exit__()  # `history` may have listened again
        elif subscription.epoch != self._events.epoch:  # `history` ends early then
            feed.cursor, feed.resets = None, True
            self._opening.append(feed)
        elif over:
            here = EventCursor(subscription.epoch, subscription.position)
            self._discard(feed)
            await self._queue([self._end_of(feed, here)])
        else:
            feed.is_live = True

    async def _place(self, feed: SocketSubscription, view: JobView | None) -> tuple[int | None, bool]:
        """Return the number after which the subscription continues, None if it begins with a snapshot; and whether the job
        has ended and no terminal event follows.
        """
        position = None
        if feed.cursor is not None:
            position = await find_position(self._events, feed.selection, feed.cursor, view)
        if position is None or view is None or not view.job.status.terminal:
            return position, False
        return position, not await follows(self._events, feed.selection, position, COURSE)

    async def _send_state(self, feed: SocketSubscription, subscription: EventSubscription) -> bool:
        """Send the current state; events that it includes do not follow. Return whether the job has ended."""
        here, view = self._events.cursor, None
        if feed.job_id is not None:
            view = JobView(self._request, await find(self._request, feed.job_id))
        subscription.begin(here.number, 0 if view is None else view.job.version)
        feed.began = here.number
        head = {
            "id": str(here),
            "jobId": feed.job_id,
            "type": "reset" if feed.resets else "snapshot",
            "at": self._at(),
        }
        snapshot = await make_snapshot(self._request, view)
        await self._queue([encode(head)[:-1] + b',"job":' + snapshot + b"}"])
        return view is not None and view.job.status.terminal

    async def _send_history(
        self, feed: SocketSubscription, subscription: EventSubscription, over: bool
    ) -> bool:
        """Send the events of the log. Return whether the job of the subscription has ended."""
        async for messages in subscription.history():
            if not self._is_current(feed):
                break
            for message in messages:
                if message.ends or message.type == "status":
                    over = message.ends  # a retry may follow an end
            texts = [
                message.json
                for message in messages
                if message.type in feed.selection.types and not self._has_sent(feed, message)
            ]
            await self._queue(texts)
        return over and feed.job_id is not None

    def _has_sent(self, feed: SocketSubscription, message: EventMessage) -> bool:
        others = [self._jobs.get(message.event.job_id), *self._filters.values()]
        return any(o is not None and o is not feed and o.has_sent(message) for o in others)

    # --- what happens now

    def collect(self, feed: SocketSubscription, messages: Sequence[EventMessage]) -> None:
        """Take events of one commit. The other subscriptions get theirs before the next iteration of the loop."""
        if self._closing is not None:
            return
        self._schedule()
        types = feed.selection.types
        for message in messages:
            job_id = message.event.job_id
            if message.is_progress:
                self._progress[job_id] = message.json
                continue
            if message.type == "status":
                self._progress.pop(job_id, None)
            if message.type in types:
                self._now[message.number, 0] = message.json
            if feed.job_id is not None and message.ends:
                self._now[message.number, 1] = self._end_of(feed, message.cursor)
                self._discard(feed)
                break

    def _schedule(self) -> None:
        """Send at the end of this iteration of the loop. In a stream of commits, filters get what happens within
        BATCH_INTERVAL together, unless the WebSocket also has subscriptions to jobs.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        due = now if self._jobs else max(now, self._flushed_at + BATCH_INTERVAL)
        if self._flushing is not None:
            if self._flush_at <= due:
                return
            self._flushing.cancel()
        self._flush_at = due
        self._flushing = loop.call_soon(self._flush) if due == now else loop.call_at(due, self._flush)

    def _flush(self) -> None:
        self._flushing, self._flushed_at = None, asyncio.get_running_loop().time()
        now, self._now = self._now, {}
        texts = [text for _, text in sorted(now.items())]
        self._put(texts)
        if len(self._outbox) > self._limit + PART or self._outbox_bytes > MAX_BYTES:
            self.close(
                TRY_LATER,
                f"{len(self._outbox)} events wait for this client: read faster, and continue after the last id",
            )

    # --- to the client

    def _put(self, texts: Sequence[bytes]) -> None:
        if self._closing is not None:
            return
        self._outbox.extend(texts)
        self._outbox_bytes += sum(map(len, texts))
        if self._writer is None and (self._outbox or self._progress):
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _queue(self, texts: Sequence[bytes]) -> None:
        """Queue what the log has, and wait until the client has read enough."""
        begin = size = 0
        for i, text in enumerate(texts, 1):
            size += len(text)
            if i - begin < PART and size < PART_BYTES and i < len(texts):
                continue
            self._put(texts[begin:i])
            begin, size = i, 0
            while self._writer is not None and not self._has_room():
                if self._drained is None:
                    self._drained = asyncio.Event()
                await self._drained.wait()

    def _has_room(self) -> bool:
        return len(self._outbox) <= PART // 2 and self._outbox_bytes <= PART_BYTES // 2

    async def _write(self) -> None:
        try:
            while self._outbox or self._progress:
                if self._outbox:
                    text = self._outbox.popleft()
                    self._outbox_bytes -= len(text)
                else:
                    _, text = self._progress.popitem()
                await self._send({"type": "websocket.send", "text": text.decode()})
                if self._drained is not None and self._has_room():
                    self._drained.set()
                    self._drained = None
        except Exception as error:  # the client has disconnected
            log.debug("a WebSocket was not written: %r", error)
            self.close(FAILED, "")
        finally:
            self._writer = None
            if self._drained is not None:
                self._drained.set()
                self._drained = None

    def _at(self) -> str:
        return render_instant(self._request.components.store.now())

    def _end_of(self, feed: SocketSubscription, cursor: EventCursor) -> bytes:
        return encode({"id": str(cursor), "jobId": feed.job_id, "type": "end", "at": self._at()})

    def _error(self, feed: SocketSubscription, problem: Problem) -> bytes:
        head = encode({"jobId": feed.job_id, "type": "error", "at": self._at()})
        return head[:-1] + b',"problem":' + self._request.render_problem(problem) + b"}"


OPERATIONS = [
    HttpOperation(
        "GET",
        PATH,
        get_without_upgrade,
        "connectWebSocket",
        "Open a WebSocket for events of many jobs",
        "events",
        description="Only for WebSocket clients; other requests get `426`.",
        scope="read",
        parameters=(TOKEN,),
        narrows=True,
        responses=(ResponseSpec(101, "The connection is a WebSocket.", headers=("Upgrade",)),),
        problems=(UpgradeRequired, Unavailable, QuotaExceeded),
        listed=False,
        # The handshake. curl cannot exchange messages.
        example="-i --max-time 1 $BASE/ws -H 'Connection: Upgrade' -H 'Upgrade: websocket' "
        "-H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=='",
    )
]
