"""The state machine: every pair of states with every change, fences, versions, and the numbered invariants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from bide.core.errors import ErrorInfo
from bide.core.jobs.record import TERMINAL, Child, FileInfo, Job, Progress, Status, Step
from bide.core.jobs.state_machine import (
    BY_WORKER,
    TRANSITIONS,
    Begun,
    CancelAsked,
    Cancelled,
    Change,
    ChildEnded,
    Claimed,
    Delayed,
    Failed,
    FailedForNow,
    HandedBack,
    Lost,
    MarkedOverdue,
    Parked,
    PriorityChanged,
    Refused,
    Released,
    Rerun,
    Reserved,
    Spawned,
    Stale,
    StepKept,
    StepStarted,
    Succeeded,
    UnknownChild,
    Uploaded,
    WrongStatus,
    WrongVersion,
    advance,
    cancel,
    diagram,
    ripples,
)

NOW = 1_900_000_000.0
OOPS = ErrorInfo(code="OOPS", message="it went wrong")
ONE = msgspec.Raw(b"1")
FILE = FileInfo("a.mp4", "video/mp4", 3, "ab", "blob")
CHANGES = list(TRANSITIONS)


def make_change(kind: type[Change], fence: int | None) -> Change:
    """A change with everything that its class needs; `fence` is given only where workers give it."""
    parts: dict[type[Change], dict[str, Any]] = {
        Claimed: {"owner": "w", "lease_until": NOW + 30},
        Reserved: {"owner": "w", "lease_until": NOW + 30},
        Begun: {"started_at": NOW},
        StepStarted: {"name": "s"},
        StepKept: {"name": "s", "result": ONE},
        Spawned: {"child": Child("C", "part", "0")},
        Parked: {"waiting_for": ("C",)},
        ChildEnded: {"child_id": "C", "status": Status.DONE},
        FailedForNow: {"error": OOPS, "retry_at": NOW + 5},
        Delayed: {"error": OOPS, "retry_at": NOW + 5},
        Released: {"fence": 3, "due": NOW + 5},
        Failed: {"error": OOPS},
        MarkedOverdue: {"message": "late"},
        PriorityChanged: {"priority": 3},
    }
    mine = {"owner": "w", "fence": fence} if kind in BY_WORKER else {}
    return kind(job_id="J", **mine, **parts.get(kind, {}))  # type: ignore[arg-type]


def make_job(status: Status, **fields: Any) -> Job:
    """A job as it is in this status; PROCESSING is running."""
    known: dict[str, Any] = {"status": status, "version": 5, "fence": 3, "keep": 60.0}
    if status in (Status.PENDING, Status.RETRYING):
        known["due"] = NOW
    if status is Status.RETRYING:
        known["next_attempt_at"] = NOW
    if status is Status.PROCESSING:
        known.update(owner="w", lease_until=NOW + 30, started_at=NOW, attempt=1)
    if status in TERMINAL:
        known.update(finished_at=NOW - 1, expires_at=NOW + 59)
    return Job("J", "work", "default", NOW - 9, NOW - 1, **{**known, **fields})


def parked(**fields: Any) -> Job:
    return make_job(Status.PROCESSING, owner=None, lease_until=None, waiting_for=("C",), **fields)


def reserved(status: Status = Status.PENDING) -> Job:
    """In a worker's line, behind what runs there."""
    return make_job(status, due=None, owner="w", lease_until=NOW + 30)


def fitting_job(status: Status, kind: type[Change]) -> Job:
    if kind is Claimed and status is Status.PROCESSING:
        return parked(due=NOW)  # the one way in which a job in PROCESSING waits for a worker
    if kind is Parked:
        return make_job(status, children=(Child("C", "part", "0"),))
    if kind in (Begun, HandedBack, CancelAsked) and status in (Status.PENDING, Status.RETRYING):
        return reserved(status)
    return make_job(status)


