"""When an observer calls a lease lost, and how the database's clock is followed."""

from __future__ import annotations

import pytest

from bide.core.clock import MOST_BEHIND
from bide.core.jobs.lease import LOOKS, Lease, LeaseObserver
from bide.server.store.postgres.feed import DatabaseClock
from bide.testing import ManualClock

LEASE = 30.0
MINE = Lease("worker", 1000.0, LEASE)


class Watcher:
    """An observer, its own time, and a store that accepts writes by default."""

    def __init__(self, usual: float = LEASE) -> None:
        self.observer = LeaseObserver(usual)
        self.now = 0.0
        self.writable = True

    def look(self, *leases: Lease) -> list[Lease]:
        self.observer.look(leases, self.now, self.now)
        if not self.observer.suspects:
            self.observer.calm()
            return []
        if not self.writable:
            self.observer.restart()
            return []
        self.observer.writable(self.now)
        return self.observer.lost()

    def watch(self, seconds: float, *leases: Lease) -> list[Lease]:
        """Looks at its pace; stops at the first loss."""
        end = self.now + seconds
        while self.now < end:
            if lost := self.look(*leases):
                return lost
            self.now += self.observer.pace
        return []


def test_a_lease_that_nobody_renews_is_lost_after_its_length_and_little_more() -> None:
    watcher = Watcher()
    assert watcher.watch(10 * LEASE, MINE) == [MINE]
    assert LEASE <= watcher.now <= LEASE * (1 + 2 / LOOKS)


def test_what_the_lease_says_of_the_time_plays_no_part() -> None:
    watcher = Watcher()
    long_past, far_ahead = Lease("a", 1.0, LEASE), Lease("b", 1e12, LEASE)
    assert set(watcher.watch(10 * LEASE, long_past, far_ahead)) == {long_past, far_ahead}
    assert watcher.now >= LEASE


def test_one_that_is_renewed_is_never_lost() -> None:
    watcher = Watcher()
    for renewal in range(30):
        assert watcher.watch(LEASE / 3, Lease("worker", 1000.0 + renewal, LEASE)) == []


def test_another_owner_with_the_same_time_is_another_lease() -> None:
    watcher = Watcher()
    assert watcher.watch(LEASE * 0.9, MINE) == []
    assert watcher.watch(LEASE * 0.9, Lease("another", MINE.until, LEASE)) == []


def test_a_late_look_begins_anew() -> None:
    """The observer was stopped, its machine slept, or the database was away."""
    watcher = Watcher()
    assert watcher.watch(LEASE * 0.9, MINE) == []
    watcher.now += 3600
    thawed = watcher.now
    assert watcher.watch(LEASE * 0.9, MINE) == []
    assert watcher.watch(LEASE, MINE) == [MINE]
    assert watcher.now - thawed >= LEASE


def test_an_observer_that_is_stopped_again_and_again_loses_nothing() -> None:
    watcher = Watcher()
    for _ in range(20):
        watcher.now += LEASE / 2
        assert watcher.look(MINE) == []


def test_while_the_store_takes_no_writes_nothing_is_lost() -> None:
    watcher = Watcher()
    watcher.writable = False
    assert watcher.watch(10 * LEASE, MINE) == []
    watcher.writable = True
    room = watcher.now
    assert watcher.watch(LEASE / 3, MINE) == [], "a live worker has time to renew"
    assert watcher.watch(LEASE, MINE) == [MINE]
    assert watcher.now - room >= LEASE / 3


def test_a_store_that_has_just_become_writable_is_not_enough() -> None:
    watcher = Watcher()
    watcher.watch(LEASE * 0.5, MINE)
    watcher.observer.look([MINE], watcher.now, watcher.now)
    while watcher.now < LEASE:  # it looks, but has not tried to write
        watcher.now += watcher.observer.pace
        watcher.observer.look([MINE], watcher.now, watcher.now)
    watcher.observer.writable(watcher.now)
    assert watcher.observer.lost() == []
    watcher.now += LEASE / 3
    watcher.observer.look([MINE], watcher.now, watcher.now)
    assert watcher.observer.lost() == [MINE]


