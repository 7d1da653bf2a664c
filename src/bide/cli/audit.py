"""`bide audit`: the audit log of a service."""

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
    help="Only requests since then: 12h for the last 12 hours, or an instant such as 2030-01-31T12:00:00Z.",
)
@click.option(
    "--until", callback=read_past, metavar="DURATION|INSTANT", help="Only requests before then."
)
@click.option("--subject", help="Only requests of this caller, such as key:4t9hq2m0xk1c.")
@click.option("--tenant", help="Only requests of this tenant.")
@click.option("--operation", help="Only requests of this operation, such as submitJob or revokeKey.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="The maximum number of requests.",
)
@click.option("--all", "everything", is_flag=True, help="All requests.")
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
    """List the audit log of a service, newest first.

    It has all requests except GET and HEAD. This needs a key with the scope `admin`.

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
        found,
        as_json,
        columns,
        lambda entry: [str(entry[c] or "") for c in columns],
        empty="no requests",
    )
