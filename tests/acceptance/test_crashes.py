"""kill -9 of children and of the whole service while jobs run: each acknowledged job ends once.

It imports bench, because it runs a small trial of `python -m bench.chaos`, and tests how that judges.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from bench.chaos import marks, recovery
from bench.chaos.judge import PROMISES, Row, Wanted, judge
from bench.chaos.kills import Kill
from bench.chaos.marks import BEGIN, END, UNWOUND, Mark
from bench.chaos.trial import trial


def test_nothing_is_lost_repeated_or_reported_twice(tmp_path: Path) -> None:
    report = trial(tmp_path, jobs=100, child_kills=5, service_kills=1, seed=7)
    assert report.violations == []
    assert report.acknowledged == 100
    assert sum(report.ended.values()) == 100
    assert report.service_kills >= 1 and report.child_kills >= 1
    # Each job of a killed process started again, well before a lease of 30 seconds expired.
    assert report.repetitions >= 1
    assert max(report.after_children + report.after_services) < 25


def test_recovery_is_from_the_kill_until_the_job_of_the_killed_begins_again() -> None:
    left = [
        Mark("a", BEGIN, 1, 10, 1.0),
        Mark("b", BEGIN, 1, 11, 1.1),
        Mark("b", END, 1, 11, 1.2),
        Mark("c", BEGIN, 1, 12, 1.3),
        Mark("a", BEGIN, 2, 13, 2.5),
    ]
    struck_at_work = Kill("child", 1.5, frozenset({10}))
    struck_between_jobs = Kill("child", 1.5, frozenset({11}))
    assert recovery.of_jobs(left, [struck_at_work, struck_between_jobs]) == [1.0]
    # An earlier process does not show that the service is back: pid 12 is an orphan.
    service = Kill("service", 1.25, frozenset({1, 10, 11, 12}))
    assert recovery.of_services(left, [service]) == [1.25]
    assert recovery.of_services(left, [service, Kill("service", 2.0, frozenset({2}))]) == [0.5]


def test_half_a_mark_is_left_for_the_next_look(tmp_path: Path) -> None:
    place = tmp_path / "marks"
    place.write_text("a begin 1 10 1.0\na end 1 1")
    tail = marks.Tail(place)
    assert marks.read(place) == tail.grow() == [Mark("a", BEGIN, 1, 10, 1.0)]
    place.write_text("a begin 1 10 1.0\na end 1 10 2.0\n")
    assert tail.grow() == [Mark("a", END, 1, 10, 2.0)]


def test_a_handler_that_waits_for_others_is_not_counted_as_repeated() -> None:
    waited = [Mark("a", step, 1, 10, 1.0) for step in (BEGIN, UNWOUND, BEGIN, END)]
    killed = [Mark("b", step, 1, 10, 1.0) for step in (BEGIN, BEGIN, END)]
    assert recovery.repetitions(waited) == 0
    assert recovery.repetitions(waited + killed) == 1


def test_a_record_that_breaks_a_promise_is_found_out(tmp_path: Path) -> None:
    known = [
        Row("good", "DONE", 1, "7", None, None, None, 0),
        Row("late", "DONE", 2, "7", None, None, None, 1),
        Row("wrong", "DONE", 1, "8", None, None, None, 0),
        Row("hung", "PROCESSING", 1, None, None, None, None, 0),
        Row("failed", "ERROR", 1, None, None, None, json.dumps({"code": "INTERNAL"}), 0),
        Row("given-up", "ERROR", 3, None, None, None, json.dumps({"code": "POISONED"}), 2),
        Row("orphan", "DONE", 1, "7", "nobody", None, None, 0),
    ]
    events = [(r.id, "status", {"status": r.status, "fence": 1}) for r in known if r.id != "given-up"]
    events.append(("given-up", "status", {"status": "ERROR", "fence": 3}))
    events.append(("good", "step", {"fence": 1, "step": {"name": "first", "status": "DONE"}}))
    with closing(sqlite3.connect(tmp_path / "record.db")) as database:
        database.execute(f"CREATE TABLE jobs ({', '.join(Row._fields)})")
        database.executemany(f"INSERT INTO jobs VALUES ({', '.join('?' * len(Row._fields))})", known)
        database.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, job_id, type, job)")
        database.executemany(
            "INSERT INTO events (job_id, type, job) VALUES (?, ?, ?)",
            [(job_id, type_, json.dumps(job)) for job_id, type_, job in events],
        )
        database.commit()
    left = [Mark("good", "first", fence, 10, 1.0) for fence in (1, 2)]
    wanted = [Wanted(name, 7) for name in ("lost", *(row.id for row in known))]
    violations = {
        (f.promise, f.text.split()[0]) for f in judge(tmp_path / "record.db", left, wanted).violations
    }
    assert violations == {
        ("ends", "lost"),
        ("ends", "hung"),
        ("failed", "failed"),
        ("result", "wrong"),
        ("stale", "late"),
        ("stale", "good"),  # an attempt with a higher fence than the one that ended it was running
        ("once", "hung"),
        ("steps", "good"),
        ("family", "orphan"),
    }
    assert {promise for promise, _ in violations} == set(PROMISES)
