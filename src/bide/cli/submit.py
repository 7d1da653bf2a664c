"""`bide submit`: submits one job, and waits for it with --wait."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import click
import msgspec
from msgspec.structs import replace

from bide.cli.bulk import read_label
from bide.cli.clients import CommandTarget, api_option
from bide.cli.command_text import bare_job, command_text, job_words
from bide.cli.logs import LogFormat
from bide.cli.options import log_format as log_format_option
from bide.cli.options import timeout as timeout_option
from bide.cli.output import (
    LogPrinter,
    Terminal,
    ignore_change,
    json_option,
    print_json,
    print_line,
    verbose_option,
)
from bide.cli.settings import Connection, speaks_to_service
from bide.cli.trust import trust_option
from bide.client.account import Account
from bide.client.client import AsyncClient
from bide.client.job import JobHandle
from bide.client.options import ClientOptions, Timeout
from bide.client.submission import SubmitOptions, read_time
from bide.client.uploads.file_submission import ONLY
from bide.core.errors import BideError, JobFailed, WaitTimeout
from bide.core.jobs.record import Status
from bide.core.wire.http import DEDUPE_MODES, JobStatus

QUEUE_EVERY = 30.0  # seconds between two checks of the queue of a job that has not started


def read_input(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """JSON itself, `@file` or `-`."""
    if value is None:
        return None
    try:
        if value == "-":
            text = sys.stdin.read()
        elif value.startswith("@"):
            text = Path(value[1:]).read_text(encoding="utf-8")
        else:
            text = value
        return msgspec.json.decode(text)
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(str(error)) from None
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"this is not JSON: {error}") from None


def _read_instant(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else read_time(value)
    except ValueError:
        raise click.BadParameter(f"{value!r}: write 2030-01-31T12:00:00Z") from None


def _read_labels(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    return dict(filter(None, (read_label(ctx, parameter, value) for value in values)))


def _read_files(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, list[Path]]:
    """`PATH`, or `NAME=PATH` for a parameter. The name of an existing file is a path, even with `=` in it."""
    found: dict[str, list[Path]] = {}
    for value in values:
        name, sign, path = value.partition("=")
        if not sign or Path(value).exists():
            name, path = ONLY, value
        if found and ONLY in (name, *found):
            raise click.BadParameter(
                "with several files, each needs the name of its parameter: NAME=PATH"
            )
        if not Path(path).is_file():
            raise click.BadParameter(f"there is no file {path}")
        found.setdefault(name, []).append(Path(path))
    return found


def _file_options(files: dict[str, list[Path]]) -> SubmitOptions:
    if not files:
        return SubmitOptions()
    if ONLY in files:
        return SubmitOptions(file=files[ONLY][0])
    return SubmitOptions(files={name: p if len(p) > 1 else p[0] for name, p in files.items()})


class Sent(msgspec.Struct, rename="camel"):
    """A job that another API has accepted, as --json prints it; `bide wait -` reads it."""

    job_id: str
    api: str
    kind: str
    status: Status | None
    url: str | None


@click.command()
@click.argument("kind", required=False, default="")
@click.option(
    "--input", "-i", "body", callback=read_input, metavar="JSON|@FILE|-", help="The job's input."
)
@click.option(
    "--file",
    "files",
    multiple=True,
    callback=_read_files,
    metavar="[NAME=]PATH",
    help="A file to send, with the name of its parameter if there are several.",
)
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --file: a file with which the same command resumes after a crash.",
)
@click.option(
    "--dedupe",
    type=click.Choice(DEDUPE_MODES),
    help="The same files and input return the first job; with `content+name` only if the names of the files are the same.",
)
@click.option("--idempotency-key", help="The same key and input return the first job.")
@click.option("--priority", type=int, help="Jobs with a higher number start first.")
@click.option("--queue", help="A queue instead of the kind's own.")
@click.option(
    "--run-at",
    callback=_read_instant,
    metavar="INSTANT",
    help="The time before which the job does not start.",
)
@click.option(
    "--deadline",
    callback=_read_instant,
    metavar="INSTANT",
    help="The time by which the job must have ended.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    callback=_read_labels,
    metavar="NAME=VALUE",
    help="A label of the job, for `bide list --label`. May be repeated.",
)
@click.option(
    "--webhook", metavar="URL", help="An endpoint that receives a message when the job has ended."
)
@click.option("--wait", is_flag=True, help="Wait for the job and print its result.")
@timeout_option("With --wait: seconds after which the command stops waiting. The job continues.")
@api_option
@trust_option
@verbose_option
@log_format_option()
@json_option
@speaks_to_service
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    connection: Connection,
    kind: str,
    body: Any,
    files: dict[str, list[Path]],
    ledger: Path | None,
    labels: dict[str, str],
    wait: bool,
    timeout: float | Literal["none"] | None,
    api: str | None,
    trust: bool,
    verbose: bool,
    log_format: LogFormat,
    as_json: bool,
    **options: Any,
) -> None:
    """Send a job to a service.

    Print the job's id after the service has stored the job. With --wait, wait for the job and print its result. With
    --api, KIND is the API's own name for the work, e.g. a model; omit it if the API has none.

    The upload of a file of 16 MB or more resumes after a broken connection; with --ledger the same command resumes it
    after a crash, too.

    \b
    Examples:
      bide submit transcode --input '{"height": 480}'
      bide submit transcode -i '{"height": 480}' --file film.mp4 --ledger uploads.ledger --wait
      bide submit merge --file video=film.mp4 --file sound=film.wav
      bide submit report --input @report.json --idempotency-key 2030-01 --wait
      bide submit cleanup --run-at 2030-01-31T03:00:00Z --label team=ops
      bide submit transcode -i @job.json | bide wait -
      bide submit fal-ai/flux/dev --api fal -i '{"prompt": "a cat"}' --json | bide wait - --api fal
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    if ledger is not None and not files:
        raise click.UsageError("--ledger needs --file")
    limit: Timeout = "default" if timeout is None else None if timeout == "none" else timeout
    target = CommandTarget(connection, api, ClientOptions(ledger=ledger), trust)
    if not kind and target.own:
        raise click.UsageError(
            "KIND is missing: the name of a handler of the service. `GET /kinds` lists them"
        )
    given = cast(SubmitOptions, {**options, "labels": labels or None, **_file_options(files)})
    terminal = Terminal(log_format)
    if files:
        given["progress"] = terminal.console
    run = SubmitRun(ctx, target, terminal, kind, body, given, as_json)
    try:
        with LogPrinter(terminal, verbose=verbose):
            asyncio.run(run.wait(limit, verbose) if wait else run.submit())
    except KeyboardInterrupt:
        if ledger is not None:
            terminal.note("run the same command again to resume")
        raise


