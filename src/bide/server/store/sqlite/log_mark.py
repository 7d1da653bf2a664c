"""The number of the last event, in a file beside the database, to detect that an older copy of the database was restored.

1. The mark is written after the commit of the event, so it is never greater than the last number of that database.
2. A write is not synced, because it must not delay the commit. A power cut may leave an older mark, which detects less.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from bide.server.durable_files import FILE_MODE

MARK = "events.mark"  # the name of the file


class LogMark:
    """The open file. `number` is the mark when it was opened; None if there was none, as beside a copy of the database."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        text = os.read(self._fd, 64).strip()
        self.number = int(text) if text.isdigit() else None
        self._written: int | None = None

    def write(self, number: int) -> None:
        if number == self._written:
            return
        self._written = number
        with contextlib.suppress(
            OSError
        ):  # the event is stored; only a restored copy could not be detected
            os.pwrite(self._fd, b"%020d\n" % number, 0)

    def close(self) -> None:
        os.close(self._fd)
