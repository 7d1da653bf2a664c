"""Deduplication: one row per key stays. Rows and keys are spilled to disk, keys in partitions by hash.

1. Keys are compared themselves; a hash only chooses the partition.
2. The rows keep their order.
3. Memory holds the keys of one partition, and one bit per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from bide.pipeline.plan.schema import Schema

PARTITIONS = (16, 256)  # least and most; each is an open file
PARTITION_BYTES = 8 << 20  # bytes of the sources per partition
MOST_KEYS = 1 << 18  # of one partition in memory; a larger partition is processed in several passes
_EARLIER = 1 << 61
_MIX = -7046029254386353131


class Deduplicator:
    """`add` takes rows; after `close`, `kept` returns those that stay."""

    def __init__(self, folder: Path, schema: Schema, fields: Any, size: int) -> None:
        """`size` is the number of bytes of the sources. It decides the number of partitions."""
        # Spilled rows are not compressed: lz4 would take a tenth of the time, to write less.
        self._folder = folder
        self._key = list(schema.key)
        self._keep = "newest" if schema.newest else schema.keep
        self._newest = schema.newest
        self._rows = pa.ipc.new_file(folder / "rows", fields)
        self._partitions = partitions(size)
        self._parts: dict[int, Any] = {}
        self._counts: dict[int, int] = {}
        self._count = 0
        self.duplicates = 0

    def add(self, table: Any, *, earlier: bool) -> None:
        """`earlier`: the rows are from the published file. A new row replaces an earlier one with the same key."""
        for batch in table.combine_chunks().to_batches():
            self._rows.write_batch(batch)
            self._add_keys(batch, earlier)
            self._count += batch.num_rows

    def _add_keys(self, batch: Any, earlier: bool) -> None:
        columns = {f"k{i}": batch.column(name) for i, name in enumerate(self._key)}
        # Of equal keys, the row with the least (`first`) or greatest (`last`) rank stays.
        start = self._count + (_EARLIER if earlier and self._keep == "first" else 0)
        columns["rank"] = pa.arange(start, start + batch.num_rows)
        columns["hash"] = _hash([columns[f"k{i}"] for i in range(len(self._key))])
        if self._newest:
            columns["order"] = batch.column(self._newest)
            columns["dated"] = columns["order"].is_valid().cast(pa.int8())  # null is the oldest
        part = pc.bit_wise_and(columns["hash"], self._partitions - 1)
        order = pc.sort_indices(part)
        keys = pa.RecordBatch.from_pydict(columns).take(order)
        at = 0
        for counted in part.take(order).value_counts().to_pylist():
            index, rows = counted["values"], counted["counts"]
            self._part(index, keys.schema).write_batch(keys.slice(at, rows))
            self._counts[index] += rows
            at += rows

    def _part(self, index: int, fields: Any) -> Any:
        if index not in self._parts:
            path = self._folder / f"keys{index}"
            self._parts[index] = pa.ipc.new_file(path, fields)
            self._counts[index] = 0
        return self._parts[index]

    def close(self) -> None:
        for writer in (self._rows, *self._parts.values()):
            writer.close()

    def kept(self) -> Iterator[Any]:
        """Batches of the rows that stay, in order."""
        dropped = bytearray((self._count + 7) // 8)
        for index in sorted(self._parts):
            for duplicates in self._duplicates(index):
                self.duplicates += len(duplicates)
                for row in duplicates:
                    dropped[row >> 3] |= 1 << (row & 7)
        bits = pa.py_buffer(dropped)
        at = 0
        with pa.OSFile(str(self._folder / "rows")) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                mask = pa.Array.from_buffers(pa.bool_(), batch.num_rows, [None, bits], offset=at)
                at += batch.num_rows
                yield batch.filter(pc.invert(mask)) if self.duplicates else batch

    def _duplicates(self, index: int) -> Iterator[list[int]]:
        """The numbers of the rows of a partition that do not stay."""
        passes = -(-self._counts[index] // MOST_KEYS)
        for number in range(passes):
            keys = self._keys(index, number, passes)
            ranks = keys.column("rank")
            best = self._best(keys)
            if len(best) == len(ranks):
                continue
            lost = ranks.filter(pc.invert(pc.is_in(ranks, value_set=best)))
            yield pc.bit_wise_and(lost, _EARLIER - 1).to_pylist()

    def _keys(self, index: int, number: int, passes: int) -> Any:
        with pa.OSFile(str(self._folder / f"keys{index}")) as file:
            reader = pa.ipc.open_file(file)
            if passes == 1:
                return reader.read_all()
            found = []
            for position in range(reader.num_record_batches):
                batch = reader.get_batch(position)
                # The bits of the hash that did not choose the partition.
                high = pc.shift_right(batch.column("hash"), PARTITIONS[1].bit_length())
                rest = pc.subtract(high, pc.multiply(pc.divide(high, passes), passes))
                found.append(batch.filter(pc.equal(rest, number)))
            return pa.Table.from_batches(found)

    def _best(self, keys: Any) -> Any:
        names = [f"k{i}" for i in range(len(self._key))]
        if self._keep == "newest":
            ascending = [(name, "ascending") for name in ("dated", "order", "rank")]
            keys = keys.take(pc.sort_indices(keys, sort_keys=ascending))
            grouped = keys.group_by(names, use_threads=False).aggregate([("rank", "last")])
            return grouped.column("rank_last")
        best = "min" if self._keep == "first" else "max"
        return keys.group_by(names).aggregate([("rank", best)]).column(f"rank_{best}")


def partitions(size: int) -> int:
    """The number of partitions, a power of two."""
    least, most = PARTITIONS
    return min(most, max(least, 1 << (size // PARTITION_BYTES).bit_length()))


def _hash(columns: list[Any]) -> Any:
    """Numbers from 0 to 2**31 - 1. Equal keys have equal numbers."""
    total = pa.scalar(0, pa.int64())
    for column in columns:
        total = pc.multiply(pc.add(_number(column), total), _MIX)
    return pc.bit_wise_and(pc.shift_right(total, 32), (1 << 31) - 1)


def _number(column: Any) -> Any:
    kind = column.type
    if pa.types.is_integer(kind):
        return column
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64())
    if pa.types.is_date(kind):
        return column.cast(pa.int32()).cast(pa.int64())
    texts = column.cast(pa.string()).cast(pa.binary()).to_pylist()
    return pa.array([crc32(text) for text in texts], pa.int64())
