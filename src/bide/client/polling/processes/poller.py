"""The parent: a poller whose polls child processes send. An account uses it like any other `Poller`.

1. The parent holds all jobs; a child has a copy of its share. If a child dies, no job is lost: another child takes over.
2. The child that takes over starts with the last known state of each job, so that it does not poll all of them at once.
3. Children get the credential only from the parent, and only the parent renews it.
4. The parent kills and replaces a child that misses MISSED_HEARTBEATS heartbeats while the parent runs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from bide.client.apis import Api, Denied
from bide.client.apis.bide import BideApi
from bide.client.budgets.account_budget import AccountBudget
from bide.client.budgets.file import BudgetFolder, FileBudget
from bide.client.budgets.shared import SharedBudget
from bide.client.client_tracer import ClientTracer, carrier_of
from bide.client.http.retrying import Retrying, RetryPolicy
from bide.client.http.signer import Signer
from bide.client.http.transport import Transport
from bide.client.job_state import JobListener, JobState
from bide.client.polling.kinds import KindStats
from bide.client.polling.planned_job import FOREVER
from bide.client.polling.poller import CAP, Poller, log
from bide.client.polling.processes import messages as m
from bide.client.polling.processes.child import HEARTBEAT, SHARED
from bide.client.polling.processes.kind_sync import KindSync
from bide.core.errors import ServiceError, SetupError, UnusableService
from bide.core.pacing.backoff import backoff
from bide.core.pacing.budget import Budget, Limit

MISSED_HEARTBEATS = 30  # after which a child is killed
EXIT_TIMEOUT = 10.0  # seconds for a child to send its remaining messages and exit
SETTLED = 10.0  # seconds after which the exit of a child does not count as a failed start
FAILED_STARTS = 3  # in a row, before the other children take its jobs


class ProcessPoller(Poller):
    """Call `start` before the first use."""

    def start(
        self,
        processes: int,
        limit: Limit | None,
        budgets: BudgetFolder,
        folder: Path,
        account_budget: AccountBudget | None = None,
    ) -> None:
        self._folder, self._budgets = folder, budgets
        self._start = m.StartPolling(
            self.api.form,
            self.api.url,
            isinstance(self.api, BideApi),
            None if self.api.folder is None else str(self.api.folder),
            limit,
            self.schedule.settings,
            str(folder),
            (self.timing.speed, self.timing.start),
            sys.path,
            None if account_budget is None else (account_budget.url, account_budget.name),
        )
        self._numbers = count(1)
        self._kinds: dict[KindStats, tuple[int, KindSync, str | None]] = {}
        self._assigned: dict[JobState, tuple[int, _ChildSlot]] = {}
        self._renewals: set[asyncio.Task[None]] = set()
        self._sent_generation = 0
        self._children = [_ChildSlot(self) for _ in range(processes)]
        self._supervision = asyncio.create_task(self._supervise())

    @property
    def tracer(self) -> ClientTracer | None:
        """Makes the spans of the requests of the children."""
        found = self._transport.tracer
        return found if isinstance(found, ClientTracer) else None

    # --- jobs

    def watch(
        self,
        job: JobState,
        listener: JobListener,
        *,
        kind: KindStats,
        asked_at: float | None = None,
        **options: Any,
    ) -> None:
        job.listeners += (listener,)
        if job.over:
            listener.ended(job)
        elif job not in self._assigned:
            self._know(kind, options.get("size"))
            options = {name: value for name, value in options.items() if value not in (None, FOREVER)}
            if asked_at is not None:
                options["asked_at"] = asked_at
            self.schedule.waiting += 1
            kind.plans.sketch.waiting += 1
            child = min(self._children, key=lambda child: len(child.jobs))
            self._place(_AssignedJob(job, kind, options), child)

    def unwatch(self, job: JobState, listener: JobListener) -> None:
        job.listeners = tuple(one for one in job.listeners if one is not listener)
        if not job.listeners and job in self._assigned:
            number, child = self._forget(job)
            child.send(m.UnwatchJob(number))

    def _place(self, assigned: _AssignedJob, child: _ChildSlot) -> None:
        number = next(self._numbers)
        child.jobs[number] = assigned
        self._assigned[assigned.job] = (number, child)
        child.send(self.watch_message(number, assigned))

    def watch_message(self, number: int, assigned: _AssignedJob) -> m.WatchJob:
        job = assigned.job
        kind = self._kinds[assigned.kind][0]
        return m.WatchJob(
            number,
            kind,
            job.ref,
            job.submitted_at,
            m.pack(job.seen),
            job.etag,
            assigned.options,
            None if job.context is None else carrier_of(job.context),
        )

    def _forget(self, job: JobState) -> tuple[int, _ChildSlot]:
        number, child = self._assigned.pop(job)
        assigned = child.jobs.pop(number)
        self.schedule.waiting -= 1
        assigned.kind.plans.sketch.waiting -= 1
        return number, child

    def _know(self, kind: KindStats, size: str | None) -> None:
        if kind not in self._kinds:
            self._kinds[kind] = (len(self._kinds) + 1, KindSync(kind), size)
            for child in self._children:
                child.send(self.kind_knowledge(kind))

    def kind_knowledge(self, kind: KindStats) -> m.KindKnowledge:
        number, _, size = self._kinds[kind]
        return m.KindKnowledge(number, kind.dump(), kind.batch, size)

    def hand_over(self, child: _ChildSlot) -> None:
        """Give the jobs of a child that cannot be started to the others."""
        others = [one for one in self._children if one.alive]
        if others:
            moved, child.jobs = list(child.jobs.values()), {}
            for assigned in moved:
                self._place(assigned, min(others, key=lambda one: len(one.jobs)))

    # --- messages from children

    def handle(self, child: _ChildSlot, message: Any) -> None:
        if isinstance(message, m.JobObserved | m.JobGivenUp | m.PollingHeartbeat):
            self._transport.requests += message.sent
        match message:
            case m.PollingHeartbeat(_, refused):
                self._transport.refused += refused
            case m.JobObserved(number) if number in child.jobs:
                self._observed(child.jobs[number], message)
            case m.JobGivenUp(number) if number in child.jobs:
                job = child.jobs[number].job
                job.requests += message.requests
                self._fail(job, message.status, message.problem)
            case m.KindNews(kind, news):
                self._learned(child, kind, news)
            case m.CredentialRejected(generation):
                task = asyncio.create_task(self._renew(child, generation))
                self._renewals.add(task)
                task.add_done_callback(self._renewals.discard)
            case m.RequestSent() if self.tracer is not None:
                self.tracer.record(
                    message.method,
                    message.url,
                    message.callers,
                    message.times,
                    message.status,
                    message.error,
                )
            case m.LogLine(level, text):
                log.log(level, "%s", text)

    def _observed(self, assigned: _AssignedJob, observed: m.JobObserved) -> None:
        job = assigned.job
        before, seen = job.seen, m.unpack(observed.seen)
        assigned.options.pop("asked_at", None)
        job.take(seen)
        job.etag, job.ref = seen.etag or job.etag, observed.ref
        job.requests += observed.requests
        if job.submitted_at is None:
            job.submitted_at = observed.submitted_at
        if seen.terminal:
            self._forget(job)
            self._finish(job)
        else:
            self._changed(job, before, seen)

    def _fail(self, job: JobState, status: int, problem: dict[str, Any]) -> None:
        job.error = ServiceError(status, problem, self.api.url or "")
        self._forget(job)
        self._finish(job)

    def _learned(self, child: _ChildSlot, kind: int, news: dict[str, Any]) -> None:
        for number, sync, _ in self._kinds.values():
            if number == kind:
                sync.absorb(news)
        for other in self._children:
            if other is not child:
                other.send(m.KindNews(kind, news))

    # --- the credential

    def credential_update(self) -> m.CredentialUpdate:
        signer = self._signer
        return m.CredentialUpdate(signer.generation, *signer.proof(), signer.credential_source())

    async def _renew(self, child: _ChildSlot, generation: int) -> None:
        """Reply to the child when there is a new credential, or when there will be none."""
        try:
            if await self._signer.denied(generation):
                await self.freshen()
        except SetupError as error:
            log.error("%s", error)
        finally:
            child.send(self.credential_update())

    async def freshen(self) -> None:
        """Fetch a token if one is needed. If it is refused, the wait for all jobs ends."""
        try:
            await Retrying(RetryPolicy(), self.timing, self.rng).run(self._signer.ready)
        except Denied as error:
            problem = {"code": error.code, "detail": error.detail}
            for job in list(self._assigned):
                self._fail(job, error.status, problem)
        except UnusableService as error:
            for job in list(self._assigned):
                self._fail(job, error.status, error.problem)

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            try:
                if isinstance(self.schedule.budget, FileBudget | SharedBudget):
                    self.schedule.budget.settle()
                if self._signer.stale and self._assigned:
                    await self.freshen()
            except Exception:
                # Children must be supervised even if the disk is full or the credential is gone.
                log.exception("Cannot update the shared budget or the credential")
            if self._signer.generation != self._sent_generation:
                self._sent_generation = self._signer.generation
                for child in self._children:
                    child.send(self.credential_update())
            for child in self._children:
                child.missed += 1
                if child.missed > MISSED_HEARTBEATS:
                    child.kill()

    async def close(self) -> None:
        self._supervision.cancel()
        for task in self._renewals:
            task.cancel()
        await asyncio.gather(*(child.close() for child in self._children))
        await asyncio.gather(self._supervision, *self._renewals, return_exceptions=True)
        await super().close()
        self._budgets.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _AssignedJob:
    """A job that a child polls, and the options of the wait."""

    __slots__ = ("job", "kind", "options")

    def __init__(self, job: JobState, kind: KindStats, options: dict[str, Any]) -> None:
        self.job = job
        self.kind = kind
        self.options = options


class _ChildSlot:
    """A share of the jobs and the child that polls them; if the child dies, its replacement."""

    def __init__(self, poller: ProcessPoller) -> None:
        self.jobs: dict[int, _AssignedJob] = {}
        self.alive = False
        self.missed = 0  # heartbeats
        self._poller = poller
        self._channel: m.MessageChannel | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._leaving = False
        self._task = asyncio.create_task(self._run())

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def send(self, message: m.PollingMessage) -> None:
        """Send if there is a child. A new child gets the whole state, so no message needs to be queued.

        StopPolling is the last message: if the child exits with a message unread, the connection is reset, and its own
        last messages are lost.
        """
        if self._channel is not None and not self._leaving:
            self._channel.send(message)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def close(self) -> None:
        self.send(m.StopPolling())
        self._leaving = True
        if self._channel is None:
            self._task.cancel()
        _, unfinished = await asyncio.wait({self._task}, timeout=EXIT_TIMEOUT)
        if unfinished:
            log.warning("A polling process did not exit; the durations that it learned last are lost")
        self.kill()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await self._poller.freshen()
                reason = await self._run_child()
            except Exception as error:  # the jobs must be polled after any error
                reason = f"{type(error).__name__}: {error}"
            if self.alive:
                self._forget_asked_at()
            self.alive = False
            if self._leaving:
                return
            failures = 0 if time.monotonic() - began > SETTLED else failures + 1
            log.warning("A polling process exited (%s); another takes over its jobs", reason)
            if failures >= FAILED_STARTS:
                self._poller.hand_over(self)
            await asyncio.sleep(backoff(failures, 0.1, CAP, self._poller.rng))

    def _forget_asked_at(self) -> None:
        """Drop the poll times of an earlier process: the child that died has polled since then."""
        for assigned in self.jobs.values():
            assigned.options.pop("asked_at", None)

    async def _run_child(self) -> str:
        """Run one child until it exits. Return how it ended."""
        ours, theirs = socket.socketpair()
        channel = m.MessageChannel(m.ChildMessage)
        try:
            self._process = process = _spawn(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            try:
                await channel.open(ours)
            except BaseException:
                ours.close()
                raise
            self.missed = 0
            self._brief(channel)
            self._channel = channel
            async for message in channel.received():
                self.alive, self.missed = True, 0
                self._poller.handle(self, message)
        finally:
            self._channel = None
            process.kill()
            await channel.close()
            code = await asyncio.to_thread(process.wait)
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    def _brief(self, channel: m.MessageChannel) -> None:
        poller = self._poller
        channel.send(msgspec.structs.replace(poller._start, traced=poller.tracer is not None))
        channel.send(poller.credential_update())
        for kind in poller._kinds:
            channel.send(poller.kind_knowledge(kind))
        for number, assigned in self.jobs.items():
            channel.send(poller.watch_message(number, assigned))


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    # The child must find bide whatever the working directory is now. StartPolling carries the rest of sys.path.
    search = [str(Path(__file__).parents[4]), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-m", "bide.client.polling.processes", str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
        start_new_session=True,  # Ctrl-C in a terminal must reach only the parent
    )


def start_process_poller(
    processes: int,
    api: Api,
    transport: Transport,
    signer: Signer,
    budget: Budget,
    limit: Limit | None,
    *,
    account_budget: AccountBudget | None = None,
    **options: Any,
) -> ProcessPoller:
    """Start the child processes."""
    if type(api) not in (Api, BideApi):
        raise SetupError(
            f"Several processes cannot poll a {type(api).__name__}: only an API with a description. Use processes=1."
        )
    memory = Path("/dev/shm")  # a busy disk would delay the process that holds the lock
    place = memory if memory.is_dir() and os.access(memory, os.W_OK | os.X_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="bide-", dir=place))
    budgets = BudgetFolder(folder)
    shared = budgets.open(SHARED, limit, budget) if account_budget is None else account_budget.budget
    poller = ProcessPoller(api, transport, signer, shared, **options)
    poller.start(processes, limit, budgets, folder, account_budget)
    return poller
