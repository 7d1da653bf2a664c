"""Publishing is all or nothing: killed at any moment, on a full disk, beside another run, without pyarrow."""

from __future__ import annotations

import fcntl
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bide.pipeline.rows import UnwritableTarget
from tests.apps import normalizer

ROWS = 150_000
OLD = b"id,v,score\n1,old,1.5\nx,bad,2\n"
FORMATS = ["parquet", "csv", "jsonl", "sqlite"]


def write_new(folder: Path) -> None:
    lines = (f"{n},value {n * 7919 % 100_003},{n / 8}" for n in range(ROWS))
    (folder / "in.csv").write_text("id,v,score\n" + "\n".join(lines) + "\ny,bad,3\n")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], list[bytes]]:
    """What an undisturbed run publishes over an old file."""
    found: dict[tuple[str, bool], list[bytes]] = {}

    def give(format: str, key: bool) -> list[bytes]:
        if (format, key) not in found:
            folder = tmp_path_factory.mktemp("expected")
            publish_old(folder, format, key)
            write_new(folder)
            normalizer.run(folder, format, key=key)
            found[format, key] = published(folder, format)
        return found[format, key]

    return give


def publish_old(folder: Path, format: str, key: bool) -> list[bytes]:
    (folder / "in.csv").write_bytes(OLD)
    normalizer.run(folder, format, key=key)
    return published(folder, format)


def published(folder: Path, format: str) -> list[bytes]:
    """What a reader sees: of SQLite the rows, of files the bytes."""
    target = normalizer.target(folder, format)
    letters = target.dead_letters.read_bytes()
    if format != "sqlite":
        return [target.path.read_bytes(), letters]
    connection = sqlite3.connect(target.path)
    rows = connection.execute("SELECT * FROM rows").fetchall()
    connection.close()
    return [repr(rows).encode(), letters]


def start(folder: Path, format: str, key: bool, how: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.apps.normalizer", str(folder), format, "key" if key else "-"]
    return subprocess.Popen([*command, *([how] if how else [])], stdout=subprocess.PIPE, text=True)


def run_again(folder: Path, format: str, key: bool) -> list[str]:
    """Runs to the end; what is in the folder then."""
    normalizer.run(folder, format, key=key)
    return sorted(path.name for path in folder.iterdir())


def only_results(format: str) -> list[str]:
    table = ".rows" if format == "sqlite" else ""
    return sorted(["in.csv", f"out.{format}", f"out.{format}{table}.bad.jsonl"])


def grown(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size > size
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("format", "key", "file"),
    [
        ("parquet", False, ".out.parquet.partial"),
        ("parquet", True, ".out.parquet.spill/rows"),
        pytest.param("parquet", True, ".out.parquet.partial", marks=pytest.mark.soak),
        pytest.param("jsonl", False, ".out.jsonl.partial", marks=pytest.mark.soak),
        ("sqlite", False, "out.sqlite-journal"),
    ],
)
def test_killed_in_the_middle_the_old_file_stays_and_the_next_run_is_as_ever(
    tmp_path: Path, format: str, key: bool, file: str, expected: Callable[[str, bool], list[bytes]]
) -> None:
    old = publish_old(tmp_path, format, key)
    write_new(tmp_path)
    until = time.monotonic() + 60
    with start(tmp_path, format, key) as process:
        while not grown(tmp_path / file, 100) and process.poll() is None and time.monotonic() < until:
            pass  # a busy wait, for the moment is short
        process.send_signal(signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
    assert published(tmp_path, format) == (old if killed else expected(format, key))
    assert run_again(tmp_path, format, key) == only_results(format)
    assert published(tmp_path, format) == expected(format, key)


@pytest.mark.parametrize("number", [1, 2])
def test_killed_between_its_renames(
    tmp_path: Path, number: int, expected: Callable[[str, bool], list[bytes]]
) -> None:
    old = publish_old(tmp_path, "parquet", True)
    write_new(tmp_path)
    with start(tmp_path, "parquet", True, f"replace={number}") as process:
        assert process.wait(60) == -signal.SIGKILL
    rows, letters = published(tmp_path, "parquet")
    assert rows == old[0]
    assert letters == (old[1] if number == 1 else expected("parquet", True)[1])
    assert run_again(tmp_path, "parquet", True) == only_results("parquet")
    assert published(tmp_path, "parquet") == expected("parquet", True)


@pytest.mark.parametrize("key", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk_is_reported_and_nothing_is_lost(tmp_path: Path, format: str, key: bool) -> None:
    old = publish_old(tmp_path, format, key)
    write_new(tmp_path)
    with start(tmp_path, format, key, "limit=300000") as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 3, said
    assert f"out.{format} cannot be written: " in said
    assert "The published output is unchanged" in said
    assert published(tmp_path, format) == old
    left = [path.name for path in tmp_path.iterdir()]
    assert sorted(name for name in left if not name.endswith("-journal")) == only_results(format)


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(OLD)
    with (tmp_path / ".out.parquet.partial").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UnwritableTarget, match="another run is writing"):
            normalizer.run(tmp_path, "parquet", key=False)
        assert (tmp_path / ".out.parquet.partial").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(OLD)
    (tmp_path / "file").write_text("")
    target = normalizer.target(tmp_path / "file", "csv")
    with pytest.raises(UnwritableTarget, match=r"out\.csv cannot be written: "):
        from bide.pipeline.rows import SourceFile, normalize

        normalize([SourceFile(tmp_path / "in.csv", "export")], normalizer.schema(False), target)


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(OLD)
    (tmp_path / "out.sqlite").write_text("my notes" * 1000)
    with pytest.raises(UnwritableTarget, match="file is not a database"):
        normalizer.run(tmp_path, "sqlite", key=False)
    assert (tmp_path / "out.sqlite").read_text() == "my notes" * 1000


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(OLD)
    blocked = "import sys; sys.modules['pyarrow'] = None\n"
    program = f"{blocked}from tests.apps import normalizer; from pathlib import Path\n" + (
        f"normalizer.run(Path({str(tmp_path)!r}), 'parquet', key=False)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (
        "SetupError: Normalizing needs pyarrow. Run in the checkout of bide: pip install '.[pipeline]'"
        in done.stderr
    )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux reports it this way")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """The benchmark measures large files; this test detects that all rows are kept in memory."""
    measured = []
    for rows in (100_000, 1_000_000):
        (tmp_path / "in.csv").write_text(
            "id,v,score\n" + "\n".join(f"{n},value number {n},{n / 8}" for n in range(rows)) + "\n"
        )
        program = (
            "import re; from pathlib import Path; from tests.apps import normalizer\n"
            f"normalizer.run(Path({str(tmp_path)!r}), 'parquet', key=True)\n"
            # Not by getrusage: that remembers the process that this one was forked from.
            "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
        )
        measured.append(int(subprocess.check_output([sys.executable, "-c", program])) // 1024)
    assert measured[1] < 300
    assert measured[1] - measured[0] < 100
