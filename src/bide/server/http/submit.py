"""POST /jobs and POST /jobs/batch: work comes in, and is on disk before the answer is sent."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from bide.core.errors import (
    ChecksumMismatch,
    Gone,
    IdempotencyConflict,
    IdempotencyKeyRequired,
    InvalidInput,
    MalformedRequest,
    PayloadTooLarge,
    Problem,
    StorageFull,
    UnknownKind,
    UnsupportedMedia,
    WrongContent,
)
from bide.core.upload import Upload
from bide.core.wire import (
    Preferences,
    WireJob,
    read_idempotency_key,
    read_prefer,
)
from bide.server.http.exchange import Answer, Request, object_answer, wrong_parameter
from bide.server.http.forms import TYPE, is_form, read_form
from bide.server.http.operations import Operation, Parameter, Reply
from bide.server.http.status import PREFER, Shown, hold
from bide.server.http.uploads import BINARY
from bide.server.intake import Submission, read_batch, read_submission
from bide.server.store import Inserted
from bide.server.uploads.incoming import keep

IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    "header",
    "The same key and body within 24 hours give the first job again. Quoted or bare, up to 255 characters.",
    {
        "type": "string",
        "pattern": r'^(?:[!#-~](?:[ -~]{0,253}[!-~])?|"(?:[ !#-\[\]-~]|\\["\\]){1,255}")$',
    },
)


DEDUPE = Parameter(
    "dedupe",
    "query",
    "`content`: the same files and input of the same kind give the first job again.",
    {"type": "string", "enum": ["content"]},
)
_FORM = {
    "type": "object",
    "properties": {"job": {"type": "string", "contentMediaType": "application/json"}},
    "required": ["job"],
    "additionalProperties": BINARY,
}


class Batch(msgspec.Struct):
    """One entry a submission, in order: its status resource, or the problem that kept it out."""

    jobs: list[msgspec.Raw]


def _key(request: Request) -> str | None:
    value = request.header(b"idempotency-key")
    return None if value is None else read_idempotency_key(value)


async def submit(request: Request) -> Answer:
    key = _key(request)
    preferred = request.header(b"prefer")
    preferences = read_prefer((preferred,)) if preferred is not None else Preferences()
    if is_form(request):
        stored = await _submit_form(request, key)
    else:
        submission = _with_query(request, read_submission(await request.json()))
        stored = await request.parts.intake.submit(submission, key=key, trace_id=request.trace_id)
    if not stored.created:
        await request.parts.progress.refresh((stored.job,))
    shown = Shown(request, stored.job)
    applied: list[tuple[bytes, bytes]] = []
    if preferences.respond_async:
        applied = [(b"preference-applied", b"respond-async")]
    elif preferences.wait is not None:
        applied = [(b"preference-applied", b"wait=%d" % preferences.wait)]
        shown = await _until_done(request, shown, preferences.wait)
    done = shown.job.status.terminal and not preferences.respond_async
    return shown.answer(200 if done else 202, shown.location(), *applied)


def _with_query(request: Request, submission: Submission) -> Submission:
    dedupe = request.one("dedupe")
    if dedupe is None:
        return submission
    if dedupe != "content":
        raise wrong_parameter("dedupe", "only `content` is known")
    return replace(submission, dedupe="content")


async def _submit_form(request: Request, key: str | None) -> Inserted:
    """The part `job` is the submission; each other part is the file for the parameter of its name."""
    reception = request.parts.reception
    form = await read_form(request, lambda part: part.name == "job")
    try:
        if "job" not in form.fields:
            raise InvalidInput(
                "the form has no part `job` with the submission as JSON",
                errors=[{"pointer": "/job", "detail": "missing"}],
            )
        submission = _with_query(request, read_submission(form.fields["job"]))
        files: dict[str, list[Upload]] = {}
        for name, incoming in form.files:
            files.setdefault(name, []).append(await incoming.whole())
        new = await reception.wishes.of(submission, files, key=key, trace_id=request.trace_id)
        kept = await keep(reception, [incoming for _, incoming in form.files], new)
    except BaseException:
        await form.discard()
        raise
    assert isinstance(kept.job, Inserted)  # its alternative is a Problem
    if not kept.job.created:  # the first job has these files already
        for upload in kept.uploads:
            await reception.discard(upload)
    return kept.job


async def _until_done(request: Request, shown: Shown, seconds: float) -> Shown:
    if shown.job.status.terminal or seconds <= 0:
        return shown
    try:
        return await hold(request, shown.job.id, seconds, lambda s: s.job.status.terminal)
    except Problem:
        return shown  # removed meanwhile: that it was accepted is still the answer


async def submit_batch(request: Request) -> Answer:
    bodies = read_batch(await request.json(), request.parts.config.http.max_batch)
    outcomes = await request.parts.intake.submit_many(
        bodies, key=_key(request), trace_id=request.trace_id
    )
    entries = [
        request.render_problem(outcome)
        if isinstance(outcome, Problem)
        else Shown(request, outcome.job).body()
        for outcome in outcomes
    ]
    return object_answer(Batch([msgspec.Raw(entry) for entry in entries]), status=202)


_READING = (MalformedRequest, PayloadTooLarge, UnsupportedMedia, InvalidInput)

OPERATIONS = [
    Operation(
        "POST",
        "/jobs",
        submit,
        "submitJob",
        "Submit a job",
        "jobs",
        description="Answered at once, after the job is on disk. With `Prefer: wait=N` the answer is held until "
        "the job has ended, so that a synchronous API can move over without breaking its callers. As a form, "
        "the part `job` is the submission, and each other part the file for the `File` parameter of its name.",
        parameters=(PREFER, IDEMPOTENCY_KEY, DEDUPE),
        body="Submission",
        content=((TYPE, _FORM),),
        replies=(
            Reply(
                202,
                "Accepted.",
                WireJob,
                headers=("Location", "Retry-After", "Preference-Applied"),
            ),
            Reply(200, "The job has ended.", WireJob, headers=("Location", "Preference-Applied")),
        ),
        problems=(
            *(*_READING, UnknownKind, IdempotencyConflict, IdempotencyKeyRequired, Gone),
            *(WrongContent, ChecksumMismatch, StorageFull),
        ),
        example="-X POST $BASE/jobs -H 'Content-Type: application/json' -H 'Idempotency-Key: a-key' "
        '-d \'{"kind": "KIND", "input": {}}\'',
    ),
    Operation(
        "POST",
        "/jobs/batch",
        submit_batch,
        "submitJobs",
        "Submit many jobs in one commit",
        "jobs",
        description="A bad submission keeps no other out. An `Idempotency-Key` counts for each of them, "
        "with its place in the list.",
        parameters=(IDEMPOTENCY_KEY,),
        body="Submissions",
        replies=(Reply(202, "One status or problem each, in order.", Batch),),
        problems=_READING,
        example="-X POST $BASE/jobs/batch -H 'Content-Type: application/json' "
        '-d \'{"jobs": [{"kind": "KIND", "input": {}}]}\'',
    ),
]
