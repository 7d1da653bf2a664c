"""Shared budgets: the suite, and what only processes can do to each other."""

from __future__ import annotations

import bisect
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.client.budgets import Budgets, fingerprint
from bide.client.budgets.file import HEAD, SLOT, FileBudgets
from bide.client.budgets.memory import MemoryBudgets
from bide.core.budget import Limit
from bide.core.errors import SetupError
from bide.testing.budgets import WALL, BudgetsSuite


class TestFileBudgets(BudgetsSuite):
    def budgets(self, place: Path) -> Budgets:
        return FileBudgets(place / "budgets", random.Random(1))


class TestMemoryBudgets(BudgetsSuite):
    """In one process those who share have one and the same."""

    @pytest.fixture(autouse=True)
    def shared(self) -> None:
        self.one = MemoryBudgets(random.Random(1))

    def budgets(self, place: Path) -> Budgets:
        return self.one


SPENDER = """
import random, sys, time
from pathlib import Path
from bide.client.budgets.file import FileBudgets
from bide.core.budget import Limit
purse = FileBudgets(Path(sys.argv[1])).open("one", Limit(400, 1.0, 40))
end = time.monotonic() + float(sys.argv[2])
sent = []
out = open(sys.argv[3], "w", buffering=1)
out.write("started\\n")
while (now := time.monotonic()) < end:
    at = purse.take(now)
    if at <= now:
        out.write(f"{time.monotonic()!r}\\n")
        purse.heard(now, 200, {}, 1.9e9)
    else:
        time.sleep(min(at - now, 0.01))
"""


def spender(folder: Path, seconds: float, out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SPENDER, str(folder), str(seconds), str(out)])


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not (path.exists() and path.read_text().count("\n") > 20):
        assert time.monotonic() < deadline, "the process did not start"
        time.sleep(0.01)


def sent_in(*files: Path) -> list[float]:
    """What was sent; a line that a killed process left unfinished was not."""
    lines = [line for file in files for line in file.read_text().split("\n")[1:-1]]
    return sorted(float(line) for line in lines)


def assert_within(sent: list[float], burst: float, rate: float) -> None:
    for span in (0.05, 0.25, 1.0):
        for i, start in enumerate(sent):
            inside = bisect.bisect_left(sent, start + span) - i
            assert inside <= burst + rate * span + 1


def test_processes_share_one_budget_and_survive_the_kill_of_one(tmp_path: Path) -> None:
    outs = [tmp_path / f"sent{i}" for i in range(3)]
    running = [spender(tmp_path / "b", 2.0, out) for out in outs]
    try:
        wait_for(outs[0])
        running[0].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        for process in running[1:]:
            assert process.wait(30) == 0
    finally:
        for process in running:
            process.kill()
            process.wait()
    sent = sent_in(*outs)
    assert_within(sent, 40, 400)
    assert len([at for at in sent if at > killed]) > 100, "the others went on"


def test_a_holder_of_the_lock_that_stands_still_blocks_nobody(tmp_path: Path) -> None:
    import fcntl

    purse = FileBudgets(tmp_path).open("one", Limit(1000, 1.0, 100))
    other = os.open(tmp_path / "one.budget", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    began = time.monotonic()
    assert purse.take(100.0) > 100.0
    purse.heard(100.0, 429, {"Retry-After": "30"}, WALL)
    assert time.monotonic() - began < 1.0
    os.close(other)
    assert purse.take(100.1) >= 130.0, "what was heard meanwhile is not lost"


@settings(max_examples=50, deadline=None)
@given(st.integers(0, HEAD.size + 100), st.integers(0, 255))
def test_a_half_written_state_leaves_the_one_before(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int
) -> None:
    folder = tmp_path_factory.mktemp("b")
    first = FileBudgets(folder)
    purse = first.open("one", Limit(60, 60.0))
    assert purse.take(100.0) <= 100.0
    purse.heard(100.0, 429, {"Retry-After": "50"}, WALL)
    paused = purse.take(100.0)
    # The slot that the next write goes to, as a writer that was killed in the middle of it leaves it.
    data = bytearray((folder / "one.budget").read_bytes())
    numbers = [HEAD.unpack_from(data, at)[0] for at in (0, SLOT)]
    start = SLOT * numbers.index(min(numbers))
    struck = max(numbers) + 1
    HEAD.pack_into(data, start, struck, 0.0, 200, 12345)
    data[start + HEAD.size + place] = value
    (folder / "one.budget").write_bytes(data)
    again = FileBudgets(folder).open("one", Limit(60, 60.0))
    assert again.take(100.0) == paused
    assert again.take(paused) <= paused
    assert FileBudgets(folder).open("one", Limit(60, 60.0)).take(paused) > paused
    first.close()


def test_a_state_of_an_earlier_start_of_the_machine_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = FileBudgets(tmp_path)
    before.open("one", Limit(1, 60.0)).take(1_000_000.0)
    before.close()
    monkeypatch.setattr("bide.client.budgets.file.boot_number", lambda: 7 << 32)
    assert FileBudgets(tmp_path).open("one", Limit(1, 60.0)).take(5.0) <= 5.0


def test_a_caller_in_a_hurry_takes_the_lock_for_few_of_its_requests(tmp_path: Path) -> None:
    purse = FileBudgets(tmp_path).open("one", Limit(float("inf")))
    draws, draw = 0, purse._draw

    def counted(now: float, cost: float) -> float:
        nonlocal draws
        draws += 1
        return draw(now, cost)

    purse._draw = counted  # type: ignore[method-assign]
    for i in range(15_000):
        now = 100 + i / 15_000
        assert purse.take(now) <= now
        purse.heard(now, 200, {}, WALL)
    assert draws < 1500


def test_what_was_granted_and_not_sent_is_given_back(tmp_path: Path) -> None:
    limit = Limit(1000, 1.0, 200)
    hasty, other = (FileBudgets(tmp_path).open("one", limit) for _ in range(2))
    now, taken = 100.0, 0
    for _ in range(40):
        now += 0.0005
        taken += hasty.take(now) <= now
    now += 1.0
    assert hasty.take(now) <= now
    got = 0
    while other.take(now) <= now:
        got += 1
    assert got > 150


def test_the_folder_and_the_files_belong_to_this_user_alone(tmp_path: Path) -> None:
    FileBudgets(tmp_path / "b").open("one")
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "b" / "one.budget").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot be made"):
        FileBudgets(tmp_path / "file" / "b")


def test_a_name_must_be_a_plain_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot name a budget"):
        FileBudgets(tmp_path).open("../etc")


def test_a_fingerprint_tells_nothing_of_the_credential() -> None:
    name = fingerprint("sk-secret", b"salt")
    assert name.isalnum()
    assert "secret" not in name
    assert name == fingerprint("sk-secret", b"salt")
    assert name != fingerprint("sk-secret", b"other") != fingerprint("sk-secret2", b"other")
