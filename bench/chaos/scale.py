"""bide on PostgreSQL and Celery, and bare Celery, with the same faults: lost jobs, repeated jobs, and recovery times."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from tests.servers import ServerMissing
from tests.servers.postgres import Postgres
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

from bench.chaos import marks, recovery
from bench.chaos.bare import Bare
from bench.chaos.faults import FaultInjector
from bench.chaos.fleet import SETTINGS, Callers, Fleet
from bench.chaos.follower import SEARCH, Follower
from bench.chaos.judge import EVENTS, JOBS, PROMISES, TERMINAL, Violation, judge_record
from bench.chaos.kills import Kill
from bench.chaos.recovery import percentile
from bench.chaos.workers import Broker
from bench.service.servers import Unready
from bench.service.table import Line, not_run

ALL_PROMISES = {**PROMISES, "log": "events that a follower of the log could not see"}
LEASE = 10.0  # seconds; as long as the visibility timeout of bare Celery
ON_WORKERS = {"child": 30, "worker": 8, "frozen": 4, "clock": 4, "broker": 3, "reset": 6}
ON_ALL = {**ON_WORKERS, "flushed": 2, "database": 4, "replica": 4, "pool": 2}
FLUSHED = {**ON_WORKERS, "flushed": 2}
AMOUNTS = {"Redis": 10_000, "RabbitMQ": 1_000}
BROKERS: dict[str, Callable[[str | None], Broker]] = {
    "Redis": RedisServer,
    "RabbitMQ": RabbitServer,
}
OPEN = f"SELECT count(*) FROM jobs WHERE status NOT IN ({', '.join(repr(s) for s in TERMINAL)})"
QUIET = 40.0  # seconds without a mark after which bare Celery counts as stuck


@dataclass
class Outcome:
    acknowledged: int = 0
    lost: int = 0
    repeated: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    seconds: float = 0.0
    given_up: int = 0  # workers that exited unexpectedly, and were restarted
    recovered: dict[str, list[float]] = field(default_factory=dict)


def measure(folder: Path) -> list[Line]:
    lines = []
    print(HEAD.format(*TITLES), flush=True)
    for name, jobs in AMOUNTS.items():
        here = folder / name
        here.mkdir()
        outcome = trial(
            here, BROKERS[name], jobs=jobs, faults=ON_ALL, lease=LEASE, seed=1, home=str(here)
        )
        print(row(f"bide, {name}", outcome), flush=True)
        for violation in outcome.violations[:20]:
            print(f"  {violation.promise}: {violation.text}")
        lines += _lines(name, jobs, outcome)
        for what, faults in ((f"Celery, {name}", ON_WORKERS), ("the same, also flushed", FLUSHED)):
            here = folder / f"celery-{name}-{len(faults)}"
            here.mkdir()
            try:
                print(row(what, bare(here, name, jobs=jobs, faults=faults, seed=1)), flush=True)
            except (Unready, ServerMissing) as missing:
                lines.append(not_run(f"{name}, {what}", str(missing).strip().splitlines()[-1]))
    return lines


def _lines(name: str, jobs: int, outcome: Outcome) -> list[Line]:
    violations = Counter(violation.promise for violation in outcome.violations)
    injected = ", ".join(f"{times} {what}" for what, times in sorted(outcome.injected.items()))
    ended = ", ".join(f"{count} {status}" for status, count in outcome.ended.items())
    return [
        Line(f"{name}: acknowledged jobs", outcome.acknowledged, "≥", jobs, "", ended),
        Line(f"{name}: faults", sum(outcome.injected.values()), "≥", sum(ON_ALL.values()), "", injected),
        *(
            Line(f"{name}: {text}", violations[promise], "≤", 0, "")
            for promise, text in ALL_PROMISES.items()
        ),
    ]


TITLES = (
    "",
    "jobs",
    "faults",
    "lost",
    "again",
    "child killed",
    "worker killed",
    "worker frozen",
    "all ended",
)
HEAD = "{:<24} {:>6} {:>6} {:>5} {:>6} {:>14} {:>14} {:>14} {:>10}"


def row(name: str, outcome: Outcome) -> str:
    """Times from a fault of a worker until its job starts again: p50/p99."""
    times = [_seconds(outcome.recovered.get(what, ())) for what in ("child", "worker", "frozen")]
    faults = sum(outcome.injected.values())
    counts = (outcome.acknowledged, faults, outcome.lost, outcome.repeated)
    return HEAD.format(name, *counts, *times, f"{outcome.seconds:.0f} s")


def _seconds(taken: Sequence[float]) -> str:
    return f"{percentile(taken, 0.5):.1f}/{percentile(taken, 0.99):.1f} s" if taken else "-"


def trial(
    folder: Path,
    make: Callable[[str | None], Broker],
    *,
    jobs: int,
    faults: Mapping[str, int] | Sequence[str],
    lease: float,
    seed: int,
    longest: float = 240.0,
    home: str | None = None,
) -> Outcome:
    """A trial of bide. `longest` limits the wait after the last job was acknowledged; `home` holds the servers' data."""
    rng = random.Random(seed)
    begin = time.monotonic()
    with ExitStack() as stack:
        server = Postgres(home, settings=SETTINGS)
        stack.callback(server.end)
        broker = make(home)
        stack.callback(broker.end)
        fleet = Fleet(folder, server, broker, lease, rng)
        stack.callback(fleet.stop)
        fleet.start()
        follower = Follower(server.url)
        follower.start()
        callers = Callers(fleet, jobs, backlog=min(200, jobs // 4))
        callers.start()
        fleet.workers.await_work()
        injector = FaultInjector(fleet.faults, rng, callers.share)
        injector.inject(faults)
        callers.over.set()
        callers.join(longest)
        fleet.workers.thaw()
        _await_ends(server.url, longest)
        if callers.error is not None:
            raise callers.error
        return _judge(server.url, fleet, injector, callers, follower, begin)


def _await_ends(url: str, longest: float) -> None:
    end = time.monotonic() + longest
    with psycopg.connect(url, autocommit=True, options=SEARCH) as connection:
        while time.monotonic() < end:
            found = connection.execute(OPEN.encode()).fetchone()
            if found is not None and found[0] == 0:
                return
            time.sleep(0.1)


def _judge(
    url: str, fleet: Fleet, injector: FaultInjector, callers: Callers, follower: Follower, begin: float
) -> Outcome:
    left = marks.read(fleet.place)
    with psycopg.connect(url, options=SEARCH) as connection:
        rows = connection.execute(JOBS).fetchall()
        events = connection.execute(EVENTS).fetchall()
    verdict = judge_record(rows, events, left, callers.acknowledged)
    violations = [*verdict.violations, *follower.missed()]
    lost = sum(violation.promise == "ends" for violation in violations)
    outcome = _outcome(left, injector, begin)
    outcome.acknowledged, outcome.lost = len(callers.acknowledged), lost
    outcome.ended, outcome.violations, outcome.given_up = (
        verdict.ended,
        violations,
        fleet.workers.given_up,
    )
    return outcome


def bare(
    folder: Path,
    name: str,
    *,
    jobs: int,
    faults: Mapping[str, int],
    seed: int,
    frozen: float = 1.5 * LEASE,
) -> Outcome:
    """A trial of bare Celery. Its Redis writes to an append-only file, because it is the only record."""
    rng = random.Random(seed)
    begin = time.monotonic()
    with ExitStack() as stack:
        redis = RedisServer(str(folder), kept=True)
        stack.callback(redis.end)
        broker: Broker = redis
        if name != "Redis":
            broker = RabbitServer(str(folder))
            stack.callback(broker.end)
        field_ = Bare(folder, broker, None if broker is redis else redis.url, frozen, rng)
        stack.callback(field_.stop)
        field_.start()
        submission = field_.submission(jobs, backlog=min(200, jobs // 4))
        stack.callback(submission.end)
        submission.start()
        field_.workers.await_work()
        injector = FaultInjector(field_.faults, rng, submission.share)
        injector.inject(faults)
        submission.over()
        field_.workers.thaw()
        submission.settle(QUIET, longest=400)
        outcome = _outcome(marks.read(field_.place), injector, begin)
        outcome.acknowledged = len(submission.acknowledged)
        outcome.given_up = field_.workers.given_up
        outcome.lost = len(set(submission.acknowledged) - field_.tail.finished)
        return outcome


def _outcome(left: list[marks.Mark], injector: FaultInjector, begin: float) -> Outcome:
    def kills(what: str) -> list[Kill]:
        return [kill for kill in injector.kills if kill.what == what]

    ends = [mark.at for mark in left if mark.step == marks.END]
    return Outcome(
        repeated=recovery.repetitions(left),
        injected=injector.injected,
        seconds=max(ends, default=begin) - begin,
        recovered={
            "child": recovery.of_jobs(left, kills("child")),
            "worker": recovery.of_jobs(left, kills("worker")),
            "frozen": recovery.of_frozen(left, kills("frozen")),
            **{
                what: recovery.of_returns(left, [at for name, at in injector.back if name == what])
                for what in ("broker", "flushed", "reset", "database", "replica", "pool")
            },
        },
    )
