"""`bide wait`: waits for jobs of any API and reports how each ended; with a ledger it resumes after a crash.

With a ledger each completion is reported at least once. Bars, advice and warnings are on stderr.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from shlex import quote
from typing import Any, cast

import click

from bide.cli import FAILED, TIMED_OUT
from bide.cli.clients import Clients, CommandTarget, api_option, budget_option
from bide.cli.ending import Ending
from bide.cli.output import json_option
from bide.cli.settings import Connection, speaks_to_service
from bide.cli.targets import read_headers, read_rate, read_targets
from bide.cli.trust import trust_option
from bide.client.client import AsyncClient
from bide.client.job import JobHandle, as_completed
from bide.client.ledger import ApiAddress, Ledger
from bide.client.ledger.sqlite import SqliteLedger
from bide.client.options import ClientOptions
from bide.core.errors import SetupError, WaitTimeout
from bide.core.pacing.advice import Advice

FIRST_ADVICE, NEXT_ADVICE = 5.0, 60.0  # seconds after the start, and between two checks
MUCH = 2.0  # the factor by which advice must change before it is printed again
_POSITIVE = click.FloatRange(min=0, min_open=True)


@click.command()
@click.argument("targets", nargs=-1, metavar="[ID|URL|@FILE|-]...")
@api_option
@trust_option
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=read_headers,
    help="'NAME: VALUE', added to every request.",
)
@click.option("--timeout", type=click.FloatRange(min=0), help="Seconds after which the wait ends.")
@click.option(
    "--price", type=_POSITIVE, help="Seconds of waiting that one request is worth.  [default: 1]"
)
@click.option(
    "--limit", callback=read_rate, help="The rate limit of the API: 60/1m, or 60/1m:10 with a burst."
)
@click.option("--expect", "expected", type=_POSITIVE, help="Seconds that a job takes, if you know.")
@click.option("--size", type=click.Choice(["small", "medium", "large"]), help="How large the jobs are.")
@click.option(
    "--processes", type=click.IntRange(min=1), help="Processes that share the polling.  [default: 1]"
)
@budget_option
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that stores the jobs, to resume after a crash. Without jobs: resumes those in it.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for results (ID.json) and files (ID/NAME).",
)
@click.option(
    "--exec",
    "command",
    metavar="CMD",
    help="A shell command to run for each ended job, with the --json line on stdin, and BIDE_JOB_ID and "
    "BIDE_JOB_STATUS in the environment.",
)
@json_option
@speaks_to_service
def wait(
    connection: Connection,
    targets: tuple[str, ...],
    api: str | None,
    trust: bool,
    timeout: float | None,
    ledger: Path | None,
    out: Path | None,
    command: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Wait for jobs and print how each ended.

    A job is an id or a URL; @FILE and - (stdin) contain one per line, or the output of --json. Exit code: 0 all
    succeeded, 1 some failed, 2 usage error, 3 timed out, 130 interrupted.

    \b
    Examples:
      bide wait 01JC3X8M0V5T6Q7R8S9A0B1C2D --timeout 600
      bide submit transcode -i @job.json | bide wait - --json
      bide wait @jobs.txt --exec 'jq .result.url'
      bide wait @ids.txt --api sync.so --limit 60/1m --ledger films.ledger --out films
      bide wait --ledger films.ledger
      bide wait @half.txt --api sync.so --limit 60/1m --budget redis://budgets.example.org/0
    """
    if not targets and ledger is None:
        raise click.UsageError("no jobs: give ids, URLs, @FILE or -, or a --ledger that has some")
    texts = read_targets(targets)
    target = CommandTarget(connection, api, cast(ClientOptions, options), trust)
    log, warnings = logging.getLogger("bide"), Warnings(logging.WARNING)
    log.addHandler(warnings)
    try:
        end = Ending(as_json, out, command)
        code = asyncio.run(_run(target, texts, ledger, timeout, end))
    except KeyboardInterrupt:
        if ledger is not None:
            click.echo(f"bide: resume with: bide wait --ledger {quote(str(ledger))}", err=True)
        raise
    finally:
        log.removeHandler(warnings)
    raise click.exceptions.Exit(code)


