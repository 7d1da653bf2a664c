"""One trial of bide: submit, kill, wait, and judge by the record and the marks alone."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.service import ServiceProcess

from bench.chaos import marks, recovery
from bench.chaos.judge import TERMINAL, Violation, Wanted, judge
from bench.chaos.kills import KillInjector

BACKLOG = 100  # maximum of waiting jobs, so that submissions are acknowledged until the end


@dataclass
class Report:
    acknowledged: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    child_kills: int = 0
    service_kills: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    repeated_steps: int = 0  # run again because they were not kept yet: allowed
    repetitions: int = 0  # of handlers, because of a kill
    after_children: list[float] = field(default_factory=list)  # seconds
    after_services: list[float] = field(default_factory=list)
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)


def trial(folder: Path, *, jobs: int, child_kills: int, service_kills: int, seed: int) -> Report:
    """Runs `jobs` jobs while children and the service are killed; returns the violations."""
    place = folder / "marks"
    victim = ServiceProcess(folder, "bench.chaos.app:app", env={marks.PLACE: str(place)})
    database = victim.data / "bide.db"
    submission = Submission(victim, jobs)
    injector = KillInjector(
        victim,
        marks.Tail(place),
        random.Random(seed),
        submission.answered,
        database=database,
        spare_children=True,
    )
    begin = time.monotonic()
    victim.start()
    try:
        submission.start()
        injector.inject(child_kills, service_kills)
        submission.join()
        _wait(victim, [wanted.job_id for wanted in submission.acknowledged])
    finally:
        victim.stop()
    seconds = time.monotonic() - begin
    left = marks.read(place)
    verdict = judge(database, left, submission.acknowledged)
    return Report(
        acknowledged=len(submission.acknowledged),
        ended=verdict.ended,
        child_kills=injector.count("child"),
        service_kills=injector.count("service"),
        moments=injector.moments,
        repeated_steps=verdict.repeated_steps,
        repetitions=recovery.repetitions(left),
        after_children=recovery.of_jobs(left, [k for k in injector.kills if k.what == "child"]),
        after_services=recovery.of_services(left, injector.kills),
        seconds=seconds,
        violations=verdict.violations,
    )


class Submission(threading.Thread):
    """Keeps the queue filled until all jobs are acknowledged."""

    def __init__(self, victim: ServiceProcess, jobs: int) -> None:
        super().__init__(daemon=True)  # a trial that fails does not wait for it
        self._victim = victim
        self._jobs = jobs
        self.answered = threading.Event()
        self.acknowledged: list[Wanted] = []

    def run(self) -> None:
        for start in range(0, self._jobs, 10):
            while start and self._backlog() > BACKLOG:
                time.sleep(0.02)
            numbers = range(start, min(self._jobs, start + 10))
            self._submit([("family" if n % 5 == 0 else "work", n) for n in numbers])

    def _backlog(self) -> int:
        return sum(int(q["backlog"]) for q in self._victim.insist("GET", "/queues")["queues"])

    def _submit(self, wanted: list[tuple[str, int]]) -> None:
        body = {"jobs": [{"kind": kind, "input": {"number": n}} for kind, n in wanted]}
        key = {"Idempotency-Key": str(uuid.uuid4())}
        answer = self._victim.insist("POST", "/jobs/batch", body, key)
        self.answered.set()
        for (kind, n), job in zip(wanted, answer["jobs"], strict=True):
            self.acknowledged.append(Wanted(job["jobId"], n if kind == "work" else 2 * n + 1))


def _wait(victim: ServiceProcess, acknowledged: list[str]) -> None:
    waiting = set(acknowledged)
    end = time.monotonic() + 120
    while waiting and time.monotonic() < end:
        for chunk in _chunks(sorted(waiting), 100):
            query = "&".join(f"id={job_id}" for job_id in chunk)
            found = victim.insist("GET", f"/jobs?{query}")
            waiting -= {job["jobId"] for job in found["jobs"] if job["status"] in TERMINAL}
            waiting -= set(found["missing"])
        time.sleep(0.1)


def _chunks(items: list[str], size: int) -> Iterator[list[str]]:
    for i in range(0, len(items), size):
        yield items[i : i + size]
