"""What `bide wait` does with each job that has ended: it is saved, printed, and handed to a command.

With --json stdout has one line a job and nothing else. What could not be done for one job keeps no other back; it
counts as failed, and the next wait with the same ledger does it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

import click
import msgspec

from bide.cli.output import compact, print_json
from bide.client.http.download import local_name
from bide.client.job import JobHandle
from bide.core.errors import BideError, ErrorInfo, JobFailed, ServiceError
from bide.core.record import SUCCESSFUL, Status

STDERR = 2
RESULT = "result"


class Line(msgspec.Struct, rename="camel"):
    """How a job ended, as --json prints it."""

    job_id: str
    api: str = "bide"
    status: Status | None = None
    result: Any = None
    error: ErrorInfo | None = None
    requests: int = 0
    finished_at: str | None = None


class Ending:
    def __init__(self, as_json: bool, out: Path | None, command: str | None) -> None:
        self.failed = 0
        self._as_json = as_json
        self._out = out
        self._command = command

    async def tell(self, handle: JobHandle, api: str, place: str = "") -> bool:
        """Whether all of it was done, so that it need not be told again.

        `place` is the address of the API if jobs of several are waited for: two of them may have the same id.
        """
        line, done = await _line(handle, api)
        good = done and line.status in SUCCESSFUL
        if self._out is not None and good:
            done = good = await _save(handle, line, self._out, place)
        if self._as_json:
            print_json(line)
        else:
            click.echo(_text(line))
        if self._command is not None:
            done = await _execute(self._command, line) and done
        self.failed += not (good and done)
        return done


async def _line(handle: JobHandle, api: str) -> tuple[Line, bool]:
    """And whether all is known that there is to know."""
    line = Line(handle.id, api)
    try:
        line.result = await handle.result()
    except JobFailed:
        pass  # what went wrong is in its record
    except ServiceError as error:
        retryable = bool(error.problem.get("retryable", False))
        line.error = ErrorInfo(error.code, str(error.problem.get("detail") or error), retryable)
    except BideError as error:
        line.error = ErrorInfo("RESULT_NOT_FETCHED", str(error), retryable=True)
    complete = line.error is None
    job = handle.latest
    if job is not None and job.status.terminal:
        line.status, line.finished_at = job.status, job.finished_at
        line.error = line.error or job.error
    line.requests = handle.requests
    return line, complete


def _text(line: Line) -> str:
    if line.error is not None:
        said = f"{line.error.code}: {line.error.message}"
    else:
        said = "" if line.result is None else compact(line.result)
    return " ".join(filter(None, (line.job_id, line.status or "UNKNOWN", said)))


async def _save(handle: JobHandle, line: Line, out: Path, place: str) -> bool:
    """A result that cannot be kept counts as a failure, and keeps no other back."""
    try:
        name = local_name(_file_stem(handle, f"{line.api} {place}" if place else ""))
        await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
        result = msgspec.json.encode(line.result) + b"\n"
        await asyncio.to_thread((out / f"{name}.json").write_bytes, result)
        # A result that is JSON is in the line already.
        files = [file for file in handle.files if file != RESULT or isinstance(line.result, str)]
        if files:
            await asyncio.to_thread((out / name).mkdir, exist_ok=True)
        for file in files:
            await handle.download(file, out / name / _file_name(file, line))
        line.requests = handle.requests
    except (BideError, OSError) as error:
        click.echo(f"bide: {handle.id}: not saved: {error}", err=True)
        return False
    return True


def _file_stem(handle: JobHandle, place: str) -> str:
    """Different for different jobs. A URL would be too long for the name of a file."""
    if not handle.id.startswith(("http://", "https://")):
        stem = quote(handle.id, safe=" ()+,:;=@~")
        return f"{stem}-{hashlib.sha256(place.encode()).hexdigest()[:12]}" if place else stem
    digest = hashlib.sha256(f"{handle.id} {place}".strip().encode()).hexdigest()[:12]
    return f"{quote(handle.ref.id, safe=' ()+,:;=@~')[:100]}-{digest}"


def _file_name(file: str, line: Line) -> str:
    """A result has no name of its own, but its address tells what it is."""
    if file == RESULT and isinstance(line.result, str):
        suffix = PurePosixPath(urlsplit(line.result).path).suffix
        return file + suffix if suffix[1:].isalnum() else file
    return local_name(file)


async def _execute(command: str, line: Line) -> bool:
    """Its output goes to stderr, so that stdout stays one line a job."""
    known = {"BIDE_JOB_ID": line.job_id, "BIDE_JOB_STATUS": str(line.status or "")}
    process = await asyncio.create_subprocess_shell(
        command,
        stdin=asyncio.subprocess.PIPE,
        stdout=STDERR,
        env={**os.environ, **known},
    )
    await process.communicate(msgspec.json.encode(line) + b"\n")
    if process.returncode:
        click.echo(f"bide: {line.job_id}: --exec ended with {process.returncode}", err=True)
    return process.returncode == 0
