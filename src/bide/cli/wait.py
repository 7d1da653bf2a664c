"""`bide wait`: waits for jobs of any API and reports how each ended; with a ledger it resumes after a crash.

With a ledger each completion is reported at least once. The ledger stores the settings of the wait, so that
`bide wait --ledger FILE` alone resumes it. Bars, advice and warnings are on stderr.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from typing import Any, Literal, cast

import click

from bide.cli import FAILED, TIMED_OUT
from bide.cli.clients import Clients, CommandTarget, api_option, budget_option
from bide.cli.command_text import command_text, job_words, value_text
from bide.cli.ended_jobs import EndedJobs
from bide.cli.logs import LogFormat
from bide.cli.options import log_format as log_format_option
from bide.cli.options import metrics as metrics_option
from bide.cli.options import polling as polling_options
from bide.cli.options import timeout as timeout_option
from bide.cli.output import LogPrinter, Terminal, ignore_change, json_option, verbose_option
from bide.cli.settings import Connection, speaks_to_service
from bide.cli.targets import check_rate, read_headers, read_targets, similar_file
from bide.cli.trust import trust_option
from bide.client.client import AsyncClient
from bide.client.job import JobHandle, as_completed
from bide.client.ledger import ApiAddress, WaitSettings
from bide.client.ledger.sqlite import SqliteLedger
from bide.client.metrics import metrics_file
from bide.client.options import ClientOptions, Timeout
from bide.client.polling_options import POLLING_OPTIONS
from bide.core.errors import WaitTimeout
from bide.core.pacing.advice import Advice

FIRST_ADVICE, NEXT_ADVICE = 5.0, 60.0  # seconds after the start, and between two checks
MUCH = 2.0  # the factor by which advice must change before it is printed again
# The flags that a ledger does not store, in a command that resumes.
NOT_STORED = (
    "headers",
    "key",
    "key_file",
    "budget",
    "processes",
    "command",
    "as_json",
    "verbose",
    "log_format",
    "metrics",
)


@click.command()
@click.argument("targets", nargs=-1, metavar="[ID|URL|@FILE|-]...")
@api_option
@trust_option
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=read_headers,
    help="A header of every request: 'NAME: VALUE'. May be repeated.",
)
@timeout_option("Seconds after which the command stops waiting. The jobs continue.")
@click.option(
    "--limit",
    callback=check_rate,
    help="How many requests the API allows: 60/1m is 60 per minute; 60/1m:10 allows 10 of them at once.",
)
@polling_options
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="Processes that poll. Use more than one for tens of thousands of jobs.  [default: 1]",
)
@budget_option
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that stores the jobs and the settings of this command, except keys, headers and --exec. After an "
    "interruption or a crash, `bide wait --ledger FILE` alone resumes.",
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
@verbose_option
@log_format_option()
@metrics_option()
@json_option
@speaks_to_service
@click.pass_context
def wait(
    ctx: click.Context,
    /,
    connection: Connection,
    targets: tuple[str, ...],
    api: str | None,
    trust: bool,
    timeout: float | Literal["none"] | None,
    ledger: Path | None,
    out: Path | None,
    command: str | None,
    verbose: bool,
    log_format: LogFormat,
    metrics: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Wait for jobs and print how each ended.

    A job is an id or a URL; @FILE and - (stdin) contain one per line, or the output of --json. The last line on stderr
    counts the jobs and the requests; refused requests are those that the API rejected because of its limit. Exit code:
    0 all succeeded, 1 some failed, 2 usage error, 3 timed out, 130 interrupted.

    \b
    Examples:
      bide wait 01JC3X8M0V5T6Q7R8S9A0B1C2D --timeout 600
      bide submit transcode -i @job.json | bide wait - --json
      bide wait @jobs.txt --exec 'jq .result.url'
      bide wait @ids.txt --api sync.so --limit 60/1m --ledger films.ledger --out films
      bide wait --ledger films.ledger
      bide wait @half.txt --api sync.so --limit 60/1m --budget redis://budgets.example.org/0
    """
    texts = read_targets(targets)
    if not texts:
        _check_ledger(ledger, targets)
    target = CommandTarget(connection, api, cast(ClientOptions, options), trust)
    terminal = Terminal(log_format)
    described = api is not None and (api.endswith(".toml") or "/" in api)
    settings = WaitSettings(
        description=str(Path(cast(str, api)).absolute()) if described else None,
        out=None if out is None else str(out.absolute()),
        limit=options["limit"],
        timeout=timeout,
        **{name: options[name] for name in POLLING_OPTIONS},
    )
    end = EndedJobs(terminal, as_json, command)
    run = WaitRun(target, terminal, end, ledger, settings, verbose, metrics)
    try:
        with LogPrinter(terminal, verbose=verbose):
            code = asyncio.run(run.run(texts))
    except KeyboardInterrupt:
        if (hint := _hint(ctx, run)) is not None:
            terminal.note(hint)
        raise
    raise click.exceptions.Exit(code)


