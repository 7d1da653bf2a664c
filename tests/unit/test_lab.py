"""The laboratory: scenarios that name what is wrong, an API that keeps its own rules, policies that do as they say."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from bide.core.errors import SetupError
from bide.lab.advice import outlook
from bide.lab.policies import DEFAULTS, PEERS, peer
from bide.lab.scenario import Scenario, parse_scenario, read_scenario, shipped
from bide.lab.simulated_api import SimulatedApi
from bide.lab.simulation import simulate
from bide.lab.summary import Mean, Summary, row

PLAIN = """
[limit]
requests = 60
per = 60.0
burst = 10
[[jobs]]
kind = "lipsync"
count = 20
duration = { uniform = [120, 900] }
"""


def plain(**changes: str) -> Scenario:
    text = PLAIN
    for field, value in changes.items():
        lines = [line for line in text.splitlines() if not line.startswith(f"{field} =")]
        place = lines.index("[limit]" if field in LIMIT else "[[jobs]]") + 1
        text = "\n".join([*lines[:place], f"{field} = {value}", *lines[place:]])
    return parse_scenario(text)


LIMIT = {"kind_of_limit", "requests", "per", "burst", "advertised", "cost", "concurrent"}


# --- scenarios


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_scenario_can_be_read_and_has_a_limit(name: str) -> None:
    scenario = read_scenario(name)
    assert scenario.name == name
    assert scenario.limit.requests < math.inf
    assert SimulatedApi(scenario, 0).tasks


def test_all_that_was_promised_is_shipped() -> None:
    assert set(shipped()) == {
        "agency", "batches", "concurrency", "constant", "documents", "drift", "e-learning", "exact-progress",
        "fixed-window", "grades-night", "healthcare", "heavy-tail", "hidden-limit", "internal-tool",
        "lipsync-burst", "lipsync-trickle", "marketing", "moderation", "noisy-progress", "two-modes",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"requests": "0"}, "limit.requests"),
        ({"requests": '"many"'}, "limit.requests"),
        ({"per": "-1"}, "limit.per"),
        ({"burst": "0"}, "limit.burst"),
        ({"cost": "11"}, "limit.cost"),
        ({"advertised": "1"}, "limit.advertised"),
        ({"concurrent": "1.5"}, "limit.concurrent"),
        ({"count": "0"}, r"jobs\[0\].count"),
        ({"arrival": '"now"'}, r"jobs\[0\].arrival"),
        ({"arrival": "{ every = 0 }"}, r"jobs\[0\].arrival.every"),
        ({"arrival": "{ burst = 5 }"}, r"jobs\[0\].arrival.every"),
        ({"arrival": "{ burst = 0.5, every = 9 }"}, r"jobs\[0\].arrival.burst"),
        ({"progress": '"some"'}, r"jobs\[0\].progress"),
        ({"batch": "0"}, r"jobs\[0\].batch"),
        ({"drift": "0"}, r"jobs\[0\].drift"),
        ({"colour": "1"}, r"jobs\[0\].colour"),
        ({"duration": "10"}, r"jobs\[0\].duration"),
        ({"duration": "{ normal = [1, 2] }"}, r"jobs\[0\].duration.*normal"),
        ({"duration": "{ uniform = [1] }"}, r"jobs\[0\].duration.uniform"),
        ({"duration": "{ lognormal = [0, 1] }"}, r"jobs\[0\].duration.lognormal"),
        ({"duration": "{ trace = [] }"}, r"jobs\[0\].duration.trace"),
        ({"duration": "{ mixture = [[1]] }"}, r"jobs\[0\].duration.mixture"),
        ({"duration": "{ mixture = [[1, { fixed = -1 }]] }"}, r"mixture\[0\].fixed"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, str], names: str) -> None:
    with pytest.raises(SetupError, match=names):
        plain(**change)


@pytest.mark.parametrize("text", ["seed = 1", "jobs = 3", "[[jobs", '[[jobs]]\nkind="x"'])
def test_no_scenario_at_all(text: str) -> None:
    with pytest.raises(SetupError):
        parse_scenario(text)


def test_a_scenario_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(SetupError, match=r"nowhere.*lipsync-burst"):
        read_scenario("nowhere")


@pytest.mark.parametrize(
    ("duration", "low", "high"),
    [
        ("{ fixed = 10 }", 10, 10),
        ("{ uniform = [5, 6] }", 5, 6),
        ("{ trace = [3.0, 4.0] }", 3, 4),
        ("{ lognormal = [10, 0.1] }", 5, 20),
        ("{ mixture = [[0.5, { fixed = 1 }], [0.5, { fixed = 2 }]] }", 1, 2),
    ],
)
def test_durations_are_drawn_as_written(duration: str, low: float, high: float) -> None:
    tasks = SimulatedApi(plain(duration=duration), 0).tasks
    assert all(low <= task.duration <= high for task in tasks)


# --- the API


def test_the_same_seed_gives_the_same_jobs() -> None:
    scenario = plain(arrival="{ every = 30.0 }")
    one, two, other = SimulatedApi(scenario, 1), SimulatedApi(scenario, 1), SimulatedApi(scenario, 2)
    assert [task.ends for task in one.tasks] == [task.ends for task in two.tasks]
    assert [task.ends for task in one.tasks] != [task.ends for task in other.tasks]


def test_a_bucket_refuses_what_is_too_much_and_tells() -> None:
    world = SimulatedApi(plain(), 0)
    answers = [world.poll(0.0, world.tasks[:1]) for _ in range(12)]
    assert [answer.status for answer in answers] == [200] * 10 + [429] * 2
    assert answers[0].headers["RateLimit"] == '"default";r=9;t=1'
    assert answers[-1].retry_after == 1.0
    assert world.poll(1.0, world.tasks[:1]).status == 200
    assert (world.requests, world.refused) == (13, 2)


def test_a_window_starts_anew() -> None:
    scenario = parse_scenario(
        '[limit]\nkind = "window"\nrequests = 3\nper = 10\n[[jobs]]\ncount = 1\nduration = {fixed=1e6}'
    )
    world = SimulatedApi(scenario, 0)
    granted = [now / 10 for now in range(1000) if world.poll(now / 10, world.tasks).status == 200]
    assert 27 <= len(granted) <= 33
    assert sum(1 for a in granted if 40 <= a < 50) <= 6


def test_a_hidden_limit_says_nothing() -> None:
    world = SimulatedApi(plain(advertised="false"), 0)
    answers = [world.poll(0.0, world.tasks[:1]) for _ in range(12)]
    assert answers[-1].status == 429
    assert all(not answer.headers for answer in answers)


def test_places_at_the_api_are_taken_in_turn() -> None:
    world = SimulatedApi(plain(concurrent="2", duration="{ fixed = 10 }"), 0)
    assert sorted(task.ends for task in world.tasks) == [10.0 * (1 + i // 2) for i in range(20)]


def test_progress_tells_how_far_it_is() -> None:
    world = SimulatedApi(plain(progress='"exact"', duration="{ fixed = 100 }"), 0)
    (seen,) = world.poll(25.0, world.tasks[:1]).jobs
    assert seen.percent == 25.0
    noisy = SimulatedApi(plain(progress='"noisy"', duration="{ fixed = 100 }"), 0)
    percents = [noisy.poll(50.0 + i, noisy.tasks[:1]).jobs[0].percent or 0.0 for i in range(9)]
    assert all(0 <= percent <= 99 for percent in percents)
    assert len(set(percents)) > 5


def test_drift_multiplies_durations() -> None:
    tasks = SimulatedApi(plain(drift="3.0", duration="{ fixed = 10 }"), 0).tasks
    assert sorted(task.duration for task in tasks)[0] == 10.0
    assert sorted(task.duration for task in tasks)[-1] == 30.0


# --- policies


def asks(name: str, age: float) -> list[float]:
    """The ages at which it asks about a job that takes this long, when nothing is refused."""
    timer, dice = peer(name)(), random.Random(1)
    ages = [timer.first(dice)]
    while ages[-1] < age:
        ages.append(ages[-1] + timer.pending(ages[-1], dice))
    return ages


@pytest.mark.parametrize(
    ("name", "ages"),
    [
        ("fixed:7", [7, 14, 21, 28]),
        ("azure", [0, 30]),
        ("boto", [0, 15, 30]),
        ("double-on-429", [*range(26)]),
        ("grow-2-to-10", [0, 2, 5, 9.5, 16.25, 26.25]),
        ("steps-2-10-30", [2 * i for i in range(1, 14)]),
    ],
)
def test_peers_ask_when_they_say(name: str, ages: list[float]) -> None:
    assert asks(name, 25.0) == ages


def test_peers_on_a_refusal() -> None:
    dice = random.Random(1)
    assert peer("fixed:7")().refused(3.0, dice) == 7.0
    assert peer("azure")().refused(3.0, dice) == 3.0
    assert peer("boto")().refused(3.0, dice) == 15.0
    assert peer("grow-2-to-10")().refused(None, dice) == 60.0
    assert peer("steps-2-10-30")().refused(4.0, dice) == 4.0
    assert peer("backoff:1,2,60")().refused(40.0, dice) == 40.0
    lipsync = peer("double-on-429")()
    waits = [lipsync.refused(None, dice) for _ in range(12)]
    assert 2 <= waits[0] <= 3
    assert 300 <= waits[-1] <= 450
    assert lipsync.pending(0.0, dice) == 300.0
    advice = peer("random-5-to-10")()
    assert 5 <= advice.first(dice) <= 10
    assert advice.refused(None, dice) > 8
    assert advice.pending(0.0, dice) <= 12


@pytest.mark.parametrize(
    "name", ["fixed", "fixed:0", "fixed:x", "backoff:1,2", "backoff:1,0.5,3", "clever"]
)
def test_a_policy_that_is_not_there_lists_those_that_are(name: str) -> None:
    with pytest.raises(SetupError, match=r"no policy.*adaptive.*fixed:SECONDS"):
        peer(name)


@pytest.mark.parametrize("name", [*DEFAULTS, *PEERS])
def test_every_policy_hears_of_every_end_and_none_before_it(name: str) -> None:
    figures = simulate(plain(), name, 0)
    assert len(figures.delays) == 20
    assert all(delay >= 0 for delay in figures.delays)
    assert figures.requests >= 20


def test_how_much_of_a_budget_was_spent() -> None:
    assert simulate(plain(), "fixed:1", 0).spent == pytest.approx(1.0, abs=0.02)
    assert simulate(plain(), "fixed:300", 0).spent < 0.2
    free = parse_scenario("[[jobs]]\ncount = 3\nduration = { fixed = 10 }")
    assert simulate(free, "fixed:1", 0).spent == 0.0


def test_runs_can_be_repeated() -> None:
    assert simulate(plain(), "adaptive", 3) == simulate(plain(), "adaptive", 3)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("batches", marks=pytest.mark.soak),
        *("exact-progress", "drift", "concurrency", "fixed-window", "grades-night"),
    ],
)
def test_adaptive_meets_no_refusal_and_no_peer_is_both_faster_and_more_sparing(name: str) -> None:
    scenario = read_scenario(name)
    ours = simulate(scenario, "adaptive", 0)
    assert ours.refused == 0
    for other in ("fixed:30", "azure", "google", "steps-2-10-30", "backoff:1,2,60"):
        theirs = simulate(scenario, other, 0)
        assert theirs.requests > ours.requests or theirs.mean > ours.mean


TEAMS = {
    "agency": (500, 86400.0, 500),
    "e-learning": (200, 86400.0, 1000),
    "healthcare": (200, 86400.0, 400),
    "internal-tool": (20, 86400.0, 100),
    "marketing": (250, 172800.0, 500),
    "moderation": (70, 600.0, 1260),
}
FEW_TEAMS = ("agency", "marketing")  # in `make test`


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FEW_TEAMS else pytest.mark.soak) for name in TEAMS],
)
def test_a_team_submits_in_bursts_and_only_fixed_intervals_are_refused(name: str) -> None:
    burst, every, count = TEAMS[name]
    scenario = read_scenario(name)
    assert Counter(task.born for task in SimulatedApi(scenario, 0).tasks) == Counter(
        i // burst * every for i in range(count)
    )
    assert simulate(scenario, "adaptive", 0).refused == 0
    for fixed in ("fixed:10", "fixed:30", "fixed:60"):
        assert simulate(scenario, fixed, 0).refused > 0


def test_the_oracle_is_hardly_better_once_there_is_something_to_learn_from() -> None:
    scenario = read_scenario("e-learning")
    ours, oracle = (simulate(scenario, policy, 0) for policy in ("adaptive", "oracle"))
    assert ours.mean + ours.per_job < 1.1 * (oracle.mean + oracle.per_job)


# --- what is shown


def test_figures_and_their_summary() -> None:
    runs = [simulate(plain(), "fixed:30", seed) for seed in range(3)]
    wire = runs[0].to_wire()
    assert set(wire) == {"policy", "jobs", "requests", "requestsPerJob", "refused", "delay", "price"}
    assert set(wire["delay"]) == {"mean", "p50", "p95", "max"}
    assert wire["delay"]["p50"] <= wire["delay"]["p95"] <= wire["delay"]["max"]
    summary = Summary.of(runs)
    assert summary.to_wire()["seeds"] == 3
    assert summary.mean.half > 0
    assert "±" in row(summary)[3]
    assert str(Mean.of([2.0])) == "2"


def test_advice_about_a_scenario() -> None:
    assert not outlook(read_scenario("lipsync-burst"), 1.0).enough
    assert not outlook(read_scenario("agency"), 1.0).enough
    assert outlook(read_scenario("internal-tool"), 1.0).enough
    assert outlook(read_scenario("lipsync-trickle"), 1.0).enough


@pytest.mark.parametrize("seed", [100, pytest.param(101, marks=pytest.mark.soak)])
def test_a_bucket_on_which_requests_draw_by_their_cost_never_refuses_one(seed: int) -> None:
    assert simulate(read_scenario("grades-night"), "adaptive", seed, price=0.01).refused == 0
