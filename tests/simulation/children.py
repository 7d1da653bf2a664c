"""Simulated children: real contexts and handlers on the simulated event loop, which can be killed and stopped."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from pathlib import Path
from typing import Any, cast

from bide.core.errors import JobError
from bide.server.blobs import Blobs
from bide.server.registry import File, FileRef, Registry
from bide.server.upload_record import upload_of
from bide.server.worker import protocol as p
from bide.server.worker.context import (
    Context,
    HandlerDelayed,
    HandlerParked,
    HandlerStopped,
    code_of,
    given_file,
    to_json,
)
from bide.server.worker.supervisor import PoolListener
from tests.simulation.loop import SimLoop, context_of

BEAT = 1.5  # seconds between two heartbeats


class SimChild:
    """A child as the engine uses it, and the simulated process behind it."""

    def __init__(self, name: str, pool: SimPool) -> None:
        self.name = name
        self.pid = pool.count
        self.is_async = False
        self.state = "starting"
        self.started = 0.0
        self.jobs_done = 0
        self.killed = False
        self.exit_text = "killed"
        self.process = f"{pool.process}/{name}"
        self._pool = pool
        self._loop = pool.loop
        self.last_heartbeat = self._loop.time()
        self._line: deque[p.RunJob] = deque()
        self._to_child: deque[Any] = deque()
        self._to_service: deque[Any] = deque()
        self._answers: dict[int, asyncio.Future[p.StepReply]] = {}
        self._current: Context | None = None
        self._working = False
        self.gone = False
        self._within = context_of(self.process)
        self._service = context_of(pool.process)
        self._later(pool.delay(0.2), self._start)

    def __hash__(self) -> int:
        return self.pid  # so that a set of them has the same order in every run

    @property
    def frozen(self) -> bool:
        return self._loop.is_stopped(self.process)

    # --- from the engine

    def send(self, message: p.ChildMessage, *, at_once: bool = False) -> None:
        self._to_child.append(message)
        self._later(self._pool.delay(0.001), self._receive)

    def hand_over(self, message: p.ChildMessage) -> bool:
        if self.gone or self.state != "idle" or self._pool.rng.random() < 0.2:
            return False
        self.send(message)
        return True

    def request_stop(self, job_id: str, fence: int) -> None:
        self._later(self._pool.delay(0.01), self._stop_requested, job_id, fence)

    def request_return(self) -> None:
        self._later(self._pool.delay(0.01), self._return_jobs)

    def request_exit(self) -> None:
        self.state = "leaving"
        self.send(p.ExitChild())

    def terminate(self) -> None:
        self.kill()

    def kill(self, *, lost: bool = False) -> None:
        self.killed = not lost
        self.die()

    def mark_alive(self, now: float) -> None:
        self.last_heartbeat = now

    def memory(self) -> int:
        return 0

    def check(self) -> None:
        pass

    # --- messages to the service

    def _deliver(self) -> None:
        self.last_heartbeat = self._loop.time()
        if self._to_service and not self.gone:
            message = self._to_service.popleft()
            if message is not None:
                self._pool.listener.received(cast(Any, self), message)

    def _ready(self) -> None:
        if not self.gone:
            self.state = "idle"
            self.last_heartbeat = self._loop.time()
            self._pool.listener.ready(cast(Any, self))

    def _ended(self) -> None:
        """Deliver its messages, and then report its exit."""
        while self._to_service:
            message = self._to_service.popleft()
            if message is not None:
                self._pool.listener.received(cast(Any, self), message)
        self._pool.ended(self)

    # --- the child itself

    def _later(self, delay: float, function: Any, *args: Any) -> None:
        self._loop.call_later(delay, function, *args, context=self._within)

    def _start(self) -> None:
        self._loop.call_soon(self._ready, context=self._service)
        self._beat()

    def _beat(self) -> None:
        self.say(None)
        self._later(BEAT, self._beat)

    def _receive(self) -> None:
        message = self._to_child.popleft()
        if isinstance(message, p.RunJob):
            self._line.append(message)
            if not self._working:
                self._working = True
                self._task = self._loop.create_task(self._work(), context=self._within)
        elif isinstance(message, p.StepReply):
            answer = self._answers.pop(message.number)
            if not answer.done():  # its handler was stopped since
                answer.set_result(message)
        elif isinstance(message, p.ExitChild):
            self._later(0.01, self.die)

    def _stop_requested(self, job_id: str, fence: int) -> None:
        context = self._current
        if context is not None and (context.job_id, context.fence) == (job_id, fence):
            context.request_stop()
            if self._working:
                self._task.cancel()

    def _return_jobs(self) -> None:
        jobs = [(run.job_id, run.fence) for run in self._line]
        self._line.clear()
        self.say(p.JobsReturned(jobs))

    def die(self) -> None:
        if not self.gone:
            self.gone = True
            self._loop.call_soon(self._loop.kill_process, self.process)
            self._loop.call_soon(self._ended, context=self._service)

    def runs(self, job_id: str, fence: int) -> bool:
        """Whether its handler runs this attempt, or will run it."""
        current = self._current
        running = [] if current is None else [(current.job_id, current.fence)]
        return not self.gone and (job_id, fence) in [
            *running,
            *((run.job_id, run.fence) for run in self._line),
        ]

    def say(self, message: p.ChildMessage | None) -> None:
        if not self.gone:
            self._to_service.append(message)
            self._loop.call_later(self._pool.delay(0.001), self._deliver, context=self._service)

    def asked(self, message: p.StepRequest) -> asyncio.Future[p.StepReply]:
        self._pool.asked += 1
        message.number = self._pool.asked
        answer = self._answers[message.number] = self._loop.create_future()
        self.say(message)
        return answer

    async def _work(self) -> None:
        try:
            while self._line:
                await self._run(self._line.popleft())
        finally:
            self._working = False

    async def _run(self, run: p.RunJob) -> None:
        pool = self._pool
        context = Context(run, SimChannel(self), pool.registry, pool.blobs, pool.work)
        self._current = context
        where = run.job_id, run.fence
        kind = pool.registry.kind(run.kind)
        given = {(g.job, "" if upload_of(g.job) else g.file.name): g for g in run.files}

        def resolve(ref: FileRef) -> File:
            return given_file(given[ref.job, ref.name], context.fetch)

        message: p.ChildMessage
        failure: Exception | None = None
        try:
            await asyncio.sleep(pool.delay(0.002))
            values = kind.read_input(run.input, resolve)
            value, errors = context.finish(await kind.fn(context, **values))
            missing = None if errors is None else to_json(errors, "it")
            message = p.AttemptDone(
                *where,
                to_json(value, "it"),
                None,
                missing,
                context.take_files(),
                context.latest_progress(),
            )
        except HandlerParked as park:
            message = p.AttemptParked(
                *where, park.waiting_for, context.take_files(), context.latest_progress()
            )
        except HandlerDelayed as delay:
            message = p.AttemptDelayed(*where, delay.breaker, context.latest_progress())
        except (HandlerStopped, asyncio.CancelledError):
            if self.gone:
                raise
            message = p.AttemptStopped(*where, context.latest_progress())
        except JobError as error:
            failure = error
            message = p.AttemptFailed(
                *where, error.code, error.message, bool(error.retryable), error.step, None
            )
        except Exception as error:
            failure = error
            message = p.AttemptFailed(
                *where, code_of(error), str(error), True, context.failed_step, None
            )
        if isinstance(message, p.AttemptFailed):
            message.breaker = context.failed_breaker(failure)
        self._current = None
        self.say(message)


class SimChannel:
    """The connection of a simulated handler's context to the engine."""

    def __init__(self, child: SimChild) -> None:
        self._child = child

    def send(self, message: p.ChildMessage) -> None:
        self._child.say(message)

    def try_send(self, message: p.ChildMessage) -> bool:
        self.send(message)
        return True

    def ask(self, message: p.StepRequest) -> p.StepReply:
        raise AssertionError("simulated handlers have async steps")

    async def ask_async(self, message: p.StepRequest) -> p.StepReply:
        return await self._child.asked(message)


