"""Requests that a budget grants, with vendors in virtual time: windows and buckets of any phase, advertised or hidden."""

from __future__ import annotations

import bisect
import math
import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.pacing.budget import Budget, Limit, read_limit
from bide.core.pacing.limits import LIMIT_HEADERS
from bide.core.pacing.meter import LONGEST_PAUSE
from bide.lab.scenario import Rules
from tests.examples import examples
from tests.unit.vendor import WALL, Bucket, Lab, Window, drive

ROUNDINGS = st.sampled_from(["ceil", "floor", "exact"])


def budget(limit: Limit | None = None) -> Budget:
    return Budget(limit, rng=random.Random(1))


def met(limit: Limit | None = None) -> Budget:
    """One whose first request was answered."""
    made = budget(limit)
    made.spend(0.0)
    made.record_response(0.1, 200, {}, WALL)
    return made


def told(left: float, reset: float, quota: int = 60, window: int = 60) -> dict[str, str]:
    return {
        "RateLimit": f'"default";r={left:g};t={reset:g}',
        "RateLimit-Policy": f'"default";q={quota};w={window}',
    }


@examples(30)
@given(
    quota=st.integers(2, 300),
    per=st.sampled_from([10.0, 30.0, 60.0, 300.0]),
    phase=st.floats(0, 300),
    rounding=ROUNDINGS,
    latency=st.floats(0, 1.5),
    seed=st.integers(0, 1000),
)
def test_an_advertised_window_is_met_without_a_refusal(
    quota: int, per: float, phase: float, rounding: str, latency: float, seed: int
) -> None:
    server = Window(quota, per, phase, rounding)
    run = drive(budget(), server, 6 * per, latency=latency, seed=seed)
    assert run.refused == 0
    if per >= 60:
        assert run.accepted > 4 * min(quota, per / 4), "and most of it is used"


@examples(30)
@given(
    requests=st.integers(5, 300),
    burst=st.integers(3, 60),
    reset=st.sampled_from(["full", "next"]),
    rounding=ROUNDINGS,
    latency=st.floats(0, 1.5),
    seed=st.integers(0, 1000),
)
def test_an_advertised_bucket_is_met_without_a_refusal(
    requests: int, burst: int, reset: str, rounding: str, latency: float, seed: int
) -> None:
    # No client can reliably obey a bucket that is smaller than the requests that jitter may bring together.
    burst += math.ceil(2 * latency * requests / 60)
    server = Bucket(requests, 60.0, burst, reset, rounding)
    run = drive(budget(), server, 600.0, latency=latency, seed=seed)
    assert run.refused == 0


@examples(20)
@given(st.sampled_from(["window", "bucket"]), ROUNDINGS, st.floats(0.05, 0.6), st.integers(0, 1000))
def test_what_others_spend_is_believed_at_once(
    kind: str, rounding: str, others: float, seed: int
) -> None:
    server = (
        Window(60, 60.0, 7.0, rounding) if kind == "window" else Bucket(60, 60.0, 10, "full", rounding)
    )
    run = drive(budget(), server, 1200.0, latency=0.5, seed=seed, others=others)
    assert run.unforeseen == 0, "refused only where no response could have shown it"


SHORT_WINDOWS = [
    *((20, 1), (5, 1), (20, 5)),
    *(pytest.param(quota, window, marks=pytest.mark.soak) for quota, window in ((100, 1), (20, 2))),
]


@pytest.mark.parametrize("rounding", ["ceil", "floor", "exact"])
@pytest.mark.parametrize("latency", [0.0, 0.3])
def test_nearly_all_of_an_advertised_limit_is_used(rounding: str, latency: float) -> None:
    for server in (Window(60, 60.0, 13.3, rounding), Bucket(60, 60.0, 10, "full", rounding)):
        assert drive(budget(), server, 3600.0, latency=latency).accepted > 0.98 * 3600


