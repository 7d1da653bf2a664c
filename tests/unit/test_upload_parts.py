"""Any sequence of writes, stored parts, checkpoints and crashes gives parts and a tail that have the bytes of the upload."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bide.core.errors import PayloadTooLarge
from bide.server.upload_record import BucketBytes
from bide.server.uploads.parts import PartBuffer, UploadPart, part_size

CONTENT = bytes(range(256)) * 4
MIB = 1024 * 1024


def etag_of(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


class Uploading(RuleBasedStateMachine):
    """One process after the other receives an upload. The storage has the parts by number and the tails by key."""

    @initialize(
        size=st.integers(0, 300),
        known=st.booleans(),
        smallest=st.integers(3, 9),
        most=st.integers(20, 40),
    )
    def begin(self, size: int, known: bool, smallest: int, most: int) -> None:
        self.size, self.smallest, self.most = size, smallest, most
        self.bucket = BucketBytes("w", part_size(size if known else None, smallest, most))
        self.received = 0
        self.parts: dict[int, bytes] = {}
        self.tails: dict[str, bytes] = {}
        self.stale: list[UploadPart] = []  # of processes that have lost the upload
        self.take_over()

    def take_over(self) -> None:
        tail = self.tails[self.bucket.tail] if self.bucket.tail else b""
        self.buffer = PartBuffer(self.bucket, tail, self.smallest, self.most)
        self.unsent: list[UploadPart] = []
        assert self.buffer.position == self.received

    def put(self, part: UploadPart) -> str:
        data = b"".join(part.pieces)
        assert len(data) == part.size and 1 <= part.number <= self.most
        self.parts[part.number] = data
        return etag_of(data)

    def store(self, part: UploadPart) -> None:
        self.buffer.stored(part.number, self.put(part))

    def record(self, tail: str) -> None:
        bucket, received = self.buffer.state("m", tail)
        assert received >= self.received, "what was acknowledged is never lost"
        self.bucket, self.received = bucket, received

    @rule(count=st.integers(0, 60))
    def write(self, count: int) -> None:
        first = self.buffer.position
        self.unsent += self.buffer.add(CONTENT[first : min(first + count, self.size)])

    @precondition(lambda self: self.unsent)
    @rule(data=st.data())
    def a_part_is_stored(self, data: st.DataObject) -> None:
        self.store(self.unsent.pop(data.draw(st.integers(0, len(self.unsent) - 1))))

    @rule()
    def checkpoint(self) -> None:
        self.record("")

    @rule()
    def sync(self) -> None:
        last = self.buffer.position == self.size
        part = self.buffer.rest(last=last)
        for one in [*self.unsent, *([part] if part else [])]:
            self.store(one)
        self.unsent, tail = [], ""
        if self.buffer.pieces:
            assert last or self.buffer.size < self.buffer.goal
            tail = f"t{len(self.tails)}"
            self.tails[tail] = b"".join(self.buffer.pieces)
        position = self.buffer.position
        self.record(tail)
        assert self.received == position
        if last:
            self.is_complete()
        self.take_over()

    def is_complete(self) -> None:
        sizes = [size for size, _ in self.bucket.parts]
        assert not (sizes and self.bucket.tail), "nothing is left to copy"
        assert all(size >= self.smallest for size in sizes[:-1])
        if self.bucket.part_size:
            assert len(set(sizes[:-1])) <= 1, "some storage needs parts of one size"

    @rule()
    def crash(self) -> None:
        self.stale += self.unsent
        self.take_over()

    @precondition(lambda self: self.stale)
    @rule()
    def a_stale_process_stores_a_part(self) -> None:
        self.put(self.stale.pop())

    @invariant()
    def the_record_names_the_received_bytes(self) -> None:
        if not hasattr(self, "bucket"):
            return
        data = b""
        for number, (size, etag) in enumerate(self.bucket.parts, 1):
            assert (len(self.parts[number]), etag_of(self.parts[number])) == (size, etag)
            data += self.parts[number]
        data += self.tails[self.bucket.tail] if self.bucket.tail else b""
        assert data == CONTENT[: self.received]


TestUploading = Uploading.TestCase


def test_a_declared_size_fits_into_the_parts_that_storage_accepts() -> None:
    for size in (0, 1, 5 * MIB, 64 * 1024 * MIB, 300 * 1024 * MIB + 1):
        found = part_size(size, 5 * MIB, 1000)
        assert found >= 5 * MIB and found * 1000 >= size
    assert part_size(5000 * MIB, 5 * MIB, 1000) == 5 * MIB


def test_parts_without_a_declared_size_grow_and_end_at_the_limit() -> None:
    whole = tuple((5 * MIB * (1 + number * 27 // 1000), "e") for number in range(1000))
    assert sum(size for size, _ in whole) > 64 * 1024**3
    for count in (0, 1, 500, 999):
        buffer = PartBuffer(BucketBytes("w", parts=whole[:count]), b"", 5 * MIB, 1000)
        assert buffer.goal == whole[count][0]
    full = PartBuffer(BucketBytes("w", parts=whole), b"x", 5 * MIB, 1000)
    with pytest.raises(PayloadTooLarge, match="began without a size"):
        full.rest(last=True)
