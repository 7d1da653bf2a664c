"""POST /jobs and POST /jobs/batch. Jobs are on disk before the response is sent."""

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
    Overloaded,
    PayloadTooLarge,
    Problem,
    QuotaExceeded,
    StorageFull,
    UnknownKind,
    UnsupportedMedia,
    WrongContent,
)
from bide.core.wire.http import (
    DEDUPE_MODES,
    JSON_TYPE,
    JobStatus,
    Preferences,
    read_idempotency_key,
    read_prefer,
)
from bide.server.http.forms import TYPE, is_form, read_form
from bide.server.http.request import (
    REPLAYED,
    HttpRequest,
    Response,
    header_lines,
    json_response,
    object_response,
    wrong_parameter,
)
from bide.server.http.restrictions import check_outcome, restrict, restrict_key
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec
from bide.server.http.schemas import KEY_PATTERN, ref
from bide.server.http.status import PREFER, JobView, hold, retry_after_header, view
from bide.server.intake import Submission, read_batch, read_submission
from bide.server.store import Inserted

IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    "header",
    "The same key and body return the first job, until 24 hours after its end. Quoted or bare, up to 255 characters.",
    {"type": "string", "pattern": KEY_PATTERN},
)


DEDUPE = Parameter(
    "dedupe",
    "query",
    "`content`: the same files and input of the same kind return the first job. `content+name`: if the names of the files "
    "are the same, too. The `dedupe` of the kind has precedence.",
    {"type": "string", "enum": list(DEDUPE_MODES)},
)


class WireBatch(msgspec.Struct):
    """One entry per submission, in order: its status resource, or its problem."""

    jobs: list[msgspec.Raw]


async def submit(request: HttpRequest) -> Response:
    try:
        return await _submit(request)
    except QuotaExceeded:
        raise
    except Problem as problem:
        problem.headers.update(request.components.limits.headers(request.tenant))
        raise


async def _submit(request: HttpRequest) -> Response:
    key = read_idempotency_key(request.header(b"idempotency-key"))
    preferred = request.header(b"prefer")
    preferences = read_prefer((preferred,)) if preferred is not None else Preferences()
    restricted = request.principal.is_restricted
    if restricted:
        key = restrict_key(request.principal, key)
    if is_form(request.header(b"content-type")):
        stored = await _submit_form(request, key)
    else:
        submission = read_submission(await request.json())
        if request.scope["query_string"]:
            submission = _with_query(request, submission)
        if restricted:
            submission = await restrict(request, submission)
        stored = await request.components.intake.submit(
            submission, key=key, trace_id=request.trace_id, tenant=request.tenant
        )
    if restricted:
        check_outcome(request.principal, stored)
    if not stored.created:
        await request.components.progress.refresh((stored.job,))
    shown = JobView(request, stored.job)
    applied: list[tuple[bytes, bytes]] = []
    if preferences.respond_async:
        applied = [(b"preference-applied", b"respond-async")]
    elif preferences.wait is not None:
        applied = [(b"preference-applied", b"wait=%d" % preferences.wait)]
        shown = await _until_done(request, shown, preferences.wait)
    done = shown.job.status.terminal and not preferences.respond_async
    applied += header_lines(request.components.limits.headers(request.tenant, stored.job.kind))
    if not stored.created:
        applied.append(REPLAYED)
    return json_response(
        200 if done else 202,
        shown.submitted_body(replayed=not stored.created),
        *retry_after_header(shown.retry_after()),
        shown.location(),
        *applied,
    )


def _with_query(request: HttpRequest, submission: Submission) -> Submission:
    dedupe = request.one("dedupe")
    if dedupe is None:
        return submission
    mode = dedupe.replace(" ", "+")  # a plus sign in a URL means a space
    if mode not in DEDUPE_MODES:
        raise wrong_parameter("dedupe", f"must be {' or '.join(f'`{known}`' for known in DEDUPE_MODES)}")
    return replace(submission, dedupe=mode)


