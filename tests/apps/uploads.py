"""An app whose kinds take files."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from bide import Accepts, App, File

app = App()


def told(file: File) -> dict[str, Any]:
    """What a handler sees of a file, and what is really in it."""
    return {
        "name": file.name,
        "contentType": file.content_type,
        "size": file.size,
        "sha256": file.sha256,
        "real": hashlib.sha256(file.path.read_bytes()).hexdigest(),
    }


@app.job()
def look(file: File, note: str = "") -> dict[str, Any]:
    return {**told(file), "note": note}


@app.job()
def film(video: Annotated[File, Accepts("video/*")]) -> dict[str, Any]:
    return told(video)


@app.job()
def many(files: list[File], cover: File | None = None) -> list[str]:
    return [file.name for file in files]
