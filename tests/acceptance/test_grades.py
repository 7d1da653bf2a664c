"""examples/grades as it is, with `bide sync` killed in each phase: what is published in the end is the same bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, copy_folder
from tests.servers import warm

EXAMPLE = ROOT / "examples" / "grades"
SPEED = "60"
OUTPUTS = ("gradebook.parquet", "attendance.csv", "engagement.jsonl")
# By phase of the pipeline: what the run says when it is in the middle of it, and how many times before it is killed.
MOMENTS = {
    "initiate": ("INITIATING", 6),
    "monitor": ("INITIATED", 12),
    "resolve": ("READY", 4),
    "normalize": ("NORMALIZING", 1),
}


@contextmanager
def lms() -> Iterator[str]:
    """The example's own server; its address."""
    command = [sys.executable, str(EXAMPLE / "lms.py"), "--port", "0", "--speed", SPEED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[4].rstrip(",")
        finally:
            server.kill()


def start(folder: Path, url: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BIDE_")}
    return warm.popen(
        [sys.executable, "-m", "bide", "sync", "grades.toml", "--url", url, "--json"],
        cwd=folder,
        env={**kept, "CANVAS_TOKEN": "canvas-demo-token", "GRADES_KEY": "sesame"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(folder: Path, url: str) -> list[dict[str, object]]:
    """Runs until all is published: one report fails the first time, and is tried again by the next run."""
    said = []
    for _ in range(3):
        with start(folder, url) as process:
            out, errors = process.communicate(timeout=60)
        said += [json.loads(line) for line in out.splitlines()]
        assert process.returncode in (0, 1), errors
        if process.returncode == 0:
            return said
    raise AssertionError(f"not all is published: {said[-5:]}")


def killed(folder: Path, url: str, phase: str, times: int) -> bool:
    """Ends the run with SIGKILL when it has said this so often; False when it never did."""
    with start(folder, url) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            times -= json.loads(line)["phase"] == phase
            if not times:
                process.send_signal(signal.SIGKILL)
                return True
        process.stderr.read()
    return False


def published(folder: Path) -> dict[str, bytes]:
    # After a kill, the working folder of a file that was being written is there too.
    return {path.name: path.read_bytes() for path in (folder / "out").glob("*") if path.is_file()}


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("unkilled") / "grades"
    copy_folder(EXAMPLE, folder)
    with lms() as url:
        finish(folder, url)
    found = published(folder)
    assert sorted(found) == sorted(OUTPUTS)
    return found


@pytest.mark.soak
def test_a_run_that_is_killed_in_each_phase_publishes_the_same_bytes(
    tmp_path: Path, unkilled: dict[str, bytes]
) -> None:
    folder = tmp_path / "grades"
    copy_folder(EXAMPLE, folder)
    with lms() as url:
        for name, (phase, times) in MOMENTS.items():
            assert killed(folder, url, phase, times), f"it never was in the middle of {name}"
            for file, data in published(folder).items():  # nothing is half published, ever
                assert file not in OUTPUTS or data == unkilled[file], f"{file} after {name}"
        said = finish(folder, url)
    assert {name: data for name, data in published(folder).items() if name in OUTPUTS} == unkilled
    assert said[-1]["good"] is True
    # What was known before the kills was not asked for again: the last runs only finish.
    assert sum(line["phase"] == "INITIATING" for line in said) <= 2


def test_no_name_and_no_number_of_a_student_is_published_or_left_behind(
    tmp_path: Path, unkilled: dict[str, bytes]
) -> None:
    for data in unkilled.values():
        assert b"Student 7" not in data and b"s12007" not in data
