"""Writes what becomes of attempts, and goes on trying when the store cannot take it now.

Nothing that a child has finished is given up because a disk was full for a minute: `unwritten` names the attempts whose
leases are renewed meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from bide.core.job import Begun, Change, Refused, WrongStatus
from bide.server.engine.attempt import Attempt
from bide.server.store import Store, StoreUnavailable

log = logging.getLogger("bide.engine")
AGAIN = 1.0
MOMENT = 0.002
PAUSE = 0.01  # seconds between two looks whether everything is stored
Then = Callable[[Any], None]


class SettlementWriter:
    """The engine's pen."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._under_way: set[asyncio.Future[Any]] = set()
        self._later: list[tuple[Sequence[Change], Then | None]] = []
        # What was submitted, or is to be tried alone again, by the identity of its list.
        self._submitted: dict[int, list[tuple[Sequence[Change], Then | None]]] = {}
        self.stuck: list[
            tuple[Sequence[Change], Then | None]
        ] = []  # what a full disk holds up, in its order
        self.hurried = False  # a second signal: the shutdown does not wait for the store
        self._closed = False

    def write(self, changes: Sequence[Change], then: Then | None = None) -> None:
        """Queues changes of one job; `then` gets the outcome of the last one."""
        self._later.append((changes, then))
        self.flush()

    def write_soon(self, changes: Sequence[Change], then: Then | None = None) -> None:
        """The same, together with what ends in the next moment: one commit for all of it."""
        if not self._later:
            asyncio.get_running_loop().call_later(MOMENT, self.flush)
        self._later.append((changes, then))

    def flush(self) -> None:
        """Queues what was put off."""
        if self._later:
            pages, self._later = self._later, []
            self._submit(pages)

    def _submit(self, pages: list[tuple[Sequence[Change], Then | None]], *, again: bool = False) -> None:
        if self.stuck or self._closed:  # a job's step is not kept before it was begun
            self._submitted.pop(id(pages), None)
            self.stuck += pages
            return

        def stored(future: asyncio.Future[Any]) -> None:
            self._under_way.discard(future)
            self._submitted.pop(id(pages), None)
            if future.cancelled():
                return
            error = future.exception()
            if error is not None:
                log.error("%d changes cannot be stored, trying again: %s", len(pages), error)
                self._put_off(pages, error)
                return
            outcomes = iter(future.result())
            early: list[tuple[Sequence[Change], Then | None]] = []
            for changes, then in pages:
                for _ in changes:
                    outcome = next(outcomes)
                if isinstance(outcome, Refused) and self._waits(changes):
                    self.stuck.append((changes, then))
                elif _not_begun(outcome) and (not again or self._begins(changes)):
                    early.append((changes, then))
                elif then is not None:
                    then(outcome)
            if early:
                self._submit_later(early, again=True)

        self._submitted[id(pages)] = pages
        applying = self._store.apply([c for changes, _ in pages for c in changes])
        self._under_way.add(writing := asyncio.ensure_future(applying))
        writing.add_done_callback(stored)

    def _waits(self, changes: Sequence[Change]) -> bool:
        """Whether something of the same job is held up, without which this had to be refused: there was room again only
        when this one was written, and both were on their way.
        """
        jobs = {change.job_id for change in changes}
        return any(change.job_id in jobs for held, _ in self.stuck for change in held)

    def _begins(self, changes: Sequence[Change]) -> bool:
        """Whether the beginning of the same job is being written."""
        jobs = {change.job_id for change in changes}
        writing = (change for pages in self._submitted.values() for some, _ in pages for change in some)
        return any(isinstance(change, Begun) and change.job_id in jobs for change in writing)

    def _put_off(self, pages: list[tuple[Sequence[Change], Then | None]], error: BaseException) -> None:
        if not isinstance(error, StoreUnavailable):  # a fault of these pages: nobody else waits for them
            self._submit_later(pages, again=False)
            return
        if not self.stuck:
            asyncio.get_running_loop().call_later(AGAIN, self._again)
        self.stuck += pages

    def _submit_later(self, pages: list[tuple[Sequence[Change], Then | None]], *, again: bool) -> None:
        self._submitted[id(pages)] = pages
        asyncio.get_running_loop().call_later(AGAIN, partial(self._submit, pages, again=again))

    def _again(self) -> None:
        pages, self.stuck = self.stuck, []
        self._submit(pages)

    def unwritten(self) -> set[tuple[str, int]]:
        """The (job id, fence) of attempts of which something is not stored yet."""
        waiting = [self._later, self.stuck, *self._submitted.values()]
        return {
            (change.job_id, change.fence)
            for pages in waiting
            for changes, _ in pages
            for change in changes
            if change.fence is not None
        }

    def write_log(self, running: Attempt) -> None:
        if running.log:
            self.flush()  # what is put off comes first
            lines, running.log = running.log, []
            # Queued here and now, so that a job's last lines are stored before its end is.
            job = running.job
            self.carry_out(self._store.log(job.id, job.owner or "", job.fence, lines))

    def carry_out(self, work: Awaitable[Any]) -> None:
        """In the background, but not forgotten when the service stops."""
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._carried_out)

    def _carried_out(self, task: asyncio.Future[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            trace = None if isinstance(error, StoreUnavailable) else error
            log.error("the engine: %s", error, exc_info=trace)

    async def finish(self, patience: float) -> None:
        """Waits up to `patience` seconds until everything is stored. The caller renews the leases meanwhile."""
        self.flush()
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while (self._under_way or self.unwritten()) and not self.hurried:
            if loop.time() >= end:
                return
            await asyncio.sleep(PAUSE)

    async def close(self) -> None:
        """Gives up what the store has not taken by now. Waits for what it is writing."""
        self.flush()
        self._closed = True
        while self._under_way:
            await asyncio.wait(self._under_way)
        if given_up := {job_id for job_id, _ in self.unwritten()}:
            log.error(
                "the store took no writes until the shutdown: the last changes of %d jobs are discarded, "
                "and their attempts count as lost: %s",
                len(given_up),
                ", ".join(sorted(given_up)),
            )


def _not_begun(outcome: Any) -> bool:
    """Whether the job is still this attempt's, and only its beginning was not stored yet when this was refused.

    That was held up and then submitted again, perhaps stored, before this refusal was received.
    """
    if not isinstance(outcome, WrongStatus):
        return False
    job, change = outcome.job, outcome.change
    return job.held and (job.owner, job.fence) == (change.owner, change.fence)
