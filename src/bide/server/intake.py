"""Validates submissions and stores them as jobs.

A submission is stored only if all of it is valid, and is on disk before `submit` returns.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from random import getrandbits
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from bide.core.errors import (
    Gone,
    IdempotencyConflict,
    IdempotencyKeyRequired,
    InvalidInput,
    MalformedRequest,
    Problem,
    Unavailable,
    WrongContent,
)
from bide.core.jobs.input_paths import values_at
from bide.core.jobs.record import FileInfo, Job
from bide.core.wire.http import Dedupe, job_id, read_instant_at
from bide.server.admission import Admission
from bide.server.job_tracer import JobTracer
from bide.server.limits import ServiceLimits, forced, quota_exceeded
from bide.server.media_types import EMPTY, TEXT, accepts_texts, is_one_of
from bide.server.registry import NAME, File, FileRef, Kind, Registry, pointer
from bide.server.runner.slots import served
from bide.server.store import (
    InputFile,
    Inserted,
    Insertion,
    KeyConflict,
    KeyGone,
    LimitReached,
    Missing,
    NewJob,
    UploadStore,
)
from bide.server.upload_record import Upload, UploadStatus
from bide.server.webhooks import JobWebhook
from bide.server.webhooks.service import WebhookService
from bide.server.worker.protocol import Spawn

Label = Annotated[str, msgspec.Meta(max_length=255)]
EventName = Literal["status", "terminal", "step", "log", "output", "deleted"]


class SubmittedWebhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The endpoint that receives the events of the submitted job."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]
    events: Annotated[tuple[EventName, ...], msgspec.Meta(min_length=1, max_length=10)] = ("terminal",)
    secret: Annotated[str, msgspec.Meta(max_length=200)] | None = None


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The body of POST /jobs."""

    kind: str
    input: msgspec.Raw = msgspec.Raw(b"{}")
    priority: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] = 0
    queue: str | None = None
    run_at: str | None = None
    deadline: str | None = None
    labels: Annotated[dict[Label, Label], msgspec.Meta(max_length=50)] = {}
    dedupe: Dedupe | None = None  # return the existing job for the same files and input
    webhook: SubmittedWebhook | None = None


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    jobs: list[msgspec.Raw]


_submission = msgspec.json.Decoder(Submission)
_batch = msgspec.json.Decoder(_Batch)


def read_submission(body: bytes | msgspec.Raw) -> Submission:
    return decode(_submission, body)


def make_submission(fields: Mapping[str, Any]) -> Submission:
    """Return the submission with these fields. Raise InvalidInput like `read_submission`."""
    try:
        return msgspec.convert(fields, Submission)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None


def make_webhook(given: str | Mapping[str, Any]) -> SubmittedWebhook:
    """Return the webhook of a submission: a URL, or its fields. Raise InvalidInput like `read_submission`."""
    fields = {"url": given} if isinstance(given, str) else given
    submission = make_submission({"kind": "", "webhook": fields})
    assert submission.webhook is not None
    return submission.webhook


class CheckedSubmission(msgspec.Struct, frozen=True):
    """A submission whose input fits its kind."""

    submission: Submission
    kind: Kind
    queue: str
    run_at: float | None
    deadline: float | None
    files: list[FileRef]  # in its input
    # The types that its file parameters accept, by the owner of the file.
    accepted: dict[str, tuple[str, ...]]


def read_batch(body: bytes, most: int) -> list[msgspec.Raw]:
    jobs = decode(_batch, body).jobs
    if len(jobs) > most:
        raise InvalidInput(
            f"the batch has {len(jobs)} submissions; the limit is {most}",
            errors=[{"pointer": "/jobs", "detail": f"more than {most} items"}],
        )
    return jobs


T = TypeVar("T")


def decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except msgspec.DecodeError as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from None
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"the body is not UTF-8: {error}") from None
    except RecursionError:
        raise MalformedRequest("the body is nested too deeply") from None


def _invalid(error: msgspec.ValidationError) -> InvalidInput:
    text, _, path = str(error).partition(" - at ")
    place = _pointer(path, text)
    return InvalidInput(f"{place or 'the body'}: {text}", errors=[{"pointer": place, "detail": text}])


