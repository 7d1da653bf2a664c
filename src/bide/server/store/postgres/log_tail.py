"""Puts the events of all processes into the order of their numbers.

Notifications arrive in commit order. The events of other processes are read from the log; the events of this process are
already in memory, so they are not read again. They may arrive here before or after their notification.

1. Every event is delivered once, in the order of the numbers.
2. A range whose events have not arrived stops the delivery of all later ones. `overdue` reports an own range whose
   events do not arrive, for example because the response to their commit was lost.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from bide.core.wire.http import Event
from bide.server.store import OnLog

PATIENCE = 1.0  # seconds until an own range is read from the log


class _Range:
    """The numbers of one commit. `events` is None until they have arrived."""

    __slots__ = ("at", "events", "first", "last")

    def __init__(self, first: int, last: int, events: Sequence[Event] | None) -> None:
        self.first = first
        self.last = last
        self.events = events
        self.at = time.monotonic()


class LogTail:
    """The end of the log, as this process knows it."""

    def __init__(self, on_log: OnLog) -> None:
        self._on_log = on_log
        self.epoch = ""
        self.last = 0  # delivered up to this number
        self._own: deque[Event] = deque()  # of this process, not delivered yet
        self._ranges: deque[_Range] = deque()

    def restart(self, epoch: str, last: int) -> None:
        """Continue after `last` in this epoch, without what is between."""
        self.epoch, self.last = epoch, last
        self._ranges.clear()
        self._own.clear()
        self._on_log(epoch, last, ())

    def add_own(self, events: Sequence[Event]) -> None:
        self._own.extend(events)
        self.deliver()

    def add_range(self, first: int, last: int, events: Sequence[Event] | None) -> None:
        """A notification; `events` is None if this process has written them."""
        self._ranges.append(_Range(first, last, events))

    def skip_to(self, last: int, events: Sequence[Event]) -> None:
        """All events of all processes up to `last`, read from the log. Waiting ranges are among them."""
        while self._ranges and self._ranges[0].last <= last:
            self._ranges.popleft()
        self._ranges.appendleft(_Range(self.last + 1, last, events))
        self.deliver()

    @property
    def overdue(self) -> int | None:
        """The last number of an own range that has waited for too long."""
        if self._ranges and time.monotonic() - self._ranges[0].at > PATIENCE:
            return self._ranges[0].last
        return None

    def deliver(self) -> None:
        """Report the events that are next in the order of their numbers."""
        ready: list[Event] = []
        last = self.last
        while self._ranges:
            head = self._ranges[0]
            events = head.events
            if events is None and head.last > last:
                if not self._own or self._own[-1].id < head.last:
                    break
                events = [event for event in self._own if event.id <= head.last]
            ready += [event for event in events or () if event.id > last]
            last = max(last, head.last)
            while self._own and self._own[0].id <= last:
                self._own.popleft()
            self._ranges.popleft()
        if last > self.last:
            self.last = last
            self._on_log(self.epoch, last, ready)
