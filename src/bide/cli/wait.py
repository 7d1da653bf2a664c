"""`bide wait`: waits for jobs of any API, with a ledger also over a crash, and tells how each ended.

With a ledger a job's end is reported until all that is to be done about it is done: after a crash in between once more,
but never not at all. Bars, advice and trouble are on stderr.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from shlex import quote
from typing import Any

import click

from bide.cli import FAILED, TIMED_OUT
from bide.cli.clients import Asked, Clients, api_option, budget_option
from bide.cli.ending import Ending
from bide.cli.output import json_option
from bide.cli.settings import Connection, speaks_to_service
from bide.cli.targets import read_headers, read_rate, read_targets
from bide.cli.trust import trust_option
from bide.client.client import AsyncClient
from bide.client.job import JobHandle
from bide.client.ledger import Key, Ledger
from bide.client.ledger.sqlite import SqliteLedger
from bide.client.options import ClientOptions
from bide.core.advice import Advice
from bide.core.budget import Limit
from bide.core.errors import SetupError, WaitTimeout
from bide.core.record import SUCCESSFUL

FIRST_ADVICE, NEXT_ADVICE = 5.0, 60.0  # seconds after the start, and between two looks
MUCH = 2.0  # times what was said: then it is said again
_POSITIVE = click.FloatRange(min=0, min_open=True)


@click.command()
@click.argument("targets", nargs=-1, metavar="[ID|URL|@FILE|-]...")
@api_option
@trust_option
@click.option(
    "--header", "headers", multiple=True, callback=read_headers, help="'NAME: VALUE', sent along."
)
@click.option("--timeout", type=click.FloatRange(min=0), help="How many seconds to wait at most.")
@click.option(
    "--price", type=_POSITIVE, help="Seconds of waiting that one request is worth.  [default: 1]"
)
@click.option(
    "--limit", callback=read_rate, help="What the API allows: 60/1m, or 60/1m:10 with a burst."
)
@click.option("--expect", type=_POSITIVE, help="How many seconds a job will take, if you know.")
@click.option("--size", type=click.Choice(["small", "medium", "large"]), help="How large the jobs are.")
@click.option(
    "--processes", type=click.IntRange(min=1), help="Spread the polling over so many.  [default: 1]"
)
@budget_option
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that keeps what is waited for. Without jobs: goes on with those in it.",
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
    help="Run this in a shell for each job that has ended; the --json line is on its stdin, BIDE_JOB_ID and "
    "BIDE_JOB_STATUS in its environment.",
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

    A job is an id, or its URL; @FILE and - (stdin) have one a line, or lines of --json. Exit code: 0 all done, 1 some
    failed, 2 usage, 3 timed out, 130 interrupted.

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
    asked = Asked(connection, api, _options(**options), trust)
    log, trouble = logging.getLogger("bide"), Trouble(logging.WARNING)
    log.addHandler(trouble)
    try:
        end = Ending(as_json, out, command)
        code = asyncio.run(_run(asked, texts, ledger, timeout, end))
    except KeyboardInterrupt:
        if ledger is not None:
            click.echo(f"bide: go on with: bide wait --ledger {quote(str(ledger))}", err=True)
        raise
    finally:
        log.removeHandler(trouble)
    raise click.exceptions.Exit(code)


def _options(
    headers: dict[str, str],
    price: float | None,
    limit: Limit | None,
    expect: float | None,
    size: Any,
    processes: int | None,
    budget: str | None,
) -> ClientOptions:
    return ClientOptions(
        headers=headers,
        price=price,
        limit=limit,
        expected=expect,
        size=size,
        processes=processes,
        budget=budget,
    )


async def _run(
    asked: Asked, texts: list[str], path: Path | None, timeout: float | None, end: Ending
) -> int:
    async with AsyncExitStack() as stack:
        ledger = None
        if path is not None:
            ledger = SqliteLedger(path)
            await ledger.open()
            stack.push_async_callback(ledger.close)
            asked.options["ledger"] = ledger
        clients = Clients(asked, stack)
        jobs = Jobs(clients, dict([await clients.job(text) for text in texts]))
        if ledger is not None:
            end.failed += await jobs.go_on(ledger)
        try:
            await jobs.wait(timeout, end)
        except WaitTimeout as error:
            click.echo(f"bide: {error}", err=True)
            return TIMED_OUT
    return FAILED if end.failed else 0


class Jobs:
    """What is waited for, by API, address and id."""

    def __init__(self, clients: Clients, handles: dict[Key, JobHandle]) -> None:
        self._clients = clients
        self._handles = handles
        self._kept = False  # there is a ledger
        self._telling: set[asyncio.Task[None]] = set()

    async def go_on(self, ledger: Ledger) -> int:
        """Adds what the ledger has and leaves out what was told already; how many of those had failed."""
        self._kept = True
        open_places = {
            entry.key[:2]: None
            for entry in await ledger.entries()
            if not entry.told and self._clients.concerned(entry)
        }
        await self._clients.of_ledger(open_places)
        # Before anything is compared: this renames the jobs that an earlier version stored by their id alone.
        untold = {place: await client.untold() for place, client in self._clients.all.items()}
        entries = await ledger.entries()
        mine = [
            entry for entry in entries if self._clients.concerned(entry) or entry.key in self._handles
        ]
        told = [entry for entry in mine if entry.told]
        failed = sum(entry.status not in SUCCESSFUL for entry in told)
        for entry in told:
            self._handles.pop(entry.key, None)
        for place, handles in untold.items():
            for handle in handles:
                self._handles.setdefault((*place, handle.id), handle)
        if told:
            click.echo(f"bide: {len(told)} had ended before, {failed} of them failed", err=True)
        if len(mine) < len(entries):
            others = len(entries) - len(mine)
            click.echo(f"bide: {others} of other APIs or addresses are left alone", err=True)
        return failed

    async def wait(self, timeout: float | None, end: Ending) -> None:
        clients = {handle: self._clients.all[key[:2]] for key, handle in self._handles.items()}
        if not clients:
            return
        several = len({key[:2] for key in self._handles}) > 1
        places = {handle: key[1] or key[0] for key, handle in self._handles.items()} if several else {}
        gc.freeze()  # a hundred thousand jobs stay as they are: looking through them again and again is a tenth of the time
        advising = asyncio.create_task(_advise(set(clients.values())))
        first = next(iter(clients.values()))
        try:
            async for handle in first.as_completed(clients, timeout=timeout, progress=True):
                told = await end.tell(handle, clients[handle].api, places.get(handle, ""))
                if told and self._kept:
                    self._tell(clients[handle], handle)
        finally:
            advising.cancel()
            await asyncio.gather(advising, *self._telling, return_exceptions=True)

    def _tell(self, client: AsyncClient, handle: JobHandle) -> None:
        """Not waited for: so that one commit has the ends of many."""

        async def tell() -> None:
            try:
                await client.told(handle)
            except SetupError as error:
                click.echo(f"bide: {handle.id} will be told again: {error}", err=True)

        task = asyncio.create_task(tell())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)


async def _advise(clients: Iterable[AsyncClient]) -> None:
    """Says it once when a budget cannot carry the load, and again when it is known better or has changed much."""
    said: dict[AsyncClient, tuple[Advice, bool]] = {}
    await asyncio.sleep(FIRST_ADVICE)
    while True:
        for client in clients:
            advice, guess = client.advice(), (await client.account()).guesses
            if advice is not None and not advice.enough and _news(advice, guess, said.get(client)):
                said[client] = (advice, guess)
                note = ". That is a guess: no job has ended yet" if guess else ""
                click.echo(f"bide: {client.api}: {advice}{note}", err=True)
        await asyncio.sleep(NEXT_ADVICE)


def _news(advice: Advice, guess: bool, before: tuple[Advice, bool] | None) -> bool:
    if before is None:
        return True
    last, guessed = before
    pairs = ((advice.needed, last.needed), (advice.delay, last.delay))
    much = any(not 1 / MUCH < now / max(then, 1e-9) < MUCH for now, then in pairs)
    return much and not (guess and guessed)


class Trouble(logging.Handler):
    """Says on stderr why nothing seems to happen; once, when all jobs have the same trouble."""

    _last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text != self._last:
            click.echo(f"bide: {text}", err=True)
        self._last = text
