"""One thread that writes: everything that is queued goes into one transaction, so that one fsync covers all of it.

What one round of the loop submits is handed over at its end: the thread would otherwise fight with the loop for the
interpreter, one statement at a time, and commit the first operation alone.

1. Operations run in the order in which they were submitted.
2. A future resolves after the commit, never before.
3. An operation that raises takes none of the others with it: the batch is rolled back and each one is tried alone.
   So an operation must be a function of its transaction only, for it may run twice.
4. What the database cannot write is told as `Unwritable`, with what to do; the thread goes on.
5. What was answered before its turn came, because it had to wait for too long, is not carried out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from bide.core.wire import Event
from bide.server.store import StoreUnavailable

T = TypeVar("T")
log = logging.getLogger("bide.store")
MOST_AT_ONCE = 2000
# In a stream of small writes a commit waits a moment for more, for it costs as much for one as for twenty. Whoever
# writes after a silence does not wait.
STREAM = 0.001  # seconds since the last commit: no silence
PAUSE = 0.0005
MANY = 8


Key = tuple[str, str, str]  # tenant, kind, key


class WriteOperation(NamedTuple):
    """What is to be done with a transaction, and the jobs and idempotency keys that it is known to need."""

    run: Callable[[Any], Any]
    jobs: Sequence[str] = ()
    keys: Sequence[Key] = ()


class WriteSession(Protocol):
    """A connection of the writer's own."""

    def transact(self, operations: Sequence[WriteOperation]) -> tuple[list[Any], list[Event]]:
        """All of them in one transaction: their results and events, once it is committed. Unwritable: none of them
        could be carried out alone either.
        """
        ...

    def told(self, error: Exception) -> Exception:
        """What the caller of an operation that failed gets to see."""
        ...

    def close(self) -> None: ...


_Queued = tuple[WriteOperation, "asyncio.Future[Any]", bool]


class GroupCommitWriter:
    """Owns the writing session. `submit` may be called from the loop only."""

    def __init__(self, session: WriteSession, heard: Callable[[Sequence[Event]], None]) -> None:
        self._session = session
        self._heard = heard
        self._queue: SimpleQueue[list[_Queued] | None] = SimpleQueue()
        self._round: list[_Queued] = []  # submitted since the last handing over
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._ended = -math.inf  # when the last transaction was
        self._thread = threading.Thread(target=self._run, name="bide-writer", daemon=True)
        self._thread.start()

    def submit(
        self,
        run: Callable[[Any], T],
        *,
        jobs: Sequence[str] = (),
        keys: Sequence[Key] = (),
        first: bool = False,
    ) -> asyncio.Future[T]:
        """`first`: of what one commit brings, this is told first."""
        if self._closed:  # its future would never resolve
            raise RuntimeError("the store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        if not self._round:
            self._loop.call_soon(self._hand_over)
        self._round.append((WriteOperation(run, jobs, keys), future, first))
        return future

    def _hand_over(self) -> None:
        if self._round:
            self._queue.put(self._round)
            self._round = []

    async def close(self) -> None:
        self._closed = True
        self._hand_over()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            going = True
            while going:
                batch, going = self._gather()
                batch = [queued for queued in batch if not _answered(queued[1])]
                if batch:
                    done, events = self._write([op for op, _, _ in batch])
                    answers = [(f, r) for (_, f, first), r in zip(batch, done, strict=True) if first]
                    answers += [
                        (f, r) for (_, f, first), r in zip(batch, done, strict=True) if not first
                    ]
                    self._loop.call_soon_threadsafe(self._deliver, answers, events)
                    self._ended = time.monotonic()
        except RuntimeError:  # the loop was closed without us: nobody is left to tell
            log.debug("the loop ended before the writer", exc_info=True)
        finally:
            self._session.close()

    def _write(self, operations: Sequence[WriteOperation]) -> tuple[list[Any], list[Event]]:
        """All of them in one transaction, or each alone when one of them cannot be."""
        try:
            return self._session.transact(operations)
        except StoreUnavailable as error:
            return [_Failure(error)] * len(operations), []
        except Exception as error:
            if len(operations) == 1:
                return [_Failure(self._session.told(error))], []
        results: list[Any] = []
        events: list[Event] = []
        for operation in operations:
            done, told = self._write([operation])
            results += done
            events += told
        return results, events

    def _gather(self) -> tuple[list[_Queued], bool]:
        first = self._queue.get()
        if first is None:
            return [], False
        batch = first
        if len(batch) < MANY and time.monotonic() - self._ended < STREAM:
            time.sleep(PAUSE)
        while len(batch) < MOST_AT_ONCE and not self._queue.empty():
            more = self._queue.get()
            if more is None:
                return batch, False
            batch += more
        return batch, True

    def _deliver(self, answers: list[tuple[asyncio.Future[Any], Any]], events: list[Event]) -> None:
        for future, result in answers:
            if future.done():  # its caller has left
                continue
            if isinstance(result, _Failure):
                future.set_exception(result.error)
            else:
                future.set_result(result)
        if events:
            # After the callbacks of those futures: who was given a job must know it before the job's next change.
            self._loop.call_soon(self._heard, events)


def _answered(future: asyncio.Future[Any]) -> bool:
    """A caller that has only left does not count: what it asked for is done all the same."""
    return future.done() and not future.cancelled()


class _Failure:
    """An operation's exception, told apart from a result that happens to be one."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error
