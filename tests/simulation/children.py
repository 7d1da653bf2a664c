"""Children without processes: real contexts and handlers on the simulated loop, that can be killed and stopped."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from pathlib import Path
from typing import Any, cast

from bide.server.blobs import Blobs
from bide.server.registry import Registry
from bide.server.worker import protocol as p
from bide.server.worker.context import Context, Park, Stop, code_of, to_json
from bide.server.worker.supervisor import Listener
from tests.simulation.loop import SimLoop


class SimChild:
    """What the engine sees of a child, and the child itself."""

    def __init__(self, name: str, pool: SimPool) -> None:
        self.name = name
        self.pid = pool.count
        self.is_async = False
        self.state = "starting"
        self.started = 0.0
        self.jobs_done = 0
        self.killed = False
        self.exit_text = "killed"
        self.frozen = False
        self._pool = pool
        self._loop = pool.loop
        self._line: deque[p.Run] = deque()
        self._outbox: deque[Any] = deque()
        self._answers: dict[int, asyncio.Future[p.Answer]] = {}
        self._current: Context | None = None
        self._task: asyncio.Task[None] | None = None
        self._beat_at = self._loop.time()
        self._gone = False
        self._loop.call_later(pool.delay(0.2), self._ready)

    @property
    def last_beat(self) -> float:
        return self._beat_at if self.frozen else self._loop.time()

    def _ready(self) -> None:
        if not self._gone:
            self.state = "idle"
            self._pool.listener.ready(cast(Any, self))

    # --- from the engine

    def send(self, message: p.Message, *, at_once: bool = False) -> None:
        self._loop.call_later(self._pool.delay(0.001), self._receive, message)

    def _receive(self, message: Any) -> None:
        if self._gone:
            return
        if isinstance(message, p.Run):
            self._line.append(message)
            if self._task is None:
                self._task = self._loop.create_task(self._work())
        elif isinstance(message, p.Answer):
            answer = self._answers.pop(message.number)
            if not answer.done():  # its handler was told to stop meanwhile
                answer.set_result(message)
        elif isinstance(message, p.Leave):
            self._loop.call_later(0.01, self.die)

    def tell_to_stop(self, job_id: str, fence: int) -> None:
        self._loop.call_later(self._pool.delay(0.01), self._told, job_id, fence)

    def _told(self, job_id: str, fence: int) -> None:
        context = self._current
        if (
            context is not None
            and (context.job_id, context.fence) == (job_id, fence)
            and not self.frozen
        ):
            context.tell_to_stop()
            if self._task is not None:
                self._task.cancel()

    def ask_back(self) -> None:
        def give() -> None:
            if not self._gone and not self.frozen:
                jobs = [(run.job_id, run.fence) for run in self._line]
                self._line.clear()
                self.say(p.GaveBack(jobs))

        self._loop.call_later(self._pool.delay(0.01), give)

    def leave(self) -> None:
        self.state = "leaving"
        self.send(p.Leave())

    def terminate(self) -> None:
        self.kill()

    def kill(self, *, lost: bool = False) -> None:
        self.killed = not lost
        self._loop.call_soon(self.die)

    def memory(self) -> int:
        return 0

    def check(self) -> None:
        pass

    # --- its own life

    def die(self) -> None:
        """What it had said is heard, and then its death."""
        if self._gone:
            return
        self._gone = True
        if self._task is not None:
            self._task.cancel()
        while self._outbox:
            self._pool.listener.said(cast(Any, self), self._outbox.popleft())
        self._pool.ended(self)

    def freeze(self) -> None:
        if not self.frozen:
            self._beat_at = self._loop.time()
            self.frozen = True

    def thaw(self) -> None:
        """It goes on as if nothing had been; what it had to say comes late."""
        self.frozen = False
        for _ in self._outbox:
            self._loop.call_later(self._pool.delay(0.001), self._deliver)

    def say(self, message: p.Message) -> None:
        if self._gone:
            return
        self._outbox.append(message)
        self._loop.call_later(self._pool.delay(0.001), self._deliver)

    def asked(self, message: p.Request) -> asyncio.Future[p.Answer]:
        self._pool.asked += 1
        message.number = self._pool.asked
        answer = self._answers[message.number] = self._loop.create_future()
        self.say(message)
        return answer

    def _deliver(self) -> None:
        if self._outbox and not self._gone and not self.frozen:
            self._pool.listener.said(cast(Any, self), self._outbox.popleft())

    async def _work(self) -> None:
        try:
            while self._line:
                await self._run(self._line.popleft())
        finally:
            self._task = None

    async def _run(self, run: p.Run) -> None:
        context = Context(run, SimChannel(self), self._pool.registry, self._pool.blobs, Path("/nowhere"))
        self._current = context
        where = run.job_id, run.fence
        kind = self._pool.registry.kind(run.kind)
        try:
            await asyncio.sleep(self._pool.delay(0.002))
            value, errors = context.finish(await kind.fn(context, **kind.read_input(run.input)))
            message: p.Message = p.Done(*where, to_json(value, "it"), None, errors, [], context.shown())
        except Park as park:
            message = p.Parked(*where, park.waiting_for, [], context.shown())
        except (Stop, asyncio.CancelledError):
            if self._gone:
                raise
            message = p.Stopped(*where, context.shown())
        except Exception as error:
            message = p.Failed(*where, code_of(error), str(error), True, context.failed_step, None)
        self._current = None
        self.say(message)


class SimChannel:
    """How a simulated handler's context reaches the engine."""

    def __init__(self, child: SimChild) -> None:
        self._child = child

    def send(self, message: p.Message) -> None:
        self._child.say(message)

    def ask(self, message: p.Request) -> p.Answer:
        raise AssertionError("simulated handlers have async steps")

    async def ask_async(self, message: p.Request) -> p.Answer:
        return await self._child.asked(message)


class SimPool:
    """What the engine sees of a pool."""

    def __init__(
        self, loop: SimLoop, registry: Registry, blobs: Blobs, size: int, rng: random.Random
    ) -> None:
        self.loop = loop
        self.registry = registry
        self.blobs = blobs
        self.size = size
        self.rng = rng
        self.children: set[SimChild] = set()
        self.trouble: str | None = None
        self.count = 0
        self.asked = 0
        self.closed = False
        self.listener: Listener

    def now(self) -> float:
        return self.loop.time()

    def delay(self, about: float) -> float:
        return self.rng.uniform(0, 2 * about)

    async def open(self) -> None:
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
        self.listener.gone(cast(Any, child))
        self.loop.call_later(self.delay(0.1), self.fill)

    def check(self) -> None:
        pass

    async def close(self, grace: float) -> None:
        self.closed = True
        for child in list(self.children):
            child.die()
