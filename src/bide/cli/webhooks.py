"""`bide webhooks`: the endpoints that receive the events of a service."""

from __future__ import annotations

from typing import Any

import click

from bide.cli import Failure
from bide.cli.bulk import label_option
from bide.cli.options import read_past
from bide.cli.output import json_option, print_json, print_line, print_records
from bide.cli.settings import Connection, speaks_to_service

EVENTS = ("status", "terminal", "step", "log", "output", "deleted", "queue")


@click.group()
def webhooks() -> None:
    """Create, list, test, replay and delete webhooks.

    \b
    Examples:
      bide webhooks create https://example.org/bide --event terminal
      bide webhooks list
      bide webhooks test 01JC3X8M0V5T6Q7R8S9A0B1C2D
    """


@webhooks.command()
@click.argument("endpoint", metavar="URL")
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice(EVENTS),
    help="Events that the webhook receives. May be repeated.  [default: terminal]",
)
@click.option("--kind", "kinds", multiple=True, help="Only jobs of this kind. May be repeated.")
@label_option
@json_option
@speaks_to_service
def create(
    connection: Connection,
    endpoint: str,
    events: tuple[str, ...],
    kinds: tuple[str, ...],
    label: tuple[str, str] | None,
    as_json: bool,
) -> None:
    """Create a webhook and print its secret, which cannot be printed again.

    \b
    Examples:
      bide webhooks create https://example.org/bide
      bide webhooks create https://example.org/bide --event status --event step --kind transcode
    """
    labels = dict([label]) if label else {}
    made = connection.run(
        lambda client: client.create_webhook(endpoint, events=events, kinds=kinds, labels=labels)
    )
    if as_json:
        print_json(made)
        return
    print_line(f"created {made['id']}: {', '.join(made['events'])} to {made['url']}", err=True)
    print_line("the secret, which is shown only once:", err=True)
    print_line(made["secret"])


@webhooks.command("list")
@json_option
@speaks_to_service
def list_webhooks(connection: Connection, as_json: bool) -> None:
    """List the webhooks, without their secrets.

    \b
    Examples:
      bide webhooks list
      bide webhooks list --json
    """
    found = connection.run(lambda client: client.webhooks())
    columns = ["id", "enabled", "events", "of", "url", "reason"]
    print_records(found, as_json, columns, _row, empty="no webhooks")


def _row(webhook: dict[str, Any]) -> list[str]:
    return [
        webhook["id"],
        "yes" if webhook["enabled"] else "no",
        ", ".join(webhook["events"]),
        ", ".join([*webhook["kinds"], *(f"{n}={v}" for n, v in webhook["labels"].items())]),
        webhook["url"],
        webhook["reason"] or "",
    ]


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@json_option
@speaks_to_service
def test(connection: Connection, webhook_id: str, as_json: bool) -> None:
    """Send a test message now, and print the response of the endpoint. The exit code is 1 if it rejects the message.

    \b
    Examples:
      bide webhooks test 01JC3X8M0V5T6Q7R8S9A0B1C2D
    """
    delivery = connection.run(lambda client: client.test_webhook(webhook_id))
    attempt: dict[str, Any] = delivery["attempts"][-1]
    answer = attempt["error"] or f"status {attempt['status']}"
    said = f"{delivery['url']} answered in {attempt['seconds']:.3g} s: {answer}"
    if as_json:
        print_json(delivery)
    elif delivery["status"] == "delivered":
        print_line(said)
    if delivery["status"] != "delivered":
        raise Failure(f"{said} {delivery['response'][:200]}".strip())


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@click.option(
    "--from",
    "begin",
    required=True,
    callback=read_past,
    metavar="INSTANT|DURATION",
    help="The beginning: an RFC 3339 instant, or 30m, 2h or 1d for a time before now.",
)
@click.option(
    "--to", "end", callback=read_past, metavar="INSTANT|DURATION", help="The end; by default now."
)
@click.option(
    "--only",
    type=click.Choice(["failed", "all"]),
    default="failed",
    show_default=True,
    help="Only events that the endpoint has not accepted, or all.",
)
@json_option
@speaks_to_service
def replay(
    connection: Connection, webhook_id: str, begin: str, end: str | None, only: str, as_json: bool
) -> None:
    """Deliver the events of a period again, also to a disabled webhook.

    \b
    Examples:
      bide webhooks replay 01JC3X8M0V5T6Q7R8S9A0B1C2D --from 2h
      bide webhooks replay 01JC3X8M0V5T6Q7R8S9A0B1C2D --from 2026-01-05T09:00:00Z --only all
    """
    made = connection.run(lambda client: client.replay_webhook(webhook_id, begin, end, only=only))
    if as_json:
        print_json(made)
    else:
        events = "all events" if made["only"] == "all" else "events that were not accepted"
        print_line(f"replay {made['id']}: {events} from {made['from']} to {made['to']}")


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@json_option
@speaks_to_service
def delete(connection: Connection, webhook_id: str, as_json: bool) -> None:
    """Delete a webhook and its deliveries.

    \b
    Examples:
      bide webhooks delete 01JC3X8M0V5T6Q7R8S9A0B1C2D
    """
    connection.run(lambda client: client.delete_webhook(webhook_id))
    if as_json:
        print_json({"id": webhook_id, "deleted": True})
    else:
        print_line(f"{webhook_id} is deleted")