def _check_ledger(path: Path | None, targets: tuple[str, ...]) -> None:
    """Without jobs on the command line, the ledger must exist: a wrong name would create an empty one."""
    if path is None:
        found = f"no jobs in {' '.join(targets)}" if targets else "no jobs"
        raise click.UsageError(
            f"{found}: give ids, URLs, @FILE or -, or --ledger FILE with a ledger that has jobs"
        )
    if not path.exists():
        hint = similar_file(path, "*.ledger") or "Give jobs to start a new one."
        raise click.UsageError(f"There is no ledger {path}. {hint}")


def _hint(ctx: click.Context, run: WaitRun) -> str | None:
    """The command that resumes an interrupted wait; None if all jobs have ended."""
    if run.stored:
        flags = list(NOT_STORED)
        if "@" in run.target.connection.url:  # the ledger stores the URL without its password
            flags.insert(0, "url")
        return f"resume with: {command_text(ctx, 'wait', ['--ledger', str(run.path)], flags)}"
    if not run.unfinished:
        return None
    names = [parameter.name or "" for parameter in ctx.command.params]
    flags = [name for name in names if name != "trust"]  # the confirmation is stored
    again = command_text(ctx, "wait", job_words(list(run.unfinished)), flags)
    advice = "" if run.path is not None else " With --ledger FILE, a short command resumes."
    return f"the jobs are not affected.{advice} Wait for them again with: {again}"


@dataclass
class WaitRun:
    """One run of the command."""

    target: CommandTarget
    terminal: Terminal
    end: EndedJobs
    path: Path | None
    given: WaitSettings
    verbose: bool = False
    metrics: Path | None = None
    stored: bool = False  # the ledger has all jobs and the settings
    unfinished: dict[str, None] = field(default_factory=dict)  # given jobs that have no reported end
    failed_before: int = 0  # jobs that an earlier run has reported
    _texts: dict[tuple[ApiAddress, str], str] = field(default_factory=dict)  # of the given jobs

    async def run(self, texts: list[str]) -> int:
        """Return the exit code."""
        timed_out, left = False, 0
        self.unfinished = dict.fromkeys(texts)
        clients: Clients | None = None
        try:
            async with metrics_file(self.metrics), AsyncExitStack() as stack:
                ledger, saved = None, {}
                if self.path is not None:
                    ledger = SqliteLedger(self.path)
                    await ledger.open()
                    stack.push_async_callback(ledger.close)
                    self.target.options["ledger"] = ledger
                    saved = ledger.settings
                clients = Clients(self.target, stack, self.given, saved)
                jobs: dict[ApiAddress, dict[str, JobHandle]] = {}
                for text in texts:
                    place, handle = clients.job(text)
                    if self._texts.setdefault((place, handle.id), text) != text:
                        del self.unfinished[text]  # an id and a URL of the same job
                    jobs.setdefault(place, {})[handle.id] = handle
                if ledger is not None:
                    await self._resume(clients, ledger, jobs)
                left = sum(map(len, jobs.values()))
                try:
                    await self._wait(clients, jobs, acknowledge=ledger is not None)
                except WaitTimeout as error:
                    self.terminal.note(error.describe("--timeout"))
                    timed_out = True
        finally:
            # After the clients are closed: polling processes report their last requests then.
            if clients is not None and left:
                done, failed = self.end.done, self.end.failed
                rest = f", {left - done - failed} not ended" if left > done + failed else ""
                requests = sum(client.requests for client in clients.all.values())
                refused = sum(client.refused for client in clients.all.values())
                sent = "1 request" if requests == 1 else f"{requests} requests"
                self.terminal.note(f"{done} done, {failed} failed{rest}, {sent}, {refused} refused")
        if timed_out:
            return TIMED_OUT
        return FAILED if self.end.failed or self.end.unknown or self.failed_before else 0

    async def _resume(
        self,
        clients: Clients,
        ledger: SqliteLedger,
        jobs: dict[ApiAddress, dict[str, JobHandle]],
    ) -> None:
        """Add the unacknowledged jobs of the ledger, and drop acknowledged ones. Store the settings."""
        given = bool(jobs)
        counts = await ledger.counts()
        if not counts and not given:
            raise click.UsageError(f"The ledger {self.path} has no jobs. Give ids, URLs, @FILE or -")
        clients.open_all(
            place for place, found in counts.items() if found.unacknowledged and clients.concerned(place)
        )
        changed = {
            place: found for place, found in clients.settings.items() if found != clients.saved[place]
        }
        if changed:
            # Before the jobs: after a crash in between, no job is without its settings.
            await ledger.remember(changed)
        for place, client in clients.all.items():
            handles = await client.resume(*jobs.get(place, {}).values())
            jobs[place] = {handle.id: handle for handle in handles}
            used = join(_flags(clients.saved[place], self.given))
            if handles and used:
                self.terminal.note(f"settings from the ledger for {place.api}: {used}")
        self.stored = True
        mine = [
            found for place, found in counts.items() if clients.concerned(place) or place in clients.all
        ]
        ended = sum(one.acknowledged for one in mine)
        self.failed_before = sum(one.failed for one in mine)
        if ended:
            rest = "" if any(jobs.values()) else ". No job is left to wait for"
            self.terminal.note(f"{ended} had ended before, {self.failed_before} of them failed{rest}")
        total = sum(one.acknowledged + one.unacknowledged for one in counts.values())
        others = total - sum(one.acknowledged + one.unacknowledged for one in mine)
        if others:
            self.terminal.note(f"not waiting for {others} jobs of other APIs or addresses")

    async def _wait(
        self,
        clients: Clients,
        jobs: dict[ApiAddress, dict[str, JobHandle]],
        *,
        acknowledge: bool,
    ) -> None:
        places = {handle: place for place, handles in jobs.items() for handle in handles.values()}
        if not places:
            return
        settings = clients.settings
        several = len(set(places.values())) > 1
        gc.freeze()  # with 100,000 jobs the garbage collector would take a tenth of the time
        advising = asyncio.create_task(
            _advise({clients.all[place] for place in places.values()}, self.terminal)
        )
        acknowledging: set[asyncio.Task[None]] = set()

        def acknowledged(task: asyncio.Task[None]) -> None:
            acknowledging.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.terminal.note(f"{task.get_name()} will be reported again: {error}")

        ended = as_completed(
            places,
            timeout=_longest([settings[place] for place in set(places.values())]),
            progress=self.terminal.console,
            on_change=ignore_change if self.verbose else None,
        )
        try:
            async for handle in ended:
                place = places[handle]
                out = settings[place].out
                folder = None if out is None else Path(out)
                where = (place.base or place.api) if several else ""
                done = await self.end.report(handle, place.api, folder, where)
                if done:
                    self.unfinished.pop(self._texts.get((place, handle.id), ""), None)
                if done and acknowledge:
                    # Not awaited, so that one commit acknowledges many jobs.
                    task = asyncio.create_task(clients.all[place].acknowledge(handle), name=handle.id)
                    acknowledging.add(task)
                    task.add_done_callback(acknowledged)
        finally:
            await ended.aclose()  # the bars disappear before the last lines
            advising.cancel()
            await asyncio.gather(advising, *acknowledging, return_exceptions=True)


