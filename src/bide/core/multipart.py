"""Reads multipart/form-data as it arrives (RFC 7578): nothing but what a boundary could begin with is held back.

Pure: bytes go in, what they mean comes out. A file's bytes come as views of what was fed, without a copy.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Generator, Iterator
from urllib.parse import unquote

from bide.core.digest import read_digest
from bide.core.errors import MalformedRequest

MOST_PARTS = 100
MOST_HEAD = 16 * 1024  # bytes of one part's headers
_PARAMETER = re.compile(r';\s*([\w!#$%&\'*+.^`|~-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)')


class Part:
    """A part begins. `filename` is None for a plain field."""

    __slots__ = ("content_type", "filename", "name", "sha256")

    def __init__(
        self, name: str, filename: str | None, content_type: str | None, sha256: str | None = None
    ) -> None:
        self.name = name
        self.filename = filename
        self.content_type = content_type
        self.sha256 = sha256  # that its sender has promised


class PartEnd:
    """The part has come to its end."""


Event = Part | PartEnd | memoryview
_END = PartEnd()


class _State(enum.Enum):
    PREAMBLE = 0
    AFTER_BOUNDARY = 1
    HEAD = 2
    DATA = 3
    EPILOGUE = 4


def read_boundary(content_type: str) -> bytes:
    """Of the header's value; MalformedRequest when there is none."""
    for name, value in _parameters(content_type):
        if name == "boundary" and re.fullmatch(
            r"[\w'()+,./:=? -]{0,69}[\w'()+,./:=?-]", value, re.ASCII
        ):
            return value.encode()
    raise MalformedRequest("multipart/form-data without a boundary of 1 to 70 characters")


class Multipart:
    """One body. `feed` it, then `close` it."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        # The first one may be at the very beginning.
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
        """Where to go on; None when more must come first."""
        if self._state in (_State.PREAMBLE, _State.DATA):
            found = buffer.find(self._delimiter, at)
            in_data = self._state is _State.DATA
            # What could be the beginning of a delimiter waits for the rest of it.
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
                    raise MalformedRequest(f"a part's headers are larger than {MOST_HEAD} bytes")
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
                raise MalformedRequest(
                    "a multipart boundary is followed by something else than a line break"
                )
            self._held = buffer[at:]
            return None
        if line[:end].strip(b" \t"):
            raise MalformedRequest(
                "a multipart boundary is followed by something else than a line break"
            )
        self._state = _State.HEAD
        return at + end + 2

    def _part(self, head: bytes) -> Part:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise MalformedRequest(f"more than {MOST_PARTS} parts")
        headers: dict[str, str] = {}
        for line in filter(None, head.split(b"\r\n")):
            name, colon, value = line.partition(b":")
            if not colon:
                raise MalformedRequest("a part's header has no colon")
            headers[name.strip().lower().decode("latin-1")] = value.strip().decode(errors="replace")
        disposition = headers.get("content-disposition", "")
        if not disposition.lower().startswith("form-data"):
            raise MalformedRequest("a part without Content-Disposition: form-data")
        found = dict(_parameters(disposition))
        if "name" not in found:
            raise MalformedRequest("a part without a name")
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
    """Browsers write a quote as %22, and a backslash as itself; others write both with a backslash."""
    plain = re.sub(r'\\(["\\])', r"\1", text[1:-1])
    return plain.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")


def read_disposition(value: str) -> str | None:
    """The file name of a Content-Disposition header."""
    return _filename(dict(_parameters(";" + value)))
