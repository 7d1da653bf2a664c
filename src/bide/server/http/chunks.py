"""Uploads in numbered chunks, for simple clients: begin, PUT each chunk, list the missing ones. The last one completes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from bide.core.errors import (
    ChecksumMismatch,
    Gone,
    IdempotencyConflict,
    IdempotencyKeyRequired,
    InvalidInput,
    MalformedRequest,
    MisdirectedUpload,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    QuotaExceeded,
    StorageFull,
    StorageUnavailable,
    TakenOver,
    UnknownKind,
    UnsupportedMedia,
    UploadConflict,
    WrongContent,
    WrongLength,
)
from bide.server.http.new_upload import NewUpload
from bide.server.http.request import REPLAYED, BodyStream, HttpRequest, Response, object_response
from bide.server.http.routing import TOKEN, HttpOperation, Parameter, ResponseSpec
from bide.server.http.schemas import BINARY
from bide.server.http.uploads import UPLOAD_ID, find_upload, location, read_sha256
from bide.server.intake import decode
from bide.server.upload_record import MOST_CHUNKS, Upload, UploadStatus, Way, WireUpload, wire_upload
from bide.server.uploads.chunks import DEFAULT_CHUNK, MAX_CHUNK, MIN_CHUNK
from bide.server.uploads.names import clean_name, clean_type

MAX_LISTED = 1000  # missing chunks per response


class NewChunked(NewUpload, kw_only=True):
    """The file and, with a kind, the job that is created when it is complete."""

    chunk_size: Annotated[int, msgspec.Meta(ge=MIN_CHUNK, le=MAX_CHUNK)] | None = None


class ChunkState(msgspec.Struct, rename="camel"):
    """The missing chunks: the first thousand of them, by number from 0."""

    upload_id: str
    size: int
    chunk_size: int
    chunks: int
    missing: list[int]
    missing_count: int


_decoder = msgspec.json.Decoder(NewChunked)


def _state(upload: Upload) -> ChunkState:
    assert upload.chunk_size is not None and upload.size is not None
    missing = upload.missing
    return ChunkState(
        upload.id, upload.size, upload.chunk_size, upload.chunk_count, missing[:MAX_LISTED], len(missing)
    )


async def begin(request: HttpRequest) -> Response:
    wanted = decode(_decoder, await request.json())
    chunk_size = wanted.chunk_size or DEFAULT_CHUNK
    if wanted.size > chunk_size * MOST_CHUNKS:
        if wanted.chunk_size is not None:
            detail = f"{wanted.size} bytes make more than {MOST_CHUNKS} chunks of {chunk_size} bytes; use larger chunks"
            raise InvalidInput(detail, errors=[{"pointer": "/chunkSize", "detail": detail}])
        chunk_size = -(-wanted.size // MOST_CHUNKS)
    upload = await request.components.uploads.begin(
        Way.CHUNKS,
        clean_name(wanted.name),
        await wanted.job(request),
        size=wanted.size,
        content_type=clean_type(wanted.content_type),
        chunk_size=chunk_size,
        promised=read_sha256(wanted.sha256),
        tenant=request.tenant,
    )
    return object_response(_state(upload), location(request, upload), status=201)


async def put(request: HttpRequest) -> Response:
    upload_id, text = request.args
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise NotFound(f"{text[:50]!r} is not a chunk number")
    await find_upload(request)
    upload = await request.components.uploads.chunks.put(
        upload_id, int(text), BodyStream(request), request.content_length
    )
    if upload.status is UploadStatus.DONE:
        return _completed(request, upload)
    return Response(204, [])


async def missing(request: HttpRequest) -> Response:
    upload = await find_upload(request)
    if upload.way is not Way.CHUNKS:
        raise UploadConflict(f"upload {upload.id} is a {upload.way} upload and has no chunks")
    return object_response(_state(upload))


async def complete(request: HttpRequest) -> Response:
    upload_id, uploads = request.args[0], request.components.uploads
    if (await find_upload(request)).way is Way.PRESIGNED:
        upload = await uploads.presigned.complete(upload_id)
    else:
        upload = await uploads.chunks.complete(upload_id)
    return _completed(request, upload)


def _completed(request: HttpRequest, upload: Upload) -> Response:
    job: list[tuple[bytes, bytes]] = []
    if upload.job_id is not None:
        job.append((b"job-location", f"{request.base}/jobs/{upload.job_id}".encode()))
    if upload.replayed:
        job.append(REPLAYED)
    return object_response(wire_upload(upload), *job)


_NUMBER = Parameter(
    "number",
    "path",
    "The number of the chunk, from 0.",
    {"type": "string", "pattern": "^[0-9]{1,6}$"},
    required=True,
)
_COMPLETED = ResponseSpec(
    *(200, "The upload is complete.", WireUpload), headers=("Job-Location", "Idempotency-Replayed")
)
_MAKING = (
    *(InvalidInput, UnknownKind, IdempotencyKeyRequired, IdempotencyConflict, WrongContent, Gone),
    *(StorageFull, QuotaExceeded, Overloaded, PayloadTooLarge, MalformedRequest, UnsupportedMedia),
)

OPERATIONS = [
    HttpOperation(
        "POST",
        "/uploads/chunked",
        begin,
        "createChunkedUpload",
        "Begin an upload in chunks",
        "uploads",
        description="Chunk n begins at byte n × `chunkSize`; the last one may be shorter.",
        parameters=(TOKEN,),
        body="NewChunked",
        reads=NewChunked,
        scope="submit",
        narrows=True,
        responses=(
            ResponseSpec(201, "The upload; send its chunks.", ChunkState, headers=("Location",)),
        ),
        problems=(*_MAKING, StorageUnavailable),
        example="$BASE/uploads/chunked -H 'Content-Type: application/json' "
        '-d \'{"name": "a.mp4", "size": 20000000}\'',
    ),
    HttpOperation(
        "PUT",
        "/uploads/{uploadId}/chunks/{number}",
        put,
        "putChunk",
        "Send a chunk",
        "uploads",
        description="In any order, and in parallel. Repeating a chunk is safe. The last missing chunk completes the upload.",
        parameters=(UPLOAD_ID, _NUMBER, TOKEN),
        content=(("application/octet-stream", BINARY),),
        needs_body=False,
        scope="submit",
        responses=(
            ResponseSpec(204, "The chunk is on disk; others are missing."),
            _COMPLETED,
        ),
        problems=(
            *(NotFound, UploadConflict, TakenOver, WrongLength, MisdirectedUpload, *_MAKING),
            *(ChecksumMismatch, StorageUnavailable),
        ),
        example="-T CHUNK $BASE/uploads/UPLOAD_ID/chunks/0",
    ),
    HttpOperation(
        "GET",
        "/uploads/{uploadId}/chunks",
        missing,
        "getChunks",
        "List the missing chunks",
        "uploads",
        parameters=(UPLOAD_ID, TOKEN),
        scope="submit",
        responses=(ResponseSpec(200, "The chunks.", ChunkState),),
        problems=(NotFound, Gone, UploadConflict),
        example="$BASE/uploads/UPLOAD_ID/chunks",
    ),
    HttpOperation(
        "POST",
        "/uploads/{uploadId}/complete",
        complete,
        "completeUpload",
        "Complete an upload",
        "uploads",
        description="The last chunk completes an upload in chunks, so only a presigned upload needs this request. "
        "`Job-Location` is the URL of the job, if the upload has a kind. Repeating this request is safe.",
        parameters=(UPLOAD_ID, TOKEN),
        scope="submit",
        responses=(_COMPLETED,),
        problems=(
            *(NotFound, Gone, UploadConflict, ChecksumMismatch, MisdirectedUpload, TakenOver, *_MAKING),
            *(WrongLength, StorageUnavailable),
        ),
        example="-X POST $BASE/uploads/UPLOAD_ID/complete",
    ),
]