class SimPool:
    """A pool as the engine uses it."""

    def __init__(
        self,
        loop: SimLoop,
        process: str,
        registry: Registry,
        blobs: Blobs,
        work: Path,
        size: int,
        rng: random.Random,
    ) -> None:
        self.loop = loop
        self.process = process
        self.registry = registry
        self.blobs = blobs
        self.work = work
        self.size = size
        self.rng = rng
        self.children: set[SimChild] = set()
        self.problem: str | None = None
        self.count = 0
        self.asked = 0
        self.closed = False

    def now(self) -> float:
        return self.loop.time()

    def delay(self, about: float) -> float:
        return self.rng.uniform(0, 2 * about)

    async def open(self, listener: PoolListener) -> None:
        self.listener = listener
        self.fill()

    def fill(self) -> None:
        while not self.closed and sum(c.state != "leaving" for c in self.children) < self.size:
            self.count += 1
            self.children.add(SimChild(str(self.count), self))

    def waits_for(self, is_async: bool) -> bool:
        return False

    def ended(self, child: SimChild) -> None:
        self.children.discard(child)
        child.state = "gone"
        self.listener.exited(cast(Any, child))
        self.loop.call_later(self.delay(0.1), self.fill)

    def check(self) -> None:
        pass

    def kill(self) -> None:
        """Kill the children together with their service."""
        self.closed = True
        for child in self.children:
            child.gone = True
            self.loop.kill_process(child.process)

    async def close(self, grace: float) -> None:
        self.closed = True
        for child in list(self.children):
            child.die()
