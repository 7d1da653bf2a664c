"""From a submission to a stored job: is it well formed, is it allowed, is it new?

Nothing is stored unless all of it is right; what is stored is on disk before `submit` returns.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec.structs import replace

from bide.core.clock import read_instant
from bide.core.errors import (
    IdempotencyConflict,
    IdempotencyKeyRequired,
    InvalidInput,
    MalformedRequest,
    Problem,
)
from bide.core.record import FileInfo, Job
from bide.core.wire import job_id
from bide.server.registry import NAME, File, FileRef, Kind, Registry, pointer
from bide.server.store import InputFile, Inserted, Jobs, KeyConflict, Missing, NewJob
from bide.server.worker.protocol import Spawn

Label = Annotated[str, msgspec.Meta(max_length=255)]


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The body of POST /jobs."""

    kind: str
    input: msgspec.Raw = msgspec.Raw(b"{}")
    priority: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] = 0
    queue: str | None = None
    run_at: str | None = None
    deadline: str | None = None
    labels: Annotated[dict[Label, Label], msgspec.Meta(max_length=50)] = {}


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    jobs: list[msgspec.Raw]


_submission = msgspec.json.Decoder(Submission)
_batch = msgspec.json.Decoder(_Batch)


def read_submission(body: bytes | msgspec.Raw) -> Submission:
    return _decode(_submission, body)


def read_batch(body: bytes, most: int) -> list[msgspec.Raw]:
    jobs = _decode(_batch, body).jobs
    if len(jobs) > most:
        raise InvalidInput(
            f"{len(jobs)} submissions in one batch; at most {most} are taken",
            errors=[{"pointer": "/jobs", "detail": f"more than {most} items"}],
        )
    return jobs


T = TypeVar("T")


def _decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at ")
        place = _pointer(path, text)
        raise InvalidInput(
            f"{place or 'the body'}: {text}", errors=[{"pointer": place, "detail": text}]
        ) from None
    except msgspec.DecodeError as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from None
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"the body is not UTF-8: {error}") from None
    except RecursionError:
        raise MalformedRequest("the body is nested too deeply") from None


