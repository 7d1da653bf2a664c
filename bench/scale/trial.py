"""Submits jobs to two replicas on one database, with faults of the database, replicas, children and connections.

A replica is killed, or stopped for longer than its leases last and then resumed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from tests.servers import processes
from tests.servers.postgres import Postgres, postgres
from tests.servers.service import ServiceProcess

from bench.chaos import marks
from bench.chaos.judge import EVENTS, JOBS, Violation, judge_record
from bench.chaos.trial import Submission, _wait
from bench.service.table import Line

LEASE = 4
SUBMITTED = 1000
FAULTS = {"database": 6, "replica": 6, "child": 20, "connections": 6, "stopped": 3}
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'bide'"


def measure(folder: Path, rounds: int) -> list[Line]:
    with postgres(str(folder)) as server:
        report = Trial(folder, server, seed=rounds).run(SUBMITTED, FAULTS)
    for violation in report.violations[:20]:
        print(f"{violation.promise}: {violation.text}")
    injected = ", ".join(f"{times} {fault}" for fault, times in sorted(report.faults.items()))
    ended = ", ".join(f"{count} {status}" for status, count in report.ended.items())
    return [
        Line("broken promises in a trial", len(report.violations), "≤", 0, "", f"{ended}; {injected}"),
        Line("jobs that were not acknowledged", SUBMITTED - report.acknowledged, "≤", 0, ""),
        Line("until a database that is back is used again", max(report.away), "≤", 5, "s"),
    ]


@dataclass
class Report:
    acknowledged: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    # Seconds from the database's return until it was used again.
    away: list[float] = field(default_factory=list)
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)


class Trial:
    """One server, and two replicas with separate folders."""

    def __init__(self, folder: Path, server: Postgres, seed: int) -> None:
        self._server = server
        self._place = folder / "marks"
        self._rng = random.Random(seed)
        self.report = Report()
        self.replicas = []
        for name in ("one", "two"):
            home = folder / name
            home.mkdir()
            env = {marks.PLACE: str(self._place)}
            options = ("--store", server.url, "--lease", str(LEASE))
            self.replicas.append(ServiceProcess(home, "bench.chaos.app:app", env=env, options=options))

    def run(self, jobs: int, faults: dict[str, int]) -> Report:
        begin = time.monotonic()
        try:
            for replica in self.replicas:
                replica.start()
            submission = Submission(self.replicas[0], jobs)
            submission.start()
            self._inject([fault for fault, times in faults.items() for _ in range(times)], submission)
            submission.join()
            _wait(self.replicas[1], [wanted.job_id for wanted in submission.acknowledged])
        finally:
            for replica in self.replicas:
                replica.stop()
        self.report.seconds = time.monotonic() - begin
        self.report.acknowledged = len(submission.acknowledged)
        with psycopg.connect(self._server.url, options="-c search_path=bide") as connection:
            rows = connection.execute(JOBS).fetchall()
            verdict = judge_record(
                rows,
                connection.execute(EVENTS).fetchall(),
                marks.read(self._place),
                submission.acknowledged,
            )
        self.report.ended = verdict.ended
        self.report.violations = verdict.violations
        return self.report

    def _inject(self, faults: list[str], submission: Submission) -> None:
        submission.answered.wait(30)
        self._rng.shuffle(faults)
        for fault in faults:
            time.sleep(self._rng.uniform(0.1, 0.6))
            getattr(self, f"_{fault}")(submission)
            self.report.faults[fault] += 1

    def _database(self, submission: Submission) -> None:
        self._server.kill()
        time.sleep(self._rng.uniform(0.0, 0.5))
        self._server.start()
        at = time.monotonic()
        for replica in self.replicas:
            replica.insist("POST", "/queues/default/resume")
        self.report.away.append(time.monotonic() - at)

    def _replica(self, submission: Submission) -> None:
        replica = self._rng.choice(self.replicas)
        replica.kill(alone=self._rng.random() < 0.5)
        replica.start()

    def _stopped(self, submission: Submission) -> None:
        (pid,) = self.replicas[1].pids  # the other one accepts submissions
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5 * LEASE)
        os.kill(pid, signal.SIGCONT)

    def _child(self, submission: Submission) -> None:
        main = self._rng.choice(self.replicas).pids
        children = sorted(child for pid in main for child in processes.descendants(pid))
        if children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rng.choice(children), signal.SIGKILL)

    def _connections(self, submission: Submission) -> None:
        with psycopg.connect(self._server.url, autocommit=True) as connection:
            connection.execute(CUT)
