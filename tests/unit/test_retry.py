"""The change after an attempt: every outcome, every policy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bide.core.jobs.record import FileInfo, Job, Progress, Status, Step
from bide.core.jobs.retry import (
    MOST_LOSSES,
    Outcome,
    Policy,
    Raised,
    Returned,
    Stopped,
    Vanished,
    deadline_passed,
    settle,
)
from bide.core.jobs.state_machine import (
    Change,
    Claimed,
    Failed,
    FailedForNow,
    HandedBack,
    Lost,
    Rerun,
    StepKept,
    Succeeded,
    advance,
)
from bide.core.pacing.backoff import backoff

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
ONE = msgspec.Raw(b"1")
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
@pytest.mark.parametrize("losses", range(4))
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

    assert "3 workers were lost" in change.error.message
    assert "max_losses=3, 3 lost in this run" in change.error.message


def test_a_kind_says_how_many_losses_it_bears() -> None:
    assert isinstance(settled(Vanished(), Policy(max_losses=4), replace(JOB, losses=2)), Lost)
    change = settled(Vanished(), Policy(max_losses=1))
    assert isinstance(change, Failed)
    assert "1 worker was lost without a new step or more progress (max_losses=1" in change.error.message


class Attempt(NamedTuple):
    new_steps: int
    percent: float | None
    outcome: Outcome


ATTEMPTS = st.lists(
    st.builds(
        Attempt,
        st.sampled_from([0, 0, 0, 1]),
        st.none() | st.sampled_from([0.0, 10.0, 20.0, 50.0, 90.0]),
        st.sampled_from([Vanished(), Vanished(), Stopped(), Raised(code="E", message="m")]),
    ),
    max_size=60,
)


def lived(attempts: list[Attempt], policy: Policy) -> Iterator[tuple[Attempt, Change, Job]]:
    """The change after each attempt and the job after it, until the job ends."""
    job = replace(JOB, status=Status.PENDING, owner=None, lease_until=None, due=NOW, fence=0, attempt=0)
    for number, attempt in enumerate(attempts):
        job = advance(job, Claimed(job_id="J", owner="w", lease_until=NOW + 30), NOW)
        for step in range(attempt.new_steps):
            kept = StepKept(
                job_id="J", owner=job.owner, fence=job.fence, name=f"{number}.{step}", result=ONE
            )
            job = advance(job, kept, NOW)
        shown = None if attempt.percent is None else Progress(percent=attempt.percent)
        rng = random.Random(number)
        change = settle(job, attempt.outcome, policy, now=NOW, rng=rng, progress=shown)
        job = advance(job, change, NOW)
        yield attempt, change, job
        if job.status.terminal:
            return


@given(ATTEMPTS, st.integers(1, MOST_LOSSES))
def test_losses_count_since_the_last_attempt_that_came_further(
    attempts: list[Attempt], max_losses: int
) -> None:
    """Against a rule that looks at the whole history."""
    policy = Policy(retries=1000, max_losses=max_losses)
    in_a_row = lost = 0
    best = 0.0
    for attempt, change, job in lived(attempts, policy):
        percent = attempt.percent or 0.0
        if attempt.new_steps or percent > best:
            in_a_row = 0
        best = max(best, percent)
        if not isinstance(attempt.outcome, Vanished):
            assert not job.status.terminal
            continue
        in_a_row, lost = in_a_row + 1, lost + 1
        poisoned = in_a_row >= max_losses or lost >= MOST_LOSSES
        assert isinstance(change, Failed if poisoned else Lost)
        if isinstance(change, Failed):
            assert change.error.code == "POISONED"
            assert f"{lost} " in change.error.message
        else:
            assert job.losses == lost


def test_a_job_that_comes_further_each_time_ends_after_twenty_losses() -> None:
    attempts = [Attempt(1, None, Vanished())] * 50
    *before, (_, change, _) = lived(attempts, Policy())
    assert len(before) == MOST_LOSSES - 1
    assert isinstance(change, Failed)
    assert "20 workers were lost in this run" in change.error.message


def test_a_new_run_counts_anew() -> None:
    *_, (_, _, ended) = lived([Attempt(1, 90.0, Vanished())] * 3, Policy(max_losses=1))
    again = advance(ended, Rerun(job_id="J"), NOW)
    assert (again.losses, again.loss_record) == (0, None)


def test_a_job_of_before_the_count_restarted_is_read_as_it_was() -> None:
    change = settled(Vanished(), job=replace(JOB, losses=2, loss_record=None))
    assert isinstance(change, Failed), "nothing is known of it but its two losses"


def test_what_was_only_reserved_has_not_come_anywhere() -> None:
    reserved = replace(JOB, status=Status.PENDING, steps=(Step("s", Status.DONE),))
    assert advance(reserved, settled(Vanished(), job=reserved), NOW).loss_record is None


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
