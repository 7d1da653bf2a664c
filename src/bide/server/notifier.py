"""Who hears of a change: today the long polls, later every other way out of the one event log.

A watch is set up before the job is read, so that no change falls between the reading and the waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType

from bide.core.wire import Event


class Notifier:
    """Wakes those who watch a job when something about it has changed."""

    def __init__(self) -> None:
        self._watches: dict[str, set[Subscription]] = {}
        self._closed = False

    def heard(self, events: Sequence[Event]) -> None:
        if self._watches:
            for job_id in {event.job_id for event in events}:
                self.changed(job_id)

    def changed(self, job_id: str) -> None:
        for watch in self._watches.get(job_id, ()):
            watch.wake()

    def all_changed(self) -> None:
        """Anything may have changed: whoever waits looks again."""
        for job_id in list(self._watches):
            self.changed(job_id)

    def watch(self, job_id: str) -> Subscription:
        return Subscription(self, job_id)

    def watched(self, job_id: str) -> bool:
        return job_id in self._watches

    @property
    def waiting(self) -> int:
        return sum(map(len, self._watches.values()))

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Ends every wait at once, as for a shutdown; whoever waits answers with what is true now."""
        self._closed = True
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()

    def _add(self, watch: Subscription) -> None:
        self._watches.setdefault(watch.job_id, set()).add(watch)

    def _remove(self, watch: Subscription) -> None:
        watches = self._watches.get(watch.job_id)
        if watches is not None:
            watches.discard(watch)
            if not watches:
                del self._watches[watch.job_id]


class Subscription:
    """`with notify.watch(id) as watch:` read the job, then `await watch.wait(seconds)` for the next change."""

    __slots__ = ("_bell", "_changed", "_notify", "job_id")

    def __init__(self, notify: Notifier, job_id: str) -> None:
        self._notify = notify
        self._bell = asyncio.Event()  # rung by a change, or when the time is over
        self._changed = False
        self.job_id = job_id

    def __enter__(self) -> Subscription:
        self._notify._add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._notify._remove(self)

    def wake(self) -> None:
        self._changed = True
        self._bell.set()

    async def wait(self, timeout: float) -> bool:
        """True when something changed, False when the time is over or the service stops."""
        if self._notify.closed:
            return False
        timer = asyncio.get_running_loop().call_later(timeout, self._bell.set)
        try:
            await self._bell.wait()
        finally:
            timer.cancel()
        self._bell.clear()
        changed, self._changed = self._changed, False
        return changed and not self._notify.closed
