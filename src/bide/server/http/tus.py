"""Resumable uploads at /files, according to tus 1.0.

1. The bytes before a reported Upload-Offset are on disk.
2. HEAD and PATCH cancel an older request for the same upload, because the client has reconnected.
3. With `kind` in Upload-Metadata, the last byte creates a job; `Job-Location` is its URL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import msgspec

from bide.core.errors import (
    ChecksumMismatch,
    FinalUpload,
    Forbidden,
    Gone,
    IdempotencyConflict,
    IdempotencyKeyRequired,
    InvalidInput,
    MalformedRequest,
    MethodNotAllowed,
    MisdirectedUpload,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    Problem,
    QuotaExceeded,
    StorageFull,
    StorageUnavailable,
    TakenOver,
    TusVersion,
    UnknownKind,
    UnsupportedMedia,
    UploadConflict,
    WrongContent,
    WrongLength,
    WrongOffset,
)
from bide.core.wire.digest import read_digest, render_digest
from bide.core.wire.http import read_idempotency_key
from bide.core.wire.tus import (
    ALGORITHMS,
    BODY_TYPE,
    EXTENSIONS,
    VERSION,
    read_checksum,
    read_concat,
    read_count,
    read_metadata,
    render_date,
    without,
)
from bide.server.http.attachments import attachment
from bide.server.http.request import REPLAYED, BodyStream, Headers, HttpRequest, Response
from bide.server.http.restrictions import restrict_upload
from bide.server.http.routing import TOKEN, HttpOperation, Parameter, ResponseSpec
from bide.server.http.schemas import BINARY
from bide.server.http.uploads import UPLOAD_ID, find_upload, read_sha256, remove
from bide.server.store import StoreUnavailable
from bide.server.upload_record import Upload, UploadStatus, Way
from bide.server.uploads.names import clean_name, clean_type
from bide.server.uploads.upload_jobs import UploadJob, make_upload_job

BASE_PATH = "/files"
_JSON_FIELDS = ("priority", "labels", "webhook")
_TEXT_FIELDS = ("kind", "queue", "runAt", "deadline", "dedupe")
Handler = Callable[[HttpRequest], Awaitable[Response]]


def _checks_version(handler: Handler) -> Handler:
    """Reject requests of another tus version, and add the version to every response."""

    @wraps(handler)
    async def checked(request: HttpRequest) -> Response:
        try:
            requested = request.header(b"tus-resumable")
            if requested != VERSION:
                version = {"Tus-Version": VERSION}
                raise TusVersion(f"Tus-Resumable is {requested!r}; send {VERSION}", headers=version)
            response = await handler(request)
        except Problem as problem:
            problem.headers["Tus-Resumable"] = VERSION
            problem.headers.setdefault("Cache-Control", "no-store")
            raise
        response.headers.append((b"tus-resumable", VERSION.encode()))
        return response

    return checked


async def options(request: HttpRequest) -> Response:
    headers = {
        "tus-resumable": VERSION,
        "tus-version": VERSION,
        "tus-extension": ",".join(EXTENSIONS),
        "tus-max-size": str(request.components.config.uploads.max_size),
        "tus-checksum-algorithm": ",".join(ALGORITHMS),
    }
    return Response(204, [(name.encode(), value.encode()) for name, value in headers.items()])


# --- creating


async def create(request: HttpRequest) -> Response:
    uploads = request.components.uploads
    metadata = request.header(b"upload-metadata") or ""
    given = read_metadata(metadata)
    name = clean_name(given.get("filename") or given.get("name"))
    job = await restrict_upload(request, _job(request, given))
    if job is not None and job.submission.webhook is not None and job.submission.webhook.secret:
        # HEAD returns the metadata, and no response has a secret.
        metadata = without(metadata, "webhook")
    fields: dict[str, Any] = {
        "content_type": clean_type(
            given.get("filetype") or given.get("type") or given.get("contentType")
        ),
        "metadata": metadata,
        "promised": read_sha256(given.get("sha256")),
        "tenant": request.tenant,
    }
    partial, urls = read_concat(request.header(b"upload-concat"))
    if (partial or urls) and request.principal.is_restricted:
        raise Forbidden("a token begins no uploads in parts")  # parts are of no job
    size = _size(request, final=bool(urls))
    body = await _sent_body(request, size)
    if urls:
        upload = await uploads.tus.concatenate([_id_of(url) for url in urls], name, job, **fields)
        return _response(request, 201, upload, located=True)
    if partial:  # has no type, checksum and job of its own
        upload = await uploads.begin(
            Way.TUS, name, size=size, partial=True, metadata=metadata, tenant=request.tenant
        )
    else:
        upload = await uploads.begin(Way.TUS, name, job, size=size, **fields)
    if body is not None:
        upload = await _append(request, upload, 0, body)
    return _response(request, 201, upload, located=True, offset=body is not None)


def _size(request: HttpRequest, *, final: bool) -> int | None:
    size = read_count("Upload-Length", request.header(b"upload-length"))
    deferred = request.header(b"upload-defer-length")
    if deferred not in (None, "1"):
        raise MalformedRequest(f"Upload-Defer-Length is {deferred[:50]!r}; only 1 is allowed")
    if final:
        if size is not None or deferred is not None:
            raise MalformedRequest(
                "the length of a final upload is the sum of its parts: remove Upload-Length and Upload-Defer-Length"
            )
    elif (size is None) == (deferred is None):
        raise MalformedRequest("send either Upload-Length or Upload-Defer-Length: 1")
    return size


def _id_of(url: str) -> str:
    """Return the id in the URL of an upload, relative or absolute."""
    return url.rstrip("/").rpartition("/")[2]


async def _sent_body(request: HttpRequest, size: int | None) -> BodyStream | None:
    """The body, if the request that creates an upload also sends bytes of it, or the upload has none. Raise
    UnsupportedMedia if it sends other bytes.
    """
    length = request.content_length
    if length == 0 and size != 0:
        return None
    body = BodyStream(request)
    if length == 0 or request.header(b"content-type") == BODY_TYPE:
        return body
    if length or len(await anext(body, b"")):
        raise UnsupportedMedia(f"Content-Type must be {BODY_TYPE} for POST with bytes of the upload")
    return body if size == 0 else None


def _job(request: HttpRequest, given: dict[str, str]) -> UploadJob | None:
    """Return the job that Upload-Metadata describes, if any."""
    if "kind" not in given:
        if "input" in given:
            raise InvalidInput("Upload-Metadata has `input` without `kind`; add `kind`")
        return None
    fields: dict[str, Any] = {name: given[name] for name in _TEXT_FIELDS if name in given}
    fields |= {name: _json(name, given[name]) for name in _JSON_FIELDS if name in given}
    input = given.get("input")
    return make_upload_job(
        fields,
        None if input is None else input.encode(),
        parameter=given.get("parameter"),
        key=read_idempotency_key(given.get("idempotencyKey")),
        trace_id=request.trace_id,
    )


def _json(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise InvalidInput(f"Upload-Metadata: `{name}` is not JSON") from None


# --- appending


async def _append(request: HttpRequest, upload: Upload, offset: int, body: BodyStream) -> Upload:
    """Append the body. The bytes of an upload that began without a size count for the limit of the tenant now."""
    size = read_count("Upload-Length", request.header(b"upload-length"))
    try:
        async with request.components.limits.receiving(request.tenant) as received:
            if upload.size is None and size is None:
                body.received = received
            elif upload.size is None and size is not None:
                await received.add(max(0, size - upload.received))
            return await request.components.uploads.tus.append(
                upload.id,
                offset,
                body,
                announced=request.content_length,
                size=size,
                checksum=read_checksum(request.header(b"upload-checksum")),
                promised=read_digest(request.header(b"repr-digest")),
            )
    except (WrongOffset, TakenOver, UploadConflict) as problem:
        with contextlib.suppress(Problem, StoreUnavailable):  # removed in the meantime
            found = await request.components.uploads.find(upload.id)
            if found.way is Way.TUS:
                problem.headers["Upload-Offset"] = str(found.received)
        raise


async def patch(request: HttpRequest) -> Response:
    if request.header(b"content-type") != BODY_TYPE:
        raise UnsupportedMedia(f"Content-Type must be {BODY_TYPE} for PATCH")
    offset = read_count("Upload-Offset", request.header(b"upload-offset"))
    if offset is None:
        raise MalformedRequest("Upload-Offset is missing")
    upload = await _append(request, await find_upload(request), offset, BodyStream(request))
    return _response(request, 204, upload, offset=True)


async def head(request: HttpRequest) -> Response:
    uploads = request.components.uploads
    upload = await find_upload(request)
    if upload.way is not Way.TUS:
        raise NotFound(f"upload {upload.id} is a {upload.way} upload, not a tus upload")
    if upload.status is not UploadStatus.DONE:
        upload = await uploads.tus.position(upload.id)
    response = _response(request, 200, upload, offset=True)
    response.headers.append((b"cache-control", b"no-store"))
    if upload.size is None:
        response.headers.append((b"upload-defer-length", b"1"))
    else:
        response.headers.append((b"upload-length", b"%d" % upload.size))
    if upload.metadata:
        response.headers.append((b"upload-metadata", upload.metadata.encode("latin-1")))
    if upload.partial:
        response.headers.append((b"upload-concat", b"partial"))
    if upload.parts:
        urls = " ".join(f"{request.base}{BASE_PATH}/{part}" for part in upload.parts)
        response.headers.append((b"upload-concat", f"final;{urls}".encode()))
    return response


def _response(
    request: HttpRequest,
    status: int,
    upload: Upload,
    *,
    located: bool = False,
    offset: bool = False,
) -> Response:
    headers: Headers = []
    if status == 201:
        headers.append((b"content-length", b"0"))
    if located:
        headers.append((b"location", f"{request.base}{BASE_PATH}/{upload.id}".encode()))
    if offset:
        headers.append((b"upload-offset", b"%d" % upload.received))
    if upload.job_id is not None:
        headers.append((b"job-location", f"{request.base}/jobs/{upload.job_id}".encode()))
    if upload.replayed:
        headers.append(REPLAYED)
    if upload.status is UploadStatus.DONE:
        headers.append((b"repr-digest", render_digest(upload.sha256).encode()))
    elif upload.expires_at is not None:
        headers.append((b"upload-expires", render_date(upload.expires_at).encode()))
    return Response(status, headers)


# --- removing and downloading


async def override(request: HttpRequest) -> Response:
    """Apply X-HTTP-Method-Override, for clients that can only send POST."""
    method = (request.header(b"x-http-method-override") or "").upper()
    if method == "PATCH":
        return await patch(request)
    if method == "DELETE":
        return await remove(request)
    await find_upload(request)
    raise MethodNotAllowed(
        f"POST to {request.path[:200]!r} needs X-HTTP-Method-Override: PATCH or DELETE",
        headers={"Allow": "DELETE, GET, HEAD, PATCH, POST"},
    )


async def download(request: HttpRequest) -> Response:
    """Return a complete upload as an attachment."""
    upload = await find_upload(request)
    if upload.status is not UploadStatus.DONE:
        raise UploadConflict(
            f"upload {upload.id} is incomplete: {upload.received} bytes received",
            headers={"Upload-Offset": str(upload.received)},
        )
    return await attachment(request, upload.file, upload.content_type, upload.name)


def _header(name: str, text: str, **schema: Any) -> Parameter:
    return Parameter(name, "header", text, schema or {"type": "string"})


_COUNT = {"type": "string", "pattern": "^[0-9]{1,18}$"}
_TUS = Parameter("Tus-Resumable", "header", "Always 1.0.0.", {"const": VERSION}, required=True)
_LENGTH = _header("Upload-Length", "The size of the file in bytes.", **_COUNT)
_CHECKSUM = _header(
    "Upload-Checksum", f"An algorithm ({', '.join(ALGORITHMS)}) and the checksum in Base64."
)
_DIGEST = _header(
    "Repr-Digest",
    "The expected SHA-256 of the whole file (RFC 9530), at the latest with the last bytes.",
)
_RESPONSE_HEADERS = (
    *("Tus-Resumable", "Upload-Offset", "Upload-Expires", "Job-Location", "Idempotency-Replayed"),
    "Repr-Digest",
)
_PROBLEMS = (
    *(MalformedRequest, WrongOffset, TakenOver, UploadConflict, WrongLength, WrongContent, InvalidInput),
    *(
        ChecksumMismatch,
        UnsupportedMedia,
        StorageFull,
        QuotaExceeded,
        Overloaded,
        PayloadTooLarge,
        MisdirectedUpload,
        StorageUnavailable,
    ),
    *(IdempotencyConflict, IdempotencyKeyRequired, UnknownKind, TusVersion, NotFound, Gone, FinalUpload),
)
_ABOUT = "According to tus 1.0 (https://tus.io/protocols/resumable-upload); every tus client works. "

OPERATIONS = [
    HttpOperation(
        "OPTIONS",
        BASE_PATH,
        options,
        "getTusOptions",
        "Get the tus version and extensions",
        "resumable uploads",
        scope=None,
        responses=(
            ResponseSpec(
                204, "See the headers.", headers=("Tus-Version", "Tus-Extension", "Tus-Max-Size")
            ),
        ),
        example="-X OPTIONS $BASE/files -D -",
    ),
    HttpOperation(
        "POST",
        BASE_PATH,
        _checks_version(create),
        "createFile",
        "Begin a resumable upload",
        "resumable uploads",
        description=_ABOUT
        + "`Upload-Metadata` may contain `filename`, `filetype`, `sha256`, and for a job `kind`, "
        "`input`, `parameter`, `priority`, `queue`, `labels`, `runAt`, `deadline`, `idempotencyKey`, `dedupe`.",
        parameters=(
            _TUS,
            _LENGTH,
            _header("Upload-Defer-Length", "1 if the length is not known yet.", const="1"),
            _header("Upload-Metadata", "Keys with values in Base64, separated by commas."),
            _header("Upload-Concat", "`partial`, or `final;` and the URLs of the partial uploads."),
            _CHECKSUM,
            _DIGEST,
            TOKEN,
        ),
        content=((BODY_TYPE, BINARY),),
        needs_body=False,
        scope="submit",
        narrows=True,
        responses=(
            ResponseSpec(201, "Send the bytes to `Location`.", headers=("Location", *_RESPONSE_HEADERS)),
        ),
        problems=_PROBLEMS,
        example="-X POST $BASE/files -H 'Tus-Resumable: 1.0.0' -H 'Upload-Length: 1000' -D -",
    ),
    HttpOperation(
        "GET",
        BASE_PATH + "/{uploadId}",
        download,
        "getFileOfUpload",
        "Download a complete upload",
        "resumable uploads",
        parameters=(UPLOAD_ID, TOKEN),
        scope="read",
        responses=(
            ResponseSpec(
                200, "The file.", BINARY, content_types=("*/*",), headers=("ETag", "Content-Disposition")
            ),
            ResponseSpec(206, "The requested range.", headers=("ETag", "Content-Range")),
            ResponseSpec(304, "The ETag has not changed.", headers=("ETag",)),
        ),
        problems=(NotFound, Gone, UploadConflict),
        example="-O -J $BASE/files/UPLOAD_ID",
    ),
    HttpOperation(
        "HEAD",
        BASE_PATH + "/{uploadId}",
        _checks_version(head),
        "headFile",
        "Get the offset of an upload",
        "resumable uploads",
        description="Cancels an older request that still sends bytes.",
        parameters=(UPLOAD_ID, _TUS, TOKEN),
        scope="submit",
        responses=(ResponseSpec(200, "See the headers.", headers=_RESPONSE_HEADERS),),
        problems=(NotFound, Gone, MisdirectedUpload, TusVersion, TakenOver, StorageUnavailable),
        example="-I $BASE/files/UPLOAD_ID -H 'Tus-Resumable: 1.0.0'",
    ),
    HttpOperation(
        "PATCH",
        BASE_PATH + "/{uploadId}",
        _checks_version(patch),
        "patchFile",
        "Append to an upload",
        "resumable uploads",
        description="The response to the last bytes has `Job-Location` if the upload has a kind.",
        parameters=(
            UPLOAD_ID,
            _TUS,
            Parameter("Upload-Offset", "header", "The offset of the first byte.", _COUNT, required=True),
            _LENGTH,
            _CHECKSUM,
            _DIGEST,
            TOKEN,
        ),
        content=((BODY_TYPE, BINARY),),
        scope="submit",
        responses=(ResponseSpec(204, "The bytes are on disk.", headers=_RESPONSE_HEADERS),),
        problems=_PROBLEMS,
        example="-X PATCH $BASE/files/UPLOAD_ID -H 'Tus-Resumable: 1.0.0' -H 'Upload-Offset: 0' "
        "-H 'Content-Type: application/offset+octet-stream' --data-binary @FILE",
    ),
    HttpOperation(
        "POST",
        BASE_PATH + "/{uploadId}",
        _checks_version(override),
        "overrideFileMethod",
        "Append to an upload or remove it, for clients that can only send POST",
        "resumable uploads",
        parameters=(
            UPLOAD_ID,
            _TUS,
            Parameter(
                "X-HTTP-Method-Override",
                "header",
                "The method of the request.",
                {"enum": ["PATCH", "DELETE"]},
                required=True,
            ),
            TOKEN,
        ),
        content=((BODY_TYPE, BINARY),),
        needs_body=False,
        scope="submit",
        responses=(ResponseSpec(204, "See PATCH and DELETE.", headers=_RESPONSE_HEADERS),),
        problems=(*_PROBLEMS, MethodNotAllowed),
        example="-X POST $BASE/files/UPLOAD_ID -H 'Tus-Resumable: 1.0.0' -H 'X-HTTP-Method-Override: DELETE'",
    ),
    HttpOperation(
        "DELETE",
        BASE_PATH + "/{uploadId}",
        _checks_version(remove),
        "deleteFile",
        "Remove an upload",
        "resumable uploads",
        parameters=(UPLOAD_ID, _TUS, TOKEN),
        scope="submit",
        responses=(ResponseSpec(204, "The upload is removed.", headers=("Tus-Resumable",)),),
        problems=(NotFound, Gone, UploadConflict, TusVersion),
        example="-X DELETE $BASE/files/UPLOAD_ID -H 'Tus-Resumable: 1.0.0'",
    ),
]
