"""Uploads in numbered chunks, for the simplest of clients: begin, PUT each chunk, ask which are missing, complete."""

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
    PayloadTooLarge,
    StorageFull,
    StorageUnavailable,
    TakenOver,
    UnknownKind,
    UnsupportedMedia,
    UploadConflict,
    WrongContent,
    WrongLength,
)
from bide.core.upload import MOST_CHUNKS, Upload, Way, WireUpload, wire_upload
from bide.server.http.bodies import Body, announced
from bide.server.http.exchange import Answer, Request, object_answer
from bide.server.http.operations import Operation, Parameter, Reply
from bide.server.http.uploads import BINARY, UPLOAD_ID, location, read_sha256
from bide.server.http.wanted import NewUpload
from bide.server.intake import decode
from bide.server.uploads.chunks import DEFAULT_CHUNK, LEAST_CHUNK, MOST_CHUNK
from bide.server.uploads.names import clean_name, clean_type

MOST_TOLD = 1000  # missing chunks in one answer


class NewChunked(NewUpload, kw_only=True):
    """What is to come, and, with a kind, the job that it is to become."""

    chunk_size: Annotated[int, msgspec.Meta(ge=LEAST_CHUNK, le=MOST_CHUNK)] | None = None


class ChunkState(msgspec.Struct, rename="camel"):
    """Which chunks are missing: the first thousand of them, by their numbers from 0."""

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
        upload.id, upload.size, upload.chunk_size, upload.chunk_count, missing[:MOST_TOLD], len(missing)
    )


async def begin(request: Request) -> Answer:
    wanted = decode(_decoder, await request.json())
    chunk_size = wanted.chunk_size or DEFAULT_CHUNK
    if wanted.size > chunk_size * MOST_CHUNKS:
        if wanted.chunk_size is not None:
            detail = f"more than {MOST_CHUNKS} chunks; take larger ones"
            raise InvalidInput(detail, errors=[{"pointer": "/chunkSize", "detail": detail}])
        chunk_size = -(-wanted.size // MOST_CHUNKS)
    upload = await request.parts.reception.begin(
        Way.CHUNKS,
        clean_name(wanted.name),
        request.parts.intake.id(),
        size=wanted.size,
        content_type=clean_type(wanted.content_type),
        chunk_size=chunk_size,
        promised=read_sha256(wanted.sha256),
        **wanted.wish(request),
    )
    return object_answer(_state(upload), location(request, upload), status=201)


async def put(request: Request) -> Answer:
    upload_id, text = request.args
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise NotFound(f"{text[:50]!r} is no chunk's number")
    await request.parts.chunks.put(upload_id, int(text), Body(request), announced(request))
    return Answer(204, [])


async def missing(request: Request) -> Answer:
    upload = await request.parts.reception.find(request.args[0])
    if upload.way is not Way.CHUNKS:
        raise NotFound(f"upload {upload.id} does not come in chunks")
    return object_answer(_state(upload))


async def complete(request: Request) -> Answer:
    upload_id = request.args[0]
    if (await request.parts.reception.find(upload_id)).way is Way.PRESIGNED:
        upload = await request.parts.presigned.complete(upload_id)
    else:
        upload, _ = await request.parts.chunks.complete(upload_id)
    job: list[tuple[bytes, bytes]] = []
    if upload.job_id is not None:
        job.append((b"job-location", f"{request.base}/jobs/{upload.job_id}".encode()))
    return object_answer(wire_upload(upload), *job)


_NUMBER = Parameter("number", "path", "The chunk's number, from 0.", {"type": "string"}, required=True)
_MAKING = (
    *(InvalidInput, UnknownKind, IdempotencyKeyRequired, IdempotencyConflict, WrongContent, Gone),
    *(StorageFull, PayloadTooLarge, MalformedRequest, UnsupportedMedia),
)

OPERATIONS = [
    Operation(
        "POST",
        "/uploads/chunked",
        begin,
        "createChunkedUpload",
        "Begin an upload in chunks",
        "uploads",
        description="Chunk n has the bytes from n × `chunkSize` on; the last one may be shorter.",
        body="NewChunked",
        reads=NewChunked,
        replies=(Reply(201, "Chunks can be sent.", ChunkState, headers=("Location",)),),
        problems=_MAKING,
        example="$BASE/uploads/chunked -H 'Content-Type: application/json' "
        '-d \'{"name": "a.mp4", "size": 20000000}\'',
    ),
    Operation(
        "PUT",
        "/uploads/{uploadId}/chunks/{number}",
        put,
        "putChunk",
        "Send a chunk",
        "uploads",
        description="In any order, several at once, and again whenever it is not known whether it arrived.",
        parameters=(UPLOAD_ID, _NUMBER),
        content=(("application/octet-stream", BINARY),),
        needs_body=False,
        replies=(Reply(204, "It is on disk."),),
        problems=(
            *(NotFound, Gone, UploadConflict, TakenOver, WrongLength, WrongContent, StorageFull),
            *(MisdirectedUpload, UnsupportedMedia),
        ),
        example="-T CHUNK $BASE/uploads/UPLOAD_ID/chunks/0",
    ),
    Operation(
        "GET",
        "/uploads/{uploadId}/chunks",
        missing,
        "getChunks",
        "Which chunks are missing",
        "uploads",
        parameters=(UPLOAD_ID,),
        replies=(Reply(200, "The chunks.", ChunkState),),
        problems=(NotFound, Gone),
        example="$BASE/uploads/UPLOAD_ID/chunks",
    ),
    Operation(
        "POST",
        "/uploads/{uploadId}/complete",
        complete,
        "completeUpload",
        "Say that all of an upload was sent",
        "uploads",
        description="`Job-Location` is where the job is, when one was asked for. May be sent again.",
        parameters=(UPLOAD_ID,),
        replies=(Reply(200, "The upload is whole.", WireUpload, headers=("Job-Location",)),),
        problems=(
            *(NotFound, Gone, UploadConflict, ChecksumMismatch, MisdirectedUpload, TakenOver, *_MAKING),
            *(WrongLength, StorageUnavailable),
        ),
        example="-X POST $BASE/uploads/UPLOAD_ID/complete",
    ),
]
