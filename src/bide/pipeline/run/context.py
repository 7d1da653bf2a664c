"""The context that all exports of a run share: account, checkpoint, retry loops, semaphores; and the errors of steps."""

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
from bide.client.job_state import JobState
from bide.client.timing import Timing
from bide.core.errors import (
    BideError,
    ErrorInfo,
    ServiceError,
    ServiceUnreachable,
    UnusableService,
)
from bide.pipeline.run.checkpoint import Checkpoint
from bide.pipeline.run.phase import Export, PhaseEvent, advance

FAILURES = 3  # in a row at one host; then only one export sends requests to it


class RunHalted(BideError):
    """The whole run cannot continue now. No phase changes, and the next run resumes it."""


class ExportStopped(BideError):
    """One export cannot continue now. Its phase stays, and the next run resumes it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.error = ErrorInfo(code, message, retryable=True)


class ExportRefused(BideError):
    """The API failed or refused this export."""

    def __init__(self, error: ErrorInfo, *, lost: bool = False) -> None:
        super().__init__(error.code, error.message)
        self.error = error
        self.lost = lost  # the API no longer has the job, so a new submission may succeed


@dataclass(frozen=True)
class ExportUpdate:
    """A change of the phase of an export, or of its progress."""

    export: Export
    percent: float | None = None
    message: str | None = None
    moved: bool = True  # False: the phase is the same


@dataclass
class RunContext:
    account: Account
    checkpoint: Checkpoint
    timing: Timing
    patience: float
    notify: Callable[[ExportUpdate], object]
    run_id: str
    resubmit: bool = False  # also exports whose `resubmit` is false
    rng: random.Random = field(default_factory=random.Random)
    downloads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))
    slots: asyncio.Semaphore | None = None  # of jobs that the API runs at the same time
    submitting: int = 0  # exports that are being submitted
    submitted: asyncio.Event = field(default_factory=asyncio.Event)  # no export is being submitted
    jobs: dict[str, JobState] = field(default_factory=dict)  # by the key of the export
    _owners: dict[bytes, str] = field(default_factory=dict)  # the name of the export by job
    _hosts: dict[str, Retrying] = field(default_factory=dict)

    def retrying(self, url: str) -> Retrying:
        """The retry loop of a host, which all exports share. During an outage only one of them sends requests."""
        host = urlsplit(url).netloc.rpartition("@")[2]
        if host not in self._hosts:
            policy = RetryPolicy(
                base=2.0, least=0.5, patience=self.patience, alone=FAILURES, warn_at=FAILURES
            )
            self._hosts[host] = Retrying(policy, self.timing, self.rng, host)
        return self._hosts[host]

    async def step(self, export: Export, event: PhaseEvent, **known: object) -> Export:
        """Store the next phase and then report it."""
        after = advance(export, event, **known)
        await self.checkpoint.save(after)
        self.notify(ExportUpdate(after))
        return after

    async def stop(self, export: Export, error: ErrorInfo) -> Export:
        """Store and report why the export stays in its phase."""
        after = msgspec.structs.replace(export, error=error)
        await self.checkpoint.save(after)
        self.notify(ExportUpdate(after))
        return after

    @contextmanager
    def submission(self) -> Iterator[None]:
        """Count exports that are being submitted. `monitor` waits until there is none."""
        self.submitting += 1
        self.submitted.clear()
        try:
            yield
        finally:
            self.submitting -= 1
            if not self.submitting:
                self.submitted.set()

    def claim(self, ref: Ref, name: str) -> str:
        """The name of the export that a job belongs to: the first that claimed it."""
        return self._owners.setdefault(msgspec.json.encode(ref, order="deterministic"), name)

    def job(self, export: Export, kind: str) -> JobState:
        """The job of an initiated export."""
        assert export.ref is not None
        job = self.jobs.get(export.key)
        job_id = self.account.api.job_id(export.ref)
        if job is None or job.job_id != job_id:
            job = self.jobs[export.key] = JobState(export.ref, kind, export.submitted_at, job_id)
        return job

    async def refresh(self, job: JobState) -> None:
        """Request the status of a job now, and again after an outage."""
        await self.retrying(self.account.api.url or "").run(lambda: self._refresh(job))

    async def _refresh(self, job: JobState) -> None:
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
    """The error of a step after a failed request: the run halts, or only this export stops or fails."""
    if isinstance(error, UnusableService):
        return RunHalted(str(error))
    if isinstance(error, ServiceError):
        if error.status == 401:
            return RunHalted(
                f"the API rejects the credential: {str(error).rstrip('.')}. Renew it and run again"
            )
        if error.status >= 500 or error.status in (408, 425, 429):
            return ExportStopped("UNREACHABLE", f"{error}. Run again later")
        return ExportRefused(ErrorInfo(error.code.upper().replace("-", "_"), str(error)))
    if isinstance(error, ServiceUnreachable):
        return ExportStopped("UNREACHABLE", f"{error}. Run again later")
    return error if isinstance(error, BideError) else RunHalted(str(error))