@dataclass(frozen=True)
class SubmitRun:
    """One run of the command."""

    ctx: click.Context
    target: CommandTarget
    terminal: Terminal
    kind: str
    body: Any
    options: SubmitOptions
    as_json: bool

    async def submit(self) -> None:
        async with self.target.client() as client:
            job = await self._submit(client)
            if not self.target.own:
                self._print_sent(client.account, job)
            elif self.as_json:
                print_json(self._latest(job))
            else:
                print_line(job.id)

    async def _submit(self, client: AsyncClient) -> JobHandle:
        job = await client.submit(self.kind, self.body, **self.options)
        if job.replayed and not self.as_json:
            self.terminal.note(
                f"job {job.id} exists already: it was submitted before with the same idempotency key or content"
            )
        return job

    def _latest(self, job: JobHandle) -> JobStatus | None:
        """The status with `replayed`, which only the response to the submission has."""
        latest = job.latest
        if latest is None or not self.target.own:
            return latest
        return replace(latest, replayed=job.replayed)

    def _print_sent(self, account: Account, job: JobHandle) -> None:
        """Print what `bide wait`, `status` and `cancel` accept: at some APIs an id alone is not enough."""
        api, ref = account.api, job.ref
        if self.as_json:
            status = job.latest.status if job.latest is not None else None
            print_json(Sent(job.id, api.name, self.kind, status, api.status_url(ref)))
        else:
            print_line(api.text(ref))

    async def wait(self, timeout: Timeout, verbose: bool) -> None:
        async with self.target.client() as client:
            job = await self._submit(client)
            watching = asyncio.create_task(self._watch_queue(client, job))
            try:
                await self._wait(client, job, timeout, verbose)
            except (asyncio.CancelledError, WaitTimeout):
                self.terminal.note(self._hint(client, job))
                raise
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _wait(self, client: AsyncClient, job: JobHandle, timeout: Timeout, verbose: bool) -> None:
        stored = self.target.options.get("ledger") is not None
        on_change = ignore_change if verbose else None
        try:
            result = await job.result(timeout, self.terminal.console, on_change)
        except JobFailed:
            if self.as_json:
                print_json(self._latest(job))
            if stored:
                await client.acknowledge(job)
            raise
        if self.as_json:
            print_json(self._latest(job))
        else:
            print_json(result, indent=2)
        if stored:
            await client.acknowledge(job)

    def _hint(self, client: AsyncClient, job: JobHandle) -> str:
        """How to wait for the job again."""
        text = client._account.api.text(job.ref)
        command = command_text(self.ctx, "wait", job_words([text]), ("api", "url", "key", "key_file"))
        return f"job {bare_job(text)} is still running. Wait for it again with: {command}"

    async def _watch_queue(self, client: AsyncClient, job: JobHandle) -> None:
        """Say once if the job cannot start because no worker serves its queue, or because the queue is paused."""
        said = not self.target.own
        while not said and job.latest is not None and job.latest.status is Status.PENDING:
            name = job.latest.queue
            with suppress(BideError):
                for queue in await client.queues():
                    if queue.get("name") == name and not queue.get("served", True):
                        text = f"No worker serves queue {name}. The job waits until a worker of that queue starts."
                        self.terminal.note(text)
                        said = True
                    elif queue.get("name") == name and queue.get("paused"):
                        self.terminal.note(
                            f"Queue {name} is paused. Resume it with: bide queue resume {name}"
                        )
                        said = True
            await asyncio.sleep(QUEUE_EVERY)
