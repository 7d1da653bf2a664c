"""Between the poller and the ledger: what is waited for at one API is kept, and what was known before comes back.

A job that the ledger has as ended is over at once: nothing is asked about it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bide.client.apis import Api, Found, Ref, Seen
from bide.client.budgets import StorableBudget
from bide.client.ledger import Entry, Key, Knowledge, Learned, Ledger, bare
from bide.client.polling.kinds import Kind
from bide.client.polling.schedule import Schedule
from bide.client.tracked import ENDINGS, Tracked
from bide.core.budget import Budget, Limit
from bide.core.clock import read_instant
from bide.core.record import Progress


class LearnedSession:
    """What one account learns of one API, stored in a Knowledge. `wall` returns epoch seconds."""

    def __init__(self, knowledge: Knowledge, api: Api, account: str, wall: Callable[[], float]) -> None:
        self._knowledge = knowledge
        self._api = api
        self._account = account  # a fingerprint of the credential
        self._wall = wall
        self._learned: Learned | None = None

    async def load(self) -> None:
        self._learned = await self._knowledge.learned()

    def budget(self, limit: Limit | None, rng: random.Random, now: float) -> Budget:
        """As the last process had it; with another limit, or without a memory of it, a new one."""
        at, data = (self._learned or Learned()).budgets.get(self._account, (0.0, None))
        ago = self._wall() - at
        if data is None or data.get("limit") != _named(limit):
            return Budget(limit, rng=rng)
        return Budget.load(data, limit, now=now, ago=ago, rng=rng)

    def kind(self, name: str, size: str, batch: int) -> Kind | None:
        data = (self._learned or Learned()).durations.get((self._api.name, name, size))
        return None if data is None else Kind.load(data, batch)

    async def learn(self, schedule: Schedule, limit: Limit | None, now: float) -> None:
        """Writes down what was learned."""
        durations: dict[Key, dict[str, Any]] = {}
        for name, kind in schedule.kinds.items():
            kind_name, size = name if isinstance(name, tuple) else (name, "")
            if kind.plans.sketch.count:
                durations[self._api.name, str(kind_name), str(size)] = kind.dump()
        budgets: dict[str, tuple[float, dict[str, Any]]] = {}
        if isinstance(schedule.budget, StorableBudget):
            dump = {**schedule.budget.dump(now), "limit": _named(limit)}
            budgets[self._account] = (self._wall(), dump)
        await self._knowledge.learn(Learned(durations=durations, budgets=budgets))


class Keeper:
    """The jobs of one API in a ledger. `wall` returns epoch seconds."""

    def __init__(self, ledger: Ledger, api: Api, wall: Callable[[], float]) -> None:
        self._ledger = ledger
        self._api = api
        self._base = bare(api.url or "")
        self._wall = wall

    def key(self, job: Tracked) -> Key:
        return self._api.name, self._base, job.job_id

    async def rename(self) -> None:
        """Gives each job its whole reference as the key: earlier versions stored its id alone."""
        renamed = {}
        for entry in await self._ledger.entries():
            if (entry.api, entry.base) == (self._api.name, self._base) and entry.ref is not None:
                job_id = self._api.job_id(entry.ref)
                if entry.job_id == entry.ref.id != job_id:
                    renamed[entry.key] = msgspec.structs.replace(entry, job_id=job_id)
        if renamed:
            # In this order: a crash in between leaves both, and the next start removes the old ones.
            await self._ledger.add(list(renamed.values()))
            await self._ledger.forget(renamed)

    async def add(self, jobs: Sequence[Tracked]) -> list[Entry]:
        """Waits for these from now on; what the ledger knew of them, they know."""
        known = await self._ledger.add([self._entry(job) for job in jobs])
        for job, entry in zip(jobs, known, strict=True):
            self._restore(job, entry)
        return known

    async def jobs(self) -> list[tuple[Tracked, Entry]]:
        """All that the ledger has of this API."""
        found = []
        for entry in await self._ledger.entries():
            if (entry.api, entry.base) == (self._api.name, self._base):
                ref = entry.ref or self._api.references.ref(entry.job_id)
                job = Tracked(ref, entry.kind, entry.submitted_at, entry.job_id)
                self._restore(job, entry)
                found.append((job, entry))
        return found

    def noted(self, job: Tracked) -> None:
        self._ledger.note(self._entry(job))

    async def ended(self, job: Tracked) -> None:
        await self._ledger.end(self._entry(job))

    async def told(self, jobs: Sequence[Tracked]) -> None:
        await self._ledger.tell([self.key(job) for job in jobs])

    def _entry(self, job: Tracked) -> Entry:
        name, base, job_id = self.key(job)
        plain = job.ref == Ref(job_id)
        entry = Entry(
            api=name,
            base=base,
            job_id=job_id,
            ref=None if plain else job.ref,
            kind=job.kind,
            size=job.size,
            submitted_at=job.submitted_at,
            since=self._wall(),
            asked_at=None if job.seen is None else self._wall(),
            etag=job.etag,
            requests=job.requests,
        )
        record = job.record()
        if record is not None:
            entry.status, entry.progress, entry.error = record.status, record.progress, record.error
            if record.status.terminal:
                entry.finished_at = read_instant(record.finished_at) if record.finished_at else None
                _keep_outputs(entry, job)
        return entry

    def _restore(self, job: Tracked, entry: Entry) -> None:
        job.requests = max(job.requests, entry.requests)
        job.size = job.size or entry.size
        job.kind = job.kind or entry.kind
        if entry.submitted_at is not None:
            job.submitted_at = entry.submitted_at
        if entry.status is None or (job.seen is not None and not entry.ended):
            return  # what this process has seen itself is newer
        if job.seen is not None and job.seen.terminal:
            return  # and says more
        job.asked_at, job.since = entry.asked_at, entry.since
        job.etag = job.etag or entry.etag
        progress = entry.progress
        result = None if entry.result is None else msgspec.json.decode(entry.result)
        percent = progress.percent if progress is not None else None
        job.seen = Seen(
            state=ENDINGS.get(entry.status, "live"),
            word=entry.status,
            progress=None if percent is None else percent / 100.0,
            counts=_counts(progress),
            message=progress.message if progress is not None else None,
            finished_at=entry.finished_at,
            error=entry.error,
            result=result,
            result_url=entry.result_url,
            files=entry.files,
        )


def _keep_outputs(entry: Entry, job: Tracked) -> None:
    """Its result, and where its files are: the process that tells of its end may be another one."""
    seen = job.seen
    assert seen is not None
    result = seen.result
    if seen.record is not None:
        result = seen.record.result
        entry.files = tuple(
            Found(f.name, f.url, f.content_type, f.size, f.sha256) for f in seen.record.files
        )
    else:
        entry.result_url, entry.files = seen.result_url, seen.files
    if result is not None:
        entry.result = msgspec.Raw(msgspec.json.encode(result))


def _counts(progress: Progress | None) -> tuple[float, float | None] | None:
    if progress is None or progress.done is None:
        return None
    return progress.done, progress.total


def _named(limit: Limit | None) -> list[Any] | None:
    return None if limit is None else [limit.requests, limit.per, limit.burst]
