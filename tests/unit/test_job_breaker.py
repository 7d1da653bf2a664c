"""The rules of a breaker: when it opens, that one attempt probes, and when it closes."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from bide.core.jobs.breaker import (
    FIRST_BATCH,
    MOST_BATCH,
    BreakerSettings,
    BreakerState,
    CallCount,
    counted,
    entered,
    next_batch,
    probed,
)
from bide.core.jobs.record import Job, Status
from bide.core.jobs.retry import BreakerOpen, Policy, Raised, settle
from bide.core.jobs.state_machine import Delayed, Failed, FailedForNow

SETTINGS = BreakerSettings()
JOB = Job("j", "work", "default", 0.0, 0.0, status=Status.PROCESSING, lease_until=9.0, attempt=1)


def after(*calls: bool, settings: BreakerSettings = SETTINGS, every: float = 1.0) -> BreakerState:
    """The state after calls of different jobs, of which some succeeded."""
    state, now = BreakerState(), 1000.0
    for number, success in enumerate(calls):
        count = CallCount(1, now) if success else CallCount()
        failure = None if success else str(number)
        state = counted(state, settings, count, failure, now=now, jitter=1.0)
        now += every
    return state


def test_failures_in_a_row_open_it_at_any_pace() -> None:
    assert after(*[False] * 4).status == "closed"
    assert after(*[False] * 4, True, *[False] * 4).status == "closed"
    state = after(*[False] * 5, every=500.0)
    assert (state.status, state.total, state.retry_at) == ("open", 1, 1000.0 + 4 * 500 + 30)


def test_half_of_the_calls_of_a_minute_open_it() -> None:
    assert after(*[True, False] * 9).status == "closed", "too few calls"
    assert after(*[True, False] * 10).status == "open"
    assert after(*[True, True, False] * 15).status == "closed"
    assert after(*[True, False] * 10, every=10.0).status == "closed", "too slow for the window"


def test_results_of_earlier_calls_do_not_count_while_it_is_open() -> None:
    state = after(*[False] * 5)
    assert counted(state, SETTINGS, CallCount(9, 2000.0), "late", now=2000.0, jitter=1.0) is state


def test_the_pause_doubles_up_to_the_cap_and_a_success_resets_it() -> None:
    state, now, pauses = after(*[False] * 5), 1004.0, []
    for _ in range(6):
        pauses.append(state.retry_at - now)
        now = state.retry_at
        probing = entered(state, "p", 1, prober_lives=False, now=now)
        assert probing is not None
        state = probed(probing, SETTINGS, ("p", 1), False, now=now, jitter=1.0)
    assert pauses == [30, 60, 120, 240, 300, 300]
    assert state.since == 1004.0
    probing = entered(state, "p", 2, prober_lives=False, now=state.retry_at)
    assert probing is not None
    closed = probed(probing, SETTINGS, ("p", 2), True, now=5000.0, jitter=1.0)
    assert closed == BreakerState(since=5000.0, total=1)


def test_batches_grow_up_to_a_limit() -> None:
    state, now, batches = BreakerState(), 0.0, []
    for _ in range(8):
        batch, state = next_batch(state, prober_lives=False, now=now)
        batches.append(batch)
        assert next_batch(state, prober_lives=False, now=now + 0.5)[0] == 0
        now += 1.0
    assert batches[:3] == [FIRST_BATCH, 2 * FIRST_BATCH, 4 * FIRST_BATCH]
    assert batches[-1] == MOST_BATCH


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "success", "failure", "none", "die"]),
            st.integers(0, 3),
            st.floats(0.0, 60.0),
        ),
        max_size=60,
    )
)
def test_at_most_one_living_attempt_probes(deeds: list[tuple[str, int, float]]) -> None:
    state, now = after(*[False] * 5), 1004.0
    alive, fences, probing = {0, 1, 2, 3}, dict.fromkeys(range(4), 1), set[int]()
    for deed, number, pause in deeds:
        now += pause
        me = (str(number), fences[number])
        if deed == "enter":
            lives = state.prober is not None and any(
                state.prober == (str(one), fences[one]) for one in alive
            )
            found = entered(state, *me, prober_lives=lives, now=now)
            if found is not None:
                state = found
                if state.status != "closed":
                    probing.add(number)
        elif deed == "die":
            fences[number] += 1  # its job is lost, and runs again
            probing.discard(number)
        elif number in probing:
            success = {"success": True, "failure": False, "none": None}[deed]
            state = probed(state, SETTINGS, me, success, now=now, jitter=0.5)
            probing.discard(number)
        assert len(probing) <= 1
        assert not probing or state.status == "half-open"
        assert BreakerState(**msgspec.structs.asdict(state)) == state


def settled(outcome: Raised | BreakerOpen, retries: int = 1, failures: int = 0) -> object:
    job = msgspec.structs.replace(JOB, failures=failures)
    return settle(job, outcome, Policy(retries=retries), now=100.0, rng=random.Random(1))


def test_what_follows_a_failed_call() -> None:
    failed = Raised(code="DOWN", message="down")
    spared = msgspec.structs.replace(failed, spared=True)
    waits = msgspec.structs.replace(spared, breaker="vendor", probe_at=130.0)
    assert type(settled(failed)) is FailedForNow
    assert type(settled(failed, failures=1)) is Failed
    assert type(settled(spared, failures=1)) is Delayed
    assert type(settled(spared, retries=0)) is Failed, "the call may have had an effect"
    delayed = settled(waits, failures=1)
    assert isinstance(delayed, Delayed)
    assert (delayed.waits_for, delayed.retry_at) == ("breaker vendor", 130.0)
    final = msgspec.structs.replace(waits, retryable=False)
    assert type(settled(final)) is Failed
    counted_and_waits = settled(msgspec.structs.replace(waits, spared=False))
    assert type(counted_and_waits) is FailedForNow
    refused = settled(BreakerOpen(breaker="vendor", probe_at=130.0), retries=0)
    assert isinstance(refused, Delayed), "the call was not made"
    assert refused.error.code == "BREAKER_OPEN"
