"""multipart/form-data: writes files to disk as they arrive, and keeps fields of limited size in memory."""

from __future__ import annotations

from collections.abc import Callable

from bide.core.errors import PayloadTooLarge
from bide.server.http.request import BodyStream, HttpRequest
from bide.server.uploads.direct import DirectUpload
from bide.server.uploads.multipart import Multipart, Part, PartEnd, read_boundary
from bide.server.uploads.names import clean_name, clean_type

TYPE = "multipart/form-data"


def is_form(request: HttpRequest) -> bool:
    declared = request.header(b"content-type") or ""
    return declared.partition(";")[0].strip().lower() == TYPE


class UploadedForm:
    """A form with its files on disk. The caller stores or discards the files."""

    def __init__(self) -> None:
        self.fields: dict[str, bytes] = {}
        self.files: list[tuple[str, DirectUpload]] = []

    async def discard(self) -> None:
        for _, incoming in self.files:
            await incoming.discard()


async def read_form(request: HttpRequest, is_field: Callable[[Part], bool]) -> UploadedForm:
    """Reads a form. If this fails, no file is left on disk."""
    form = UploadedForm()
    try:
        await _read(request, form, is_field)
    except BaseException:
        await form.discard()
        raise
    return form


async def _read(request: HttpRequest, form: UploadedForm, is_field: Callable[[Part], bool]) -> None:
    direct = request.components.uploads.direct
    most = request.components.config.http.max_body
    parser = Multipart(read_boundary(request.header(b"content-type") or ""))
    incoming: DirectUpload | None = None
    field: list[bytes] = []
    name = ""
    held = 0
    async for data in BodyStream(request):
        for event in parser.feed(data):
            if isinstance(event, memoryview):
                if incoming is not None:
                    await incoming.write(event)
                else:
                    held += len(event)
                    if held > most:
                        raise PayloadTooLarge(f"the fields of the form have more than {most} bytes")
                    field.append(bytes(event))
            elif isinstance(event, Part):
                name = event.name
                if not is_field(event):
                    incoming = direct.begin(clean_name(event.filename), clean_type(event.content_type))
                    incoming.promised = event.sha256
                    form.files.append((name, incoming))
            elif isinstance(event, PartEnd):
                if incoming is None:
                    form.fields[name] = b"".join(field)
                incoming, field = None, []
    parser.close()
