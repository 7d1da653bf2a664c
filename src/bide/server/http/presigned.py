"""Presigned uploads: signed requests, parts and storage events; and, if the storage is a folder, receiving the bytes."""

from __future__ import annotations

import logging
from typing import Annotated

import msgspec

from bide.core.clock import render_instant
from bide.core.errors import (
    BadSignature,
    Gone,
    IdempotencyConflict,
    IdempotencyKeyRequired,
    InvalidInput,
    MalformedRequest,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    QuotaExceeded,
    SignatureExpired,
    StorageFull,
    StorageUnavailable,
    TakenOver,
    UnknownKind,
    UnsupportedMedia,
    UploadConflict,
    WrongLength,
)
from bide.core.wire.http import JobStatus
from bide.server.blobs import SIGNED_VALUES
from bide.server.http.new_upload import NewUpload
from bide.server.http.request import REPLAYED, BodyStream, HttpRequest, Response, object_response
from bide.server.http.routing import TOKEN, HttpOperation, Parameter, ResponseSpec
from bide.server.http.schemas import BINARY
from bide.server.http.status import JobView
from bide.server.http.uploads import UPLOAD_ID, find_upload, location
from bide.server.intake import decode
from bide.server.upload_record import MOST_CHUNKS
from bide.server.uploads import storage_events
from bide.server.uploads.names import clean_name, clean_type

log = logging.getLogger("bide.http")
MAX_SIGNED = 100  # parts per request


class NewPresigned(NewUpload, kw_only=True):
    """The file and, with a kind, the job that waits for it. With `dedupe` the job is created when the file is complete."""

    multipart: bool = False


class PresignedUpload(msgspec.Struct, rename="camel"):
    """The request that stores the file: send it unchanged. If the upload is multipart, `url` is null: sign each part."""

    upload_id: str
    url: str | None
    method: str | None
    headers: dict[str, str]
    expires_at: str
    part_size: int | None
    parts: int | None
    job: JobStatus | None


# Another number is not invalid: the service answers 404.
PartNumber = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": MOST_CHUNKS})]


class WantedParts(msgspec.Struct, forbid_unknown_fields=True):
    """The parts to sign, by number from 1."""

    numbers: Annotated[list[PartNumber], msgspec.Meta(min_length=1, max_length=MAX_SIGNED)]


class SignedPart(msgspec.Struct):
    """The request that stores a part."""

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
    """The parts that storage has, and the first thousand of the missing ones."""

    upload_id: str
    size: int
    part_size: int
    parts: list[KnownPart]
    missing: list[int]
    missing_count: int


class StorageEventReceipt(msgspec.Struct):
    """The number of uploads that the event named. The service asks storage about each of them."""

    uploads: int


_new = msgspec.json.Decoder(NewPresigned)
_wanted = msgspec.json.Decoder(WantedParts)


def _absolute(request: HttpRequest, url: str) -> str:
    """Return the absolute URL. A relative one belongs to this service, at the host of the request."""
    return request.url + url if url.startswith("/") else url


async def presign(request: HttpRequest) -> Response:
    presigned = request.components.uploads.presigned
    wanted = decode(_new, await request.json())
    upload, inserted = await presigned.begin(
        clean_name(wanted.name),
        await wanted.job(request),
        size=wanted.size,
        multipart=wanted.multipart,
        content_type=clean_type(wanted.content_type),
        promised=wanted.sha256,
        tenant=request.tenant,
    )
    signed = await presigned.sign(upload)
    replayed = inserted is not None and not inserted.created
    job = inserted and JobView(request, inserted.job).submitted_body(replayed=replayed)
    shown = PresignedUpload(
        upload.id,
        None if signed is None else _absolute(request, signed.url),
        None if signed is None else signed.method,
        {} if signed is None else signed.headers,
        _expires(request),
        upload.chunk_size,
        None if upload.chunk_size is None else upload.chunk_count,
        None if job is None else msgspec.Raw(job),  # type: ignore[arg-type]
    )
    headers = [location(request, upload), *([REPLAYED] if replayed else [])]
    return object_response(shown, *headers, status=201)


def _expires(request: HttpRequest) -> str:
    """Return the instant at which signatures of now expire."""
    components = request.components
    return render_instant(components.store.now() + components.uploads.presigned.seconds)


