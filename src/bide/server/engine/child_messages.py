"""What attempts say, and what the store is told of it.

1. Messages of one attempt are carried out in their order, also when storing one of them takes a while.
2. A reserved job has begun before anything else is written about it.
3. A job is parked only when the children that it waits for are stored.
4. An attempt one of whose children could not be stored neither parks nor succeeds: it ends with the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core import job as changes
from bide.core import record
from bide.core.errors import Problem
from bide.core.job import Change
from bide.core.record import Job
from bide.core.retry import Outcome, Raised, Returned
from bide.server.engine.attempt import TAKEN, Attempt
from bide.server.engine.settlement import AGAIN, SettlementWriter
from bide.server.progress import AttemptKey, LiveProgress
from bide.server.store import JobStore, Missing, NewJob, StoreUnavailable
from bide.server.worker import protocol as p

log = logging.getLogger("bide.engine")
Admit = Callable[[p.Spawn, Job], Awaitable[NewJob]]  # how a spawned job is checked
End = Callable[[Attempt, "Outcome | Change | None"], None]


class MessageHandler:
    """Turns the messages of running attempts into changes."""

    def __init__(
        self,
        store: JobStore,
        recorder: SettlementWriter,
        admit: Admit,
        nudge: Callable[[str, str], None],
        end: End,
        publish: Callable[[AttemptKey, LiveProgress], None],
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._admit = admit
        self._nudge = nudge
        self._end = end
        self._publish = publish
        self._now = now

    def take(self, running: Attempt, message: p.AttemptMessage) -> None:
        """In order. A job behind one whose spawn is still being stored may have begun in its child; it has not here."""
        running.inbox.append(message)
        self.take_waiting(running)

    def take_waiting(self, running: Attempt) -> None:
        while running.inbox and not running.storing and running.started is not None:
            self._take(running, running.inbox.popleft())

    def _take(self, running: Attempt, message: p.AttemptMessage) -> None:
        running.sign = self._now()
        if running.incomplete and self._take_incomplete(running, message):
            return
        fields: dict[str, Any] = {
            "job_id": message.job_id,
            "owner": running.job.owner,
            "fence": message.fence,
        }
        match message:
            case p.ProgressChanged():
                running.moved(message.progress, self._store.now())
                if message.progress is not None:
                    self._publish(running.attempt, running.live)
            case p.LogLine():
                running.log.append(message.line)
            case p.StepBegan():
                self._recorder.write(
                    [*running.begin(), changes.StepStarted(name=message.step, **fields)]
                )
            case p.KeepStep():
                self._keep(running, message, fields)
            case p.ReadStep():
                self._recorder.carry_out(self._recall(running, message))
            case p.Spawn():
                self._spawn(running, message)
            case p.AttemptParked():
                running.moved(message.progress, self._store.now())
                parked = changes.Parked(
                    waiting_for=tuple(message.waiting_for),
                    files=tuple(message.files),
                    progress=message.progress,
                    **fields,
                )
                taken = running.stopping == TAKEN
                self._end(running, None if taken else running.cause or parked)
            case p.AttemptDone():
                running.took = message.took
                running.moved(message.progress, self._store.now())
                self._end(running, _returned(message))
            case p.AttemptFailed():
                running.moved(message.progress, self._store.now())
                raised = Raised(
                    code=message.code,
                    message=message.message,
                    retryable=message.retryable,
                    step=message.step,
                )
                self._end(running, running.cause or raised)
            case p.AttemptStopped():
                running.moved(message.progress, self._store.now())
                self._end(running, running.outcome_of_end())

    def _take_incomplete(self, running: Attempt, message: p.AttemptMessage) -> bool:
        """A message of an attempt whose child could not be stored; whether it is dealt with."""
        match message:
            case p.Spawn():
                pass
            case p.KeepStep() | p.ReadStep():  # the handler waits for the answer, and this one stops it
                running.child.send(p.StepReply(message.number, False))
            case p.AttemptParked() | p.AttemptDone():
                running.moved(message.progress, self._store.now())
                self._end(running, running.outcome_of_end())
            case _:
                return False
        return True

    def _keep(self, running: Attempt, message: p.KeepStep, fields: dict[str, Any]) -> None:
        change = changes.StepKept(
            name=message.step,
            result=msgspec.Raw(message.result),
            files=tuple(message.files),
            **fields,
        )

        def kept(outcome: Any) -> None:
            running.answer(message.number, stored=isinstance(outcome, Job), now=self._now())

        running.asked += 1
        self._recorder.write([*running.begin(), change], kept)
        # A child that is spawned later may be given one of these files, and a loss of the worker counts from this step.
        running.job = changes.advance(running.job, change, self._store.now())

    async def _recall(self, running: Attempt, message: p.ReadStep) -> None:
        """Sends a kept result to the handler that waits for it. Retries while the store is unavailable."""
        result: bytes | None = None
        running.asked += 1
        try:
            result = await self._recalled(running, message)
        except Exception as error:
            log.exception("job %s cannot read step %r", message.job_id, message.step)
            text = (
                f"the result of step {message.step!r} could not be read: {type(error).__name__}: {error}"
            )
            running.stop("step", self._now(), Raised(code="STEP_UNREADABLE", message=text))
        running.answer(message.number, result, stored=result is not None, now=self._now())

    async def _recalled(self, running: Attempt, message: p.ReadStep) -> bytes | None:
        while running.child.state != "gone":
            try:
                return await self._store.step(message.job_id, message.step)
            except StoreUnavailable as error:
                log.error("job %s cannot read a step, trying again: %s", message.job_id, error)
            if running.stopping is not None:
                break
            await asyncio.sleep(AGAIN)
        return None

    def _spawn(self, running: Attempt, message: p.Spawn) -> None:
        """Later messages of the same attempt wait until the child is stored."""
        running.storing = True

        async def store() -> None:
            try:
                if begun := running.begin():
                    self._recorder.write(begun)
                running.job = replace(running.job, files=(*message.files, *running.job.files))
                stored = await self._stored(running, message)
                if not isinstance(stored, Job):
                    running.incomplete = True
                    if stored is not None:
                        running.stop(TAKEN, self._now())
            except Problem as problem:
                places = "; ".join(e["detail"] for e in problem.errors or ())
                text = f"{message.kind} cannot be spawned: {problem.detail} {places}".strip()
                self._fail(running, "SPAWN_REFUSED", text, retryable=problem.retryable)
            except Exception as error:
                log.exception("job %s cannot spawn %s", running.job.id, message.kind)
                text = f"{message.kind} could not be stored: {type(error).__name__}: {error}"
                self._fail(running, "SPAWN_FAILED", text, retryable=True)
            finally:
                running.storing = False
                running.sign = self._now()
                self.take_waiting(running)

        self._recorder.carry_out(store())

    def _fail(self, running: Attempt, code: str, text: str, *, retryable: bool) -> None:
        """The attempt stops: it must not wait for a child that is not stored, nor end as if it were."""
        running.incomplete = True
        running.stop("spawn", self._now(), Raised(code=code, message=text, retryable=retryable))

    async def _stored(
        self, running: Attempt, message: p.Spawn
    ) -> Job | changes.Refused | Missing | None:
        """Checks and stores the child. Retries while the store is unavailable; None if the attempt stops before that."""
        new: NewJob | None = None
        while True:
            try:
                new = new or await self._admit(message, running.job)
                if not self._recorder.stuck:  # what was written before it comes first
                    link = record.Child(new.job.id, new.job.kind, message.key)
                    files = tuple(message.files)
                    stored = self._store.spawn(
                        changes.Spawned(
                            job_id=message.job_id,
                            owner=running.job.owner,
                            fence=message.fence,
                            child=link,
                            files=files,
                        ),
                        new,
                    )
                    self._nudge(new.job.queue, new.job.kind)
                    return await stored
            except StoreUnavailable as error:
                log.error("job %s cannot spawn, trying again: %s", running.job.id, error)
            if running.stopping is not None or (running.child.state == "gone" and not running.ended):
                return None
            await asyncio.sleep(AGAIN)


def _returned(message: p.AttemptDone) -> Returned:
    return Returned(
        result=msgspec.Raw(message.result) if message.result is not None else None,
        result_file=message.result_file,
        errors=None if message.errors is None else msgspec.json.decode(message.errors),
        files=tuple(message.files),
    )