def _flags(settings: WaitSettings, given: WaitSettings) -> list[str]:
    """The stored settings that this command uses because it does not have its own, as flags."""
    flags = {"description": "--api", "out": "--out", "limit": "--limit"}
    flags |= {name: option.flag for name, (_, option) in POLLING_OPTIONS.items()}
    found: list[str] = []
    for name, flag in (flags | {"timeout": "--timeout"}).items():
        value = getattr(settings, name)
        if value is not None and getattr(given, name) is None:
            found += [flag or f"--{name.replace('_', '-')}", value_text(value)]
    return found


def _longest(settings: list[WaitSettings]) -> Timeout:
    """The timeout of a wait for jobs of several places."""
    timeouts = {one.timeout for one in settings}
    if "none" in timeouts:
        return None
    if None in timeouts:
        return "default"
    return max(one for one in timeouts if isinstance(one, float))


async def _advise(clients: Iterable[AsyncClient], terminal: Terminal) -> None:
    """Print advice if a budget is too small for the load, and again after it has changed much."""
    said: dict[AsyncClient, tuple[Advice, bool]] = {}
    await asyncio.sleep(FIRST_ADVICE)
    while True:
        for client in clients:
            advice, guess = client.advice(), client.account.guesses
            if advice is not None and not advice.enough and _news(advice, guess, said.get(client)):
                said[client] = (advice, guess)
                note = ". This is an estimate: no job has ended yet" if guess else ""
                terminal.note(f"{client.api}: {advice}{note}")
        await asyncio.sleep(NEXT_ADVICE)


def _news(advice: Advice, guess: bool, before: tuple[Advice, bool] | None) -> bool:
    if before is None:
        return True
    last, guessed = before
    pairs = ((advice.needed, last.needed), (advice.delay, last.delay))
    much = any(not 1 / MUCH < now / max(then, 1e-9) < MUCH for now, then in pairs)
    return much and not (guess and guessed)
