"""`bide wait`: waits for jobs of one or several services and tells how each ended.

With --json stdout has one line a job, as it ends, and nothing else; bars and trouble are on stderr.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click
import msgspec

from bide.cli import FAILED, TIMED_OUT
from bide.cli.output import compact, json_option, print_json
from bide.cli.settings import Connection, speaks_to_service
from bide.client.api import AsyncClient, JobHandle
from bide.client.results import local_name
from bide.core.errors import BideError, ErrorInfo, JobFailed, ServiceError, WaitTimeout
from bide.core.record import SUCCESSFUL, Status

STDERR = 2


class Line(msgspec.Struct, rename="camel"):
    """How a job ended, as --json prints it."""

    job_id: str
    api: str = "bide"
    status: Status | None = None
    result: Any = None
    error: ErrorInfo | None = None
    requests: int = 0
    finished_at: str | None = None


@dataclass(frozen=True)
class Target:
    url: str | None  # None: the service of --url
    job_id: str


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="ID|URL|@FILE|-...")
@click.option("--timeout", type=click.FloatRange(min=0), help="How many seconds to wait at most.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for results (ID.json) and files (ID/NAME).",
)
@click.option(
    "--exec",
    "command",
    metavar="CMD",
    help="Run this in a shell for each job that has ended; the --json line is on its stdin, BIDE_JOB_ID and "
    "BIDE_JOB_STATUS in its environment.",
)
@json_option
@speaks_to_service
def wait(
    connection: Connection,
    targets: tuple[str, ...],
    timeout: float | None,
    out: Path | None,
    command: str | None,
    as_json: bool,
) -> None:
    """Wait for jobs and print how each ended.

    A job is an id, or its URL; @FILE and - (stdin) have one a line, or lines of --json. Exit code: 0 all done, 1 some
    failed, 2 usage, 3 timed out, 130 interrupted.

    \b
    Examples:
      bide wait 01JC3X8M0V5T6Q7R8S9A0B1C2D --timeout 600
      bide submit transcode -i @job.json | bide wait - --json
      bide list --all --json --status PROCESSING | bide wait - --out results
      bide wait @jobs.txt --exec 'jq .result.url'
    """
    wanted = list(dict.fromkeys(_targets(targets)))
    end = Ending(as_json, out, command)
    log, trouble = logging.getLogger("bide.client"), Trouble(logging.WARNING)
    log.addHandler(trouble)
    try:
        code = asyncio.run(_wait(connection, wanted, timeout, end))
    finally:
        log.removeHandler(trouble)
    raise click.exceptions.Exit(code)


def _targets(arguments: Iterable[str]) -> Iterator[Target]:
    for argument in arguments:
        if argument == "-":
            yield from _lines(sys.stdin.read())
        elif argument.startswith("@"):
            try:
                yield from _lines(Path(argument[1:]).read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                raise click.UsageError(f"{argument}: {error}") from None
        else:
            yield _target(argument)


def _lines(text: str) -> Iterator[Target]:
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield _target(line.strip())


def _target(text: str) -> Target:
    if text.startswith("{"):
        try:
            return Target(None, msgspec.json.decode(text)["jobId"])
        except (msgspec.DecodeError, KeyError):
            raise click.UsageError(f"this line has no jobId: {text[:80]}") from None
    if "://" not in text:
        return Target(None, text)
    parts = urlsplit(text)
    before, found, after = parts.path.rpartition("/jobs/")
    job_id = unquote(after.partition("/")[0])
    if not found or not job_id:
        raise click.UsageError(f"{text}: this is not a job's address; it ends in /jobs/ID")
    return Target(f"{parts.scheme}://{parts.netloc}{before}", job_id)


async def _wait(
    connection: Connection, targets: list[Target], timeout: float | None, end: Ending
) -> int:
    async with AsyncExitStack() as stack:
        main = await stack.enter_async_context(connection.client())
        clients: dict[str | None, AsyncClient] = {None: main}
        for target in targets:
            if target.url not in clients and target.url is not None:
                client = connection.client_for(target.url)
                clients[target.url] = await stack.enter_async_context(client)
        handles = [clients[target.url].job(target.job_id) for target in targets]
        try:
            async for handle in main.as_completed(handles, timeout=timeout, progress=True):
                await end.tell(handle)
        except WaitTimeout as error:
            click.echo(f"bide: {error}", err=True)
            return TIMED_OUT
    return FAILED if end.failed else 0


class Ending:
    """What is done with each job that has ended."""

    def __init__(self, as_json: bool, out: Path | None, command: str | None) -> None:
        self.failed = 0
        self._as_json = as_json
        self._out = out
        self._command = command

    async def tell(self, handle: JobHandle) -> None:
        line = await _line(handle)
        good = line.status in SUCCESSFUL
        if self._out is not None and good:
            good = await _save(handle, line, self._out)
        if self._as_json:
            print_json(line)
        else:
            click.echo(_text(line))
        if self._command is not None:
            good = await _execute(self._command, line) and good
        self.failed += not good


async def _line(handle: JobHandle) -> Line:
    line = Line(handle.id)
    try:
        line.result = await handle.result()
    except JobFailed:
        pass  # what went wrong is in its record
    except ServiceError as error:
        retryable = bool(error.problem.get("retryable", False))
        line.error = ErrorInfo(error.code, str(error.problem.get("detail") or error), retryable)
    job = handle.latest
    if job is not None and line.error is None:
        line.status, line.error, line.finished_at = job.status, job.error, job.finished_at
    line.requests = handle.requests
    return line


def _text(line: Line) -> str:
    if line.error is not None:
        said = f"{line.error.code}: {line.error.message}"
    else:
        said = "" if line.result is None else compact(line.result)
    return " ".join(filter(None, (line.job_id, line.status or "UNKNOWN", said)))


async def _save(handle: JobHandle, line: Line, out: Path) -> bool:
    """A result that cannot be kept counts as a failure, and keeps no other back."""
    try:
        name = local_name(handle.id)
        await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
        result = msgspec.json.encode(line.result) + b"\n"
        await asyncio.to_thread((out / f"{name}.json").write_bytes, result)
        files = handle.latest.files if handle.latest is not None else ()
        if files:
            await asyncio.to_thread((out / name).mkdir, exist_ok=True)
        for file in files:
            await handle.download(file.name, out / name / local_name(file.name))
    except (BideError, OSError) as error:
        click.echo(f"bide: {handle.id}: not saved: {error}", err=True)
        return False
    return True


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


class Trouble(logging.Handler):
    """Says on stderr why nothing seems to happen; once, when all jobs have the same trouble."""

    _last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text != self._last:
            click.echo(f"bide: {text}", err=True)
        self._last = text
