"""The wheel as a user installs it: its type hints are there for the user's own type checker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import Installed

GOOD = """
from typing import assert_type

from bide import App, Client, Context, JobFailed

app = App()


@app.job(queue="text", retries=3)
def count(ctx: Context, path: str) -> dict[str, int]:
    ctx.progress(1, 2, message="Counting")
    return {"words": 1}


def run(url: str) -> str:
    with Client(url, limit="60/1m") as client:
        job = client.submit("count", {"path": "a.txt"}, priority=1)
        assert_type(job.id, str)
        assert_type(client.refused, int)
        for ended in client.as_completed([job], timeout=60):
            try:
                print(ended.result())
            except JobFailed as error:
                print(error.error)
        return job.id
"""
PIPELINE = """
[api]
name = "flower"
[[exports]]
name = "rows"
kind = "k"
[[exports.schema.columns]]
name = "a"
[exports.output]
path = "out.jsonl"
"""
BAD = """
from bide import Client

with Client("http://127.0.0.1:8642") as client:
    job = client.submit(7)
    print(job.id + 1)
"""


def check(python: Path, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """mypy on a user's file, in a folder without this repository's settings."""
    (folder / "user.py").write_text(text)
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")}
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "user.py"]
    return subprocess.run(
        [*command, "--python-executable", str(python), "--cache-dir", str(folder / "cache")],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_only_declared_packages_are_there(installed: Installed, tmp_path: Path) -> None:
    """So that an import that no extra declares fails in the first hours."""
    undeclared = ("celery", "packaging", "psycopg", "pyarrow", "pytest")
    look = f"import importlib.util as u; print(*(n for n in {undeclared} if u.find_spec(n)))"
    done = subprocess.run(
        [installed.python, "-c", look], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == "\n"
    (tmp_path / "p.toml").write_text(PIPELINE)
    done = subprocess.run(
        [installed.python, "-m", "bide", "sync", "p.toml"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=installed.environment,
    )
    said = "bide: Pipelines need pyarrow. Run in the checkout of bide: pip install '.[pipeline]'\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.soak
def test_a_users_file_is_checked_against_the_installed_wheel(
    installed: Installed, tmp_path: Path
) -> None:
    found = check(installed.python, tmp_path, GOOD)
    assert found.returncode == 0, found.stdout + found.stderr
    found = check(installed.python, tmp_path, BAD)
    assert found.returncode == 1
    assert (
        'Argument 1 to "submit" of "Client" has incompatible type "int"; expected "str"' in found.stdout
    )
    assert 'Unsupported operand types for + ("str" and "int")' in found.stdout


def test_type_hints_are_there(installed: Installed, tmp_path: Path) -> None:
    look = "import bide, pathlib; print(pathlib.Path(bide.__file__).with_name('py.typed').exists())"
    done = subprocess.run(
        [installed.python, "-c", look], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == "True\n"


def test_the_module_for_javascript_is_there(installed: Installed, tmp_path: Path) -> None:
    look = "from bide.server.http.ui import static_files; print(*sorted(static_files()))"
    done = subprocess.run(
        [installed.python, "-c", look], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert {"bide.js", "bide.d.ts", "app.js", "dashboard.css"} <= set(done.stdout.split())