async def _run(
    target: CommandTarget, texts: list[str], path: Path | None, timeout: float | None, end: Ending
) -> int:
    async with AsyncExitStack() as stack:
        ledger = None
        if path is not None:
            ledger = SqliteLedger(path)
            await ledger.open()
            stack.push_async_callback(ledger.close)
            target.options["ledger"] = ledger
        clients = Clients(target, stack)
        jobs: dict[ApiAddress, dict[str, JobHandle]] = {}
        for text in texts:
            place, handle = clients.job(text)
            jobs.setdefault(place, {})[handle.id] = handle
        if ledger is not None:
            end.failed += await _resume(clients, ledger, jobs)
        try:
            await _wait(clients, jobs, timeout, end, acknowledge=ledger is not None)
        except WaitTimeout as error:
            click.echo(f"bide: {error}", err=True)
            return TIMED_OUT
    return FAILED if end.failed else 0


async def _resume(clients: Clients, ledger: Ledger, jobs: dict[ApiAddress, dict[str, JobHandle]]) -> int:
    """Adds the unacknowledged jobs of the ledger, and drops acknowledged ones. Returns how many of those had failed."""
    counts = await ledger.counts()
    clients.open_all(
        place for place, found in counts.items() if found.unacknowledged and clients.concerned(place)
    )
    for place, client in clients.all.items():
        handles = await client.resume(*jobs.get(place, {}).values())
        jobs[place] = {handle.id: handle for handle in handles}
    mine = [found for place, found in counts.items() if clients.concerned(place) or place in clients.all]
    ended, failed = sum(one.acknowledged for one in mine), sum(one.failed for one in mine)
    if ended:
        click.echo(f"bide: {ended} had ended before, {failed} of them failed", err=True)
    total = sum(one.acknowledged + one.unacknowledged for one in counts.values())
    others = total - sum(one.acknowledged + one.unacknowledged for one in mine)
    if others:
        click.echo(f"bide: not waiting for {others} jobs of other APIs or addresses", err=True)
    return failed


async def _wait(
    clients: Clients,
    jobs: dict[ApiAddress, dict[str, JobHandle]],
    timeout: float | None,
    end: Ending,
    *,
    acknowledge: bool,
) -> None:
    places = {handle: place for place, handles in jobs.items() for handle in handles.values()}
    if not places:
        return
    several = len(set(places.values())) > 1
    gc.freeze()  # with 100,000 jobs the garbage collector would take a tenth of the time
    advising = asyncio.create_task(_advise({clients.all[place] for place in places.values()}))
    acknowledging: set[asyncio.Task[None]] = set()
    try:
        async for handle in as_completed(places, timeout=timeout, progress=True):
            place = places[handle]
            done = await end.report(handle, place.api, (place.base or place.api) if several else "")
            if done and acknowledge:
                # Not awaited, so that one commit acknowledges many jobs.
                task = asyncio.create_task(_acknowledge(clients.all[place], handle))
                acknowledging.add(task)
                task.add_done_callback(acknowledging.discard)
    finally:
        advising.cancel()
        await asyncio.gather(advising, *acknowledging, return_exceptions=True)


async def _acknowledge(client: AsyncClient, handle: JobHandle) -> None:
    try:
        await client.acknowledge(handle)
    except SetupError as error:
        click.echo(f"bide: {handle.id} will be reported again: {error}", err=True)


async def _advise(clients: Iterable[AsyncClient]) -> None:
    """Prints advice if a budget is too small for the load, and again after it has changed much."""
    said: dict[AsyncClient, tuple[Advice, bool]] = {}
    await asyncio.sleep(FIRST_ADVICE)
    while True:
        for client in clients:
            advice, guess = client.advice(), (await client.account()).guesses
            if advice is not None and not advice.enough and _news(advice, guess, said.get(client)):
                said[client] = (advice, guess)
                note = ". This is an estimate: no job has ended yet" if guess else ""
                click.echo(f"bide: {client.api}: {advice}{note}", err=True)
        await asyncio.sleep(NEXT_ADVICE)


def _news(advice: Advice, guess: bool, before: tuple[Advice, bool] | None) -> bool:
    if before is None:
        return True
    last, guessed = before
    pairs = ((advice.needed, last.needed), (advice.delay, last.delay))
    much = any(not 1 / MUCH < now / max(then, 1e-9) < MUCH for now, then in pairs)
    return much and not (guess and guessed)


class Warnings(logging.Handler):
    """Prints log records on stderr; the same message is printed once for consecutive jobs."""

    _last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text != self._last:
            click.echo(f"bide: {text}", err=True)
        self._last = text