def _pointer(path: str, text: str) -> str:
    """msgspec's `$.jobs[3].kind` as the JSON pointer /jobs/3/kind."""
    parts = [name or index for name, index in re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", path)]
    unknown = re.search(r"unknown field `(.*)`", text)
    return pointer(*parts, *([unknown[1]] if unknown else []))


class _Random:
    """What the system's generator gives, asked for a page at a time: each question costs more than the bytes."""

    def __init__(self) -> None:
        self._bytes = b""
        self._used = 0

    def take(self, size: int) -> bytes:
        begin, self._used = self._used, self._used + size
        if self._used > len(self._bytes):
            self._bytes = os.urandom(4096)
            begin, self._used = 0, size
        return self._bytes[begin : self._used]


class Intake:
    """Takes submissions in. `nudge` tells the engine that there is work."""

    def __init__(self, registry: Registry, store: Jobs, nudge: Callable[[str, str], None]) -> None:
        self._registry = registry
        self._store = store
        self._nudge = nudge
        self._random = _Random()

    async def submit(self, submission: Submission, *, key: str | None = None, trace_id: str) -> Inserted:
        new = await self.prepare(submission, key=key, trace_id=trace_id)
        (outcome,) = await self._insert([new])
        return _accepted(outcome, new)

    async def submit_many(
        self, bodies: Sequence[msgspec.Raw], *, key: str | None, trace_id: str
    ) -> list[Inserted | Problem]:
        """Each on its own: a bad one keeps no other out. All good ones are stored in one commit."""
        prepared: list[NewJob | Problem] = []
        for i, body in enumerate(bodies):
            own_key = None if key is None else f"{key}/{i}"
            try:
                prepared.append(
                    await self.prepare(read_submission(body), key=own_key, trace_id=trace_id)
                )
            except Problem as problem:
                prepared.append(problem)
        stored = iter(await self._insert([p for p in prepared if isinstance(p, NewJob)]))
        return [p if isinstance(p, Problem) else _or_problem(next(stored), p) for p in prepared]

    def _insert(self, new: Sequence[NewJob]) -> Awaitable[list[Inserted | KeyConflict]]:
        storing = self._store.insert(new)
        # Before the commit: the claim then rides in the same transaction.
        for queue, kind in {(item.job.queue, item.job.kind) for item in new}:
            self._nudge(queue, kind)
        return storing

    async def prepare(
        self,
        submission: Submission,
        *,
        key: str | None = None,
        trace_id: str | None = None,
        parent: Job | None = None,
    ) -> NewJob:
        """The job that a submission asks for; a Problem when it cannot be. Stores nothing."""
        kind = self._registry.kind(submission.kind)
        if kind.require_key and key is None and parent is None:
            raise IdempotencyKeyRequired(f"kind {kind.name} needs an Idempotency-Key header")
        now = self._store.now()
        run_at, deadline = self._times(submission, now)
        job = Job(
            id=job_id(now, self._random.take(16)),
            kind=kind.name,
            queue=_queue(submission, kind),
            created_at=now,
            updated_at=now,
            priority=submission.priority,
            labels=submission.labels,
            run_at=run_at,
            due=max(now, run_at or now),
            deadline=deadline,
            max_attempts=kind.policy.retries + 1,
            keep=kind.retention,
            trace_id=trace_id,
            parent=parent.id if parent else None,
        )
        files = await self._files(kind, submission, parent)
        fingerprint = _fingerprint(submission) if key is not None else b""
        return NewJob(job, bytes(submission.input), files, key, fingerprint)

    async def admit(self, message: Spawn, parent: Job) -> NewJob:
        """A spawned job goes through the same door as a submitted one."""
        submission = Submission(kind=message.kind, input=msgspec.Raw(message.input))
        new = await self.prepare(submission, trace_id=parent.trace_id, parent=parent)
        return replace(new, job=replace(new.job, id=message.child_id))

    @staticmethod
    def _times(submission: Submission, now: float) -> tuple[float | None, float | None]:
        run_at = _instant("runAt", submission.run_at)
        deadline = _instant("deadline", submission.deadline)
        if deadline is not None and deadline <= max(now, run_at or now):
            detail = "the deadline is past, or not after runAt"
            raise InvalidInput(detail, errors=[{"pointer": "/deadline", "detail": detail}])
        return run_at, deadline

    async def _files(
        self, kind: Kind, submission: Submission, parent: Job | None
    ) -> tuple[InputFile, ...]:
        """Checks the input, and that every file that it names is there."""
        refs: list[FileRef] = []

        def note(ref: FileRef) -> File:
            refs.append(ref)
            return File(ref)

        kind.check_input(bytes(submission.input), note)
        return tuple([InputFile(ref.job, await self._file(ref, parent)) for ref in refs])

    async def _file(self, ref: FileRef, parent: Job | None) -> FileInfo:
        if parent is not None and ref.job == parent.id:
            owner: Job | Missing = parent  # with files that are only stored together with this child
        else:
            (owner,) = await self._store.get([ref.job])
        found = (
            None
            if isinstance(owner, Missing)
            else next((f for f in owner.files if f.name == ref.name), None)
        )
        if found is None:
            detail = f"job {ref.job} has no file {ref.name!r}"
            raise InvalidInput(detail, errors=[{"pointer": "/input", "detail": detail}])
        return found


def _instant(field: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return read_instant(text)
    except (ValueError, OverflowError) as error:
        detail = f"not an RFC 3339 instant: {error}"
        raise InvalidInput(
            f"{field}: {detail}", errors=[{"pointer": f"/{field}", "detail": detail}]
        ) from None


def _queue(submission: Submission, kind: Kind) -> str:
    queue = submission.queue if submission.queue is not None else kind.queue
    if not NAME.fullmatch(queue):
        detail = "letters, digits, '_', '.' and '-' only, at most 100 characters"
        raise InvalidInput(f"queue: {detail}", errors=[{"pointer": "/queue", "detail": detail}])
    return queue


def _fingerprint(submission: Submission) -> bytes:
    """The same for the same submission, however its JSON was written."""
    canonical = msgspec.json.encode(
        [msgspec.to_builtins(submission, builtin_types=(msgspec.Raw,)), None], order="sorted"
    )
    meaning = json.loads(canonical)  # which takes 1e999 too, as the schemas do
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).digest()


def _accepted(outcome: Inserted | KeyConflict, new: NewJob) -> Inserted:
    if isinstance(outcome, KeyConflict):
        raise IdempotencyConflict(
            f"this Idempotency-Key was used for another {new.job.kind}: job {outcome.job_id}"
        )
    return outcome


def _or_problem(outcome: Inserted | KeyConflict, new: NewJob) -> Inserted | Problem:
    try:
        return _accepted(outcome, new)
    except Problem as problem:
        return problem