def _pointer(path: str, text: str) -> str:
    """msgspec's `$.jobs[3].kind` as the JSON pointer /jobs/3/kind."""
    parts = [name or index for name, index in re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", path)]
    unknown = re.search(r"unknown field `(.*)`", text)
    return pointer(*parts, *([unknown[1]] if unknown else []))


def new_trace_id() -> str:
    """A trace id for a caller that sends none."""
    return f"{getrandbits(128):032x}"


class _RandomBuffer:
    """Random bytes of the system, read 4 KiB at a time, because each system call costs more than the bytes."""

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
    """Accepts submissions. `hint` notifies the engine of a new job in a queue; None: the engine learns of it after the
    commit. `is_served` returns whether a worker serves a queue that the app does not declare; None accepts any queue.
    `webhooks`: None rejects submissions with a webhook. `limits` and `admission`: None refuses
    nothing. `tracer`: None traces no new jobs, except children of traced ones.
    """

    def __init__(
        self,
        registry: Registry,
        store: UploadStore,
        hint: Callable[[str, str], None] | None = None,
        is_served: Callable[[str], Awaitable[bool]] | None = None,
        webhooks: WebhookService | None = None,
        limits: ServiceLimits | None = None,
        admission: Admission | None = None,
        tracer: JobTracer | None = None,
    ) -> None:
        self._registry = registry
        self._store = store
        self._hint = hint or (lambda queue, kind: None)
        self._is_served = is_served
        self._webhooks = webhooks
        self._limits = limits
        self._admission = admission
        self._tracer = tracer
        self._random = _RandomBuffer()
        self._stopping = False

    def stop(self) -> None:
        """Refuse new work from now on. Uploads that have begun still become jobs."""
        self._stopping = True

    def check_open(self) -> None:
        """Raise Unavailable while the service stops: a job that it accepted now would wait for the next start."""
        if self._stopping:
            raise Unavailable("the service is stopping and accepts no more jobs")

    async def submit(
        self, submission: Submission, *, key: str | None = None, trace_id: str, tenant: str = "-"
    ) -> Inserted:
        self.check_open()
        new = await self.prepare(submission, key=key, trace_id=trace_id, tenant=tenant)
        begun = time.monotonic()
        (outcome,) = await self._insert([new])
        if self._admission is not None:
            self._admission.observe(time.monotonic() - begun)
        if new.limits is not None and self._limits is not None:
            (outcome,) = await self._limits.settle([new], [outcome], self._insert)
        if new.job.tracestate is not None:
            self._trace(new, outcome)
        return accepted(outcome, new)

    def id(self, now: float) -> str:
        """A new id for a job or an upload."""
        return job_id(now, self._random.take(16))

    async def submit_many(
        self, bodies: Sequence[msgspec.Raw], *, key: str | None, trace_id: str, tenant: str = "-"
    ) -> list[Inserted | Problem]:
        """Validate each submission separately, and store the valid ones in one commit."""
        self.check_open()
        prepared: list[NewJob | Problem] = []
        for i, body in enumerate(bodies):
            own_key = None if key is None else f"{key}/{i}"
            try:
                submission = read_submission(body)
                prepared.append(
                    await self.prepare(submission, key=own_key, trace_id=trace_id, tenant=tenant)
                )
            except Problem as problem:
                prepared.append(problem)
        new = [p for p in prepared if isinstance(p, NewJob)]
        outcomes = await self._insert(new)
        if self._limits is not None and any(n.limits is not None for n in new):
            outcomes = await self._limits.settle(new, outcomes, self._insert)
        if self._tracer is not None:
            for item, outcome in zip(new, outcomes, strict=True):
                self._trace(item, outcome)
        stored = iter(outcomes)
        return [p if isinstance(p, Problem) else _or_problem(next(stored), p) for p in prepared]

    def _insert(self, new: Sequence[NewJob]) -> Awaitable[list[Insertion]]:
        storing = self._store.insert(new)
        # Hint before the commit, so that the claim is in the same transaction.
        for queue, kind in {(item.job.queue, item.job.kind) for item in new}:
            self._hint(queue, kind)
        return storing

    def learn(self, new: NewJob, outcome: Insertion | None) -> None:
        """Learn from the outcome of an insertion that the caller did itself what is left of the limits, and trace it."""
        if new.limits is not None and self._limits is not None:
            self._limits.learn([new], [outcome])
        if new.job.tracestate is not None:
            self._trace(new, outcome)

    def _trace(self, new: NewJob, outcome: Insertion | None) -> None:
        """Export the span of a submission."""
        if self._tracer is not None and isinstance(outcome, Inserted) and outcome.created:
            self._tracer.submitted(new.job, self._store.now())

    async def admit_later(self, new: NewJob) -> None:
        """Count the submission of an upload that begins now, unless it repeats an earlier one. Raises QuotaExceeded."""
        if new.limits is None or self._limits is None:
            return
        if new.key is not None and await self._store.has_key(new.job.tenant, new.job.kind, new.key):
            return
        await self._limits.admit_later(new)

    def upload(self, upload: Upload) -> AbstractAsyncContextManager[None]:
        """Store a new upload inside of it. Raises QuotaExceeded."""
        return nullcontext() if self._limits is None else self._limits.upload(upload)

    def hint(self, new: NewJob) -> None:
        """Hint at a job that the caller stores itself, before the commit: the claim is then in the same transaction."""
        self._hint(new.job.queue, new.job.kind)

    async def prepare(
        self,
        submission: Submission,
        *,
        key: str | None = None,
        trace_id: str | None = None,
        parent: Job | None = None,
        tenant: str = "-",
    ) -> NewJob:
        """Validate a submission and return its job. Raise a Problem; store nothing."""
        checked = self.check(submission, key, parent)
        return await self.make_job(checked, key=key, trace_id=trace_id, parent=parent, tenant=tenant)

    def check(
        self, submission: Submission, key: str | None, parent: Job | None = None
    ) -> CheckedSubmission:
        """Validate what does not depend on the time, on files or on workers. Raise a Problem."""
        kind = self._registry.kind(submission.kind)
        dedupe = kind.dedupe or submission.dedupe
        if kind.require_key and key is None and parent is None and dedupe is None:
            raise IdempotencyKeyRequired(f"kind {kind.name} needs an Idempotency-Key header")
        if key is not None and "\0" in key:
            raise InvalidInput("an idempotency key cannot contain NUL")
        if submission.labels and any(
            "\0" in text for pair in submission.labels.items() for text in pair
        ):
            raise InvalidInput.at("/labels", "names and values cannot contain NUL")
        queue = _queue(submission, kind)
        run_at = deadline = None
        if submission.run_at is not None:
            run_at = read_instant_at("/runAt", submission.run_at)
        if submission.deadline is not None:
            deadline = read_instant_at("/deadline", submission.deadline)
        collector = _FileCollector()
        kind.check_input(bytes(submission.input), collector)
        return CheckedSubmission(
            submission, kind, queue, run_at, deadline, collector.refs, collector.accepted
        )

    async def make_job(
        self,
        checked: CheckedSubmission,
        *,
        key: str | None = None,
        trace_id: str | None = None,
        parent: Job | None = None,
        uploads: Mapping[str, Upload] | None = None,
        promised: bool = False,
        tenant: str = "-",
    ) -> NewJob:
        """Return the job of a submission. Raise a Problem; store nothing. `uploads` will be stored together with the job.
        `promised`: its queue and its webhook were accepted when the upload began. A child has the tenant of its parent.
        """
        submission, kind, run_at, deadline = (
            checked.submission,
            checked.kind,
            checked.run_at,
            checked.deadline,
        )
        now = self._store.now()
        if deadline is not None and deadline <= max(now, run_at or now):
            detail = "the deadline is in the past, or not after runAt"
            raise InvalidInput(detail, errors=[{"pointer": "/deadline", "detail": detail}])
        job = Job(
            id=job_id(now, self._random.take(16)),
            kind=kind.name,
            queue=checked.queue,
            created_at=now,
            updated_at=now,
            priority=submission.priority,
            labels=submission.labels,
            run_at=run_at,
            due=max(now, run_at or now),
            deadline=deadline,
            max_attempts=kind.policy.retries + 1,
            keep=kind.retention,
            trace_id=trace_id or new_trace_id(),
            parent=parent.id if parent else None,
            tenant=parent.tenant if parent else tenant,
        )
        if parent is not None:
            job = job if parent.tracestate is None else replace(job, tracestate=parent.tracestate)
        elif self._tracer is not None and (state := self._tracer.begin(job.trace_id or "")) is not None:
            job = replace(job, tracestate=state)
        if kind.concurrency is not None:
            limited = kind.concurrency_key(bytes(submission.input), job.tenant)
            job = replace(job, concurrency_key=limited)
        files = await self._files(checked, job.tenant, parent, uploads or {})
        fingerprint = b"" if key is None else _fingerprint(submission, files)
        # A child belongs to its parent, so it is never the job of another submission.
        dedupe = None if parent is not None else kind.dedupe or submission.dedupe
        content = b"" if dedupe is None else _content(submission, files, names=dedupe == "content+name")
        raw = bytes(submission.input)
        search = kind.search_terms(raw) if kind.search else ()
        limits = None
        if self._limits is not None:
            limits = self._limits.of_job(job.tenant, job.kind)
            if limits is not None and (promised or parent is not None):
                limits = forced(limits) if promised or limits.waiting else None
            elif limits is not None and key is None and dedupe is None and not kind.unique:
                self._limits.check(job.tenant, job.kind)
        new = NewJob(job, raw, files, key, fingerprint, content, search, limits=limits)
        if kind.unique and parent is None:
            unique = _unique(submission, files, kind.unique)
            new = replace(new, unique=unique, unique_for=kind.unique_for)
        if limits is not None and uploads is not None and not promised:
            assert self._limits is not None
            await self._limits.make_room(new)
        if submission.webhook is not None:
            new = await self._with_webhook(new, submission.webhook, promised)
        if checked.queue != kind.queue and not promised:
            await self._check_queue(new)
        if self._admission is not None and parent is None and not promised:
            await self._admission.check(new)
        return new

    async def _with_webhook(self, new: NewJob, submitted: SubmittedWebhook, promised: bool) -> NewJob:
        """Add the records of the job's webhook. Raises InvalidInput."""
        if self._webhooks is None:
            raise InvalidInput.at("/webhook", "not supported here")
        events = tuple(dict.fromkeys(submitted.events))
        webhook = JobWebhook(submitted.url, events, submitted.secret)
        if not promised:
            await self._webhooks.check_job_webhook(webhook)
        job = replace(new.job, webhook=",".join(events))
        return replace(new, job=job, records=await self._webhooks.records_of(job, webhook))

    async def _check_queue(self, new: NewJob) -> None:
        """Raise if no worker serves the job's queue. A repeated submission is not checked, because its job was accepted
        while a worker served the queue.
        """
        queue = new.job.queue
        if self._is_served is None or queue in served(self._registry) or await self._is_served(queue):
            return
        for key in new.keys:
            if await self._store.has_key(*key):
                return
        raise InvalidInput.at(
            "/queue",
            f"neither the app nor a living worker knows queue {queue!r}; name it in App(queues={{…}}), start a worker "
            "for it, or start the service with --allow-unknown-queues",
        )

    async def prepare_spawn(self, message: Spawn, parent: Job) -> NewJob:
        """Validate a spawned job in the same way as a submitted one."""
        submission = Submission(kind=message.kind, input=msgspec.Raw(message.input))
        new = await self.prepare(submission, trace_id=parent.trace_id, parent=parent)
        return replace(new, job=replace(new.job, id=message.child_id))

    async def _files(
        self,
        checked: CheckedSubmission,
        tenant: str,
        parent: Job | None,
        uploads: Mapping[str, Upload],
    ) -> tuple[InputFile, ...]:
        """Check that every file of the input exists, is of this tenant, and has an accepted type."""
        files = []
        for ref in checked.files:
            if ref.upload is None:
                files.append(InputFile(ref.job, await self._file(ref, tenant, parent)))
            else:
                upload = uploads.get(ref.upload) or await self._upload(ref.upload, tenant)
                if upload.status is not UploadStatus.DONE:
                    continue  # only a check whether the upload may begin
                check_type(upload, checked.accepted.get(ref.job, ()))
                files.append(InputFile(ref.job, upload.file))
        return tuple(files)

    async def _upload(self, upload_id: str, tenant: str) -> Upload:
        found = await self._store.upload(upload_id)
        if not isinstance(found, Upload) or found.partial or found.tenant != tenant:
            raise _no_file(f"upload {upload_id[:100]!r} does not exist")
        if found.status is not UploadStatus.DONE:
            raise _no_file(f"upload {upload_id} is not complete yet")
        return found

    async def _file(self, ref: FileRef, tenant: str, parent: Job | None) -> FileInfo:
        if parent is not None and ref.job == parent.id:
            owner: Job | Missing = parent  # has files that are stored together with this child
        else:
            (owner,) = await self._store.get([ref.job])
        found = (
            None
            if isinstance(owner, Missing) or owner.tenant != tenant
            else next((f for f in owner.files if f.name == ref.name), None)
        )
        if found is None:
            raise _no_file(f"job {ref.job[:100]} has no file {ref.name[:255]!r}")
        return found


class _FileCollector:
    """Collects the files of an input and their accepted types."""

    def __init__(self) -> None:
        self.refs: list[FileRef] = []
        self.accepted: dict[str, tuple[str, ...]] = {}

    def __call__(self, ref: FileRef) -> File:
        self.refs.append(ref)
        return File(ref)

    def accepts(self, ref: FileRef, types: tuple[str, ...]) -> None:
        self.accepted[ref.job] = types


def check_type(upload: Upload, types: tuple[str, ...]) -> None:
    if types and not is_one_of(upload.content_type, upload.detected, types, upload.name):
        shown = {"": "an unknown type", EMPTY: "that it is empty"}.get(upload.detected, upload.detected)
        detail = f"{upload.name}: its first bytes show {shown}; accepted is {' or '.join(types)}"
        if upload.detected in (TEXT, EMPTY) and accepts_texts(types):
            detail += (
                ". The extension of the name or the declared type says which kind of text it is; the declared type is "
                f"{upload.content_type}"
            )
        raise WrongContent(
            detail,
            errors=[{"pointer": "/input", "detail": f"upload {upload.id} is not {' or '.join(types)}"}],
        )


def _no_file(detail: str) -> InvalidInput:
    return InvalidInput(detail, errors=[{"pointer": "/input", "detail": detail}])


def _queue(submission: Submission, kind: Kind) -> str:
    queue = submission.queue if submission.queue is not None else kind.queue
    if not NAME.fullmatch(queue):
        raise InvalidInput.at("/queue", "use letters, digits, '_', '.' and '-', at most 100 characters")
    return queue


def _fingerprint(submission: Submission, files: Sequence[InputFile]) -> bytes:
    """A hash of the whole submission, which is the same for uploads with the same bytes."""
    return _hash(
        submission, {(f.upload,): {"sha256": f.file.sha256} for f in files if f.upload is not None}
    )


def _content(submission: Submission, files: Sequence[InputFile], *, names: bool) -> bytes:
    """A hash of kind, input and the content of all files. Priority, queue, times and labels do not count."""
    return _hash(Submission(submission.kind, submission.input), _contents(files, names=names))


def _contents(
    files: Sequence[InputFile], *, names: bool = False
) -> dict[tuple[str, ...], dict[str, str]]:
    """The content of each file, by what an input says to refer to it."""
    known: dict[tuple[str, ...], dict[str, str]] = {}
    for owned in files:
        content = {"sha256": owned.file.sha256}
        if names:
            content["name"] = owned.file.name
        known[(owned.job, owned.file.name) if owned.upload is None else (owned.upload,)] = content
    return known


def _unique(submission: Submission, files: Sequence[InputFile], paths: Sequence[str]) -> bytes:
    """A hash of the values at these paths, with files by their content. A path without a value has none."""
    document = _by_content(json.loads(bytes(submission.input)), _contents(files))
    values = {path: list(values_at(document, path)) for path in paths}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).digest()


