"""POST /uploads: a file in one request, streamed to disk. GET /uploads, GET and DELETE /uploads/{id} for all uploads."""

from __future__ import annotations

import re

import msgspec

from bide.core.errors import (
    BadCursor,
    ChecksumMismatch,
    Gone,
    InvalidInput,
    MalformedRequest,
    MisdirectedUpload,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    QuotaExceeded,
    StorageFull,
    StorageUnavailable,
    UnsupportedMedia,
    UploadConflict,
    WrongLength,
)
from bide.core.wire.http import ID_PATTERN, read_cursor, render_cursor
from bide.server.http.forms import TYPE, UploadedForm, is_form, read_form
from bide.server.http.jobs import MAX_LIMIT, read_limit
from bide.server.http.request import (
    BodyStream,
    HttpRequest,
    Response,
    object_response,
    wrong_parameter,
)
from bide.server.http.restrictions import sees_upload
from bide.server.http.routing import TOKEN, HttpOperation, Parameter, ResponseSpec
from bide.server.http.schemas import BINARY
from bide.server.http.status import UNCACHED
from bide.server.limits import ReceivedBytes
from bide.server.upload_record import Upload, UploadStatus, WireUpload, wire_upload
from bide.server.uploads.direct import DirectUpload
from bide.server.uploads.names import clean_name, clean_type, read_disposition

