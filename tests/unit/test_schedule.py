"""The scheduler: within the budget, never silent beyond a job's guard, and close to a brute-force choice."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.client.polling.kinds import SIZES, KindStats, ProgressReport, by_position
from bide.client.polling.planned_job import FOREVER, PlannedJob
from bide.client.polling.schedule import PollSchedule, PollSettings
from bide.client.polling.time_queue import TimeQueue
from bide.client.polling_options import Size
from bide.core.pacing.budget import Budget, Limit
from bide.core.pacing.hazard import Sketch
from tests.examples import examples

Now = float


class Free:
    """A budget without a limit."""

    def __init__(self) -> None:
        self.spent: list[float] = []

    def ready(self, now: float, cost: float = 1.0) -> float:
        return -math.inf

    def take(self, now: float, cost: float = 1.0) -> float:
        self.spent.append(now)
        return now

    def record_response(
        self, now: float, status: int, headers: Mapping[str, str], wall: float
    ) -> None: ...

    def rate(self, now: float) -> float | None:
        return None


def taught(*durations: float) -> Sketch:
    sketch = Sketch()
    for duration in durations:
        sketch.learn(duration)
    return sketch


def schedule(limit: Limit | None = None, price: float = 1.0, seed: int = 1) -> PollSchedule:
    rng = random.Random(seed)
    return PollSchedule(
        Budget(limit, rng=rng) if limit else Free(), rng=rng, settings=PollSettings(price)
    )


Sees = Callable[[PlannedJob, float], None]


def drive(
    plan: PollSchedule, ends: dict[Any, float], until: float = 1e7, sees: Sees | None = None
) -> dict[Any, float]:
    """Asks until all have ended; when each was known to have."""
    known: dict[Any, float] = {}
    now = 0.0
    while len(known) < len(ends) and now < until:
        jobs, again = plan.next(now)
        if not jobs:
            assert again > now, "nothing spins"
            now = again
            continue
        if isinstance(plan.budget, Budget):
            plan.budget.record_response(now, 200, {}, now)
        for job in jobs:
            if sees is not None:
                sees(job, now)
            if now >= ends[job.key]:
                plan.ended(job, now)
                known[job.key] = now
            else:
                plan.still_live(job, now)
    return known


# --- what always holds


@examples(10)
@given(
    st.lists(st.floats(0, 2000), min_size=1, max_size=30),
    st.floats(0.2, 5),
    st.floats(1, 10),
    st.integers(0, 1000),
)
def test_never_more_is_asked_than_the_budget_grants(
    ends: list[float], rate: float, burst: float, seed: int
) -> None:
    plan = schedule(Limit(rate * 10, 10.0, burst), price=0.01, seed=seed)
    moments: list[float] = []
    for i, _ in enumerate(ends):
        plan.add(i, 0.0, kind=plan.kind("k"))
    drive(plan, dict(enumerate(ends)), until=120.0, sees=lambda job, now: moments.append(now))
    for i, start in enumerate(moments):
        for j in range(i, len(moments)):
            assert j - i + 1 <= burst + rate * (moments[j] - start) + 1e-6


@examples(10)
@given(st.lists(st.floats(0, 20_000), min_size=1, max_size=20), st.floats(1, 500), st.floats(0.1, 1e4))
def test_no_job_is_silent_beyond_its_guard(ends: list[float], longest: float, price: float) -> None:
    plan = schedule(price=price)
    kind = KindStats(taught(*[5000.0] * 30))
    asked: dict[Any, float] = {}
    for i, _ in enumerate(ends):
        job = plan.add(i, 0.0, kind=kind)
        job.longest = longest
        plan.failed(job, 0.0, 0.0)  # plans it anew, with the guard
        asked[i] = 0.0

    def sees(job: PlannedJob, now: float) -> None:
        assert now - asked[job.key] <= longest + 1e-6
        asked[job.key] = now

    drive(plan, dict(enumerate(ends)), until=2000.0, sees=sees)


@examples(25)
@given(st.floats(1, 5000), st.floats(1, 5000), st.integers(0, 100))
def test_a_nearer_deadline_is_never_asked_about_later(one: float, other: float, seed: int) -> None:
    def due(deadline: float) -> float:
        plan = schedule(seed=seed)
        plan.add("j", 0.0, kind=KindStats(taught(50, 80, 100, 200, 400)), deadline=deadline)
        return plan.next(0.0)[1]

    near, far = sorted((one, other))
    assert due(near) <= due(far) * 1.0001 <= due(FOREVER) * 1.001


def test_what_is_in_flight_is_not_handed_out_again() -> None:
    plan = schedule()
    plan.add("j", 0.0, kind=plan.kind("k"))
    _, again = plan.next(0.0)
    jobs, _ = plan.next(again)
    assert [job.key for job in jobs] == ["j"]
    assert plan.next(again + 1000) == ([], FOREVER)
    plan.still_live(jobs[0], again)
    assert plan.next(again)[1] > again


def test_a_job_that_was_removed_is_not_asked_about() -> None:
    plan = schedule()
    job = plan.add("j", 0.0, kind=plan.kind("k"))
    plan.remove(job)
    plan.remove(job)
    assert plan.waiting == 0
    assert plan.next(1e6) == ([], FOREVER)


def test_a_failed_poll_waits_for_the_retry_after_and_teaches_nothing() -> None:
    plan = schedule()
    kind = plan.kind("k")
    plan.add("j", 0.0, kind=kind)
    now = plan.next(0.0)[1]
    (job,), _ = plan.next(now)
    plan.failed(job, now, now + 100.0)
    assert plan.next(now)[1] >= now + 100.0
    assert kind.plans.sketch.dump()["bins"] == {}


def test_an_api_that_wants_peace_about_a_job_gets_it() -> None:
    plan = schedule()
    plan.add("j", 0.0, kind=plan.kind("k"))
    now = plan.next(0.0)[1]
    (job,), _ = plan.next(now)
    plan.still_live(job, now, after=77.0)
    assert plan.next(now)[1] >= now + 77.0


# --- moments that are given


@pytest.mark.parametrize("batch", [1, 10])
def test_a_job_of_unknown_age_is_asked_about_at_once(batch: int) -> None:
    plan = schedule(price=50.0)
    kind = plan.kind("k", batch)
    kind.expect(600.0)
    others = [plan.add(f"other {i}", 0.0, kind=kind) for i in range(3)]
    assert plan.next(0.0)[0] == []
    stranger = plan.add("stranger", 0.0, kind=kind, first="now")
    jobs, _ = plan.next(0.0)
    assert stranger in jobs
    assert batch > 1 or jobs == [stranger]
    plan.still_live(stranger, 0.0)  # from then on it is as good as any other
    assert plan.next(0.0)[1] > 10.0
    assert len(others) == 3


def test_a_job_in_a_hurry_still_waits_for_the_budget() -> None:
    plan = schedule(Limit(1.0, 10.0))
    for i in range(3):
        plan.add(i, 0.0, kind=plan.kind("k"), first="now")
    moments: list[float] = []
    drive(plan, dict.fromkeys(range(3), 0.0), sees=lambda job, now: moments.append(now))
    assert all(b - a >= 10.0 for a, b in pairwise(moments))


@pytest.mark.parametrize("learning", [False, True])
def test_a_question_that_the_api_holds_is_asked_again_at_the_moment_that_is_given(
    learning: bool,
) -> None:
    plan = schedule(price=50.0)
    kind = plan.kind("k")
    kind.expect(600.0)
    held = plan.add("held", 0.0, kind=kind, first="now")
    others = [plan.add(i, 0.0, kind=kind, first="now") for i in range(30)]
    asked = [job for _ in range(31) for job in plan.next(0.0)[0]]
    assert set(asked) == {held, *others}
    plan.still_live(held, 0.0, at=0.25)
    for i, job in enumerate(others):
        if learning and i % 2:
            plan.ended(job, 0.1)  # what is learned meanwhile changes plans, but not this moment
        else:
            plan.still_live(job, 0.1)
    assert plan.next(0.2) == ([], 0.25)
    assert plan.next(0.25)[0] == [held]
    plan.still_live(held, 0.3)
    assert plan.next(0.3)[1] > 0.7  # that was for once


# --- that it learns


def test_requests_fall_as_durations_become_known() -> None:
    plan = schedule()
    kind = plan.kind("k")
    rng = random.Random(4)
    counts = []
    now = 0.0
    for i in range(60):
        end, asks = now + rng.gauss(100, 3), 0
        plan.add(i, now, kind=kind)
        while plan.waiting:
            jobs, again = plan.next(now)
            now = again
            for job in jobs:
                asks += 1
                if now >= end:
                    plan.ended(job, now)
                else:
                    plan.still_live(job, now)
        counts.append(asks)
    assert sum(counts[-20:]) / 20 < 3
    assert counts[0] > 4


def test_the_servers_own_time_is_better_than_a_guess() -> None:
    plan = schedule()
    kind = plan.kind("k")
    for i in range(20):
        job = plan.add(i, 0.0, kind=kind)
        job.sent = 50.0
        plan.still_live(job, 50.0)
        plan.ended(job, 200.0, took=61.0)
    assert kind.plans.sketch.table().quantile(0.5) == pytest.approx(61.0, rel=0.1)


@given(
    st.floats(0.1, 3000.0),
    st.sampled_from([None, 5.0, 95.0]),
    st.sampled_from([1, 10]),
    st.integers(0, 1000),
)
def test_the_end_of_the_first_job_of_a_kind_is_noticed_soon_whatever_it_reports(
    duration: float, percent: float | None, batch: int, seed: int
) -> None:
    plan = schedule(seed=seed)
    plan.add("j", 0.0, kind=plan.kind("k", batch))
    now, asked = 0.0, 0.0
    while asked < duration:
        jobs, again = plan.next(now)
        if not jobs:
            now = again
            continue
        assert now - asked <= (max(0.5, asked / 2) if asked else 1.0)
        asked = now
        plan.still_live(jobs[0], now, jobs[0].progressed(now, percent))
    assert asked - duration <= max(1.0, duration / 2)


@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize("percent", [None, 5.0])
def test_every_job_of_a_burst_is_polled_at_half_of_its_age_until_three_ends_are_known(
    percent: float | None, batch: int
) -> None:
    plan = schedule()
    kind = plan.kind("k", batch)
    asked = {plan.add(i, 0.0, kind=kind).key: 0.0 for i in range(30)}
    now, ends = 0.0, 0
    while ends < 3:
        jobs, again = plan.next(now)
        if not jobs:
            now = again
            continue
        for job in jobs:
            before = asked[job.key]
            assert now - before <= (max(0.5, before / 2) if before else 1.0)
            asked[job.key] = now
            if now >= 400.0 * (ends + 1):
                plan.ended(job, now)
                ends += 1
            else:
                plan.still_live(job, now, job.progressed(now, percent))
    assert plan.add("new", now, kind=kind).planned > 2.0, "then the durations of the kind decide"


def test_the_polls_of_many_jobs_of_an_unknown_kind_take_half_of_the_budget() -> None:
    plan = schedule(Limit(60, 60.0, 10))
    kind = plan.kind("k")
    jobs = [plan.add(i, 0.0, kind=kind) for i in range(20)]
    polls: list[float] = []
    silences: list[tuple[float, float]] = []

    def sees(job: PlannedJob, now: float) -> None:
        polls.append(now)
        if job.asked:
            silences.append((job.asked, now - job.asked))

    drive(plan, {job.key: math.inf for job in jobs}, until=400.0, sees=sees)
    assert all(silence <= max(asked / 2, 40.0) + 10.0 for asked, silence in silences)
    assert sum(20.0 <= moment < 80.0 for moment in polls) <= 30 + 10, "the burst of the limit"


def test_a_job_that_had_ended_before_its_first_poll_teaches_what_the_api_says() -> None:
    plan = schedule()
    kind = plan.kind("k")
    for duration in (None, 60.0):
        job = plan.add("j", 0.0, kind=kind, first="now")
        assert plan.next(0.0)[0] == [job]
        plan.found_ended(job, 0.1, duration)
        assert plan.waiting == 0
    assert kind.plans.sketch.count == 1
    assert kind.plans.sketch.table(exact=False).quantile(0.5) > 10.0


def test_a_hint_is_followed_from_the_first_job_on() -> None:
    plan = schedule()
    plan.add("j", 0.0, kind=plan.kind("k"), expected=1000.0)
    assert 50.0 < plan.next(0.0)[1] < 1500.0


@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_a_size_bounds_the_silence(size: Size) -> None:
    plan = schedule(price=0.001)
    shortest, longest, _ = SIZES[size]
    last: list[float] = [0.0]

    def sees(job: PlannedJob, now: float) -> None:
        assert shortest - 1e-6 <= now - last[0] <= longest + 1e-6
        last[0] = now

    plan.add("j", 0.0, kind=plan.kind("doc", size=size), size=size)
    drive(plan, {"j": 100.0}, sees=sees)
    plan.floor = plan.price = 1000.0
    last[0] = 0.0
    plan.add("k", 0.0, kind=plan.kind("doc", size=size), size=size)
    drive(plan, {"k": 100.0}, sees=sees)


def test_reports_that_prove_right_are_followed_and_those_that_do_not_are_not() -> None:
    rng = random.Random(9)

    def delays(report: Callable[[float, float], ProgressReport]) -> tuple[float, int]:
        plan = schedule()
        kind = plan.kind("k")
        late, asks, now = 0.0, 0, 0.0
        for i in range(60):
            end = now + rng.uniform(100, 1000)
            plan.add(i, now, kind=kind)
            while plan.waiting:
                jobs, now = plan.next(now)
                for job in jobs:
                    asks += i >= 30
                    if now >= end:
                        plan.ended(job, now)
                        late += (now - end) * (i >= 30)
                    else:
                        plan.still_live(job, now, report(now, end))
        return late / 30, asks // 30

    right = delays(lambda now, end: ProgressReport("eta", end - now))
    wrong = delays(lambda now, end: ProgressReport("eta", rng.uniform(1, 2000)))
    none_late, none_asks = 15.0, 16  # about what the durations alone allow at this price
    assert right[0] < 2 and right[1] <= 5
    assert wrong[0] + wrong[1] < 2.5 * (none_late + none_asks)


def by_progress(age: float, percent: float | None) -> ProgressReport | None:
    """The report of the first percentage of a job."""
    return PlannedJob("a", KindStats(), 0.0).progressed(age, percent)


def test_progress_and_position_as_reports() -> None:
    assert by_progress(30.0, 75.0) == ProgressReport("progress 2", 10.0)
    early = by_progress(30.0, 10.0)
    assert early is not None
    assert early.source == "progress early"
    assert early.left == pytest.approx(270.0)
    for nothing in (None, 0.0, -5.0, math.nan, 140.0):
        assert by_progress(30.0, nothing) is None
    assert by_progress(30.0, 100.0) is not None
    assert by_position(0).left == 1.0


def test_a_percentage_is_read_with_those_before_it() -> None:
    exact, noisy = PlannedJob("a", KindStats(), 0.0), PlannedJob("b", KindStats(), 0.0)
    rng = random.Random(5)
    off, off_alone = [], []
    for age in range(60, 570, 30):  # of a job that takes 600 s
        told = exact.progressed(age, age / 6)
        assert told is not None
        assert told.left == pytest.approx(600.0 - age)
        percent = min(99.0, age / 6 + rng.gauss(0.0, 10.0))
        together, alone = noisy.progressed(age, percent), by_progress(age, percent)
        if together is not None and alone is not None and age > 200:
            off.append(abs(together.left - (600.0 - age)))
            off_alone.append(abs(alone.left - (600.0 - age)))
    assert sum(off) < 0.6 * sum(off_alone)


@given(st.lists(st.tuples(st.floats(-1e3, 1e12), st.none() | st.floats()), max_size=20))
def test_whatever_percentages_say_a_report_is_finite_and_positive(told: list[tuple[float, Any]]) -> None:
    job = PlannedJob("a", KindStats(), 0.0)
    for age, percent in told:
        report = job.progressed(age, percent)
        assert report is None or 0.0 < report.left < math.inf


def test_what_was_learned_survives_being_stored() -> None:
    kind = KindStats(taught(10, 20, 30))
    kind.report("eta").sketch.learn(1.0)
    again = KindStats.load(kind.dump())
    assert again.plans.at(1.0, 0.0).next(0.0) == pytest.approx(kind.plans.at(1.0, 0.0).next(0.0))
    assert again.report("eta").sketch.count == kind.report("eta").sketch.count


# --- under a tight budget


def test_the_price_rises_until_the_load_fits_and_falls_when_it_does() -> None:
    plan = schedule(Limit(1.0, 1.0, 1.0))
    kind = plan.kinds["job"] = KindStats(
        taught(*[random.Random(i).uniform(120, 900) for i in range(100)])
    )
    for i in range(200):
        plan.add(i, 0.0, kind=kind)
    now = 0.0
    while now < 600.0:
        jobs, again = plan.next(now)
        now = max(now, again)
        for job in jobs:
            plan.still_live(job, now)
    assert plan.price > 5.0
    for job in list(plan._ring)[:195]:
        plan.remove(job)
    while now < 2500.0:
        jobs, again = plan.next(now)
        now = max(now, again)
        for job in jobs:
            plan.still_live(job, now)
    assert plan.price < 2.0
    advice = plan.advice(now)
    assert advice is not None and advice.allowed == pytest.approx(1.0, rel=0.05)


def test_no_advice_is_better_than_a_guess_but_what_a_caller_expects_counts() -> None:
    plan = schedule(Limit(1.0, 1.0, 1.0))
    for i in range(100):
        plan.add(i, 0.0, kind=plan.kind("job"))
    assert plan.advice(0.0) is None
    plan.add("one more", 0.0, kind=plan.kind("job"), expected=60.0)
    advice = plan.advice(0.0)
    assert advice is not None and not advice.enough


def test_starved_it_does_as_well_as_a_choice_by_brute_force() -> None:
    """Two kinds, a budget for a tenth of what they want: at each token the largest index of all, or our queue."""
    curves = {
        "short": taught(*[20.0 + i for i in range(40)]),
        "long": taught(*[300.0 + 10 * i for i in range(60)]),
    }
    rng = random.Random(3)
    ends = {(name, i): rng.choice([20.0 + rng.uniform(0, 40), 0.0]) if name == "short" else rng.uniform(300, 900)
            for name in curves for i in range(60)}  # fmt: skip

    class Told(Sketch):
        def survived(self, low: float, high: float) -> None: ...
        def learn_between(self, low: float, high: float) -> None: ...

    kinds = {}
    for name, sketch in curves.items():
        told = Told.load(sketch.dump())
        told.table()
        kinds[name] = KindStats(told)
    plan = schedule(Limit(1.0, 1.0, 1.0), price=0.1)
    for key in ends:
        plan.add(key, 0.0, kind=kinds[key[0]])
    ours = sum(known - ends[key] for key, known in drive(plan, ends).items())

    waiting = {key: PlannedJob(key, kinds[key[0]], 0.0) for key in ends}
    brute, now = 0.0, 0.0
    while waiting:
        now += 1.0
        job = max(waiting.values(), key=lambda job: job.lost(now))
        if job.lost(now) < 0.1:
            continue
        if now >= ends[job.key]:
            brute += now - ends[job.key]
            del waiting[job.key]
        else:
            job.asked = now
    assert ours < 1.1 * brute


# --- batches


def test_a_batch_is_asked_about_when_it_is_worth_it_together() -> None:
    plan = schedule()
    kind = plan.kind("k", batch=10)
    rng = random.Random(2)
    ends = {i: rng.uniform(120, 900) for i in range(40)}
    for i in ends:
        plan.add(i, 0.0, kind=kind)
    asked: list[float] = []
    known = drive(plan, ends, sees=lambda job, now: asked.append(now))
    requests = len(plan.budget.spent)  # type: ignore[attr-defined]
    assert 4 * requests < len(asked) <= 10 * requests
    assert requests < 280  # one by one it takes twice as many
    assert sum(known[i] - ends[i] for i in ends) / 40 < 30


def test_a_batch_obeys_the_guard() -> None:
    plan = schedule(price=1e6)
    job = plan.add("j", 0.0, kind=plan.kind("k", batch=5))
    job.longest = 50.0
    plan.failed(job, 0.0, 0.0)
    moments: list[float] = []
    drive(plan, {"j": 170.0}, sees=lambda job, now: moments.append(now))
    assert all(b - a <= 50.0 + 0.5 for a, b in zip([0.0, *moments], moments, strict=False))


# --- the queue


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=200))
def test_the_calendar_gives_what_a_sorted_list_gives(steps: list[tuple[bool, float]]) -> None:
    calendar: TimeQueue[str] = TimeQueue()
    model: list[tuple[float, int]] = []
    for number, (push, moment) in enumerate(steps):
        if push or not model:
            calendar.push(moment, number, "x")
            model.append((moment, number))
        else:
            head = calendar.head()
            assert head is not None
            assert -head[0] == min(model)[0]
            model.remove((-head[0], head[1]))
            calendar.pop()
    left = []
    while (head := calendar.head()) is not None:
        left.append(-head[0])
        calendar.pop()
    assert left == sorted(moment for moment, _ in model)
