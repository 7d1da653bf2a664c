"""GET /jobs/{id}/result and /jobs/{id}/files/{name}: what a job has made, always as an attachment, with ranges."""

from __future__ import annotations

import hashlib

from bide.core.errors import Gone, NoResult, NotFound, RangeNotSatisfiable, StorageUnavailable
from bide.core.record import SUCCESSFUL, Job
from bide.core.wire import JSON_TYPE
from bide.server.http.attachments import (
    asked_ranges,
    attachment,
    attachment_headers,
    unchanged,
)
from bide.server.http.exchange import Answer, Request
from bide.server.http.operations import Operation, Parameter, Reply
from bide.server.http.status import IF_NONE_MATCH, JOB_ID, find


async def result(request: Request) -> Answer:
    job = await find(request.parts, request.args[0])
    _check_succeeded(job)
    if job.result_file is not None:
        return await attachment(request, job.result_file, JSON_TYPE, f"{job.id}.json")
    body = bytes(job.result) if job.result is not None else b"null"
    return _inline(request, body, f"{job.id}.json")


async def file(request: Request) -> Answer:
    job_id, name = request.args
    job = await find(request.parts, job_id)
    info = next((f for f in job.files if f.name == name), None)
    if info is None:
        if not job.status.terminal:
            raise NoResult(f"the job is {job.status.value} and has no file {name[:200]!r} yet")
        _check_succeeded(job)
        raise NotFound(f"job {job.id} has no file {name[:200]!r}")
    if job.status.terminal:
        _check_succeeded(job)
    return await attachment(request, info, info.content_type, info.name)


def _check_succeeded(job: Job) -> None:
    if job.status not in SUCCESSFUL:
        ended = "ended as" if job.status.terminal else "is"
        raise NoResult(f"the job {ended} {job.status.value}; DONE and PARTIAL_SUCCESS have a result")


def _inline(request: Request, body: bytes, name: str) -> Answer:
    tag = f'"{hashlib.sha256(body).hexdigest()}"'
    same = unchanged(request, tag)
    if same is not None:
        return same
    size = len(body)
    ranges = asked_ranges(request, tag, size)
    headers = attachment_headers(tag, JSON_TYPE, name)
    status = 200
    # Several ranges of something this small: all of it is the shorter answer.
    if len(ranges) == 1:
        (first, last), status = ranges[0], 206
        body = body[first : last + 1]
        headers.append((b"content-range", f"bytes {first}-{last}/{size}".encode()))
    headers.append((b"content-length", b"%d" % len(body)))
    return Answer(status, headers, body)


_RANGE = Parameter("Range", "header", "Which bytes, as `bytes=0-999`.")
_IF_RANGE = Parameter(
    "If-Range", "header", "The range only when the ETag is still this one; all of it otherwise."
)
_BINARY = {"type": "string", "format": "binary"}
_HEADERS = ("ETag", "Content-Disposition")
_COMMON = (JOB_ID, _RANGE, _IF_RANGE, IF_NONE_MATCH)
_SAME = Reply(304, "The ETag is still the same.", headers=("ETag",))
# Without a content: a part of something is an instance of nothing.
_PART = Reply(206, "The ranges that were asked for.", headers=("ETag", "Content-Range"))
_PROBLEMS = (NotFound, Gone, NoResult, RangeNotSatisfiable, StorageUnavailable)

OPERATIONS = [
    Operation(
        "GET",
        "/jobs/{jobId}/result",
        result,
        "getResult",
        "A job's result",
        "results",
        parameters=_COMMON,
        replies=(
            Reply(200, "The result.", {}, headers=_HEADERS),
            _PART,
            _SAME,
        ),
        problems=_PROBLEMS,
        example="-O -J $BASE/jobs/JOB_ID/result",
    ),
    Operation(
        "GET",
        "/jobs/{jobId}/files/{name}",
        file,
        "getFile",
        "A file that a job has made",
        "results",
        parameters=(*_COMMON, Parameter("name", "path", "The file's name.", required=True)),
        replies=(
            Reply(200, "The file.", _BINARY, content_types=("*/*",), headers=_HEADERS),
            _PART,
            _SAME,
        ),
        problems=_PROBLEMS,
        example="-O -J $BASE/jobs/JOB_ID/files/NAME",
    ),
]
