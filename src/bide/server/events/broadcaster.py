"""Delivers committed events to subscribers, first from the log and then as they happen.

1. A subscriber gets each selected event once, in the order of the numbers, beginning after its cursor.
2. The cost of an event depends on the number of subscribers that select it, not on the number of all subscribers.
3. The broadcaster never waits for a subscriber. The events of one commit are delivered to it together. In a stream of
   commits, a `batched` subscription gets those of BATCH_INTERVAL together, because each write costs as much as the rest of a
   short job. All other subscriptions get the events of a commit at the same time, so that a subscriber with several of them
   can keep the order.
4. Progress is delivered at most every PROGRESS_INTERVAL seconds per job, the latest only. All other events are delivered.
   The progress of a job that runs elsewhere is only known while this process asks for it. So the broadcaster asks for jobs
   with a subscriber, and for jobs that have run for a second or two if a filter selects them.
5. When the epoch changes, every subscriber restarts: numbers that it knows may name other events now.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from bide.core.jobs.record import Job, Status
from bide.core.wire.events import EventCursor, EventMessage, progress_message
from bide.core.wire.http import Event, facts
from bide.server.events.selection import EventSelection, SelectionIndex
from bide.server.progress.publisher import ProgressPublisher
from bide.server.store import (
    EventFilter,
    EventLog,
    Filter,
    JobStore,
    LogPage,
    Missing,
    StoreUnavailable,
)

log = logging.getLogger("bide.events")
PAGE = 250  # events per read; the embedded store reads on the event loop
# A subscriber that is closer than this to the end of the log waits for the events that follow.
NEAR = 2000
MAX_WAITING = 5000  # events that wait for a subscriber that still reads the log
PROGRESS_INTERVAL = 0.25
BATCH_INTERVAL = 0.1  # seconds
BATCHES = 8  # that are sent without a pause
BATCH_SHARE = 0.025  # of the time of the event loop that sending batches may take,
LONGEST_BATCH = 1.0  # unless a subscription would wait for more seconds
SPREAD = 200  # batches that are sent with pauses in between
TICK = 1.0
MAX_FOLLOWED = 5000  # jobs that run elsewhere and whose progress a filter selects
KEEP_ALIVE = 15.0  # seconds without an event after which `Subscriber.keep_alive` is called


COURSE = ("status", "deleted")  # the types of events that begin and end a job


class LogReader(JobStore, EventLog, Protocol):
    """What the broadcaster needs of the store."""


class Subscriber(Protocol):
    """Receives events. The broadcaster calls it on the event loop, and the methods must not block."""

    def deliver(self, messages: Sequence[EventMessage]) -> None:
        """Events of one commit, or progress."""
        ...

    def keep_alive(self) -> None:
        """There was no event for KEEP_ALIVE seconds."""
        ...

    def restart(self) -> None:
        """The epoch has changed, so the subscriber must read the current state again."""
        ...

    def stop(self) -> None:
        """The service stops."""
        ...


class EventSubscription:
    """A subscriber and its place in the log. Use it as a context manager.

    The subscriber of one job gets the events that begin and end it, whatever types it selects.

    `position` is the number after which it continues. `version`: changes of the job up to this version are known already,
    because the subscriber has read the job; for a subscription to one job.
    """

    def __init__(
        self,
        broadcaster: Broadcaster,
        selection: EventSelection,
        subscriber: Subscriber,
        batched: bool,
    ) -> None:
        self._broadcaster = broadcaster
        self.batched = batched
        self.selection = selection
        self.subscriber = subscriber
        self.position = 0
        self.version = 0
        self._types = selection.types
        if len(selection.jobs) == 1:
            self._types |= {*COURSE}
        self.delivered_at = 0.0
        self.at_end = False  # whether `read` has come to the end of the log
        self.epoch = broadcaster.epoch
        self._ended = False
        self._listening = False
        self._waiting: list[EventMessage] | None = None  # while it still reads the log
        self._overflowed = False
        self.batch: list[EventMessage] = []  # of the current commit

    def __enter__(self) -> EventSubscription:
        self._broadcaster.add(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def end(self) -> None:
        """Deliver and read nothing more."""
        self._ended = True
        self.stop_listening()
        self._broadcaster.discard(self)

    def begin(self, position: int, version: int = 0) -> None:
        """Continue after this number, in the current epoch."""
        self.stop_listening()
        self.epoch = self._broadcaster.epoch
        self.position, self.version = position, version

    def wants(self, message: EventMessage) -> bool:
        """Whether an event that matches the selection is delivered."""
        event = message.event
        if not event.id:
            return "progress" in self._types
        if event.id <= self.position or event.type not in self._types:
            return False
        return not (
            self.version and event.type in ("status", "step") and event.job["version"] <= self.version
        )

    def push(self, message: EventMessage) -> bool:
        """Take an event of a commit. Return whether it must be delivered at the end of the commit."""
        waiting = self._waiting
        if waiting is None:
            batch = self.batch
            batch.append(message)
            return len(batch) == 1
        if not message.is_progress:
            if len(waiting) < MAX_WAITING:
                waiting.append(message)
            else:
                self._overflowed = True
        return False

    def flush(self) -> None:
        messages, self.batch = self.batch, []
        if not messages:  # it has ended or begun again
            return
        if messages[-1].number:
            self.position = messages[-1].number
        self.subscriber.deliver(messages)

    async def history(self) -> AsyncIterator[list[EventMessage]]:
        """The events from the log. When the iteration has ended, later ones are delivered to the subscriber, unless the
        epoch has changed.
        """
        broadcaster = self._broadcaster
        while broadcaster.epoch == self.epoch and not self._ended:
            end = broadcaster.last
            if end - self.position > NEAR:
                async for page in self.read(until=end):
                    yield page
                continue
            self._waiting, self._overflowed = [], False
            self._listen()
            async for page in self.read(until=end):
                yield page
            while self._waiting and not self._overflowed:
                messages, self._waiting = self._waiting, []
                self.position = max(self.position, messages[-1].number)
                yield messages
            if self._overflowed:
                self.stop_listening()
                continue
            self._waiting = None
            if "progress" in self.selection.types:
                broadcaster.begin_progress(self.selection)
            return

    async def read(
        self, until: int | None = None, most: int | None = None
    ) -> AsyncIterator[list[EventMessage]]:
        """The events of the log up to this number, or up to its end now, in parts. With `most`, about as many events are
        examined, whether the selection has them or not; `at_end` is False if there are more.
        """
        # Without `until`, events that other processes have just committed may be among them.
        end = self._broadcaster.last if until is None else until
        full = until is None or self.position < until
        self.at_end = not full
        examined = 0
        while full and self._broadcaster.epoch == self.epoch and not self._ended:
            found = await self._broadcaster.read(self.selection.in_log(self.position, until, PAGE))
            if found.epoch != self.epoch:
                return
            events = found.events
            examined += len(events)
            messages = [EventMessage(e, self.epoch) for e in events if self.selection.matches(e)]
            wanted = [message for message in messages if self.wants(message)]
            full = len(events) == PAGE
            number = events[-1].id if events else 0
            self.position = number if full else max(self.position, number, end)
            self.at_end = not full
            if wanted:
                yield wanted
            if most is not None and examined >= most:
                return
            await asyncio.sleep(0)  # the embedded store reads without a wait

    def _listen(self) -> None:
        if not self._listening:
            self._listening = True
            self._broadcaster.index.add(self.selection, self)

    def stop_listening(self) -> None:
        """Deliver nothing until the log has been read again."""
        if self._listening:
            self._listening = False
            self._broadcaster.index.remove(self.selection, self)
        self._waiting = None
        self.batch = []


class Broadcaster:
    """Knows the end of the log and all subscriptions."""

    def __init__(self, store: LogReader, *, shared: bool = False) -> None:
        """`shared`: jobs may run in other processes."""
        self._store = store
        self._shared = shared
        self.progress_source: ProgressPublisher | None = None
        self.epoch = ""
        self.last = 0  # all events up to this number have been delivered
        self.index: SelectionIndex[EventSubscription] = SelectionIndex()
        self._subscriptions: dict[EventSubscription, None] = {}
        self._closed = False
        self._changed_progress: set[str] = set()
        self._progress_task: asyncio.Task[None] | None = None
        # Running jobs that a filter selects: those of this tick, of the tick before, and earlier ones.
        self._recent: set[str] = set()
        self._older: set[str] = set()
        self._followed: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        # Subscriptions with a batch that waits, when the last ones were sent, and the timer for the next.
        self._unsent: list[EventSubscription] = []
        self._sent_at = -math.inf
        self._sending: asyncio.TimerHandle | None = None

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def subscriptions(self) -> int:
        return len(self._subscriptions)

    @property
    def cursor(self) -> EventCursor:
        """The end of the log."""
        return EventCursor(self.epoch, self.last)

    def subscribe(
        self, selection: EventSelection, subscriber: Subscriber, *, batched: bool = False
    ) -> EventSubscription:
        return EventSubscription(self, selection, subscriber, batched)

    def close(self) -> None:
        """End every subscription, because the service stops."""
        self._closed = True
        for subscription in list(self._subscriptions):
            subscription.subscriber.stop()
        for timer in (self._timer, self._sending):
            if timer is not None:
                timer.cancel()
        if self._progress_task is not None:
            self._progress_task.cancel()
        for task in self._tasks:
            task.cancel()

    # --- from subscriptions

    def add(self, subscription: EventSubscription) -> None:
        loop = asyncio.get_running_loop()
        subscription.delivered_at = loop.time()
        self._subscriptions[subscription] = None
        if self._timer is None:
            self._timer = loop.call_later(TICK, self._tick)

    def discard(self, subscription: EventSubscription) -> None:
        self._subscriptions.pop(subscription, None)
        if not self._subscriptions:
            for jobs in (self._recent, self._older, self._followed):
                jobs.clear()

    async def read(self, filter: EventFilter) -> LogPage:
        return await self._store.read_log(filter)

    def _tick(self) -> None:
        self._timer = None
        if self._closed or not self._subscriptions:
            return
        older, self._older, self._recent = self._older, self._recent, set()
        self._follow(older)
        loop = asyncio.get_running_loop()
        now = loop.time()
        for subscription in list(self._subscriptions):
            if now - subscription.delivered_at >= KEEP_ALIVE:
                subscription.delivered_at = now
                subscription.subscriber.keep_alive()
        self._timer = loop.call_later(TICK, self._tick)

    # --- from the store

    def on_log(self, epoch: str, last: int, events: Sequence[Event]) -> None:
        """The store calls this with the events of all processes, in order."""
        if epoch != self.epoch:
            self.epoch, self.last = epoch, last
            for subscription in list(self._subscriptions):
                subscription.stop_listening()  # until it has begun in the new epoch
                subscription.subscriber.restart()
            return
        self.last = last
        if not self.index:
            return
        find, touched = self.index.find, []
        for event in events:
            found = find(event)
            if found:
                touched += _push(EventMessage(event, epoch), found)
                if self._shared and event.type in COURSE:
                    self._note_attempt(event)
        if touched:
            self._deliver(touched)

    def _deliver(self, touched: Sequence[EventSubscription]) -> None:
        """Deliver the new batches of these subscriptions, now or a little later."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        urgent = [subscription for subscription in touched if not subscription.batched]
        if len(urgent) < len(touched):
            self._unsent += [subscription for subscription in touched if subscription.batched]
            if self._sending is None:
                wait = self._sent_at + BATCH_INTERVAL - now
                if wait > 0:
                    self._sending = loop.call_later(wait, self._send_batches)
                else:
                    self._send_batches()
        self._flush(urgent, now)

    def _send_batches(self) -> None:
        """Send the first batches, and the others a little later: sending all at once would delay running jobs. Very many are
        sent at once, because their last events would be late.
        """
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        self._sending = None
        count = BATCHES if len(self._unsent) <= SPREAD else len(self._unsent)
        first, self._unsent = self._unsent[:count], self._unsent[count:]
        self._sent_at = now = loop.time()
        self._flush(first, now)
        if self._unsent:
            part = BATCHES / (BATCHES + len(self._unsent))
            spent = (time.perf_counter() - began) / BATCH_SHARE
            pause = min(max(BATCH_INTERVAL * part, spent), LONGEST_BATCH * part)
            self._sending = loop.call_later(pause, self._send_batches)

    def _flush(self, subscriptions: Sequence[EventSubscription], now: float) -> None:
        for subscription in subscriptions:
            subscription.delivered_at = now
            try:
                subscription.flush()
            except Exception:  # the others still get their events
                log.exception("a subscriber failed")

    # --- progress

    def has_subscribers(self, job_id: str) -> bool:
        """Whether the progress of this job is wanted."""
        return self.index.has_job(job_id) or job_id in self._followed

    def progress(self, job_id: str) -> None:
        """The progress of a job may have changed."""
        if not self.index or self._closed:
            return
        self._changed_progress.add(job_id)
        if self._progress_task is None:
            self._progress_task = asyncio.get_running_loop().create_task(self._send_progress())

    def begin_progress(self, selection: EventSelection) -> None:
        """Deliver the current progress of the selected jobs to a subscriber that begins."""
        if len(selection.jobs) == 1:
            self.progress(*selection.jobs)
        elif self._shared:
            task = asyncio.get_running_loop().create_task(self._find_running(selection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _find_running(self, selection: EventSelection) -> None:
        """Follow the selected jobs that are running already."""
        try:
            running = await self._store.find(
                Filter(status=frozenset({Status.PROCESSING}), limit=MAX_FOLLOWED)
            )
        except StoreUnavailable:
            return
        jobs = {job.id: Event(0, job.id, "status", 0.0, facts(job), job.tenant) for job in running}
        if self._subscriptions:
            self._follow({job_id for job_id, event in jobs.items() if selection.matches(event)})

    def _note_attempt(self, event: Event) -> None:
        """An attempt of a job that a subscriber selects has begun or ended, here or elsewhere."""
        job_id = event.job_id
        if "worker" not in event.job:
            for jobs in (self._recent, self._older, self._followed):
                jobs.discard(job_id)
        elif self.index.has_job(job_id):
            self.progress(job_id)
        elif job_id not in self._followed and job_id not in self._older:
            self._recent.add(job_id)

    def _follow(self, jobs: set[str]) -> None:
        if len(self._followed) + len(jobs) <= MAX_FOLLOWED:
            self._followed |= jobs
            for job_id in jobs:
                self.progress(job_id)

    async def _send_progress(self) -> None:
        try:
            while self._changed_progress:
                ids, self._changed_progress = list(self._changed_progress), set()
                try:
                    await self._deliver_progress(ids)
                except Exception:
                    log.warning("the progress of some jobs was not delivered", exc_info=True)
                await asyncio.sleep(PROGRESS_INTERVAL)
        finally:
            self._progress_task = None

    async def _deliver_progress(self, ids: Sequence[str]) -> None:
        source = self.progress_source
        if source is None:
            return
        found: list[Job] = [j for j in await self._store.get(ids) if not isinstance(j, Missing)]
        await source.refresh(found)
        touched: list[EventSubscription] = []
        for job in found:
            live = source.live(job)
            if live is not None:
                message = progress_message(job, live.progress, live.at)
                touched += _push(message, self.index.find(message.event))
        if touched:
            self._deliver(touched)


def _push(message: EventMessage, subscriptions: Sequence[EventSubscription]) -> list[EventSubscription]:
    """Add a message to the batches of these subscriptions. Return those that had none."""
    return [one for one in subscriptions if one.wants(message) and one.push(message)]
