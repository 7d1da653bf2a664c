"""`bide submit`: submits one job, and waits for it with --wait."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from bide.cli.clients import CommandTarget, api_option
from bide.cli.output import json_option, print_json
from bide.cli.settings import Connection, speaks_to_service
from bide.cli.trust import trust_option
from bide.client.account import Account
from bide.client.job import JobHandle
from bide.client.options import ClientOptions
from bide.client.submission import SubmitOptions, read_time
from bide.client.uploads.file_submission import ONLY
from bide.core.errors import JobFailed
from bide.core.jobs.record import Status


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


def read_label(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, str] | None:
    if value is None:
        return None
    name, sign, text = value.partition("=")
    if not name or not sign:
        raise click.BadParameter(f"{value!r}: write name=value")
    return name, text


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
    type=click.Choice(["content"]),
    help="The same files and input return the first job.",
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
@click.option("--label", "labels", multiple=True, callback=_read_labels, metavar="NAME=VALUE")
@click.option("--wait", is_flag=True, help="Wait for the job and print its result.")
@click.option("--timeout", type=click.FloatRange(min=0), help="Seconds after which the wait ends.")
@api_option
@trust_option
@json_option
@speaks_to_service
def submit(
    connection: Connection,
    kind: str,
    body: Any,
    files: dict[str, list[Path]],
    ledger: Path | None,
    labels: dict[str, str],
    wait: bool,
    timeout: float | None,
    api: str | None,
    trust: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Send a job to a service.

    Prints the job's id after the service has it on disk, or with --wait its result. With --api, KIND is that API's own
    name for it, e.g. a model or a process, if it has one.

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
    target = CommandTarget(connection, api, ClientOptions(ledger=ledger), trust)
    if not kind and target.own:
        raise click.UsageError("KIND is missing: the service's name for the job")
    given = cast(SubmitOptions, {**options, "labels": labels or None, **_file_options(files)})
    try:
        if wait:
            asyncio.run(_submit_and_wait(target, kind, body, given, timeout, as_json))
        else:
            asyncio.run(_submit(target, kind, body, given, as_json))
    except KeyboardInterrupt:
        if ledger is not None:
            click.echo("bide: run the same command again to resume", err=True)
        raise


async def _submit(
    target: CommandTarget, kind: str, body: Any, options: SubmitOptions, as_json: bool
) -> None:
    async with target.client() as client:
        job = await client.submit(kind, body, **options)
        if not target.own:
            _print_sent(await client.account(), job, kind, as_json)
        elif as_json:
            print_json(job.latest)
        else:
            click.echo(job.id)


def _print_sent(account: Account, job: JobHandle, kind: str, as_json: bool) -> None:
    """Prints what `bide wait`, `status` and `cancel` accept: at some APIs an id alone is not enough."""
    api, ref = account.api, job.ref
    if as_json:
        status = job.latest.status if job.latest is not None else None
        print_json(Sent(job.id, api.name, kind, status, api.status_url(ref)))
    else:
        click.echo(api.text(ref))


async def _submit_and_wait(
    target: CommandTarget,
    kind: str,
    body: Any,
    options: SubmitOptions,
    timeout: float | None,
    as_json: bool,
) -> None:
    async with target.client() as client:
        job = await client.submit(kind, body, **options)
        try:
            result = await job.result(timeout=timeout, progress=True)
        except JobFailed:
            if as_json:
                print_json(job.latest)
            if target.options.get("ledger") is not None:
                await client.acknowledge(job)
            raise
        if as_json:
            print_json(job.latest)
        else:
            click.echo(msgspec.json.format(msgspec.json.encode(result), indent=2))
        if target.options.get("ledger") is not None:
            await client.acknowledge(job)
