"""Of rows with the same key one is kept, whatever their number: rows and keys go to disk first, keys in partitions by hash.

1. Keys are compared as they are; a hash only says in which partition to look.
2. The rows that are kept are in the order in which they came.
3. In memory are the keys of one partition, and one bit for each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from bide.pipeline.plan.schema import Schema

PARTITIONS = (16, 256)  # each is an open file
OF_PARTITION = 8 << 20  # bytes of the sources that one partition is meant for
MOST_KEYS = 1 << 18  # of one partition in memory; more are taken in turns
_EARLIER = 1 << 61
_MIX = -7046029254386353131


class Deduplicator:
    """Rows go in by `add`; `kept` gives those that stay."""

    def __init__(self, folder: Path, schema: Schema, fields: Any, size: int) -> None:
        """`size` is how many bytes the sources have: the more, the more partitions."""
        # What is spilled is not compressed: lz4 would cost a tenth of the time, for less to write.
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
        """`earlier`: of a file that was published before; any row that came since then is preferred."""
        for batch in table.combine_chunks().to_batches():
            self._rows.write_batch(batch)
            self._add_keys(batch, earlier)
            self._count += batch.num_rows

    def _add_keys(self, batch: Any, earlier: bool) -> None:
        columns = {f"k{i}": batch.column(name) for i, name in enumerate(self._key)}
        # Of equal keys the one with the least (first) or the greatest (last) rank is kept.
        start = self._count + (_EARLIER if earlier and self._keep == "first" else 0)
        columns["rank"] = pa.arange(start, start + batch.num_rows)
        columns["hash"] = _hash([columns[f"k{i}"] for i in range(len(self._key))])
        if self._newest:
            columns["order"] = batch.column(self._newest)
            columns["dated"] = columns["order"].is_valid().cast(pa.int8())  # null is older than all
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
        """After `close`: batches of the rows that stay, in order."""
        dropped = bytearray((self._count + 7) // 8)
        for index in sorted(self._parts):
            for losers in self._losers(index):
                self.duplicates += len(losers)
                for row in losers:
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

    def _losers(self, index: int) -> Iterator[list[int]]:
        """The numbers of the rows that do not stay."""
        turns = -(-self._counts[index] // MOST_KEYS)
        for turn in range(turns):
            keys = self._keys(index, turn, turns)
            ranks = keys.column("rank")
            best = self._best(keys)
            if len(best) == len(ranks):
                continue
            lost = ranks.filter(pc.invert(pc.is_in(ranks, value_set=best)))
            yield pc.bit_wise_and(lost, _EARLIER - 1).to_pylist()

    def _keys(self, index: int, turn: int, turns: int) -> Any:
        with pa.OSFile(str(self._folder / f"keys{index}")) as file:
            reader = pa.ipc.open_file(file)
            if turns == 1:
                return reader.read_all()
            found = []
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                # Bits of the hash that did not choose the partition.
                high = pc.shift_right(batch.column("hash"), PARTITIONS[1].bit_length())
                rest = pc.subtract(high, pc.multiply(pc.divide(high, turns), turns))
                found.append(batch.filter(pc.equal(rest, turn)))
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
    """A power of two."""
    least, most = PARTITIONS
    return min(most, max(least, 1 << (size // OF_PARTITION).bit_length()))


def _hash(columns: list[Any]) -> Any:
    """Numbers from 0 to 2**31, the same for equal keys."""
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
