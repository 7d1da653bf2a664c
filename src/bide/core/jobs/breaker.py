"""Decides when the breaker of a dependency opens, which job probes the dependency, and when the breaker closes. Pure: time
and randomness are arguments.

1. Closed: calls are allowed. It opens after `failures` failed calls in a row, or when at least `rate` of the calls in
   `window` seconds have failed, if these are at least `calls`.
2. Open: no call is allowed until `retry_at`. Then the first job that asks becomes the prober, and the breaker is half-open.
3. Half-open: only the prober may call. Its success closes the breaker; its failure opens it again, for longer. If the
   prober ends without a result, or loses its lease, the next job that asks becomes the prober.
4. Results of calls that began before it opened neither close it nor keep it open.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

BreakerStatus = Literal["closed", "open", "half-open"]
BUCKETS = 6  # parts of a window, each of which is counted as a whole
FIRST_BATCH = 8  # waiting jobs that are released in the first second after it closed
MOST_BATCH = 256
RELEASE_EVERY = 1.0  # seconds between two batches
OFFER_EVERY = 10.0  # seconds between two waiting jobs that are started to probe


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a breaker opens, and for how long."""

    failures: int = 5  # failed calls in a row
    rate: float = 0.5  # of failed calls
    calls: int = 20  # the fewest calls for which `rate` counts
    window: float = 60.0  # seconds for which `rate` counts calls
    open_for: float = 30.0  # seconds until the first probe; doubled after each failed one
    open_cap: float = 300.0  # seconds; the longest time between two probes


class BreakerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored state of a breaker, which all processes share."""

    status: BreakerStatus = "closed"
    since: float = 0.0
    retry_at: float = 0.0  # while it is open: when the next probe may start
    opened: int = 0  # times since it was last closed
    total: int = 0  # times that it opened after it was closed
    prober: tuple[str, int] | None = None  # job and fence
    # The jobs whose calls failed since the last success, and when.
    failed: tuple[tuple[str, float], ...] = ()
    # Calls and failed calls, by number of the bucket in time.
    buckets: tuple[tuple[int, int, int], ...] = ()
    next_release: float = 0.0  # when the next waiting jobs may be released or offered a probe
    batch: int = 0  # how many of them were released last


class CallCount(msgspec.Struct, frozen=True):
    """Successful calls of one process that were not reported yet, and when the last one ended."""

    successes: int = 0
    last_success: float = 0.0


def has_failed(state: BreakerState, job_id: str) -> bool:
    """Whether a call of this job has failed since the last success of any job."""
    return any(failed == job_id for failed, _ in state.failed)


def counted(
    state: BreakerState,
    settings: BreakerSettings,
    calls: CallCount,
    failure: str | None,
    *,
    now: float,
    jitter: float,
) -> BreakerState:
    """The state after these successful calls, and then a failed one of the job `failure`. `jitter` is from 0 to 1."""
    if state.status != "closed":
        return state
    width = settings.window / BUCKETS
    number = int(now // width)
    count = {at: (total, bad) for at, total, bad in state.buckets if at > number - BUCKETS}
    total, bad = count.get(number, (0, 0))
    count[number] = (total + calls.successes + (failure is not None), bad + (failure is not None))
    failed = [one for one in state.failed if one[1] > calls.last_success]
    if failure is not None:
        failed.append((failure, now))
    state = replace(
        state,
        failed=tuple(failed),
        buckets=tuple((at, *counts) for at, counts in sorted(count.items())),
    )
    total = sum(total for total, _ in count.values())
    bad = sum(bad for _, bad in count.values())
    too_many = total >= settings.calls and bad >= settings.rate * total
    if failure is not None and (len(failed) >= settings.failures or too_many):
        return _opened(replace(state, total=state.total + 1), settings, now, jitter)
    return state


def _opened(state: BreakerState, settings: BreakerSettings, now: float, jitter: float) -> BreakerState:
    """The breaker is open for half of the pause to the whole of it, so that breakers do not probe at the same time."""
    pause = min(settings.open_cap, settings.open_for * 2.0 ** min(state.opened, 60))
    return replace(
        state,
        status="open",
        since=now if state.status == "closed" else state.since,
        retry_at=now + pause * (1 + jitter) / 2,
        opened=state.opened + 1,
        prober=None,
        buckets=(),
        next_release=0.0,
    )


def entered(
    state: BreakerState, job_id: str, fence: int, *, prober_lives: bool, now: float
) -> BreakerState | None:
    """The state after this attempt has begun a call; None if it must wait."""
    if state.status == "closed" or state.prober == (job_id, fence):
        return state
    if now < state.retry_at or (state.prober is not None and prober_lives):
        return None
    return replace(state, status="half-open", prober=(job_id, fence))


def probed(
    state: BreakerState,
    settings: BreakerSettings,
    prober: tuple[str, int],
    success: bool | None,
    *,
    now: float,
    jitter: float,
) -> BreakerState:
    """The state after the call of a prober. `success` is None if it ended without a result."""
    if state.prober != prober:
        return state  # another attempt has replaced it
    if success is None:
        return replace(state, status="open", prober=None, next_release=0.0)
    if success:
        return BreakerState(since=now, total=state.total)
    return _opened(state, settings, now, jitter)


def next_batch(state: BreakerState, *, prober_lives: bool, now: float) -> tuple[int, BreakerState]:
    """How many of the waiting jobs may start now, and the state after they were started. While the breaker is not closed,
    one of them may, to probe. After that, twice as many as before per RELEASE_EVERY.
    """
    if now < state.next_release:
        return 0, state
    if state.status == "closed":
        batch = min(MOST_BATCH, max(FIRST_BATCH, 2 * state.batch))
        return batch, replace(state, batch=batch, next_release=now + RELEASE_EVERY)
    if now < state.retry_at or (state.prober is not None and prober_lives):
        return 0, state
    return 1, replace(state, next_release=now + OFFER_EVERY)
