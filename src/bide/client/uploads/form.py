"""A submission and its files as one multipart/form-data body (RFC 7578), generated while it is sent."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote

from bide.client.uploads.file_submission import parameter_of
from bide.client.uploads.source import Source
from bide.client.uploads.tus import Piece, Show
from bide.core.wire.http import JSON_TYPE

JOB = "job"  # the name of the part with the submission
FILE = "file"  # the name of a file part without a parameter: the service chooses the parameter
_ESCAPES = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})


class Form:
    """`files` is by part name. Only for small files, because they are read twice. Create it in a thread."""

    def __init__(self, submission: bytes, files: Mapping[str, Source], show: Show) -> None:
        boundary = secrets.token_hex(16)
        self.content_type = f"multipart/form-data; boundary={boundary}"
        self._begin = _head(boundary, JOB, JSON_TYPE) + submission
        self._files = [
            (b"\r\n" + _head(boundary, parameter_of(name) or FILE, source.content_type, source), source)
            for name, source in files.items()
        ]
        self._end = f"\r\n--{boundary}--\r\n".encode()
        self._show = show

    @property
    def size(self) -> int:
        files = sum(len(head) + source.size for head, source in self._files)
        return len(self._begin) + files + len(self._end)

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._begin
        done = 0
        for head, source in self._files:
            yield head
            before = done

            def show(at: int, before: int = before) -> object:
                return self._show(before + at)

            async for data in Piece(source, 0, source.size, show).chunks():
                yield data
            await asyncio.to_thread(source.check)
            done += source.size
        yield self._end


def _head(boundary: str, name: str, content_type: str, source: Source | None = None) -> bytes:
    """Return the headers of a part; those of a file contain its digest."""
    disposition = f'form-data; name="{name.translate(_ESCAPES)}"'
    digest = ""
    if source is not None:
        disposition += f'; filename="{source.name.translate(_ESCAPES)}"'
        if "%" in source.name:  # in the form above it would look like an escape
            disposition += f"; filename*=UTF-8''{quote(source.name, safe='')}"
        digest = f"Content-Digest: {source.digest()}\r\n"
    text = (
        f"--{boundary}\r\nContent-Disposition: {disposition}\r\n"
        f"Content-Type: {content_type}\r\n{digest}\r\n"
    )
    return text.encode()
