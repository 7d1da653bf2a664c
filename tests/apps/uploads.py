"""An app whose kinds have file parameters."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any

from bide import Accepts, App, File, JobError

app = App()


def describe(file: File) -> dict[str, Any]:
    """Returns the metadata that the handler sees, and the checksum of the content."""
    return {
        "name": file.name,
        "contentType": file.content_type,
        "size": file.size,
        "sha256": file.sha256,
        "real": hashlib.sha256(file.path.read_bytes()).hexdigest(),
    }


@app.job()
def look(file: File, note: str = "") -> dict[str, Any]:
    return {**describe(file), "note": note}


@app.job()
def film(video: Annotated[File, Accepts("video/*")]) -> dict[str, Any]:
    return describe(video)


@app.job()
def many(files: list[File], cover: File | None = None) -> list[str]:
    return [file.name for file in files]


@app.job(dedupe="content")
def once(file: File, note: str = "") -> dict[str, Any]:
    return describe(file)


@app.job(dedupe="content+name")
def once_by_name(file: File) -> dict[str, Any]:
    return describe(file)


@app.job(remove_input=True)
def shred(file: File, go: str) -> dict[str, Any]:
    if not Path(go).exists():
        raise JobError("NOT_YET", "the file is missing that lets it succeed", retryable=False)
    return describe(file)
