"""The writer thread with group commit: all queued operations share one transaction, so that one fsync covers them.

Operations that are submitted in one iteration of the event loop are queued at its end. Otherwise the thread would compete
with the loop for the interpreter lock, and commit the first operation alone.

1. Operations run in the order of submission.
2. A future resolves after the commit, never before.
3. An operation that raises does not affect the others: the batch is rolled back, and each operation runs alone. So an
   operation may run twice and must depend on its transaction only.
4. `StoreUnavailable` means that no operation of the transaction would succeed alone either. All of them fail with it, and
   the thread continues.
5. An operation whose future has timed out before it starts does not run.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from bide.core.wire.http import Event
from bide.server.store import StoreUnavailable
from bide.server.store.timeouts import Timeouts
from bide.server.store.transaction import Key, RecordKey, Transaction

T = TypeVar("T")
log = logging.getLogger("bide.store")
MAX_BATCH = 2000
# In a stream of small writes a commit waits PAUSE for more, because one operation costs as much as twenty. The first write
# after STREAM seconds without a commit does not wait, nor does a batch of MANY operations.
STREAM = 0.001
PAUSE = 0.0005
MANY = 8


class WriteOperation(NamedTuple):
    """A function of a transaction, and the jobs, idempotency keys and records that it is known to read. `stored` is called
    with its result after the commit.
    """

    run: Callable[[Transaction], Any]
    jobs: Sequence[str] = ()
    keys: Sequence[Key] = ()
    records: Sequence[RecordKey] = ()
    stored: Callable[[Any], None] | None = None


# Runs all operations in one transaction. Returns their results and events after the commit.
Transact = Callable[[Sequence[WriteOperation]], tuple[list[Any], list[Event]]]
_Queued = tuple[WriteOperation, "asyncio.Future[Any]", bool]


class GroupCommitWriter:
    """Owns the thread that calls `transact`. Call `submit` on the event loop only."""

    def __init__(
        self,
        transact: Transact,
        on_events: Callable[[Sequence[Event]], None],
        timeouts: Timeouts | None = None,
        on_delivered: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_delivered`: called in the thread, after the results of a transaction were passed to the event loop."""
        self._transact = transact
        self._on_delivered = on_delivered
        self._on_events = on_events
        self._timeouts = timeouts
        self._queue: SimpleQueue[list[_Queued] | None] = SimpleQueue()
        self._submitted: list[_Queued] = []  # in this iteration of the event loop
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._ended = -math.inf  # when the last transaction ended
        self._thread = threading.Thread(target=self._run, name="bide-writer", daemon=True)
        self._thread.start()

    def submit(
        self,
        run: Callable[[Transaction], T],
        *,
        jobs: Sequence[str] = (),
        keys: Sequence[Key] = (),
        records: Sequence[RecordKey] = (),
        first: bool = False,
        stored: Callable[[T], None] | None = None,
    ) -> asyncio.Future[T]:
        """Queue an operation. With `first`, its future resolves before the others of its commit, and never times out. The
        thread calls `stored` with the result immediately after the commit, before the event loop gets it.
        """
        if self._closed:  # the future would never resolve
            raise RuntimeError("the store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        if not self._submitted:
            self._loop.call_soon(self._enqueue)
        self._submitted.append((WriteOperation(run, jobs, keys, records, stored), future, first))
        if self._timeouts is not None and not first:
            self._timeouts.watch(future)
        return future

    def _enqueue(self) -> None:
        if self._submitted:
            self._queue.put(self._submitted)
            self._submitted = []

    async def close(self) -> None:
        self._closed = True
        self._enqueue()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            going = True
            while going:
                batch, going = self._next_batch()
                batch = [queued for queued in batch if not _answered(queued[1])]
                if batch:
                    done, events = self._write([op for op, _, _ in batch])
                    answers = [(f, r) for (_, f, first), r in zip(batch, done, strict=True) if first]
                    answers += [
                        (f, r) for (_, f, first), r in zip(batch, done, strict=True) if not first
                    ]
                    for (operation, _, _), result in zip(batch, done, strict=True):
                        if operation.stored is not None and not isinstance(result, _Failure):
                            try:
                                operation.stored(result)
                            except Exception:  # the event loop still gets the result
                                log.exception("a callback after a commit failed")
                    self._loop.call_soon_threadsafe(self._deliver, answers, events)
                    self._ended = time.monotonic()
                    self._on_delivered()
        except RuntimeError:  # the event loop is closed, so no caller waits for results
            log.debug("the event loop ended before the writer", exc_info=True)

    def _write(self, operations: Sequence[WriteOperation]) -> tuple[list[Any], list[Event]]:
        """Run all operations in one transaction, or each alone if one of them fails."""
        try:
            return self._transact(operations)
        except StoreUnavailable as error:
            return [_Failure(error)] * len(operations), []
        except Exception as error:
            if len(operations) == 1:
                return [_Failure(error)], []
        results: list[Any] = []
        events: list[Event] = []
        for operation in operations:
            done, added = self._write([operation])
            results += done
            events += added
        return results, events

    def _next_batch(self) -> tuple[list[_Queued], bool]:
        first = self._queue.get()
        if first is None:
            return [], False
        batch = first
        if len(batch) < MANY and time.monotonic() - self._ended < STREAM:
            time.sleep(PAUSE)
        while len(batch) < MAX_BATCH and not self._queue.empty():
            more = self._queue.get()
            if more is None:
                return batch, False
            batch += more
        return batch, True

    def _deliver(self, answers: list[tuple[asyncio.Future[Any], Any]], events: list[Event]) -> None:
        for future, result in answers:
            if future.done():  # cancelled, or timed out
                continue
            if isinstance(result, _Failure):
                future.set_exception(result.error)
            else:
                future.set_result(result)
        if events:
            # After the futures' callbacks: the engine must know a claimed job before it receives an event about it.
            self._loop.call_soon(self._on_events, events)


def _answered(future: asyncio.Future[Any]) -> bool:
    """Whether the future has timed out. A cancelled caller does not count: its operation still runs."""
    return future.done() and not future.cancelled()


class _Failure:
    """Wraps an operation's exception, because a result may be an exception, too."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error
