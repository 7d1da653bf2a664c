"""Budgets that processes of one machine share exactly: the state is in a file that all of them map into memory.

1. A request that one process takes counts in the next `take` of every other process. The sum is exact, even if
   processes die.
2. No process waits for another. If the lock is taken, the caller tries again a millisecond later and keeps the
   responses to report until then. Responses that no other process waits for are reported a few at a time.
3. A process that sends fast is granted several requests at once, to be sent within GRANT_LIFETIME; the rest is void and
   given back. So it does not take the lock for each request, and the sum stays exact: the lifetime is shorter than the
   jitter with which a documented limit is spent anyway.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from bide.client.budgets.shared_counters import LARGEST, SharedCounters, boot_id
from bide.core.errors import SetupError
from bide.core.pacing.budget import Budget, BudgetState, Limit
from bide.core.pacing.limits import limit_headers

GRANT_LIFETIME = 0.02  # seconds
MOST_GRANTS = 64  # at once
RETRY_INTERVAL = 0.001
# Responses not reported yet. From the first number on, `take` reports them even if there is nothing to take; from the
# second on, `record_response` does.
FEW_PENDING, MOST_PENDING = 16, 256
UNKNOWN = (-1, -1)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(BudgetState).decode


class BudgetFolder:
    """Opens budgets in one folder, which belongs to this user alone."""

    def __init__(self, folder: Path, rng: random.Random | None = None) -> None:
        self._folder = folder
        self._rng = rng or random.Random()
        self._budgets: dict[str, FileBudget] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise SetupError(
                f"The folder {folder} for shared budgets cannot be created: {error.strerror}"
            ) from error

    def open(self, name: str, limit: Limit | None = None, first: Budget | None = None) -> FileBudget:
        """A new budget starts with the state of `first`."""
        budget = self._budgets.get(name)
        if budget is None:
            if not (name.isascii() and name.isalnum()):
                raise ValueError(f"{name!r} is not a budget name: use letters and digits only")
            start = first or Budget(limit, rng=self._rng)
            budget = self._budgets[name] = FileBudget(self._counters(name, start.state), start, limit)
        return budget

    def _counters(self, name: str, state: BudgetState) -> SharedCounters:
        path = self._folder / f"{name}-{boot_id()}.budget"
        try:
            for old in self._folder.glob(f"{name}-*.budget.*"):
                if not old.name.startswith(path.name):  # from before the last boot
                    old.unlink(missing_ok=True)
            return SharedCounters(path, _encode(state), state.next)
        except OSError as error:
            raise SetupError(f"The shared budget {path} cannot be opened: {error.strerror}") from error

    def close(self) -> None:
        for budget in self._budgets.values():
            budget.close()
        self._budgets.clear()


class FileBudget:
    """This process's access to one shared budget."""

    def __init__(self, counters: SharedCounters, budget: Budget, limit: Limit | None) -> None:
        self._counters = counters
        self._budget = budget
        limited = limit is not None and not limit.unlimited
        self._grant_lifetime = (
            min(GRANT_LIFETIME, limit.per / 100) if limit and limited else GRANT_LIFETIME
        )
        self._version = UNKNOWN  # of the state that self._budget has
        self._grants = 0  # not sent yet
        self._granted_at = -math.inf
        self._sent: list[float] = []  # when the requests were granted whose response is still to come
        self._void_from = -math.inf
        self._closed = False
        self._report_now = False  # a response must be reported now
        self._batch = 1  # grants to take at once
        self._pending: list[tuple[float, int, Mapping[str, str], float]] = []

    def ready(self, now: float, cost: float = 1.0) -> float:
        if self._grants and now < self._void_from:
            return now
        if self._report_now and not self._change():
            return now + RETRY_INTERVAL
        return self._counters.timestamp

    def take(self, now: float, cost: float = 1.0) -> float:
        if self._grants and now < self._void_from and cost == 1.0:
            self._grants -= 1
            self._sent.append(self._granted_at)
            return now
        reports = self._grants or self._report_now or len(self._pending) >= FEW_PENDING
        if not reports and (at := self._counters.timestamp) > now:
            return at
        if self._grants == 0 and now < self._void_from:
            self._batch = min(2 * self._batch, MOST_GRANTS)
        else:
            self._batch = max(1, self._batch // 4)
        at = now + RETRY_INTERVAL
        granted = 0

        def draw(budget: Budget) -> None:
            nonlocal at, granted
            at = budget.take(now, cost)
            if at <= now and cost == 1.0:
                most = min(self._batch, self._fair_share(now))
                while granted + 1 < most and budget.take(now) <= now:
                    granted += 1

        if not self._change(draw):
            return now + RETRY_INTERVAL
        if at <= now:
            self._sent.append(now)
        if at <= now and cost == 1.0:
            self._grants, self._granted_at = granted, now
            self._void_from = now + self._grant_lifetime
        return at

    def _fair_share(self, now: float) -> int:
        """Return the number of requests that the rate allows per lifetime of a grant: more would starve other processes."""
        rate = self._budget.rate(now)
        return MOST_GRANTS if rate is None else int(rate * self._grant_lifetime)

    def record_response(self, now: float, status: int, headers: Mapping[str, str], wall: float) -> None:
        limits = limit_headers(headers)
        self._pending.append((now, status, limits or {}, wall))
        known = self._budget.state
        others_wait = not known.met or known.refusals or known.meters
        if (
            limits is not None
            or others_wait
            or status in (0, 429, 503)
            or len(self._pending) >= MOST_PENDING
        ):
            self._report_now = not self._change()

    def settle(self) -> None:
        """Report pending responses. Call it now and then while no requests are sent."""
        if self._pending or self._grants:
            self._change()

    def rate(self, now: float) -> float | None:
        self._load()
        return self._budget.rate(now)

    def dump(self, now: float) -> dict[str, Any]:
        self._load()
        return self._budget.dump(now)

    def close(self) -> None:
        for _ in range(100):
            if not (self._pending or self._grants) or self._change():
                break
            time.sleep(RETRY_INTERVAL)
        self._load()
        self._closed = True
        self._counters.close()

    def _change(self, more: Callable[[Budget], None] | None = None) -> bool:
        """Report to the shared budget and run `more` on it; False if the change did not become valid."""
        counters = self._counters
        if not counters.lock():
            return False
        try:
            budget = self._load()
            self._version = UNKNOWN  # until the change is valid
            self._report(budget)
            if more is not None:
                more(budget)
            data = _encode(budget.state)
            assert len(data) <= LARGEST
            counters.write(data, budget.state.next)
            version = counters.version
        finally:
            valid = counters.unlock()
        self._grants = 0
        if valid:
            self._version = version
            del self._sent[: len(self._pending)]
            self._pending.clear()
            self._report_now = False
        return valid

    def _report(self, budget: Budget) -> None:
        """Give back the grants that were not sent, and report the responses.

        A budget assigns each response to the oldest request on its way. The requests of a dead process never get one,
        so the request that each response belongs to is made the oldest.
        """
        sent = budget.state.sent
        for _ in range(self._grants):
            if self._granted_at in sent:
                sent.remove(self._granted_at)
            sent.append(self._granted_at)
        if self._grants:
            budget.unspend(self._grants)
        ours = iter(self._sent)
        for response in self._pending:
            at = next(ours, None)
            if at is not None:
                if at in sent:
                    sent.remove(at)
                sent.insert(0, at)
            budget.record_response(*response)

    def _load(self) -> Budget:
        """Return the budget with the newest state; after `close`, with the last that was read."""
        if self._closed:
            return self._budget
        version = self._counters.version
        if version != self._version:
            self._budget.state = _decode(self._counters.read())
            self._version = version
        return self._budget
