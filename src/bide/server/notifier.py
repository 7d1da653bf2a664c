"""Notifies long polls of changes of a job.

Subscribe before reading the job, so that no change is missed between the read and the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bide.core.wire.http import Event


class Notifier:
    """Wakes the subscribers of a job when it has changed."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._closed = False

    def on_events(self, events: Sequence[Event]) -> None:
        if self._subscriptions:
            for job_id in {event.job_id for event in events}:
                for subscription in self._subscriptions.get(job_id, ()):
                    subscription.wake()

    def notify(self, job_id: str) -> None:
        for subscription in self._subscriptions.get(job_id, ()):
            subscription.wake()

    def notify_all(self) -> None:
        """Wake all subscribers, because any job may have changed."""
        for job_id in list(self._subscriptions):
            self.notify(job_id)

    @contextmanager
    def subscribe(self, job_id: str) -> Iterator[Subscription]:
        subscription = Subscription(self)
        subscriptions = self._subscriptions.setdefault(job_id, set())
        subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            subscriptions.discard(subscription)
            if not subscriptions:
                del self._subscriptions[job_id]

    def has_subscribers(self, job_id: str) -> bool:
        return job_id in self._subscriptions

    @property
    def waiting(self) -> int:
        return sum(map(len, self._subscriptions.values()))

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End every wait immediately, for a shutdown. Long polls then respond with the current state."""
        self._closed = True
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.wake()


class Subscription:
    """`with notifier.subscribe(id) as subscription:` read the job, then `await subscription.wait(seconds)` for a change."""

    __slots__ = ("_changed", "_event", "_notifier")

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._event = asyncio.Event()  # set by a change, or by the timeout
        self._changed = False

    def wake(self) -> None:
        self._changed = True
        self._event.set()

    async def wait(self, timeout: float) -> bool:
        """Whether the job has changed; False after the timeout and when the service stops."""
        if self._notifier.closed:
            return False
        timer = asyncio.get_running_loop().call_later(timeout, self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()
        self._event.clear()
        changed, self._changed = self._changed, False
        return changed and not self._notifier.closed
