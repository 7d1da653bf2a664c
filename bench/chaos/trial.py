"""One trial: submit, kill, wait, and judge by the record alone."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.chaos.victim import Victim

TERMINAL = ("DONE", "PARTIAL_SUCCESS", "ERROR", "CANCELLED")


@dataclass
class Report:
    acknowledged: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    child_kills: int = 0
    service_kills: int = 0
    repeated_steps: int = 0  # run again because they were not kept yet: allowed
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


def trial(folder: Path, *, jobs: int, child_kills: int, service_kills: int, seed: int) -> Report:
    """Runs `jobs` jobs while children and the service are killed; says what was wrong afterwards."""
    rng = random.Random(seed)
    marks = folder / "marks"
    victim = Victim(folder, "bench.chaos.app:app", env={"BIDE_CHAOS_MARKS": str(marks)})
    report = Report()
    begin = time.monotonic()
    victim.start()
    try:
        acknowledged: list[str] = []
        kinds: dict[str, tuple[str, int]] = {}
        submitter = threading.Thread(target=_submit, args=(victim, jobs, acknowledged, kinds))
        submitter.start()
        _strike(victim, rng, report, child_kills, service_kills)
        submitter.join()
        _wait(victim, acknowledged)
        report.acknowledged = len(acknowledged)
    finally:
        victim.stop()
    report.seconds = time.monotonic() - begin
    _judge(victim.data / "bide.db", marks, acknowledged, kinds, report)
    return report


def _submit(
    victim: Victim, jobs: int, acknowledged: list[str], kinds: dict[str, tuple[str, int]]
) -> None:
    for start in range(0, jobs, 20):
        wanted = [
            {"kind": "family" if n % 5 == 0 else "work", "input": {"number": n}}
            for n in range(start, min(jobs, start + 20))
        ]
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        answer = victim.insist("POST", "/jobs/batch", {"jobs": wanted}, headers)
        for item, job in zip(wanted, answer["jobs"], strict=True):
            acknowledged.append(job["jobId"])
            kinds[job["jobId"]] = (str(item["kind"]), int(item["input"]["number"]))  # type: ignore[index]


def _strike(
    victim: Victim, rng: random.Random, report: Report, child_kills: int, service_kills: int
) -> None:
    blows = ["child"] * child_kills + ["service"] * service_kills
    rng.shuffle(blows)
    for blow in blows:
        time.sleep(rng.uniform(0.05, 0.4))
        if blow == "service":
            victim.kill()
            victim.start()
            report.service_kills += 1
        else:
            busy = [
                w["pid"] for w in victim.insist("GET", "/workers")["workers"] if w["state"] == "busy"
            ]
            if busy:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(busy), signal.SIGKILL)
                    report.child_kills += 1


def _wait(victim: Victim, acknowledged: list[str]) -> None:
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


def _judge(
    database: Path,
    marks: Path,
    acknowledged: list[str],
    kinds: dict[str, tuple[str, int]],
    report: Report,
) -> None:
    connection = sqlite3.connect(database)
    rows = {
        row[0]: row
        for row in connection.execute(
            "SELECT id, status, fence, result, parent, children, error FROM jobs"
        )
    }
    events = connection.execute("SELECT job_id, type, job FROM events ORDER BY id").fetchall()
    connection.close()
    report.ended = Counter(rows[j][1] for j in acknowledged if j in rows)
    if len(set(acknowledged)) != len(acknowledged):
        report.faults.append("an idempotency key made two jobs")
    for job_id in acknowledged:
        if job_id not in rows:
            report.faults.append(f"{job_id} was acknowledged and is lost")
        elif rows[job_id][1] not in TERMINAL:
            report.faults.append(f"{job_id} never ended: {rows[job_id][1]}")
        elif rows[job_id][1] == "DONE":
            kind, number = kinds[job_id]
            right = number if kind == "work" else 2 * number + 1
            if json.loads(rows[job_id][3]) != right:
                report.faults.append(f"{job_id} has the wrong result")
    _judge_events(rows, events, report)
    _judge_marks(events, marks, report)


def _judge_events(
    rows: dict[str, tuple[object, ...]], events: list[tuple[str, str, str]], report: Report
) -> None:
    ends: Counter[tuple[str, int]] = Counter()
    for job_id, type_, text in events:
        known = json.loads(text)
        if type_ == "status" and known["status"] in TERMINAL:
            ends[job_id, known["run"]] += 1
            if known["fence"] != rows[job_id][2]:
                report.faults.append(f"{job_id} was ended by a stale attempt")
    for job_id, row in rows.items():
        if ends[job_id, 1] != 1:
            report.faults.append(f"{job_id} has {ends[job_id, 1]} terminal events")
        if row[4] is not None and row[4] not in rows:
            report.faults.append(f"{job_id} has no parent")
        for child in json.loads(str(row[5])) if row[5] else ():
            if child["job_id"] not in rows or rows[child["job_id"]][1] != child["status"]:
                report.faults.append(f"{job_id} and its child {child['job_id']} disagree")


def _judge_marks(events: list[tuple[str, str, str]], marks: Path, report: Report) -> None:
    kept: dict[tuple[str, str], int] = {}
    for job_id, type_, text in events:
        if type_ == "step":
            known = json.loads(text)
            if known["step"]["status"] == "DONE":
                place = (job_id, known["step"]["name"])
                if place in kept:
                    report.faults.append(f"{job_id} kept step {place[1]} twice")
                kept[place] = known["fence"]
    runs: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in marks.read_text().splitlines():
        job_id, step, fence = line.split()
        runs[job_id, step].append(int(fence))
    for place, fences in runs.items():
        report.repeated_steps += len(fences) - 1
        if place in kept and max(fences) > kept[place]:
            report.faults.append(f"{place[0]} repeated step {place[1]} after it was kept")
