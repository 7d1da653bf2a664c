"""A video pipeline as jobs: make a clip, probe it, transcode it, take a thumbnail, write the metadata.

Start it with `bide serve bide.demo.video:app` and send it work with `bide submit video --wait`.

`video` below is the job: an ordinary function whose parts are steps. The result of a step is stored, so if a later part
fails, or the machine does, the next attempt continues after the last finished step. The thumbnail is a separate job on
its own queue, so that thumbnails never wait behind transcodes.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen
from typing import Annotated, Any, NamedTuple

import imageio_ffmpeg
from pydantic import Field

from bide import App, Context, File, JobError

app = App()

# The signature of a handler is the schema of its input: the service rejects other input before it creates a job.
Seconds = Annotated[int, Field(ge=1, le=600)]
Pixels = Annotated[int, Field(ge=16, le=2160, multiple_of=2)]

FPS = 30


class Clip(NamedTuple):
    """A test picture with a tone."""

    path: Path
    seconds: int
    width: int
    height: int

    @property
    def frames(self) -> int:
        return self.seconds * FPS


# --- the jobs


@app.job(
    queue="video",
    retries=2,  # a failed attempt is repeated twice, without the steps that had finished
    timeout=600,  # seconds per attempt
    steps={"generate": 15, "probe": 1, "transcode": 80, "metadata": 4},  # weights, for the percentage
)
def video(
    ctx: Context, seconds: Seconds = 5, width: Pixels = 1280, height: Pixels = 720, target: Pixels = 480
) -> dict[str, Any]:
    """Make a clip of `seconds` seconds and transcode it to `target` lines. Files: video.mp4 and metadata.json."""
    # ctx.folder is for intermediate files. All attempts share it, and bide removes it when the job has ended.
    clip = Clip(ctx.folder / "clip.mp4", seconds, width, height)

    ctx.step("generate", generate, ctx, clip)
    facts = ctx.step("probe", probe, ctx, clip)
    movie = ctx.step("transcode", transcode, ctx, clip, target)

    # Another job, on its own queue. A File becomes {"job": …, "name": …} in its input. `movie` has that form too if the
    # step ran in an earlier attempt, because results of steps are stored as JSON.
    child = ctx.spawn("thumbnail", source=movie, at=seconds / 2)

    # While the thumbnail is made, this job is parked and occupies no worker. Then the function runs again from the top,
    # and the steps above return their stored results. So put everything expensive into a step.
    # If the thumbnail fails finally, so does this job; `bide retry` then repeats only the thumbnail.
    [picture] = ctx.gather(child)

    return ctx.step("metadata", metadata, ctx, facts, picture)


@app.job(queue="thumbnails", retries=2, backoff=0.5, timeout=60)
def thumbnail(
    ctx: Context, source: File, at: Annotated[float, Field(ge=0)] = 0.0, width: Pixels = 320
) -> File:
    """Take one picture from a video. File: thumbnail.jpg."""
    goal = ctx.folder / "thumbnail.jpg"
    size = f"scale={width}:-2"
    ffmpeg("-ss", f"{at:.3f}", "-i", str(source.path), "-frames:v", "1", "-vf", size, str(goal))
    return ctx.output("thumbnail.jpg", goal)


# --- the steps of a video


def generate(ctx: Context, clip: Clip) -> None:
    """Make the clip, unless it exists."""
    if clip.path.exists():
        return
    part = clip.path.with_name("part.mp4")  # renamed when complete
    encode(
        *("-f", "lavfi", "-i", f"testsrc2=size={clip.width}x{clip.height}:rate={FPS}"),
        *("-f", "lavfi", "-i", "sine=frequency=440"),
        *("-t", str(clip.seconds), "-pix_fmt", "yuv420p", "-preset", "ultrafast", str(part)),
        on_line=frames_to(ctx, clip.frames, "Generating"),
    )
    part.replace(clip.path)


def probe(ctx: Context, clip: Clip) -> dict[str, Any]:
    """Return the properties of the clip, as ffmpeg prints them."""
    generate(ctx, clip)  # a job that is retried after its end has its steps, but an empty folder
    said = "\n".join(ffmpeg("-i", str(clip.path), "-t", "0", "-f", "null", "-", level="info"))
    duration = re.search(r"Duration: (\d+):(\d+):([\d.]+)", said)
    stream = re.search(r"Video: (\w+).*?, (\d+)x(\d+).*?, ([\d.]+) fps", said)
    if duration is None or stream is None:
        raise JobError("NOT_A_VIDEO", "ffmpeg finds no video in the clip", retryable=False)
    hours, minutes, seconds = duration.groups()
    return {
        "seconds": int(hours) * 3600 + int(minutes) * 60 + float(seconds),
        "codec": stream[1],
        "width": int(stream[2]),
        "height": int(stream[3]),
        "fps": float(stream[4]),
    }


def transcode(ctx: Context, clip: Clip, height: int) -> File:
    """Make the clip smaller. The output belongs to the step: it is stored with it and not made twice."""
    generate(ctx, clip)
    goal = ctx.folder / "video.mp4"
    encode(
        *("-i", str(clip.path), "-vf", f"scale=-2:{height}", "-preset", "medium", "-crf", "23"),
        *("-c:a", "copy", "-movflags", "+faststart", str(goal)),
        on_line=frames_to(ctx, clip.frames, "Transcoding"),
    )
    return ctx.output("video.mp4", goal)


def metadata(ctx: Context, facts: dict[str, Any], picture: dict[str, str]) -> dict[str, Any]:
    """Write the metadata, which is also the result of the job."""
    about = {"source": facts, "video": "video.mp4", "thumbnail": picture}
    ctx.output("metadata.json", json.dumps(about, indent=2).encode())
    return about


# --- ffmpeg


def frames_to(ctx: Context, total: int, message: str) -> Callable[[str], None]:
    """Report the lines of `ffmpeg -progress` as progress of the job."""

    def on_line(line: str) -> None:
        name, _, value = line.partition("=")
        if name == "frame":
            # Raises if the job is cancelled; then `ffmpeg` below kills the process.
            ctx.progress(int(value), total, unit="frames", message=message)

    return on_line


def encode(*arguments: str, on_line: Callable[[str], None]) -> None:
    ffmpeg("-progress", "pipe:1", "-stats_period", "0.2", *arguments, on_line=on_line)


def ffmpeg(
    *arguments: str, level: str = "error", on_line: Callable[[str], None] = lambda line: None
) -> list[str]:
    """Run ffmpeg, pass each line that it prints to `on_line`, and return the last lines. Leaves no process behind."""
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
        except BaseException:  # a cancel or a timeout arrives here as an exception
            process.kill()
            raise
    if process.returncode != 0:
        said = [line for line in last if not re.match(r"\w+=", line)]  # without the progress
        raise JobError("FFMPEG_FAILED", said[-1] if said else f"ffmpeg exited with {process.returncode}")
    return list(last)
