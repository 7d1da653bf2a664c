"""Budgets that machines share exactly, through a backend that all of them reach.

1. No caller waits for the backend. A budget without a grant requests some and returns the time to try again; a thread
   talks to the backend. The thread reads the record, lets the budget decide, writes the record back, and starts again
   if another process has changed it meanwhile.
2. A grant is a point in time: its request is sent then or within `grant_lifetime` seconds, or never. That is less than
   the jitter that the pace of a documented limit allows for, so that the sum is exact in any stretch of time.
3. A process that asks a little late is granted the time at which its request was due, so that round trips cost no rate.
   Where grants are close together, or the backend is far away, they are granted ahead: otherwise all processes would
   ask at the same time and only one of them would get a grant.
4. An unused grant is lost; it is not given back.
5. A refusal voids the grants of this process at once. The other processes learn of it with their next exchange.
6. While the backend is unavailable no process uses the budget. The holder of a reservation sends one request per
   window. Without a documented limit no requests are sent. Requests to an API that has no limit continue.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bide.client.budgets.backend import NO_RECORD, BackendReply, BackendUnavailable, BudgetBackend
from bide.client.budgets.record import BudgetRecord, limit_fields, reserved_interval, shared_part
from bide.client.budgets.remote_clock import RemoteClock
from bide.core.errors import SetupError
from bide.core.pacing.budget import Budget, Limit
from bide.core.pacing.limits import limit_headers, read_pause
from bide.core.pacing.meter import SLACK

log = logging.getLogger("bide.client")
OPEN_TIMEOUT = 10.0  # seconds for the first exchange
CLOSE_TIMEOUT = 1.5  # and for the last
RETRY_INTERVAL = 0.25  # between two attempts while the backend is unavailable
EXCHANGE_TIMEOUT = 2.0  # after which the backend counts as unavailable
POLL_INTERVAL = 0.001  # the least number of seconds between two checks for a reply
MOST_GRANTS = 64  # in one exchange
# Responses not reported yet. From the first number on, `take` reports them even if there is nothing to take; from the
# second on, `record_response` does.
FEW_PENDING, MOST_PENDING = 16, 256
IN_USE = 60.0  # seconds after its last change for which another process is assumed to use a record
REFUSAL_PAUSE = 60.0  # seconds without requests on a reservation after a refusal without Retry-After
SWAPS = 20  # attempts to write a record before the exchange fails
DEFAULT_LIFETIME, LONGEST_LIFETIME = 0.02, 0.25  # seconds in which a grant must be sent
AHEAD = 0.1  # seconds ahead for which grants are given where several are due within them
CLOCK_SET = 1.0  # seconds by which a server's clock must go back before the record's times are moved
Response = tuple[float, int, Mapping[str, str], float]


class BudgetConnection:
    """Opens budgets in one backend. Tests set `wait`, the seconds that a budget waits for a reply itself."""

    def __init__(
        self,
        backend: BudgetBackend,
        rng: random.Random | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        clock: RemoteClock | None = None,
        wait: float = 0.0,
    ) -> None:
        self._backend = backend
        self._rng = rng or random.Random()
        self._now = now
        self._clock = clock or RemoteClock()
        self._wait = wait
        self._budgets: dict[str, SharedBudget] = {}
        self._calls: queue.SimpleQueue[BackendCall | None] = queue.SimpleQueue()
        self._salt: bytes | None = None
        self._thread = threading.Thread(target=self._work, name="bide budgets", daemon=True)
        self._thread.start()

    def open(self, name: str, limit: Limit | None = None) -> SharedBudget:
        """Block until the backend has answered, the first time. SetupError if the backend cannot be used."""
        budget = self._budgets.get(name)
        if budget is None:
            exchange = RecordExchange(self._backend, name, limit, self._clock, self._now, self._rng)
            found = self._first(exchange.read)
            if found is not None and found.limit != limit_fields(limit):
                age = self._clock.to_server(self._now()) - found.written_at
                if age < IN_USE:
                    raise SetupError(
                        f"Another process shares this budget at {self._backend.shown} with another limit "
                        f"({_written(found.limit)}), not {_written(limit_fields(limit))}. Give all of them "
                        "the same limit."
                    )
            exchange.on_lost = self.keep_salt
            budget = self._budgets[name] = SharedBudget(self, exchange, limit)
        return budget

    @property
    def salt(self) -> bytes:
        """The salt with which all processes name budgets here. Blocks the first time."""
        if self._salt is None:
            self._salt = self._first(lambda: self._backend.salt(secrets.token_bytes(32)))
        return self._salt

    @property
    def shown(self) -> str:
        return self._backend.shown

    def close(self) -> None:
        for budget in self._budgets.values():
            budget.close()
        self._budgets.clear()
        self._calls.put(None)
        self._thread.join(CLOSE_TIMEOUT)

    def run(self, work: Callable[[], Any]) -> BackendCall:
        call = BackendCall(work, self._now())
        self._calls.put(call)
        if self._wait:
            call.done.wait(self._wait)
        return call

    def keep_salt(self) -> None:
        """The backend has lost its records, and perhaps the salt: store it again for new processes."""
        if self._salt is not None and self._backend.salt(self._salt) != self._salt:
            log.error(
                "%s lost its data and other processes now share budgets there under new names. Restart this process.",
                self._backend.shown,
            )

    def _first(self, work: Callable[[], Any]) -> Any:
        call = self.run(work)
        if not call.done.wait(OPEN_TIMEOUT):
            raise SetupError(
                f"{self._backend.shown} did not answer within {OPEN_TIMEOUT:g} s, so the budget cannot be "
                "shared through it. Check the URL, and that the server runs."
            )
        if call.error is not None:
            if not isinstance(call.error, BackendUnavailable):
                raise call.error
            reason = str(call.error).rstrip(".")
            raise SetupError(
                f"The budget cannot be shared through {self._backend.shown}: {reason}. Check the URL, and "
                "that the server runs."
            ) from call.error
        return call.result

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.result = call.work()
            except Exception as error:
                call.error = error
            call.done.set()
        with contextlib.suppress(Exception):
            self._backend.close()


class BackendCall:
    """A call that the thread makes, and its outcome."""

    __slots__ = ("done", "error", "result", "started_at", "work")

    def __init__(self, work: Callable[[], Any], started_at: float) -> None:
        self.work = work
        self.started_at = started_at
        self.result: Any = None
        self.error: Exception | None = None
        self.done = threading.Event()


@dataclass
class GrantRequest:
    """The grants that a budget requests, and the responses that it reports, in this machine's time."""

    now: float
    count: int = 0
    cost: float = 1.0
    responses: list[Response] = field(default_factory=list)
    # In the server's time: the grants that the responses belong to, and those that were never sent.
    sent: list[float] = field(default_factory=list)
    unused: list[float] = field(default_factory=list)
    leaves: bool = False