def worked_on(kind: type[Change]) -> Job:
    """A job that a worker may make this change to."""
    return reserved() if kind is Begun else fitting_job(Status.PROCESSING, kind)


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("goal", list(Status))
@pytest.mark.parametrize("source", list(Status))
def test_every_pair_of_states_with_every_change(
    source: Status, goal: Status, kind: type[Change]
) -> None:
    job = fitting_job(source, kind)
    before = msgspec.structs.asdict(job)
    try:
        reached = advance(job, make_change(kind, job.fence), NOW).status
    except Refused as refusal:
        assert source not in TRANSITIONS[kind]
        assert refusal.job is job
        assert isinstance(refusal, WrongStatus)
        assert source.value in refusal.reason
    else:
        assert (reached is goal) == (TRANSITIONS[kind].get(source) is goal)
    assert msgspec.structs.asdict(job) == before


@pytest.mark.parametrize("source", list(Status))
def test_a_partial_success_comes_from_processing_only(source: Status) -> None:
    change = Succeeded(job_id="J", owner="w", fence=3, result=ONE, error=OOPS)
    if source is Status.PROCESSING:
        assert advance(make_job(source), change, NOW).status is Status.PARTIAL_SUCCESS
    else:
        with pytest.raises(WrongStatus):
            advance(make_job(source), change, NOW)


def test_the_table_says_what_the_contract_says() -> None:
    assert set(TRANSITIONS[Rerun]) == {Status.ERROR, Status.CANCELLED, Status.PARTIAL_SUCCESS}
    assert {s for s in Status if s.terminal} == TERMINAL
    assert len(TERMINAL) == 4
    leaving = {
        kind for kind, moves in TRANSITIONS.items() for a, b in moves.items() if a in TERMINAL and a != b
    }
    assert leaving == {Rerun}
    assert Status.PENDING in TRANSITIONS[Failed], "a deadline can pass before any attempt"


@pytest.mark.parametrize("kind", sorted(BY_WORKER, key=str))
@pytest.mark.parametrize("fence", [None, 2, 4])
def test_a_worker_with_another_fence_is_refused(kind: type[Change], fence: int | None) -> None:
    with pytest.raises(Stale):
        advance(worked_on(kind), make_change(kind, fence), NOW)


@pytest.mark.parametrize("kind", sorted(BY_WORKER, key=str))
def test_a_worker_that_has_stepped_aside_is_refused(kind: type[Change]) -> None:
    job = make_job(Status.PENDING) if kind is Begun else parked()
    with pytest.raises(Stale):
        advance(job, make_change(kind, 3), NOW)


@pytest.mark.parametrize("kind", [Failed, Cancelled])
def test_a_fence_that_is_given_counts(kind: type[Change]) -> None:
    change = make_change(kind, None)
    with pytest.raises(Stale):
        advance(make_job(Status.PROCESSING), replace(change, owner="w", fence=2), NOW)
    with pytest.raises(Stale):
        advance(make_job(Status.PENDING), replace(change, owner="w", fence=3), NOW)
    given = replace(change, owner="w", fence=3)
    assert advance(make_job(Status.PROCESSING), given, NOW).status in TERMINAL


@pytest.mark.parametrize("kind", sorted(BY_WORKER, key=str))
def test_the_same_fence_of_another_owner_is_stale(kind: type[Change]) -> None:
    """As after a failover to a standby that did not have the claim: the number is given out again."""
    job = worked_on(kind)
    for owner in ("another", None):
        with pytest.raises(Stale, match="owner"):
            advance(job, replace(make_change(kind, 3), owner=owner), NOW)


@pytest.mark.parametrize("kind", CHANGES)
def test_the_version_grows_by_one_and_another_one_is_refused(kind: type[Change]) -> None:
    job = fitting_job(next(iter(TRANSITIONS[kind])), kind)
    change = make_change(kind, job.fence)
    assert advance(job, replace(change, version=5), NOW).version == 6
    for version in (4, 6):
        with pytest.raises(WrongVersion, match="version 5"):
            advance(job, replace(change, version=version), NOW)


def test_only_a_due_job_can_be_claimed() -> None:
    for job in (make_job(Status.PENDING, due=None), make_job(Status.PROCESSING), parked()):
        with pytest.raises(WrongStatus, match="not due"):
            advance(job, make_change(Claimed, None), NOW)


