"""A child: polls its share of the jobs with a poller of its own, and tells the parent what it saw.

1. It writes to nothing but its socket and the shared budget.
2. Its end of the socket is its life: a parent that is gone ends it, and the folder of the budget with it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from bide.client.apis import Api, Credential
from bide.client.apis.bide import OwnApi
from bide.client.budgets.file import FileBudgets
from bide.client.budgets.opening import open_budgets
from bide.client.budgets.shared import SharedBudgets
from bide.client.http.signer import Signer
from bide.client.http.transport import Transport
from bide.client.polling.kinds import Kind
from bide.client.polling.planned_job import FOREVER
from bide.client.polling.poller import Poller
from bide.client.polling.processes import messages as m
from bide.client.polling.processes.learning import Notebook
from bide.client.timing import Timing
from bide.client.tracked import Tracked
from bide.core.errors import ServiceError

BEAT = 1.0
LEARN = 3  # beats between two tellings of what was learned
SHARED = "shared"  # the name of the budget
STAGGER = (
    0.1,
    0.005,
)  # of a wait, and at most so many seconds: so that children do not all wake at one moment

log = logging.getLogger("bide.client")


class Given(Credential):
    """A credential that the parent sees to."""

    __slots__ = ()

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers
        self._raw = ()

    def __repr__(self) -> str:
        return "<Credential given>"


class GivenSigner(Signer):
    def __init__(self, channel: m.Channel, api: Api, transport: Transport, timing: Timing) -> None:
        super().__init__(api, None, transport, timing.wall)
        self._channel = channel
        self._answer: asyncio.Future[None] | None = None

    @property
    def stale(self) -> bool:
        return False

    def take(self, proof: m.Proof) -> None:
        self._credential, self._added = Given(proof.headers), proof.added
        self.turn = proof.turn
        self._merged.clear()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    async def denied(self, turn: int) -> bool:
        async with self._lock:
            if turn == self.turn:
                self._answer = asyncio.get_running_loop().create_future()
                self._channel.say(m.Denied(turn))
                await self._answer
        return turn != self.turn


class Staggered(Timing):
    def __init__(self, speed: float, start: float, rng: random.Random) -> None:
        super().__init__(speed)
        self.start = start
        self._rng = rng

    def later(self, at: float, what: Any) -> asyncio.TimerHandle:
        part, most = STAGGER
        wait = max(0.0, at - self.now())
        return super().later(at + self._rng.random() * min(part * wait, most * self.speed), what)


class Child:
    """Listener of all of its jobs."""

    def __init__(self, channel: m.Channel, start: m.Start) -> None:
        rng = random.Random()
        sys.path[:] = start.search
        self._channel = channel
        self.folder = Path(start.budgets)
        timing = Staggered(*start.clock, rng)
        make = OwnApi if start.own else Api
        api = make(start.form, start.url, None if start.folder is None else Path(start.folder))
        self._transport = Transport(api.url or "")
        self._signer = GivenSigner(channel, api, self._transport, timing)
        self._budgets: FileBudgets | SharedBudgets
        name = SHARED
        if start.shared is None:
            self._budgets = FileBudgets(self.folder, rng)
        else:
            url, name = start.shared
            self._budgets = open_budgets(url, now=timing.now)
        self._purse = purse = self._budgets.open(name, start.limit)
        self._poller = Poller(
            api, self._transport, self._signer, purse, price=start.price, timing=timing, rng=rng
        )
        self._notebooks: dict[int, Notebook] = {}
        self._jobs: dict[int, Tracked] = {}
        self._numbers: dict[Tracked, int] = {}
        self._counted = 0  # requests that were told of

    # --- what the parent says

    def hear(self, message: Any) -> None:
        match message:
            case m.Proof():
                self._signer.take(message)
            case m.Kind(number, data, batch, size):
                kind = Kind.load(data, batch)
                self._notebooks[number] = Notebook(kind)
                self._poller.schedule.kinds[number, size] = kind
            case m.Watch():
                self._watch(message)
            case m.Unwatch(number):
                job = self._jobs.pop(number, None)
                if job is not None:
                    del self._numbers[job]
                    self._poller.unwatch(job, self)
            case m.Learned(number, news):
                self._notebooks[number].hear(news)

    def _watch(self, told: m.Watch) -> None:
        job = Tracked(told.ref, "", told.submitted_at)
        job.etag = told.etag
        job.seen = None if told.seen is None else m.unpack(told.seen)
        self._jobs[told.number] = job
        self._numbers[job] = told.number
        options = {"deadline": FOREVER, **told.options}
        self._poller.watch(job, self, kind=self._notebooks[told.kind].kind, **options)

    # --- what the poller says

    def changed(self, job: Tracked) -> None:
        assert job.seen is not None
        seen = m.pack(job.seen)
        assert seen is not None
        self._channel.say(
            m.Told(self._numbers[job], job.requests, self._sent(), job.ref, job.submitted_at, seen)
        )
        job.requests = 0

    def ended(self, job: Tracked) -> None:
        if isinstance(job.error, ServiceError):
            error, number = job.error, self._numbers[job]
            self._channel.say(m.GaveUp(number, job.requests, self._sent(), error.status, error.problem))
        else:
            self.changed(job)
        del self._jobs[self._numbers.pop(job)]

    # --- now and then

    async def beat(self) -> None:
        for count in range(1, sys.maxsize):
            await asyncio.sleep(BEAT)
            self._purse.settle()
            self._channel.say(m.Beat(self._sent()))
            if count % LEARN == 0:
                self._tell_news()

    def _sent(self) -> int:
        more = self._transport.requests - self._counted
        self._counted += more
        return more

    def _tell_news(self) -> None:
        for number, notebook in self._notebooks.items():
            news = notebook.news()
            if news is not None:
                self._channel.say(m.Learned(number, news))

    async def close(self) -> None:
        await self._poller.close()
        await self._transport.close()
        self._tell_news()
        self._channel.say(m.Beat(self._sent()))
        self._budgets.close()


class _Lines(logging.Handler):
    """Trouble is told to the parent, which has the log."""

    def __init__(self, channel: m.Channel) -> None:
        super().__init__(logging.WARNING)
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.say(m.Said(record.levelno, self.format(record)))


async def run(sock: socket.socket) -> None:
    channel = m.Channel(m.Down)
    await channel.open(sock)
    log.addHandler(_Lines(channel))
    log.propagate = False
    child: Child | None = None
    beating: asyncio.Task[None] | None = None
    left = False
    async for message in channel.heard():
        if isinstance(message, m.Start):
            child = Child(channel, message)
            beating = asyncio.create_task(child.beat())
        elif isinstance(message, m.Leave):
            left = True
            break
        elif child is not None:
            child.hear(message)
    if child is not None and beating is not None:
        beating.cancel()
        await child.close()
        if not left:  # the parent was killed: nobody else tidies up
            shutil.rmtree(child.folder, ignore_errors=True)
    await channel.close()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its children
    asyncio.run(run(socket.socket(fileno=int(sys.argv[1]))))
