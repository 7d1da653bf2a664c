"""One run of a pipeline: takes each export from phase to phase, and publishes each output after its exports.

1. A phase is on disk before the next one begins. Another process resumes a killed run from the checkpoint.
2. An export that fails or stops does not affect the others. A problem of all exports, such as a rejected credential or a
   full disk, halts the run and changes no phase.
3. A run whose outputs are all published sends no request and writes no file.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import msgspec

from bide.client.client import AsyncClient
from bide.client.http.retrying import RetryPolicy
from bide.client.options import ClientOptions
from bide.client.timing import Timing
from bide.core.clock import render_instant
from bide.core.errors import BideError, ServiceError, ServiceUnreachable
from bide.core.pacing.backoff import backoff
from bide.pipeline.plan.form import ListingTable
from bide.pipeline.plan.loader import PipelinePlan
from bide.pipeline.run.checkpoint import Checkpoint
from bide.pipeline.run.context import (
    ExportRefused,
    ExportStopped,
    ExportUpdate,
    RunContext,
    RunHalted,
    explained,
)
from bide.pipeline.run.exports import PlannedExport, RunRecord, outputs, planned_exports, since_of
from bide.pipeline.run.initiate import initiate
from bide.pipeline.run.listing import list_values
from bide.pipeline.run.monitor import monitor
from bide.pipeline.run.phase import Export, Phase, PhaseEvent, advance
from bide.pipeline.run.publication import OutputGroup, OutputUpdate, check, preload, publish, unchanged
from bide.pipeline.run.resolve import intact, resolve

Step = Callable[[RunContext, PlannedExport, Export], Awaitable[Export]]
AT_THE_API: dict[Phase, Step] = {
    Phase.NEW: initiate,
    Phase.INITIATING: initiate,
    Phase.INITIATED: monitor,
}
AFTERWARDS: dict[Phase, Step] = {Phase.READY: resolve}
PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds before a failed export is submitted again


@dataclass(frozen=True)
class RunOptions:
    """Which run to resume or start, and how."""

    period: str | None = None  # the name of the run; another name starts another run
    fresh: bool = False  # starts a new run in any case
    scheduled: float | None = None  # the scheduled time, in epoch seconds
    resubmit: bool = False
    accept_drop: bool = False  # ignores `minimum_rows` and `max_drop`


@dataclass
class RunOutcome:
    """How a run ended."""

    run: RunRecord
    outputs: list[OutputUpdate] = field(default_factory=list)
    exports: list[Export] = field(default_factory=list)
    requests: int = 0

    @property
    def failed(self) -> list[Export]:
        return [export for export in self.exports if export.error is not None]

    @property
    def good(self) -> bool:
        return not self.failed and all(output.good for output in self.outputs)


def client_of(
    plan: PipelinePlan, timing: Timing | None = None, budget: str | None = None
) -> AsyncClient:
    """The client of the pipeline. SetupError if its credential is missing."""
    table = plan.table.api
    options = ClientOptions(limit=table.limit, headers=table.headers, budget=budget)
    options.update(plan.table.polling.options())  # type: ignore[typeddict-item]
    own = plan.api.name == "bide"
    url, api = (plan.api.url, "bide") if own else (None, plan.api)
    return AsyncClient(url, plan.key(), api=api, timing=timing, **options)


class PipelineRun:
    """`on_export` is called for each change of an export, `on_output` for each change of an output."""

    def __init__(
        self,
        plan: PipelinePlan,
        checkpoint: Checkpoint,
        *,
        on_export: Callable[[ExportUpdate], object] = lambda update: None,
        on_output: Callable[[OutputUpdate], object] = lambda update: None,
        timing: Timing | None = None,
        budget: str | None = None,
    ) -> None:
        """`budget` is the URL of a budget that several machines share."""
        self._budget = budget
        self._plan = plan
        self._checkpoint = checkpoint
        self._on_export = on_export
        self._on_output = on_output
        self._timing = timing or Timing()
        self._exports: dict[str, Export] = {}

    async def run(self, options: RunOptions | None = None) -> RunOutcome:
        """RunHalted or SetupError if it cannot continue. Another call resumes it."""
        options = options or RunOptions()
        check(self._plan.datasets)
        preloading = asyncio.create_task(asyncio.to_thread(preload))
        client = client_of(self._plan, self._timing, self._budget)
        async with self._checkpoint.writing(), client:
            context = await self._context(client, options)
            run = await self._begin(context, options)
            context.run_id = run.id
            found = planned_exports(self._plan, run)
            groups = _groups(found)
            self._restore(context, found, groups)
            outcome = RunOutcome(run)
            try:
                async with asyncio.TaskGroup() as tasks:
                    going = [
                        tasks.create_task(self._output(context, run, group, options)) for group in groups
                    ]
            except* BideError as several:
                raise _first(several) from None
            outcome.outputs = [task.result() for task in going]
            outcome.exports = [self._exports[w.export.key] for w in found]
            outcome.requests = client.requests
        await preloading
        run.finished = self._timing.wall()
        self._checkpoint.finish(run)
        return outcome

    async def _context(self, client: AsyncClient, options: RunOptions) -> RunContext:
        table, account = self._plan.table.api, client.account
        account.knowledge = self._checkpoint
        # All exports wait for the end of an outage together: see RunContext.retrying.
        account.policy = RetryPolicy(tries=1, warn_at=0)
        concurrent = table.concurrent or account.api.concurrent
        return RunContext(
            account,
            self._checkpoint,
            self._timing,
            table.patience,
            self._update,
            "",
            resubmit=options.resubmit,
            downloads=asyncio.Semaphore(table.downloads),
            slots=asyncio.Semaphore(concurrent) if concurrent else None,
        )

    def _update(self, update: ExportUpdate) -> None:
        if update.moved:
            self._exports[update.export.key] = update.export
        self._on_export(update)

    # --- the start of a run

    async def _begin(self, context: RunContext, options: RunOptions) -> RunRecord:
        """The run of the checkpoint, or a new one."""
        run = self._checkpoint.run()
        other = run is not None and options.period is not None and run.period != options.period
        if run is not None and not options.fresh and not other:
            return run
        began = self._timing.wall()
        run = RunRecord(
            id=secrets.token_hex(8),
            period=options.period or render_instant(began)[:10],
            began=began,
            scheduled=options.scheduled,
        )
        run.listed = await self._list(context)
        before = self._checkpoint.published()
        for output, dataset in outputs(self._plan, run).items():
            if dataset.table.since is not None:
                run.since[output] = since_of(dataset.table.since, before.get(output))
        self._checkpoint.begin(run)
        return run

    async def _list(self, context: RunContext) -> dict[str, dict[str, list[str | int]]]:
        found: dict[str, dict[str, list[str | int]]] = {}
        retrying = context.retrying(context.account.api.url or "")
        for dataset in self._plan.datasets:
            for name, listing in dataset.values.items():
                if isinstance(listing, ListingTable):
                    try:
                        values = await list_values(context.account, retrying, name, listing)
                    except (ServiceError, ServiceUnreachable) as error:
                        raise RunHalted(f"the listing of {name} failed: {error}") from error
                    found.setdefault(dataset.name, {})[name] = values
        return found

    def _restore(
        self, context: RunContext, found: Sequence[PlannedExport], groups: Sequence[OutputGroup]
    ) -> None:
        """Restore the exports from the checkpoint. Exports that must be repeated start again."""
        known = self._checkpoint.exports()
        for one in found:
            before = known.get(one.export.key, one.export)
            self._exports[before.key] = msgspec.structs.replace(before, output=one.export.output)
        published = self._checkpoint.published()
        for group in groups:
            exports = [self._exports[w.export.key] for w in group.planned]
            same = unchanged(group, exports, published.get(group.output))
            for export in exports:
                self._exports[export.key] = export if same else self._reopened(export)
        self._checkpoint.replace([self._exports[w.export.key] for w in found])
        for export in self._exports.values():
            if export.ref is not None:
                context.claim(export.ref, export.name)

    def _reopened(self, export: Export) -> Export:
        there = intact(self._checkpoint.files(export.key), export.files)
        if export.phase is Phase.FAILED:
            return advance(export, PhaseEvent.AGAIN)
        if export.phase is Phase.PUBLISHED:
            return advance(export, PhaseEvent.REOPENED if there else PhaseEvent.AGAIN)
        if export.phase is Phase.RESOLVED and not there:
            return advance(export, PhaseEvent.LOST)
        return msgspec.structs.replace(export, error=None)

    # --- the exports and outputs of a run

    async def _output(
        self, context: RunContext, run: RunRecord, group: OutputGroup, options: RunOptions
    ) -> OutputUpdate:
        async with asyncio.TaskGroup() as tasks:
            for one in group.planned:
                tasks.create_task(self._advance(context, one))
        exports = [self._exports[w.export.key] for w in group.planned]
        update = await self._publish(run, group, exports, options.accept_drop)
        self._on_output(update)
        if update.stage == "published" and not update.missing:
            # The next run needs the downloaded files only if an export is missing.
            await asyncio.to_thread(self._checkpoint.discard, *(export.key for export in exports))
        return update

    async def _publish(
        self, run: RunRecord, group: OutputGroup, exports: Sequence[Export], accept_drop: bool
    ) -> OutputUpdate:
        before = self._checkpoint.published().get(group.output)
        if unchanged(group, exports, before):
            return group.update("unchanged", report=before.report if before is not None else None)
        missing = tuple(e.name for e in exports if e.phase is not Phase.RESOLVED)
        if len(missing) == len(exports) or (missing and group.dataset.table.failed == "refuse"):
            what = f"{len(missing)} of {len(exports)} exports are missing"
            return group.update(
                "refused", missing=missing, error=f"{what}. The published output is unchanged"
            )
        self._on_output(group.update("normalizing", missing=missing))
        update = await publish(self._checkpoint, run, group, exports, accept_drop=accept_drop)
        if update.stage == "published":
            for export in exports:
                if export.phase is Phase.RESOLVED:
                    self._update(ExportUpdate(advance(export, PhaseEvent.PUBLISHED)))
        return update

    async def _advance(self, context: RunContext, one: PlannedExport) -> None:
        """Take one export as far as possible."""
        tries = 0
        while not self._exports[one.export.key].phase.settled:
            try:
                await self._attempt(context, one)
            except ExportStopped as stopped:
                await context.stop(self._exports[one.export.key], stopped.error)
                return
            except ExportRefused as refused:
                failed = await context.step(
                    self._exports[one.export.key], PhaseEvent.REFUSED, error=refused.error
                )
                tries += 1
                if tries > max(one.dataset.table.retries, int(refused.lost)):
                    return
                await self._timing.sleep(backoff(tries - 1, PAUSE, LONGEST_PAUSE, context.rng))
                await context.step(failed, PhaseEvent.AGAIN)

    async def _attempt(self, context: RunContext, one: PlannedExport) -> None:
        if self._exports[one.export.key].phase in AT_THE_API:
            async with context.slots or nullcontext():
                await self._steps(context, one, AT_THE_API)
        await self._steps(context, one, AFTERWARDS)

    async def _steps(self, context: RunContext, one: PlannedExport, steps: dict[Phase, Step]) -> None:
        while (export := self._exports[one.export.key]).phase in steps:
            await steps[export.phase](context, one, export)


def _groups(found: Sequence[PlannedExport]) -> list[OutputGroup]:
    groups: dict[str, list[PlannedExport]] = {}
    for one in found:
        groups.setdefault(one.export.output, []).append(one)
    return [
        OutputGroup(output, several[0].path, several[0].dataset, tuple(several))
        for output, several in groups.items()
    ]


def _first(several: BaseExceptionGroup[BideError]) -> BideError:
    """The first error of a group."""
    error: BaseException = several
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return explained(error) if isinstance(error, BideError) else RunHalted(str(error))
