"""`bide queue`: lists, pauses and resumes queues."""

from __future__ import annotations

from typing import Any

import click

from bide.cli.output import json_option, print_json, print_records
from bide.cli.settings import Connection, speaks_to_service


@click.group()
def queue() -> None:
    """List, pause and resume queues.

    \b
    Examples:
      bide queue list
      bide queue pause video
      bide queue resume video
    """


@queue.command("list")
@json_option
@speaks_to_service
def list_queues(connection: Connection, as_json: bool) -> None:
    """List the queues with their backlog.

    \b
    Examples:
      bide queue list
      bide queue list --json
    """
    found = connection.run(lambda client: client.queues())
    columns = list(dict.fromkeys(name for queue in found for name in queue))

    def row(queue: dict[str, Any]) -> list[str]:
        return [_cell(queue.get(name)) for name in columns]

    print_records(found, as_json, columns, row, empty="no queues")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.1f}" if isinstance(value, float) else str(value)


@queue.command()
@click.argument("name")
@json_option
@speaks_to_service
def pause(connection: Connection, name: str, as_json: bool) -> None:
    """Start no more jobs of a queue. Running jobs continue.

    \b
    Examples:
      bide queue pause video
    """
    connection.run(lambda client: client.pause_queue(name))
    _report(name, paused=True, as_json=as_json)


@queue.command()
@click.argument("name")
@json_option
@speaks_to_service
def resume(connection: Connection, name: str, as_json: bool) -> None:
    """Start jobs of a paused queue again.

    \b
    Examples:
      bide queue resume video
    """
    connection.run(lambda client: client.resume_queue(name))
    _report(name, paused=False, as_json=as_json)


def _report(name: str, *, paused: bool, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "paused": paused})
    else:
        click.echo(f"{name} {'is paused' if paused else 'is resumed'}")