async def sign_parts(request: HttpRequest) -> Response:
    presigned = request.components.uploads.presigned
    await find_upload(request)
    wanted = decode(_wanted, await request.json())
    upload = await presigned.open_parts(request.args[0])
    signed = []
    for number in wanted.numbers:
        one, size = await presigned.sign_part(upload, number)
        url = _absolute(request, one.url)
        signed.append(SignedPart(number, size, url, one.method, one.headers))
    return object_response(SignedParts(signed, _expires(request)))


async def list_parts(request: HttpRequest) -> Response:
    presigned = request.components.uploads.presigned
    await find_upload(request)
    upload = await presigned.open_parts(request.args[0])
    assert upload.size is not None and upload.chunk_size is not None
    stored = await presigned.parts(upload)
    numbers = {part.number for part in stored}
    missing = [n for n in range(1, upload.chunk_count + 1) if n not in numbers]
    known = [KnownPart(part.number, part.size, part.etag) for part in stored]
    return object_response(
        KnownParts(upload.id, upload.size, upload.chunk_size, known, missing[:1000], len(missing))
    )


async def put_content(request: HttpRequest) -> Response:
    upload_id = request.args[0]
    size, _ = _verify(request, f"/uploads/{upload_id}/content")
    presigned = request.components.uploads.presigned
    return _stored(await presigned.put(upload_id, BodyStream(request), size))


async def put_part(request: HttpRequest) -> Response:
    upload_id, number = request.args
    size, signed = _verify(request, f"/uploads/{upload_id}/parts/{number}")
    presigned = request.components.uploads.presigned
    part = (upload_id, signed["multipart"], int(number))
    return _stored(await presigned.put_part(*part, BodyStream(request), size))


def _verify(request: HttpRequest, path: str) -> tuple[int, dict[str, str]]:
    """Return the size of the body and the signed values."""
    signed = {name: request.one(name) or "" for name in SIGNED_VALUES if name in request.query}
    declared = request.header(b"content-type") or ""
    size = request.components.uploads.presigned.receiver().verify(
        request.scope["method"], path, signed, request.content_length, declared
    )
    return size, signed


def _stored(etag: str) -> Response:
    return Response(200, [(b"etag", f'"{etag}"'.encode()), (b"content-length", b"0")])


async def events(request: HttpRequest) -> Response:
    """An event is only a hint, so any sender and any envelope is accepted."""
    body = await request.raw()
    confirm = storage_events.subscription(body)
    if confirm is not None:
        # Do not confirm it here: the service must not follow a URL from outside, nor log it for an operator to open.
        log.warning(
            "a subscription to storage events waits for its confirmation. If the topic is yours, run: "
            "aws sns confirm-subscription --topic-arn %s --token %s",
            *confirm,
        )
        return object_response(StorageEventReceipt(0), status=202)
    try:
        keys = storage_events.read_keys(body)
    except ValueError as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from None
    presigned = request.components.uploads.presigned
    uploads = {found for _, key in keys if (found := presigned.upload_in(key))}
    for upload_id in uploads:
        presigned.hint(upload_id)
    return object_response(StorageEventReceipt(len(uploads)), status=202)


_READING = (MalformedRequest, PayloadTooLarge, UnsupportedMedia, InvalidInput)
_QUERY = (
    Parameter("expires", "query", "From the signed URL.", {"type": "string"}, required=True),
    Parameter("size", "query", "From the signed URL.", {"type": "string"}, required=True),
    Parameter("signature", "query", "From the signed URL.", {"type": "string"}, required=True),
)
_TYPE = Parameter("type", "query", "From the signed URL.", {"type": "string"})
_MULTIPART = Parameter("multipart", "query", "From the signed URL.", {"type": "string"})
_NUMBER = Parameter(
    "number",
    "path",
    "The number of the part, from 1.",
    {"type": "string", "pattern": "^[1-9][0-9]{0,4}$"},
    required=True,
)
_STORING_PROBLEMS = (
    *(
        NotFound,
        Gone,
        BadSignature,
        SignatureExpired,
        UploadConflict,
        WrongLength,
        StorageFull,
        QuotaExceeded,
        Overloaded,
    ),
    TakenOver,
    *(UnsupportedMedia, InvalidInput),
)

