"""Shared budgets in made-up time: places that are away, that forget, whose clock is set; and any history of all that."""

from __future__ import annotations

import logging
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.client.budgets.backend import NO_RECORD, BackendReply, BackendUnavailable
from bide.client.budgets.record import BudgetRecord
from bide.client.budgets.remote_clock import RemoteClock
from bide.client.budgets.shared import BudgetConnection, SharedBudget
from bide.core.pacing.budget import Limit
from bide.testing.budgets import WALL, BudgetsSuite
from tests.examples import examples
from tests.windows import assert_within


class FakeBackend:
    """In memory; away, or without a memory, as one likes."""

    shown = "fake://place"

    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, bytes]] = {}
        self.salted = b""
        self.away = False

    def swap(self, name: str, known: str, version: str, data: bytes) -> BackendReply:
        found = self._found(name)
        if found[0] != known:
            return BackendReply(False, 0.0, *found)
        self.kept[name] = (version, data)
        return BackendReply(True, 0.0)

    def read(self, name: str) -> BackendReply:
        return BackendReply(False, 0.0, *self._found(name))

    def salt(self, first: bytes) -> bytes:
        self.salted = self.salted or first
        return self.salted

    def close(self) -> None: ...

    def _found(self, name: str) -> tuple[str, bytes]:
        if self.away:
            raise BackendUnavailable("connection refused")
        return self.kept.get(name, (NO_RECORD, b""))


class Line:
    """One machine's way to the place."""

    shown = FakeBackend.shown

    def __init__(self, place: FakeBackend, time: list[float]) -> None:
        self._place = place
        self._time = time
        self.cut = False
        self.salt, self.close = place.salt, place.close

    def swap(self, name: str, known: str, version: str, data: bytes) -> BackendReply:
        return self._dated(self._reached().swap(name, known, version, data))

    def read(self, name: str) -> BackendReply:
        return self._dated(self._reached().read(name))

    def _reached(self) -> FakeBackend:
        if self.cut:
            raise BackendUnavailable("the network is cut")
        return self._place

    def _dated(self, reply: BackendReply) -> BackendReply:
        return BackendReply(reply.swapped, self._time[0], reply.version, reply.data)


class SameClock(RemoteClock):
    def measured(self, sent: float, server: float, received: float) -> None: ...


class Machine:
    def __init__(self, place: FakeBackend, time: list[float], limit: Limit | None) -> None:
        self.line = Line(place, time)
        self.budgets = BudgetConnection(
            self.line, random.Random(1), now=lambda: time[0], clock=SameClock(), wait=20.0
        )
        self.budget: SharedBudget = self.budgets.open("one", limit)
        self.time = time

    def take(self) -> bool:
        granted = self.budget.take(self.time[0]) <= self.time[0]
        if granted:
            self.budget.record_response(self.time[0], 200, {}, WALL)
        return granted

    def close(self) -> None:
        self.budgets.close()


class TestSharedBudgets(BudgetsSuite):
    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.one = FakeBackend()

    def budgets(self, place: Path) -> BudgetConnection:
        return BudgetConnection(self.one, random.Random(1), clock=SameClock(), wait=20.0)


LIMITS = [Limit(20, 1.0), Limit(20, 1.0, 5), Limit(100, 2.0, 8), Limit(100, 2.0), Limit(3, 1.0)]


@examples(30)
@given(st.sampled_from(LIMITS), st.integers(2, 4), st.integers(0, 1 << 32))
def test_whatever_happens_no_more_is_granted_than_the_limit(limit: Limit, count: int, seed: int) -> None:
    time, place, granted, rng = [1000.0], FakeBackend(), list[float](), random.Random(seed)
    machines = [Machine(place, time, limit) for _ in range(count)]
    gap = limit.per / limit.requests
    for machine in machines:  # so that each knows the record
        time[0] += 4 * limit.per
        machine.take()
    time[0] += 4 * limit.per  # what was granted so far is over
    for _ in range(int(4 * limit.requests)):
        event = rng.random() * limit.requests
        if event < 0.3:
            place.away = not place.away
        elif event < 0.6:
            machine = rng.choice(machines)
            machine.line.cut = not machine.line.cut
        elif event < 0.9:
            place.kept.clear()
        elif event < 1.0 and len(machines) > 1:
            gone = machines.pop(rng.randrange(len(machines)))  # without a word
            gone.budgets._calls.put(None)
        time[0] += rng.choice([0.0, gap / 20, gap / 5, gap / 2, gap, rng.choice([gap, 10 * gap])])
        for machine in rng.sample(machines, len(machines)):
            for _ in range(rng.choice([1, 1, 50])):
                if not machine.take():
                    break
                granted.append(time[0])
    assert_within(granted, limit)
    for machine in machines:
        machine.close()


