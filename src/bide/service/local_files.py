"""Submits a job with files of this process, without HTTP."""

from __future__ import annotations

import asyncio
import io
import mimetypes
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from bide.server.intake import Submission
from bide.server.store import Inserted
from bide.server.uploads.direct import DirectUpload, DirectUploads
from bide.server.uploads.names import clean_name, clean_type
from bide.server.uploads.upload_jobs import DEFAULT_PART

BLOCK = 1024 * 1024


def named_files(file: Any, files: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    """Return the files with the parameter of each. The parameter of `file` is the only one that accepts a file."""
    if file is not None and files:
        raise TypeError("Give either `file`, or `files` with a parameter for each, not both")
    if file is not None:
        return [(DEFAULT_PART, file)]
    return [(name, one) for name, given in (files or {}).items() for one in _listed(given)]


def _listed(given: Any) -> Iterator[Any]:
    if isinstance(given, list | tuple):
        yield from given
    else:
        yield given


async def submit_with_files(
    uploads: DirectUploads,
    submission: Submission,
    files: list[tuple[str, Any]],
    *,
    key: str | None,
    tenant: str = "-",
) -> Inserted:
    """Copy the files and store them and the job in one transaction. If this raises, no file is left."""
    copies: list[tuple[str, DirectUpload]] = []
    try:
        for parameter, given in files:
            name, content_type = _name_and_type(given)
            copy = uploads.begin(clean_name(name), clean_type(content_type), tenant=tenant)
            copies.append((parameter, copy))
            await _copy(given, copy)
        return await uploads.submit(submission, copies, key=key, trace_id="", tenant=tenant)
    except BaseException:
        for _, copy in copies:
            await copy.discard()
        raise


def _name_and_type(given: Any) -> tuple[str, str | None]:
    """Web frameworks name an uploaded file `filename` (FastAPI, Flask) or `name` (Django)."""
    if isinstance(given, str | os.PathLike):
        name: Any = os.fspath(given)
    else:
        name = getattr(given, "filename", None) or getattr(given, "name", None)
    text = name if isinstance(name, str) else ""
    declared = getattr(given, "content_type", None)
    return Path(text).name, declared or mimetypes.guess_type(text)[0]


async def _copy(given: Any, copy: DirectUpload) -> None:
    opened = isinstance(given, str | os.PathLike)
    file: BinaryIO = await asyncio.to_thread(Path(given).open, "rb") if opened else _binary(given)
    try:
        if not opened:
            await asyncio.to_thread(file.seek, 0)
        while data := await asyncio.to_thread(file.read, BLOCK):
            await copy.write(data)
    finally:
        if opened:
            file.close()


def _binary(given: Any) -> BinaryIO:
    """Return the file object, which is in `file` for FastAPI and Django. The methods of FastAPI's own object are async."""
    found: Any = getattr(given, "file", given)
    if isinstance(found, io.TextIOBase):
        raise TypeError("Open the file object in binary mode: open(path, 'rb')")
    if not (hasattr(found, "read") and hasattr(found, "seek")):
        raise TypeError(f"A file must be a path or a file object, not {type(given).__name__}")
    file: BinaryIO = found
    return file
