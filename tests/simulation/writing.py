"""The writer without its thread: commit and response take virtual time, and may fail."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from bide.core.wire.http import Event
from bide.server.store import StoreUnavailable
from bide.server.store.timeouts import Timeouts
from bide.server.store.writer import GroupCommitWriter, Transact, WriteOperation, _answered, _Failure
from tests.simulation.faults import Faults, Mode
from tests.simulation.loop import SimLoop

_Queued = tuple[WriteOperation, "asyncio.Future[Any]", bool, "Mode | None"]


class SimWriter(GroupCommitWriter):
    """An operation with a fault gets a transaction of its own; the others share one, as in the real writer."""

    def __init__(
        self,
        transact: Transact,
        on_events: Callable[[Sequence[Event]], None],
        timeouts: Timeouts | None,
        on_delivered: Callable[[], None],
        *,
        loop: SimLoop,
        rng: random.Random,
        faults: Faults,
        loses_responses: bool,
        begin: Callable[[], None],
        end: Callable[[bool], None],
    ) -> None:
        """`loses_responses`: this writer loses responses; otherwise `transact` does. `begin` and `end` are called around
        each transaction; `end` gets whether the transaction may be stored.
        """
        self._transact = transact
        self._on_events = on_events
        self._on_delivered = on_delivered
        self._timeouts = timeouts
        self._loop = loop
        self._closed = False
        self.dead = False
        self._rng = rng
        self._faults = faults
        self._loses_responses = loses_responses
        self._before = begin
        self._after = end
        self._queued: list[_Queued] = []
        self._busy = False

    def submit(
        self,
        run: Callable[[Any], Any],
        *,
        jobs: Sequence[str] = (),
        keys: Sequence[Any] = (),
        records: Sequence[Any] = (),
        first: bool = False,
        stored: Callable[[Any], None] | None = None,
    ) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        if self.dead:  # the process is dead, so the future never resolves
            return future
        if self._closed:
            raise RuntimeError("the store is closed")
        self._queued.append(
            (WriteOperation(run, jobs, keys, records, stored), future, first, self._faults.next())
        )
        if self._timeouts is not None and not first:
            self._timeouts.watch(future)
        self._begin(self._rng.uniform(0, 0.002))
        return future

    def _begin(self, delay: float) -> None:
        if not self._busy and self._queued:
            self._busy = True
            self._loop.call_later(delay, self._commit)

    def _commit(self) -> None:
        if self._queued[0][3] == "late":
            operation, future, first, _ = self._queued[0]
            self._queued[0] = (operation, future, first, None)
            self._loop.call_later(self._faults.duration(), self._commit)
            return
        self._busy = False
        batch, mode = self._batch()
        batch = [queued for queued in batch if not _answered(queued[1])]
        if batch:
            done, events = self._carried_out([queued[0] for queued in batch], mode)
            if mode == "unheard" and self._loses_responses and not batch[0][2]:
                # The response to a claim is never lost, because only this process knows of its jobs.
                done = [_Failure(StoreUnavailable("it is unknown whether this was stored"))]
            for queued, result in zip(batch, done, strict=True):
                if queued[0].stored is not None and not isinstance(result, _Failure):
                    queued[0].stored(result)
            answers = [(future, result) for (_, future, _, _), result in zip(batch, done, strict=True)]
            self._loop.call_later(self._rng.uniform(0, 0.001), self._deliver, answers, events)
            self._on_delivered()
        self._begin(self._rng.uniform(0, 0.002))

    def _batch(self) -> tuple[list[_Queued], Mode | None]:
        mode = self._queued[0][3]
        size = 1
        if mode is None:
            while size < len(self._queued) and self._queued[size][3] is None:
                size += 1
        batch, self._queued = self._queued[:size], self._queued[size:]
        return batch, "refused" if self._faults.out else mode

    def _carried_out(
        self, operations: Sequence[WriteOperation], mode: Mode | None
    ) -> tuple[list[Any], list[Event]]:
        self._before()
        if mode is None or (mode == "unheard" and self._loses_responses):
            done, events = self._write(operations)
        else:
            with self._faults.meet(mode):
                done, events = self._write(operations)
        self._after(mode == "unheard" or not all(isinstance(result, _Failure) for result in done))
        return done, events

    async def close(self) -> None:
        self._closed = True
        while self._queued or self._busy:
            await asyncio.sleep(0.01)