def test_a_reserved_job_does_not_run_yet_and_goes_back_uncounted() -> None:
    job = advance(make_job(Status.PENDING), make_change(Reserved, None), NOW)
    assert (job.status, job.held, job.running, job.attempt, job.fence) == (
        Status.PENDING,
        True,
        False,
        0,
        4,
    )
    with pytest.raises(WrongStatus):
        advance(job, make_change(Claimed, None), NOW)  # no other worker takes it meanwhile
    back = advance(job, make_change(HandedBack, 4), NOW)
    assert (back.status, back.due, back.held, back.losses, back.attempt) == (
        Status.PENDING,
        NOW,
        False,
        0,
        0,
    )
    begun = advance(job, make_change(Begun, 4), NOW + 1)
    assert (begun.status, begun.attempt, begun.started_at) == (Status.PROCESSING, 1, NOW)


def test_a_reserved_job_is_asked_to_stop_before_it_is_cancelled() -> None:
    asked = advance(reserved(), cancel(reserved()), NOW)
    assert (asked.status, asked.cancel_asked_at) == (Status.PENDING, NOW)
    assert advance(asked, make_change(HandedBack, 3), NOW).status is Status.CANCELLED


def test_a_parked_parent_goes_on_with_the_attempt_that_it_had() -> None:
    progress = Progress(percent=40.0)
    job = parked(due=NOW, failures=1, attempt=2, progress=progress)
    after = advance(job, make_change(Claimed, None), NOW + 50)
    assert (after.attempt, after.started_at, after.progress) == (2, NOW, progress)
    assert (after.fence, after.waiting_for, after.running) == (4, None, True)


@pytest.mark.parametrize("known", [(), (Child("B", "part", "0"),)])
def test_a_job_parks_only_on_its_own_children(known: tuple[Child, ...]) -> None:
    job = make_job(Status.PROCESSING, children=known)
    waiting_for = (*(child.job_id for child in known), "C")
    with pytest.raises(UnknownChild, match="no child C"):
        advance(job, Parked(job_id="J", owner="w", fence=3, waiting_for=waiting_for), NOW)


def test_an_id_that_is_no_child_delays_no_parked_job() -> None:
    stuck = parked(children=(Child("B", "part", "0", Status.DONE),))
    assert advance(stuck, make_change(ChildEnded, None), NOW).due == NOW
    waits = parked(children=(Child("C", "part", "0"),))
    other = ChildEnded(job_id="J", child_id="B", status=Status.DONE)
    assert advance(waits, other, NOW).due is None


def test_a_retry_is_a_new_attempt_without_the_old_progress() -> None:
    job = make_job(Status.RETRYING, failures=2, attempt=2, progress=Progress(percent=40.0))
    after = advance(job, make_change(Claimed, None), NOW + 50)
    assert (after.attempt, after.started_at, after.progress) == (3, NOW + 50, None)


@pytest.mark.parametrize("kind", [Parked, Succeeded, FailedForNow, Delayed, Failed, Lost, HandedBack])
def test_whatever_ends_the_attempt_ends_the_job_when_a_cancel_was_asked(kind: type[Change]) -> None:
    job = make_job(Status.PROCESSING, cancel_asked_at=NOW - 1, steps=(Step("s", Status.PROCESSING),))
    after = advance(job, make_change(kind, 3), NOW)
    assert (after.status, after.due, after.parked) == (Status.CANCELLED, None, False)
    assert after.steps == (Step("s", Status.CANCELLED, None, NOW),)


@pytest.mark.parametrize("kind", sorted(BY_WORKER, key=str))
def test_a_lease_that_was_renewed_meanwhile_has_not_run_out(kind: type[Change]) -> None:
    job = worked_on(kind)
    change = make_change(kind, 3)
    with pytest.raises(Stale, match="renewed"):
        advance(job, replace(change, lease=NOW), NOW)
    assert advance(job, replace(change, lease=NOW + 30), NOW).version == 6


def test_cancelling_a_running_job_is_a_request() -> None:
    assert isinstance(cancel(make_job(Status.PROCESSING)), CancelAsked)
    for job in (make_job(Status.PENDING), parked(), make_job(Status.UPLOADING)):
        assert isinstance(cancel(job, version=5), Cancelled)
        assert cancel(job, version=5).version == 5


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (FailedForNow(job_id="J", owner="w", fence=3, error=OOPS, retry_at=NOW), Status.ERROR),
        (Failed(job_id="J", error=OOPS), Status.ERROR),
        (Lost(job_id="J", owner="w", fence=3), Status.PENDING),
        (Cancelled(job_id="J"), Status.CANCELLED),
        (Succeeded(job_id="J", owner="w", fence=3), Status.ERROR),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_unfinished_step_ends_with_its_attempt(change: Change, status: Status) -> None:
    steps = (Step("probe", Status.DONE, NOW - 9, NOW - 8), Step("transcode", Status.PROCESSING, NOW - 7))
    after = advance(make_job(Status.PROCESSING, steps=steps), change, NOW)
    # The step of a lost attempt starts again; it has no times until then.
    times = (None, None) if status is Status.PENDING else (NOW - 7, NOW)
    assert after.steps == (steps[0], Step("transcode", status, *times))


