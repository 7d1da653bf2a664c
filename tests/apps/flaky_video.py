"""The pipeline of the demo with a thumbnail that fails on demand. Each step writes a line to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bide import App, Context, File, JobError
from bide.demo import video as demo

app = App()
NOTES = Path(os.environ.get("DEMO_NOTES", "."))


def note(what: str) -> None:
    with (NOTES / "ran").open("a") as ran:
        ran.write(f"{what}\n")


def transcode(ctx: Context, clip: demo.Clip, height: int) -> File:
    note("transcode")
    return demo.transcode(ctx, clip, height)


@app.job(queue="video", steps={"generate": 15, "transcode": 80, "metadata": 5})
def video(ctx: Context, seconds: int = 1) -> dict[str, Any]:
    clip = demo.Clip(ctx.folder / "clip.mp4", seconds, 320, 180)
    ctx.step("generate", demo.generate, ctx, clip)
    movie = ctx.step("transcode", transcode, ctx, clip, 90)
    [picture] = ctx.gather(ctx.spawn("thumbnail", source=movie))
    return ctx.step("metadata", demo.metadata, ctx, {}, picture)


@app.job(queue="thumbnails", retries=1, backoff=0.01)
def thumbnail(ctx: Context, source: File) -> File:
    note("thumbnail")
    failures = NOTES / "failures"
    left = int(failures.read_text())
    if left:
        failures.write_text(str(left - 1))
        raise JobError("NO_PICTURE", "as the test wants it")
    return demo.thumbnail(ctx, source)
