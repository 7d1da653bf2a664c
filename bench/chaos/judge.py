"""The violations in a record after the faults, by promise."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.chaos.marks import BEGIN, END, UNWOUND, Mark

TERMINAL = ("DONE", "PARTIAL_SUCCESS", "ERROR", "CANCELLED")

PROMISES = {
    "ends": "acknowledged jobs that are lost or never end",
    "result": "wrong results",
    "failed": "unexpected failures",
    "stale": "endings by a stale attempt",
    "once": "runs without exactly one terminal event",
    "steps": "kept steps that were repeated",
    "family": "parents and children that disagree",
}


class Violation(NamedTuple):
    promise: str
    text: str


class Wanted(NamedTuple):
    """A job that was acknowledged, and its expected result."""

    job_id: str
    result: int


@dataclass
class Verdict:
    ended: Counter[str] = field(default_factory=Counter)
    repeated_steps: int = 0  # run again because they were not kept yet: allowed
    violations: list[Violation] = field(default_factory=list)


class Row(NamedTuple):
    id: str
    status: str
    fence: int
    result: str | None
    parent: str | None
    children: str | None
    error: str | None
    losses: int


JOBS = f"SELECT {', '.join(Row._fields)} FROM jobs"
EVENTS = "SELECT job_id, type, job FROM events ORDER BY id"


def judge(database: Path, marks: Sequence[Mark], wanted: Sequence[Wanted]) -> Verdict:
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute(JOBS).fetchall()
        return judge_record(found, connection.execute(EVENTS).fetchall(), marks, wanted)


def judge_record(
    jobs: Iterable[Sequence[Any]],
    told: Iterable[Sequence[Any]],
    marks: Sequence[Mark],
    wanted: Sequence[Wanted],
) -> Verdict:
    """Judge by the rows of JOBS and EVENTS, from any store."""
    rows = {row[0]: Row(*row) for row in jobs}
    events = [(job_id, type_, json.loads(text)) for job_id, type_, text in told]
    verdict = Verdict(Counter(rows[w.job_id].status for w in wanted if w.job_id in rows))
    verdict.violations += _ends(rows, wanted)
    verdict.violations += _stale(rows, marks)
    verdict.violations += _once(rows, events)
    verdict.violations += _families(rows)
    repeated, violations = _steps(events, marks)
    verdict.repeated_steps = repeated
    verdict.violations += violations
    return verdict


def _ends(rows: dict[str, Row], wanted: Sequence[Wanted]) -> list[Violation]:
    violations = []
    if len({w.job_id for w in wanted}) != len(wanted):
        violations.append(Violation("ends", "an idempotency key made two jobs"))
    for job_id, result in wanted:
        row = rows.get(job_id)
        if row is None:
            violations.append(Violation("ends", f"{job_id} was acknowledged and is lost"))
        elif row.status not in TERMINAL:
            violations.append(Violation("ends", f"{job_id} never ended: {row.status}"))
        elif row.status != "DONE" and not _given_up(row, rows):
            violations.append(Violation("failed", f"{job_id} is {row.status}: {row.error}"))
        elif row.status == "DONE" and _number(row) != result:
            violations.append(Violation("result", f"{job_id} has {row.result} instead of {result}"))
    return violations


def _number(row: Row) -> Any:
    """The result; some results also contain the fence of their attempt."""
    found = None if row.result is None else json.loads(row.result)
    return found["number"] if isinstance(found, dict) else found


def _stale(rows: dict[str, Row], marks: Sequence[Mark]) -> list[Violation]:
    """No attempt had a higher fence than the one that ended the job, and the stored result is from that attempt."""
    highest: dict[str, int] = defaultdict(int)
    for mark in marks:
        highest[mark.job] = max(highest[mark.job], mark.fence)
    violations = []
    for row in rows.values():
        told = None if row.result is None else json.loads(row.result)
        fence = told["fence"] if isinstance(told, dict) else row.fence
        if fence != row.fence or highest[row.id] > row.fence:
            text = f"{row.id} has the result of fence {fence}, its own is {row.fence}, seen was {highest[row.id]}"
            violations.append(Violation("stale", text))
    return violations


def _given_up(row: Row, rows: dict[str, Row]) -> bool:
    """Whether the job was poisoned as documented: by its third lost worker in a row, or by a poisoned child."""
    children = [rows[child["job_id"]] for child in json.loads(row.children)] if row.children else []
    if any(_given_up(child, rows) for child in children):
        return True
    return row.error is not None and json.loads(row.error)["code"] == "POISONED" and row.losses >= 2


def _once(rows: dict[str, Row], events: list[tuple[str, str, Any]]) -> list[Violation]:
    violations = []
    ends: Counter[str] = Counter()
    for job_id, type_, known in events:
        if type_ == "status" and known["status"] in TERMINAL:
            ends[job_id] += 1  # no job is rerun here: each job has one run
            if known["fence"] != rows[job_id].fence:
                violations.append(Violation("stale", f"{job_id} was ended by a stale attempt"))
    for job_id in rows:
        if ends[job_id] != 1:
            violations.append(Violation("once", f"{job_id} has {ends[job_id]} terminal events"))
    return violations


def _families(rows: dict[str, Row]) -> list[Violation]:
    violations = []
    for row in rows.values():
        if row.parent is not None and row.parent not in rows:
            violations.append(Violation("family", f"{row.id} has no parent"))
        for child in json.loads(row.children) if row.children else ():
            known = rows.get(child["job_id"])
            if known is None or known.status != child["status"]:
                violations.append(
                    Violation("family", f"{row.id} and its child {child['job_id']} disagree")
                )
    return violations


def _steps(events: list[tuple[str, str, Any]], marks: Sequence[Mark]) -> tuple[int, list[Violation]]:
    """Return how many steps ran again before they were stored, and the steps that ran again afterwards."""
    violations = []
    kept: dict[tuple[str, str], int] = {}
    for job_id, type_, known in events:
        if type_ == "step" and known["step"]["status"] == "DONE":
            place = (job_id, known["step"]["name"])
            if place in kept:
                violations.append(Violation("steps", f"{job_id} kept step {place[1]} twice"))
            kept[place] = known["fence"]
    runs: dict[tuple[str, str], list[int]] = defaultdict(list)
    for mark in marks:
        if mark.step not in (BEGIN, END, UNWOUND):
            runs[mark.job, mark.step].append(mark.fence)
    for place, fences in runs.items():
        if place in kept and max(fences) > kept[place]:
            violations.append(
                Violation("steps", f"{place[0]} repeated step {place[1]} after it was kept")
            )
    return sum(len(fences) - 1 for fences in runs.values()), violations
