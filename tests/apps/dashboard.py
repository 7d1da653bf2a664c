"""Kinds of several queues, for pictures and tests of the dashboard."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any, Literal

from bide import App, Context, File, JobError, Partial

PIXEL = bytes.fromhex(  # a PNG of 1 × 1
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000"
    "000d49444154789c6350093df91f000425024211fa362e0000000049454e44ae426082"
)
app = App(queues={"video": 3, "docs": 2, "batch": 1})


def _work(ctx: Context, seconds: float, total: int, unit: str, message: str) -> None:
    for done in range(total):
        ctx.progress(done, total, unit=unit, message=message)
        time.sleep(seconds / total)


@app.job(queue="video", retries=3, backoff=0.05, steps={"probe": 5, "transcode": 70, "package": 25})
def transcode(
    ctx: Context,
    source: str,
    height: Literal[480, 720, 1080] = 720,
    seconds: float = 0.2,
    fail: bool = False,
) -> dict[str, Any]:
    """Transcode a film to another height."""
    ctx.log("probing", source=source)
    ctx.step("probe", time.sleep, seconds / 20)
    if fail:
        raise JobError("SOURCE_UNREACHABLE", f"GET {source}: 503 after 3 tries", retryable=True)
    ctx.step("transcode", _transcode, ctx, seconds)
    ctx.step("package", time.sleep, seconds / 10)
    ctx.output("poster.txt", b"a poster")
    return {"height": height, "frames": 300}


def _transcode(ctx: Context, seconds: float) -> None:
    for done in range(60):
        ctx.progress(done * 5, 300, unit="frames", message="Transcoding")
        if done % 10 == 0:
            ctx.log(f"chunk {done:04}: 768 frames", level="debug")
            ctx.emit({"chunk": done, "fps": 277.3})
        if done == 40:
            ctx.log("2 corrupt macroblocks at 00:42:40, concealed", level="warning")
        time.sleep(seconds / 60)


@app.job(queue="docs", retries=2, backoff=0.05, secret=["input.token"], search=["input.document"])
def ocr(
    ctx: Context,
    document: str,
    pages: int = 20,
    seconds: float = 0.2,
    fail: str = "",
    token: str = "",
) -> dict[str, Any]:
    """Read the text of a document."""
    ctx.step("fetch", time.sleep, seconds / 20)
    if fail == "bug":
        raise ValueError(f"page {pages} has no text")
    if fail:
        _work(ctx, seconds / 2, pages, "pages", "Text extraction")
        raise JobError(fail, f"The engine did not answer for page {pages} within 120 s.")
    _work(ctx, seconds, pages, "pages", "Text extraction")
    return {"document": document, "characters": 2118 * pages}


@app.job(queue="batch")
def export(
    ctx: Context, table: str, format: Literal["csv", "json"] = "csv", seconds: float = 0.1
) -> Any:
    """Export a table."""
    time.sleep(seconds)
    return Partial({"table": table}, errors=["3 rows skipped"]) if format == "json" else {"rows": 12}


@app.job(queue="docs")
def measure(source: File, unit: str = "bytes") -> int:
    """Measure a file."""
    return source.size


@app.job(queue="batch")
def until_there(ctx: Context, path: str) -> str:
    """Run until the file exists."""
    ctx.progress(30, 100, unit="%", message="waiting for the file")
    while not Path(path).exists():
        time.sleep(0.02)
        ctx.progress(60, 100, unit="%", message="waiting for the file")
    return "there"


@app.job(queue="docs")
def album(ctx: Context, scenes: list[str]) -> dict[str, Any]:
    """Render scenes, each as a child."""
    results = ctx.gather(*(ctx.spawn("render", scene=scene) for scene in scenes))
    ctx.output("cover.png", PIXEL, content_type="image/png")
    ctx.output("album.json", json.dumps({"scenes": results}).encode(), content_type="application/json")
    return {"scenes": results}


@app.job(queue="docs", secret=["input.token", "input.pin"], steps={"one": 1})
def leak(ctx: Context, token: str, pin: int) -> Partial:
    """Show its secrets wherever it can."""
    ctx.progress(1, 2, unit=token, message=f"with {token}")
    ctx.log(f"the token is {token}", level="debug", pin=pin, headers={token: [pin]})
    logging.getLogger("leak").warning("the pin is %d", pin)
    ctx.emit({"token": token, "text": f"<{token}>", "pin": pin})
    ctx.emit(token)
    ctx.step("one", time.sleep, 0)
    raise ValueError(f"{token} and {pin} are wrong")


@app.job(queue="docs")
def spread(ctx: Context, text: str) -> list[str]:
    """Write a text wherever a handler can."""
    ctx.progress(1, 2, unit=text, message=text)
    ctx.log(text, field=text)
    ctx.log(text * 2000)
    ctx.emit(text)
    ctx.step(text, time.sleep, 0)
    for name in ("hostile.svg", "<img onerror=hit>.html"):
        ctx.output(
            name,
            b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(2)</script></svg>',
        )
    return [text, "x" * 50_000]


@app.job(queue="gpu")
def render(ctx: Context, scene: str, seconds: float = 0.2) -> str:
    """Render a scene."""
    time.sleep(seconds)
    return scene


app.breaker("vendor", failures=1, open_for=300.0)


@app.job(queue="press", retries=3)
def charge(ctx: Context) -> None:
    """Call a dependency that fails."""
    with ctx.breaker("vendor"):
        raise ConnectionError("the vendor does not answer")


@app.job(queue="press", retries=3, backoff=0.01, retry_budget=0.0, retry_minimum=1.0)
def flaky(ctx: Context) -> None:
    """Fail more often than its budget of retries allows."""
    raise ConnectionError("no answer")
