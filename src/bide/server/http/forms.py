"""multipart/form-data (RFC 7578): writes files to disk as they arrive, and keeps fields of limited size in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec
from multipart import MultipartError, MultipartSegment, PushMultipartParser

from bide.core.errors import MalformedRequest, PayloadTooLarge
from bide.core.wire.digest import read_digest
from bide.server.http.request import BodyStream, HttpRequest
from bide.server.limits import ReceivedBytes
from bide.server.uploads.direct import DirectUpload
from bide.server.uploads.names import clean_name, clean_type, header_parameters, read_disposition

TYPE = "multipart/form-data"
MAX_PARTS = 100
MAX_PART_HEADER = 16 * 1024  # bytes of one header line of a part
_BOUNDARY = re.compile(r"[\w'()+,./:=? -]{0,69}[\w'()+,./:=?-]", re.ASCII)


def is_form(content_type: str | None) -> bool:
    return content_type is not None and content_type.partition(";")[0].strip().lower() == TYPE


class FormPart(msgspec.Struct, frozen=True):
    """The start of a part. `filename` is None for a plain field."""

    name: str
    filename: str | None
    content_type: str | None
    sha256: str | None  # from its Content-Digest


class FormParser:
    """The parser of one form. Call `feed` with the bytes, then `close`. Both raise MalformedRequest."""

    def __init__(self, content_type: str) -> None:
        self._parser = PushMultipartParser(
            read_boundary(content_type),
            max_header_size=MAX_PART_HEADER,
            max_segment_count=MAX_PARTS,
            # Any byte is valid here; `_text` decodes UTF-8 and replaces invalid bytes.
            header_charset="latin-1",
        )

    def feed(self, data: bytes) -> Iterator[FormPart | bytes | None]:
        """Yield each part, its bytes in pieces, and None at its end."""
        if not data:  # the parser would take it for the end
            return
        try:
            for event in self._parser.parse(data):
                yield _part(event) if isinstance(event, MultipartSegment) else event
        except MultipartError as error:
            raise _malformed(error) from None

    def close(self) -> None:
        try:
            self._parser.close()
        except MultipartError as error:
            raise _malformed(error) from None


def read_boundary(content_type: str) -> bytes:
    for name, value in header_parameters(content_type):
        if name == "boundary" and _BOUNDARY.fullmatch(value):
            return value.encode()
    raise MalformedRequest("Content-Type: multipart/form-data needs a boundary of 1 to 70 characters")


def _part(segment: MultipartSegment) -> FormPart:
    headers = {name: _text(value) for name, value in segment.headerlist}
    if not segment.name:
        raise MalformedRequest("a part of the form has no name in its Content-Disposition")
    return FormPart(
        _text(segment.name),
        read_disposition(headers["Content-Disposition"]),
        headers.get("Content-Type"),
        read_digest(headers.get("Content-Digest")),
    )


def _text(header: str) -> str:
    return header.encode("latin-1").decode(errors="replace")


def _malformed(error: MultipartError) -> MalformedRequest:
    return MalformedRequest(f"the multipart body is not a form: {error.args[0]}")


class UploadedForm:
    """A form with its files on disk. The caller stores or discards the files."""

    def __init__(self) -> None:
        self.fields: dict[str, bytes] = {}
        self.files: list[tuple[str, DirectUpload]] = []

    async def discard(self) -> None:
        for _, incoming in self.files:
            await incoming.discard()


async def read_form(
    request: HttpRequest, is_field: Callable[[FormPart], bool], received: ReceivedBytes
) -> UploadedForm:
    """Read a form. If this fails, no file is left on disk."""
    form = UploadedForm()
    try:
        await _read(request, form, is_field, received)
    except BaseException:
        await form.discard()
        raise
    return form


async def _read(
    request: HttpRequest,
    form: UploadedForm,
    is_field: Callable[[FormPart], bool],
    received: ReceivedBytes,
) -> None:
    direct = request.components.uploads.direct
    most = request.components.config.http.max_body
    parser = FormParser(request.header(b"content-type") or "")
    incoming: DirectUpload | None = None
    field: list[bytes] = []
    name = ""
    held = 0
    await received.add(request.content_length or 0)
    counted = received if request.content_length is None else None
    async for data in BodyStream(request, counted):
        for event in parser.feed(data):
            if isinstance(event, FormPart):
                name = event.name
                if not is_field(event):
                    incoming = direct.begin(
                        clean_name(event.filename),
                        clean_type(event.content_type),
                        tenant=request.tenant,
                    )
                    incoming.promised = event.sha256
                    form.files.append((name, incoming))
            elif event is None:
                if incoming is None:
                    form.fields[name] = b"".join(field)
                incoming, field = None, []
            elif incoming is not None:
                await incoming.write(event)
            else:
                held += len(event)
                if held > most:
                    raise PayloadTooLarge(f"the fields of the form have more than {most} bytes")
                field.append(event)
    parser.close()
