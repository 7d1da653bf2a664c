"""`bide sync`: runs a pipeline, goes on with one that was cut off, or keeps it on a schedule."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
from click.core import ParameterSource

from bide.cli import FAILED
from bide.cli.clients import budget_option
from bide.cli.output import json_option, print_json, print_table
from bide.cli.syncing import SyncView, view_for
from bide.cli.trust import confirm, trust_option
from bide.cli.wait import Trouble
from bide.client.apis.demands import Demands
from bide.core.errors import SetupError
from bide.pipeline.plan.loader import PipelinePlan, load_plan
from bide.pipeline.run.checkpoint import Checkpoint
from bide.pipeline.run.exports import combinations
from bide.pipeline.run.pipeline_run import PipelineRun, RunOptions
from bide.pipeline.run.schedule import CronExpression, RunSchedule, read_cron


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
            f"no time zone {value!r}: write Europe/Berlin", ctx, parameter
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
@click.option("--url", help="Where the API is, rather than where the pipeline says.")
@click.option("--period", metavar="NAME", help="The run's name: the same one goes on, another is new.")
@click.option("--fresh", is_flag=True, help="Begin a new run, whatever was before.")
@click.option("--resubmit", is_flag=True, help="Send again what may have been sent before a crash.")
@click.option("--accept-drop", is_flag=True, help="Publish although minimum_rows or max_drop refuse it.")
@click.option("--schedule", "cron", metavar="CRON", callback=_cron, help="Stay, and run at these times.")
@click.option(
    "--zone", metavar="NAME", callback=_zone, help="The time zone of --schedule.  [default: UTC]"
)
@budget_option
@click.option("--check", is_flag=True, help="Only read the pipeline, and say what it would export.")
@trust_option
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
    as_json: bool,
) -> None:
    """Run a pipeline: export, wait, download, normalize, publish.

    A run that was cut off goes on where it was, and one that is complete is not repeated: --fresh or another --period
    begins a new one. What failed is tried again. With --schedule it stays and runs by the clock. Exit code: 0 all
    published, 1 some failed, 2 usage, 130 interrupted.

    \b
    Examples:
      bide sync grades.toml
      bide sync grades.toml --period "$(date +%F)"
      bide sync grades.toml --schedule '15 2 * * mon-fri' --zone Europe/Berlin
      bide sync grades.toml --check
    """
    if cron is not None and (period is not None or fresh or check):
        raise click.UsageError(
            "--schedule names its runs itself: leave --period, --fresh and --check out"
        )
    if cron is not None and accept_drop:
        raise click.UsageError("--accept-drop is for one run: leave --schedule out")

    def approve(found: Demands) -> None:
        if not check or found.code:
            confirm(found, trust)

    # An address in ./bide.toml is not one that the user typed.
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
    start = RunOptions(period=period, fresh=fresh, resubmit=resubmit, accept_drop=accept_drop)
    log, trouble = logging.getLogger("bide"), Trouble(logging.WARNING)
    log.addHandler(trouble)
    try:
        with Checkpoint(state or pipeline.with_suffix(".sync")) as opened:
            if cron is None:
                good = asyncio.run(_once(plan, opened, start, as_json, budget))
            else:
                by = RunSchedule(cron, zone, opened, time.time)
                keeping = _keep(by, load, start, as_json, budget)
                good = asyncio.run(keeping)
    except KeyboardInterrupt:
        click.echo("bide: run it again to go on where it was", err=True)
        raise
    finally:
        log.removeHandler(trouble)
    raise click.exceptions.Exit(0 if good else FAILED)


async def _once(
    plan: PipelinePlan, state: Checkpoint, start: RunOptions, as_json: bool, budget: str | None = None
) -> bool:
    view: SyncView = view_for(as_json)
    with view:
        sync = PipelineRun(plan, state, told=view.told, published=view.published, budget=budget)
        outcome = await sync.run(start)
    view.summary(outcome)
    return outcome.good


async def _keep(
    schedule: RunSchedule,
    plan: Callable[[], PipelinePlan],
    given: RunOptions,
    as_json: bool,
    budget: str | None,
) -> bool:
    async def once(start: RunOptions) -> None:
        await _once(
            plan(), schedule.checkpoint, replace(start, resubmit=given.resubmit), as_json, budget
        )

    at = schedule.cron.next(time.time(), schedule.zone)
    click.echo(f"bide: the next run is at {schedule.name(at)}", err=True)
    await schedule.follow(once)
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
