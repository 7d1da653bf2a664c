"""`bide audit`: the mutating calls of a service."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import click

from bide.cli.keys import read_seconds
from bide.cli.output import json_option, print_json, print_table
from bide.cli.settings import Connection, speaks_to_service
from bide.core.clock import read_instant


def _read_time(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """An RFC 3339 instant, or a duration before now such as 12h."""
    if value is None:
        return None
    seconds = read_seconds(value)
    if seconds is not None:
        return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    try:
        read_instant(value)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is neither an RFC 3339 instant nor a duration such as 12h or 90d"
        ) from None
    return value


@click.command()
@click.option(
    "--since",
    callback=_read_time,
    metavar="DURATION|INSTANT",
    help="Only calls then or later: 12h ago, or 2030-01-31T12:00:00Z.",
)
@click.option("--until", callback=_read_time, metavar="DURATION|INSTANT", help="Only calls before.")
@click.option("--subject", help="Only calls of this caller, such as key:4t9hq2m0xk1c.")
@click.option("--tenant", help="Only calls of this tenant.")
@click.option("--operation", help="Only calls of this operation, such as submitJob or revokeKey.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="The maximum number of calls.",
)
@click.option("--all", "everything", is_flag=True, help="All calls.")
@json_option
@speaks_to_service
def audit(
    connection: Connection,
    since: str | None,
    until: str | None,
    subject: str | None,
    tenant: str | None,
    operation: str | None,
    limit: int,
    everything: bool,
    as_json: bool,
) -> None:
    """List the mutating calls of a service, newest first. This needs a key with the scope `admin`.

    \b
    Examples:
      bide audit
      bide audit --since 12h --operation revokeKey
      bide audit --subject key:4t9hq2m0xk1c --all --json
    """

    async def run() -> None:
        async with connection.client() as client:
            found = await client.audit(
                since=since,
                until=until,
                subject=subject,
                tenant=tenant,
                operation=operation,
                limit=None if everything else limit,
            )
        if as_json:
            for entry in found:
                print_json(entry)
            return
        columns = ["at", "subject", "tenant", "operation", "path", "status", "address", "traceId"]
        rows = [[str(entry[column] or "") for column in columns] for entry in found]
        print_table(columns, rows, empty="no calls")

    asyncio.run(run())
