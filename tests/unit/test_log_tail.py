"""The order of the events of several processes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bide.core.wire.http import Event
from bide.server.store.postgres import log_tail
from bide.server.store.postgres.log_tail import LogTail


def events(*numbers: int) -> list[Event]:
    return [Event(number, "job", "status", 0.0, {}) for number in numbers]


class Listener:
    def __init__(self) -> None:
        self.heard: list[int] = []
        self.calls: list[tuple[str, int]] = []
        self.tail = LogTail(self)
        self.tail.restart("a", 10)

    def __call__(self, epoch: str, last: int, found: Sequence[Event]) -> None:
        self.heard += [event.id for event in found]
        self.calls.append((epoch, last))


def test_own_events_wait_for_their_notification() -> None:
    listener = Listener()
    listener.tail.add_own(events(12, 13))
    assert listener.heard == []
    listener.tail.add_range(11, 11, events(11))
    listener.tail.add_range(12, 13, None)
    listener.tail.deliver()
    assert listener.heard == [11, 12, 13]
    assert listener.calls == [("a", 10), ("a", 13)]


def test_events_of_others_wait_for_own_events_before_them() -> None:
    listener = Listener()
    listener.tail.add_range(11, 12, None)
    listener.tail.add_range(13, 13, events(13))
    listener.tail.deliver()
    assert listener.heard == []
    listener.tail.add_own(events(11, 12))
    assert listener.heard == [11, 12, 13]


def test_two_own_commits_may_arrive_together() -> None:
    listener = Listener()
    listener.tail.add_own(events(11, 12, 14))
    listener.tail.add_range(11, 12, None)
    listener.tail.deliver()
    assert listener.heard == [11, 12]
    listener.tail.add_range(13, 13, events())  # its job is deleted already
    listener.tail.add_range(14, 14, None)
    listener.tail.deliver()
    assert listener.heard == [11, 12, 14]


def test_an_own_range_that_does_not_arrive_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener()
    listener.tail.add_range(11, 12, None)
    listener.tail.add_range(13, 13, events(13))
    listener.tail.deliver()
    overdue = listener.tail.overdue
    assert overdue is None
    monkeypatch.setattr(log_tail, "PATIENCE", -1.0)
    assert listener.tail.overdue == 12
    listener.tail.skip_to(12, events(11, 12))
    assert listener.heard == [11, 12, 13]
    listener.tail.add_own(events(11, 12))  # late, and known
    listener.tail.add_range(14, 14, events(14))
    listener.tail.deliver()
    assert listener.heard == [11, 12, 13, 14]


def test_reading_after_a_reconnect_replaces_what_waits() -> None:
    listener = Listener()
    listener.tail.add_own(events(11))
    listener.tail.add_range(12, 12, events(12))
    listener.tail.skip_to(15, events(11, 12, 15))
    assert listener.heard == [11, 12, 15]
    listener.tail.add_range(15, 15, events(15))
    listener.tail.deliver()
    assert listener.heard == [11, 12, 15]


def test_another_epoch_forgets_what_waits() -> None:
    listener = Listener()
    listener.tail.add_own(events(11))
    listener.tail.restart("b", 5)
    listener.tail.add_range(6, 7, events(6, 7))
    listener.tail.deliver()
    assert listener.heard == [6, 7]
    assert listener.calls[1:] == [("b", 5), ("b", 7)]