def _hash(submission: Submission, known: Mapping[tuple[str, ...], dict[str, str]]) -> bytes:
    """A hash that does not depend on how the JSON is written, with `known` files by their content."""
    canonical = msgspec.json.encode(
        [msgspec.to_builtins(submission, builtin_types=(msgspec.Raw,)), None], order="sorted"
    )
    meaning = json.loads(canonical)  # accepts 1e999, as the schemas do
    if known:
        meaning[0]["input"] = _by_content(meaning[0]["input"], known)
    for name in ("dedupe", "webhook"):
        if meaning[0][name] is None:
            del meaning[0][name]  # keeps the fingerprints of releases without this field valid
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).digest()


def _by_content(value: Any, known: Mapping[tuple[str, ...], dict[str, str]]) -> Any:
    """The input with each reference to a file replaced by the content of the file."""
    if isinstance(value, dict):
        names = ("upload",) if "upload" in value else ("job", "name")
        ref = tuple(part for name in names if isinstance(part := value.get(name), str))
        if len(value) == len(ref) == len(names) and ref in known:
            return known[ref]
        return {name: _by_content(part, known) for name, part in value.items()}
    return [_by_content(part, known) for part in value] if isinstance(value, list) else value


def accepted(outcome: Insertion, new: NewJob) -> Inserted:
    if isinstance(outcome, KeyConflict):
        raise IdempotencyConflict(
            f"this Idempotency-Key was used with another body for {new.job.kind} job {outcome.job_id}: use a new key"
        )
    if isinstance(outcome, KeyGone):
        raise Gone(
            f"this Idempotency-Key was used for job {outcome.job_id}, which was deleted or purged; "
            "use a new key for a new job"
        )
    if isinstance(outcome, LimitReached):
        assert new.limits is not None
        raise quota_exceeded(new.limits, outcome, new.job.created_at)
    return outcome


def _or_problem(outcome: Insertion, new: NewJob) -> Inserted | Problem:
    try:
        return accepted(outcome, new)
    except Problem as problem:
        return problem
