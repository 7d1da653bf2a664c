"""What this process knows of the progress of jobs, its own and others': the same everywhere within about a second.

1. What is run here is told here at once, and put on the shelf soon: the latest only, all jobs in one round trip, at most
   every SEND seconds, and again every AGAIN seconds while it runs, so that a shelf that has forgotten knows it anew.
2. What is run elsewhere is read from the shelf when somebody asks about it for the first time, and then every LOOK
   seconds while anybody asks or waits: a poll is answered from a copy.
3. What is told of an attempt never goes back, whatever the shelf says. Progress of another attempt than the record's is
   not told at all, nor is any once the record is free: then the record has it.
4. A shelf that is away costs a poll no more than PATIENCE once a second, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence

from bide.core.record import Job
from bide.server.progress import AttemptKey, LiveProgress, ProgressStore, attempt_key

log = logging.getLogger("bide.progress")
SEND = 0.25
AGAIN = 5.0
LOOK = 0.4
ASKED = 10.0  # seconds after the last question for which a copy is kept fresh
MOST = 20_000  # copies
PAGE = 2000  # attempts in one round trip
PATIENCE = 1.0


class _Copy:
    """Of what another process reports."""

    __slots__ = ("asked", "attempt", "live")

    def __init__(self, attempt: int, live: LiveProgress | None, asked: float) -> None:
        self.attempt = attempt
        self.live = live
        self.asked = asked


class ProgressPublisher:
    """`publish` and `ended` are for who runs jobs, `look` and `live` for who tells of them. On one loop."""

    def __init__(
        self, shelf: ProgressStore, changed: Callable[[str], None], watched: Callable[[str], bool]
    ) -> None:
        """`changed` hears of every job that has moved on; `watched` says whether anybody waits for a job."""
        self._shelf = shelf
        self._changed = changed
        self._watched = watched
        self._mine: dict[str, tuple[int, LiveProgress]] = {}
        self._copies: dict[str, _Copy] = {}
        self._unsent: dict[AttemptKey, LiveProgress] = {}
        self._something = asyncio.Event()
        self._wanted: set[AttemptKey] = set()
        self._answer: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._away_until = -math.inf
        self._away = False

    async def open(self) -> None:
        for work in (self._send_on(), self._look_on()):
            self._task(asyncio.get_running_loop().create_task(work))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)
        if self._unsent:
            await self._put()
        await self._shelf.close()

    # --- who runs jobs

    def publish(self, attempt: AttemptKey, live: LiveProgress) -> None:
        job_id, fence = attempt
        self._mine[job_id] = (fence, live)
        if live.number:
            self._unsent[attempt] = live
            self._something.set()
            self._changed(job_id)

    def ended(self, attempt: AttemptKey) -> None:
        """What is on the shelf stays there for a while: others may not have heard of the end yet."""
        job_id, fence = attempt
        known = self._mine.get(job_id)
        if known is not None and known[0] == fence:
            del self._mine[job_id]

    async def _send_on(self) -> None:
        put_all = time.monotonic() + AGAIN
        while True:
            try:
                async with asyncio.timeout(max(0.0, put_all - time.monotonic())):
                    await self._something.wait()
            except TimeoutError:
                put_all = time.monotonic() + AGAIN
                for job_id, (fence, live) in self._mine.items():
                    if live.number:
                        self._unsent.setdefault((job_id, fence), live)
            self._something.clear()
            if self._unsent:
                await self._put()
                await asyncio.sleep(SEND)

    async def _put(self) -> None:
        batch, self._unsent = self._unsent, {}
        try:
            async with asyncio.timeout(PATIENCE):
                await self._shelf.put(batch)
        except Exception as error:
            self._failed(error)  # it is put again with the next ones, or after AGAIN seconds
        else:
            self._worked()

    def forget(self) -> None:
        """Drops all copies: the attempts that they are of may never have been."""
        self._copies.clear()

    # --- who tells of them

    def live(self, job: Job) -> LiveProgress | None:
        """The progress of the attempt that the record is about, as far as it is known here."""
        if job.lease_until is None:
            return None
        mine = self._mine.get(job.id)
        number = attempt_key(job)[1]
        if mine is not None and mine[0] == number:
            return mine[1] if mine[1].number else None
        copy = self._copies.get(job.id)
        return copy.live if copy is not None and copy.attempt == number else None

    def knows(self, job: Job) -> bool:
        """Whether `live` is fresh; asking keeps it so."""
        if job.lease_until is None:
            return True
        mine = self._mine.get(job.id)
        number = attempt_key(job)[1]
        if mine is not None and mine[0] == number:
            return True
        copy = self._copies.get(job.id)
        if copy is None or copy.attempt != number:
            return False
        copy.asked = time.monotonic()
        return True

    async def look(self, jobs: Iterable[Job]) -> None:
        """Reads what is not known of them; those who ask at the same time share a round trip."""
        unknown = [attempt_key(job) for job in jobs if not self.knows(job)]
        if not unknown or time.monotonic() < self._away_until:
            return
        if self._answer is None:
            loop = asyncio.get_running_loop()
            self._answer = loop.create_future()
            loop.call_soon(self._ask)
        self._wanted.update(unknown)
        await asyncio.shield(self._answer)

    def _ask(self) -> None:
        wanted, self._wanted = list(self._wanted), set()
        answer, self._answer = self._answer, None
        assert answer is not None
        task = asyncio.get_running_loop().create_task(self._get(wanted))
        task.add_done_callback(lambda _: None if answer.done() else answer.set_result(None))
        self._task(task)

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            now = time.monotonic()
            for job_id, copy in list(self._copies.items()):
                if now - copy.asked > ASKED and not self._watched(job_id):
                    del self._copies[job_id]
            known = [(job_id, copy.attempt) for job_id, copy in self._copies.items()]
            for start in range(0, len(known), PAGE):
                await self._get(known[start : start + PAGE])

    async def _get(self, attempts: Sequence[AttemptKey]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                found = await self._shelf.get(attempts)
        except Exception as error:
            self._failed(error)
            return
        self._worked()
        now = time.monotonic()
        for attempt in attempts:
            self._heard(attempt, found.get(attempt), now)

    def _heard(self, attempt: AttemptKey, live: LiveProgress | None, now: float) -> None:
        job_id, number = attempt
        copy = self._copies.get(job_id)
        if copy is None or copy.attempt < number:
            if len(self._copies) >= MOST:
                del self._copies[next(iter(self._copies))]
            self._copies[job_id] = _Copy(number, live, now)
        elif copy.attempt > number or live is None or (copy.live and copy.live.number >= live.number):
            return
        else:
            copy.live = live
        if live is not None:
            self._changed(job_id)

    # --- bad days

    def _failed(self, error: Exception) -> None:
        self._away_until = time.monotonic() + PATIENCE
        if not self._away:
            self._away = True
            reason = str(error) or type(error).__name__
            log.warning("progress is not shared between replicas, trying again: %s", reason)

    def _worked(self) -> None:
        if self._away:
            self._away, self._away_until = False, -math.inf
            log.info("progress is shared again")

    def _task(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