@pytest.mark.parametrize("rounding", ["ceil", "floor", "exact"])
@pytest.mark.parametrize("reset", ["full", "next"])
@pytest.mark.parametrize(("quota", "window"), SHORT_WINDOWS)
def test_nearly_all_of_a_bucket_with_a_short_window_is_used(
    quota: int, window: int, reset: str, rounding: str
) -> None:
    for latency in (0.0, 0.02, 0.1):
        server = Bucket(quota, window, quota, reset, rounding)
        run = drive(budget(), server, 60.0, latency=latency)
        assert run.refused == 0
        assert run.accepted > 0.95 * 60 * quota / window


@pytest.mark.parametrize("rounding", ["ceil", "floor", "exact"])
@pytest.mark.parametrize(("quota", "window"), SHORT_WINDOWS)
def test_nearly_all_of_a_short_window_is_used(quota: int, window: int, rounding: str) -> None:
    for phase in (0.0, 0.31, 0.87):
        server = Window(quota, window, phase * window, rounding)
        run = drive(budget(), server, 60.0, latency=0.02)
        assert run.refused == 0
        assert run.accepted > 0.9 * 60 * quota / window


@examples(30)
@given(
    kind=st.sampled_from(["window", "full", "next"]),
    quota=st.integers(2, 100),
    per=st.sampled_from([1.0, 2.0, 5.0, 7.0]),
    phase=st.floats(0, 7),
    rounding=ROUNDINGS,
    latency=st.floats(0, 0.4),
    silent=st.sampled_from([0.0, 0.5, 0.9]),
    seed=st.integers(0, 1000),
)
def test_a_short_window_is_met_without_a_refusal(
    kind: str,
    quota: int,
    per: float,
    phase: float,
    rounding: str,
    latency: float,
    silent: float,
    seed: int,
) -> None:
    window = Window(quota, per, phase, rounding)
    server = window if kind == "window" else Bucket(quota, per, quota, kind, rounding)
    run = drive(budget(), server, 30.0, latency=latency, seed=seed, silent=silent)
    assert run.refused == 0


@examples(20)
@given(ROUNDINGS, st.floats(0.5, 12), st.integers(0, 1000))
def test_what_others_spend_of_a_bucket_with_a_short_window_is_believed_at_once(
    rounding: str, others: float, seed: int
) -> None:
    server = Bucket(20, 1.0, 20, "full", rounding)
    run = drive(budget(), server, 60.0, latency=0.05, seed=seed, others=others)
    assert run.unforeseen == 0, "refused only where no response could have shown it"


@pytest.mark.parametrize("kind", ["bucket", "window"])
@pytest.mark.parametrize("silent", [0.0, 0.5, 0.9])
def test_the_limit_of_the_lab_is_used_though_submissions_tell_nothing_of_it(
    kind: str, silent: float
) -> None:
    """In the lab only answers to status requests have limit headers, as at many vendors."""
    for seed in range(5):
        lab = Lab(Rules(kind=kind, requests=20, per=1.0, burst=20.0), seed)
        run = drive(budget(), lab, 60.0, latency=0.02, silent=silent, seed=seed)
        assert run.refused == 0
        assert run.accepted > (0.9 if silent < 0.9 else 0.8) * 60 * 20


