"""The video example with a thumbnail that fails the first time. Each step writes a line to a file."""

from __future__ import annotations

import os
from pathlib import Path

from examples.video import app as example

from bide import Context, File, JobError

app = example.app
RAN = Path(os.environ.get("RAN", "ran"))
_transcode, _thumbnail = example.transcode, example.thumbnail


def _note(what: str) -> int:
    """Returns how often the step has run before."""
    before = RAN.read_text().split().count(what) if RAN.exists() else 0
    with RAN.open("a") as ran:
        ran.write(f"{what}\n")
    return before


def transcode(ctx: Context, source: File, height: int, frames: int) -> None:
    _note("transcode")
    _transcode(ctx, source, height, frames)


def thumbnail(ctx: Context, source: File, at: float) -> None:
    if _note("thumbnail") == 0:
        raise JobError("NO_PICTURE", "as the test wants it")
    _thumbnail(ctx, source, at)


example.transcode, example.thumbnail = transcode, thumbnail
