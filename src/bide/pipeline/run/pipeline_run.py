"""One run of a pipeline: every export carried from phase to phase, every output published once its exports are there.

1. A phase is on disk before the next one begins; a killed run goes on from the checkpoint, in another process.
2. One export that fails or stops keeps no other back. What concerns all of them, a denied credential or a full disk, halts
   the run and changes no phase.
3. A run that finds everything published as it would publish it asks nothing and writes nothing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import msgspec

from bide.client.client import AsyncClient
from bide.client.options import ClientOptions
from bide.client.timing import Timing
from bide.core.clock import render_instant
from bide.core.errors import BideError, ServiceError, ServiceUnreachable
from bide.core.retry import backoff
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
from bide.pipeline.run.exports import PlannedExport, RunRecord, outputs, since_of, wanted
from bide.pipeline.run.initiate import initiate
from bide.pipeline.run.listing import list_values
from bide.pipeline.run.monitor import monitor
from bide.pipeline.run.phase import Export, Phase, PhaseEvent, advance
from bide.pipeline.run.publication import OutputGroup, OutputUpdate, check, publish, unchanged, warm
from bide.pipeline.run.resolve import intact, resolve

Step = Callable[[RunContext, PlannedExport, Export], Awaitable[Export]]
AT_THE_API: dict[Phase, Step] = {
    Phase.NEW: initiate,
    Phase.INITIATING: initiate,
    Phase.INITIATED: monitor,
}
AFTERWARDS: dict[Phase, Step] = {Phase.READY: resolve}
PAUSE, LONGEST = 2.0, 60.0  # seconds before an export is tried again


@dataclass(frozen=True)
class RunOptions:
    """Which run is wanted."""

    period: str | None = None  # its name; another one is another run
    fresh: bool = False  # a new one, whatever was before
    scheduled: float | None = None  # epoch seconds; the moment that it is for
    resubmit: bool = False
    accept_drop: bool = False  # publish, whatever `minimum_rows` and `max_drop` say


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
    """The account of the pipeline; SetupError when its credential is nowhere."""
    table = plan.table.api
    options = ClientOptions(
        limit=table.limit,
        headers=table.headers,
        expected=None,
        budget=budget,
    )
    own = plan.api.name == "bide"
    url, api = (plan.api.url, "bide") if own else (None, plan.api)
    return AsyncClient(url, plan.key(), api=api, timing=timing, **options)


class PipelineRun:
    """`told` hears of each export, `published` of each output."""

    def __init__(
        self,
        plan: PipelinePlan,
        state: Checkpoint,
        *,
        told: Callable[[ExportUpdate], object] = lambda news: None,
        published: Callable[[OutputUpdate], object] = lambda news: None,
        timing: Timing | None = None,
        budget: str | None = None,
    ) -> None:
        """`budget`: where machines share that of the API."""
        self._budget = budget
        self._plan = plan
        self._state = state
        self._told = told
        self._published = published
        self._timing = timing or Timing()
        self._exports: dict[str, Export] = {}

    async def run(self, start: RunOptions | None = None) -> RunOutcome:
        """Halt or SetupError when it could not go on; the same call goes on later."""
        start = start or RunOptions()
        check(self._plan.datasets)
        warming = asyncio.create_task(asyncio.to_thread(warm))
        client = client_of(self._plan, self._timing, self._budget)
        async with self._state.writing(), client:
            desk = await self._desk(client, start)
            run = await self._begin(desk, start)
            desk.run_id = run.id
            found = wanted(self._plan, run)
            groups = _groups(found)
            self._recall(desk, found, groups)
            outcome = RunOutcome(run)
            try:
                async with asyncio.TaskGroup() as tasks:
                    going = [
                        tasks.create_task(self._output(desk, run, group, start)) for group in groups
                    ]
            except* BideError as several:
                raise _first(several) from None
            outcome.outputs = [task.result() for task in going]
            outcome.exports = [self._exports[w.export.key] for w in found]
            outcome.requests = client.requests
        await warming
        run.finished = self._timing.wall()
        self._state.finish(run)
        return outcome

    async def _desk(self, client: AsyncClient, start: RunOptions) -> RunContext:
        table, account = self._plan.table.api, await client.account()
        account.knowledge = self._state
        account.terms = replace(account.terms, tries=1)  # the exports wait together: see Desk.retrying
        concurrent = table.concurrent or account.api.concurrent
        return RunContext(
            account,
            self._state,
            self._timing,
            table.patience,
            self._hear,
            "",
            resubmit=start.resubmit,
            downloads=asyncio.Semaphore(table.downloads),
            room=asyncio.Semaphore(concurrent) if concurrent else None,
        )

    def _hear(self, news: ExportUpdate) -> None:
        if news.moved:
            self._exports[news.export.key] = news.export
        self._told(news)

    # --- the beginning

    async def _begin(self, desk: RunContext, start: RunOptions) -> RunRecord:
        """The run that is under way, or a new one."""
        run = self._state.run()
        other = run is not None and start.period is not None and run.period != start.period
        if run is not None and not start.fresh and not other:
            return run
        began = self._timing.wall()
        run = RunRecord(
            id=secrets.token_hex(8),
            period=start.period or render_instant(began)[:10],
            began=began,
            scheduled=start.scheduled,
        )
        run.listed = await self._list(desk)
        before = self._state.published()
        for output, dataset in outputs(self._plan, run).items():
            if dataset.table.since is not None:
                run.since[output] = since_of(dataset.table.since, before.get(output))
        self._state.begin(run)
        return run

    async def _list(self, desk: RunContext) -> dict[str, dict[str, list[str | int]]]:
        found: dict[str, dict[str, list[str | int]]] = {}
        retrying = desk.retrying(desk.account.api.url or "")
        for dataset in self._plan.datasets:
            for name, listing in dataset.values.items():
                if isinstance(listing, ListingTable):
                    try:
                        values = await list_values(desk.account, retrying, name, listing)
                    except (ServiceError, ServiceUnreachable) as error:
                        raise RunHalted(f"the listing of {name} cannot be had: {error}") from error
                    found.setdefault(dataset.name, {})[name] = values
        return found

    def _recall(
        self, desk: RunContext, found: Sequence[PlannedExport], groups: Sequence[OutputGroup]
    ) -> None:
        """What the checkpoint knows of the exports; what has to be done again begins anew."""
        known = self._state.exports()
        for one in found:
            before = known.get(one.export.key, one.export)
            self._exports[before.key] = msgspec.structs.replace(before, output=one.export.output)
        published = self._state.published()
        for group in groups:
            exports = [self._exports[w.export.key] for w in group.wanted]
            same = unchanged(group, exports, published.get(group.output))
            for export in exports:
                self._exports[export.key] = export if same else self._reopened(export)
        self._state.keep([self._exports[w.export.key] for w in found])
        for export in self._exports.values():
            if export.ref is not None:
                desk.owner(export.ref, export.name)

    def _reopened(self, export: Export) -> Export:
        there = intact(self._state.files(export.key), export.files)
        if export.phase is Phase.FAILED:
            return advance(export, PhaseEvent.AGAIN)
        if export.phase is Phase.PUBLISHED:
            return advance(export, PhaseEvent.REOPENED if there else PhaseEvent.AGAIN)
        if export.phase is Phase.RESOLVED and not there:
            return advance(export, PhaseEvent.LOST)
        return msgspec.structs.replace(export, error=None)

    # --- the way

    async def _output(
        self, desk: RunContext, run: RunRecord, group: OutputGroup, start: RunOptions
    ) -> OutputUpdate:
        async with asyncio.TaskGroup() as tasks:
            for one in group.wanted:
                tasks.create_task(self._carry(desk, one))
        exports = [self._exports[w.export.key] for w in group.wanted]
        news = await self._publish(run, group, exports, start.accept_drop)
        self._published(news)
        if news.stage == "published" and not news.missing:
            # What was downloaded is needed once more only when something is missing.
            await asyncio.to_thread(self._state.discard, *(export.key for export in exports))
        return news

    async def _publish(
        self, run: RunRecord, group: OutputGroup, exports: Sequence[Export], accept_drop: bool
    ) -> OutputUpdate:
        before = self._state.published().get(group.output)
        if unchanged(group, exports, before):
            return group.news("unchanged", report=before.report if before is not None else None)
        missing = tuple(e.name for e in exports if e.phase is not Phase.RESOLVED)
        if len(missing) == len(exports) or (missing and group.dataset.table.failed == "refuse"):
            what = f"{len(missing)} of {len(exports)} exports are missing"
            return group.news("refused", missing=missing, error=f"{what}: what was published stays")
        self._published(group.news("normalizing", missing=missing))
        news = await publish(self._state, run, group, exports, accept_drop=accept_drop)
        if news.stage == "published":
            for export in exports:
                if export.phase is Phase.RESOLVED:
                    self._hear(ExportUpdate(advance(export, PhaseEvent.PUBLISHED)))
        return news

    async def _carry(self, desk: RunContext, one: PlannedExport) -> None:
        """One export, as far as it comes."""
        tries = 0
        while not self._exports[one.export.key].phase.settled:
            try:
                await self._go(desk, one)
            except ExportStopped as stopped:
                await desk.note(self._exports[one.export.key], stopped.error)
                return
            except ExportRefused as refused:
                failed = await desk.step(
                    self._exports[one.export.key], PhaseEvent.REFUSED, error=refused.error
                )
                tries += 1
                if tries > max(one.dataset.table.retries, int(refused.lost)):
                    return
                await self._timing.sleep(backoff(tries - 1, PAUSE, LONGEST, desk.rng))
                await desk.step(failed, PhaseEvent.AGAIN)

    async def _go(self, desk: RunContext, one: PlannedExport) -> None:
        if self._exports[one.export.key].phase in AT_THE_API:
            async with desk.room or nullcontext():
                await self._steps(desk, one, AT_THE_API)
        await self._steps(desk, one, AFTERWARDS)

    async def _steps(self, desk: RunContext, one: PlannedExport, steps: dict[Phase, Step]) -> None:
        while (export := self._exports[one.export.key]).phase in steps:
            await steps[export.phase](desk, one, export)


def _groups(found: Sequence[PlannedExport]) -> list[OutputGroup]:
    groups: dict[str, list[PlannedExport]] = {}
    for one in found:
        groups.setdefault(one.export.output, []).append(one)
    return [
        OutputGroup(output, several[0].path, several[0].dataset, tuple(several))
        for output, several in groups.items()
    ]


def _first(several: BaseExceptionGroup[BideError]) -> BideError:
    """The reason that counts: whichever came first is as good as the others."""
    error: BaseException = several
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return explained(error) if isinstance(error, BideError) else RunHalted(str(error))
