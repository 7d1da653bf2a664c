"""Recovery times, from the marks of jobs and the times of kills."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence

from bench.chaos.kills import Kill
from bench.chaos.marks import BEGIN, END, UNWOUND, Mark


def of_jobs(marks: Sequence[Mark], kills: Sequence[Kill]) -> list[float]:
    """Seconds from the kill of a process until the job that it ran starts again."""
    begins: dict[str, list[float]] = defaultdict(list)
    last: dict[int, Mark] = {}
    for mark in marks:
        last[mark.pid] = mark
        if mark.step == BEGIN:
            begins[mark.job].append(mark.at)
    found = []
    for kill in kills:
        for left in (last[pid] for pid in kill.pids if pid in last):
            if left.step not in (END, UNWOUND):
                again = bisect_right(begins[left.job], max(kill.at, left.at))
                found += [at - kill.at for at in begins[left.job][again : again + 1]]
    return found


def of_services(marks: Sequence[Mark], kills: Sequence[Kill]) -> list[float]:
    """Seconds from the kill of a service until a job begins, in a new process.

    A service that is killed again before it has started a job does not count.
    """
    services = [kill for kill in kills if kill.what == "service"]
    begins = [mark for mark in marks if mark.step == BEGIN]
    times = [mark.at for mark in begins]
    found = []
    for number, kill in enumerate(services):
        until = services[number + 1].at if number + 1 < len(services) else float("inf")
        for mark in begins[bisect_right(times, kill.at) :]:
            if mark.at > until:
                break
            if mark.pid not in kill.pids:
                found.append(mark.at - kill.at)
                break
    return found


def of_frozen(marks: Sequence[Mark], kills: Sequence[Kill]) -> list[float]:
    """Seconds from the freeze of a process until another one starts its job."""
    found = []
    for kill in kills:
        last: dict[int, Mark] = {}
        for mark in marks:
            if mark.at <= kill.at:
                last[mark.pid] = mark
        held = {
            left.job
            for pid, left in last.items()
            if pid in kill.pids and left.step not in (END, UNWOUND)
        }
        for mark in marks:
            if (
                mark.at > kill.at
                and mark.job in held
                and mark.step == BEGIN
                and mark.pid not in kill.pids
            ):
                found.append(mark.at - kill.at)
                held.discard(mark.job)
    return found


def of_returns(marks: Sequence[Mark], times: Sequence[float]) -> list[float]:
    """Seconds from the return of a server until the next job begins."""
    begins = [mark.at for mark in marks if mark.step == BEGIN]
    return [begins[n] - at for at in times if (n := bisect_right(begins, at)) < len(begins)]


def repetitions(marks: Sequence[Mark]) -> int:
    """Starts beyond the first of each job; a handler that was unwound to wait for children is expected to start again."""
    steps = Counter((mark.job, mark.step) for mark in marks)
    jobs = {mark.job for mark in marks}
    return sum(max(0, steps[job, BEGIN] - 1 - steps[job, UNWOUND]) for job in jobs)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of the values do not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
