"""Uploads straight to storage: signed requests, parts, what storage says of them; and, for a folder, taking the bytes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec

from bide.core import storage_events
from bide.core.clock import render_instant
from bide.core.errors import (
    BadSignature,
    Gone,
    IdempotencyConflict,
    IdempotencyKeyRequired,
    InvalidInput,
    MalformedRequest,
    NotFound,
    PayloadTooLarge,
    SignatureExpired,
    StorageFull,
    StorageUnavailable,
    TakenOver,
    UnknownKind,
    UnsupportedMedia,
    UploadConflict,
    WrongLength,
)
from bide.core.upload import Upload, Way
from bide.core.wire import WireJob
from bide.server.blobs import BlobMissing, incoming_key, upload_key
from bide.server.blobs.local_signing import NAMES, LocalSigning
from bide.server.http.bodies import Body, announced
from bide.server.http.exchange import Answer, Request, object_answer
from bide.server.http.operations import Operation, Parameter, Reply
from bide.server.http.status import Shown
from bide.server.http.uploads import BINARY, UPLOAD_ID, location
from bide.server.http.wanted import NewUpload
from bide.server.intake import decode
from bide.server.uploads.names import clean_name, clean_type
from bide.server.uploads.presigned import NOBODY
from bide.server.uploads.room import told

log = logging.getLogger("bide.http")
MOST_SIGNED = 100  # parts in one request


class NewPresigned(NewUpload, kw_only=True):
    """What will be put and, with a kind, the job that waits for it. With `dedupe` the job is made when it is there."""

    multipart: bool = False


class PresignedUpload(msgspec.Struct, rename="camel"):
    """The request that puts the file: send exactly this. In parts, `url` is null, and each part has one of its own."""

    upload_id: str
    url: str | None
    method: str | None
    headers: dict[str, str]
    expires_at: str
    part_size: int | None
    parts: int | None
    job: WireJob | None


class WantedParts(msgspec.Struct, forbid_unknown_fields=True):
    """Which parts are to be put, by their numbers from 1."""

    numbers: Annotated[list[int], msgspec.Meta(min_length=1, max_length=MOST_SIGNED)]


class SignedPart(msgspec.Struct):
    """The request that puts a part."""

    number: int
    size: int
    url: str
    method: str
    headers: dict[str, str]


class SignedParts(msgspec.Struct, rename="camel"):
    parts: list[SignedPart]
    expires_at: str


class KnownPart(msgspec.Struct):
    number: int
    size: int
    etag: str


class KnownParts(msgspec.Struct, rename="camel"):
    """What storage has, and which are missing: the first thousand of them."""

    upload_id: str
    size: int
    part_size: int
    parts: list[KnownPart]
    missing: list[int]
    missing_count: int


class Heard(msgspec.Struct):
    """How many uploads an event was about; storage is asked about each of them."""

    uploads: int


_new = msgspec.json.Decoder(NewPresigned)
_wanted = msgspec.json.Decoder(WantedParts)


def _absolute(request: Request, url: str) -> str:
    """Where a caller reaches it: storage has an address of its own, the service is where it was asked."""
    if not url.startswith("/"):
        return url
    host = request.header(b"host") or "127.0.0.1"
    return f"{request.scope.get('scheme', 'http')}://{host}{request.base}{url}"


async def presign(request: Request) -> Answer:
    parts = request.parts
    wanted = decode(_new, await request.json())
    now = parts.store.now()
    upload = Upload(
        parts.intake.id(),
        Way.PRESIGNED,
        clean_name(wanted.name),
        now,
        now,
        content_type=clean_type(wanted.content_type),
        replica=NOBODY,
        size=wanted.size,
        promised=wanted.sha256,
        expires_at=parts.reception.expiry(),
        **wanted.wish(request),
    )
    upload, job = await parts.presigned.begin(upload, multipart=wanted.multipart)
    signed = await parts.presigned.sign(upload)
    shown = PresignedUpload(
        upload.id,
        None if signed is None else _absolute(request, signed.url),
        None if signed is None else signed.method,
        {} if signed is None else signed.headers,
        render_instant(now + parts.presigned.seconds),
        upload.chunk_size,
        None if upload.chunk_size is None else upload.chunk_count,
        None if job is None else msgspec.Raw(Shown(request, job).body()),  # type: ignore[arg-type]
    )
    return object_answer(shown, location(request, upload), status=201)


async def sign_parts(request: Request) -> Answer:
    presigned = request.parts.presigned
    wanted = decode(_wanted, await request.json())
    upload = await presigned.open_parts(request.args[0])
    signed = []
    for number in wanted.numbers:
        one, size = await presigned.sign_part(upload, number)
        url = _absolute(request, one.url)
        signed.append(SignedPart(number, size, url, one.method, one.headers))
    expires = render_instant(request.parts.store.now() + presigned.seconds)
    return object_answer(SignedParts(signed, expires))


async def show_parts(request: Request) -> Answer:
    presigned = request.parts.presigned
    upload = await presigned.open_parts(request.args[0])
    assert upload.size is not None and upload.chunk_size is not None
    there = await presigned.parts(upload)
    numbers = {part.number for part in there}
    missing = [n for n in range(1, upload.chunk_count + 1) if n not in numbers]
    known = [KnownPart(part.number, part.size, part.etag) for part in there]
    return object_answer(
        KnownParts(upload.id, upload.size, upload.chunk_size, known, missing[:1000], len(missing))
    )


async def put_content(request: Request) -> Answer:
    local, asked = _signed_here(request)
    size = _verify(request, local, asked, f"/uploads/{request.args[0]}/content")
    upload_id = request.args[0]

    async def write(body: AsyncIterator[bytes]) -> str:
        return await local.take(incoming_key(upload_id), body, size)

    return await _taken(request.parts.presigned.put(upload_id, write, Body(request), size))


async def put_part(request: Request) -> Answer:
    local, asked = _signed_here(request)
    upload_id, number = request.args
    size = _verify(request, local, asked, f"/uploads/{upload_id}/parts/{number}")
    key, multipart = upload_key(upload_id), asked["multipart"]

    async def write(body: AsyncIterator[bytes]) -> str:
        return await local.take_part(key, multipart, int(number), body, size)

    taking = request.parts.presigned.put_part(upload_id, int(number), write, Body(request), size)
    return await _taken(taking)


def _signed_here(request: Request) -> tuple[LocalSigning, dict[str, str]]:
    storage = request.parts.presigned.storage
    if not isinstance(storage, LocalSigning):
        raise NotFound("files are put straight to storage here: POST /uploads/presign has its address")
    return storage, {name: request.one(name) or "" for name in NAMES if name in request.query}


def _verify(request: Request, local: LocalSigning, asked: dict[str, str], path: str) -> int:
    declared = request.header(b"content-type") or ""
    return local.verify(request.scope["method"], path, asked, announced(request), declared)


async def _taken(taking: Any) -> Answer:
    try:
        etag = await taking
    except BlobMissing as missing:
        raise UploadConflict(str(missing)) from None
    except OSError as error:
        problem = told(error)
        if problem is None:
            raise
        raise problem from error
    return Answer(200, [(b"etag", f'"{etag}"'.encode()), (b"content-length", b"0")])


async def events(request: Request) -> Answer:
    """Whatever comes is only a hint, so anybody may send it, and in any envelope."""
    body = await request.raw()
    confirm = storage_events.subscription(body)
    if confirm is not None:
        # Not confirmed from here: an address from outside is not to be followed from inside, nor shown to be opened.
        log.warning(
            "a subscription to events of storage waits to be confirmed. If the topic is yours: "
            "aws sns confirm-subscription --topic-arn %s --token %s",
            *confirm,
        )
        return object_answer(Heard(0), status=202)
    try:
        keys = storage_events.read_keys(body)
    except ValueError as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from None
    uploads = {found for _, key in keys if (found := request.parts.presigned.upload_in(key))}
    for upload_id in uploads:
        request.parts.presigned.hint(upload_id)
    return object_answer(Heard(len(uploads)), status=202)


_READING = (MalformedRequest, PayloadTooLarge, UnsupportedMedia, InvalidInput)
_QUERY = (
    Parameter("expires", "query", "As signed.", {"type": "string"}),
    Parameter("size", "query", "As signed.", {"type": "string"}),
    Parameter("signature", "query", "As signed.", {"type": "string"}),
)
_TYPE = Parameter("type", "query", "As signed.", {"type": "string"})
_MULTIPART = Parameter("multipart", "query", "As signed.", {"type": "string"})
_NUMBER = Parameter("number", "path", "The part's number, from 1.", {"type": "string"}, required=True)
_TAKING = (
    *(NotFound, Gone, BadSignature, SignatureExpired, UploadConflict, WrongLength, StorageFull),
    TakenOver,
    *(UnsupportedMedia, InvalidInput),
)

OPERATIONS = [
    Operation(
        "POST",
        "/uploads/presign",
        presign,
        "presignUpload",
        "Get a signed request that puts a file straight to storage",
        "uploads",
        description="Then POST /uploads/{uploadId}/complete. With a kind, its job is there at once, in UPLOADING.",
        body="NewPresigned",
        reads=NewPresigned,
        replies=(Reply(201, "The request to send.", PresignedUpload, headers=("Location",)),),
        problems=(
            *_READING,
            *(UnknownKind, IdempotencyKeyRequired, IdempotencyConflict, UploadConflict, Gone),
            *(StorageFull, StorageUnavailable),
        ),
        example="$BASE/uploads/presign -H 'Content-Type: application/json' "
        '-d \'{"name": "a.mp4", "contentType": "video/mp4", "size": 20000000}\'',
    ),
    Operation(
        "POST",
        "/uploads/events",
        events,
        "hearStorage",
        "Take an event of storage",
        "uploads",
        description="S3's event message, as it is or in an envelope of SNS, SQS or EventBridge. It is a hint: storage is "
        "asked about the uploads that it names.",
        content=(("application/json", {}),),  # whatever its Content-Type is: that of SNS is text/plain
        replies=(Reply(202, "How many uploads it was about.", Heard),),
        problems=(MalformedRequest, PayloadTooLarge),
        example="$BASE/uploads/events -H 'Content-Type: application/json' -d '{\"Records\": []}'",
    ),
    Operation(
        "POST",
        "/uploads/{uploadId}/parts",
        sign_parts,
        "signParts",
        "Get signed requests that put parts",
        "uploads",
        description="Of an upload that was begun with `multipart`. All parts have `partSize` bytes but the last.",
        parameters=(UPLOAD_ID,),
        body="WantedParts",
        reads=WantedParts,
        replies=(Reply(200, "The requests to send.", SignedParts),),
        problems=(*_READING, NotFound, Gone, UploadConflict, StorageUnavailable),
        example="$BASE/uploads/UPLOAD_ID/parts -H 'Content-Type: application/json' -d '{\"numbers\": [1, 2]}'",
    ),
    Operation(
        "GET",
        "/uploads/{uploadId}/parts",
        show_parts,
        "getParts",
        "Which parts storage has",
        "uploads",
        parameters=(UPLOAD_ID,),
        replies=(Reply(200, "The parts.", KnownParts),),
        problems=(NotFound, Gone, UploadConflict, StorageUnavailable),
        example="$BASE/uploads/UPLOAD_ID/parts",
    ),
    Operation(
        "PUT",
        "/uploads/{uploadId}/content",
        put_content,
        "putContent",
        "Put a file, as signed",
        "uploads",
        description="The address that presign gave, where files are kept in a folder.",
        parameters=(UPLOAD_ID, *_QUERY, _TYPE),
        content=(("*/*", BINARY),),
        replies=(Reply(200, "It is on disk.", headers=("ETag",)),),
        problems=_TAKING,
        example="-T FILE -H 'Content-Type: video/mp4' 'URL'",
    ),
    Operation(
        "PUT",
        "/uploads/{uploadId}/parts/{number}",
        put_part,
        "putPart",
        "Put a part, as signed",
        "uploads",
        description="The address that was signed for the part, where files are kept in a folder.",
        parameters=(UPLOAD_ID, _NUMBER, *_QUERY, _MULTIPART),
        content=(("*/*", BINARY),),
        replies=(Reply(200, "It is on disk.", headers=("ETag",)),),
        problems=_TAKING,
        example="-T PART 'URL'",
    ),
]
