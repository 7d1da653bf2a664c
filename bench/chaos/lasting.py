"""Long jobs that run during a fault, and their outcomes."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.chaos import marks
from bench.chaos.judge import TERMINAL
from bench.service.table import Line

Insist = Callable[..., Any]  # method, path, body, headers
KINDS = ("once", "lasting")
TOGETHER = 4  # jobs that run at the same time


@dataclass
class Became:
    """The number of jobs, and how many of them never ended, failed or started again."""

    jobs: int = 0
    hung: int = 0
    failed: int = 0
    again: int = 0
    texts: list[str] = field(default_factory=list)

    def add(self, other: Became) -> None:
        self.jobs += other.jobs
        self.hung += other.hung
        self.failed += other.failed
        self.again += other.again
        self.texts += other.texts


def submit(insist: Insist, kind: str, **input: Any) -> str:
    """The id of a job that was acknowledged."""
    key = {"Idempotency-Key": str(uuid.uuid4())}
    return str(insist("POST", "/jobs", {"kind": kind, "input": input}, key)["jobId"])


def begin(insist: Insist, tail: marks.Tail, seconds: float, jobs: int = TOGETHER) -> list[str]:
    """Submit jobs of both kinds that run for this long; return after all of them have started."""
    ids = [submit(insist, KINDS[n % 2], number=n, seconds=seconds) for n in range(jobs)]
    begun: set[str] = set()
    end = time.monotonic() + 60
    while not begun.issuperset(ids):
        if time.monotonic() > end:
            raise RuntimeError(f"{len(set(ids) - begun)} of {jobs} jobs did not start")
        begun |= {mark.job for mark in tail.grow() if mark.step == marks.BEGIN}
        time.sleep(0.02)
    return ids


def ended(insist: Insist, ids: Sequence[str], longest: float = 60.0) -> list[dict[str, Any]]:
    """Return the jobs after all of them have ended, or after the timeout."""
    query = "&".join(f"id={job_id}" for job_id in ids)
    end = time.monotonic() + longest
    while True:
        found: list[dict[str, Any]] = insist("GET", f"/jobs?{query}")["jobs"]
        if all(job["status"] in TERMINAL for job in found) or time.monotonic() > end:
            return found
        time.sleep(0.2)


def became(insist: Insist, left: Sequence[marks.Mark], ids: Sequence[str]) -> Became:
    found = ended(insist, ids)
    begins = Counter(mark.job for mark in left if mark.step == marks.BEGIN)
    hung = [job for job in found if job["status"] not in TERMINAL]
    failed = [job for job in found if job["status"] in TERMINAL and job["status"] != "DONE"]
    return Became(
        jobs=len(ids),
        hung=len(hung) + len(ids) - len(found),
        failed=len(failed),
        again=sum(begins[job_id] > 1 for job_id in ids),
        texts=[f"{job['kind']} {job['jobId']}: {job['status']} {job['error']}" for job in hung + failed],
    )


def lines(what: str, all_of: Became) -> list[Line]:
    """For faults during which no live worker may lose a job."""
    for text in all_of.texts[:5]:
        print(f"  {what}: {text}")
    jobs = f"of {all_of.jobs}"
    return [
        Line(f"{what}: jobs that never ended", all_of.hung, "≤", 0, "", jobs),
        Line(f"{what}: jobs that failed", all_of.failed, "≤", 0, "", jobs),
        Line(f"{what}: jobs that started again", all_of.again, "≤", 0, "", jobs),
    ]
