"""A video pipeline as one job: probes and transcodes an upload, makes a thumbnail, and writes metadata.

Start it with `bide serve app:app` and submit a film with `bide submit video --file film.mp4 --wait`.

How to read it: `video` is the handler, an ordinary function that calls steps. bide stores the result of each step, so that
an attempt after a failure or a power cut repeats only unfinished steps. The percentage comes from the weights of the steps
and the frame count of ffmpeg.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from subprocess import DEVNULL, PIPE, STDOUT, Popen
from typing import Annotated, Any

import imageio_ffmpeg
from pydantic import Field

from bide import App, Context, File, JobError

app = App()

# The signature of a handler is the schema of its input. Invalid input is rejected before the file is sent.
Pixels = Annotated[int, Field(ge=16, le=2160, multiple_of=2)]


@app.job(
    queue="video",
    retries=3,  # finished steps are not repeated
    backoff=0.5,
    timeout=3600,  # seconds per attempt
    retention=86400,  # seconds after its end until the job, its original and its files are removed
    steps={"probe": 0, "transcode": 70, "thumbnail": 20, "metadata": 10},  # weights of the percentage
)
def video(ctx: Context, source: File, height: Pixels = 480) -> dict[str, Any]:
    """Transcodes a film to `height` lines. Files: video.mp4, thumbnail.jpg and metadata.json."""
    facts = ctx.step("probe", probe, source)
    ctx.step("transcode", transcode, ctx, source, height, facts["frames"])
    ctx.step("thumbnail", thumbnail, ctx, source, facts["seconds"] / 2)
    return ctx.step("metadata", metadata, ctx, source, facts)


def probe(source: File) -> dict[str, Any]:
    """Returns facts about the video from the output of ffmpeg. The name of the file does not matter."""
    said = "\n".join(
        ffmpeg("-i", str(source.path), "-t", "0", "-f", "null", "-", level="info", strict=False)
    )
    duration = re.search(r"Duration: (\d+):(\d+):([\d.]+)", said)
    stream = re.search(r"Video: (\w+).*?, (\d+)x(\d+).*?, ([\d.]+) fps", said)
    if duration is None or stream is None:
        raise JobError("NOT_A_VIDEO", f"ffmpeg finds no video in {source.name}", retryable=False)
    hours, minutes, rest = duration.groups()
    seconds, fps = int(hours) * 3600 + int(minutes) * 60 + float(rest), float(stream[4])
    return {
        "seconds": seconds,
        "codec": stream[1],
        "width": int(stream[2]),
        "height": int(stream[3]),
        "fps": fps,
        "frames": max(1, round(seconds * fps)),
    }


def transcode(ctx: Context, source: File, height: int, frames: int) -> None:
    """The output file is stored with the step, so it is not made twice."""

    def report(line: str) -> None:
        name, _, value = line.partition("=")
        if name == "frame":
            # Raises if the job must stop; `ffmpeg` below then kills the process.
            ctx.progress(min(int(value), frames), frames, unit="frames", message="Transcoding")

    goal = ctx.folder / "video.mp4"  # for intermediate files; removed at the end of the job
    ffmpeg(
        *("-progress", "pipe:1", "-stats_period", "0.2", "-i", str(source.path)),
        *("-vf", f"scale=-2:{height}", "-preset", "medium", "-crf", "23", "-pix_fmt", "yuv420p"),
        *("-movflags", "+faststart", str(goal)),
        on_line=report,
    )
    ctx.output("video.mp4", goal)


def thumbnail(ctx: Context, source: File, at: float) -> None:
    goal = ctx.folder / "thumbnail.jpg"
    where = ("-ss", f"{at:.3f}", "-i", str(source.path))
    ffmpeg(*where, "-frames:v", "1", "-vf", "scale=320:-2", str(goal))
    ctx.output("thumbnail.jpg", goal)


def metadata(ctx: Context, source: File, facts: dict[str, Any]) -> dict[str, Any]:
    """Writes metadata.json; returns it as the result of the job."""
    here = f"/jobs/{ctx.job_id}/files"
    about = {
        "source": {"name": source.name, "size": source.size, "sha256": source.sha256, **facts},
        "links": {"video": f"{here}/video.mp4", "thumbnail": f"{here}/thumbnail.jpg"},
    }
    ctx.output("metadata.json", json.dumps(about, indent=2).encode())
    return about


def ffmpeg(
    *arguments: str,
    level: str = "error",
    on_line: Callable[[str], None] = lambda line: None,
    strict: bool = True,
) -> list[str]:
    """Runs ffmpeg, calls `on_line` with each line of its output, and returns the last lines. Leaves no process behind."""
    program = [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-nostdin", "-loglevel", level, "-y"]
    last: deque[str] = deque(maxlen=50)
    with Popen(
        [*program, *arguments], stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, text=True, errors="replace"
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                last.append(line.strip())
                on_line(line.strip())
        except BaseException:  # including a cancel or a timeout
            process.kill()
            raise
    if strict and process.returncode != 0:
        said = [line for line in last if not re.match(r"\w+=", line)]  # without the progress
        raise JobError("FFMPEG_FAILED", said[-1] if said else f"ffmpeg ended with {process.returncode}")
    return list(last)
