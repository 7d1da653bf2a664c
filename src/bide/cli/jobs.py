"""`bide status`, `log`, `list`, `cancel`, `retry` and `delete`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import click

from bide.cli import FAILED
from bide.cli.bulk import (
    BulkCommand,
    Selection,
    kind_option,
    label_option,
    queue_option,
    selects_jobs,
    status_option,
)
from bide.cli.clients import CommandTarget, api_option
from bide.cli.output import (
    json_option,
    print_details,
    print_jobs,
    print_json,
    print_line,
    print_log_line,
)
from bide.cli.settings import Connection, speaks_to_service
from bide.cli.trust import trust_option
from bide.client.apis import GONE, NOT_FOUND
from bide.client.client import AsyncClient
from bide.client.job import JobHandle
from bide.client.options import ClientOptions
from bide.core.errors import ServiceError
from bide.core.jobs.record import LIVE, SUCCESSFUL, TERMINAL, Status
from bide.core.wire.http import LOG_LEVELS, JobStatus

# The statuses of jobs that each command can change.
POSSIBLE = {
    "cancel": LIVE,
    "retry": frozenset({*(TERMINAL - SUCCESSFUL), Status.PARTIAL_SUCCESS}),
    "delete": frozenset(Status) - {Status.PROCESSING},
}


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@api_option
@trust_option
@click.option("--log", "with_log", is_flag=True, help="Also print the job's log.")
@json_option
@speaks_to_service
def status(
    connection: Connection,
    ids: tuple[str, ...],
    api: str | None,
    trust: bool,
    with_log: bool,
    as_json: bool,
) -> None:
    """Show the status of jobs.

    \b
    Examples:
      bide status 01JC3X8M0V5T6Q7R8S9A0B1C2D
      bide status 01JC3X8M0V5T6Q7R8S9A0B1C2D --log
      bide status --json 01JC3X8M0V5T6Q7R8S9A0B1C2D 01JC3X8M0W…
      bide status octocat/hello/30433642 --api github-actions
    """
    target, chosen = CommandTarget(connection, api, ClientOptions(), trust), list(dict.fromkeys(ids))
    if with_log and (len(chosen) > 1 or not target.own):
        raise click.UsageError("--log shows the log of one job of a bide service: give one id")
    if target.own:
        asyncio.run(_status(target, chosen, with_log, as_json))
    else:
        asyncio.run(_status_elsewhere(target, chosen, as_json))


async def _status(target: CommandTarget, ids: Sequence[str], with_log: bool, as_json: bool) -> None:
    async with target.client() as client:
        if len(ids) == 1:
            job = await client.job(ids[0]).status()
            if with_log:
                job.log = [line async for line in client.log(job.job_id)]
            if as_json:
                print_json(job)
                return
            print_details(job)
            if with_log:
                click.echo()
                for line in job.log or []:
                    print_log_line(line)
            return
        found = await client.statuses(ids)
    print_jobs([found[job_id] for job_id in ids if job_id in found], as_json)
    missing = [job_id for job_id in ids if job_id not in found]
    if missing:
        click.echo(f"bide: no such job: {', '.join(missing)}", err=True)
        raise click.exceptions.Exit(FAILED)


async def _status_elsewhere(target: CommandTarget, ids: Sequence[str], as_json: bool) -> None:
    """One request per job; an error of one does not stop the others."""
    found = []
    async with target.client() as client:
        for handle in target.jobs(client, ids):
            try:
                found.append(await handle.status())
            except ServiceError as error:
                print_line(f"bide: {handle.id}: {error}", err=True)
    if len(ids) == len(found) == 1 and not as_json:
        print_details(found[0])
    else:
        print_jobs(found, as_json)
    if len(found) < len(ids):
        raise click.exceptions.Exit(FAILED)


@click.command("log")
@click.argument("job_id", metavar="ID")
@click.option("--follow", "-f", is_flag=True, help="Also print new lines, until the job has ended.")
@click.option(
    "--level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    help="Only lines of this level and above.",
)
@json_option
@speaks_to_service
def show_log(
    connection: Connection, job_id: str, follow: bool, level: str | None, as_json: bool
) -> None:
    """Print the log of a job.

    Each line has the time, the attempt, the level, the logger and the message.

    \b
    Examples:
      bide log 01JC3X8M0V5T6Q7R8S9A0B1C2D
      bide log 01JC3X8M0V5T6Q7R8S9A0B1C2D --follow
      bide log 01JC3X8M0V5T6Q7R8S9A0B1C2D --level error --json
    """

    async def run() -> None:
        async with (
            connection.client() as client,
            aclosing(client.log(job_id, level=level, follow=follow)) as lines,
        ):
            async for line in lines:
                print_json(line) if as_json else print_log_line(line)

    asyncio.run(run())


@click.command("list")
@status_option
@kind_option
@queue_option
@label_option
@click.option("--code", help="Only jobs with this code in their error.")
@click.option(
    "--created-after", metavar="INSTANT", help="Only jobs created then or later: 2030-01-31T12:00:00Z."
)
@click.option("--created-before", metavar="INSTANT", help="Only jobs created before.")
@click.option(
    "--q", metavar="TERMS", help="Only jobs that match all terms, such as 'status:ERROR label.team:ops'."
)
@click.option(
    "--order",
    type=click.Choice(["newest", "oldest", "longest"]),
    default="newest",
    show_default=True,
    help="Which jobs come first.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="The maximum number of jobs.",
)
@click.option("--all", "everything", is_flag=True, help="All jobs.")
@json_option
@speaks_to_service
def list_jobs(
    connection: Connection,
    statuses: tuple[str, ...],
    kind: str | None,
    queue: str | None,
    label: tuple[str, str] | None,
    code: str | None,
    created_after: str | None,
    created_before: str | None,
    q: str | None,
    order: str,
    limit: int,
    everything: bool,
    as_json: bool,
) -> None:
    """List jobs, newest first.

    \b
    Examples:
      bide list
      bide list --q 'kind:transcode error:OCR_TIMEOUT input.video.id:42' --order longest
      bide list --status ERROR --status RETRYING --kind transcode
      bide list --all --json --label team=ops
    """
    found = connection.run(
        lambda client: client.list(
            status=statuses,
            kind=kind,
            queue=queue,
            label=label,
            code=code,
            created_after=created_after,
            created_before=created_before,
            q=q,
            order=order if order != "newest" else None,
            limit=None if everything else limit,
        )
    )
    print_jobs(found, as_json)


@click.command()
@selects_jobs
@api_option
@trust_option
@json_option
@speaks_to_service
def cancel(
    connection: Connection,
    selection: Selection,
    api: str | None,
    trust: bool,
    as_json: bool,
) -> None:
    """Cancel jobs, by id or by a filter.

    A waiting job ends at once; a running one is asked to stop, then terminated, then killed. A job that has ended is not
    changed: exit code 1. With --api, the command reads the status of the job first, and prints the new status at the end.

    With --q the service cancels all jobs that match, and the command shows its progress.

    \b
    Examples:
      bide cancel 01JC3X8M0V5T6Q7R8S9A0B1C2D
      bide cancel --kind transcode --status PENDING
      bide cancel --q 'kind:transcode label.team:ops' --dry-run
      bide cancel batch_abc123 --api openai-batch
    """
    target = CommandTarget(connection, api, ClientOptions(), trust)
    if not target.own and (selection.filters or selection.dry_run):
        raise click.UsageError(
            "--status, --kind and --q select jobs of a bide service. For another API give ids"
        )
    asyncio.run(JobAction("cancel", target, as_json).on(selection))


@click.command()
@selects_jobs
@json_option
@speaks_to_service
def retry(
    connection: Connection,
    selection: Selection,
    as_json: bool,
) -> None:
    """Run failed jobs again, by id or by a filter.

    Finished steps are not repeated. With --q the service retries all jobs that match, and the command shows its progress.

    \b
    Examples:
      bide retry 01JC3X8M0V5T6Q7R8S9A0B1C2D
      bide retry --status ERROR --kind transcode
      bide retry --q 'error:OCR_TIMEOUT label.team:ops'
    """
    target = CommandTarget(connection, None, ClientOptions())
    asyncio.run(JobAction("retry", target, as_json).on(selection))


@click.command()
@selects_jobs
@click.option("--yes", is_flag=True, help="Do not ask for a confirmation.")
@json_option
@speaks_to_service
def delete(
    connection: Connection,
    selection: Selection,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete jobs and their files, by id or by a filter.

    A running job is not deleted: cancel it first. With a filter, the service deletes all jobs that match. The command first
    shows how many they are, and asks for a confirmation; without a terminal it needs --yes.

    \b
    Examples:
      bide delete 01JC3X8M0V5T6Q7R8S9A0B1C2D
      bide delete --status DONE --kind transcode --dry-run
      bide delete --q 'status:ERROR label.team:ops' --yes
    """
    target = CommandTarget(connection, None, ClientOptions())
    asyncio.run(JobAction("delete", target, as_json, yes=yes).on(selection))


