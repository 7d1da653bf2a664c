"""What an attempt's outcome comes to: every outcome, every policy."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bide.core.job import Change, Failed, FailedForNow, HandedBack, Lost, Succeeded, advance
from bide.core.record import FileInfo, Job, Progress, Status
from bide.core.retry import (
    POISON_LOSSES,
    Outcome,
    Policy,
    Raised,
    Returned,
    Stopped,
    Vanished,
    backoff,
    deadline_passed,
    settle,
)

NOW = 1_900_000_000.0
JOB = Job(
    "J",
    "work",
    "default",
    NOW,
    NOW,
    status=Status.PROCESSING,
    attempt=1,
    fence=3,
    owner="w",
    lease_until=NOW + 30,
    trace_id="t",
)
FILE = FileInfo("a.mp4", "video/mp4", 3, "ab", "blob")
OUTCOMES: list[Outcome] = [
    Returned(result=msgspec.Raw(b"1")),
    Returned(errors=[{"page": 7}]),
    Raised(code="OOPS", message="m"),
    Raised(code="OOPS", message="m", retryable=False),
    Vanished(),
    Stopped(),
]
POLICIES = [
    Policy(),
    Policy(retries=3),
    Policy(at_most_once=True),
    Policy(retries=3, at_most_once=True),
]


def settled(outcome: Outcome, policy: Policy | None = None, job: Job = JOB) -> Change:
    return settle(job, outcome, policy or Policy(), now=NOW, rng=random.Random(1))


@given(
    st.integers(0, 5000), st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 2**32).map(random.Random)
)
def test_a_backoff_lies_between_nothing_and_the_cap(
    failures: int, base: float, cap: float, rng: random.Random
) -> None:
    assert 0 <= backoff(failures, base, cap, rng) <= cap


def test_a_backoff_doubles_with_full_jitter() -> None:
    rng = random.Random(5)
    for failures, ceiling in ((0, 2.0), (1, 4.0), (3, 16.0), (20, 600.0)):
        waits = [backoff(failures, 2.0, 600.0, rng) for _ in range(500)]
        assert max(waits) <= ceiling
        assert max(waits) > 0.95 * ceiling
        assert min(waits) < 0.05 * ceiling


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("losses", range(POISON_LOSSES))
@pytest.mark.parametrize("failures", range(5))
def test_every_outcome_comes_to_a_change_that_the_job_accepts(
    policy: Policy, outcome: Outcome, cancelled: bool, losses: int, failures: int
) -> None:
    job = replace(JOB, losses=losses, failures=failures, cancel_asked_at=NOW - 1 if cancelled else None)
    change = settled(outcome, policy, job)
    assert change.fence == job.fence
    after = advance(job, change, NOW)
    assert not after.running
    if cancelled:
        assert after.status is Status.CANCELLED
    elif policy.at_most_once and isinstance(outcome, Vanished | Stopped):
        assert after.status is Status.ERROR, "it must not run again"


def test_a_returned_value_is_the_result() -> None:
    change = settled(Returned(result=msgspec.Raw(b'{"a":1}'), files=(FILE,), result_file=FILE))
    assert isinstance(change, Succeeded)
    assert bytes(change.result or b"") == b'{"a":1}'
    assert (change.files, change.result_file, change.error) == ((FILE,), FILE, None)


@pytest.mark.parametrize(
    ("errors", "text"), [([{"page": 7}], "1 part failed"), ([{}, {}], "2 parts failed")]
)
def test_errors_beside_a_result_make_it_partial(errors: list[dict[str, int]], text: str) -> None:
    change = settled(Returned(result=msgspec.Raw(b"1"), errors=errors))
    assert isinstance(change, Succeeded)
    assert change.error is not None
    assert (change.error.code, change.error.message) == ("PARTIAL_SUCCESS", text)
    assert change.error.errors == errors
    assert advance(JOB, change, NOW).status is Status.PARTIAL_SUCCESS


def test_a_failure_is_tried_again_as_often_as_the_kind_says() -> None:
    policy = Policy(retries=2, backoff=10.0)
    raised = Raised(code="OCR_TIMEOUT", message="page 7", step="text")
    job, tries = JOB, 0
    while isinstance(change := settled(raised, policy, job), FailedForNow):
        tries += 1
        assert NOW <= change.retry_at <= NOW + 10 * 2 ** (tries - 1)
        waiting = advance(job, change, NOW)
        assert waiting.status is Status.RETRYING
        job = replace(JOB, failures=waiting.failures, attempt=tries + 1)
    assert tries == 2
    assert isinstance(change, Failed)
    assert change.error == msgspec.convert(
        {
            "code": "OCR_TIMEOUT",
            "message": "page 7",
            "retryable": True,
            "failedStep": "text",
            "attempt": 3,
            "traceId": "t",
        },
        type(change.error),
    )


def test_what_is_not_retryable_ends_at_once() -> None:
    change = settled(Raised(code="BAD", message="m", retryable=False), Policy(retries=9))
    assert isinstance(change, Failed)
    assert change.error.retryable is False


def test_a_vanished_worker_uses_up_no_retry() -> None:
    assert isinstance(settled(Vanished(), Policy(retries=0)), Lost)


def test_three_lost_workers_make_it_poisoned() -> None:
    job, losses = JOB, 0
    while isinstance(change := settled(Vanished(message="killed by signal 9"), job=job), Lost):
        losses += 1
        job = replace(JOB, losses=losses)
    assert losses == 2, "the third loss is the last"
    assert isinstance(change, Failed)
    assert change.error.code == "POISONED"
    assert "killed by signal 9" in change.error.message


@pytest.mark.parametrize("outcome", [Vanished(), Stopped()])
def test_at_most_once_is_never_run_again(outcome: Outcome) -> None:
    change = settled(outcome, Policy(retries=9, at_most_once=True))
    assert isinstance(change, Failed)
    assert change.error.code == "WORKER_LOST"


def test_at_most_once_counts_workers_not_failures() -> None:
    policy = Policy(retries=1, at_most_once=True)
    assert isinstance(settled(Raised(code="E", message="m"), policy), FailedForNow)


def test_a_stopped_handler_is_handed_back() -> None:
    assert isinstance(settled(Stopped()), HandedBack)


def test_the_last_progress_is_folded_into_the_record() -> None:
    progress = Progress(percent=66.0)
    for outcome in (OUTCOMES[0], OUTCOMES[2]):
        change = settle(
            JOB, outcome, Policy(retries=1), now=NOW, rng=random.Random(1), progress=progress
        )
        assert advance(JOB, change, NOW).progress == progress


def test_a_deadline_ends_a_job_wherever_it_is() -> None:
    waiting = replace(JOB, status=Status.PENDING, owner=None, lease_until=None, due=NOW, attempt=0)
    for job, where in ((JOB, "while it ran"), (waiting, "before a worker took it")):
        change = deadline_passed(job)
        assert change.error.code == "DEADLINE"
        assert where in change.error.message
        assert advance(job, change, NOW).status is Status.ERROR
