"""`scripts/test`: which groups it runs, and that an interrupt ends them with all their processes and folders."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "test"
# A test with a server that only a fixture ends, as RabbitMQ: it is in a session of its own.
SERVED = """
import subprocess, tempfile, time
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def server():
    Path(tempfile.mkdtemp()).joinpath("data").touch()
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    Path("pids").open("a").write(f"{process.pid}\\n")
    yield process
    time.sleep(0.3)  # an end that a second signal would interrupt
    process.kill()
    process.wait()

def test_wait(server):
    time.sleep(float(Path("seconds").read_text()))
"""


class Project:
    """A folder with the script, two groups of tests, and a `make check` that starts a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        for name in ("scripts", "src", "bench", "tests/unit", "tests/docs"):
            (self.folder / name).mkdir(parents=True)
        shutil.copy(SCRIPT, self.folder / "scripts")
        self.wait(0)
        (self.folder / "Makefile").write_text(
            "check:\n\t@echo $$$$ >>pids; sleep $$(cat seconds); true\n"
        )
        (self.folder / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:cacheprovider\n")
        (self.folder / "tests" / "unit" / "test_one.py").write_text(SERVED)
        (self.folder / "tests" / "docs" / "test_two.py").write_text(SERVED)

    def wait(self, seconds: float) -> None:
        (self.folder / "seconds").write_text(str(seconds))

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.folder / "scripts" / "test", sys.executable],
            env={**os.environ, "TMPDIR": str(self.temporary), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    @property
    def pids(self) -> list[int]:
        path = self.folder / "pids"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_each_group_runs_and_a_failure_is_the_result_of_all(project: Project) -> None:
    (project.folder / "tests" / "test_three.py").write_text("def test_wrong():\n    assert 0\n")
    process = project.start()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    *_, check, one, two, three, last = output.splitlines()
    lines = [re.fullmatch(r" *\d+ +\d+  (.+?): (.*)", line) for line in (check, one, two, three)]
    results = {line[1]: line[2] for line in lines if line is not None}
    assert results.keys() == {"check", "tests/unit/*", "tests/docs/*", "other tests"}
    assert results["tests/unit/*"].startswith("1 passed")
    assert results["other tests"].startswith("FAILED with exit code 1: 1 failed")
    assert last.endswith(" processor seconds")
    assert list(project.temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("interrupt", "code"),
    [
        (lambda pid: os.kill(pid, signal.SIGINT), 130),
        pytest.param(lambda pid: os.kill(pid, signal.SIGTERM), 143, marks=pytest.mark.soak),
        (lambda pid: os.killpg(pid, signal.SIGINT), 130),
    ],
    ids=["SIGINT", "SIGTERM", "Ctrl-C"],
)
def test_an_interrupt_leaves_no_process_and_no_folder(
    project: Project, interrupt: Callable[[int], None], code: int
) -> None:
    project.wait(600)
    process = project.start()
    end = time.monotonic() + 60
    while len(project.pids) < 3:
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.02)
    interrupt(process.pid)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert [pid for pid in project.pids if Path(f"/proc/{pid}").exists()] == []
    assert list(project.temporary.iterdir()) == []
