"""Bad rows: counted, reported, and written to a dead-letter file if the schema says so.

A dead-letter file has JSON lines: source, row, column, reason, and the row of the source without personal values.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bide.pipeline.plan.schema import Schema
from bide.pipeline.rows.report import EXAMPLES, BadRow, BadRows, BadRowSummary
from bide.pipeline.rows.target import Target

_ENCODER = msgspec.json.Encoder(decimal_format="number")


class BadRowLog:
    """Handles bad rows as `bad_rows` of the schema says."""

    def __init__(self, schema: Schema, target: Target, partial: Path) -> None:
        self._policy = schema.bad_rows
        self._file = partial.open("wb") if self._policy == "dead-letter" else None
        self._final = target.dead_letters
        self._counts: Counter[str] = Counter()
        self._examples: list[BadRow] = []
        self._rows = 0
        self._earlier: set[bytes] = set()
        self.written = 0

    def copy_earlier(self, previous: Path) -> None:
        """Copy the dead letters of an earlier run: its rows are not in the sources again."""
        if self._file is None or not previous.exists():
            return
        with previous.open("rb") as earlier:
            for line in earlier:
                self._earlier.add(_digest(line))
                self._write(line)

    def add(self, bad: list[BadRow], raw: Callable[[], Any], *, left_out: bool) -> None:
        """`raw` returns the row of the source without personal values. `left_out`: the output does not have the row."""
        self._rows += 1
        for one in bad:
            self._counts[one.reason] += 1
            if self._counts[one.reason] <= EXAMPLES:
                self._examples.append(one)
        if self._policy == "refuse":
            raise BadRows(tuple(bad), "a row does not fit the schema")
        if self._policy == "null" and left_out:
            raise BadRows(tuple(bad), "a row does not fit the schema, and null cannot replace the value")
        if self._file is None:
            return
        for one in bad:
            known = {"source": one.source, "row": one.row, "column": one.column, "reason": one.reason}
            line = _ENCODER.encode({**known, "raw": raw()}) + b"\n"
            if not self._earlier or _digest(line) not in self._earlier:
                self._write(line)

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        self._file.write(line)
        self.written += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def summary(self) -> BadRowSummary:
        file = self._final if self._file is not None and self.written else None
        return BadRowSummary(dict(self._counts), tuple(self._examples), self._rows, file)


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=16).digest()
