"""A store under test with its clock and its events, and helpers for the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.errors import ErrorInfo
from bide.core.jobs.record import Child, Job, Status
from bide.core.jobs.state_machine import Change, Emitted, Refused, Spawned, Succeeded
from bide.core.wire.http import Event, job_id
from bide.server.store import Claim, ClaimRequest, Inserted, NewJob, Store
from bide.testing.clock import ManualClock

LEASE = 30.0
OOPS = ErrorInfo(code="OOPS", message="it went wrong", retryable=True, failed_step="first", attempt=1)


class StoreHarness:
    """One store under test."""

    def __init__(self, make: Callable[[], Store], clock: ManualClock) -> None:
        self._make = make
        self._numbers = count(1)
        self.clock = clock
        self.published: list[Event] = []
        self.tail: list[Event] = []
        self.epochs: list[str] = []
        self._followed = asyncio.Event()
        self.store = make()

    async def open(self) -> None:
        await self.store.open(self._publish, on_log=self._follow)

    async def reopen(self) -> None:
        """Reopen the store, as another process would."""
        await self.store.close()
        self.store = self._make()
        await self.open()

    def _publish(self, events: Sequence[Event]) -> None:
        self.published.extend(events)

    def _follow(self, epoch: str, last: int, events: Sequence[Event]) -> None:
        assert not events or events[-1].id <= last
        self.epochs.append(epoch)
        self.tail.extend(events)
        self._followed.set()

    async def followed_to(self, number: int) -> None:
        """Wait until the tail has the event with this number."""
        async with asyncio.timeout(5):
            while not self.tail or self.tail[-1].id < number:
                self._followed.clear()
                await self._followed.wait()

    def new(
        self,
        *,
        key: str | None = None,
        fingerprint: bytes = b"one body",
        content: bytes = b"",
        input: bytes = b"{}",
        search: tuple[tuple[str, str], ...] = (),
        unique: bytes = b"",
        unique_for: float = 0.0,
        **fields: Any,
    ) -> NewJob:
        """Return a job that is due now, unless `fields` say otherwise; a later one has a greater id."""
        now = self.clock.now()
        known: dict[str, Any] = {
            "id": job_id(now, _digits(next(self._numbers))),
            "kind": "work",
            "queue": "default",
            "created_at": now,
            "updated_at": now,
            "run_at": None,
            "due": fields.get("run_at") or now,
        }
        job = Job(**{**known, **fields})
        return NewJob(
            job,
            input,
            key=key,
            fingerprint=fingerprint,
            content=content,
            search=search,
            unique=unique,
            unique_for=unique_for,
        )

    async def put(self, **fields: Any) -> Job:
        """Store one new job."""
        (done,) = await self.store.insert([self.new(**fields)])
        assert isinstance(done, Inserted)
        assert done.created
        return done.job

    async def claim(
        self, *kinds: str, queue: str = "default", limit: int = 100, owner: str = "worker"
    ) -> list[Claim]:
        want = ClaimRequest(queue, kinds or ("work",), limit)
        return await self.store.claim(owner, [want], limit, LEASE)

    async def run(self, **fields: Any) -> Job:
        """Store one new job and claim it."""
        job = await self.put(**fields)
        return await self.take(job.id)

    async def take(self, job_id: str) -> Job:
        """Claim this job, and every job before it in its queue."""
        job = await self.get(job_id)
        claims = await self.claim(job.kind, queue=job.queue)
        return next(c.job for c in claims if c.job.id == job_id)

    async def get(self, job_id: str) -> Job:
        (job,) = await self.store.get([job_id])
        assert isinstance(job, Job)
        return job

    async def apply(self, change: Change) -> Job:
        """Apply a change that must be accepted. Return the job."""
        (after,) = await self.store.apply([self._by_owner(change, await self.get(change.job_id))])
        assert isinstance(after, Job), after
        assert await self.get(after.id) == after
        return after

    async def refuse(self, change: Change) -> Refused:
        """Apply a change that must be refused and must have no effect."""
        before = await self.get(change.job_id)
        events = await self.store.events()
        (refusal,) = await self.store.apply([self._by_owner(change, before)])
        assert isinstance(refusal, Refused), refusal
        assert await self.get(change.job_id) == before
        assert await self.store.events() == events
        return refusal

    @staticmethod
    def _by_owner(change: Change, job: Job) -> Change:
        """Set the owner of a worker's change to that of the job, if it has none."""
        if change.fence is None or change.owner is not None:
            return change
        return replace(change, owner=job.owner)

    async def succeed(self, job: Job, result: bytes = b"1") -> Job:
        return await self.apply(Succeeded(job_id=job.id, fence=job.fence, result=msgspec.Raw(result)))

    async def emit(self, job: Job, *output: Any, repeated: bool = False) -> None:
        """Add the first chunks to the output stream of a running job."""
        chunks = tuple(msgspec.Raw(msgspec.json.encode(chunk)) for chunk in output)
        emitted = Emitted(job_id=job.id, fence=job.fence, chunks=chunks, repeated=repeated)
        await self.apply(emitted)

    async def spawn(self, parent: Job, key: str = "0", **fields: Any) -> Job:
        """Store a child of a running parent, on its own queue."""
        new = self.new(**{"kind": "part", "queue": "parts", "parent": parent.id, **fields})
        child = Child(new.job.id, new.job.kind, key)
        spawned = Spawned(job_id=parent.id, owner=parent.owner, fence=parent.fence, child=child)
        made = await self.store.spawn(spawned, new)
        assert isinstance(made, Job), made
        return made

    async def statuses(self, *ids: str) -> list[Status]:
        return [(await self.get(job_id)).status for job_id in ids]


def _digits(number: int) -> bytes:
    """Encode in base 32, because an id uses five bits of each byte."""
    return bytes(number >> shift & 31 for shift in range(75, -1, -5))
