"""multipart/form-data: files go to disk as they arrive, fields stay in memory within bounds."""

from __future__ import annotations

from collections.abc import Callable

from bide.core.errors import PayloadTooLarge
from bide.core.multipart import Multipart, Part, PartEnd, read_boundary
from bide.server.http.bodies import Body
from bide.server.http.exchange import Request
from bide.server.uploads.incoming import Incoming
from bide.server.uploads.names import clean_name, clean_type

TYPE = "multipart/form-data"


def is_form(request: Request) -> bool:
    declared = request.header(b"content-type") or ""
    return declared.partition(";")[0].strip().lower() == TYPE


class Form:
    """A form that was read: fields as they are, files on disk. Whoever reads one keeps the files or discards them."""

    def __init__(self) -> None:
        self.fields: dict[str, bytes] = {}
        self.files: list[tuple[str, Incoming]] = []

    async def discard(self) -> None:
        for _, incoming in self.files:
            await incoming.discard()


async def read_form(request: Request, is_field: Callable[[Part], bool]) -> Form:
    """Nothing is left on disk when it cannot be read to its end."""
    form = Form()
    try:
        await _read(request, form, is_field)
    except BaseException:
        await form.discard()
        raise
    return form


async def _read(request: Request, form: Form, is_field: Callable[[Part], bool]) -> None:
    reception = request.parts.reception
    most = request.parts.config.http.max_body
    parser = Multipart(read_boundary(request.header(b"content-type") or ""))
    incoming: Incoming | None = None
    field: list[bytes] = []
    name = ""
    held = 0
    async for data in Body(request):
        for event in parser.feed(data):
            if isinstance(event, memoryview):
                if incoming is not None:
                    await incoming.write(event)
                else:
                    held += len(event)
                    if held > most:
                        raise PayloadTooLarge(f"the fields of the form are larger than {most} bytes")
                    field.append(bytes(event))
            elif isinstance(event, Part):
                name = event.name
                if not is_field(event):
                    upload_id = request.parts.intake.id()
                    incoming = Incoming(
                        reception, upload_id, clean_name(event.filename), clean_type(event.content_type)
                    )
                    incoming.promised = event.sha256
                    form.files.append((name, incoming))
            elif isinstance(event, PartEnd):
                if incoming is None:
                    form.fields[name] = b"".join(field)
                incoming, field = None, []
    parser.close()
