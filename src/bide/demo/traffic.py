"""Sends jobs to the service of `bide demo --keep`, so that its dashboard has something to show: many at first, then one
every few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from bide.client.blocking import Client
from bide.client.submission import JobSubmission
from bide.core.errors import BideError

FIRST = 24  # jobs that are sent at once
EVERY = 2.5  # seconds between two jobs after that


def _job(kind: str, name: str, team: str, **input: Any) -> JobSubmission:
    return {"kind": kind, "input": input, "labels": {"name": name, "team": team}}


def _document(name: str, team: str, pages: int, seconds: float, **more: Any) -> JobSubmission:
    return _job("ocr", name, team, document=name, pages=pages, seconds=seconds, **more)


def _recording(name: str, team: str, minutes: int, seconds: float) -> JobSubmission:
    return _job("transcribe", name, team, recording=name, minutes=minutes, seconds=seconds)


SUBMISSIONS: Sequence[JobSubmission] = (
    _document("invoices-october.pdf", "finance", 214, 18),
    _recording("board-meeting.wav", "office", 74, 55),
    _document("supplier-contracts.pdf", "legal", 61, 9, timeouts=3, token="t-5fd1c8b2"),
    _job("report", "customers by region", "sales", table="customers", rows=48_000, seconds=5),
    _document("delivery-notes.pdf", "logistics", 38, 7),
    _document("lease-agreements.pdf", "legal", 120, 12, timeouts=1),
    _recording("podcast-118.flac", "office", 31, 34),
    _job("report", "open invoices", "finance", table="invoices", missing="currency", seconds=3),
    _document("price-list.pdf", "sales", 12, 4),
    _job("import_folder", "scans of November", "logistics", folder="scans/11", documents=4, broken=1),
    _document("customs-forms.pdf", "logistics", 55, 8),
    _job("report", "orders of the week", "sales", table="orders", rows=9_000, skipped=3),
    _document("personnel-files.pdf", "office", 90, 11),
    _recording("interview-06.wav", "office", 12, 18),
    _document("warranty-cards.pdf", "logistics", 26, 5),
    _job("report", "unpaid invoices", "finance", table="invoices", rows=3_000, seconds=2),
)


class Traffic:
    """Sends the jobs, in the same order each time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._next: Iterator[JobSubmission] = cycle(SUBMISSIONS)
        self._due = 0.0

    def begin(self, files: Sequence[Path]) -> None:
        """Send the first jobs, and one with each of the files."""
        self._client.submit_many([next(self._next) for _ in range(FIRST)])
        for file in files:
            self._client.submit("checksum", file=file, labels={"name": file.name, "team": "office"})
        self._due = time.monotonic() + EVERY

    def tick(self) -> None:
        """Send the next job if it is time. A job that cannot be sent is left out: the service says why."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY
        wanted = next(self._next)
        try:
            self._client.submit(wanted["kind"], wanted["input"], labels=wanted["labels"])
        except BideError:
            return
