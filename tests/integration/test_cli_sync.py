"""`bide sync` as people and programs see it: lines, JSON, rows in a terminal, exit codes, a schedule that stays."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner, Result
from rich.console import Console

from bide.cli import root
from bide.cli import sync as cli_sync
from bide.cli.output import Terminal
from bide.client.apis.answers import Ref
from bide.core.errors import ErrorInfo
from bide.pipeline.run.context import ExportUpdate
from bide.pipeline.run.phase import Export, PhaseEvent, advance
from tests.integration.exporter import KEY, PIPELINE, Exporter, Folder, Storage
from tests.servers import warm
from tests.terminal import Terminal as Screen


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with Storage() as storage, Exporter(storage) as exporter:
        yield exporter


@pytest.fixture
def folder(tmp_path: Path, exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("LMS_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path, exporter)


def sync(*args: str) -> Result:
    return CliRunner().invoke(root, ["sync", "grades.toml", "--trust", *args])


def test_what_is_published_is_on_stdout_and_the_way_on_stderr(folder: Folder) -> None:
    result = sync()
    assert result.exit_code == 0, result.output
    assert result.stdout == "out/gradebook.jsonl: published: 6 rows\n"
    assert "gradebook course=2: initiated\n" in result.stderr
    assert result.stderr.rstrip().splitlines()[-1].startswith("3 exports: 3 published; ")
    assert sync().stdout == "out/gradebook.jsonl: unchanged: 6 rows\n"


def guarded(folder: Folder, rules: str, output: str = 'path = "out/gradebook.jsonl"') -> None:
    folder.write(text=PIPELINE.replace('path = "out/gradebook.jsonl"', f"{output}\n{rules}"))


def test_a_publication_with_far_fewer_rows_is_refused_until_it_is_accepted(
    folder: Folder, exporter: Exporter
) -> None:
    guarded(folder, 'max_drop = "40%"')
    assert sync().exit_code == 0
    assert len(folder.rows) == 6
    exporter.storage.content = lambda name: b"student,grade\nada,1\n"
    result = sync("--fresh")
    assert result.exit_code == 1
    assert "3 rows" in result.stdout and "6 rows" in result.stdout and "40%" in result.stdout
    assert "--accept-drop" in result.stdout
    assert len(folder.rows) == 6, "what was published stays"
    asked = len(exporter.asked)
    assert sync().exit_code == 1, "and it stays refused"
    result = sync("--accept-drop")
    assert result.exit_code == 0, result.output
    assert result.stdout == "out/gradebook.jsonl: published: 3 rows\n"
    assert len(folder.rows) == 3
    assert len(exporter.asked) == asked, "nothing is exported again for that"
    assert sync("--fresh").exit_code == 0, "the next run is compared with the accepted one"


def test_a_drop_as_large_as_max_drop_is_published(folder: Folder, exporter: Exporter) -> None:
    guarded(folder, 'max_drop = "50%"')
    assert sync().exit_code == 0
    exporter.storage.content = lambda name: b"student,grade\nada,1\n"
    assert sync("--fresh").exit_code == 0
    assert len(folder.rows) == 3


@pytest.mark.parametrize(
    "output",
    ['path = "out/gradebook.jsonl"', 'path = "out/g.parquet"', 'path = "out/g.db"\ntable = "g"'],
)
def test_fewer_rows_than_minimum_rows_are_not_published(folder: Folder, output: str) -> None:
    guarded(folder, "minimum_rows = 7", output)
    result = sync()
    assert result.exit_code == 1
    assert "6 rows" in result.stdout and "minimum_rows" in result.stdout and "7" in result.stdout
    published = [path for path in (folder.path / "out").iterdir() if path.suffix != ".db"]
    assert published == []
    guarded(folder, "minimum_rows = 6", output)
    result = sync()
    assert result.exit_code == 0, result.output


def test_a_table_of_sqlite_stays_when_its_successor_is_refused(
    folder: Folder, exporter: Exporter
) -> None:
    guarded(folder, 'max_drop = "10%"', 'path = "out/g.db"\ntable = "g"')
    assert sync().exit_code == 0
    exporter.storage.content = lambda name: b"student,grade\nada,1\n"
    assert sync("--fresh").exit_code == 1
    with closing(sqlite3.connect(folder.path / "out" / "g.db")) as database:
        assert database.execute("SELECT count(*) FROM g").fetchone() == (6,)


def test_changing_a_guard_publishes_nothing_again(folder: Folder, exporter: Exporter) -> None:
    assert sync().exit_code == 0
    guarded(folder, 'minimum_rows = 2\nmax_drop = "50%"')
    assert sync().stdout == "out/gradebook.jsonl: unchanged: 6 rows\n"


def test_a_schedule_accepts_no_drop_beforehand(folder: Folder) -> None:
    assert sync("--schedule", "@daily", "--accept-drop").exit_code == 2


def test_json_is_one_object_a_change(folder: Folder, exporter: Exporter) -> None:
    exporter.failing["2"] = 1
    result = sync("--json")
    assert result.exit_code == 1
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    first = [line["phase"] for line in lines if line.get("export") == "gradebook course=1"]
    assert first == ["INITIATING", "INITIATED", "READY", "RESOLVED"]
    (failed,) = (line for line in lines if line["phase"] == "FAILED")
    # They arrive in any order.
    (second,) = (id for id, job in exporter.jobs.items() if str(job["course"]) == "2")
    assert failed["error"]["code"] == "TOO_BIG" and failed["jobId"] == second
    assert lines[-2]["phase"] == "REFUSED" and lines[-2]["missing"] == ["gradebook course=2"]
    assert lines[-1] | {"requests": 0, "period": ""} == {
        "period": "", "phase": "ENDED", "good": False, "exports": 3, "failed": 1, "requests": 0,
    }  # fmt: skip


def test_what_failed_is_said_and_the_exit_code_is_1(folder: Folder, exporter: Exporter) -> None:
    exporter.failing["2"] = 1
    result = sync()
    assert result.exit_code == 1
    assert "out/gradebook.jsonl: not published: 1 of 3 exports are missing" in result.stdout
    assert "gradebook course=2: failed: TOO_BIG: the course is too large" in result.stdout


def test_a_denied_credential_is_one_line(folder: Folder, exporter: Exporter) -> None:
    exporter.token = "another"
    result = sync()
    assert result.exit_code == 1
    assert result.stderr.count("rejects the credential") == 1
    assert ".." not in result.stderr
    assert KEY not in result.output


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--schedule", "61 * * * *"], "is not a valid minute"),
        (["--zone", "Mars/Olympus"], "is not a time zone"),
        (["--schedule", "@daily", "--fresh"], "names its runs itself"),
        (["--url", "nowhere"], "not the address"),
    ],
)
def test_wrong_usage_is_2(folder: Folder, args: list[str], reason: str) -> None:
    result = sync(*args)
    assert result.exit_code == 2 and reason in result.output


def test_a_mistake_in_the_file_is_2_and_names_the_line(folder: Folder) -> None:
    folder.write("retires = 1")
    result = sync()
    assert result.exit_code == 2
    assert "grades.toml, line 14: [exports] has no `retires`" in result.output


def test_check_asks_nothing(folder: Folder, exporter: Exporter) -> None:
    result = sync("--check", "--json")
    assert json.loads(result.stdout) == {
        "dataset": "gradebook", "exports": 3, "output": "out/gradebook.jsonl",
    }  # fmt: skip
    assert exporter.asked == [] and not Path("grades.sync").exists()


def start(folder: Folder, *args: str) -> subprocess.Popen[str]:
    return warm.popen(
        [sys.executable, "-m", "bide", "sync", "grades.toml", "--trust", *args],
        cwd=folder.path,
        env={**os.environ, "LMS_KEY": KEY},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_interrupted_is_130_and_says_how_to_go_on(folder: Folder, exporter: Exporter) -> None:
    exporter.takes = 1e9
    with start(folder) as process:
        until = time.monotonic() + 30
        while len(exporter.submitted) < 3 and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "run the same command again to resume" in errors
    exporter.takes = 0.0
    assert sync().exit_code == 0
    assert len(exporter.submitted) == 3


def test_a_schedule_stays_and_nobody_else_may_run_it_meanwhile(folder: Folder) -> None:
    with start(folder, "--schedule", "0 0 1 1 *", "--zone", "Europe/Berlin") as process:
        assert process.stderr is not None
        assert "the next run is at 20" in process.stderr.readline()
        assert process.poll() is None
        refused = sync()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 130
    assert refused.exit_code == 1 and "another process" in refused.output


def test_a_warning_and_the_bars_do_not_overwrite_each_other(folder: Folder, exporter: Exporter) -> None:
    failures = iter([web.Response(status=500, text=f"down \x1b[2J {KEY}")])
    exporter.rules.append(lambda request: next(failures, None) if request.method == "GET" else None)
    exporter.takes = 1.5
    command = ("sync", "grades.toml", "--trust")
    with Screen(folder.path, *command, env={"LMS_KEY": KEY}, columns=200) as screen:
        screen.until("of 3 finished")
        assert screen.wait() == 0, screen.lines()
        shown, moments = screen.lines(), screen.snapshots
    warning = re.compile(
        r'bide: GET …/job\d returned 500 \(not JSON: "down \?\[2J \[hidden\]"\)\. Retrying'
    )
    assert warning.fullmatch(shown[0]), shown
    assert shown[1:3] == ["bide: lms answers again", "out/gradebook.jsonl: published: 6 rows"]
    assert re.fullmatch(r"3 exports: 3 published; \d+ requests", shown[3])
    assert len(shown) == 4, "the bars have disappeared"
    bars = [line for moment in moments for line in moment if "━" in line]
    assert any("gradebook course=1" in line for line in bars)
    assert not any("bide:" in line or "published" in line for line in bars)
    # The warning appears while the bars are shown, and stays above them.
    assert any(
        warning.fullmatch(moment[0]) and "all exports" in moment[1] for moment in moments if moment[1:]
    )


def test_rows_in_a_terminal() -> None:
    written, terminal = io.StringIO(), Terminal()
    terminal.console = Console(file=written, force_terminal=True, width=100)
    terminal.shows_bars = True
    export = Export(key="k", name="gradebook course=1", dataset="gradebook", output="o")
    sent = advance(export, PhaseEvent.SEND)
    going = advance(sent, PhaseEvent.ACCEPTED, ref=Ref("job1"))
    with cli_sync.view_for(False, terminal) as view:
        assert isinstance(view, cli_sync.LiveSyncView)
        view.on_export(ExportUpdate(sent))
        view.on_export(ExportUpdate(going, 40.0, "running", moved=False))
        view._progress.refresh()
        shown = written.getvalue()
        view.on_export(ExportUpdate(advance(going, PhaseEvent.REFUSED, error=ErrorInfo("NO", "no"))))
    assert "gradebook course=1" in shown and "running" in shown
    assert "1 of 1 finished" in written.getvalue()
