"""Parses the Range header (RFC 9110, section 14)."""

from __future__ import annotations

import re

from bide.core.errors import RangeNotSatisfiable

MAX_RANGES = 20
_ONE = re.compile(r"(\d{0,18})-(\d{0,18})", re.ASCII)


def read_range(header: str, size: int) -> list[tuple[int, int]]:
    """Returns the ranges as (first, last), both included; an empty list if the header must be ignored.

    Raises RangeNotSatisfiable if no range overlaps the file.
    """
    unit, equals, text = header.partition("=")
    parts = [part.strip() for part in text.split(",")]
    if not equals or unit.strip().lower() != "bytes" or len(parts) > MAX_RANGES:
        return []
    found: list[tuple[int, int]] = []
    for part in parts:
        match = _ONE.fullmatch(part)
        if match is None or part == "-":
            return []
        first, last = match.groups()
        if first and last and int(last) < int(first):
            return []
        start = int(first) if first else max(0, size - int(last))
        end = min(int(last), size - 1) if first and last else size - 1
        if start <= end:
            found.append((start, end))
    if not found:
        raise RangeNotSatisfiable(
            f"Range is {header[:100]!r}, but the file has {size} bytes",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return found