UPLOAD_ID = Parameter(
    "uploadId",
    "path",
    "The id of the upload.",
    {"type": "string", "pattern": f"^{ID_PATTERN}$"},
    required=True,
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


def location(request: HttpRequest, upload: Upload) -> tuple[bytes, bytes]:
    return (b"location", f"{request.base}/uploads/{upload.id}".encode())


NO_TENANT = ""  # a name that no tenant has


async def find_upload(request: HttpRequest) -> Upload:
    """The upload in the path. Every operation on an upload calls this first: an upload of another tenant does not exist,
    so a request for it must not even wait for the lock of the upload.
    """
    uploads, principal = request.components.uploads, request.principal
    if not principal.is_restricted:
        return await uploads.find(request.args[0], request.tenant)
    try:
        upload = await uploads.find(request.args[0], request.tenant)
    except Gone:
        return await uploads.find(request.args[0], NO_TENANT)
    if not await sees_upload(request, upload):
        return await uploads.find(request.args[0], NO_TENANT)
    return upload


def read_sha256(text: str | None) -> str | None:
    if text is None:
        return None
    if not _SHA256.fullmatch(text):
        raise wrong_parameter("sha256", "must be 64 lower-case hexadecimal digits")
    return text


async def create(request: HttpRequest) -> Response:
    promised = read_sha256(request.one("sha256"))
    async with request.components.limits.receiving(request.tenant) as received:
        if is_form(request.header(b"content-type")):
            form = await read_form(request, lambda part: part.filename is None, received)
            incoming = await _only_file(form)
        else:
            incoming = await _raw(request, received)
        try:
            incoming.promised = promised or incoming.promised
            upload = await request.components.uploads.direct.store(incoming)
        except BaseException:
            await incoming.discard()
            raise
    return object_response(wire_upload(upload), location(request, upload), status=201)


async def _raw(request: HttpRequest, received: ReceivedBytes) -> DirectUpload:
    disposition = request.header(b"content-disposition")
    named = request.one("name") or (disposition and read_disposition(disposition))
    size = request.content_length
    await received.add(size or 0)
    incoming = request.components.uploads.direct.begin(
        clean_name(named or None),
        clean_type(request.header(b"content-type")),
        size,
        tenant=request.tenant,
    )
    try:
        async for data in BodyStream(request, received if size is None else None):
            await incoming.write(data)
    except BaseException:
        await incoming.discard()
        raise
    return incoming


async def _only_file(form: UploadedForm) -> DirectUpload:
    if len(form.files) != 1:
        await form.discard()
        raise InvalidInput(
            f"the form has {len(form.files)} files; send exactly one, or several to POST /jobs",
            errors=[{"pointer": "", "detail": "must have one part with a file name"}],
        )
    return form.files[0][1]


class WireUploads(msgspec.Struct):
    """Uploads; `next` is the cursor of the next page."""

    uploads: list[WireUpload]
    next: str | None = None


async def listing(request: HttpRequest) -> Response:
    cursor, text = request.one("cursor"), request.one("status")
    if text is not None and text not in list(UploadStatus):
        raise wrong_parameter("status", f"unknown: {text[:50]!r}; use {', '.join(UploadStatus)}")
    limit = read_limit(request.one("limit"))
    before = None if cursor is None else read_cursor(cursor)[0]
    status = None if text is None else UploadStatus(text)
    # Read one more than requested, to know whether there is a next page.
    found = await request.components.uploads.list(request.tenant, status, before, limit + 1)
    page = found[:limit]
    following = render_cursor(page[-1].id) if len(found) > len(page) else None
    return object_response(WireUploads([wire_upload(upload) for upload in page], following), *UNCACHED)


async def show(request: HttpRequest) -> Response:
    return object_response(wire_upload(await find_upload(request)))


async def remove(request: HttpRequest) -> Response:
    await request.components.uploads.remove((await find_upload(request)).id)
    return Response(204, [])


NAME = Parameter("name", "query", "The name of the file.")
SHA256 = Parameter(
    "sha256",
    "query",
    "The expected SHA-256 of the file, in hexadecimal digits.",
    {"type": "string", "pattern": "^[0-9a-f]{64}$"},
)
FORM = {
    "type": "object",
    "properties": {"file": BINARY},
    "propertyNames": {"minLength": 1},
    "required": ["file"],
}


OPERATIONS = [
    HttpOperation(
        "GET",
        "/uploads",
        listing,
        "listUploads",
        "List uploads",
        "uploads",
        scope="read",
        description="The uploads that are under way or stored, newest first; `next` is the `cursor` of the next page.",
        parameters=(
            Parameter(
                "status",
                "query",
                "Only uploads in this status.",
                {"type": "string", "enum": [status.value for status in UploadStatus]},
            ),
            Parameter(
                "limit",
                "query",
                "The number of uploads.",
                {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 50},
            ),
            Parameter("cursor", "query", "`next` of the previous page."),
        ),
        responses=(ResponseSpec(200, "The uploads.", WireUploads),),
        problems=(BadCursor, InvalidInput),
        example="'$BASE/uploads?status=UPLOADING'",
    ),
    HttpOperation(
        "POST",
        "/uploads",
        create,
        "createUpload",
        "Upload a file in one request",
        "uploads",
        description="The body is the file, or a form with one file. The response is sent when the file and its checksum "
        'are on disk. In the input of a job, write `{"upload": ID}`.',
        parameters=(NAME, SHA256),
        content=(("application/octet-stream", BINARY), (TYPE, FORM)),
        needs_body=False,
        scope="submit",
        responses=(ResponseSpec(201, "The upload.", WireUpload, headers=("Location",)),),
        problems=(
            *(MalformedRequest, PayloadTooLarge, UnsupportedMedia, InvalidInput, WrongLength),
            *(ChecksumMismatch, StorageFull, QuotaExceeded, Overloaded, Gone, StorageUnavailable),
        ),
        example="--data-binary @FILE '$BASE/uploads?name=FILE'",
    ),
    HttpOperation(
        "GET",
        "/uploads/{uploadId}",
        show,
        "getUpload",
        "Get an upload",
        "uploads",
        parameters=(UPLOAD_ID, TOKEN),
        scope="read",
        responses=(ResponseSpec(200, "The upload.", WireUpload),),
        problems=(NotFound, Gone),
        example="$BASE/uploads/UPLOAD_ID",
    ),
    HttpOperation(
        "DELETE",
        "/uploads/{uploadId}",
        remove,
        "deleteUpload",
        "Delete an upload",
        "uploads",
        description="Cancels a request that still sends bytes. 409 while a job uses the upload.",
        parameters=(UPLOAD_ID, TOKEN),
        scope="submit",
        responses=(ResponseSpec(204, "The upload is deleted."),),
        problems=(NotFound, Gone, UploadConflict, MisdirectedUpload),
        example="-X DELETE $BASE/uploads/UPLOAD_ID",
    ),
]
