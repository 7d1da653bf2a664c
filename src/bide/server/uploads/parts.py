"""Cuts the consecutive bytes of an upload into parts and a tail. No I/O: the caller stores them and reports the ETags.

1. Every part but the last has `BucketBytes.part_size` bytes, because some storage requires parts of one size. So the
   number of parts is known in advance and within the limit of the storage.
2. An upload that began without a size has parts that grow with their number.
3. `state` names only stored bytes, without a gap, and never fewer than the state that the upload began with.
"""

from __future__ import annotations

from msgspec.structs import replace

from bide.core.errors import PayloadTooLarge
from bide.server.upload_record import BucketBytes

Bytes = bytes | memoryview
GROWTH = 27  # the last part of an upload without a size is so many times larger than the first: 109 GiB in 1,000 parts


def part_size(size: int | None, smallest: int, most: int) -> int:
    """Return the size of the parts of an upload; 0 if its size is not known."""
    return 0 if size is None else max(smallest, -(-size // most))


class UploadPart:
    """A part to store, numbered from 1."""

    __slots__ = ("number", "pieces", "size")

    def __init__(self, number: int, pieces: list[Bytes], size: int) -> None:
        self.number = number
        self.pieces = pieces
        self.size = size


class PartBuffer:
    """The bytes of one upload that are not stored yet. `tail` has the bytes of the object `bucket.tail`."""

    def __init__(self, bucket: BucketBytes, tail: Bytes, smallest: int, most: int) -> None:
        self._bucket = bucket
        self._smallest = smallest
        self._most = most
        self._begin = bucket.parts_end + len(tail)
        self._parts: list[tuple[int, str | None]] = list(
            bucket.parts
        )  # size, and ETag when it is stored
        self._whole = len(self._parts)  # the parts before the first one that is not stored
        self.stored_end = bucket.parts_end  # the offset after those parts
        self.pieces: list[Bytes] = [tail] if tail else []  # the bytes after the parts
        self.size = len(tail)  # of `pieces`
        self.position = self._begin  # of the next byte

    @property
    def goal(self) -> int:
        """The size of the next part."""
        grown = self._smallest * (1 + len(self._parts) * GROWTH // self._most)
        return self._bucket.part_size or grown

    def add(self, data: Bytes) -> list[UploadPart]:
        """Add bytes; return the parts that are full. A part is cut when more bytes follow it, so that a file of one part
        stays whole.
        """
        parts: list[UploadPart] = []
        self.position += len(data)
        while self.size + len(data) > self.goal:
            missing = self.goal - self.size
            view = memoryview(data)
            self._append(view[:missing])
            data = view[missing:]
            parts.append(self._cut())
        self._append(data)
        return parts

    def rest(self, *, last: bool) -> UploadPart | None:
        """Return the bytes after the parts as a part, if they are one: a full part, or the last one of several."""
        if self.size and (self.size >= self.goal or (last and self._parts)):
            return self._cut()
        return None

    def _append(self, data: Bytes) -> None:
        if len(data):
            self.pieces.append(data)
            self.size += len(data)

    def _cut(self) -> UploadPart:
        if len(self._parts) >= self._most:
            raise PayloadTooLarge(
                f"the storage accepts {self._most} parts, and the upload began without a size: begin it with one"
            )
        part = UploadPart(len(self._parts) + 1, self.pieces, self.size)
        self._parts.append((self.size, None))
        self.pieces, self.size = [], 0
        return part

    def stored(self, number: int, etag: str) -> None:
        """Record that a part is stored."""
        self._parts[number - 1] = (self._parts[number - 1][0], etag)
        while self._whole < len(self._parts) and self._parts[self._whole][1] is not None:
            self.stored_end += self._parts[self._whole][0]
            self._whole += 1

    def state(self, multipart: str, tail: str) -> tuple[BucketBytes, int]:
        """Return what is stored, and the offset after it. `tail`: the key of the object that has `pieces`."""
        end = self.stored_end
        if tail and self._whole == len(self._parts):
            end = self.position
        elif end < self._begin:
            return self._bucket, self._begin
        else:
            tail = ""
        parts = tuple((size, etag) for size, etag in self._parts[: self._whole] if etag is not None)
        multipart = multipart if parts else self._bucket.multipart
        return replace(self._bucket, multipart=multipart, parts=parts, tail=tail), end
