"""A video pipeline as one job: an upload is probed, transcoded, pictured and described.

Start it with `bide serve app:app` and send it a film with `bide submit video --file film.mp4 --wait`.

How to read it: `video` is the job, an ordinary function whose parts are steps. What a step returns is kept, so that an
attempt after a failure, or after a power cut, repeats only what had not finished. The weights of the steps and ffmpeg's
own count of frames make the percentage.
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

# A handler's signature is the schema of its input: what does not fit is refused before a byte is sent.
Pixels = Annotated[int, Field(ge=16, le=2160, multiple_of=2)]


@app.job(
    queue="video",
    retries=3,  # a failed step is repeated up to three times, and the finished ones before it are not
    backoff=0.5,
    timeout=3600,  # seconds an attempt
    retention=86400,  # a day after its end the job is removed, and with it the original and what was made of it
    steps={"probe": 0, "transcode": 70, "thumbnail": 20, "metadata": 10},  # shares of the percentage
)
def video(ctx: Context, source: File, height: Pixels = 480) -> dict[str, Any]:
    """Makes a film `height` lines high. Files: video.mp4, thumbnail.jpg and metadata.json."""
    facts = ctx.step("probe", probe, source)
    ctx.step("transcode", transcode, ctx, source, height, facts["frames"])
    ctx.step("thumbnail", thumbnail, ctx, source, facts["seconds"] / 2)
    return ctx.step("metadata", metadata, ctx, source, facts)


def probe(source: File) -> dict[str, Any]:
    """What is in the file, from what ffmpeg says about its input. Whatever it is called: only its bytes count."""
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
    """The output belongs to the step: it is kept with it and not made twice."""

    def heard(line: str) -> None:
        name, _, value = line.partition("=")
        if name == "frame":
            # Raises when the job is to stop, and then `ffmpeg` below ends the process.
            ctx.progress(min(int(value), frames), frames, unit="frames", message="Transcoding")

    goal = ctx.folder / "video.mp4"  # for intermediate files; removed when the job has ended
    ffmpeg(
        *("-progress", "pipe:1", "-stats_period", "0.2", "-i", str(source.path)),
        *("-vf", f"scale=-2:{height}", "-preset", "medium", "-crf", "23", "-pix_fmt", "yuv420p"),
        *("-movflags", "+faststart", str(goal)),
        heard=heard,
    )
    ctx.output("video.mp4", goal)


def thumbnail(ctx: Context, source: File, at: float) -> None:
    goal = ctx.folder / "thumbnail.jpg"
    where = ("-ss", f"{at:.3f}", "-i", str(source.path))
    ffmpeg(*where, "-frames:v", "1", "-vf", "scale=320:-2", str(goal))
    ctx.output("thumbnail.jpg", goal)


def metadata(ctx: Context, source: File, facts: dict[str, Any]) -> dict[str, Any]:
    """What there is, and where: the job's result, too."""
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
    heard: Callable[[str], None] = lambda line: None,
    strict: bool = True,
) -> list[str]:
    """Runs ffmpeg, hands over each line that it prints, and returns the last of them. Leaves no process behind."""
    program = [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-nostdin", "-loglevel", level, "-y"]
    last: deque[str] = deque(maxlen=50)
    with Popen(
        [*program, *arguments], stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, text=True, errors="replace"
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                last.append(line.strip())
                heard(line.strip())
        except BaseException:  # a cancel or a timeout arrives here as an exception
            process.kill()
            raise
    if strict and process.returncode != 0:
        said = [line for line in last if not re.match(r"\w+=", line)]  # without the progress
        raise JobError("FFMPEG_FAILED", said[-1] if said else f"ffmpeg ended with {process.returncode}")
    return list(last)
