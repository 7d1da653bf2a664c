"""Store, engine and upkeep as they are, on a simulated loop, with simulated children and power cuts.

One seed and one list of deeds give one history. `World.judge` says what is wrong with it.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from bide import App, Context
from bide.core.job import Rerun, cancel
from bide.core.record import Job, Status
from bide.core.wire import Event
from bide.server.blobs.files import FileBlobs
from bide.server.config import UpkeepConfig, WorkerConfig
from bide.server.engine.embedded import EmbeddedEngine
from bide.server.estimates import Estimates
from bide.server.intake import Intake, Submission
from bide.server.store import NewJob
from bide.server.store.database import _migrate
from bide.server.store.sqlite import SqliteStore
from bide.server.store.sqlite_work import Memory, SqliteSession, SqliteWork
from bide.server.store.writer import Operation, Writer
from bide.server.upkeep import Upkeep
from bide.server.worker.protocol import Spawn
from tests.simulation.children import SimPool
from tests.simulation.loop import LoopClock, SimLoop

NOWHERE = Path("/nowhere")
app = App(queues={"leaves": 2})
ran: list[tuple[str, str, int]] = []  # job, step, fence: what handlers have really done


async def _do(ctx: Context, step: str, seconds: float) -> int:
    ran.append((ctx.job_id, step, ctx.fence))
    await asyncio.sleep(seconds)
    return ctx.fence


@app.job()
async def quick(ctx: Context, number: int) -> int:
    return number


@app.job(retries=1, backoff=1.0)
async def steps(ctx: Context, number: int) -> int:
    for step in ("first", "second"):
        await ctx.step(step, _do, ctx, step, 0.05)
    if ctx.attempt == 1 and number % 2:
        raise ValueError("once")
    return number


@app.job()
async def family(ctx: Context, number: int) -> int:
    await ctx.step("before", _do, ctx, "before", 0.01)
    total: int = sum(ctx.gather(*(ctx.spawn("leaf", number=number + i) for i in range(2))))
    await ctx.step("after", _do, ctx, "after", 0.01)
    return total


@app.job(queue="leaves")
async def leaf(ctx: Context, number: int) -> int:
    await _do(ctx, "leaf", 0.1)
    return number


@app.job(at_most_once=True)
async def once(ctx: Context, number: int) -> int:
    await _do(ctx, "once", 0.2)
    return number


@app.job(timeout=5.0)
async def slow(ctx: Context, number: int) -> int:
    await _do(ctx, "slow", 2.0 if number % 3 else 60.0)
    return number


KINDS = ("quick", "steps", "family", "once", "slow")
for _kind in app.kinds.values():
    _kind.is_async = False  # coroutines here, but the engine treats them as it does sync handlers


class Somewhere:
    work = NOWHERE
    owner = "simulated:1"


class SimWriter(Writer):
    """The writer without its thread: a commit takes a moment, and is told a moment later."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: LoopClock,
        heard: Callable[[Sequence[Event]], None],
        loop: SimLoop,
        rng: random.Random,
        memory: Memory,
    ) -> None:
        self._session = SqliteSession(connection, clock, memory)
        self._heard = heard
        self._loop = loop
        self._closed = False
        self._rng = rng
        self._queued: list[Any] = []

    def submit(
        self,
        run: Callable[[Any], Any],
        *,
        jobs: Sequence[str] = (),
        keys: Sequence[Any] = (),
        first: bool = False,
    ) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        if self._closed:  # the power is gone: nobody will ever answer
            return future
        if not self._queued:
            self._loop.call_later(self._rng.uniform(0, 0.002), self._commit)
        self._queued.append((Operation(run), future))
        return future

    def _commit(self) -> None:
        batch, self._queued = self._queued, []
        done, events = self._write([operation for operation, _ in batch])
        answers = [(future, result) for (_, future), result in zip(batch, done, strict=True)]
        self._loop.call_later(self._rng.uniform(0, 0.001), self._deliver, answers, events)

    async def close(self) -> None:
        self._closed = True


_template: bytes | None = None


def fresh_database() -> sqlite3.Connection:
    global _template
    connection = sqlite3.connect(":memory:", isolation_level=None)
    if _template is None:
        _migrate(connection)
        _template = connection.serialize()
    else:
        connection.deserialize(_template)
    return connection


