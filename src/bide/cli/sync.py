"""`bide sync`: runs a pipeline, resumes an interrupted run, or runs it on a schedule.

Stdout has the outputs and the exports that failed, or with --json each change as one JSON object. Stderr has the progress: a
row per export in a terminal, otherwise a line per change.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
from click.core import ParameterSource
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from bide.cli import FAILED
from bide.cli.clients import budget_option
from bide.cli.logs import LogFormat
from bide.cli.options import log_format as log_format_option
from bide.cli.options import metrics as metrics_option
from bide.cli.output import LogPrinter, Terminal, json_option, print_json, print_line, print_table
from bide.cli.trust import confirm, trust_option
from bide.client.apis.permissions import Permissions
from bide.client.metrics import metrics_file
from bide.client.progress import SHOWN, BarConsole, cell
from bide.core.errors import SetupError
from bide.pipeline.plan.loader import PipelinePlan, load_plan
from bide.pipeline.run.checkpoint import Checkpoint
from bide.pipeline.run.context import ExportUpdate
from bide.pipeline.run.exports import combinations
from bide.pipeline.run.phase import Export, Phase
from bide.pipeline.run.pipeline_run import PipelineRun, RunOptions, RunOutcome
from bide.pipeline.run.publication import OutputUpdate
from bide.pipeline.run.schedule import CronExpression, RunSchedule, read_cron

# The progress of an export in percent, by phase.
PERCENT = {
    Phase.NEW: 0,
    Phase.INITIATING: 0,
    Phase.INITIATED: 5,
    Phase.READY: 80,
    Phase.RESOLVED: 95,
    Phase.PUBLISHED: 100,
}
MONITORED = PERCENT[Phase.READY] - PERCENT[Phase.INITIATED]


def _cron(ctx: click.Context, parameter: click.Parameter, value: str | None) -> CronExpression | None:
    try:
        return None if value is None else read_cron(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def _zone(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tzinfo:
    try:
        return UTC if value is None else ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise click.BadParameter(
            f"{value!r} is not a time zone, such as Europe/Berlin", ctx, parameter
        ) from None


@click.command()
@click.argument(
    "pipeline", metavar="PIPELINE.toml", type=click.Path(dir_okay=False, exists=True, path_type=Path)
)
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the checkpoint.  [default: PIPELINE.sync, beside the pipeline]",
)
@click.option("--url", help="The URL of the API, instead of the pipeline's.")
@click.option(
    "--period",
    metavar="NAME",
    help="The name of the run. The same name resumes a run, another name starts one.",
)
@click.option("--fresh", is_flag=True, help="Start a new run, whether or not the last one is complete.")
@click.option(
    "--resubmit", is_flag=True, help="Submit exports again that may have been submitted before a crash."
)
@click.option(
    "--accept-drop",
    is_flag=True,
    help="Publish even if there are fewer rows than minimum_rows or max_drop allow.",
)
@click.option(
    "--schedule",
    "cron",
    metavar="CRON",
    callback=_cron,
    help="Keep running, and start a run at these times.",
)
@click.option(
    "--zone", metavar="NAME", callback=_zone, help="The time zone of --schedule.  [default: UTC]"
)
@budget_option
@click.option("--check", is_flag=True, help="Only check the pipeline, and list what it would export.")
@trust_option
@log_format_option()
@metrics_option()
@json_option
@click.pass_context
def sync(
    ctx: click.Context,
    pipeline: Path,
    state: Path | None,
    url: str | None,
    period: str | None,
    fresh: bool,
    resubmit: bool,
    accept_drop: bool,
    cron: CronExpression | None,
    zone: tzinfo,
    budget: str | None,
    check: bool,
    trust: bool,
    log_format: LogFormat,
    metrics: Path | None,
    as_json: bool,
) -> None:
    """Run a pipeline: export, wait, download, normalize, publish.

    An interrupted run is resumed. A complete run is not repeated; --fresh or another --period starts a new one. Exports
    that failed are retried. With --schedule the command keeps running and starts each run by the clock. Exit codes: 0 all
    published, 1 some failed, 2 usage, 130 interrupted.

    \b
    Examples:
      bide sync grades.toml
      bide sync grades.toml --period "$(date +%F)"
      bide sync grades.toml --schedule '15 2 * * mon-fri' --zone Europe/Berlin
      bide sync grades.toml --check
    """
    if cron is not None and (period is not None or fresh or check):
        raise click.UsageError("--schedule names its runs itself. Remove --period, --fresh and --check")
    if cron is not None and accept_drop:
        raise click.UsageError("--accept-drop is for one run. Remove --schedule")

    def approve(found: Permissions) -> None:
        if not check or found.code:
            confirm(found, trust)

    # The user did not type a URL of ./bide.toml.
    typed = ctx.get_parameter_source("url") is ParameterSource.COMMANDLINE

    def load() -> PipelinePlan:
        return load_plan(pipeline, url, approve, typed)

    try:
        plan = load()
    except SetupError as error:
        raise click.UsageError(str(error)) from None
    if check:
        _show(plan, as_json)
        return
    options = RunOptions(period=period, fresh=fresh, resubmit=resubmit, accept_drop=accept_drop)
    terminal = Terminal(log_format)
    try:
        with LogPrinter(terminal), Checkpoint(state or pipeline.with_suffix(".sync")) as checkpoint:
            if cron is None:
                view = view_for(as_json, terminal)
                running = _run(plan, checkpoint, options, view, budget)
            else:
                schedule = RunSchedule(cron, zone, checkpoint, time.time)
                running = _follow(schedule, load, options, lambda: view_for(as_json, terminal), budget)
            good = asyncio.run(_measured(metrics, running))
    except KeyboardInterrupt:
        click.echo("bide: run the same command again to resume", err=True)
        raise
    raise click.exceptions.Exit(0 if good else FAILED)


async def _measured(metrics: Path | None, running: Awaitable[bool]) -> bool:
    async with metrics_file(metrics):
        return await running


async def _run(
    plan: PipelinePlan, checkpoint: Checkpoint, options: RunOptions, view: SyncView, budget: str | None
) -> bool:
    with view:
        run = PipelineRun(
            plan, checkpoint, on_export=view.on_export, on_output=view.on_output, budget=budget
        )
        outcome = await run.run(options)
    view.summary(outcome)
    return outcome.good


async def _follow(
    schedule: RunSchedule,
    plan: Callable[[], PipelinePlan],
    given: RunOptions,
    new_view: Callable[[], SyncView],
    budget: str | None,
) -> bool:
    async def make_run(options: RunOptions) -> None:
        options = replace(options, resubmit=given.resubmit)
        await _run(plan(), schedule.checkpoint, options, new_view(), budget)

    at = schedule.cron.next(time.time(), schedule.zone)
    click.echo(f"bide: the next run is at {schedule.name(at)}", err=True)
    await schedule.follow(make_run)
    return True


def _show(plan: PipelinePlan, as_json: bool) -> None:
    rows = []
    for dataset in plan.datasets:
        known = all(isinstance(values, list) for values in dataset.values.values())
        count = sum(1 for _ in combinations(dataset, {})) if known else None
        row = {"dataset": dataset.name, "exports": count, "output": dataset.table.output.path}
        if as_json:
            print_json(row)
        rows.append([str(value) if value is not None else "as listed" for value in row.values()])
    if not as_json:
        print_table(("dataset", "exports", "output"), rows, empty="nothing to export")


def view_for(as_json: bool, terminal: Terminal) -> SyncView:
    if as_json:
        return JsonSyncView()
    return LiveSyncView(terminal) if terminal.shows_bars else SyncView()


class SyncView:
    """Prints lines: changes of phases on stderr, outputs on stdout."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def on_export(self, update: ExportUpdate) -> None:
        if update.moved and update.export.phase not in (Phase.NEW, Phase.INITIATING):
            print_line(_line(update.export), err=True)

    def on_output(self, update: OutputUpdate) -> None:
        if update.stage != "normalizing":
            print_line(_output(update))

    def summary(self, outcome: RunOutcome) -> None:
        for export in outcome.failed:
            print_line(_line(export))
        counts = Counter("failed" if e.error else e.phase.lower() for e in outcome.exports)
        what = ", ".join(f"{count} {word}" for word, count in sorted(counts.items(), reverse=True))
        click.echo(f"{len(outcome.exports)} exports: {what}; {outcome.requests} requests", err=True)