@pytest.mark.parametrize("length", [1.0, 300.0])
def test_each_lease_has_its_own_length_and_the_pace_follows_the_shortest(length: float) -> None:
    watcher = Watcher()
    lease = Lease("another", 1.0, length)
    assert watcher.watch(20 * length, lease) == [lease]
    assert length <= watcher.now <= length * (1 + 2 / LOOKS) + LEASE / LOOKS
    assert watcher.observer.pace == min(length, LEASE) / LOOKS


def test_a_lease_without_a_length_has_the_observers() -> None:
    watcher = Watcher(usual=6.0)
    lease = Lease("old", 1.0)
    assert watcher.watch(60, lease) == [lease]
    assert watcher.now >= 6.0


# --- the database's clock


class Database:
    """A database whose clock is off by `step`, and processes that ask it every second."""

    def __init__(self, processes: int = 1) -> None:
        self.machine = ManualClock()
        self.step = 0.0
        self.newest: float | None = None
        self.clocks = [DatabaseClock(self.machine) for _ in range(processes)]
        self.ask()

    def now(self) -> float:
        return self.machine.now() + self.step

    def ask(self) -> None:
        for clock in self.clocks:
            clock.measured(self.now(), clock.begin(), self.newest)

    def join(self) -> DatabaseClock:
        """A process that starts now."""
        clock = DatabaseClock(self.machine)
        clock.measured(self.now(), clock.begin(), self.newest)
        self.clocks.append(clock)
        return clock

    def event(self, clock: DatabaseClock) -> None:
        self.newest = clock.now()

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            before = [clock.now() for clock in self.clocks]
            self.machine.advance(1.0)
            after = [clock.now() for clock in self.clocks]
            assert all(b < a for b, a in zip(before, after, strict=True)), "it never stands still"
            self.ask()
            assert all(clock.now() >= at for clock, at in zip(self.clocks, after, strict=True))


def test_a_step_forward_is_followed_at_once() -> None:
    database = Database()
    database.step = 3600.0
    database.run(1)
    assert database.clocks[0].now() == database.now()


def test_after_a_step_back_time_goes_on_more_slowly_until_the_database_has_caught_up() -> None:
    database = Database()
    (clock,) = database.clocks
    database.step = 3600.0
    database.run(5)
    due = clock.now() + 5.0
    database.step = 0.0
    database.run(10)
    assert clock.now() >= due, "what was due in five seconds was due in ten, not in an hour"
    database.run(7200)
    assert clock.now() == pytest.approx(database.now(), abs=1.0)


def test_whoever_starts_after_a_step_back_is_not_behind_the_others() -> None:
    database = Database()
    (clock,) = database.clocks
    database.step = 3600.0
    database.run(2)
    database.step = 0.0
    database.run(2)
    database.event(clock)
    late = database.join()
    assert late.now() == pytest.approx(clock.now(), abs=0.1)
    for _ in range(120):  # both write, and neither drives the other on
        database.run(60)
        for each in database.clocks:
            database.event(each)
    assert clock.now() == pytest.approx(database.now(), abs=2.0)


def test_an_answer_that_took_too_long_is_ignored() -> None:
    """The machine slept in between: half of the round trip is hours, and no measure of the database's time."""
    database = Database()
    (clock,) = database.clocks
    asked, answer = clock.begin(), database.now()
    database.machine.advance(7200.0)
    clock.measured(answer, asked)
    assert clock.now() == database.now()
    asked = clock.begin()
    database.machine.advance(7200.0)
    clock.measured(database.now(), asked)
    assert clock.now() == database.now(), "not an hour ahead"


def test_events_of_a_wrong_clock_long_ago_are_not_followed() -> None:
    database = Database()
    database.newest = database.now() + MOST_BEHIND + 1
    assert database.join().now() == database.now()