@pytest.mark.parametrize("silent", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("per", [10.0, 60.0])
def test_answers_without_headers_hold_nothing_up_in_a_new_window(per: float, silent: float) -> None:
    server = Window(int(per), per, 3.7)
    run = drive(budget(), server, 600.0, latency=0.05, silent=silent)
    assert run.refused == 0
    assert run.accepted > 0.85 * 600
    assert max(b - a for a, b in pairwise(run.sent)) < 2.5, "it never stalls for seconds"


@examples(40)
@given(
    st.integers(1, 500),
    st.floats(0.5, 600),
    st.one_of(st.none(), st.integers(1, 100)),
    st.integers(0, 1000),
)
def test_no_stretch_of_time_holds_more_than_a_documented_limit(
    requests: int, per: float, burst: int | None, seed: int
) -> None:
    rng = random.Random(seed)
    spender, sent, now = met(Limit(requests, per, burst)), [0.0], 0.1
    for _ in range(400):
        now = max(now, spender.ready(now)) + rng.choice([0.0, 0.0, rng.expovariate(requests / per)])
        spender.spend(now)
        sent.append(now)
    for start in range(0, len(sent), 7):
        for span in (per / 10, per, 2.5 * per):
            inside = bisect.bisect_left(sent, sent[start] + span) - start
            if burst is not None:
                assert inside <= burst + requests / per * span + 1e-6
            elif span <= per:
                assert inside <= math.ceil(requests) + 1e-6


@pytest.mark.parametrize("kind", ["window", "bucket"])
@pytest.mark.parametrize("latency", [0.05, 0.5])
@pytest.mark.parametrize("retry_after", [False, True])
def test_a_hidden_limit_is_found_with_few_refusals_and_then_nearly_used(
    kind: str, latency: float, retry_after: bool
) -> None:
    server = (
        Window(60, 60.0, 7.0, advertised=False)
        if kind == "window"
        else Bucket(60, 60.0, 10, advertised=False)
    )
    spender = budget()
    run = drive(spender, server, 4 * 3600.0, latency=latency, retry_after=retry_after)
    assert run.refused <= 30
    assert run.accepted > 0.85 * 4 * 3600
    assert 0.8 < (spender.rate(0.0) or 0.0) < 1.2


@pytest.mark.parametrize("phase", [1.0, 20.0, 40.0, 59.0])
def test_a_hidden_window_far_away_is_found_with_few_refusals_too(phase: float) -> None:
    """All that is on its way when the window is spent is refused: with a second of latency that could be sixty."""
    run = drive(budget(), Window(60, 60.0, phase, advertised=False), 4 * 3600.0, latency=1.0)
    assert run.refused <= 30
    assert run.accepted > 0.85 * 4 * 3600


def test_a_hidden_limit_that_is_not_reached_is_never_looked_for() -> None:
    spender = budget()
    run = drive(spender, Bucket(60, 60.0, 10, advertised=False), 3600.0, latency=0.2, demand=0.5)
    assert run.refused == 0
    assert run.accepted >= 1799
    assert spender.rate(0.0) is None


def test_a_fast_api_without_a_limit_is_soon_asked_at_full_speed() -> None:
    spender, now, sent = budget(), 0.0, 0
    while now < 15.0:
        now = max(now + 1e-4, spender.ready(now))
        spender.spend(now)
        spender.record_response(now, 200, {}, WALL)
        sent += 1
    assert sent > 40_000


def test_an_api_known_to_have_no_limit_is_not_held_back() -> None:
    spender = budget(Limit(math.inf))
    for _ in range(1000):
        assert spender.ready(5.0) <= 5.0
        spender.spend(5.0)
    assert spender.rate(5.0) is None


def test_one_refusal_pauses_all_and_then_one_goes_first() -> None:
    spender = met(Limit(1000, 1.0, 1000))
    for _ in range(5):
        spender.spend(10.0)
    spender.record_response(10.1, 429, {"Retry-After": "30"}, WALL)
    resumes = spender.ready(10.1)
    assert 40.1 <= resumes <= 41.7
    spender.record_response(10.2, 200, {}, WALL)  # was on its way
    assert spender.ready(10.2) == resumes
    spender.record_response(10.3, 429, {"Retry-After": "30"}, WALL)
    assert spender.ready(10.3) <= 10.3 + 31.6, "another one on its way prolongs it, no more"
    at = spender.ready(10.3)
    spender.spend(at)
    assert spender.ready(at) > at + 1
    spender.record_response(at + 0.1, 200, {}, WALL)
    assert spender.ready(at + 0.1) <= at + 2


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"Retry-After": "7"}, 7, 7.4),
        ({"retry-after-ms": "1500"}, 1.5, 1.6),
        ({"x-ms-retry-after-ms": "2500"}, 2.5, 2.7),
        ({"Retry-After": "Sun, 17 Mar 2030 17:47:40 GMT"}, 60, 63.1),
        ({"Retry-After": "-5"}, 0.4, 1.1),
        ({"Retry-After": "soon"}, 0.4, 1.1),
        ({"Retry-After": "999999999"}, LONGEST_PAUSE, LONGEST_PAUSE),
        ({}, 0.4, 1.1),
    ],
)
def test_how_long_a_refusal_lasts(headers: dict[str, str], low: float, high: float) -> None:
    spender = met(Limit(1000, 1.0, 1000))
    spender.spend(10.0)
    spender.record_response(10.0, 429, headers, WALL)
    assert low <= spender.ready(10.0) - 10.0 <= high


