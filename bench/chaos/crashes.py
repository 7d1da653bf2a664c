"""kill -9 of children and services while 5,000 jobs run: the lines of the report."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from bench.chaos.judge import PROMISES
from bench.chaos.recovery import percentile
from bench.chaos.trial import Report, trial
from bench.service.table import Line

JOBS, CHILD_KILLS, SERVICE_KILLS = 5000, 300, 60
WORKERS = 2  # jobs that run when a service is killed


def measure(folder: Path) -> list[Line]:
    report = trial(folder, jobs=JOBS, child_kills=CHILD_KILLS, service_kills=SERVICE_KILLS, seed=1)
    for violation in report.violations[:20]:
        print(f"  {violation.promise}: {violation.text}")
    return [*_amounts(report), *_promises(report), *_costs(report)]


def _amounts(report: Report) -> list[Line]:
    """The lines that show that faults were injected."""
    ended = ", ".join(f"{n} {status}" for status, n in sorted(report.ended.items()))
    moments = ", ".join(f"{n} {moment}" for moment, n in sorted(report.moments.items()))
    detail = f"{ended}; {report.seconds:.0f} s"
    return [
        Line("jobs acknowledged", report.acknowledged, "≥", JOBS, "", detail),
        Line("children killed", report.child_kills, "≥", CHILD_KILLS * 0.9, "", moments),
        Line("services killed", report.service_kills, "≥", SERVICE_KILLS * 0.9, ""),
    ]


def _promises(report: Report) -> list[Line]:
    counts = Counter(violation.promise for violation in report.violations)
    return [Line(text, counts[promise], "≤", 0, "") for promise, text in PROMISES.items()]


def _costs(report: Report) -> list[Line]:
    """No handler runs again without a kill, and no recovery waits for the end of a lease of 30 seconds."""
    interrupted = report.child_kills + WORKERS * report.service_kills
    return [
        Line("handlers run again", report.repetitions, "≤", interrupted, ""),
        Line("steps run again, not kept before", report.repeated_steps, "≤", interrupted, ""),
        _recovery("child killed, its job begins again: p99", report.after_children, 5),
        _recovery("service killed, a job begins: p99", report.after_services, 10),
    ]


def _recovery(what: str, seconds: list[float], bar: float) -> Line:
    detail = f"p50 {percentile(seconds, 0.5):.3f} s, longest {max(seconds, default=0):.3f} s, of {len(seconds)}"
    return Line(what, percentile(seconds, 0.99), "≤", bar, "s", detail)
