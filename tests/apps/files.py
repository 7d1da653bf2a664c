"""Kinds with file parameters, which return what the handler sees."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from bide import App, Context, File
from bide.server.registry import Accepts

app = App()
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def seen(file: File) -> dict[str, Any]:
    return {
        "name": file.name,
        "type": file.content_type,
        "size": file.size,
        "sha256": file.sha256,
        "read": hashlib.sha256(file.path.read_bytes()).hexdigest(),
    }


@app.job()
def look(ctx: Context, source: File, note: str = "") -> dict[str, Any]:
    return {**seen(source), "note": note}


@app.job()
def merge(ctx: Context, first: File, second: File) -> list[dict[str, Any]]:
    return [seen(first), seen(second)]


@app.job()
def read(ctx: Context, pages: list[File]) -> list[dict[str, Any]]:
    return [seen(page) for page in pages]


@app.job()
def picture(ctx: Context, source: Annotated[File, Accepts("image/*")]) -> str:
    return source.name


@app.job()
def sheet(ctx: Context, source: Annotated[File, Accepts(XLSX)]) -> dict[str, Any]:
    return seen(source)


@app.job()
def letter(ctx: Context, source: Annotated[File, Accepts(DOCX)]) -> dict[str, Any]:
    return seen(source)


@app.job()
def plain(ctx: Context, number: int) -> int:
    return number
