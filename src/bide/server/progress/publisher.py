"""Publishes the progress of this process's jobs, and caches that of jobs which run elsewhere. All processes agree within
about a second.

1. The progress of a local job is visible in this process immediately. It is put into the progress store at most every
   SEND seconds (the latest only, all jobs in one round trip), and again every RESEND seconds while the job runs, because
   the store may forget it.
2. The progress of a remote job is fetched on the first request for it, and then refreshed every REFRESH seconds while it
   is requested or has subscribers. Polls read the cached copy.
3. The progress of an attempt never decreases, even if the progress store returns an older value. Progress is
   shown only for the attempt that the record names, and only while the record is held; afterwards the record contains
   it.
4. An unavailable progress store delays polls by at most TIMEOUT once per second, and has no other effect.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from bide.core.jobs.record import Job
from bide.server.progress import AttemptKey, LiveProgress, ProgressStore, attempt_key

log = logging.getLogger("bide.progress")
SEND = 0.25
RESEND = 5.0
REFRESH = 0.4
KEEP = 10.0  # seconds after the last request for which a copy is refreshed
MAX_COPIES = 20_000
PAGE = 2000  # attempts per round trip
TIMEOUT = 1.0


class _Copy:
    """Cached progress of an attempt in another process."""

    __slots__ = ("attempt", "live", "requested_at")

    def __init__(self, attempt: int, live: LiveProgress | None, requested_at: float) -> None:
        self.attempt = attempt
        self.live = live
        self.requested_at = requested_at


class ProgressPublisher:
    """The engine calls `publish` and `ended`; the HTTP API calls `refresh` and `live`. Not thread-safe."""

    def __init__(
        self, store: ProgressStore, notify: Callable[[str], None], has_subscribers: Callable[[str], bool]
    ) -> None:
        """`notify` is called with the id of each job whose progress has changed."""
        self._store = store
        self._notify = notify
        self._has_subscribers = has_subscribers
        self._own: dict[str, tuple[int, LiveProgress]] = {}
        self._copies: OrderedDict[str, _Copy] = OrderedDict()  # the oldest first
        self._unsent: dict[AttemptKey, LiveProgress] = {}
        self._pending = asyncio.Event()
        self._to_fetch: set[AttemptKey] = set()
        self._fetched: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unavailable_until = -math.inf
        self._unavailable = False
        self._closing = False

    async def open(self) -> None:
        for work in (self._send_loop(), self._refresh_loop()):
            self._task(asyncio.get_running_loop().create_task(work))

    async def close(self) -> None:
        # A client library may turn a cancel into a timeout, and the loop would continue.
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._fetched is not None and not self._fetched.done():
            self._fetched.set_result(None)
        if self._unsent:
            await self._put()
        await self._store.close()

    # --- local jobs

    def publish(self, attempt: AttemptKey, live: LiveProgress) -> None:
        job_id, fence = attempt
        self._own[job_id] = (fence, live)
        if live.number:
            self._unsent[attempt] = live
            self._pending.set()
            self._notify(job_id)

    def ended(self, attempt: AttemptKey) -> None:
        """Forget a local attempt. The progress store keeps it until it expires, for processes that do not know of the end
        yet.
        """
        job_id, fence = attempt
        known = self._own.get(job_id)
        if known is not None and known[0] == fence:
            del self._own[job_id]

    async def _send_loop(self) -> None:
        put_all = time.monotonic() + RESEND
        while not self._closing:
            try:
                async with asyncio.timeout(max(0.0, put_all - time.monotonic())):
                    await self._pending.wait()
            except TimeoutError:
                put_all = time.monotonic() + RESEND
                for job_id, (fence, live) in self._own.items():
                    if live.number:
                        self._unsent.setdefault((job_id, fence), live)
            self._pending.clear()
            if self._unsent:
                await self._put()
                await asyncio.sleep(SEND)

    async def _put(self) -> None:
        batch, self._unsent = self._unsent, {}
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._store.put(batch)
        except Exception as error:
            self._failed(error)  # the next put, or the one after RESEND seconds, has it again
        else:
            self._succeeded()

    def forget(self) -> None:
        """Drop all copies, because a failover may have undone the claims of their attempts."""
        self._copies.clear()

    # --- reading

    def live(self, job: Job) -> LiveProgress | None:
        """The progress of the record's attempt, if this process knows it."""
        if job.lease_until is None:
            return None
        own = self._own.get(job.id)
        number = attempt_key(job)[1]
        if own is not None and own[0] == number:
            return own[1] if own[1].number else None
        copy = self._copies.get(job.id)
        return copy.live if copy is not None and copy.attempt == number else None

    def is_fresh(self, job: Job) -> bool:
        """Whether `live` is up to date. Each call keeps the copy refreshed for another KEEP seconds."""
        if job.lease_until is None:
            return True
        own = self._own.get(job.id)
        number = attempt_key(job)[1]
        if own is not None and own[0] == number:
            return True
        copy = self._copies.get(job.id)
        if copy is None or copy.attempt != number:
            return False
        copy.requested_at = time.monotonic()
        return True

    async def refresh(self, jobs: Iterable[Job]) -> None:
        """Fetch the progress that is not cached."""
        unknown = [attempt_key(job) for job in jobs if not self.is_fresh(job)]
        if unknown:
            await self.fetch(unknown)

    async def fetch(self, attempts: Sequence[AttemptKey]) -> None:
        """Fetch the progress of attempts, unless the store is unavailable. Concurrent calls share one round trip."""
        if time.monotonic() < self._unavailable_until:
            return
        if self._fetched is None:
            loop = asyncio.get_running_loop()
            self._fetched = loop.create_future()
            loop.call_soon(self._start_fetch)
        self._to_fetch.update(attempts)
        await asyncio.shield(self._fetched)

    def _start_fetch(self) -> None:
        wanted, self._to_fetch = list(self._to_fetch), set()
        answer, self._fetched = self._fetched, None
        assert answer is not None
        task = asyncio.get_running_loop().create_task(self._fetch(wanted))
        task.add_done_callback(lambda _: None if answer.done() else answer.set_result(None))
        self._task(task)

    async def _refresh_loop(self) -> None:
        while not self._closing:
            await asyncio.sleep(REFRESH)
            now = time.monotonic()
            for job_id, copy in list(self._copies.items()):
                if now - copy.requested_at > KEEP and not self._has_subscribers(job_id):
                    del self._copies[job_id]
            known = [(job_id, copy.attempt) for job_id, copy in self._copies.items()]
            for start in range(0, len(known), PAGE):
                await self._fetch(known[start : start + PAGE])

    async def _fetch(self, attempts: Sequence[AttemptKey]) -> None:
        try:
            async with asyncio.timeout(TIMEOUT):
                found = await self._store.get(attempts)
        except Exception as error:
            self._failed(error)
            return
        self._succeeded()
        now = time.monotonic()
        for job_id, number in attempts:
            live, copy = found.get((job_id, number)), self._copies.get(job_id)
            if copy is None or copy.attempt < number:
                if len(self._copies) >= MAX_COPIES:
                    self._copies.popitem(last=False)
                self._copies[job_id] = _Copy(number, live, now)
            elif (
                copy.attempt > number or live is None or (copy.live and copy.live.number >= live.number)
            ):
                continue
            else:
                copy.live = live
            if live is not None:
                self._notify(job_id)

    # --- outages

    def _failed(self, error: Exception) -> None:
        self._unavailable_until = time.monotonic() + TIMEOUT
        if not self._unavailable:
            self._unavailable = True
            reason = str(error) or type(error).__name__
            log.warning("cannot share progress between replicas; retrying: %s", reason)

    def _succeeded(self) -> None:
        if self._unavailable:
            self._unavailable, self._unavailable_until = False, -math.inf
            log.info("progress is shared between replicas again")

    def _task(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
