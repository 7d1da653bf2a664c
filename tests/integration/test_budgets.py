"""Shared budgets: the suite, and what only processes can do to each other."""

from __future__ import annotations

import bisect
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bide.client.budgets import fingerprint
from bide.client.budgets.file import BudgetFolder
from bide.client.budgets.shared_counters import LOCK_TIMEOUT, SharedCounters
from bide.core.errors import SetupError
from bide.core.pacing.budget import Budget, Limit
from bide.testing.budgets import WALL, BudgetOpener, BudgetsSuite


class TestFileBudgets(BudgetsSuite):
    def budgets(self, place: Path) -> BudgetOpener:
        return BudgetFolder(place / "budgets", random.Random(1))


class OneProcess:
    def __init__(self) -> None:
        self._budgets: dict[str, Budget] = {}

    def open(self, name: str, limit: Limit | None = None) -> Budget:
        if name not in self._budgets:
            self._budgets[name] = Budget(limit, rng=random.Random(1))
        return self._budgets[name]

    def close(self) -> None:
        self._budgets.clear()


class TestBudgetsOfOneProcess(BudgetsSuite):
    """Without a backend, all that share a budget use one `Budget`."""

    @pytest.fixture(autouse=True)
    def shared(self) -> None:
        self.one = OneProcess()

    def budgets(self, place: Path) -> BudgetOpener:
        return self.one


