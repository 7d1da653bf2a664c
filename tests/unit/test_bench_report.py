"""What a benchmark could not run is in its report, and fails if everything is required."""

from __future__ import annotations

import sys

import pytest
from bench.runner import Benchmark
from bench.service.table import Line, not_run, report

HELD = Line("a", 1, "≤", 2)


def test_what_was_not_run_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert report([HELD, not_run("Swift", "there is no swift-proxy")]) == 0
    shown = capsys.readouterr().out
    assert "NOT RUN  there is no swift-proxy" in shown and "1 of 1 lines hold, 1 not run" in shown


def test_what_was_not_run_fails_if_everything_is_required() -> None:
    assert report([HELD, not_run("Swift", "missing")], required=True) == 1
    assert report([HELD], required=True) == 0


@pytest.mark.parametrize(
    ("environment", "options", "code"), [("", [], 0), ("", ["--all"], 1), ("true", [], 1)]
)
def test_ci_and_an_option_require_everything(
    environment: str,
    options: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setenv("CI", environment)
    monkeypatch.setattr(
        sys, "argv", ["bench", "--folder", str(tmp_path_factory.mktemp("bench")), *options]
    )
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert Benchmark("bench", None).run({"part": lambda: [HELD, not_run("Swift", "missing")]}) == code
