"""The wheel as a user installs it: its type hints are there for the user's own type checker."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
BAD = """
from bide import Client

with Client("http://127.0.0.1:8642") as client:
    job = client.submit(7)
    print(job.id + 1)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel; it finds other packages where this one does."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("bide-*.whl")
    venv.create(folder / "venv", with_pip=False)
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        assert "bide/py.typed" in archive.namelist()
        archive.extractall(packages)
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"])
    return folder / "venv/bin/python"


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


def test_a_users_file_is_checked_against_the_installed_wheel(python: Path, tmp_path: Path) -> None:
    found = check(python, tmp_path, GOOD)
    assert found.returncode == 0, found.stdout + found.stderr
    found = check(python, tmp_path, BAD)
    assert found.returncode == 1
    assert (
        'Argument 1 to "submit" of "Client" has incompatible type "int"; expected "str"' in found.stdout
    )
    assert 'Unsupported operand types for + ("str" and "int")' in found.stdout
