"""POST /uploads, and what is known of an upload: a file in one request, streamed to disk."""

from __future__ import annotations

import re

from bide.core.errors import (
    ChecksumMismatch,
    Gone,
    InvalidInput,
    MalformedRequest,
    MisdirectedUpload,
    NotFound,
    PayloadTooLarge,
    StorageFull,
    UnsupportedMedia,
    UploadConflict,
    WrongLength,
)
from bide.core.multipart import read_disposition
from bide.core.upload import Upload, WireUpload, wire_upload
from bide.server.http.bodies import Body, announced
from bide.server.http.exchange import Answer, Request, object_answer, wrong_parameter
from bide.server.http.forms import TYPE, Form, is_form, read_form
from bide.server.http.operations import Operation, Parameter, Reply
from bide.server.uploads.incoming import Incoming, keep
from bide.server.uploads.names import clean_name, clean_type

UPLOAD_ID = Parameter("uploadId", "path", "The upload's id.", required=True)
_SHA256 = re.compile(r"[0-9a-f]{64}")


def location(request: Request, upload: Upload) -> tuple[bytes, bytes]:
    return (b"location", f"{request.base}/uploads/{upload.id}".encode())


def read_sha256(text: str | None) -> str | None:
    if text is None:
        return None
    if not _SHA256.fullmatch(text):
        raise wrong_parameter("sha256", "64 hexadecimal digits in lower case are needed")
    return text


async def create(request: Request) -> Answer:
    promised = read_sha256(request.one("sha256"))
    if is_form(request):
        incoming = await _only(await read_form(request, lambda part: part.filename is None))
    else:
        incoming = await _raw(request)
    try:
        incoming.promised = promised or incoming.promised
        await incoming.whole()
        kept = await keep(request.parts.reception, [incoming])
    except BaseException:
        await incoming.discard()
        raise
    (upload,) = kept.uploads
    return object_answer(wire_upload(upload), location(request, upload), status=201)


async def _raw(request: Request) -> Incoming:
    reception = request.parts.reception
    disposition = request.header(b"content-disposition")
    named = request.one("name") or (disposition and read_disposition(disposition))
    size = announced(request)
    if size is not None:
        reception.room.check_size(size)
        reception.room.check(size)
    incoming = Incoming(
        reception,
        request.parts.intake.id(),
        clean_name(named or None),
        clean_type(request.header(b"content-type")),
    )
    try:
        async for data in Body(request):
            await incoming.write(data)
    except BaseException:
        await incoming.discard()
        raise
    return incoming


async def _only(form: Form) -> Incoming:
    if len(form.files) != 1:
        await form.discard()
        raise InvalidInput(
            f"the form has {len(form.files)} files; send one, or several to POST /jobs",
            errors=[{"pointer": "", "detail": "one part with a file name is needed"}],
        )
    return form.files[0][1]


async def show(request: Request) -> Answer:
    upload = await request.parts.reception.find(request.args[0])
    return object_answer(wire_upload(upload))


async def remove(request: Request) -> Answer:
    await request.parts.reception.remove(request.args[0])
    return Answer(204, [])


NAME = Parameter("name", "query", "The file's name.")
SHA256 = Parameter(
    "sha256",
    "query",
    "The SHA-256 that the file must have, in hexadecimal digits.",
    {"type": "string", "pattern": "^[0-9a-f]{64}$"},
)
BINARY = {"type": "string", "format": "binary"}
FORM = {"type": "object", "properties": {"file": BINARY}, "required": ["file"]}


OPERATIONS = [
    Operation(
        "POST",
        "/uploads",
        create,
        "createUpload",
        "Upload a file in one request",
        "uploads",
        description="The body is the file, or a form with one file in it. It is on disk, with its checksum, when "
        'this is answered. In a job\'s input it is `{"upload": ID}`.',
        parameters=(NAME, SHA256),
        content=(("application/octet-stream", BINARY), (TYPE, FORM)),
        needs_body=False,
        replies=(Reply(201, "The file is here.", WireUpload, headers=("Location",)),),
        problems=(
            *(MalformedRequest, PayloadTooLarge, UnsupportedMedia, InvalidInput, WrongLength),
            *(ChecksumMismatch, StorageFull, Gone),
        ),
        example="--data-binary @FILE '$BASE/uploads?name=FILE'",
    ),
    Operation(
        "GET",
        "/uploads/{uploadId}",
        show,
        "getUpload",
        "What is known of an upload",
        "uploads",
        parameters=(UPLOAD_ID,),
        replies=(Reply(200, "The upload.", WireUpload),),
        problems=(NotFound, Gone),
        example="$BASE/uploads/UPLOAD_ID",
    ),
    Operation(
        "DELETE",
        "/uploads/{uploadId}",
        remove,
        "deleteUpload",
        "Remove an upload",
        "uploads",
        description="Whoever is still sending it is cut off. Not while a job uses it.",
        parameters=(UPLOAD_ID,),
        replies=(Reply(204, "It is removed."),),
        problems=(NotFound, Gone, UploadConflict, MisdirectedUpload),
        example="-X DELETE $BASE/uploads/UPLOAD_ID",
    ),
]
