"""The bytes of a source: plain, gzip or zip, recognised by content.

1. Unpacked bytes are counted. A source that exceeds the limits is refused, whatever its headers say.
2. An archive inside an archive is refused.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from bide.pipeline.plan.schema import SchemaLimits
from bide.pipeline.rows.report import BadSource, SourceFile

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
EMPTY_ZIP = b"PK\x05\x06"
SMALL = 16 << 20  # unpacked bytes below which any ratio is allowed


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class ByteStream:
    """The bytes of one file. `read` returns exactly as many as requested, except at the end."""

    def __init__(
        self, file: Readable, source: str, limits: SchemaLimits, packed: int | None = None
    ) -> None:
        self._file = file
        self._source = source
        self._limits = limits
        self._packed = packed
        self._unread = b""
        self._count = 0
        self.closed = False  # pyarrow reads it

    def read(self, size: int) -> bytes:
        if len(self._unread) >= size:
            out, self._unread = self._unread[:size], self._unread[size:]
            return out
        parts, self._unread = [self._unread] if self._unread else [], b""
        lacking = size - sum(map(len, parts))
        while lacking > 0 and (found := self._more(lacking)):
            parts.append(found)
            lacking -= len(found)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def unread(self, data: bytes) -> None:
        """The next `read` returns these bytes first."""
        self._unread = data + self._unread

    def peek(self, size: int) -> bytes:
        found = self.read(size)
        self.unread(found)
        return found

    def close(self) -> None:
        """For pyarrow. The caller of `files` closes the file."""

    def _more(self, size: int) -> bytes:
        try:
            found = self._file.read(size)
        except EOFError:
            raise BadSource(
                self._source, "the gzip stream is truncated: the download is incomplete"
            ) from None
        except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
            raise BadSource(self._source, f"the archive is damaged: {error}") from None
        except (NotImplementedError, RuntimeError) as error:
            raise BadSource(self._source, f"the archive cannot be opened: {error}") from None
        except OSError as error:
            raise BadSource(self._source, f"it cannot be read: {error.strerror or error}") from None
        self._count += len(found)
        self._check()
        return found

    def _check(self) -> None:
        if self._packed is None:
            return
        if self._count > self._limits.unpacked:
            raise BadSource(
                self._source,
                f"it unpacks to more than {self._limits.unpacked} bytes. Raise `unpacked` in [schema.limits] to allow it",
            )
        if self._count > SMALL and self._count > self._packed * self._limits.ratio:
            raise BadSource(
                self._source,
                f"it unpacks to more than {self._limits.ratio} times its size, like a zip bomb. "
                "Raise `ratio` in [schema.limits] to allow it",
            )


def files(source: SourceFile, limits: SchemaLimits) -> Iterator[tuple[str, ByteStream]]:
    """The files of a source with their names: one, or the members of a zip archive in order."""
    try:
        file = source.path.open("rb")
    except OSError as error:
        raise BadSource(source.name, f"{source.path} cannot be read: {error.strerror}") from None
    with file:
        start = file.read(4)
        file.seek(0)
        if start[:2] == GZIP:
            with gzip.GzipFile(fileobj=file) as unpacked:
                stream = ByteStream(_buffered(unpacked), source.name, limits, _size(source.path))
                _refuse_archive(stream, source.name)
                yield source.name, stream
        elif start in (ZIP, EMPTY_ZIP):
            yield from _members(file, source, limits)
        else:
            yield source.name, ByteStream(file, source.name, limits)


def _buffered(file: gzip.GzipFile) -> Readable:
    return io.BufferedReader(file, 1 << 18)


def _size(path: Path) -> int:
    return path.stat().st_size


def _members(
    file: IO[bytes], source: SourceFile, limits: SchemaLimits
) -> Iterator[tuple[str, ByteStream]]:
    with _opened(file, source.name) as archive:
        members = [member for member in archive.infolist() if _holds_rows(member)]
        if not members:
            raise BadSource(source.name, "the zip archive has no file")
        left = limits.unpacked
        for member in members:
            name = source.name if len(members) == 1 else f"{source.name} ({member.filename})"
            if member.flag_bits & 1:
                raise BadSource(name, "the archive is encrypted, which bide cannot read")
            if member.file_size > left:
                raise BadSource(
                    name,
                    f"the archive unpacks to more than {limits.unpacked} bytes. "
                    "Raise `unpacked` in [schema.limits] to allow it",
                )
            left -= member.file_size
            try:
                unpacked = archive.open(member)
            except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
                raise BadSource(name, f"the archive cannot be opened: {error}") from None
            with unpacked:
                stream = ByteStream(unpacked, name, limits, member.compress_size)
                _refuse_archive(stream, name)
                yield name, stream


@contextmanager
def _opened(file: IO[bytes], name: str) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise BadSource(name, f"the zip archive is damaged or truncated: {error}") from None
    with archive:
        yield archive


def _holds_rows(member: zipfile.ZipInfo) -> bool:
    """Not a folder, and not the metadata that macOS adds."""
    parts = member.filename.split("/")
    return not member.is_dir() and parts[0] != "__MACOSX" and parts[-1] != ".DS_Store"


def _refuse_archive(stream: ByteStream, name: str) -> None:
    start = stream.peek(4)
    if start[:2] == GZIP or start == ZIP:
        raise BadSource(name, "there is an archive inside the archive. Unpack it first")
