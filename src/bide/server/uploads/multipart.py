"""An incremental parser of multipart/form-data (RFC 7578). It buffers only bytes that may be the start of a boundary.

Pure: it takes bytes and yields events. The bytes of a file are views of the input, without a copy.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Generator, Iterator
from urllib.parse import unquote

from bide.core.errors import MalformedRequest
from bide.core.wire.digest import read_digest

MOST_PARTS = 100
MOST_HEAD = 16 * 1024  # bytes of the headers of one part
_PARAMETER = re.compile(r';\s*([\w!#$%&\'*+.^`|~-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)')


class Part:
    """The start of a part. `filename` is None for a plain field."""

    __slots__ = ("content_type", "filename", "name", "sha256")

    def __init__(
        self, name: str, filename: str | None, content_type: str | None, sha256: str | None = None
    ) -> None:
        self.name = name
        self.filename = filename
        self.content_type = content_type
        self.sha256 = sha256  # from its Content-Digest


class PartEnd:
    """The end of a part."""


Event = Part | PartEnd | memoryview
_END = PartEnd()


class _State(enum.Enum):
    PREAMBLE = 0
    AFTER_BOUNDARY = 1
    HEAD = 2
    DATA = 3
    EPILOGUE = 4


def read_boundary(content_type: str) -> bytes:
    """Return the boundary in a Content-Type; MalformedRequest if there is none."""
    for name, value in _parameters(content_type):
        if name == "boundary" and re.fullmatch(
            r"[\w'()+,./:=? -]{0,69}[\w'()+,./:=?-]", value, re.ASCII
        ):
            return value.encode()
    raise MalformedRequest("Content-Type: multipart/form-data needs a boundary of 1 to 70 characters")


class Multipart:
    """The parser of one body. Call `feed` with the bytes, then `close`."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        # The first delimiter has no line break before it.
        self._held = b"\r\n"
        self._state = _State.PREAMBLE
        self._parts = 0

    def feed(self, data: bytes) -> Iterator[Event]:
        buffer = self._held + data if self._held else data
        at = 0
        while True:
            following = yield from self._step(buffer, at)
            if following is None:
                return
            at = following

    def close(self) -> None:
        if self._state is not _State.EPILOGUE:
            raise MalformedRequest("the multipart body ends before its last boundary")

    def _step(self, buffer: bytes, at: int) -> Generator[Event, None, int | None]:
        """Return the next position; None if more bytes are needed."""
        if self._state in (_State.PREAMBLE, _State.DATA):
            found = buffer.find(self._delimiter, at)
            in_data = self._state is _State.DATA
            # Bytes that may be the start of a delimiter wait for the next bytes.
            end = found if found >= 0 else max(at, len(buffer) - len(self._delimiter) + 1)
            if in_data and end > at:
                yield memoryview(buffer)[at:end]
            if found < 0:
                self._held = buffer[end:]
                return None
            if in_data:
                yield _END
            self._state = _State.AFTER_BOUNDARY
            return found + len(self._delimiter)
        if self._state is _State.AFTER_BOUNDARY:
            return self._after_boundary(buffer, at)
        if self._state is _State.HEAD:
            end = buffer.find(b"\r\n\r\n", at)
            if end < 0:
                if len(buffer) - at > MOST_HEAD:
                    raise MalformedRequest(f"the headers of a part are larger than {MOST_HEAD} bytes")
                self._held = buffer[at:]
                return None
            self._state = _State.DATA
            yield self._part(buffer[at:end])
            return end + 4
        self._held = b""
        return None

    def _after_boundary(self, buffer: bytes, at: int) -> int | None:
        line = buffer[at : at + 256]
        if line.startswith(b"--"):
            self._state = _State.EPILOGUE
            return at
        end = line.find(b"\r\n")
        if end < 0:
            if len(line) > 200:
                raise MalformedRequest("a multipart boundary must be followed by a line break")
            self._held = buffer[at:]
            return None
        if line[:end].strip(b" \t"):
            raise MalformedRequest("a multipart boundary must be followed by a line break")
        self._state = _State.HEAD
        return at + end + 2

    def _part(self, head: bytes) -> Part:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise MalformedRequest(f"the multipart body has more than {MOST_PARTS} parts")
        headers: dict[str, str] = {}
        for line in filter(None, head.split(b"\r\n")):
            name, colon, value = line.partition(b":")
            if not colon:
                raise MalformedRequest("a header of a part has no colon")
            headers[name.strip().lower().decode("latin-1")] = value.strip().decode(errors="replace")
        disposition = headers.get("content-disposition", "")
        if not disposition.lower().startswith("form-data"):
            raise MalformedRequest("a part has no Content-Disposition: form-data")
        found = dict(_parameters(disposition))
        if "name" not in found:
            raise MalformedRequest("a part has no name in its Content-Disposition")
        promised = read_digest(headers.get("content-digest"))
        return Part(found["name"], _filename(found), headers.get("content-type"), promised)


def _filename(found: dict[str, str]) -> str | None:
    extended = found.get("filename*")
    if extended is not None and extended.lower().startswith("utf-8''"):
        return unquote(extended[7:], errors="replace")
    return found.get("filename")


def _parameters(value: str) -> Iterator[tuple[str, str]]:
    for name, text in _PARAMETER.findall(value):
        yield name.lower(), _unquoted(text) if text.startswith('"') else text


def _unquoted(text: str) -> str:
    """Browsers write a quote as %22 and a backslash unchanged; other clients escape both with a backslash."""
    plain = re.sub(r'\\(["\\])', r"\1", text[1:-1])
    return plain.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")


def read_disposition(value: str) -> str | None:
    """Return the file name in a Content-Disposition header."""
    return _filename(dict(_parameters(";" + value)))