class World:
    def __init__(self, seed: int) -> None:
        ran.clear()
        self.rng = random.Random(seed)
        self.loop = SimLoop()
        self.clock = LoopClock(self.loop)
        self.database = fresh_database()
        self.acknowledged: dict[str, tuple[str, int]] = {}
        self.cuts = 0
        self._later: list[tuple[int, Callable[[], None]]] = []
        self.loop.within(self._start)

    def _start(self) -> None:
        store = self.store = SqliteStore(NOWHERE, self.clock)
        store._reader = self.database
        store._read = self.database.execute
        store._writer = SimWriter(
            self.database, self.clock, self._heard, self.loop, self.rng, store._memory
        )
        blobs = FileBlobs(NOWHERE)
        self.pool = SimPool(self.loop, app, blobs, 2, self.rng)
        self.estimates = Estimates()
        self.engine = EmbeddedEngine(
            app,
            cast(Any, store),
            WorkerConfig(workers=2, lease=10.0, grace=1.0),
            Somewhere(),
            self._make_pool,
            admit=self._admit,
            progressed=lambda job_id: None,
        )
        self.engine._rng = random.Random(self.rng.random())
        self.intake = Intake(app, cast(Any, store), self.engine.nudge)
        self.upkeep = Upkeep(
            cast(Any, store), blobs, app, self.estimates, UpkeepConfig(), self.engine.nudge, work=NOWHERE
        )
        self._spawn(self._open())

    def _make_pool(self, listener: Any, sync: int, is_async: int) -> Any:
        self.pool.listener = listener
        return self.pool

    async def _open(self) -> None:
        for queue in ("default", "leaves"):
            await self.store.pause(queue, False)
        await self.store.void()
        await self.upkeep.tick()
        await self.engine.start()
        await self.upkeep.start()

    def _heard(self, events: Sequence[Event]) -> None:
        self.engine.heard(events)
        self.estimates.heard(events)
        self.upkeep.heard(events)

    async def _admit(self, message: Spawn, parent: Job) -> NewJob:
        submission = Submission(kind=message.kind, input=msgspec.Raw(message.input))
        new = await self.intake.prepare(submission, parent=parent)
        return replace(new, job=replace(new.job, id=message.child_id))

    def _spawn(self, work: Awaitable[Any]) -> None:
        self.loop.create_task(cast(Any, work))

    # --- deeds

    def submit(self, kind: str, number: int) -> None:
        async def submit() -> None:
            submission = Submission(kind=kind, input=msgspec.Raw(b'{"number":%d}' % number))
            inserted = await self.intake.submit(submission, trace_id="t")
            self.acknowledged[inserted.job.id] = (kind, number)

        self._spawn(submit())

    def cancel(self, number: int) -> None:
        async def stop() -> None:
            ids = list(self.acknowledged)
            if ids:
                (job,) = await self.store.get([ids[number % len(ids)]])
                assert isinstance(job, Job)
                await self.store.apply([cancel(job)])

        self._spawn(stop())

    def rerun(self, number: int) -> None:
        async def again() -> None:
            ids = list(self.acknowledged)
            if ids:
                await self.store.apply([Rerun(job_id=ids[number % len(ids)])])

        self._spawn(again())

    def kill(self, number: int) -> None:
        children = sorted(self.pool.children, key=lambda c: c.pid)
        if children:
            children[number % len(children)].die()

    def freeze(self, number: int) -> None:
        children = sorted(self.pool.children, key=lambda c: c.pid)
        if children:
            children[number % len(children)].freeze()

    def thaw(self, number: int) -> None:
        for child in self.pool.children:
            child.thaw()

    def pause(self, number: int) -> None:
        """For ten seconds."""
        queue = "leaves" if number % 2 else "default"
        self._spawn(self._pause(queue))

    async def _pause(self, queue: str) -> None:
        await self.store.pause(queue, True)
        await asyncio.sleep(10.0)
        await self.store.pause(queue, False)

    def cut(self, number: int) -> None:
        """The power goes, after so many more steps; the database is what was committed."""
        self._later.append((self.loop.steps + number % 50, self._cut))

    def _cut(self) -> None:
        self.cuts += 1
        self._end()
        self._start()

    def _end(self) -> None:
        self.store._writer._closed = True
        self.loop.forget_everything()

    def close(self) -> None:
        self.loop.within(self._end)
        self.loop.close()
        self.database.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    # --- time

    def run(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            for due in [d for d in self._later if d[0] <= self.loop.steps]:
                self._later.remove(due)
                self.loop.within(due[1])
            if not self.loop.step():
                raise AssertionError("nothing will ever happen again")
            if self.loop.failures:
                raise AssertionError(self.loop.failures[0])

    def act(self, deeds: Sequence[tuple[str, int, float]]) -> None:
        for what, number, pause in deeds:
            deed: Callable[..., None] = getattr(self, what, None) or partial(self.submit, what)
            self.loop.within(partial(deed, number))
            self.run(pause)

    # --- judgement

    def judge(self) -> list[str]:
        self._settle()
        wrong: list[str] = []
        rows = [self._job(row[0]) for row in self.database.execute("SELECT id FROM jobs").fetchall()]
        jobs = {job.id: job for job in rows}
        for job_id, (kind, number) in self.acknowledged.items():
            job = jobs.get(job_id)
            if job is None:
                wrong.append(f"{kind} {number} is lost")
            elif not job.status.terminal:
                wrong.append(f"{kind} {number} never ended: {job.status} {job}")
            elif job.status is Status.DONE:
                right = 2 * number + 1 if kind == "family" else number
                if job.result is None or msgspec.json.decode(job.result) != right:
                    wrong.append(f"{kind} {number} has the result {job.result!r}")
        wrong += self._judge_events(jobs)
        wrong += self._judge_steps(jobs)
        while self.engine._claims._asked_for[False]:  # room that a claim under way has set aside
            self.loop.step()
        if any(self.engine._slots.running.values()) or self.engine._running:
            wrong.append(f"slots are taken for nothing: {dict(self.engine._slots.running)}")
        return wrong

    def _settle(self, patience: float = 300.0) -> None:
        """Until everything has ended, and no late word is under way any more."""
        live = "SELECT 1 FROM jobs WHERE finished_at IS NULL LIMIT 1"
        end = self.loop.time() + patience
        quiet = False
        while not quiet and self.loop.time() < end:
            self.run(12.0)
            quiet = not self._later and self.database.execute(live).fetchone() is None

    def _job(self, job_id: str) -> Job:
        return cast(Job, SqliteWork(Memory(), self.database, 0.0).job(job_id))

    def _judge_events(self, jobs: dict[str, Job]) -> list[str]:
        ends: Counter[tuple[str, int]] = Counter()
        wrong = []
        for job_id, text in self.database.execute(
            "SELECT job_id, job FROM events WHERE type = 'status'"
        ):
            known = msgspec.json.decode(text)
            ends[job_id, known["run"]] += Status(known["status"]).terminal
        for job in jobs.values():
            expected = [1] * (job.run - 1) + [int(job.status.terminal)]
            told = [ends[job.id, run] for run in range(1, job.run + 1)]
            if told != expected:
                wrong.append(f"{job.kind} {job.id} told of its end {told}, not {expected}")
            for child in job.children:
                other = jobs.get(child.job_id)
                if other is None or (child.status is not None and other.status is not child.status):
                    wrong.append(f"{job.kind} and its child disagree: {child} {other}")
        return wrong

    def _judge_steps(self, jobs: dict[str, Job]) -> list[str]:
        kept: dict[tuple[str, str], int] = {}
        wrong = []
        for job_id, text in self.database.execute("SELECT job_id, job FROM events WHERE type = 'step'"):
            known = msgspec.json.decode(text)
            if known["step"]["status"] == "DONE":
                place = (job_id, known["step"]["name"])
                if place in kept:
                    wrong.append(f"step {place} was kept twice")
                kept[place] = known["fence"]
        times: dict[tuple[str, str], list[int]] = defaultdict(list)
        for job_id, step, fence in ran:
            times[job_id, step].append(fence)
        for (job_id, step), fences in times.items():
            if (job_id, step) in kept and max(fences) > kept[job_id, step]:
                wrong.append(f"step {step} was repeated after it was kept")
            if step == "once" and len(fences) > jobs[job_id].run:
                wrong.append("a job that may run once ran again")
        return wrong
