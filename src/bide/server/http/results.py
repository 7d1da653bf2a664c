"""GET /jobs/{id}/result and /jobs/{id}/files/{name}: results and output files, as attachments, with a range."""

from __future__ import annotations

import hashlib

from bide.core.errors import Gone, NoResult, NotFound, RangeNotSatisfiable, StorageUnavailable
from bide.core.jobs.record import SUCCESSFUL, Job
from bide.core.wire.http import JSON_TYPE
from bide.server.http.attachments import (
    attachment,
    attachment_headers,
    requested_range,
    unchanged,
)
from bide.server.http.request import HttpRequest, Response
from bide.server.http.routing import TOKEN, HttpOperation, Parameter, ResponseSpec
from bide.server.http.schemas import BINARY
from bide.server.http.status import IF_NONE_MATCH, JOB_ID, find


async def result(request: HttpRequest) -> Response:
    job = await find(request, request.args[0])
    _check_succeeded(job)
    if job.result_file is not None:
        return await attachment(request, job.result_file, JSON_TYPE, f"{job.id}.json")
    body = bytes(job.result) if job.result is not None else b"null"
    return _inline(request, body, f"{job.id}.json")


async def file(request: HttpRequest) -> Response:
    job_id, name = request.args
    job = await find(request, job_id)
    info = next((f for f in job.files if f.name == name), None)
    if info is None:
        if not job.status.terminal:
            raise NoResult(f"job {job.id} is {job.status.value} and has no file {name[:200]!r} yet")
        _check_succeeded(job)
        raise NotFound(f"job {job.id} has no file {name[:200]!r}")
    if job.status.terminal:
        _check_succeeded(job)
    return await attachment(request, info, info.content_type, info.name)


def _check_succeeded(job: Job) -> None:
    if job.status not in SUCCESSFUL:
        ended = "ended as" if job.status.terminal else "is"
        raise NoResult(
            f"job {job.id} {ended} {job.status.value}; only DONE and PARTIAL_SUCCESS jobs have a result"
        )


def _inline(request: HttpRequest, body: bytes, name: str) -> Response:
    tag = f'"{hashlib.sha256(body).hexdigest()}"'
    same = unchanged(request, tag)
    if same is not None:
        return same
    size = len(body)
    part = requested_range(request, tag, size)
    headers = attachment_headers(tag, JSON_TYPE, name)
    if part is not None:
        first, last = part
        body = body[first : last + 1]
        headers.append((b"content-range", b"bytes %d-%d/%d" % (first, last, size)))
    headers.append((b"content-length", b"%d" % len(body)))
    return Response(200 if part is None else 206, headers, body)


_RANGE = Parameter("Range", "header", "The bytes to return, for example `bytes=0-999`.")
_IF_RANGE = Parameter(
    "If-Range", "header", "Return the range only if the ETag matches, otherwise the whole content."
)
_HEADERS = ("ETag", "Content-Disposition")
_COMMON = (JOB_ID, _RANGE, _IF_RANGE, IF_NONE_MATCH)
_SAME = ResponseSpec(304, "The ETag has not changed.", headers=("ETag",))
# No content schema: a range is not an instance of a type.
_PART = ResponseSpec(206, "The requested range.", headers=("ETag", "Content-Range"))
_PROBLEMS = (NotFound, Gone, NoResult, RangeNotSatisfiable, StorageUnavailable)

OPERATIONS = [
    HttpOperation(
        "GET",
        "/jobs/{jobId}/result",
        result,
        "getResult",
        "Get the result of a job",
        "results",
        parameters=(*_COMMON, TOKEN),
        scope="read",
        responses=(
            ResponseSpec(200, "The result.", {}, headers=_HEADERS),
            _PART,
            _SAME,
        ),
        problems=_PROBLEMS,
        example="-O -J $BASE/jobs/JOB_ID/result",
    ),
    HttpOperation(
        "GET",
        "/jobs/{jobId}/files/{name}",
        file,
        "getFile",
        "Get an output file of a job",
        "results",
        parameters=(*_COMMON, Parameter("name", "path", "The name of the file.", required=True), TOKEN),
        scope="read",
        responses=(
            ResponseSpec(200, "The file.", BINARY, content_types=("*/*",), headers=_HEADERS),
            _PART,
            _SAME,
        ),
        problems=_PROBLEMS,
        example="-O -J $BASE/jobs/JOB_ID/files/NAME",
    ),
]
