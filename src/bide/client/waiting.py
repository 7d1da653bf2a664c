"""Waiting for one job by long poll: when to ask, how long to hold, what to do on a bad day.

Invariants:
1. A failed poll is not a failed job: it backs off with full jitter, or as long as Retry-After says, and goes on.
2. Nothing spins: a service that does not hold the request is asked no faster than it advises.
3. A terminal answer ends the wait; nothing is asked afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bide.client.apis import Answer, Call
from bide.client.apis.values import retry_after
from bide.client.http.download import download, local_path
from bide.client.http.retrying import Retrying, RetryPolicy
from bide.client.http.service import ServiceRequests
from bide.client.http.transport import Download
from bide.core.errors import ServiceError
from bide.core.wire import JobStatus, quote

log = logging.getLogger("bide.client")

HOLD = 50.0  # below the minute after which many proxies cut a silent connection
AT_ONCE = 32  # long polls of one wait that are open together; more jobs are asked about in batches
LONGEST_PAUSE = 300.0  # an absurd Retry-After is not obeyed beyond this

OnChange = Callable[[JobStatus], object]
T = TypeVar("T")


@dataclass(frozen=True)
class Pace:
    """How fast to go; tests put their own clock and dice in."""

    base: float = 0.5  # backoff after a failed poll
    cap: float = 30.0
    gap: float = 0.25  # between two answers when every change is wanted
    advice: float = 1.0  # when the service neither holds a poll nor says when to come back
    rng: random.Random = field(default_factory=random.Random)
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    now: Callable[[], float] = time.monotonic

    def after_advice(self, advice: float | None) -> float:
        """A little more than advised, so that many clients do not come back together."""
        told = self.advice if advice is None else advice
        return min(told, LONGEST_PAUSE) * self.rng.uniform(1.0, 1.1)


class Watch:
    """What is known about one job, and the polls that bring it up to date."""

    def __init__(self, transport: ServiceRequests, job_id: str, pace: Pace) -> None:
        self.job_id = job_id
        self.latest: JobStatus | None = None
        self.requests = 0
        self.cancelling = False  # the service has taken a cancel
        self._transport = transport
        self._pace = pace
        self._etag: str | None = None

    @property
    def path(self) -> str:
        return f"/jobs/{quote(self.job_id)}"

    @property
    def ended(self) -> bool:
        return self.latest is not None and self.latest.status.terminal

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file.name for file in self.latest.files) if self.latest is not None else ()

    async def send(self, method: str, path: str, **options: Any) -> Answer:
        self.requests += 1
        return await self._transport.send(method, path, **options)

    def take(self, answer: Answer) -> JobStatus:
        """Keeps what an answer with a status resource says."""
        job: JobStatus = answer.read(JobStatus)
        return self.know(job, answer.headers.get("ETag"))

    def know(self, job: JobStatus, etag: str | None = None) -> JobStatus:
        if self.latest is None or self.latest.status is not job.status:
            log.info("job %s is %s", job.job_id, job.status)
        self.latest = job
        self._etag = etag
        return job

    async def look(self) -> JobStatus:
        """The job as it is now."""
        headers = {"If-None-Match": self._etag} if self._etag else None
        answer = await self.send("GET", self.path, headers=headers)
        if answer.status == 304 and self.latest is not None:
            return self.latest
        return self.take(answer)

    async def until_end(self, on_change: OnChange | None = None) -> JobStatus:
        """Asks until the job is terminal; `on_change` hears of every state on the way that was seen."""
        if on_change is not None and self.latest is not None:
            on_change(self.latest)
        while self.latest is None or not self.latest.status.terminal:
            began = self._pace.now()
            # Without an ETag to compare, a held request would only come back at the end.
            hold = 0.0 if on_change is not None and self._etag is None else HOLD

            async def poll(hold: float = hold) -> tuple[bool, float | None]:
                return await self._poll(hold, on_change is not None)

            changed, advice = await self.persist(poll)
            if changed and on_change is not None and self.latest is not None:
                on_change(self.latest)
            if self.ended:
                break
            await self._pause(self._pace.now() - began, hold, changed and on_change is not None, advice)
        assert self.latest is not None
        return self.latest

    async def _poll(self, hold: float, changes: bool) -> tuple[bool, float | None]:
        """Whether it brought something new, and when the service wants to be asked again."""
        headers = {}
        if hold:
            headers["Prefer"] = f"wait={hold:.0f}"
        if changes and self._etag:
            headers["If-None-Match"] = self._etag
        answer = await self.send("GET", self.path, headers=headers, hold=hold)
        advice = retry_after(answer.headers)
        if answer.status == 304:
            return False, advice
        self.take(answer)
        return True, advice

    async def _pause(self, took: float, hold: float, changed: bool, advice: float | None) -> None:
        if changed and self._etag:
            await self._pace.sleep(max(0.0, self._pace.gap - took))
        elif took < hold / 2 or not hold:
            await self._pace.sleep(self._pace.after_advice(advice))

    async def cancel(self) -> JobStatus:
        job = self.take(await self.send("POST", f"{self.path}/cancel"))
        self.cancelling = True
        return job

    async def retry(self) -> JobStatus:
        return self.take(await self.send("POST", f"{self.path}/retry"))

    async def delete(self) -> None:
        await self.send("DELETE", self.path)

    async def download(self, name: str, path: Path) -> Path:
        if self.latest is None:
            await self.look()
        call = self._transport.call("GET", f"{self.path}/files/{quote(name)}", headers={"Accept": "*/*"})

        async def open(call: Call) -> Download:
            self.requests += 1
            return await self._transport.open(call)

        files = self.latest.files if self.latest is not None else ()
        sha256 = next((file.sha256 for file in files if file.name == name), None)
        retrying = Retrying(RetryPolicy(self._pace.base, self._pace.cap), self._pace, self._pace.rng)
        target = await asyncio.to_thread(local_path, path, name)
        return (await download(open, call, target, retrying, sha256=sha256)).path

    async def result(self) -> Any:
        """The decoded result of a job that has one; large ones are only at their own address."""
        job = self.latest
        if job is None or job.result is not None:
            return None if job is None else job.result

        async def fetch() -> Any:
            return (await self.send("GET", f"{self.path}/result")).read(Any)

        try:
            job.result = await self.persist(fetch)
        except ServiceError as error:
            if error.code != "no-result":
                raise
        return job.result

    async def persist(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Until it succeeds, or fails in a way that no waiting will mend."""
        policy = RetryPolicy(self._pace.base, self._pace.cap)
        return await Retrying(policy, self._pace, self._pace.rng).run(operation)