@dataclass
class GrantReply:
    """The budget after an exchange, in this machine's time except for `grants`."""

    budget: Budget
    grants: list[float]  # in the server's time
    next: float
    reserved_until: float | None


class RecordExchange:
    """Reads and writes the record of one budget. Runs in the thread of the connection."""

    def __init__(
        self,
        backend: BudgetBackend,
        name: str,
        limit: Limit | None,
        clock: RemoteClock,
        now: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._backend = backend
        self._name = name
        self._whole = limit
        self._limit = shared_part(limit)
        self._clock = clock
        self._now = now
        self._rng = rng
        self._me = secrets.token_hex(6)
        self._count = 0
        self._version: str | None = None  # None: read the record first
        self._record: bytes | None = None  # the newest that is known
        self.grant_lifetime = _grant_lifetime(limit)
        self.on_lost: Callable[[], None] = lambda: None

    def read(self) -> BudgetRecord | None:
        self._read()
        return None if self._record is None else BudgetRecord.decode(self._record)

    def run(self, request: GrantRequest) -> GrantReply:
        """BackendUnavailable if the backend is; then the request has probably had no effect."""
        for _ in range(SWAPS):
            if self._version is None:
                self._read()
            assert self._version is not None
            now = self._clock.to_server(request.now)
            record = self._current(now)
            budget = Budget(self._limit, rng=self._rng)
            budget.state = record.state
            budget.state.sent = [at for at in budget.state.sent if at not in request.unused]
            responses = [(self._clock.to_server(r[0]), *r[1:]) for r in request.responses]
            _report(budget, request.sent, responses)
            grants = self._draw(budget, request, now)
            if request.leaves:
                record.release(self._me, now)
                reserved = None
            else:
                reserved = record.reserve(self._me, self._whole, now)
            record.written_at = max(record.written_at, now)
            if self._swap(record.encode()):
                local = self._clock.to_local
                until = None if reserved is None else local(reserved)
                return GrantReply(budget, grants, local(budget.state.next), until)
        raise BackendUnavailable(f"other processes changed the record {SWAPS} times during one exchange")

    def _draw(self, budget: Budget, request: GrantRequest, now: float) -> list[float]:
        trip = self._clock.round_trip
        lead = 1.5 * trip if trip > self.grant_lifetime / 4 else 0.0
        earliest = now + lead
        rate = budget.rate(now)
        most = request.count
        if rate is not None:
            most = min(most, max(1, int(rate * (self.grant_lifetime + 2 * lead))))
        ahead = AHEAD if rate is not None and rate * AHEAD >= 1.0 else 0.0
        grants: list[float] = []
        while len(grants) < most:
            at = budget.ready(now, request.cost)
            if at > earliest + max(lead, ahead):
                break
            if at < earliest - self.grant_lifetime / 2:
                at = earliest
            budget.spend(at, request.cost)
            grants.append(at)
        return grants

    def _current(self, now: float) -> BudgetRecord:
        if self._record is None:
            return BudgetRecord.new(self._token(), self._whole)
        record = BudgetRecord.decode(self._record)
        if record.written_at > now + CLOCK_SET:
            record = record.moved_back(self._limit, now, self._rng)
        return record

    def _read(self) -> None:
        sent = self._now()
        reply = self._backend.read(self._name)
        self._clock.measured(sent, reply.now, self._now())
        self._found(reply)

    def _swap(self, data: bytes) -> bool:
        assert self._version is not None
        version, sent, known = self._token(), self._now(), self._version
        self._version = None  # unknown until there is a reply
        reply = self._backend.swap(self._name, known, version, data)
        self._clock.measured(sent, reply.now, self._now())
        if reply.swapped:
            self._version, self._record = version, data
        else:
            self._found(reply)
        return reply.swapped

    def _found(self, reply: BackendReply) -> None:
        self._version = reply.version
        ours = None if self._record is None else BudgetRecord.decode(self._record)
        if reply.version == NO_RECORD:
            if ours is not None:
                self.on_lost()
                self._record = ours.restored(None, self._limit, reply.now).encode()
            return
        theirs = BudgetRecord.decode(reply.data)
        if ours is not None and theirs.generation != ours.generation:
            self._record = ours.restored(theirs, self._limit, reply.now).encode()
        else:
            self._record = reply.data

    def _token(self) -> str:
        self._count += 1
        return f"{self._me}{self._count}"


class SharedBudget:
    """This process's access to one shared budget."""

    def __init__(
        self, connection: BudgetConnection, exchange: RecordExchange, limit: Limit | None
    ) -> None:
        self._connection = connection
        self._exchange = exchange
        self._limit = limit
        self._clock = connection._clock
        self._budget = Budget(shared_part(limit), rng=connection._rng)  # as of the last exchange
        self._grants: deque[tuple[float, float]] = deque()  # a time of the server, and the cost
        self._sent: list[float] = []  # grants whose response is still to come
        self._unused: list[float] = []  # grants that were not sent
        self._pending: list[Response] = []
        self._call: tuple[BackendCall, GrantRequest] | None = None
        # A response must be reported now; it was a refusal.
        self._report_now = self._refused = False
        self._batch = 1  # grants to request in the next exchange
        self._requested_at = -math.inf
        self._next = -math.inf
        self._unavailable_since: float | None = None
        self._reserved_until: float | None = None
        self._reserved_next = -math.inf  # when the reservation may be used
        self._closed = False

    def ready(self, now: float, cost: float = 1.0) -> float:
        self._collect(now)
        if self._unavailable_since is not None:
            return self._ready_alone(now)
        if self._grants and not self._refused:
            self._void(now)
            if self._grants:
                return self._clock.to_local(self._grants[0][0])
        if self._call is not None:
            return self._reply_due(now)
        if self._report_now:
            self._start(GrantRequest(now))
            return self._reply_due(now) if self._call is not None else max(now, self._next)
        return self._next

    def take(self, now: float, cost: float = 1.0) -> float:
        self._collect(now)
        if self._unavailable_since is not None:
            return self._take_alone(now)
        if self._use_grant(now, cost):
            return now
        if self._grants and not self._refused and self._grants[0][1] == cost:
            return self._clock.to_local(self._grants[0][0])
        if self._call is not None:
            return self._reply_due(now)
        if self._next > now and not self._report_now and len(self._pending) < FEW_PENDING:
            return self._next
        self._start(GrantRequest(now, self._wanted(now), cost))
        return self._after_start(now, cost)

    def _after_start(self, now: float, cost: float) -> float:
        if self._call is not None:
            return self._reply_due(now)
        if self._unavailable_since is not None:
            return self._take_alone(now)
        return now if self._use_grant(now, cost) else max(self._next, now + POLL_INTERVAL)

    def record_response(self, now: float, status: int, headers: Mapping[str, str], wall: float) -> None:
        limits = limit_headers(headers)
        self._pending.append((now, status, limits or {}, wall))
        known = self._budget.state
        refused = status in (429, 503)
        if refused:
            self._refused = True
            self._drop()
            if self._unavailable_since is not None:
                pause = read_pause(limits or {}, wall) or REFUSAL_PAUSE
                self._reserved_next = max(self._reserved_next, now + pause)
        if len(self._pending) > 2 * MOST_PENDING:  # the backend has been unavailable for long
            del self._pending[0], self._sent[:1]
        others_wait = not known.met or known.refusals or known.meters
        if (
            limits is not None
            or others_wait
            or refused
            or not status
            or len(self._pending) >= MOST_PENDING
        ):
            self._report_now = True
            self._collect(now)
            if self._call is None and self._unavailable_since is None:
                self._start(GrantRequest(now))

    def rate(self, now: float) -> float | None:
        return self._budget.rate(self._clock.to_server(now))

    def settle(self) -> None:
        """Report pending responses. Call it now and then while no requests are sent."""
        now = self._connection._now()
        self._collect(now)
        if self._pending and self._call is None and self._unavailable_since is None:
            self._start(GrantRequest(now))

    def close(self) -> None:
        """Report pending responses and release the reservation, if the backend answers."""
        if self._closed:
            return
        self._closed = True
        if self._call is not None:
            self._call[0].done.wait(CLOSE_TIMEOUT)
        now = self._connection._now()
        self._collect(now)
        self._drop()
        if self._unavailable_since is None:
            self._start(GrantRequest(now, leaves=True))
            if self._call is not None:
                self._call[0].done.wait(CLOSE_TIMEOUT)

    # --- grants

    def _use_grant(self, now: float, cost: float) -> bool:
        self._void(now)
        if self._refused or not self._grants:
            return False
        at, of = self._grants[0]
        if of != cost or self._clock.to_local(at) > now:
            return False
        self._grants.popleft()
        self._sent.append(at)
        return True

    def _void(self, now: float) -> None:
        oldest = self._clock.to_server(now) - self._exchange.grant_lifetime
        while self._grants and self._grants[0][0] < oldest:
            self._unused.append(self._grants.popleft()[0])

    def _drop(self) -> None:
        self._unused.extend(at for at, _ in self._grants)
        self._grants.clear()

    def _wanted(self, now: float) -> int:
        """Request more grants at once the more often this process asks."""
        soon = now - self._requested_at < self._exchange.grant_lifetime
        self._batch = min(2 * self._batch, MOST_GRANTS) if soon else max(1, self._batch // 4)
        self._requested_at = now
        return self._batch

    # --- exchanges

    def _start(self, request: GrantRequest) -> None:
        request.responses, request.sent = list(self._pending), list(self._sent)
        request.unused = list(self._unused)
        self._call = self._connection.run(lambda: self._exchange.run(request)), request
        self._collect(request.now)

    def _reply_due(self, now: float) -> float:
        """Return when the reply has probably arrived."""
        assert self._call is not None
        trip = self._clock.round_trip
        return max(self._call[0].started_at + 1.2 * trip, now + max(POLL_INTERVAL, trip / 2))

    def _collect(self, now: float) -> None:
        """Take the reply of the last exchange, if there is one."""
        if self._call is None:
            return
        call, request = self._call
        if not call.done.is_set():
            if now - call.started_at > EXCHANGE_TIMEOUT and self._unavailable_since is None:
                self._lost(now, "it does not answer")
            return
        self._call = None
        if call.error is not None:
            if not isinstance(call.error, BackendUnavailable):
                log.error(
                    "Exchange with %s failed: %r",
                    self._connection.shown,
                    call.error,
                    exc_info=call.error,
                )
            self._lost(now, str(call.error))
            return
        reply: GrantReply = call.result
        self._recovered()
        self._budget, self._next = reply.budget, reply.next
        self._reserved_until = reply.reserved_until
        del self._pending[: len(request.responses)], self._unused[: len(request.unused)]
        del self._sent[: min(len(request.responses), len(request.sent))]
        if not self._pending:
            self._report_now = self._refused = False
        self._grants.extend((at, request.cost) for at in reply.grants)
        if self._refused:
            self._drop()

    # --- while the backend is unavailable

    def _lost(self, now: float, reason: str) -> None:
        if self._unavailable_since is None:
            self._unavailable_since = now
            self._drop()
            if self._unlimited:
                sends = "requests continue without it"
            elif self._may_send_alone(now):
                sends = "this process sends one request per window until it is back"
            else:
                sends = "this process sends no requests until it is back"
            log.warning(
                "Shared budget at %s is unavailable: %s; %s", self._connection.shown, reason, sends
            )
        self._next = now + RETRY_INTERVAL

    def _recovered(self) -> None:
        if self._unavailable_since is not None:
            self._unavailable_since = None
            log.warning("Shared budget at %s is available again", self._connection.shown)

    def _may_send_alone(self, now: float) -> bool:
        return self._unlimited or (self._reserved_until is not None and now < self._reserved_until)

    @property
    def _unlimited(self) -> bool:
        return self._limit is not None and self._limit.unlimited

    def _ready_alone(self, now: float) -> float:
        if self._call is None and now >= self._next and not self._closed:
            self._start(GrantRequest(now))
        if self._unavailable_since is None:
            return now
        paused = self._clock.to_local(self._budget.state.pause)
        may = self._may_send_alone(now)
        at = max(self._reserved_next, paused) if may else now + RETRY_INTERVAL
        return at if at <= now else min(at, now + RETRY_INTERVAL)

    def _take_alone(self, now: float) -> float:
        at = self._ready_alone(now)
        if self._unavailable_since is None:
            return now + POLL_INTERVAL
        if at > now:
            return at
        if self._limit is not None and not self._limit.unlimited:
            self._reserved_next = now + reserved_interval(self._limit)
        self._sent.append(self._clock.to_server(now))
        return now


def _report(budget: Budget, ours: list[float], responses: list[Response]) -> None:
    """Report responses to a budget.

    A budget assigns each response to the oldest request on its way. The requests of a dead process never get one, so
    the request that each response belongs to is made the oldest.
    """
    sent, mine = budget.state.sent, iter(ours)
    for response in responses:
        at = next(mine, None)
        if at is not None:
            if at in sent:
                sent.remove(at)
            sent.insert(0, at)
        budget.record_response(*response)


def _grant_lifetime(limit: Limit | None) -> float:
    if limit is None or limit.unlimited:
        return DEFAULT_LIFETIME
    return min(LONGEST_LIFETIME, SLACK / 2, limit.per / 100)


def _written(limit: tuple[float, float, float | None] | None) -> str:
    if limit is None:
        return "none"
    requests, per, burst = limit
    return f"{requests:g}/{per:g}s" + (f":{burst:g}" if burst is not None else "")