class JsonSyncView(SyncView):
    def on_export(self, update: ExportUpdate) -> None:
        if update.moved:
            print_json(_export(update.export))

    def on_output(self, update: OutputUpdate) -> None:
        print_json(
            {
                "output": shown(update.path),
                "dataset": update.dataset,
                "phase": update.stage.upper(),
                "report": update.report,
                "missing": update.missing,
                "error": update.error,
            }
        )

    def summary(self, outcome: RunOutcome) -> None:
        print_json(
            {
                "period": outcome.run.period,
                "phase": "ENDED",
                "good": outcome.good,
                "exports": len(outcome.exports),
                "failed": len(outcome.failed),
                "requests": outcome.requests,
            }
        )


class LiveSyncView(SyncView):
    """Shows a row per export, as many as fit, and a row for the total."""

    def __init__(self, terminal: Terminal) -> None:
        columns = (
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24, finished_style="green"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._terminal = terminal
        self._progress = Progress(*columns, console=terminal.console, transient=True)
        self._rows: dict[str, TaskID] = {}
        self._phases: dict[str, Phase] = {}
        self._all: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        if isinstance(self._terminal.console, BarConsole):
            self._terminal.console.share(self._progress)
        self._all = self._progress.add_task("all exports", total=None, note="")
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def on_export(self, update: ExportUpdate) -> None:
        export = update.export
        self._phases[export.key] = export.phase
        settled = sum(phase.settled for phase in self._phases.values())
        if self._all is not None:
            count = f"{settled} of {len(self._phases)} finished"
            self._progress.update(self._all, total=len(self._phases), completed=settled, note=count)
        row = self._rows.get(export.key)
        if row is None and len(self._rows) < SHOWN and not export.phase.settled:
            row = self._rows[export.key] = self._progress.add_task(cell(export.name), total=100, note="")
        if row is None:
            return
        if export.phase.settled or (export.error is not None and update.moved):
            self._progress.remove_task(row)
            del self._rows[export.key]
            return
        share = MONITORED * (update.percent or 0.0) / 100.0 if export.phase is Phase.INITIATED else 0.0
        note = update.message or export.phase.lower()
        done = PERCENT.get(export.phase, 0) + share
        self._progress.update(row, completed=done, note=cell(note))

    def on_output(self, update: OutputUpdate) -> None:
        if update.stage != "normalizing":
            self._terminal.result(_output(update))


def _line(export: Export) -> str:
    if export.error is None:
        return f"{export.name}: {export.phase.lower()}"
    return f"{export.name}: {export.phase.lower()}: {export.error.code}: {export.error.message}"


def _export(export: Export) -> dict[str, Any]:
    return {
        "export": export.name,
        "dataset": export.dataset,
        "phase": export.phase,
        "attempt": export.attempt,
        "jobId": export.ref.id if export.ref is not None else None,
        "files": len(export.files),
        "bytes": sum(file.size for file in export.files),
        "error": export.error,
    }


def _output(update: OutputUpdate) -> str:
    where = shown(update.path)
    if update.stage in ("refused", "failed"):
        return f"{where}: not published: {update.error}"
    report = update.report or {}
    parts = [f"{report.get('rows', 0)} rows"]
    if report.get("duplicates"):
        parts.append(f"{report['duplicates']} duplicates removed")
    if report.get("bad"):
        file = f", in {shown(Path(report['badFile']))}" if report.get("badFile") else ""
        parts.append(f"{report['bad']} bad rows{file}")
    if report.get("columnsNew"):
        parts.append(f"new columns: {', '.join(report['columnsNew'])}")
    if report.get("columnsMissing"):
        parts.append(f"missing columns: {', '.join(report['columnsMissing'])}")
    if update.missing:
        parts.append(f"without {', '.join(update.missing)}")
    return f"{where}: {update.stage}: {', '.join(parts)}"


def shown(path: Path) -> str:
    """Relative to the current folder, if the path is inside."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