class Spender:
    """A process that spends, and the moments of its grants as they come."""

    def __init__(self, place: Path | str, *more: str, module: str = "tests.apps.spender") -> None:
        command = [sys.executable, "-m", module, str(place), *more]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.granted: list[float] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                self.granted.append(float(line))

    def has(self, more: int, since: float = 0.0) -> float:
        """Waits until it was granted so many after a moment; when it had them."""
        deadline = time.monotonic() + 60
        while len(found := [at for at in self.granted if at > since]) < more:
            assert time.monotonic() < deadline, "it was granted nothing"
            time.sleep(0.005)
        return found[more - 1]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stopped(self) -> None:
        """Waits until it has stopped itself."""
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def end(self, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        self.process.communicate()
        self._reader.join()


@pytest.fixture
def spenders(tmp_path: Path) -> Iterator[Callable[..., Spender]]:
    made: list[Spender] = []

    def make(*blow: str) -> Spender:
        made.append(Spender(tmp_path / "b", *blow))
        return made[-1]

    yield make
    for one in made:
        one.end(kill=True)


def assert_shared(*all: Spender) -> None:
    """In no stretch of time were they granted more than the limit."""
    granted = sorted(at for one in all for at in one.granted)
    for span in (0.05, 0.25, 1.0):
        for i, start in enumerate(granted):
            inside = bisect.bisect_left(granted, start + span) - i
            assert inside <= 40 + 400 * span


A_MOMENT = 10.0  # on a machine that does much else: who is held up waits until the end of the test


def test_processes_share_one_budget_exactly_however_they_are_struck(
    spenders: Callable[..., Spender],
) -> None:
    steady, *others = (spenders() for _ in range(3))
    for one in (steady, *others):
        one.has(5)
    rng = random.Random(1)
    for _ in range(12):
        struck = rng.choice(others)
        struck.signal(signal.SIGSTOP)
        now = time.monotonic()
        assert steady.has(5, since=now) < now + A_MOMENT
        struck.signal(signal.SIGCONT)
        time.sleep(rng.uniform(0, 0.02))
    others[0].signal(signal.SIGKILL)
    now = time.monotonic()
    for one in (steady, others[1]):
        assert one.has(20, since=now) < now + A_MOMENT
    assert_shared(steady, *others)


@pytest.mark.parametrize("when", ["before", "within", "after"])
@pytest.mark.parametrize("blow", ["SIGKILL", "SIGSTOP"])
def test_who_dies_or_stops_with_the_lock_in_grants_holds_nobody_up(
    spenders: Callable[..., Spender], blow: str, when: str
) -> None:
    steady, struck = spenders(), spenders(blow, when)
    steady.has(1)
    if blow == "SIGKILL":
        assert struck.process.wait(60) == -signal.SIGKILL
    else:
        struck.stopped()
    now = time.monotonic()
    assert steady.has(20, since=now) < now + A_MOMENT
    if blow == "SIGSTOP":
        struck.signal(signal.SIGCONT)
        struck.has(20, since=time.monotonic())
        steady.has(20, since=time.monotonic())
    struck.end(kill=True)
    assert_shared(steady, struck)


def test_a_change_that_comes_too_late_is_not_true(tmp_path: Path) -> None:
    slow, other = (SharedCounters(tmp_path / "b", b"first", 1.0) for _ in range(2))
    assert slow.lock()
    slow.write(b"slow", 2.0)
    gone_on = time.monotonic() + 10 * LOCK_TIMEOUT
    while not other.lock():
        assert time.monotonic() < gone_on
        time.sleep(0.01)
    other.write(b"other", 3.0)
    assert other.unlock()
    assert not slow.unlock()
    assert slow.lock()
    assert (slow.read(), slow.timestamp) == (b"other", 3.0)
    slow.write(b"again", 4.0)
    assert slow.unlock()
    late = SharedCounters(tmp_path / "b", b"first", 1.0)
    assert other.read() == late.read() == b"again"
    for counters in (slow, other, late):
        counters.close()


def test_what_is_heard_while_another_has_the_lock_is_not_lost(tmp_path: Path) -> None:
    first, second = (BudgetFolder(tmp_path) for _ in range(2))
    budget, holder = (one.open("one", Limit(1000, 1.0, 100)) for one in (first, second))
    assert holder._counters.lock()
    began = time.monotonic()
    assert budget.take(100.0) > 100.0
    budget.record_response(100.0, 429, {"Retry-After": "30"}, WALL)
    assert time.monotonic() - began < 1.0
    holder._counters.unlock()
    assert budget.take(100.1) >= 130.0
    assert holder.take(100.1) >= 130.0


def test_a_state_of_an_earlier_start_of_the_machine_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = BudgetFolder(tmp_path)
    before.open("one", Limit(1, 60.0)).take(1_000_000.0)
    before.close()
    monkeypatch.setattr("bide.client.budgets.file.boot_id", lambda: "another")
    assert BudgetFolder(tmp_path).open("one", Limit(1, 60.0)).take(5.0) <= 5.0
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_dead_process_had_under_way_is_forgotten_in_a_while(tmp_path: Path) -> None:
    dead, other = (BudgetFolder(tmp_path).open("one", Limit(1000, 1.0, 100)) for _ in range(2))
    headers = {"RateLimit": '"a";r=50;t=60', "RateLimit-Policy": '"a";q=60;w=60'}
    now = 100.0
    for _ in range(5):
        assert dead.take(now) <= now
    for _ in range(40):
        now += 0.5
        if other.take(now) <= now:
            other.record_response(now + 0.1, 200, headers, WALL)
    assert other.dump(now)["state"][2] == []


def test_an_answer_that_other_processes_wait_for_is_shared_at_once(tmp_path: Path) -> None:
    one, other = (BudgetFolder(tmp_path).open("one") for _ in range(2))
    assert one.take(100.0) <= 100.0
    assert other.take(100.0) > 101.0, "the first goes alone"
    one.record_response(100.1, 200, {}, WALL)
    assert other.take(100.2) <= 100.2


def test_settle_shares_what_a_process_has_not_shared_yet(tmp_path: Path) -> None:
    one, other = (BudgetFolder(tmp_path).open("one", Limit(float("inf"))) for _ in range(2))
    for i in range(5):
        assert one.take(100.0 + i / 1000) <= 100.0 + i / 1000
        one.record_response(100.0 + i / 1000, 200, {}, WALL)
    one.settle()
    assert other.dump(100.1)["state"][2] == []


def test_a_new_budget_begins_with_what_is_known(tmp_path: Path) -> None:
    known = Budget(Limit(60, 60.0), rng=random.Random(1))
    known.record_response(100.0, 429, {"Retry-After": "30"}, WALL)
    first = BudgetFolder(tmp_path).open("one", Limit(60, 60.0), known)
    second = BudgetFolder(tmp_path).open("one", Limit(60, 60.0))
    assert first.take(101.0) == second.take(101.0) >= 130.0
    assert second.dump(101.0)["state"] == known.dump(101.0)["state"]


def test_a_caller_in_a_hurry_takes_the_lock_for_few_of_its_requests(tmp_path: Path) -> None:
    budget = BudgetFolder(tmp_path).open("one", Limit(float("inf")))
    before = budget._counters.version[1]
    for i in range(15_000):
        now = 100 + i / 15_000
        assert budget.take(now) <= now
        budget.record_response(now, 200, {}, WALL)
    assert budget._counters.version[1] - before < 1500


def test_what_was_granted_and_not_sent_is_given_back(tmp_path: Path) -> None:
    limit = Limit(1000, 1.0, 200)
    hasty, other = (BudgetFolder(tmp_path).open("one", limit) for _ in range(2))
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
    BudgetFolder(tmp_path / "b").open("one")
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "b").iterdir()} == {0o600}


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot be created"):
        BudgetFolder(tmp_path / "file" / "b")


def test_a_name_must_be_a_plain_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a budget name"):
        BudgetFolder(tmp_path).open("../etc")


def test_a_fingerprint_tells_nothing_of_the_credential() -> None:
    name = fingerprint("sk-secret", b"salt")
    assert name.isalnum()
    assert "secret" not in name
    assert name == fingerprint("sk-secret", b"salt")
    assert name != fingerprint("sk-secret", b"other") != fingerprint("sk-secret2", b"other")
