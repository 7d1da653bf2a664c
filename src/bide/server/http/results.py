"""GET /jobs/{id}/result and /jobs/{id}/files/{name}: what a job has made, streamed from disk, with ranges.

What handlers make is handed on as it is and never shown by us: always an attachment, never sniffed, never run.
"""

from __future__ import annotations

import asyncio
import hashlib
import re

from starlette.responses import FileResponse

from bide.core.errors import Gone, NoResult, NotFound, RangeNotSatisfiable
from bide.core.record import SUCCESSFUL, FileInfo, Job
from bide.core.wire import JSON_TYPE, etag_matches
from bide.server.http.exchange import Answer, Headers, Receive, Request, Scope, Send
from bide.server.http.operations import Operation, Parameter, Reply
from bide.server.http.ranges import read_range, render_range
from bide.server.http.status import IF_NONE_MATCH, JOB_ID, find

_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(; ?[\w-]{1,50}=[\w.+-]{1,100})*", re.ASCII)
_ANYTHING = "application/octet-stream"


async def result(request: Request) -> Answer:
    job = await find(request.parts, request.args[0])
    _check_succeeded(job)
    if job.result_file is not None:
        return await _file(request, job.result_file, JSON_TYPE, f"{job.id}.json")
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
    return await send_file(request, info, info.content_type, info.name)


async def send_file(request: Request, info: FileInfo, declared: str, name: str) -> Answer:
    """Whatever was declared: only as something to be saved."""
    content_type = declared if _MEDIA_TYPE.fullmatch(declared) else _ANYTHING
    return await _file(request, info, content_type, name)


def _check_succeeded(job: Job) -> None:
    if job.status not in SUCCESSFUL:
        ended = "ended as" if job.status.terminal else "is"
        raise NoResult(f"the job {ended} {job.status.value}; DONE and PARTIAL_SUCCESS have a result")


def _headers(tag: str, content_type: str) -> dict[str, str]:
    return {
        "etag": tag,
        "content-type": content_type,
        "accept-ranges": "bytes",
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; sandbox",
    }


def _unchanged(request: Request, tag: str) -> Answer | None:
    known = request.header(b"if-none-match")
    if known is not None and etag_matches(known, tag):
        return Answer(304, [(b"etag", tag.encode())])
    return None


def _ranges(request: Request, tag: str, size: int) -> list[tuple[int, int]]:
    asked = request.header(b"range")
    if asked is None:
        return []
    condition = request.header(b"if-range")
    # A date says too little to splice two answers together by: only the ETag counts.
    if condition is not None and condition.strip() != tag:
        return []
    return read_range(asked, size)


async def _file(request: Request, info: FileInfo, content_type: str, name: str) -> Answer:
    tag = f'"{info.sha256}"'
    unchanged = _unchanged(request, tag)
    if unchanged is not None:
        return unchanged
    path = request.parts.blobs.path(info.blob)
    stat = await asyncio.to_thread(path.stat)
    ranges = _ranges(request, tag, stat.st_size)
    response = FileResponse(path, headers=_headers(tag, content_type), filename=name, stat_result=stat)

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        # The ranges were decided on above; the response only has to cut.
        kept = [(k, v) for k, v in scope["headers"] if k not in (b"range", b"if-range")]
        if ranges:
            kept.append((b"range", render_range(ranges).encode()))
        await response({**scope, "headers": kept}, receive, send)

    return Answer(200, [], stream=stream)


def _inline(request: Request, body: bytes, name: str) -> Answer:
    tag = f'"{hashlib.sha256(body).hexdigest()}"'
    unchanged = _unchanged(request, tag)
    if unchanged is not None:
        return unchanged
    size = len(body)
    ranges = _ranges(request, tag, size)
    headers: Headers = [(k.encode(), v.encode()) for k, v in _headers(tag, JSON_TYPE).items()]
    headers.append((b"content-disposition", f'attachment; filename="{name}"'.encode()))
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
_PROBLEMS = (NotFound, Gone, NoResult, RangeNotSatisfiable)

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
