"""`bide audit`: the mutating calls of a service."""

from __future__ import annotations

import click

from bide.cli.options import read_past
from bide.cli.output import json_option, print_records
from bide.cli.settings import Connection, speaks_to_service


@click.command()
@click.option(
    "--since",
    callback=read_past,
    metavar="DURATION|INSTANT",
    help="Only calls then or later: 12h ago, or 2030-01-31T12:00:00Z.",
)
@click.option("--until", callback=read_past, metavar="DURATION|INSTANT", help="Only calls before.")
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
    found = connection.run(
        lambda client: client.audit(
            since=since,
            until=until,
            subject=subject,
            tenant=tenant,
            operation=operation,
            limit=None if everything else limit,
        )
    )
    columns = ["at", "subject", "tenant", "operation", "path", "status", "address", "traceId"]
    print_records(
        found, as_json, columns, lambda entry: [str(entry[c] or "") for c in columns], empty="no calls"
    )