def test_who_is_cut_off_sends_only_what_was_kept_apart_for_it() -> None:
    limit = Limit(25, 1.0)
    time, place = [1000.0], FakeBackend()
    cut, *_ = machines = [Machine(place, time, limit) for _ in range(3)]
    for machine in machines:
        time[0] += 2.0
        machine.take()
    cut.line.cut = True
    granted, alone = [], 0
    for _ in range(6000):
        time[0] += 0.001
        for machine in machines:
            if machine.take():
                granted.append(time[0])
                alone += machine is cut
    assert_within(granted, limit)
    assert 5 <= alone <= 6
    assert len(granted) > 0.95 * 25 * 6
    for machine in machines:
        machine.close()


def test_a_grant_that_was_not_used_is_void_a_moment_later() -> None:
    time, place = [1000.0], FakeBackend()
    slow, quick = (Machine(place, time, Limit(1000, 1.0, 50)) for _ in range(2))
    for _ in range(4):  # a frequent client gets several at once
        slow.take()
    assert slow.budget._grants
    time[0] += 1.0
    while quick.take():
        pass
    assert not slow.take()
    for machine in (slow, quick):
        machine.close()


def test_a_place_that_has_forgotten_a_burst_grants_it_to_nobody_again() -> None:
    time, place = [1000.0], FakeBackend()
    limit = Limit(100, 10.0, 20)
    spent, stale = (Machine(place, time, limit) for _ in range(2))
    for machine in (stale, spent):
        machine.take()
        time[0] += 10.0
    while spent.take():
        pass
    place.kept.clear()
    time[0] += 0.09
    assert not stale.take()  # though it knows of no request of the last seconds
    time[0] += 0.11
    assert stale.take()
    assert not stale.take()
    for machine in (spent, stale):
        machine.close()


