"""The parent: a poller whose polls are sent by children. Towards an account it is a Poller like any other.

1. What is waited for is here; a child has a copy of its share. So a child that dies loses nothing: another takes over.
2. Who takes over begins with what was last heard of a job: those that were asked about lately are not asked at once.
3. Children know the credential from here only, and it is renewed here only.
4. A child that has not been heard of for long, though the parent ran, is killed and replaced.
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

from bide.client.apis import Api, BadPoll, Denied
from bide.client.apis.bide import OwnApi
from bide.client.budgets.file import FileBudgets, FilePurse
from bide.client.budgets.shared import SharedPurse
from bide.client.budgets.sharing import Sharing
from bide.client.http.signer import Signer
from bide.client.http.transport import Transport
from bide.client.polling.kinds import Kind
from bide.client.polling.planned_job import FOREVER
from bide.client.polling.poller import BASE, CAP, Poller, log
from bide.client.polling.processes import messages as m
from bide.client.polling.processes.child import BEAT, SHARED
from bide.client.polling.processes.learning import Notebook
from bide.client.tracked import Listener, Tracked
from bide.core.budget import Budget, Limit
from bide.core.errors import ServiceError, ServiceUnreachable, SetupError, UnusableService
from bide.core.retry import backoff

SILENT = 30  # beats without a word, after which a child is given up
GRACE = 5.0  # seconds that a child has to tell the rest and leave
SETTLED = 10.0  # seconds after which a child's end is not the fault of its start
TRIES = 3  # starts in a row that fail, before others take its jobs


class Spread(Poller):
    """`start` it before the first use."""

    def start(
        self,
        processes: int,
        limit: Limit | None,
        budgets: FileBudgets,
        folder: Path,
        sharing: Sharing | None = None,
    ) -> None:
        self._folder, self._budgets = folder, budgets
        self._start = m.Start(
            self.api.form,
            self.api.url,
            isinstance(self.api, OwnApi),
            None if self.api.folder is None else str(self.api.folder),
            limit,
            self.schedule.floor,
            str(folder),
            (self.timing.speed, self.timing.start),
            sys.path,
            None if sharing is None else (sharing.url, sharing.name),
        )
        self._numbers = count(1)
        self._kinds: dict[Kind, tuple[int, Notebook, str | None]] = {}
        self._places: dict[Tracked, tuple[int, _Share]] = {}
        self._renewals: set[asyncio.Task[None]] = set()
        self._told_turn = 0
        self._shares = [_Share(self) for _ in range(processes)]
        self._tending = asyncio.create_task(self._tend())

    # --- what is waited for

    def watch(
        self,
        job: Tracked,
        listener: Listener,
        *,
        kind: Kind,
        asked_at: float | None = None,
        **options: Any,
    ) -> None:
        job.listeners += (listener,)
        if job.over:
            listener.ended(job)
        elif job not in self._places:
            self._know(kind, options.get("size"))
            options = {name: value for name, value in options.items() if value not in (None, FOREVER)}
            if asked_at is not None:
                options["asked_at"] = asked_at
            self.schedule.waiting += 1
            kind.wait(1)
            share = min(self._shares, key=lambda share: len(share.jobs))
            self._place(_Charge(job, kind, options), share)

    def unwatch(self, job: Tracked, listener: Listener) -> None:
        job.listeners = tuple(one for one in job.listeners if one is not listener)
        if not job.listeners and job in self._places:
            number, share = self._forget(job)
            share.say(m.Unwatch(number))

    def _place(self, charge: _Charge, share: _Share) -> None:
        number = next(self._numbers)
        share.jobs[number] = charge
        self._places[charge.job] = (number, share)
        share.say(self.asking(number, charge))

    def asking(self, number: int, charge: _Charge) -> m.Watch:
        job = charge.job
        kind = self._kinds[charge.kind][0]
        return m.Watch(
            number, kind, job.ref, job.submitted_at, m.pack(job.seen), job.etag, charge.options
        )

    def _forget(self, job: Tracked) -> tuple[int, _Share]:
        number, share = self._places.pop(job)
        charge = share.jobs.pop(number)
        self.schedule.waiting -= 1
        charge.kind.wait(-1)
        return number, share

    def _know(self, kind: Kind, size: str | None) -> None:
        if kind not in self._kinds:
            self._kinds[kind] = (len(self._kinds) + 1, Notebook(kind), size)
            for share in self._shares:
                share.say(self.knowledge(kind))

    def knowledge(self, kind: Kind) -> m.Kind:
        number, _, size = self._kinds[kind]
        return m.Kind(number, kind.dump(), kind.batch, size)

    def hand_over(self, share: _Share) -> None:
        """Its child does not come back: others take its jobs."""
        others = [one for one in self._shares if one.lives]
        if others:
            charges, share.jobs = list(share.jobs.values()), {}
            for charge in charges:
                self._place(charge, min(others, key=lambda one: len(one.jobs)))

    # --- what children say

    def said(self, share: _Share, message: Any) -> None:
        if isinstance(message, m.Told | m.GaveUp | m.Beat):
            self._transport.requests += message.sent
        match message:
            case m.Told(number) if number in share.jobs:
                self._told(share.jobs[number], message)
            case m.GaveUp(number) if number in share.jobs:
                job = share.jobs[number].job
                job.requests += message.requests
                self._fail(job, message.status, message.problem)
            case m.Learned(kind, news):
                self._learned(share, kind, news)
            case m.Denied(turn):
                task = asyncio.create_task(self._renew(share, turn))
                self._renewals.add(task)
                task.add_done_callback(self._renewals.discard)
            case m.Said(level, text):
                log.log(level, "%s", text)

    def _told(self, charge: _Charge, told: m.Told) -> None:
        job = charge.job
        before, seen = job.seen, m.unpack(told.seen)
        charge.options.pop("asked_at", None)
        job.take(seen)
        job.etag, job.ref = seen.etag or job.etag, told.ref
        job.requests += told.requests
        if job.submitted_at is None:
            job.submitted_at = told.submitted_at
        if seen.terminal:
            self._forget(job)
            self._over(job)
        else:
            self._changed(job, before, seen)

    def _fail(self, job: Tracked, status: int, problem: dict[str, Any]) -> None:
        job.error = ServiceError(status, problem, self.api.url or "")
        self._forget(job)
        self._over(job)

    def _learned(self, share: _Share, kind: int, news: dict[str, Any]) -> None:
        for number, notebook, _ in self._kinds.values():
            if number == kind:
                notebook.hear(news)
        for other in self._shares:
            if other is not share:
                other.say(m.Learned(kind, news))

    # --- the credential

    def proof(self) -> m.Proof:
        return m.Proof(self._signer.turn, *self._signer.proof())

    async def _renew(self, share: _Share, turn: int) -> None:
        """Answers once there is another credential, or there will be none."""
        try:
            if await self._signer.denied(turn):
                await self.freshen()
        except SetupError as error:
            log.error("%s", error)
        finally:
            share.say(self.proof())

    async def freshen(self) -> None:
        """Until there is a token, where one is needed. One that is refused ends the wait for all."""
        failures = 0
        while self._signer.stale:
            try:
                await self._signer.ready()
            except Denied as error:
                problem = {"code": f"http-{error.status}", "detail": error.detail}
                for job in list(self._places):
                    self._fail(job, error.status, problem)
                return
            except UnusableService as error:
                for job in list(self._places):
                    self._fail(job, error.status, error.problem)
                return
            except (BadPoll, ServiceUnreachable) as error:
                if not failures:
                    log.warning("%s; trying again", error)
                await self.timing.sleep(backoff(failures, BASE, CAP, self.rng))
                failures += 1

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            try:
                if isinstance(self._purse, FilePurse | SharedPurse):
                    self._purse.settle()
                if self._signer.stale and self._places:
                    await self.freshen()
            except Exception:
                # A full disk, a credential that is gone: children must be seen to all the same.
                log.exception("the shared budget or the credential cannot be tended")
            if self._signer.turn != self._told_turn:
                self._told_turn = self._signer.turn
                for share in self._shares:
                    share.say(self.proof())
            for share in self._shares:
                share.missed += 1
                if share.missed > SILENT:
                    share.kill()

    # --- the end

    async def close(self) -> None:
        self._tending.cancel()
        for task in self._renewals:
            task.cancel()
        await asyncio.gather(*(share.close() for share in self._shares))
        await asyncio.gather(self._tending, *self._renewals, return_exceptions=True)
        await super().close()
        self._budgets.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Charge:
    """A job that some child waits for, and how."""

    __slots__ = ("job", "kind", "options")

    def __init__(self, job: Tracked, kind: Kind, options: dict[str, Any]) -> None:
        self.job = job
        self.kind = kind
        self.options = options


class _Share:
    """A part of the jobs, and the child that polls them; when that dies, the next."""

    def __init__(self, spread: Spread) -> None:
        self.jobs: dict[int, _Charge] = {}
        self.lives = False
        self.missed = 0  # beats since it was last heard of
        self._spread = spread
        self._channel: m.Channel | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._leaving = False
        self._task = asyncio.create_task(self._go_on())

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def say(self, message: m.Message) -> None:
        """What nobody hears is not needed: the next child is told all."""
        if self._channel is not None:
            self._channel.say(message)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def close(self) -> None:
        self._leaving = True
        self.say(m.Leave())
        if self._channel is None:
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=GRACE)
        self.kill()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _go_on(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await self._spread.freshen()
                reason = await self._live()
            except Exception as error:  # whatever it is, the jobs must be polled
                reason = f"{type(error).__name__}: {error}"
            if self.lives:
                self._asked_lately()
            self.lives = False
            if self._leaving:
                return
            failures = 0 if time.monotonic() - began > SETTLED else failures + 1
            log.warning("a process that polls has ended (%s); another takes over", reason)
            if failures >= TRIES:
                self._spread.hand_over(self)
            await asyncio.sleep(backoff(failures, 0.1, CAP, self._spread.rng))

    def _asked_lately(self) -> None:
        """The child that has died asked after what an earlier process knew."""
        for charge in self.jobs.values():
            charge.options.pop("asked_at", None)

    async def _live(self) -> str:
        """One child's life; how it ended."""
        ours, theirs = socket.socketpair()
        channel = m.Channel(m.Up)
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
            async for message in channel.heard():
                self.lives, self.missed = True, 0
                self._spread.said(self, message)
        finally:
            self._channel = None
            process.kill()
            await channel.close()
            code = await asyncio.to_thread(process.wait)
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    def _brief(self, channel: m.Channel) -> None:
        spread = self._spread
        channel.say(spread._start)
        channel.say(spread.proof())
        for kind in spread._kinds:
            channel.say(spread.knowledge(kind))
        for number, charge in self.jobs.items():
            channel.say(spread.asking(number, charge))


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    # bide itself must be found, wherever the program has gone meanwhile; all other modules are told with Start.
    search = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-m", "bide.client.polling.processes", str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
        start_new_session=True,  # Ctrl-C in a terminal is for the parent alone
    )


def spread(
    processes: int,
    api: Api,
    transport: Transport,
    signer: Signer,
    budget: Budget,
    limit: Limit | None,
    *,
    sharing: Sharing | None = None,
    **options: Any,
) -> Spread:
    """Children begin to start."""
    if type(api) not in (Api, OwnApi):
        raise SetupError(f"{type(api).__name__} cannot be waited for by several processes")
    memory = Path("/dev/shm")  # a disk that is busy would hold up whoever holds the lock
    place = memory if memory.is_dir() and os.access(memory, os.W_OK | os.X_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="bide-", dir=place))
    budgets = FileBudgets(folder)
    purse = budgets.open(SHARED, limit, budget) if sharing is None else sharing.purse
    found = Spread(api, transport, signer, purse, **options)
    found.start(processes, limit, budgets, folder, sharing)
    return found