@pytest.mark.parametrize(
    "kind", [Parked, Succeeded, FailedForNow, Delayed, Failed, Lost, HandedBack, Cancelled]
)
def test_an_overdue_job_is_marked_once_and_until_its_attempt_ends(kind: type[Change]) -> None:
    mark = make_change(MarkedOverdue, None)
    marked = advance(make_job(Status.PROCESSING, children=(Child("C", "part", "0"),)), mark, NOW)
    assert (marked.overdue_at, marked.version, marked.status) == (NOW, 6, Status.PROCESSING)
    with pytest.raises(WrongStatus, match="already"):
        advance(marked, mark, NOW + 1)
    assert advance(marked, make_change(kind, 3), NOW).overdue_at is None


def test_a_step_is_named_once() -> None:
    job = make_job(Status.PROCESSING)
    for kind, at in ((StepStarted, NOW), (StepKept, NOW + 2)):
        job = advance(job, make_change(kind, 3), at)
    assert job.steps == (Step("s", Status.DONE, NOW, NOW + 2),)


def test_a_later_file_of_the_same_name_takes_the_place_of_the_first() -> None:
    job = make_job(Status.PROCESSING, files=(FILE, replace(FILE, name="b")))
    new = replace(FILE, size=9, blob="other")
    after = advance(job, Succeeded(job_id="J", owner="w", fence=3, files=(new,)), NOW)
    assert after.files == (new, job.files[1])


def test_retention_counts_from_the_end() -> None:
    change = make_change(Cancelled, None)
    assert advance(make_job(Status.PENDING), change, NOW).expires_at == NOW + 60
    assert advance(make_job(Status.PENDING, keep=None), change, NOW).expires_at is None


def test_an_upload_makes_a_job_due_at_its_time() -> None:
    for run_at, due in ((None, NOW), (NOW - 5, NOW), (NOW + 5, NOW + 5)):
        job = make_job(Status.UPLOADING, run_at=run_at)
        assert advance(job, Uploaded(job_id="J"), NOW).due == due


def test_a_rerun_forgets_a_deadline_that_has_passed() -> None:
    for deadline, kept in ((NOW - 1, None), (NOW + 1, NOW + 1), (None, None)):
        job = make_job(Status.ERROR, deadline=deadline)
        assert advance(job, Rerun(job_id="J"), NOW).deadline == kept


def test_ripples_name_the_relatives_that_a_change_concerns() -> None:
    children = (
        Child("done", "part", "0", Status.DONE),
        Child("bad", "part", "1", Status.ERROR),
        Child("live", "part", "2"),
    )
    job = make_job(Status.PROCESSING, parent="P", children=children)

    def after(change: Change, before: Job = job) -> list[tuple[str, str]]:
        return ripples(before, advance(before, change, NOW))

    assert after(make_change(StepStarted, 3)) == []
    assert after(make_change(Succeeded, 3)) == [("P", "ended")]
    assert after(make_change(Failed, None)) == [("P", "ended"), ("live", "cancel")]
    assert after(CancelAsked(job_id="J")) == [("live", "cancel")]
    failed = advance(job, make_change(Failed, None), NOW)
    assert after(Rerun(job_id="J"), failed) == [("bad", "rerun"), ("live", "rerun")]
    assert after(ChildEnded(job_id="J", child_id="live", status=Status.DONE), failed) == []


def test_the_diagram_in_the_docs_is_the_tables() -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "states.md"
    block = page.read_text().split("```mermaid\n")[1].split("\n```")[0]
    assert block == diagram(), "put the output of bide.core.jobs.state_machine.diagram() into the page"


CHILDREN = ("C1", "C2", "C3")


