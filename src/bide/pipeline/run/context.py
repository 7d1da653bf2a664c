"""What the phases of all exports share: the account, the checkpoint, the outages, and who wants to know."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec

from bide.client.account import Account
from bide.client.apis import BadPoll, Ref, Throttled
from bide.client.http.retrying import Retrying, RetryPolicy
from bide.client.http.sender import refusal
from bide.client.timing import Timing
from bide.client.tracked import Tracked
from bide.core.errors import (
    BideError,
    ErrorInfo,
    ServiceError,
    ServiceUnreachable,
    UnusableService,
)
from bide.pipeline.run.checkpoint import Checkpoint
from bide.pipeline.run.phase import Export, PhaseEvent, advance

FAILURES = 3  # in a row at one host, after which only one export tries it


class RunHalted(BideError):
    """Why the whole run cannot go on for now. No phase is changed: the next run goes on."""


class ExportStopped(BideError):
    """Why one export cannot go on for now; its phase stays, and the next run goes on with it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.error = ErrorInfo(code, message, retryable=True)


class ExportRefused(BideError):
    """The API's own verdict: this export failed."""

    def __init__(self, error: ErrorInfo, *, lost: bool = False) -> None:
        super().__init__(error.code, error.message)
        self.error = error
        self.lost = lost  # the API has forgotten the job: asking for it anew may well help


@dataclass(frozen=True)
class ExportUpdate:
    """A change of one export: of its phase, or on the way to the next one."""

    export: Export
    percent: float | None = None
    message: str | None = None
    moved: bool = True  # its phase is another one


@dataclass
class RunContext:
    account: Account
    state: Checkpoint
    timing: Timing
    patience: float
    tell: Callable[[ExportUpdate], object]
    run_id: str
    resubmit: bool = False  # also what is not to be sent again by itself
    rng: random.Random = field(default_factory=random.Random)
    downloads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))
    room: asyncio.Semaphore | None = None  # for jobs that the API runs at once
    submitting: int = 0  # exports that are on their way to the API
    submitted: asyncio.Event = field(default_factory=asyncio.Event)  # none is
    jobs: dict[str, Tracked] = field(default_factory=dict)  # by export, of this process
    _owners: dict[bytes, str] = field(default_factory=dict)  # by job: the export that it was given to
    _hosts: dict[str, Retrying] = field(default_factory=dict)

    def retrying(self, url: str) -> Retrying:
        """Shared by all exports: while a host does not answer, only one of them tries it."""
        host = urlsplit(url).netloc.rpartition("@")[2]
        if host not in self._hosts:
            policy = RetryPolicy(
                base=2.0, least=0.5, patience=self.patience, alone=FAILURES, warn_at=FAILURES
            )
            self._hosts[host] = Retrying(policy, self.timing, self.rng, host)
        return self._hosts[host]

    async def step(self, export: Export, event: PhaseEvent, **known: object) -> Export:
        """The next phase: on disk first, told then."""
        after = advance(export, event, **known)
        await self.state.save(after)
        self.tell(ExportUpdate(after))
        return after

    async def note(self, export: Export, error: ErrorInfo) -> Export:
        """Why it stays where it is."""
        after = msgspec.structs.replace(export, error=error)
        await self.state.save(after)
        self.tell(ExportUpdate(after))
        return after

    @contextmanager
    def on_the_way(self) -> Iterator[None]:
        """To the API: those that are there already wait for it, see `monitor`."""
        self.submitting += 1
        self.submitted.clear()
        try:
            yield
        finally:
            self.submitting -= 1
            if not self.submitting:
                self.submitted.set()

    def owner(self, ref: Ref, name: str) -> str:
        """Whose a job is: of the first who claimed it."""
        return self._owners.setdefault(msgspec.json.encode(ref, order="deterministic"), name)

    def job(self, export: Export, kind: str) -> Tracked:
        """The job of an export that has one."""
        assert export.ref is not None
        job = self.jobs.get(export.key)
        job_id = self.account.api.job_id(export.ref)
        if job is None or job.job_id != job_id:
            job = self.jobs[export.key] = Tracked(export.ref, kind, export.submitted_at, job_id)
        return job

    async def look(self, job: Tracked) -> None:
        """Asks about a job now, until there is an answer about it."""
        await self.retrying(self.account.api.url or "").run(lambda: self._look(job))

    async def _look(self, job: Tracked) -> None:
        api = self.account.api
        answer = await self.account.send(api.calls.ask(job.ref))
        try:
            job.seen = api.read(job.ref, answer)
        except Throttled:
            raise
        except BadPoll as error:
            if error.final:
                raise refusal(error, api) from None
            raise ServiceUnreachable(f"{api.name}: {error}") from None


def explained(error: Exception) -> BideError:
    """What a failed exchange with the API means for who asked: the run halts, or only this export stops or fails."""
    if isinstance(error, UnusableService):
        return RunHalted(str(error))
    if isinstance(error, ServiceError):
        if error.status == 401:
            return RunHalted(f"the API does not take the credential: {error}. Renew it and run again")
        if error.status >= 500 or error.status in (408, 425, 429):
            return ExportStopped("UNREACHABLE", f"{error}; run again later")
        return ExportRefused(ErrorInfo(error.code.upper().replace("-", "_"), str(error)))
    if isinstance(error, ServiceUnreachable):
        return ExportStopped("UNREACHABLE", f"{error}; run again later")
    return error if isinstance(error, BideError) else RunHalted(str(error))