def test_503_is_a_refusal_only_with_retry_after() -> None:
    spender = met(Limit(1000, 1.0, 1000))
    spender.record_response(10.0, 503, {}, WALL)
    assert spender.ready(10.0) <= 10.0
    spender.record_response(10.0, 503, {"Retry-After": "20"}, WALL)
    assert spender.ready(10.0) >= 30.0


def test_retry_after_on_a_success_is_about_one_job_and_pauses_nobody() -> None:
    spender = met()
    spender.record_response(10.0, 200, {"Retry-After": "500"}, WALL)
    assert spender.ready(10.0) <= 10.0


def test_refusals_without_advice_are_spaced_ever_more_widely() -> None:
    spender, now, waits = met(Limit(1000, 1.0, 1000)), 10.0, []
    for _ in range(12):
        spender.spend(now)
        spender.record_response(now, 429, {}, WALL)
        waits.append(spender.ready(now) - now)
        now = spender.ready(now)
    assert waits[0] <= 1.0
    assert 25 < waits[-1] <= 60.0 + 1e-6


def test_a_low_remainder_slows_down() -> None:
    gaps = []
    for left in (60, 20, 5):
        spender = met()
        spender.spend(1.0)
        spender.record_response(1.1, 200, told(left, 59), WALL)
        now = 1.1
        for _ in range(4):
            now = max(now, spender.ready(now))
            spender.spend(now)
        gaps.append(spender.ready(now) - 1.1)
        assert (spender.rate(1.1) or 0) <= left / 60 + 0.02
    assert gaps == sorted(gaps)
    assert gaps[-1] > 30


def test_nothing_left_waits_for_the_reset_but_never_more_than_an_hour() -> None:
    for reset, low, high in ((30, 30, 31.1), (90_000, 3599, 3601)):
        spender = met()
        spender.spend(1.0)
        spender.record_response(1.0, 200, told(0, reset, window=86400), WALL)
        assert low <= spender.ready(1.0) - 1.0 <= high


def test_a_reset_in_milliseconds_is_found_out() -> None:
    spender, now = met(), 1.0
    for left in range(50, 44, -1):
        headers = {"X-RateLimit-Remaining": str(left), "X-RateLimit-Reset": f"{(60 - now) * 1000:.0f}"}
        spender.spend(now)
        spender.record_response(now, 200, headers, WALL)
        now += 1.0
    assert spender.ready(now) - now < 3.0
    (meter,) = spender.state.meters.values()
    assert abs(meter.until - 60) < 2.5


def test_a_bucket_of_costs_is_spent_by_what_requests_cost() -> None:
    level, at, spender, now, sent = 700.0, 0.0, budget(), 0.0, 0
    while now < 3600.0:
        now = max(now, spender.ready(now))
        spender.spend(now)
        level, at = min(700.0, level + (now - at) * 10.0), now
        cost = 25.0
        assert level > cost, "throttled"
        level -= cost
        headers = {"X-Request-Cost": f"{cost}", "X-Rate-Limit-Remaining": f"{level:.3f}"}
        now += 0.05
        spender.record_response(now, 200, headers, WALL)
        sent += 1
    assert sent > 0.7 * 3600 * 10 / 25


def test_only_a_policy_is_a_pace() -> None:
    spender = met()
    spender.spend(1.0)
    spender.record_response(1.0, 200, {"RateLimit-Policy": '"a";q=60;w=60,"day";q=100;w=86400'}, WALL)
    assert spender.rate(1.0) == pytest.approx(60 / 61)
    spender.spend(2.0)
    assert 0.9 < spender.ready(2.0) - 2.0 < 1.1