class JobAction:
    """Cancels, retries or deletes jobs one after the other; an error of one does not stop the others. If the jobs are
    selected by a query, the service does it.
    """

    def __init__(self, verb: str, target: CommandTarget, as_json: bool, *, yes: bool = False) -> None:
        self._verb = verb
        self._target = target
        self._as_json = as_json
        self._yes = yes
        self._possible = POSSIBLE[verb]

    async def on(self, selection: Selection) -> None:
        ids, dry_run = selection.ids, selection.dry_run
        if bool(ids) == selection.filters:
            raise click.UsageError("give job ids, or select jobs by --q, --status and --kind")
        if dry_run and ids:
            raise click.UsageError(
                "--dry-run counts the jobs that match filters. It cannot be used with ids"
            )
        self._check(selection.statuses)
        async with self._target.client() as client:
            if selection.q is not None or dry_run or (selection.filters and self._verb == "delete"):
                command = BulkCommand(client, self._verb, selection, self._as_json)
                await command.run(yes=self._yes)
                return
            chosen = list(dict.fromkeys(ids)) or await self._choose(client, selection)
            handles = self._target.jobs(client, chosen)
            refused = [handle for handle in handles if not await self._one(handle)]
        if not chosen:
            click.echo("no such jobs", err=True)
        if refused:
            raise click.exceptions.Exit(FAILED)

    def _check(self, statuses: Sequence[str]) -> None:
        impossible = [one for one in statuses if Status(one) not in self._possible]
        if impossible:
            possible = ", ".join(sorted(self._possible))
            raise click.UsageError(
                f"{self._verb} has no effect on {', '.join(impossible)} jobs, only on {possible}"
            )

    async def _choose(self, client: AsyncClient, selection: Selection) -> list[str]:
        """Find all jobs before the first is changed, because a change affects the list."""
        statuses = selection.statuses or sorted(self._possible)
        found = await client.list(status=statuses, kind=selection.kind, limit=None)
        return [job.job_id for job in found]

    async def _one(self, handle: JobHandle) -> bool:
        try:
            if self._verb == "delete":
                await handle.delete()
                print_json({"jobId": handle.id, "deleted": True}) if self._as_json else print_line(
                    f"{handle.id} deleted"
                )
                return True
            job = await (handle.cancel() if self._verb == "cancel" else handle.retry())
        except ServiceError as error:
            print_line(f"bide: {handle.id}: {error}", err=True)
            return False
        unchanged = (
            self._verb == "cancel"
            and job.status.terminal
            and job.status is not Status.CANCELLED
            and not handle.cancelling
        )
        if unchanged:
            print_line(f"bide: {handle.id}: {_why_unchanged(job)}", err=True)
        if self._as_json:
            print_json(job)
        elif not unchanged:
            stopping = self._verb == "cancel" and not job.status.terminal
            print_line(f"{handle.id} {'is being stopped' if stopping else job.status}")
        return not unchanged


def _why_unchanged(job: JobStatus) -> str:
    if job.error is not None and job.error.code in (NOT_FOUND, GONE):
        return f"{job.error.code}: {job.error.message}"
    return f"the job has already ended as {job.status}, so it was not changed"
