"""Stores the changes and outcomes of attempts, and retries while the store is unavailable.

A finished attempt is not lost because a disk is full for a minute: the runner renews the leases of the attempts in
`unwritten` until their changes are stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from bide.core.jobs.state_machine import Begun, Change, Emitted, Refused, WrongStatus
from bide.server.runner.attempt import Attempt
from bide.server.store import JobStore, StoreUnavailable

log = logging.getLogger("bide.engine")
RETRY_AFTER = 1.0
GROUP_DELAY = 0.002
CHECK_EVERY = 0.01  # seconds between two checks whether everything is stored
Then = Callable[[Any], None]
# Changes of one job, and the callback for the outcome of the last one.
_Entry = tuple[Sequence[Change], Then | None]


class SettlementWriter:
    """Writes changes to the store in order, in groups."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._delayed: list[_Entry] = []
        # Lists that are being written or wait for a retry of their own, by the identity of the list.
        self._submitted: dict[int, list[_Entry]] = {}
        self.blocked: list[_Entry] = []  # waits until the store is available again, in order
        self.skip_wait = False  # after a second signal, a shutdown does not wait for the store
        self._closed = False

    def write(self, changes: Sequence[Change], then: Then | None = None) -> None:
        """Queue changes of one job; `then` gets the outcome of the last one."""
        entries, self._delayed = [*self._delayed, (changes, then)], []
        self._submit(entries)

    def write_soon(self, changes: Sequence[Change], then: Then | None = None) -> None:
        """Like `write`, after GROUP_DELAY, so that attempts that end until then share one commit."""
        if not self._delayed:
            asyncio.get_running_loop().call_later(GROUP_DELAY, self.flush)
        self._delayed.append((changes, then))

    def flush(self) -> None:
        """Submit the delayed changes."""
        if self._delayed:
            entries, self._delayed = self._delayed, []
            self._submit(entries)

    def _submit(self, entries: list[_Entry], *, again: bool = False) -> None:
        if self.blocked or self._closed:  # changes of a job must be stored in order
            self._submitted.pop(id(entries), None)
            self.blocked += entries
            return

        def stored(future: asyncio.Future[Any]) -> None:
            self._in_flight.discard(future)
            self._submitted.pop(id(entries), None)
            if future.cancelled():
                return
            error = future.exception()
            if error is not None:
                log.error("cannot store the changes of %d jobs; retrying: %s", len(entries), error)
                self._postpone(entries, error)
                return
            outcomes = iter(future.result())
            early: list[_Entry] = []
            for changes, then in entries:
                for _ in changes:
                    outcome = next(outcomes)
                if isinstance(outcome, Refused) and self._follows_blocked(changes):
                    self.blocked.append((changes, then))
                elif _not_begun(outcome) and (not again or self._begin_in_flight(changes)):
                    early.append((changes, then))
                elif then is not None:
                    then(outcome)
            if early:
                self._submit_later(early, again=True)

        self._submitted[id(entries)] = entries
        applying = self._store.apply([c for changes, _ in entries for c in changes])
        self._in_flight.add(writing := asyncio.ensure_future(applying))
        writing.add_done_callback(stored)

    def _follows_blocked(self, changes: Sequence[Change]) -> bool:
        """Whether an earlier change of the same job is blocked, which explains the refusal: the store became available
        between the two writes.
        """
        jobs = {change.job_id for change in changes}
        return any(change.job_id in jobs for held, _ in self.blocked for change in held)

    def _begin_in_flight(self, changes: Sequence[Change]) -> bool:
        """Whether a `Begun` of the same job is being written."""
        jobs = {change.job_id for change in changes}
        writing = (
            change for entries in self._submitted.values() for some, _ in entries for change in some
        )
        return any(isinstance(change, Begun) and change.job_id in jobs for change in writing)

    def _postpone(self, entries: list[_Entry], error: BaseException) -> None:
        entries = [([_repeated(change) for change in changes], then) for changes, then in entries]
        if not isinstance(error, StoreUnavailable):  # these entries are at fault: do not block others
            self._submit_later(entries, again=False)
            return
        if not self.blocked:
            asyncio.get_running_loop().call_later(RETRY_AFTER, self._retry_blocked)
        self.blocked += entries

    def _submit_later(self, entries: list[_Entry], *, again: bool) -> None:
        self._submitted[id(entries)] = entries
        asyncio.get_running_loop().call_later(RETRY_AFTER, partial(self._submit, entries, again=again))

    def _retry_blocked(self) -> None:
        entries, self.blocked = self.blocked, []
        self._submit(entries)

    def unwritten(self) -> set[tuple[str, int]]:
        """The (job id, fence) of attempts that have changes which are not stored yet."""
        waiting = [self._delayed, self.blocked, *self._submitted.values()]
        return {
            (change.job_id, change.fence)
            for entries in waiting
            for changes, _ in entries
            for change in changes
            if change.fence is not None
        }

    def write_log(self, attempt: Attempt) -> None:
        if attempt.log:
            self.flush()  # delayed changes come first
            lines, attempt.log = attempt.log, []
            # Queued immediately, so that a job's last lines are stored before its end.
            job = attempt.job
            self.run_in_background(self._store.log(job.id, job.owner or "", job.fence, lines))

    def run_in_background(self, work: Awaitable[Any]) -> None:
        """Run a task in the background; `finish` and `close` wait for it."""
        task = asyncio.ensure_future(work)
        self._in_flight.add(task)
        task.add_done_callback(self._background_done)

    def _background_done(self, task: asyncio.Future[Any]) -> None:
        self._in_flight.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            trace = None if isinstance(error, StoreUnavailable) else error
            log.error("a background task of the runner failed: %s", error, exc_info=trace)

    async def finish(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until everything is stored. The caller renews the leases during that time."""
        self.flush()
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while (self._in_flight or self.unwritten()) and not self.skip_wait:
            if loop.time() >= end:
                return
            await asyncio.sleep(CHECK_EVERY)

    async def close(self) -> None:
        """Discard the changes that are not stored by now. Wait for writes in flight."""
        self.flush()
        self._closed = True
        while self._in_flight:
            await asyncio.wait(self._in_flight)
        if discarded := {job_id for job_id, _ in self.unwritten()}:
            log.error(
                "the store was unavailable until the shutdown: the last changes of %d jobs are discarded, "
                "and their attempts count as lost: %s",
                len(discarded),
                ", ".join(sorted(discarded)),
            )


def _repeated(change: Change) -> Change:
    """The change as it is written again: the first write may have been stored, although its response was lost."""
    return replace(change, repeated=True) if isinstance(change, Emitted) else change


def _not_begun(outcome: Any) -> bool:
    """Whether the attempt still owns the job, and the change was refused only because its `Begun` was not stored yet.

    The `Begun` was blocked and then submitted again, and may be stored by the time this refusal arrives.
    """
    if not isinstance(outcome, WrongStatus):
        return False
    job, change = outcome.job, outcome.change
    return job.held and (job.owner, job.fence) == (change.owner, change.fence)
