"""Handles each ended job of `bide wait`: saves the result, prints a line, and runs the command of --exec.

With --json stdout has one line per job and nothing else. A failure for one job does not stop the others; the job counts
as failed, and the next wait with the same ledger reports it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from bide.cli.output import Terminal, compact
from bide.client.http.download import local_name
from bide.client.job import JobHandle
from bide.core.errors import BideError, ErrorInfo, JobFailed, ServiceError
from bide.core.jobs.record import SUCCESSFUL, Status

STDERR = 2
RESULT = "result"


class EndedLine(msgspec.Struct, rename="camel"):
    """How a job ended, as --json prints it."""

    job_id: str
    api: str = "bide"
    status: Status | None = None
    result: Any = None
    error: ErrorInfo | None = None
    requests: int = 0
    finished_at: str | None = None

    @property
    def text(self) -> str:
        """The line without --json."""
        said = "" if self.result is None else compact(self.result)
        if self.error is not None:
            said = f"{self.error.code}: {self.error.message}"
        return " ".join(filter(None, (self.job_id, self.status or "UNKNOWN", said)))


class EndedJobs:
    def __init__(self, terminal: Terminal, as_json: bool, command: str | None) -> None:
        self.done = 0
        self.failed = 0
        self.unknown = 0  # jobs whose end is not known, because the API rejected the credential
        self._denied = ""  # why, as it was printed last
        self._terminal = terminal
        self._as_json = as_json
        self._command = command

    async def report(self, handle: JobHandle, api: str, out: Path | None, place: str = "") -> bool:
        """Return whether everything was done, so that the job can be acknowledged.

        `out` is the folder for the result. `place` is the address of the API if there are several: two of them may have
        jobs with the same id.
        """
        line, absent, denied = EndedLine(handle.id, api), False, False
        try:
            line.result = await handle.result()
        except JobFailed:
            pass  # the error is in the status
        except ServiceError as error:
            absent, denied = error.status in (404, 410), error.status == 401
            retryable = bool(error.problem.get("retryable", False))
            line.error = ErrorInfo(error.code, str(error.problem.get("detail") or error), retryable)
        except BideError as error:
            line.error = ErrorInfo("RESULT_NOT_FETCHED", str(error), retryable=True)
        done = line.error is None or absent
        job = handle.latest
        if job is not None and job.status.terminal and not absent:
            line.status, line.finished_at = job.status, job.finished_at
            line.error = line.error or job.error
        line.requests = handle.requests
        good = done and line.status in SUCCESSFUL
        if out is not None and good:
            done = good = await self._save(handle, line, out, place)
        if self._as_json:
            self._terminal.json(line)
        elif denied and line.error is not None:
            self._report_denial(line.error.message)
        else:
            self._terminal.result(line.text)
        if self._command is not None:
            done = await self._execute(self._command, line) and done
        if denied:
            self.unknown += 1
        elif good and done:
            self.done += 1
        else:
            self.failed += 1
        return done

    def _report_denial(self, message: str) -> None:
        """Once, although it concerns all jobs."""
        if message != self._denied:
            self._terminal.note(f"The API rejected the credential: {message}")
        self._denied = message

    async def _save(self, handle: JobHandle, line: EndedLine, out: Path, place: str) -> bool:
        """A result that cannot be saved counts as a failure and does not stop the others."""
        try:
            await _write(handle, line, out, place)
        except (BideError, OSError) as error:
            self._terminal.note(f"{handle.id}: not saved: {error}")
            return False
        return True

    async def _execute(self, command: str, line: EndedLine) -> bool:
        """The command's output goes to stderr, so that stdout has one line per job."""
        known = {"BIDE_JOB_ID": line.job_id, "BIDE_JOB_STATUS": str(line.status or "")}
        bars = self._terminal.shows_bars
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE if bars else STDERR,
            stderr=asyncio.subprocess.STDOUT if bars else None,
            env={**os.environ, **known},
        )
        output, _ = await process.communicate(msgspec.json.encode(line) + b"\n")
        if output:
            self._terminal.note(output.decode(errors="replace").rstrip("\n"), prefix="")
        if process.returncode:
            self._terminal.note(f"{line.job_id}: --exec ended with {process.returncode}")
        return process.returncode == 0


async def _write(handle: JobHandle, line: EndedLine, out: Path, place: str) -> None:
    name = local_name(_file_stem(handle, f"{line.api} {place}" if place else ""))
    await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
    result = msgspec.json.encode(line.result) + b"\n"
    await asyncio.to_thread((out / f"{name}.json").write_bytes, result)
    # A JSON result is already in the line.
    files = [file for file in handle.files if file != RESULT or isinstance(line.result, str)]
    if files:
        await asyncio.to_thread((out / name).mkdir, exist_ok=True)
    for file in files:
        await handle.download(file, out / name / _file_name(file, line))
    line.requests = handle.requests


def _file_stem(handle: JobHandle, place: str) -> str:
    """A unique file name for each job. A URL would be too long."""
    if not handle.id.startswith(("http://", "https://")):
        stem = quote(handle.id, safe=" ()+,:;=@~")
        return f"{stem}-{hashlib.sha256(place.encode()).hexdigest()[:12]}" if place else stem
    digest = hashlib.sha256(f"{handle.id} {place}".strip().encode()).hexdigest()[:12]
    return f"{quote(handle.ref.id, safe=' ()+,:;=@~')[:100]}-{digest}"


def _file_name(file: str, line: EndedLine) -> str:
    """A result has no name; its URL has the suffix."""
    if file == RESULT and isinstance(line.result, str):
        suffix = PurePosixPath(urlsplit(line.result).path).suffix
        return file + suffix if suffix[1:].isalnum() else file
    return local_name(file)
