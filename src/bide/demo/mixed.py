"""The app of `bide demo --keep`: the video pipeline and jobs of other kinds, to look at in the dashboard.

These kinds do no work: they wait, and report what a real handler would. Some of them fail, because that is what a dashboard
is for.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Annotated, Any, Literal

from pydantic import Field

from bide import App, Context, File, JobError, Partial
from bide.demo import video

app = App(queues={"audio": 3, "documents": 3, "reports": 2})
app.kinds.update(video.app.kinds)

log = logging.getLogger("demo")
Seconds = Annotated[float, Field(ge=0, le=600)]
Pages = Annotated[int, Field(ge=1, le=500)]
SPEECH = (
    "Good morning, and thank you all for coming.",
    "Let us start with the numbers of October.",
    "Orders grew by eleven percent, mostly in the north.",
    "The new warehouse opens in the second week of January.",
    "Are there any questions so far?",
    "Then we continue with the plan for the spring.",
)


async def work(ctx: Context, seconds: float, total: int, unit: str, message: str) -> None:
    """Wait, and report progress meanwhile."""
    for done in range(total):
        ctx.progress(done, total, unit=unit, message=message)
        await asyncio.sleep(seconds / total)
    ctx.progress(total, total, unit=unit, message=message)


@app.job(queue="audio", retries=1, steps={"load-model": 10, "recognise": 80, "punctuate": 10})
async def transcribe(
    ctx: Context,
    recording: str,
    minutes: Annotated[int, Field(ge=1, le=180)] = 12,
    language: Literal["de", "en", "fr"] = "en",
    seconds: Seconds = 20,
) -> dict[str, Any]:
    """Write down what is said in a recording. Files: transcript.txt and transcript.json."""
    await ctx.step("load-model", asyncio.sleep, seconds / 10)
    lines = await ctx.step("recognise", _recognise, ctx, minutes, language, seconds * 0.8)
    await ctx.step("punctuate", asyncio.sleep, seconds / 10)
    ctx.output("transcript.txt", "\n".join(lines).encode())
    ctx.output("transcript.json", json.dumps({"language": language, "lines": lines}).encode())
    return {"recording": recording, "minutes": minutes, "lines": len(lines)}


async def _recognise(ctx: Context, minutes: int, language: str, seconds: float) -> list[str]:
    log.info("model large-v3 on 2 threads, language %s", language)
    said = []
    for minute in range(minutes):
        ctx.progress(minute, minutes, unit="minutes", message="Recognising speech")
        said.append(SPEECH[minute % len(SPEECH)])
        ctx.emit({"minute": minute + 1, "text": said[-1]})
        ctx.log(f"minute {minute + 1}: 148 words", level="debug")
        if minute % 7 == 5:
            log.warning("minute %d: two people speak at the same time", minute + 1)
        await asyncio.sleep(seconds / minutes)
    return said


@app.job(
    queue="documents",
    retries=2,
    backoff=5,
    steps={"fetch": 5, "text-extraction": 80, "layout": 15},
    search=["input.document"],
    secret=["input.token"],
)
async def ocr(
    ctx: Context,
    document: str,
    pages: Pages = 40,
    language: Literal["de", "en", "fr"] = "en",
    token: str = "",
    seconds: Seconds = 8,
    timeouts: Annotated[int, Field(ge=0, le=10)] = 0,
) -> dict[str, Any]:
    """Read the text of a document. The first `timeouts` attempts fail."""
    await ctx.step("fetch", _fetch, ctx, document, token, seconds * 0.05)
    characters = await ctx.step("text-extraction", _extract, ctx, pages, seconds * 0.8, timeouts)
    await ctx.step("layout", asyncio.sleep, seconds * 0.15)
    return {"document": document, "pages": pages, "characters": characters}


async def _fetch(ctx: Context, document: str, token: str, seconds: float) -> int:
    log.info("GET https://files.example/%s with token %s", document, token or "none")
    await asyncio.sleep(seconds)
    return 1


async def _extract(ctx: Context, pages: int, seconds: float, timeouts: int) -> int:
    if ctx.attempt <= timeouts:
        page = max(1, pages // 3)
        await work(ctx, seconds / 3, page, "pages", "Text extraction")
        log.warning("page %d: no answer from the engine after 1 s", page)
        raise JobError("OCR_TIMEOUT", f"The engine did not answer for page {page}.", retryable=True)
    await work(ctx, seconds, pages, "pages", "Text extraction")
    return 2118 * pages


@app.job(queue="reports")
async def import_folder(
    ctx: Context, folder: str, documents: Annotated[int, Field(ge=1, le=20)] = 3, broken: int = 0
) -> dict[str, Any]:
    """Read all documents of a folder: one child job for each. `broken` of them cannot be read."""
    children = [
        ctx.spawn("ocr", document=f"{folder}/{number}.pdf", timeouts=10 if number <= broken else 0)
        for number in range(1, documents + 1)
    ]
    found = ctx.gather(*children, partial=True)
    return {"folder": folder, "characters": sum(one["characters"] for one in found if one)}


@app.job(queue="reports", steps={"query": 60, "write": 40})
async def report(
    ctx: Context,
    table: Literal["customers", "invoices", "orders"],
    rows: Annotated[int, Field(ge=1, le=1_000_000)] = 12_000,
    seconds: Seconds = 4,
    skipped: int = 0,
    missing: str = "",
) -> Any:
    """Write a table as JSON. File: report.json. A `missing` column is a bug in the handler."""
    await ctx.step("query", work, ctx, seconds * 0.6, rows // 1000 or 1, "thousand rows", "Reading")
    row = {"id": 4711, "city": "Aarhus", "total": 129.5}
    if missing:
        log.info("the columns are %s", ", ".join(row))
        _sum(row, missing)
    await ctx.step("write", asyncio.sleep, seconds * 0.4)
    ctx.output("report.json", json.dumps({"table": table, "rows": rows, "first": row}).encode())
    result = {"table": table, "rows": rows - skipped}
    if skipped:
        error = {"code": "ROW_SKIPPED", "message": f"{skipped} rows have no customer"}
        return Partial(result, errors=[error])
    return result


def _sum(row: dict[str, Any], column: str) -> float:
    return float(row[column])


@app.job(queue="reports")
async def checksum(ctx: Context, source: File) -> dict[str, Any]:
    """Return the size and the SHA-256 of a file."""
    await asyncio.sleep(1)
    return {"name": source.name, "size": source.size, "sha256": source.sha256}
