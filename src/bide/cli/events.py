"""`bide events`: the events of one job, or of all jobs of a service."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import click
import msgspec

from bide.cli.bulk import kind_option, label_option, queue_option
from bide.cli.output import compact, json_option, print_json, print_line
from bide.cli.settings import Connection, speaks_to_service
from bide.client.events import JobEvent
from bide.core.wire.events import LOG_TYPES


@click.command("events")
@click.argument("job_id", metavar="[ID]", required=False)
@click.option(
    "--follow", "-f", is_flag=True, help="Also print new events, until the job has ended or Ctrl-C."
)
@click.option("--after", metavar="E-N", help="Only events after the one with this id.")
@kind_option
@queue_option
@label_option
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice([*LOG_TYPES, "progress"]),
    help="Only events of this type. May be repeated.",
)
@json_option
@speaks_to_service
def show_events(
    connection: Connection,
    job_id: str | None,
    follow: bool,
    after: str | None,
    kind: str | None,
    queue: str | None,
    label: tuple[str, str] | None,
    types: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print events: of one job, or of all jobs.

    Each line has the id, the time, the job, the type and the content of an event. Pass the id to --after to continue
    after that event.

    \b
    Examples:
      bide events 01JC3X8M0V5T6Q7R8S9A0B1C2D
      bide events --follow --kind transcode --type status
      bide events --after 3fa9c1-4711 --json
    """
    if job_id is not None and (kind or queue or label):
        raise click.UsageError("--kind, --queue and --label cannot be used with a job id")

    async def run() -> None:
        async with (
            connection.client() as client,
            aclosing(
                client.events(
                    job_id,
                    after=after,
                    kind=kind or (),
                    queue=queue or (),
                    label=label,
                    type=types,
                    follow=follow,
                )
            ) as events,
        ):
            async for event in events:
                if as_json:
                    print_json(msgspec.to_builtins(event))
                else:
                    print_line(_line(event))

    asyncio.run(run())


def _line(event: JobEvent) -> str:
    place = event.job_id or str(event.job.get("queue") or "-")
    return (
        f"{event.id or '-':<14} {event.at or '-':<27} {place}  {event.type:<8} {_text(event)}".rstrip()
    )


def _text(event: JobEvent) -> str:
    """What happened, in one line."""
    facts = event.job
    match event.type:
        case "step":
            return f"{facts['step']['name']}: {facts['step']['status']}"
        case "log":
            line = facts["log"]
            return f"{line.get('level', 'info').upper()} {line.get('message', '')}"
        case "output":
            return compact(facts.get("output"))
        case "queue":
            return "paused" if facts.get("paused") else "resumed"
        case "progress":
            progress = facts.get("progress") or {}
            parts = [f"{progress['percent']:g} %"] if progress.get("percent") is not None else []
            return " ".join([*parts, progress.get("message") or ""]).strip()
        case "snapshot" | "reset" if event.job_id is None:
            return f"{len(facts.get('queues', ()))} queues"
    error = facts.get("error") or {}
    return f"{facts.get('status', '')} {error.get('code', '')}".strip()
