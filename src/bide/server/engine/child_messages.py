"""Handles the messages of running attempts: stores steps, spawned jobs and outcomes, and publishes progress.

1. Messages of one attempt are handled in order, even while an earlier one is being stored.
2. The `Begun` change of a prefetched job is written before its other changes.
3. A job is parked only after the spawned jobs that it waits for are stored.
4. If a spawned job cannot be stored, the attempt neither parks nor succeeds: it fails with the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.errors import Problem
from bide.core.jobs import record
from bide.core.jobs import state_machine as changes
from bide.core.jobs.record import Job
from bide.core.jobs.retry import Outcome, Raised, Returned
from bide.core.jobs.state_machine import Change
from bide.server.engine.attempt import LEASE_LOST, Attempt
from bide.server.engine.settlement import RETRY_AFTER, SettlementWriter
from bide.server.progress import AttemptKey, LiveProgress
from bide.server.store import JobStore, Missing, NewJob, StoreUnavailable
from bide.server.worker import protocol as p

log = logging.getLogger("bide.engine")
PrepareSpawn = Callable[[p.Spawn, Job], Awaitable[NewJob]]  # validates a spawned job
End = Callable[[Attempt, "Outcome | Change | None"], None]


class MessageHandler:
    """Turns messages into changes of jobs."""

    def __init__(
        self,
        store: JobStore,
        settlement: SettlementWriter,
        prepare_spawn: PrepareSpawn,
        hint: Callable[[str, str], None],
        end: End,
        publish: Callable[[AttemptKey, LiveProgress], None],
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._settlement = settlement
        self._prepare_spawn = prepare_spawn
        self._hint = hint
        self._end = end
        self._publish = publish
        self._now = now

    def handle(self, attempt: Attempt, message: p.AttemptMessage) -> None:
        """Queue a message, and handle the queued messages that can be handled now. A prefetched job may start in its child
        while a spawn of the job before it is still being stored: its messages wait until `Attempt.start`.
        """
        attempt.inbox.append(message)
        self.handle_queued(attempt)

    def handle_queued(self, attempt: Attempt) -> None:
        while attempt.inbox and not attempt.storing and attempt.started is not None:
            self._handle(attempt, attempt.inbox.popleft())

    def _handle(self, attempt: Attempt, message: p.AttemptMessage) -> None:
        attempt.last_activity = self._now()
        if attempt.incomplete and self._handle_incomplete(attempt, message):
            return
        fields: dict[str, Any] = {
            "job_id": message.job_id,
            "owner": attempt.job.owner,
            "fence": message.fence,
        }
        match message:
            case p.ProgressChanged():
                attempt.update_progress(message.progress, self._store.now())
                if message.progress is not None:
                    self._publish(attempt.key, attempt.live)
            case p.JobLogLine():
                attempt.log.append(message.line)
            case p.StepBegan():
                self._settlement.write(
                    [*attempt.begin_changes(), changes.StepStarted(name=message.step, **fields)]
                )
            case p.KeepStep():
                self._keep_step(attempt, message, fields)
            case p.ReadStep():
                self._settlement.run_in_background(self._read_step(attempt, message))
            case p.Spawn():
                self._spawn(attempt, message)
            case p.AttemptParked():
                attempt.update_progress(message.progress, self._store.now())
                parked = changes.Parked(
                    waiting_for=tuple(message.waiting_for),
                    files=tuple(message.files),
                    progress=message.progress,
                    **fields,
                )
                lost = attempt.stopping == LEASE_LOST
                self._end(attempt, None if lost else attempt.cause or parked)
            case p.AttemptDone():
                attempt.duration = message.took
                attempt.update_progress(message.progress, self._store.now())
                self._end(attempt, _returned(message))
            case p.AttemptFailed():
                attempt.update_progress(message.progress, self._store.now())
                raised = Raised(
                    code=message.code,
                    message=message.message,
                    retryable=message.retryable,
                    step=message.step,
                )
                self._end(attempt, attempt.cause or raised)
            case p.AttemptStopped():
                attempt.update_progress(message.progress, self._store.now())
                self._end(attempt, attempt.outcome_of_exit())

    def _handle_incomplete(self, attempt: Attempt, message: p.AttemptMessage) -> bool:
        """Handle a message of an attempt whose spawned job could not be stored. Returns False if the message needs no
        special treatment.
        """
        match message:
            case p.Spawn():
                pass
            case p.KeepStep() | p.ReadStep():  # this reply stops the handler
                attempt.child.send(p.StepReply(message.number, False))
            case p.AttemptParked() | p.AttemptDone():
                attempt.update_progress(message.progress, self._store.now())
                self._end(attempt, attempt.outcome_of_exit())
            case _:
                return False
        return True

    def _keep_step(self, attempt: Attempt, message: p.KeepStep, fields: dict[str, Any]) -> None:
        change = changes.StepKept(
            name=message.step,
            result=msgspec.Raw(message.result),
            files=tuple(message.files),
            **fields,
        )

        def kept(outcome: Any) -> None:
            attempt.reply(message.number, stored=isinstance(outcome, Job), now=self._now())

        attempt.pending_replies += 1
        self._settlement.write([*attempt.begin_changes(), change], kept)
        # A job spawned later may use these files, and worker losses are counted from this step on.
        attempt.job = changes.advance(attempt.job, change, self._store.now())

    async def _read_step(self, attempt: Attempt, message: p.ReadStep) -> None:
        """Send a stored step result to the handler. Retries while the store is unavailable."""
        result: bytes | None = None
        attempt.pending_replies += 1
        try:
            result = await self._stored_step(attempt, message)
        except Exception as error:
            log.exception("job %s: cannot read step %r from the store", message.job_id, message.step)
            text = (
                f"the result of step {message.step!r} could not be read: {type(error).__name__}: {error}"
            )
            attempt.stop("step", self._now(), Raised(code="STEP_UNREADABLE", message=text))
        attempt.reply(message.number, result, stored=result is not None, now=self._now())

    async def _stored_step(self, attempt: Attempt, message: p.ReadStep) -> bytes | None:
        while attempt.child.state != "gone":
            try:
                return await self._store.step(message.job_id, message.step)
            except StoreUnavailable as error:
                log.error(
                    "job %s: cannot read step %r; retrying: %s", message.job_id, message.step, error
                )
            if attempt.stopping is not None:
                break
            await asyncio.sleep(RETRY_AFTER)
        return None

    def _spawn(self, attempt: Attempt, message: p.Spawn) -> None:
        """Store a spawned job. Later messages of the attempt wait until it is stored."""
        attempt.storing = True

        async def store() -> None:
            try:
                if begun := attempt.begin_changes():
                    self._settlement.write(begun)
                attempt.job = replace(attempt.job, files=(*message.files, *attempt.job.files))
                stored = await self._store_child(attempt, message)
                if not isinstance(stored, Job):
                    attempt.incomplete = True
                    if stored is not None:
                        attempt.stop(LEASE_LOST, self._now())
            except Problem as problem:
                places = "; ".join(e["detail"] for e in problem.errors or ())
                text = f"{message.kind} cannot be spawned: {problem.detail} {places}".strip()
                self._fail(attempt, "SPAWN_REFUSED", text, retryable=problem.retryable)
            except Exception as error:
                log.exception("job %s: cannot store a spawned %s job", attempt.job.id, message.kind)
                text = f"{message.kind} could not be stored: {type(error).__name__}: {error}"
                self._fail(attempt, "SPAWN_FAILED", text, retryable=True)
            finally:
                attempt.storing = False
                attempt.last_activity = self._now()
                self.handle_queued(attempt)

        self._settlement.run_in_background(store())

    def _fail(self, attempt: Attempt, code: str, text: str, *, retryable: bool) -> None:
        """Stop the attempt: it must not wait for a job that is not stored, nor succeed without it."""
        attempt.incomplete = True
        attempt.stop("spawn", self._now(), Raised(code=code, message=text, retryable=retryable))

    async def _store_child(
        self, attempt: Attempt, message: p.Spawn
    ) -> Job | changes.Refused | Missing | None:
        """Validate and store the spawned job. Retries while the store is unavailable. None if the attempt stops first."""
        new: NewJob | None = None
        while True:
            try:
                new = new or await self._prepare_spawn(message, attempt.job)
                if not self._settlement.blocked:  # earlier changes must be stored first
                    link = record.Child(new.job.id, new.job.kind, message.key)
                    files = tuple(message.files)
                    stored = self._store.spawn(
                        changes.Spawned(
                            job_id=message.job_id,
                            owner=attempt.job.owner,
                            fence=message.fence,
                            child=link,
                            files=files,
                        ),
                        new,
                    )
                    self._hint(new.job.queue, new.job.kind)
                    return await stored
            except StoreUnavailable as error:
                log.error(
                    "job %s cannot spawn a %s job; retrying: %s", attempt.job.id, message.kind, error
                )
            if attempt.stopping is not None or (attempt.child.state == "gone" and not attempt.ended):
                return None
            await asyncio.sleep(RETRY_AFTER)


def _returned(message: p.AttemptDone) -> Returned:
    return Returned(
        result=msgspec.Raw(message.result) if message.result is not None else None,
        result_file=message.result_file,
        errors=None if message.errors is None else msgspec.json.decode(message.errors),
        files=tuple(message.files),
    )
