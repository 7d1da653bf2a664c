"""kill -9 of children and of the whole service while jobs run: what was acknowledged ends, once."""

from __future__ import annotations

from pathlib import Path

from bench.chaos.trial import trial


def test_nothing_is_lost_repeated_or_told_twice(tmp_path: Path) -> None:
    report = trial(tmp_path, jobs=200, child_kills=8, service_kills=2, seed=7)
    assert report.faults == []
    assert report.acknowledged == 200
    assert sum(report.ended.values()) == 200
    assert report.service_kills == 2 and report.child_kills >= 1