async def _submit_form(request: HttpRequest, key: str | None) -> Inserted:
    """Submit a form. The part `job` is the submission; each other part is a file for the parameter of its name."""
    request.components.intake.check_open()  # before it reads the files
    async with request.components.limits.receiving(request.tenant) as received:
        form = await read_form(request, lambda part: part.name == "job", received)
        try:
            if "job" not in form.fields:
                raise InvalidInput(
                    "the form has no part `job`; send the submission as JSON in it",
                    errors=[{"pointer": "/job", "detail": "missing"}],
                )
            submission = _with_query(request, read_submission(form.fields["job"]))
            if request.principal.is_restricted:
                submission = await restrict(request, submission)
            return await request.components.uploads.direct.submit(
                submission, form.files, key=key, trace_id=request.trace_id, tenant=request.tenant
            )
        except BaseException:
            await form.discard()
            raise


async def _until_done(request: HttpRequest, shown: JobView, seconds: float) -> JobView:
    if shown.job.status.terminal or seconds <= 0:
        return shown
    try:
        return await hold(request, shown.job.id, seconds, view, lambda s: s.job.status.terminal)
    except Problem:
        return shown  # deleted during the wait: report that it was accepted


async def submit_batch(request: HttpRequest) -> Response:
    bodies = read_batch(await request.json(), request.components.config.http.max_batch)
    outcomes = await request.components.intake.submit_many(
        bodies,
        key=read_idempotency_key(request.header(b"idempotency-key")),
        trace_id=request.trace_id,
        tenant=request.tenant,
    )
    for outcome in outcomes:
        if isinstance(outcome, QuotaExceeded | Overloaded):
            request.components.limits.count(outcome, request.tenant)
    entries = [
        request.render_problem(outcome)
        if isinstance(outcome, Problem)
        else JobView(request, outcome.job).submitted_body(replayed=not outcome.created)
        for outcome in outcomes
    ]
    limits = request.components.limits.headers(request.tenant)
    body = WireBatch([msgspec.Raw(entry) for entry in entries])
    return object_response(body, *header_lines(limits), status=202)


_LIMITS = ("RateLimit", "RateLimit-Policy")
_READING = (MalformedRequest, PayloadTooLarge, UnsupportedMedia, InvalidInput)

OPERATIONS = [
    HttpOperation(
        "POST",
        "/jobs",
        submit,
        "submitJob",
        "Submit a job",
        "jobs",
        description="The response is sent when the job is on disk. With `Prefer: wait=N` the service holds it until the job "
        "has ended, so that a synchronous API can migrate without breaking its callers. In a form, the part `job` is "
        "the submission, and each other part is the file for the `File` parameter of its name.",
        parameters=(PREFER, IDEMPOTENCY_KEY, DEDUPE),
        body="Submission",
        content=((TYPE, ref("SubmissionForm")),),
        parts=(("job", JSON_TYPE),),
        scope="submit",
        narrows=True,
        responses=(
            ResponseSpec(
                202,
                "Accepted.",
                JobStatus,
                headers=(
                    "Location",
                    "Retry-After",
                    "Preference-Applied",
                    "Idempotency-Replayed",
                    *_LIMITS,
                ),
            ),
            ResponseSpec(
                200,
                "The job has ended.",
                JobStatus,
                headers=("Location", "Preference-Applied", "Idempotency-Replayed", *_LIMITS),
            ),
        ),
        problems=(
            *(*_READING, UnknownKind, IdempotencyConflict, IdempotencyKeyRequired, Gone),
            *(WrongContent, ChecksumMismatch, StorageFull, QuotaExceeded, Overloaded),
        ),
        example="-X POST $BASE/jobs -H 'Content-Type: application/json' -H 'Idempotency-Key: a-key' "
        '-d \'{"kind": "KIND", "input": {}}\'',
    ),
    HttpOperation(
        "POST",
        "/jobs/batch",
        submit_batch,
        "submitJobs",
        "Submit many jobs in one commit",
        "jobs",
        description="An invalid submission does not affect the others. An `Idempotency-Key` applies to each submission, "
        "combined with its index.",
        parameters=(IDEMPOTENCY_KEY,),
        body="Submissions",
        scope="submit",
        responses=(
            ResponseSpec(
                202, "One status or problem per submission, in order.", WireBatch, headers=_LIMITS
            ),
        ),
        problems=_READING,
        example="-X POST $BASE/jobs/batch -H 'Content-Type: application/json' "
        '-d \'{"jobs": [{"kind": "KIND", "input": {}}]}\'',
    ),
]
