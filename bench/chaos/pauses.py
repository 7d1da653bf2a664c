"""A machine that is suspended, and processes that are stopped for longer than a lease. Handlers that are alive keep their
jobs.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer
from tests.servers.service import ServiceProcess

from bench.chaos import lasting, marks
from bench.chaos.clock import SteppedClock
from bench.chaos.fleet import TARGET, Fleet
from bench.chaos.lasting import Became
from bench.service.table import Line

LEASE = 3.0
STOPPED = 2.5 * LEASE
SECONDS = STOPPED + 4.0  # seconds that a job takes
SLEEP = 90  # seconds
ROUNDS = 2


def measure(folder: Path) -> list[Line]:
    lines = lasting.lines("the machine was suspended", asleep(folder / "asleep"))
    lines += lasting.lines("the service was stopped", stopped(folder / "stopped"))
    return lines + on_many_machines(folder / "machines")


def _serving(folder: Path, env: dict[str, str]) -> ServiceProcess:
    folder.mkdir(exist_ok=True)
    env = {**env, marks.PLACE: str(folder / "marks")}
    return ServiceProcess(
        folder, TARGET, workers=lasting.TOGETHER, env=env, options=("--lease", str(LEASE))
    )


def asleep(folder: Path, rounds: int = ROUNDS) -> Became:
    """Advance the time of day by SLEEP; no time passes for the handlers."""
    clock = SteppedClock(folder / "clock", asleep=True)
    victim = _serving(folder, clock.env(os.environ))
    tail, outcome = marks.Tail(folder / "marks"), Became()
    victim.start()
    try:
        for number in range(1, rounds + 1):
            ids = lasting.begin(victim.insist, tail, 4.0)
            clock.step(number * SLEEP)
            lasting.ended(victim.insist, ids)
            outcome.add(lasting.became(victim.insist, marks.read(folder / "marks"), ids))
    finally:
        victim.stop()
    return outcome


def stopped(folder: Path) -> Became:
    """Stop the service alone, then the service with its children."""
    victim = _serving(folder, {})
    tail, outcome = marks.Tail(folder / "marks"), Became()
    victim.start()
    try:
        for alone in (True, False):
            ids = lasting.begin(victim.insist, tail, SECONDS)
            _stop(victim.pids if alone else victim.family)
            lasting.ended(victim.insist, ids)
            outcome.add(lasting.became(victim.insist, marks.read(folder / "marks"), ids))
    finally:
        victim.stop()
    return outcome


def _stop(pids: Iterable[int], seconds: float = STOPPED) -> None:
    pids = list(pids)
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def on_many_machines(folder: Path) -> list[Line]:
    folder.mkdir()
    with ExitStack() as stack:
        server = Postgres(str(folder))
        stack.callback(server.end)
        broker = RedisServer(str(folder))
        stack.callback(broker.end)
        fleet = Fleet(folder, server, broker, LEASE, random.Random(1))
        stack.callback(fleet.stop)
        fleet.start()
        # No service checks leases for a while, and then two do at the same time.
        ids = lasting.begin(fleet.insist, fleet.tail, SECONDS)
        _stop(pid for replica in fleet.replicas for pid in replica.pids)
        lasting.ended(fleet.insist, ids)
        observers = lasting.became(fleet.insist, marks.read(fleet.place), ids)
        return lasting.lines("all services were stopped", observers) + _worker(fleet)


def _worker(fleet: Fleet) -> list[Line]:
    """The other service takes over its jobs, and its late results are ignored."""
    ids = lasting.begin(fleet.insist, fleet.tail, SECONDS)
    host = fleet.workers.hosts[0]
    _stop(host.family)
    found = lasting.ended(fleet.insist, ids)
    left = [mark for mark in marks.read(fleet.place) if mark.job in ids]
    begun = {(mark.job, mark.fence) for mark in left if mark.step == marks.BEGIN}
    newest = {job: max(fence for other, fence in begun if other == job) for job, _ in begun}
    hung = [job for job in found if not job["finishedAt"]]
    wrong = [
        job
        for job in found
        if job["kind"] == "once" and len([b for b in begun if b[0] == job["jobId"]]) > 1
    ]
    done = [job for job in found if job["status"] == "DONE" and job["kind"] == "lasting"]
    stale = [job for job in done if job["result"]["fence"] != newest[job["jobId"]]]
    missing = [job for job in found if job["kind"] == "lasting" and job["status"] != "DONE"]
    what = "a worker was stopped"
    return [
        Line(f"{what}: jobs that never ended", len(hung), "≤", 0, "", f"of {len(ids)}"),
        Line(f"{what}: at-most-once jobs that ran twice", len(wrong), "≤", 0, ""),
        Line(f"{what}: other jobs without a result", len(missing), "≤", 0, ""),
        Line(f"{what}: results of a stale attempt", len(stale), "≤", 0, ""),
    ]