def test_while_the_place_is_away_reservations_send_one_per_window(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limit = Limit(100, 10.0)  # has two reservations
    time, place = [1000.0], FakeBackend()
    machines = [Machine(place, time, limit) for _ in range(4)]
    for _ in range(20):
        time[0] += 0.2
        for machine in machines:
            machine.take()
    place.away = True
    sent = dict.fromkeys(range(4), 0)
    for _ in range(1000):
        time[0] += 0.1
        for number, machine in enumerate(machines):
            sent[number] += machine.take()
    assert sorted(sent.values())[:2] == [0, 0]
    assert all(9 <= count <= 11 for count in sorted(sent.values())[2:])
    said = [record.message for record in caplog.records if "until it is back" in record.message]
    assert len(said) == 4
    assert sum("one request per window" in text for text in said) == 2
    caplog.clear()
    caplog.set_level(logging.INFO)
    place.away = False
    time[0] += 1.0
    taken = 0
    for _ in range(250):
        time[0] += 0.02
        taken += sum(machine.take() for machine in machines)
    assert taken > 40
    assert sum("available again" in record.message for record in caplog.records) == 4
    for machine in machines:
        machine.close()


def test_a_released_reservation_is_free_after_its_window() -> None:
    limit = Limit(20, 10.0)  # has one
    time, place = [1000.0], FakeBackend()
    first, second = (Machine(place, time, limit) for _ in range(2))
    for machine in (first, second):
        machine.take()
        time[0] += 1.0
    held = BudgetRecord.decode(place.kept["one"][1]).reservations
    assert [each.holder != "" for each in held] == [True]
    first.close()
    time[0] += 1.0
    second.take()
    assert BudgetRecord.decode(place.kept["one"][1]).reservations[0].holder == ""
    time[0] += 30.0
    second.take()
    assert BudgetRecord.decode(place.kept["one"][1]).reservations[0].holder != ""
    second.close()


def test_without_a_documented_limit_nothing_is_sent_while_the_place_is_away() -> None:
    time, place = [1000.0], FakeBackend()
    machine = Machine(place, time, None)
    assert machine.take()
    place.away = True
    sent = 0
    for _ in range(100):
        time[0] += 1.0
        sent += machine.take()
    assert sent == 0
    place.away = False
    time[0] += 1.0
    assert any(machine.take() for _ in range(3))
    machine.close()


def test_what_has_no_limit_goes_on_and_obeys_refusals() -> None:
    time, place = [1000.0], FakeBackend()
    machine = Machine(place, time, Limit(float("inf")))
    assert machine.take()
    place.away = True
    time[0] += 1.0
    machine.take()
    assert all(machine.take() for _ in range(100))
    machine.budget.record_response(time[0], 429, {"Retry-After": "30"}, WALL)
    assert not machine.take()
    time[0] += 29.0
    assert not machine.take()
    time[0] += 2.0
    assert machine.take()
    place.away = False
    machine.close()


def test_a_refusal_is_shared_when_the_backend_is_back() -> None:
    limit = Limit(100, 10.0)
    time, place = [1000.0], FakeBackend()
    first, second = (Machine(place, time, limit) for _ in range(2))
    for machine in (first, second):
        machine.take()
        time[0] += 1.0
    place.away = True
    first.take()
    time[0] += 1.0
    first.budget.record_response(time[0], 429, {"Retry-After": "60"}, WALL)
    place.away = False
    time[0] += 1.0
    first.budget.ready(time[0])
    time[0] += 1.0
    assert second.budget.take(time[0]) > time[0] + 50
    for machine in (first, second):
        machine.close()


def test_a_server_whose_clock_is_set_back_grants_on_and_nothing_twice() -> None:
    limit = Limit(60, 60.0)
    time, place = [100_000.0], FakeBackend()
    machine = Machine(place, time, limit)
    assert machine.take()
    time[0] += 0.1
    assert not machine.take()
    time[0] -= 3600.0
    other = Machine(place, time, limit)  # which knows of no other time
    assert not other.take()
    time[0] += 1.1
    assert other.take()
    for one in (machine, other):
        one.close()


def test_what_others_have_begun_anew_is_not_spent_twice() -> None:
    limit = Limit(100, 10.0, 20)
    time, place = [1000.0], FakeBackend()
    old = Machine(place, time, limit)
    while old.take():
        pass
    place.kept.clear()
    new = Machine(place, time, limit)  # the one case in which a burst is granted again
    time[0] += 0.1
    assert new.take()
    time[0] += 0.05
    assert not old.take()
    assert not new.take()
    for machine in (old, new):
        machine.close()


def test_a_salt_that_was_lost_is_kept_by_who_knows_it(caplog: pytest.LogCaptureFixture) -> None:
    time, place = [1000.0], FakeBackend()
    machine = Machine(place, time, Limit(60, 60.0))
    salt = machine.budgets.salt
    machine.take()
    place.kept.clear()
    place.salted = b""
    time[0] += 5.0
    machine.take()
    assert place.salted == salt
    place.kept.clear()
    place.salted = b"another"
    time[0] += 5.0
    machine.take()
    assert "Restart this process" in caplog.text
    machine.close()


def test_nobody_waits_for_the_place() -> None:
    """Without a wait, the budget is asked to try again, and finds its grants then."""
    time, place = [1000.0], FakeBackend()
    budgets = BudgetConnection(
        Line(place, time), random.Random(1), now=lambda: time[0], clock=SameClock()
    )
    budget = budgets.open("one", Limit(60, 60.0))
    at = budget.take(time[0])
    assert time[0] < at < time[0] + 0.1
    assert budget._call is not None
    assert budget._call[0].done.wait(20)
    time[0] = at
    assert budget.ready(at) <= at
    assert budget.take(at) <= at
    assert budget.take(at) > at
    budgets.close()


@given(st.floats(-1e9, 1e9), st.lists(st.tuples(st.floats(0, 5), st.floats(0, 0.2), st.floats(0, 1))))
def test_a_remote_clock_is_wrong_by_no_more_than_the_quickest_exchange(
    ahead: float, exchanges: list[tuple[float, float, float]]
) -> None:
    clock, now, quickest = RemoteClock(), 5000.0, float("inf")
    for pause, trip, part in exchanges:
        now += pause
        clock.measured(now, now + part * trip + ahead, now + trip)
        now += trip
        quickest = min(quickest, trip)
        assert abs(clock.to_server(now) - (now + ahead)) <= quickest + 0.01 + 1e-6
        assert clock.to_local(clock.to_server(now)) == pytest.approx(now)
    clock.measured(now, now + ahead + 3600.0, now)
    assert clock.to_server(now) == pytest.approx(now + ahead + 3600.0, abs=1e-5)


class FrozenBackend(FakeBackend):
    """Connected, and silent as long as it is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.thawed = threading.Event()
        self.thawed.set()

    def swap(self, name: str, known: str, version: str, data: bytes) -> BackendReply:
        assert self.thawed.wait(20)
        return super().swap(name, known, version, data)


def test_a_place_that_is_silent_is_away_until_it_speaks(caplog: pytest.LogCaptureFixture) -> None:
    time, place = [1000.0], FrozenBackend()
    budgets = BudgetConnection(
        Line(place, time), random.Random(1), now=lambda: time[0], clock=SameClock()
    )
    budget = budgets.open("one", Limit(60, 60.0))
    place.thawed.clear()
    sent = 0
    for _ in range(100):
        time[0] += 0.1
        sent += budget.take(time[0]) <= time[0]
        assert budget.ready(time[0]) < time[0] + 1.0
    assert sent == 0
    assert "it does not answer; this process sends no requests until it is back" in caplog.text
    assert budget._call is not None
    place.thawed.set()
    assert budget._call[0].done.wait(20)
    for _ in range(5):
        time[0] += 0.3
        sent += budget.take(time[0]) <= time[0]
        if budget._call is not None:
            assert budget._call[0].done.wait(20)
            sent += budget.take(time[0] + 0.001) <= time[0] + 0.001
    assert sent >= 1
    assert "is available again" in caplog.text
    budgets.close()
