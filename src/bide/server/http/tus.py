"""Resumable uploads at /files, as tus 1.0 has them: a file goes on where a bad connection has left it.

1. An Upload-Offset that is told is on disk.
2. HEAD and PATCH cut off an older request for the same upload: a sender that comes again is the one that counts.
3. `kind` in Upload-Metadata makes a job of the upload with its last byte; `Job-Location` is where it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import msgspec

from bide.core.digest import read_digest, render_digest
from bide.core.errors import (
    ChecksumMismatch,
    Gone,
    IdempotencyConflict,
    IdempotencyKeyRequired,
    InvalidInput,
    MalformedRequest,
    MisdirectedUpload,
    NotFound,
    PayloadTooLarge,
    Problem,
    StorageFull,
    TakenOver,
    TusVersion,
    UnknownKind,
    UnsupportedMedia,
    UploadConflict,
    WrongContent,
    WrongLength,
    WrongOffset,
)
from bide.core.tus import (
    ALGORITHMS,
    BODY_TYPE,
    EXTENSIONS,
    VERSION,
    read_checksum,
    read_concat,
    read_count,
    read_metadata,
    render_date,
)
from bide.core.upload import Upload, UploadStatus, Way
from bide.core.wire import read_idempotency_key
from bide.server.http.attachments import attachment
from bide.server.http.bodies import Body, announced
from bide.server.http.exchange import Answer, Headers, Request
from bide.server.http.operations import Operation, Parameter, Reply
from bide.server.http.uploads import BINARY, UPLOAD_ID, read_sha256
from bide.server.store import StoredUploads
from bide.server.uploads.appending import Appending
from bide.server.uploads.joining import join
from bide.server.uploads.names import clean_name, clean_type
from bide.server.uploads.wishes import wish

PLACE = "/files"
OVERRIDES = ("PATCH", "DELETE")
_OPTIONS = ("priority", "labels")  # of a job, as JSON
_TEXTS = {"queue": "queue", "runAt": "runAt", "deadline": "deadline", "dedupe": "dedupe"}
Handler = Callable[[Request], Awaitable[Answer]]


def override(request: Request) -> None:
    """X-HTTP-Method-Override, for callers that can send nothing but POST."""
    if request.scope["method"] == "POST" and request.path.startswith(PLACE):
        wanted = (request.header(b"x-http-method-override") or "").upper()
        if wanted in OVERRIDES:
            request.scope["method"] = wanted


def _speaks(handler: Handler) -> Handler:
    """Only to who speaks the same version; every answer tells it."""

    @wraps(handler)
    async def speaking(request: Request) -> Answer:
        try:
            told = request.header(b"tus-resumable")
            if told != VERSION:
                version = {"Tus-Version": VERSION}
                raise TusVersion(f"Tus-Resumable is {told!r}; {VERSION} is spoken here", headers=version)
            answer = await handler(request)
        except Problem as problem:
            problem.headers["Tus-Resumable"] = VERSION
            problem.headers.setdefault("Cache-Control", "no-store")
            raise
        answer.headers.append((b"tus-resumable", VERSION.encode()))
        return answer

    return speaking


async def options(request: Request) -> Answer:
    headers = {
        "tus-resumable": VERSION,
        "tus-version": VERSION,
        "tus-extension": ",".join(EXTENSIONS),
        "tus-max-size": str(request.parts.config.uploads.max_size),
        "tus-checksum-algorithm": ",".join(ALGORITHMS),
    }
    return Answer(204, [(name.encode(), value.encode()) for name, value in headers.items()])


# --- beginning


async def create(request: Request) -> Answer:
    reception = request.parts.reception
    metadata = request.header(b"upload-metadata") or ""
    fields = _read_wish(request, metadata)
    name = fields.pop("name")
    partial, places = read_concat(request.header(b"upload-concat"))
    upload_id = request.parts.intake.id()
    size = _size(request, final=bool(places))
    kept: StoredUploads | None = None
    if places:
        parts = [_id_of(place) for place in places]
        upload, kept = await join(reception, upload_id, parts, name, **fields)
        return _answer(request, 201, upload, kept, located=True)
    if partial:
        fields = {"metadata": metadata}  # a part is nothing of its own
    upload = await reception.begin(Way.TUS, name, upload_id, size=size, partial=partial, **fields)
    sent = _has_body(request) or size == 0
    if sent:
        upload, kept = await _append(request, upload.id, 0)
    return _answer(request, 201, upload, kept, located=True, offset=sent)


def _size(request: Request, *, final: bool) -> int | None:
    size = read_count("Upload-Length", request.header(b"upload-length"))
    deferred = request.header(b"upload-defer-length")
    if deferred not in (None, "1"):
        raise MalformedRequest("Upload-Defer-Length can only be 1")
    if final:
        if size is not None or deferred is not None:
            raise MalformedRequest("a final upload has the length of its parts: leave Upload-Length out")
    elif (size is None) == (deferred is None):
        raise MalformedRequest("either Upload-Length or Upload-Defer-Length: 1 is needed")
    return size


def _id_of(place: str) -> str:
    """Of an address as we have told it, relative or absolute."""
    return place.rstrip("/").rpartition("/")[2]


def _has_body(request: Request) -> bool:
    length = announced(request)
    return request.header(b"content-type") == BODY_TYPE and length != 0


def _read_wish(request: Request, metadata: str) -> dict[str, Any]:
    """What Upload-Metadata says of the file and of the job that it is to become."""
    told = read_metadata(metadata)
    fields: dict[str, Any] = {
        "name": clean_name(told.get("filename") or told.get("name")),
        "content_type": clean_type(told.get("filetype") or told.get("type") or told.get("contentType")),
        "metadata": metadata,
        "promised": read_sha256(told.get("sha256")),
    }
    if "kind" not in told:
        if "input" in told:
            raise InvalidInput("Upload-Metadata: an input without a kind")
        return fields
    more = {name: _json(name, told[name]) for name in _OPTIONS if name in told}
    more.update({_TEXTS[name]: told[name] for name in _TEXTS if name in told})
    given = told.get("input")
    if given is not None:
        _json("input", given)
    fields["submission"] = wish(
        kind=told["kind"], input=None if given is None else given.encode(), **more
    )
    fields["parameter"] = told.get("parameter")
    fields["trace_id"] = request.trace_id
    if "idempotencyKey" in told:
        fields["key"] = read_idempotency_key(told["idempotencyKey"])
    return fields


def _json(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise InvalidInput(f"Upload-Metadata: {name} is not JSON") from None


# --- going on


async def _append(request: Request, upload_id: str, offset: int) -> tuple[Upload, StoredUploads | None]:
    return await Appending(request.parts.reception).append(
        upload_id,
        offset,
        Body(request),
        announced=announced(request),
        size=read_count("Upload-Length", request.header(b"upload-length")),
        checksum=read_checksum(request.header(b"upload-checksum")),
        promised=read_digest(request.header(b"repr-digest")),
    )


async def patch(request: Request) -> Answer:
    upload_id = request.args[0]
    if request.header(b"content-type") != BODY_TYPE:
        raise UnsupportedMedia(f"Content-Type must be {BODY_TYPE}")
    offset = read_count("Upload-Offset", request.header(b"upload-offset"))
    if offset is None:
        raise MalformedRequest("Upload-Offset is missing")
    upload, kept = await _append(request, upload_id, offset)
    return _answer(request, 204, upload, kept, offset=True)


async def head(request: Request) -> Answer:
    reception = request.parts.reception
    upload = await reception.find(request.args[0])
    if upload.way is not Way.TUS:
        raise NotFound(f"upload {upload.id} did not come by way of tus")
    if upload.status is not UploadStatus.DONE:
        upload = await Appending(reception).position(upload.id)
    answer = _answer(request, 200, upload, None, offset=True)
    answer.headers.append((b"cache-control", b"no-store"))
    if upload.size is None:
        answer.headers.append((b"upload-defer-length", b"1"))
    else:
        answer.headers.append((b"upload-length", b"%d" % upload.size))
    if upload.metadata:
        answer.headers.append((b"upload-metadata", upload.metadata.encode("latin-1")))
    if upload.partial:
        answer.headers.append((b"upload-concat", b"partial"))
    if upload.parts:
        places = " ".join(f"{request.base}{PLACE}/{part}" for part in upload.parts)
        answer.headers.append((b"upload-concat", f"final;{places}".encode()))
    return answer


def _answer(
    request: Request,
    status: int,
    upload: Upload,
    kept: StoredUploads | None,
    *,
    located: bool = False,
    offset: bool = False,
) -> Answer:
    if kept is not None:
        upload = kept.uploads[0]
    headers: Headers = []
    if status == 201:
        headers.append((b"content-length", b"0"))
    if located:
        headers.append((b"location", f"{request.base}{PLACE}/{upload.id}".encode()))
    if offset:
        headers.append((b"upload-offset", b"%d" % upload.received))
    if upload.job_id is not None:
        headers.append((b"job-location", f"{request.base}/jobs/{upload.job_id}".encode()))
    if upload.status is UploadStatus.DONE:
        headers.append((b"repr-digest", render_digest(upload.sha256).encode()))
    elif upload.expires_at is not None:
        headers.append((b"upload-expires", render_date(upload.expires_at).encode()))
    return Answer(status, headers)


# --- the end


async def remove(request: Request) -> Answer:
    await request.parts.reception.remove(request.args[0])
    return Answer(204, [])


async def download(request: Request) -> Answer:
    """Only what is whole; as a file to be saved, never as a page."""
    upload = await request.parts.reception.find(request.args[0])
    if upload.status is not UploadStatus.DONE:
        raise UploadConflict(f"the upload is not whole yet: {upload.received} bytes have come")
    return await attachment(request, upload.file, upload.content_type, upload.name)


def _header(name: str, text: str, **schema: Any) -> Parameter:
    return Parameter(name, "header", text, schema or {"type": "string"})


_COUNT = {"type": "string", "pattern": "^[0-9]{1,18}$"}
_TUS = Parameter("Tus-Resumable", "header", "Always 1.0.0.", {"const": VERSION}, required=True)
_LENGTH = _header("Upload-Length", "How many bytes there will be.", **_COUNT)
_CHECKSUM = _header("Upload-Checksum", f"One of {', '.join(ALGORITHMS)}, and the checksum in Base64.")
_WHOLE = _header(
    "Repr-Digest", "The SHA-256 that the whole must have (RFC 9530), at the latest with the last byte."
)
_ANSWERED = ("Tus-Resumable", "Upload-Offset", "Upload-Expires", "Job-Location", "Repr-Digest")
_PATCHING = (
    *(MalformedRequest, WrongOffset, TakenOver, UploadConflict, WrongLength, WrongContent, InvalidInput),
    *(ChecksumMismatch, UnsupportedMedia, StorageFull, PayloadTooLarge, MisdirectedUpload),
    *(IdempotencyConflict, IdempotencyKeyRequired, UnknownKind, TusVersion, NotFound, Gone),
)
_ABOUT = (
    "As [tus 1.0](https://tus.io/protocols/resumable-upload) has it; any client of tus can be used. "
)

_OPERATIONS = [
    Operation(
        "OPTIONS",
        PLACE,
        options,
        "getTusOptions",
        "Which version and extensions of tus are spoken",
        "resumable uploads",
        replies=(
            Reply(204, "See the headers.", headers=("Tus-Version", "Tus-Extension", "Tus-Max-Size")),
        ),
        example="-X OPTIONS $BASE/files -D -",
    ),
    Operation(
        "POST",
        PLACE,
        _speaks(create),
        "createFile",
        "Begin a resumable upload",
        "resumable uploads",
        description=_ABOUT
        + "`Upload-Metadata` may name `filename`, `filetype`, `sha256`, and for a job `kind`, "
        "`input`, `parameter`, `priority`, `queue`, `labels`, `runAt`, `deadline`, `idempotencyKey`, `dedupe`.",
        parameters=(
            _TUS,
            _LENGTH,
            _header("Upload-Defer-Length", "1 when the length is not known yet.", const="1"),
            _header("Upload-Metadata", "Names, each with a value in Base64, separated by commas."),
            _header("Upload-Concat", "`partial`, or `final;` and the addresses of the parts."),
            _CHECKSUM,
            _WHOLE,
        ),
        content=((BODY_TYPE, BINARY),),
        needs_body=False,
        replies=(Reply(201, "It can be sent to `Location`.", headers=("Location", *_ANSWERED)),),
        problems=_PATCHING,
        example="-X POST $BASE/files -H 'Tus-Resumable: 1.0.0' -H 'Upload-Length: 1000' -D -",
    ),
    Operation(
        "GET",
        PLACE + "/{uploadId}",
        download,
        "getFileOfUpload",
        "The bytes of a whole upload",
        "resumable uploads",
        parameters=(UPLOAD_ID,),
        replies=(
            Reply(
                200, "The file.", BINARY, content_types=("*/*",), headers=("ETag", "Content-Disposition")
            ),
            Reply(206, "The ranges that were asked for.", headers=("ETag", "Content-Range")),
            Reply(304, "The ETag is still the same.", headers=("ETag",)),
        ),
        problems=(NotFound, Gone, UploadConflict),
        example="-O -J $BASE/files/UPLOAD_ID",
    ),
    Operation(
        "HEAD",
        PLACE + "/{uploadId}",
        _speaks(head),
        "headFile",
        "Where an upload is at",
        "resumable uploads",
        description="Cuts off an older request that still sends to it.",
        parameters=(UPLOAD_ID, _TUS),
        replies=(Reply(200, "See the headers.", headers=_ANSWERED),),
        problems=(NotFound, Gone, MisdirectedUpload, TusVersion, TakenOver),
        example="-I $BASE/files/UPLOAD_ID -H 'Tus-Resumable: 1.0.0'",
    ),
    Operation(
        "PATCH",
        PLACE + "/{uploadId}",
        _speaks(patch),
        "patchFile",
        "Go on with an upload",
        "resumable uploads",
        description="The answer to the last byte has `Job-Location` when a job was asked for.",
        parameters=(
            UPLOAD_ID,
            _TUS,
            Parameter("Upload-Offset", "header", "Where these bytes begin.", _COUNT, required=True),
            _LENGTH,
            _CHECKSUM,
            _WHOLE,
        ),
        content=((BODY_TYPE, BINARY),),
        replies=(Reply(204, "They are on disk.", headers=_ANSWERED),),
        problems=_PATCHING,
        example="-X PATCH $BASE/files/UPLOAD_ID -H 'Tus-Resumable: 1.0.0' -H 'Upload-Offset: 0' "
        "-H 'Content-Type: application/offset+octet-stream' --data-binary @FILE",
    ),
    Operation(
        "DELETE",
        PLACE + "/{uploadId}",
        _speaks(remove),
        "deleteFile",
        "Remove an upload",
        "resumable uploads",
        parameters=(UPLOAD_ID, _TUS),
        replies=(Reply(204, "It is removed.", headers=("Tus-Resumable",)),),
        problems=(NotFound, Gone, UploadConflict, TusVersion),
        example="-X DELETE $BASE/files/UPLOAD_ID -H 'Tus-Resumable: 1.0.0'",
    ),
]
# Its own protocol says more of it than OpenAPI could.
OPERATIONS = [replace(operation, listed=False) for operation in _OPERATIONS]
