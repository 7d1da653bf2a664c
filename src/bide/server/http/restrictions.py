"""What a caller who sees only some jobs may submit: jobs that it sees itself.

1. The jobs of a browser token for labels get these labels. A token for the ids of jobs begins no others.
2. An idempotency key of such a caller is separate from those of other callers of the tenant.
3. Its input refers only to files of jobs that it sees. If another submission has created the job, it must see this job, too.
4. It cannot set what the backend decides: priority, queue and webhook.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.errors import Forbidden, Gone, InvalidInput, MalformedRequest, NotFound
from bide.server.http.request import HttpRequest
from bide.server.http.status import find
from bide.server.identities import Principal
from bide.server.intake import Submission, read_submission
from bide.server.store import Inserted, Missing
from bide.server.upload_record import Upload, owner_of, upload_of
from bide.server.uploads.upload_jobs import UploadJob

_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


async def restrict(request: HttpRequest, submission: Submission) -> Submission:
    """The submission of a restricted caller, with the labels of its token. Raises Forbidden and InvalidInput."""
    labels = _labels(request.principal)
    if submission.priority or submission.queue is not None or submission.webhook is not None:
        raise Forbidden("a token cannot set `priority`, `queue` or `webhook`")
    for name, value in labels:
        if submission.labels.get(name, value) != value:
            raise Forbidden(f"the token is for jobs with the label {name}={value}")
    await _check_files(request, submission)
    return replace(submission, labels={**submission.labels, **dict(labels)})


def restrict_key(principal: Principal, key: str | None) -> str | None:
    """The idempotency key of a restricted caller. Raises Forbidden."""
    labels = json.dumps(sorted(_labels(principal)))
    return key and f"{hashlib.sha256(labels.encode()).hexdigest()[:32]}/{key}"


def _labels(principal: Principal) -> frozenset[tuple[str, str]]:
    if principal.labels is None:
        raise Forbidden("a token for the ids of jobs begins no other jobs; use a token for labels")
    return principal.labels


async def restrict_upload(request: HttpRequest, job: UploadJob | None) -> UploadJob | None:
    """The job of an upload that begins, of any caller. Raises Forbidden and InvalidInput."""
    if not request.principal.is_restricted:
        return job
    if job is None:
        raise Forbidden("a token begins only uploads that become a job: name its `kind`")
    submission = await restrict(request, job.submission)
    labels = msgspec.Raw(msgspec.json.encode(submission.labels))
    encoded = msgspec.json.encode({**_read_fields.decode(job.encoded), "labels": labels})
    key = restrict_key(request.principal, job.key)
    return replace(job, submission=submission, encoded=msgspec.Raw(encoded), key=key)


def check_outcome(principal: Principal, outcome: Inserted) -> None:
    """Raise Forbidden if an earlier submission has created the job, and the caller does not see it."""
    if not outcome.created and not principal.sees(outcome.job):
        raise Forbidden("the tenant has an equal job, for which the token is not")


async def sees_upload(request: HttpRequest, upload: Upload) -> bool:
    """Whether an upload exists for a restricted caller: the caller sees its job, or will see it."""
    principal = request.principal
    if upload.job_id is not None:
        (job,) = await request.components.store.get((upload.job_id,))
        return not isinstance(job, Missing) and principal.sees(job)
    if upload.submission is None or principal.labels is None:
        return False
    return principal.labels <= read_submission(upload.submission).labels.items()


async def _check_files(request: HttpRequest, submission: Submission) -> None:
    """Raise InvalidInput if the input refers to a file that does not exist for the caller."""
    try:
        owners = set(_owners(json.loads(bytes(submission.input))))
    except RecursionError:
        raise MalformedRequest("the body is nested too deeply") from None
    for owner in owners:
        if not await _sees_owner(request, owner):
            upload = upload_of(owner)
            detail = f"{'upload' if upload else 'job'} {(upload or owner)[:100]!r} does not exist"
            raise InvalidInput(detail, errors=[{"pointer": "/input", "detail": detail}])


async def _sees_owner(request: HttpRequest, owner: str) -> bool:
    upload = upload_of(owner)
    try:
        if upload is not None:
            return await sees_upload(
                request, await request.components.uploads.find(upload, request.tenant)
            )
        await find(request, owner)
    except (NotFound, Gone):
        return False
    return True


def _owners(value: Any) -> Iterator[str]:
    """The owners of all that could be a reference to a file: a job, or an upload."""
    if isinstance(value, dict):
        if isinstance(upload := value.get("upload"), str):
            yield owner_of(upload)
        if isinstance(job := value.get("job"), str):
            yield job
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from _owners(part)
