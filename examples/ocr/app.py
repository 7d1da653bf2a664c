"""Reads the text of scanned documents: splits an upload into pages, reads each page with tesseract, joins the texts.

Start it with `bide serve app:app` and submit a scan with `bide submit ocr --file scan.tiff --wait`. It needs tesseract
(`apt install tesseract-ocr`) and Pillow.

A page that takes too long fails the attempt with OCR_TIMEOUT in the step text-extraction. The next attempt does not read
the earlier pages again.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from PIL import Image, ImageSequence, UnidentifiedImageError
from pydantic import Field

from bide import App, Context, File, JobError

app = App()

Seconds = Annotated[float, Field(gt=0, le=600)]
Language = Annotated[str, Field(pattern=r"^[a-z_]{3,10}(\+[a-z_]{3,10})*$")]  # an argument of a command


@app.job(
    queue="ocr",
    retries=2,
    backoff=0.5,
    timeout=3600,
    steps={"pages": 10, "text-extraction": 85, "text": 5},
)
def ocr(
    ctx: Context, document: File, language: Language = "eng", page_timeout: Seconds = 60
) -> dict[str, Any]:
    """Reads an image or a TIFF of many pages. File: text.txt, with a form feed between two pages."""
    count = ctx.step("pages", pages, ctx, document)
    ctx.step("text-extraction", extract, ctx, document, count, language, page_timeout)
    return ctx.step(
        "text", text, ctx, count, lambda: extract(ctx, document, count, language, page_timeout)
    )


def pages(ctx: Context, document: File) -> int:
    """Splits the document into images; returns their number."""
    try:
        with Image.open(document.path) as image:
            number = 0
            for number, frame in enumerate(ImageSequence.Iterator(image), 1):
                frame.convert("L").save(page(ctx, number))
                ctx.progress(number, getattr(image, "n_frames", 1), unit="pages", message="Splitting")
            return number
    except UnidentifiedImageError:
        raise JobError("NOT_A_DOCUMENT", f"{document.name} is not an image", retryable=False) from None


def extract(ctx: Context, document: File, count: int, language: str, limit: float) -> None:
    if not page(ctx, 1).exists():
        # A job that is retried after its end keeps its steps, but its folder is empty.
        pages(ctx, document)
    for number in range(1, count + 1):
        if not words(ctx, number).exists():  # an earlier attempt may have read it
            read(page(ctx, number), words(ctx, number), language, limit)
        ctx.progress(number, count, unit="pages", message="Reading")


def read(image: Path, goal: Path, language: str, limit: float) -> None:
    """Reads one page. The text file is created atomically."""
    part = goal.with_suffix(".part")
    command = ["tesseract", str(image), "stdout", "-l", language]
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}  # several jobs run at once, one core each
    try:
        with part.open("wb") as file:
            done = subprocess.run(
                command, stdout=file, stderr=subprocess.PIPE, env=environment, timeout=limit, check=False
            )
    except subprocess.TimeoutExpired:
        raise JobError(
            "OCR_TIMEOUT", f"{image.stem} took longer than {limit:g} s", step="text-extraction"
        ) from None
    if done.returncode != 0:
        raise JobError("OCR_FAILED", done.stderr.decode(errors="replace").strip()[-500:])
    part.replace(goal)


def text(ctx: Context, count: int, again: Callable[[], None]) -> dict[str, Any]:
    if not words(ctx, count).exists():  # retried after its end, as above
        again()
    joined = "\f".join(words(ctx, number).read_text().strip("\f") for number in range(1, count + 1))
    ctx.output("text.txt", joined.encode())
    about = {"pages": count, "words": len(joined.split()), "characters": len(joined)}
    return {**about, "links": {"text": f"/jobs/{ctx.job_id}/files/text.txt"}}


def page(ctx: Context, number: int) -> Path:
    return ctx.folder / f"page-{number}.png"


def words(ctx: Context, number: int) -> Path:
    return ctx.folder / f"page-{number}.txt"
