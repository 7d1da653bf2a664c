"""Exports of grades, of any size and deterministic."""

from __future__ import annotations

import csv
import io
import json
import random
from datetime import datetime, timedelta
from pathlib import Path

NAMES = ("id", "course", "title", "student", "score", "submitted_at", "attempts", "note")
TITLES = ("Algebra I", "History, modern", "Physics", "Chemistry lab", 'English "A" level', "Sport")
BLOCK = 20_000  # rows that are generated once and repeated with other ids
COLUMNS = [
    {"name": "id", "type": "integer"},
    {"name": "course", "type": "integer"},
    {"name": "title"},
    {"name": "student"},
    {"name": "score", "type": "float"},
    {"name": "submitted_at", "type": "timestamp"},
    {"name": "attempts", "type": "integer"},
    {"name": "note"},
]


def write(path: Path, format: str, size: int) -> None:
    """A CSV or a JSON array of about `size` bytes."""
    rows, written, number = _block(), 0, 0
    with path.open("wb") as file:
        file.write((",".join(NAMES) + "\n").encode() if format == "csv" else b"[")
        while written < size:
            ids = range(number, number + BLOCK)
            block = _csv(ids, rows) if format == "csv" else _json(ids, rows)
            written += file.write(b",\n" + block if format == "json" and number else block)
            number += BLOCK
        file.write(b"" if format == "csv" else b"]")


def _block() -> list[tuple[object, ...]]:
    rng = random.Random(5)
    begin = datetime(2026, 1, 1)
    return [
        (
            rng.randrange(100_000),
            rng.choice(TITLES),
            f"Student {rng.randrange(1_000_000)}",
            round(rng.uniform(0, 100), 2),
            (begin + timedelta(seconds=rng.randrange(20_000_000))).isoformat() + "Z",
            rng.randrange(50),
            "submitted late" if rng.random() < 0.1 else "ok",
        )
        for _ in range(BLOCK)
    ]


def _csv(ids: range, rows: list[tuple[object, ...]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        (id, *row) for id, row in zip(ids, rows, strict=True)
    )
    return text.getvalue().encode()


def _json(ids: range, rows: list[tuple[object, ...]]) -> bytes:
    return ",\n".join(
        json.dumps(dict(zip(NAMES, (id, *row), strict=True))) for id, row in zip(ids, rows, strict=True)
    ).encode()
