"""How a command selects jobs; and bulk actions: cancels, retries and deletes of all jobs that match a filter, which the
service runs as one job.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import click

from bide.cli import FAILED
from bide.cli.output import print_json, print_line
from bide.client.client import AsyncClient
from bide.core.jobs.record import Status

Command = TypeVar("Command", bound=Callable[..., Any])
status_option = click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([str(one) for one in Status], case_sensitive=False),
    help="Only jobs with this status. May be repeated.",
)
kind_option = click.option("--kind", help="Only jobs of this kind.")
queue_option = click.option("--queue", help="Only jobs of this queue.")


def read_label(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, str] | None:
    if value is None:
        return None
    name, sign, text = value.partition("=")
    if not name or not sign:
        raise click.BadParameter(f"{value!r}: write name=value")
    return name, text


label_option = click.option(
    "--label", callback=read_label, metavar="NAME=VALUE", help="Only jobs with this label."
)


class Selection(NamedTuple):
    """The jobs of a command: ids, or filters."""

    ids: tuple[str, ...]
    statuses: tuple[str, ...]
    kind: str | None
    q: str | None
    dry_run: bool

    @property
    def filters(self) -> bool:
        return bool(self.statuses or self.kind or self.q is not None)


def selects_jobs(command: Command) -> Command:
    """Give a command ids, --status, --kind, --q and --dry-run, and pass it the Selection that they describe."""

    @click.argument("ids", nargs=-1, metavar="[ID...]")
    @status_option
    @kind_option
    @click.option(
        "--q",
        metavar="TERMS",
        help="All jobs that match these terms, such as 'status:ERROR label.team:ops'.",
    )
    @click.option("--dry-run", is_flag=True, help="Only print how many jobs match, and change nothing.")
    @functools.wraps(command)
    def with_selection(**options: Any) -> Any:
        selection = Selection(*(options.pop(name) for name in Selection._fields))
        return command(selection=selection, **options)

    return cast(Command, with_selection)


class BulkCommand:
    """One action on all jobs of a selection."""

    def __init__(self, client: AsyncClient, verb: str, selection: Selection, as_json: bool) -> None:
        self._client = client
        self._verb = verb
        self._as_json = as_json
        self._dry_run = selection.dry_run
        self._filter: dict[str, Any] = {
            "status": selection.statuses,
            "kind": selection.kind,
            "q": selection.q,
        }

    async def run(self, *, yes: bool) -> None:
        confirm = None
        if self._dry_run or self._verb == "delete":
            count = await self._client.bulk_count(self._verb, **self._filter)
            if self._dry_run:
                print_json({"count": count}) if self._as_json else print_line(
                    f"{_jobs(count)} {'matches' if count == 1 else 'match'}"
                )
                return
            if count and not yes:
                _confirm(count)
            confirm = count
        handle = await self._client.bulk(self._verb, confirm=confirm, **self._filter)
        result = await handle.result(timeout=None, progress=True)
        if self._as_json:
            print_json(await handle.status())
        else:
            changed, refused, skipped = (result[name] for name in ("changed", "refused", "skipped"))
            print_line(
                f"{self._verb}: {_jobs(changed)} changed, {refused} refused, {skipped} skipped ({handle.id})"
            )
        for one in result["errors"]:
            print_line(f"bide: {one['jobId']}: {one['detail']}", err=True)
        if result["refused"]:
            raise click.exceptions.Exit(FAILED)


def _confirm(count: int) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"this would delete {_jobs(count)}: give --yes, or --dry-run to count them"
        )
    click.confirm(f"Delete {_jobs(count)} and their files?", abort=True, err=True)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
