"""`bide api`: lists the job APIs that bide knows, shows their descriptions, and checks whether a description fits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from bide.cli import FAILED
from bide.cli.output import json_option, print_json, print_table
from bide.cli.submit import read_input
from bide.cli.targets import read_headers
from bide.cli.trust import confirm, trust_option
from bide.client.apis import Api, BadDescription, load, names, text_of
from bide.client.apis.form import Description
from bide.client.apis.loader import form_of, source_of
from bide.client.apis.permissions import DescriptionFile, permissions
from bide.client.check import CheckedJob, DescriptionCheck, Finding
from bide.client.client import AsyncClient
from bide.core.errors import SetupError

FITS = {True: "yes", False: "NO", None: "-"}


@click.group()
def api() -> None:
    """List, show and check descriptions of job APIs.

    \b
    Examples:
      bide api list
      bide api show replicate > mine.toml
      bide api check mine.toml
      bide api check mine.toml --against https://api.example.com --id 4711
    """


@api.command("list")
@json_option
def list_apis(as_json: bool) -> None:
    """List the APIs whose descriptions come with bide.

    \b
    Examples:
      bide api list
      bide api list --json
    """
    known = [_summary(load(name)) for name in names()]
    if as_json:
        for one in known:
            print_json(one)
        return
    columns = ("name", "title", "url", "can", "key from")
    rows = [
        [
            one["name"],
            one["title"],
            one["url"] or "give --url",
            " ".join(one["can"]),
            " or ".join(one["env"]),
        ]
        for one in known
    ]
    print_table(columns, rows, empty="no APIs")


def _summary(found: Api) -> dict[str, Any]:
    form = found.form
    has = {
        "submit": form.submit,
        "wait": form.ask,
        "cancel": form.cancel,
        "result": form.result,
        "files": form.files,
        "batch": form.batch,
    }
    env = form.auth.secret.env
    return {
        "name": form.name,
        "title": form.title,
        "url": form.url,
        "can": [name for name, table in has.items() if table],
        "auth": form.auth.kind,
        "env": [env] if isinstance(env, str) else env,
        "docs": form.docs,
    }


@api.command()
@click.argument("name", metavar="NAME|FILE")
@json_option
def show(name: str, as_json: bool) -> None:
    """Print a description.

    A description names where the key is read from; it never contains one. --json prints all fields, with defaults.

    \b
    Examples:
      bide api show sync.so
      bide api show github-actions --json
    """
    if as_json:
        print_json(_form(name))
        return
    try:
        text = text_of(name) if name in names() else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise _unknown(name) from None
    click.echo(text, nl=False)


@api.command()
@click.argument("name", metavar="NAME|FILE")
@click.option(
    "--against",
    metavar="URL",
    help="Try the description on the API at this URL, or on the job at this URL.",
)
@click.option("--id", "job", help="An existing job to poll.")
@click.option("--submit", is_flag=True, help="Submit a job. That may cost money.")
@click.option("--kind", default="", help="With --submit: the kind, as the API calls it.")
@click.option(
    "--input",
    "-i",
    "body",
    callback=read_input,
    metavar="JSON|@FILE|-",
    help="With --submit: the input of the job.",
)
@click.option("--cancel", is_flag=True, help="Cancel the job at the end.")
@click.option(
    "--key", help="The credential. Prefer --key-file, or the variable that the description names."
)
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the credential.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=read_headers,
    help="A header of every request: 'NAME: VALUE'. May be repeated.",
)
@trust_option
@json_option
def check(name: str, against: str | None, trust: bool, as_json: bool, **options: Any) -> None:
    """Check whether a description is valid, and whether it fits an API.

    Errors name the line. With --against URL, bide polls the job of --id and a job that does not exist. Each line of the
    report says whether a field of the description fits the responses: yes, NO, or - if they do not show it. bide
    submits nothing without --submit and cancels nothing without --cancel. Exit codes: 0 it fits, 1 it does not, 2 usage.

    \b
    Examples:
      bide api check mine.toml
      bide api check github-actions --against https://api.github.com --id octocat/hello/30433642
      bide api check knowhere --against https://api.knowhereto.ai --submit --input @job.json --cancel
    """
    wanted = CheckOptions(**options)
    wanted.check(against)
    try:
        found = _load(name, against, wanted.credential is not None, trust)
    except BadDescription as error:
        if as_json:
            print_json({"api": name, "fits": False, "line": error.line, "error": error.message})
        raise
    if against is None:
        _report_valid(found, as_json)
    else:
        _report(asyncio.run(_try(found, against, wanted)), as_json)


@dataclass(frozen=True)
class CheckOptions:
    """The requests to send, and the credential."""

    job: str | None
    submit: bool
    kind: str
    body: Any
    cancel: bool
    key: str | None = field(repr=False)
    key_file: Path | None
    headers: dict[str, str] = field(repr=False)

    def check(self, against: str | None) -> None:
        asking = (self.job, self.submit, self.cancel, self.key, self.key_file, self.headers)
        if against is None and any(asking):
            raise click.UsageError(
                "--id, --submit, --cancel, --key, --key-file and --header need --against URL"
            )
        if self.submit and self.job:
            raise click.UsageError(
                "--submit and --id exclude each other: --submit creates the job to poll"
            )
        if (self.kind or self.body is not None) and not self.submit:
            raise click.UsageError("--kind and --input need --submit")
        if self.key is not None and self.key_file is not None:
            raise click.UsageError("--key and --key-file exclude each other: give one of them")

    @property
    def credential(self) -> str | None:
        return self.key_file.read_text(encoding="utf-8").strip() if self.key_file else self.key

    @property
    def new_job(self) -> CheckedJob | None:
        return CheckedJob(self.kind, self.body) if self.submit else None


def _load(name: str, against: str | None, key: bool, trust: bool) -> Api:
    """Load a description. Without --against no secret is read, but a hook is loaded."""

    def approve(form: Description, text: str, file: str, folder: Path | None) -> None:
        if folder is None:
            return
        found = permissions(form, DescriptionFile(text, file, folder, against, key))
        if against is not None or form.hook is not None:
            confirm(found, trust)

    with _usage():
        return load(name, None, approve)


def _form(name: str) -> Description:
    with _usage():
        text, file, _ = source_of(name)
        return form_of(text, file)


@contextmanager
def _usage() -> Iterator[None]:
    try:
        yield
    except BadDescription:
        raise
    except SetupError as error:
        raise click.UsageError(str(error)) from None


def _unknown(name: str) -> click.UsageError:
    return click.UsageError(
        f"{name!r} is neither a known API nor a readable file. Known APIs: {', '.join(names())}"
    )


def _report_valid(found: Api, as_json: bool) -> None:
    can = _summary(found)["can"]
    if as_json:
        print_json({"api": found.name, "fits": True, "line": None, "error": None, "can": can})
    else:
        click.echo(f"{found.name} is valid: {', '.join(can)}")


def _api_and_job(found: Api, against: str, wanted: CheckOptions) -> tuple[str, str | None]:
    """Return the URL of the API, and the job; the URL of a job contains both."""
    if wanted.job is not None or wanted.submit:
        return against, wanted.job
    base = found.references.base_of(against)
    parts = urlsplit(against)
    if base is None and found.form.ask.path is None and parts.path.strip("/"):
        base = f"{parts.scheme}://{parts.netloc}"
    return (against, None) if base is None else (base, against)


async def _try(found: Api, against: str, wanted: CheckOptions) -> list[Finding]:
    base, job = _api_and_job(found, against, wanted)
    try:
        there = found.at(base)
    except SetupError as error:
        raise click.UsageError(str(error)) from None
    async with AsyncClient(None, wanted.credential, api=there, headers=wanted.headers) as client:
        check = DescriptionCheck(client.account)
        try:
            return [finding async for finding in check.run(job, wanted.new_job, wanted.cancel)]
        except SetupError as error:
            raise click.UsageError(str(error)) from None


def _report(findings: list[Finding], as_json: bool) -> None:
    if as_json:
        for finding in findings:
            print_json(finding)
    else:
        rows = [[finding.field, FITS[finding.fits], finding.detail] for finding in findings]
        print_table(("field", "fits", "response"), rows, empty="nothing to check: give --id")
    bad = [finding.field for finding in findings if finding.fits is False]
    if bad:
        click.echo(f"bide: the description does not fit: {', '.join(bad)}", err=True)
        raise click.exceptions.Exit(FAILED)
