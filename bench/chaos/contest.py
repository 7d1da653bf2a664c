"""The same jobs with the same faults for each contender, judged by the marks alone because all contenders write them."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.chaos import marks, recovery
from bench.chaos.contenders import CONTENDERS, Contender
from bench.chaos.kills import KillInjector
from bench.service.servers import Unready
from bench.service.table import Line, not_run

JOBS, CHILD_KILLS, SERVICE_KILLS = 500, 30, 6
LONGEST = 240.0  # seconds for one contender


@dataclass
class Outcome:
    acknowledged: int = 0
    lost: int = 0  # acknowledged, and without effect at the end of the run
    repeated: int = 0  # started again
    repeated_steps: int = 0
    child_kills: int = 0
    service_kills: int = 0
    of_jobs: list[float] = field(default_factory=list)
    of_services: list[float] = field(default_factory=list)
    seconds: float = 0.0  # until the last job had its effect
    missing: str = ""  # why there is no outcome


def measure(folder: Path) -> list[Line]:
    """Print all outcomes; only bide has a limit. A peer that cannot be run is a line."""
    print(f"{JOBS} jobs with the same faults; seconds from a kill until … starts: p50/p99")
    print(HEAD.format(*TITLES))
    lines = []
    for name in CONTENDERS:
        here = folder / name.split()[0]
        here.mkdir()
        outcome = contest(
            name, here, jobs=JOBS, child_kills=CHILD_KILLS, service_kills=SERVICE_KILLS, seed=2
        )
        print(_row(name, outcome), flush=True)
        if outcome.missing:
            lines.append(not_run(name, outcome.missing))
        elif name == "bide":
            lines.append(Line("jobs that bide lost beside its peers", outcome.lost, "≤", 0, ""))
    return lines


TITLES = ("", "jobs", "killed", "lost", "begun again", "steps again", "its job", "any job", "all ended")
HEAD = "{:<16} {:>5} {:>7} {:>5} {:>12} {:>12} {:>14} {:>14} {:>10}"


def _row(name: str, outcome: Outcome) -> str:
    if outcome.missing:
        return f"{name:<16} NOT RUN: {outcome.missing}"
    return HEAD.format(
        name,
        outcome.acknowledged,
        f"{outcome.child_kills}+{outcome.service_kills}",
        outcome.lost,
        outcome.repeated,
        outcome.repeated_steps,
        _seconds(outcome.of_jobs),
        _seconds(outcome.of_services),
        f"{outcome.seconds:.0f} s",
    )


def _seconds(taken: list[float]) -> str:
    low, high = (recovery.percentile(taken, share) for share in (0.5, 0.99))
    return f"{low:.2f}/{high:.2f} s" if taken else "never"


def contest(
    name: str, folder: Path, *, jobs: int, child_kills: int, service_kills: int, seed: int
) -> Outcome:
    place = folder / "marks"
    try:
        with CONTENDERS[name](folder, place) as contender:
            return _run(contender, place, jobs, (child_kills, service_kills), seed)
    except (Unready, OSError, RuntimeError) as error:
        if name == "bide":
            raise
        return Outcome(missing=str(error).strip().splitlines()[-1])


def _run(contender: Contender, place: Path, jobs: int, faults: tuple[int, int], seed: int) -> Outcome:
    tail = marks.Tail(place)
    submission = _Submission(contender, jobs)
    injector = KillInjector(contender, tail, random.Random(seed), submission.answered, patient=True)
    begin = time.monotonic()
    contender.start()
    try:
        submission.start()
        injector.inject(*faults)
        _settle(contender, tail, submission, begin + LONGEST)
    finally:
        contender.stop()
    submission.join()
    if submission.error is not None:
        raise RuntimeError(str(submission.error))
    left = marks.read(place)
    if not left:
        raise RuntimeError("no job was started")
    ended = {mark.job: mark.at for mark in reversed(left) if mark.step == marks.END}  # the first end
    steps = [(mark.job, mark.step) for mark in left if mark.step in marks.STEPS]
    return Outcome(
        acknowledged=len(submission.acknowledged),
        lost=len(set(submission.acknowledged) - set(ended)),
        repeated=recovery.repetitions(left),
        repeated_steps=len(steps) - len(set(steps)),
        child_kills=injector.count("child"),
        service_kills=injector.count("service"),
        of_jobs=recovery.of_jobs(left, injector.kills),
        of_services=recovery.of_services(left, injector.kills),
        seconds=max(ended.values(), default=begin) - begin,
    )


def _settle(contender: Contender, tail: marks.Tail, submission: _Submission, end: float) -> None:
    """Wait until every job has had its effect, or until no mark was written for a while."""
    last = time.monotonic()
    while time.monotonic() < min(end, last + contender.quiet):
        if tail.grow() or submission.is_alive():
            last = time.monotonic()
        elif tail.finished.issuperset(submission.acknowledged):
            return
        time.sleep(0.05)


class _Submission(threading.Thread):
    def __init__(self, contender: Contender, jobs: int) -> None:
        super().__init__(daemon=True)
        self._contender = contender
        self._jobs = jobs
        self.answered = threading.Event()
        self.acknowledged: list[str] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for name in self._contender.submit(self._jobs):
                self.acknowledged.append(name)
                self.answered.set()
        except Exception as error:
            self.error = error