OPERATIONS = [
    HttpOperation(
        "POST",
        "/uploads/presign",
        presign,
        "presignUpload",
        "Sign a request that stores a file directly in storage",
        "uploads",
        description="Send the file, then POST /uploads/{uploadId}/complete. With a kind, the job waits for it as UPLOADING.",
        parameters=(TOKEN,),
        body="NewPresigned",
        reads=NewPresigned,
        scope="submit",
        narrows=True,
        responses=(
            ResponseSpec(
                201,
                "The request to send.",
                PresignedUpload,
                headers=("Location", "Idempotency-Replayed"),
            ),
        ),
        problems=(
            *_READING,
            *(UnknownKind, IdempotencyKeyRequired, IdempotencyConflict, UploadConflict, Gone),
            *(StorageFull, QuotaExceeded, Overloaded, StorageUnavailable),
        ),
        example="$BASE/uploads/presign -H 'Content-Type: application/json' "
        '-d \'{"name": "a.mp4", "contentType": "video/mp4", "size": 20000000}\'',
    ),
    HttpOperation(
        "POST",
        "/uploads/events",
        events,
        "hearStorage",
        "Receive a storage event",
        "uploads",
        description="An S3 event message, bare or in an envelope of SNS, SQS or EventBridge. It is a hint: the service asks "
        "storage about the uploads that it names.",
        # Any Content-Type is accepted, because SNS sends text/plain.
        content=(("application/json", {}),),
        scope="submit",
        responses=(
            ResponseSpec(202, "The number of uploads that the event named.", StorageEventReceipt),
        ),
        problems=(MalformedRequest, PayloadTooLarge),
        example="$BASE/uploads/events -H 'Content-Type: application/json' -d '{\"Records\": []}'",
    ),
    HttpOperation(
        "POST",
        "/uploads/{uploadId}/parts",
        sign_parts,
        "signParts",
        "Sign requests that store parts",
        "uploads",
        description="The upload must have been created with `multipart`. All parts but the last have `partSize` bytes.",
        parameters=(UPLOAD_ID, TOKEN),
        body="WantedParts",
        reads=WantedParts,
        scope="submit",
        responses=(ResponseSpec(200, "The requests to send.", SignedParts),),
        problems=(*_READING, NotFound, Gone, UploadConflict, StorageUnavailable),
        example="$BASE/uploads/UPLOAD_ID/parts -H 'Content-Type: application/json' -d '{\"numbers\": [1, 2]}'",
    ),
    HttpOperation(
        "GET",
        "/uploads/{uploadId}/parts",
        list_parts,
        "getParts",
        "List the parts that storage has",
        "uploads",
        parameters=(UPLOAD_ID, TOKEN),
        scope="submit",
        responses=(ResponseSpec(200, "The parts.", KnownParts),),
        problems=(NotFound, Gone, UploadConflict, StorageUnavailable),
        example="$BASE/uploads/UPLOAD_ID/parts",
    ),
    HttpOperation(
        "PUT",
        "/uploads/{uploadId}/content",
        put_content,
        "putContent",
        "Store a file with a signed request",
        "uploads",
        description="The URL that presign returns if the storage is a folder.",
        parameters=(UPLOAD_ID, *_QUERY, _TYPE),
        content=(("*/*", BINARY),),
        scope=None,
        responses=(ResponseSpec(200, "The bytes are on disk.", headers=("ETag",)),),
        problems=_STORING_PROBLEMS,
        example="-T FILE -H 'Content-Type: video/mp4' 'URL'",
    ),
    HttpOperation(
        "PUT",
        "/uploads/{uploadId}/parts/{number}",
        put_part,
        "putPart",
        "Store a part with a signed request",
        "uploads",
        description="The signed URL of a part if the storage is a folder.",
        parameters=(UPLOAD_ID, _NUMBER, *_QUERY, _MULTIPART),
        content=(("*/*", BINARY),),
        scope=None,
        responses=(ResponseSpec(200, "The bytes are on disk.", headers=("ETag",)),),
        problems=_STORING_PROBLEMS,
        example="-T PART 'URL'",
    ),
]