class Life(RuleBasedStateMachine):
    """Any changes in any order, by workers with good and bad fences: the invariants of core/jobs/state_machine.py hold."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.ends = 0
        self.job = Job("J", "work", "default", NOW, NOW, status=Status.UPLOADING, keep=60.0)

    def apply(self, change: Change) -> None:
        before, self.now = self.job, self.now + 1
        try:
            after = advance(before, change, self.now)
        except Refused:
            return
        goal = TRANSITIONS[type(change)][before.status]
        allowed = {goal}
        if isinstance(change, Succeeded):
            allowed.add(Status.PARTIAL_SUCCESS)
        if before.cancel_asked_at is not None:
            allowed.add(Status.CANCELLED)
        assert after.status in allowed, "1"
        assert type(change) not in BY_WORKER or change.fence == before.fence, "2"
        assert after.version == before.version + 1, "3"
        assert after.fence == before.fence + isinstance(change, Claimed | Reserved), "3"
        if before.status.terminal:
            assert isinstance(change, Rerun | ChildEnded), "4"
            assert after.run == before.run + isinstance(change, Rerun), "4"
        else:
            assert after.run == before.run
            self.ends += after.status.terminal
        self.job = after

    @rule()
    def upload(self) -> None:
        self.apply(Uploaded(job_id="J"))

    @rule()
    def claim(self) -> None:
        self.apply(Claimed(job_id="J", owner="w", lease_until=self.now + 30))

    @rule()
    def reserve(self) -> None:
        self.apply(Reserved(job_id="J", owner="w", lease_until=self.now + 30))

    @rule(
        kind=st.sampled_from(sorted(BY_WORKER, key=str)),
        off=st.sampled_from([0, 0, -1]),
    )
    def work(self, kind: type[Change], off: int) -> None:
        change = make_change(kind, self.job.fence + off)
        if isinstance(change, Spawned):
            number = len(self.job.children)
            if number == len(CHILDREN):
                return
            change = replace(change, child=Child(CHILDREN[number], "part", str(number)))
        elif isinstance(change, Parked):
            waiting_for = tuple(c.job_id for c in self.job.children)
            if off:  # with a good fence: what it waits for is wrong
                change = replace(change, fence=self.job.fence)
                waiting_for += ("stranger",)
            change = replace(change, waiting_for=waiting_for)
        self.apply(change)

    @rule(child=st.sampled_from(CHILDREN), status=st.sampled_from(sorted(TERMINAL)))
    def end_child(self, child: str, status: Status) -> None:
        self.apply(ChildEnded(job_id="J", child_id=child, status=status))

    @rule()
    def want_cancel(self) -> None:
        self.apply(cancel(self.job))

    @precondition(lambda self: self.job.version > 6)
    @rule(kind=st.sampled_from([Failed, Rerun, Cancelled]))
    def decide(self, kind: type[Change]) -> None:
        self.apply(make_change(kind, None))

    @invariant()
    def holds(self) -> None:
        job, status = self.job, self.job.status
        assert self.ends == job.run - (not status.terminal), "4: each run enters a terminal status once"
        if job.due is not None:
            assert not job.held, "5"
            assert status in (Status.PENDING, Status.RETRYING) or job.parked, "5"
        assert (job.owner is not None) == job.held, "6"
        waiting = status in (Status.PENDING, Status.RETRYING)
        assert waiting or status is Status.PROCESSING or not job.held, "6"
        # Nothing is forgotten: a live job is due, runs, or waits for a child that has not ended.
        if waiting:
            assert (job.due is not None) != job.held
        if status is Status.PROCESSING:
            ended = {c.job_id for c in job.children if c.status is not None}
            waits = job.parked and not ended.issuperset(job.waiting_for or ())
            known = {c.job_id for c in job.children}
            assert known.issuperset(job.waiting_for or ()), "7"
            assert [job.running, waits, job.due is not None].count(True) == 1
        assert (job.finished_at is not None) == (job.expires_at is not None) == status.terminal
        assert (job.next_attempt_at is not None) == (status is Status.RETRYING)
        assert not job.parked or status is Status.PROCESSING
        assert not status.terminal or all(s.status is not Status.PROCESSING for s in job.steps)
        assert (status is Status.ERROR) <= (job.error is not None)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
