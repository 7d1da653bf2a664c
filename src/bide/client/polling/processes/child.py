"""A child process: polls its share of the jobs with a `Poller` and reports their states to the parent.

1. It writes only to its socket and to the shared budget.
2. It exits when the parent closes the socket. If the parent was killed, it removes the folder of the budget.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from bide.client.apis import Api, Credential
from bide.client.apis.bide import BideApi
from bide.client.budgets.backend import open_backend
from bide.client.budgets.file import BudgetFolder
from bide.client.budgets.shared import BudgetConnection
from bide.client.client_tracer import Carrier, polled
from bide.client.http.signer import Signer
from bide.client.http.transport import Transport
from bide.client.job_state import JobState
from bide.client.polling.kinds import KindStats
from bide.client.polling.planned_job import FOREVER
from bide.client.polling.poller import Poller
from bide.client.polling.processes import messages as m
from bide.client.polling.processes.kind_sync import KindSync
from bide.client.timing import Timing
from bide.core.errors import ServiceError

HEARTBEAT = 1.0  # seconds
LEARN_EVERY = 3  # heartbeats between two reports of learned durations
SHARED = "shared"  # the name of the budget
# The part of each wait that is random, and its maximum in seconds, so that the children do not all wake up at the same time.
STAGGER = (0.1, 0.005)

log = logging.getLogger("bide.client")


class GivenCredential(Credential):
    """A credential that the parent manages."""

    __slots__ = ()

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers
        self._raw = ()

    def __repr__(self) -> str:
        return "<Credential given>"


class GivenSigner(Signer):
    def __init__(
        self, channel: m.MessageChannel, api: Api, transport: Transport, timing: Timing
    ) -> None:
        super().__init__(api, None, transport, timing.wall)
        self._channel = channel
        self._answer: asyncio.Future[None] | None = None
        self._source = ""

    @property
    def stale(self) -> bool:
        return False

    def take(self, proof: m.CredentialUpdate) -> None:
        self._credential, self._added = GivenCredential(proof.headers), proof.added
        self.generation, self._source = proof.generation, proof.source
        self._merged.clear()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def credential_source(self) -> str:
        return self._source

    async def denied(self, generation: int) -> bool:
        async with self._lock:
            if generation == self.generation:
                self._answer = asyncio.get_running_loop().create_future()
                self._channel.send(m.CredentialRejected(generation))
                await self._answer
        return generation != self.generation


class StaggeredTiming(Timing):
    def __init__(self, speed: float, start: float, rng: random.Random) -> None:
        super().__init__(speed)
        self.start = start
        self._rng = rng

    def later(self, at: float, what: Any) -> asyncio.TimerHandle:
        part, most = STAGGER
        wait = max(0.0, at - self.now())
        return super().later(at + self._rng.random() * min(part * wait, most * self.speed), what)


class RequestReport:
    """A request that the child sends and the parent makes a span of. The service gets the trace of the caller."""

    def __init__(self, channel: m.MessageChannel, method: str, url: str, poll: bool) -> None:
        self._channel = channel
        self._call = method, url
        self._callers: list[Carrier] | None = list(polled.get()) if poll else None
        self._began = time.time_ns()
        self._status: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        if self._callers is None or len(self._callers) != 1:
            return {}
        parent, state = self._callers[0]
        return {"traceparent": parent, **({"tracestate": state} if state else {})}

    def answered(self, status: int) -> None:
        self._status = status

    def __enter__(self) -> RequestReport:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        times = self._began, time.time_ns()
        failed = None if kind is None else kind.__name__
        self._channel.send(m.RequestSent(*self._call, self._callers, times, self._status, failed))


class RequestReporter:
    """Reports each request to the parent."""

    def __init__(self, channel: m.MessageChannel) -> None:
        self._channel = channel

    def request(self, method: str, url: str, *, submission: bool, poll: bool) -> RequestReport:
        return RequestReport(self._channel, method, url, poll)


class PollingProcess:
    """The child process; it is the listener of all of its jobs."""

    wants_changes = True

    def __init__(self, channel: m.MessageChannel, start: m.StartPolling) -> None:
        rng = random.Random()
        sys.path[:] = start.search
        self._channel = channel
        self.folder = Path(start.budgets)
        timing = StaggeredTiming(*start.clock, rng)
        make = BideApi if start.own else Api
        api = make(start.form, start.url, None if start.folder is None else Path(start.folder))
        self._transport = Transport(service=start.own)
        if start.traced:
            self._transport.tracer = RequestReporter(channel)
        self._signer = GivenSigner(channel, api, self._transport, timing)
        self._budgets: BudgetFolder | BudgetConnection
        name = SHARED
        if start.shared is None:
            self._budgets = BudgetFolder(self.folder, rng)
        else:
            url, name = start.shared
            self._budgets = BudgetConnection(open_backend(url), now=timing.now)
        self._budget = budget = self._budgets.open(name, start.limit)
        self._poller = Poller(
            api,
            self._transport,
            self._signer,
            budget,
            settings=start.settings,
            timing=timing,
            rng=rng,
        )
        self._syncs: dict[int, KindSync] = {}
        self._jobs: dict[int, JobState] = {}
        self._numbers: dict[JobState, int] = {}
        self._counted = 0  # requests that were reported

    # --- messages from the parent

    def handle(self, message: Any) -> None:
        match message:
            case m.CredentialUpdate():
                self._signer.take(message)
            case m.KindKnowledge(number, data, batch, size):
                kind = KindStats.load(data, batch)
                self._syncs[number] = KindSync(kind)
                self._poller.schedule.kinds[number, size] = kind
            case m.WatchJob():
                self._watch(message)
            case m.UnwatchJob(number):
                job = self._jobs.pop(number, None)
                if job is not None:
                    del self._numbers[job]
                    self._poller.unwatch(job, self)
            case m.KindNews(number, news):
                self._syncs[number].absorb(news)

    def _watch(self, message: m.WatchJob) -> None:
        job = JobState(message.ref, "", message.submitted_at)
        job.etag, job.context = message.etag, message.caller
        job.seen = None if message.seen is None else m.unpack(message.seen)
        self._jobs[message.number] = job
        self._numbers[job] = message.number
        options = {"deadline": FOREVER, **message.options}
        self._poller.watch(job, self, kind=self._syncs[message.kind].kind, **options)

    # --- callbacks of the poller

    def changed(self, job: JobState) -> None:
        assert job.seen is not None
        seen = m.pack(job.seen)
        assert seen is not None
        self._channel.send(
            m.JobObserved(
                self._numbers[job], job.requests, self._sent(), job.ref, job.submitted_at, seen
            )
        )
        job.requests = 0

    def ended(self, job: JobState) -> None:
        if isinstance(job.error, ServiceError):
            error, number = job.error, self._numbers[job]
            self._channel.send(
                m.JobGivenUp(number, job.requests, self._sent(), error.status, error.problem)
            )
        else:
            self.changed(job)
        del self._jobs[self._numbers.pop(job)]

    # --- periodic reports

    async def send_heartbeats(self) -> None:
        for count in range(1, sys.maxsize):
            await asyncio.sleep(HEARTBEAT)
            self._budget.settle()
            self._channel.send(self._heartbeat())
            if count % LEARN_EVERY == 0:
                self._send_news()

    def _heartbeat(self) -> m.PollingHeartbeat:
        refused, self._transport.refused = self._transport.refused, 0
        return m.PollingHeartbeat(self._sent(), refused)

    def _sent(self) -> int:
        more = self._transport.requests - self._counted
        self._counted += more
        return more

    def _send_news(self) -> None:
        for number, sync in self._syncs.items():
            news = sync.news()
            if news is not None:
                self._channel.send(m.KindNews(number, news))

    async def close(self) -> None:
        await self._poller.close()
        await self._transport.close()
        self._send_news()
        self._channel.send(self._heartbeat())
        self._budgets.close()


class _ParentLog(logging.Handler):
    """Sends warnings and errors to the parent, which has the log."""

    def __init__(self, channel: m.MessageChannel) -> None:
        super().__init__(logging.WARNING)
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.send(m.LogLine(record.levelno, self.format(record)))


async def run(sock: socket.socket) -> None:
    channel = m.MessageChannel(m.ParentMessage)
    await channel.open(sock)
    log.addHandler(_ParentLog(channel))
    log.propagate = False
    child: PollingProcess | None = None
    heartbeats: asyncio.Task[None] | None = None
    stopped = False
    async for message in channel.received():
        if isinstance(message, m.StartPolling):
            child = PollingProcess(channel, message)
            heartbeats = asyncio.create_task(child.send_heartbeats())
        elif isinstance(message, m.StopPolling):
            stopped = True
            break
        elif child is not None:
            child.handle(message)
    if child is not None and heartbeats is not None:
        heartbeats.cancel()
        await child.close()
        if not stopped:  # the parent was killed and cannot remove the folder
            shutil.rmtree(child.folder, ignore_errors=True)
    await channel.close()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent stops its children
    asyncio.run(run(socket.socket(fileno=int(sys.argv[1]))))
