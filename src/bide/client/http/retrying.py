"""The retry loop that the whole client uses, and its policies.

1. Only a failure that may pass is retried: no answer, a 5xx, 408, 425, 429, or a response that cannot be read.
2. Pauses grow with full jitter. A Retry-After is obeyed, up to LONGEST_PAUSE.
3. A 429 is not a failure: the budget pauses all requests, and longer each time.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from bide.client.apis.answers import UNREADABLE, Crowded, Throttled
from bide.core.errors import ServiceError, ServiceUnreachable
from bide.core.pacing.backoff import backoff

log = logging.getLogger("bide.client")
T = TypeVar("T")
LONGEST_PAUSE = 300.0  # seconds; a longer Retry-After is cut
CROWDED = 2.0  # seconds: the first pause after the API rejected a submission because too many jobs run
SILENT_TRIES = 5  # connections in a row that a host accepts and closes, before its first answer


class RetryClock(Protocol):
    @property
    def now(self) -> Callable[[], float]: ...

    @property
    def sleep(self) -> Callable[[float], Awaitable[object]]: ...


@dataclass(frozen=True)
class RetryPolicy:
    base: float = 0.5  # seconds: the ceiling of the first pause
    cap: float = 60.0
    least: float = 0.0
    tries: float = math.inf  # failures in a row
    patience: float = math.inf  # seconds from the first failure on
    # Failures in a row after which one caller at a time tries, if several share a Retrying.
    alone: float = math.inf
    warn_at: int = 1  # failures in a row
    # Raise at once if a host that has never answered refuses connections: the address may be wrong.
    needs_first_answer: bool = False
    # Statuses that are not retried, and whether `retryable` in a problem document overrides the status.
    final: frozenset[int] = field(default_factory=frozenset)
    obeys_problem: bool = False

    def retries(self, error: ServiceError | ServiceUnreachable, safe: bool = True) -> bool:
        """Whether the same request may succeed later. Without `safe` it must not be repeated if it may have arrived."""
        if isinstance(error, ServiceUnreachable):
            return safe
        if error.status in self.final:
            return False
        retryable = error.problem.get("retryable") if self.obeys_problem else None
        if retryable is not None:
            return retryable is True
        return transient(error) if safe else error.status in (429, 503)


def transient(error: ServiceError) -> bool:
    return error.status >= 500 or error.status in (408, 425, 429) or error.code == UNREADABLE


class Retrying:
    """The retries of one operation, or of all operations at one host. `name` is the host, for the log.

    `exhausted` makes the error that is raised when the policy's limits are reached, from the last error and the seconds
    since the first failure; by default the last error is raised.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        clock: RetryClock,
        rng: random.Random,
        name: str = "",
        exhausted: Callable[[Exception, float], Exception] | None = None,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._rng = rng
        self._name = name
        self._exhausted = exhausted
        self._failures = 0  # in a row
        self._refusals = 0  # in a row: answers of 429
        self._since = 0.0  # the time of the first of them
        self._answered = False
        self._lock = asyncio.Lock()

    async def run(self, operation: Callable[[], Awaitable[T]], safe: bool = True) -> T:
        """The result of the first success; the error of a failure that is not retried."""
        pause, crowded = 0.0, 0
        while True:
            alone = self._failures >= self._policy.alone
            lock: Any = self._lock if alone else nullcontext()
            async with lock:
                if alone:
                    if self._failures < self._policy.alone:  # another caller got an answer meanwhile
                        continue
                    pause = self._backoff(self._failures)
                if pause:
                    await self._clock.sleep(pause)
                try:
                    result = await operation()
                except Throttled:
                    self._failures, pause = 0, 0.0
                except Crowded:
                    pause = backoff(crowded, CROWDED, self._policy.cap, self._rng)
                    crowded += 1
                except (ServiceError, ServiceUnreachable) as error:
                    pause = self._failed(error, safe)
                else:
                    self.progress()
                    return result

    def answered(self) -> None:
        """The host has answered a part of the operation."""
        self._answered = True

    def progress(self) -> None:
        """A part of the operation succeeded that no retry repeats: the count of failures starts again."""
        if self._failures >= self._policy.alone:
            log.warning("%s answers again", self._name)
        self._answered = True
        self._failures = self._refusals = 0

    def _failed(self, error: ServiceError | ServiceUnreachable, safe: bool) -> float:
        """Seconds until the next try; raises an error that is not retried."""
        if isinstance(error, ServiceError):
            self._answered = True
        if not self._policy.retries(error, safe) or self._unknown(error):
            if isinstance(error, ServiceError):
                self._failures = 0
            raise error
        if isinstance(error, ServiceError) and error.status == 429:
            self._refusals += 1
            return self._advised(error) or self._backoff(self._refusals)
        now = self._clock.now()
        if not self._failures:
            self._since = now
        self._failures += 1
        passed = now - self._since
        if self._failures >= self._policy.tries or passed >= self._policy.patience:
            raise error if self._exhausted is None else self._exhausted(error, passed) from error
        if self._failures == self._policy.warn_at:
            log.warning("%s; trying again", error)
        return self._advised(error) or self._backoff(self._failures)

    def _unknown(self, error: ServiceError | ServiceUnreachable) -> bool:
        if not self._policy.needs_first_answer or self._answered or isinstance(error, ServiceError):
            return False
        return not error.connected or self._failures >= SILENT_TRIES

    def _advised(self, error: ServiceError | ServiceUnreachable) -> float | None:
        """A little more than Retry-After, so that not all clients retry at the same time."""
        advice = error.problem.get("retryAfter") if isinstance(error, ServiceError) else None
        if not isinstance(advice, int | float):
            return None
        return min(advice, LONGEST_PAUSE) * self._rng.uniform(1.0, 1.1)

    def _backoff(self, count: int) -> float:
        policy = self._policy
        return max(policy.least, backoff(count - 1, policy.base, policy.cap, self._rng))