def test_a_lost_request_does_not_block_the_next_window() -> None:
    spender = met()
    spender.spend(1.0)
    spender.record_response(1.0, 200, told(1, 10), WALL)
    spender.spend(2.0)
    spender.record_response(12.0, 0, {}, WALL)
    assert spender.ready(12.0) <= 13.0


TEXT = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["0", "-1", "1e309", "nan", "99999999999999999999", '"a";r=0;t=1e15', "5", "٣"]),
    st.floats(allow_nan=True).map(str),
)
NAMES = st.sampled_from(sorted(LIMIT_HEADERS | {"date"}))


@examples(100)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(NAMES, TEXT),
            st.sampled_from([200, 200, 404, 429, 500, 503, 0]),
            st.floats(0, 5),
        ),
        max_size=30,
    ),
    st.sampled_from([None, Limit(60, 60.0), Limit(5, 1.0, 3)]),
)
def test_whatever_headers_say_it_goes_on_within_the_hour(
    answers: list[tuple[dict[str, str], int, float]], limit: Limit | None
) -> None:
    spender, now = budget(limit), 100.0
    for headers, status, passed in answers:
        at = max(now, spender.ready(now))
        assert at - now <= LONGEST_PAUSE + 60
        now = at
        spender.spend(now)
        now += passed
        spender.record_response(now, status, headers, WALL)
        rate = spender.rate(now)
        assert rate is None or rate > 0
        assert math.isfinite(spender.ready(now, 3.0))


@examples(20)
@given(
    st.sampled_from(["hidden", "window", "bucket"]),
    st.integers(0, 1000),
    st.floats(0, 100),
    st.floats(1e3, 1e6),
)
def test_what_was_learned_survives_a_restart(kind: str, seed: int, ago: float, clock: float) -> None:
    server = (
        Window(60, 60.0, 7.0) if kind == "window" else Bucket(60, 60.0, 10, advertised=kind == "bucket")
    )
    spender = budget()
    drive(spender, server, 300.0, latency=0.2, seed=seed)
    now = 400.0
    data = msgspec.json.decode(msgspec.json.encode(spender.dump(now)))
    again = Budget.load(data, None, now=clock, ago=ago, rng=random.Random(2))
    assert again.rate(clock - ago) == pytest.approx(spender.rate(now))
    assert again.ready(clock) - (clock - ago) == pytest.approx(spender.ready(now) - now, abs=PROBE)


PROBE = 5.0  # a hold for an answer that the new process will not get is not kept


def test_a_restart_forgets_no_pause() -> None:
    spender = met()
    spender.spend(10.0)
    spender.record_response(10.0, 429, {"Retry-After": "100"}, WALL)
    again = Budget.load(spender.dump(20.0), None, now=1000.0, ago=30.0, rng=random.Random(1))
    assert 60 <= again.ready(1000.0) - 1000.0 <= 65


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("60/1m", Limit(60, 60.0)),
        ("60/1m:10", Limit(60, 60.0, 10)),
        ("5/s", Limit(5, 1.0)),
        ("0.5/s", Limit(0.5, 1.0)),
        ("100/60", Limit(100, 60.0)),
        (" 1000 / 1h:50 ", Limit(1000, 3600.0, 50)),
    ],
)
def test_a_limit_is_read(text: str, limit: Limit) -> None:
    assert read_limit(text) == limit


@pytest.mark.parametrize(
    "text", ["", "60", "60/", "/1m", "0/1m", "60/0s", "-1/s", "60/1m:0", "60/1y", "a/b"]
)
def test_a_text_that_is_no_limit_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a limit"):
        read_limit(text)


def test_an_answer_without_headers_is_no_longer_on_its_way() -> None:
    """As of a result that is fetched from the same budget: the others must not wait for it."""
    budget = Budget(rng=random.Random(1))
    headers = {"RateLimit-Policy": '"default";q=60;w=60', "RateLimit": '"default";r=1;t=1'}
    now = 100.0
    assert budget.take(now) <= now
    budget.record_response(now + 0.1, 200, headers, WALL)
    now = budget.ready(now + 0.2)
    assert budget.take(now) <= now
    budget.record_response(now + 0.1, 200, {}, WALL)
    assert budget.ready(now + 0.2) < now + 3.0
