"""Rollups: how many jobs of each kind and queue were submitted, started and ended in a minute, and their durations.

1. The counts are written in the transaction of the change that they count, so they are exact after a crash.
2. All counts are sums. The merge of minutes to an hour, and of several kinds, is the sum of their counts.
3. Minutes are kept for KEEP_MINUTES, hours for KEEP_HOURS. The minutes of an hour are merged in one transaction, after the
   hour has ended. Those of five minutes are merged, too, so that a day has few rows to read.

A count has a name: `submitted`, `started`, `done`, `partial`, `cancelled`, `failed:CODE`; `wait.N`, `run.N` and
`step.N:NAME` are histograms, with N the bucket (`core.jobs.histogram`). `waiting` and `running` are the sums of all samples
of these numbers; the number of samples is `samples`, of an empty kind and queue.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bide.core.jobs.histogram import LAST, bucket_of
from bide.core.jobs.record import Job, Status

MINUTE, FIVE_MINUTES, HOUR = 60, 300, 3600
KEEP_MINUTES, KEEP_HOURS = 14 * 86400, 90 * 86400
GRACE = 120  # seconds after the end of an hour in which a slow commit, or a slower clock, may still add to it
MAX_NAME = 100
_WAITS = [f"wait.{bucket}" for bucket in range(LAST + 1)]
_RUNS = [f"run.{bucket}" for bucket in range(LAST + 1)]
_DIGITS = re.compile(r"\d+")
_ENDS = {Status.DONE: "done", Status.PARTIAL_SUCCESS: "partial", Status.CANCELLED: "cancelled"}
Rows = list[tuple[Any, ...]]
Execute = Callable[[str, Sequence[Any]], Any]


class RollupRow(msgspec.Struct, frozen=True, array_like=True):
    """Adds `count` to a count of this minute."""

    tenant: str
    at: int  # the begin of the minute
    kind: str
    queue: str
    name: str
    count: int


class RollupQuery(msgspec.Struct, frozen=True):
    """Counts of a tenant from `start` to before `end`, summed up in points of `width` seconds, a multiple of a minute."""

    tenant: str
    start: int
    end: int
    width: int
    kind: str | None = None
    queue: str | None = None


class LoadSample(msgspec.Struct, frozen=True):
    """How many jobs of a kind and queue wait or run now."""

    tenant: str
    kind: str
    queue: str
    waiting: int
    running: int


class RollupCounter:
    """The counts of one transaction."""

    __slots__ = ("_at", "_counts")

    def __init__(self, now: float) -> None:
        self._at = int(now) // MINUTE * MINUTE
        self._counts: dict[tuple[str, str, str], Counter[str]] = {}  # by tenant, kind and queue

    def _of(self, tenant: str, kind: str, queue: str) -> Counter[str]:
        key = (tenant, kind, queue)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = Counter()
        return counts

    def submitted(self, job: Job) -> None:
        self._of(job.tenant, job.kind, job.queue)["submitted"] += 1

    def started(self, job: Job, waited: float | None) -> None:
        counts = self._of(job.tenant, job.kind, job.queue)
        counts["started"] += 1
        if waited is not None:
            counts[_WAITS[bucket_of(waited)]] += 1

    def ended(self, before: Job, after: Job) -> None:
        name = _ENDS.get(after.status)
        if name is None:
            code = after.error.code if after.error is not None else "ERROR"
            name = f"failed:{_short(code)}"
        counts = self._of(after.tenant, after.kind, after.queue)
        counts[name] += 1
        if (
            before.status is Status.PROCESSING
            and after.started_at is not None
            and after.finished_at is not None
        ):
            counts[_RUNS[bucket_of(after.finished_at - after.started_at)]] += 1

    def step_ended(self, job: Job, name: str, seconds: float) -> None:
        name = f"step.{bucket_of(seconds)}:{step_name(name)}"
        self._of(job.tenant, job.kind, job.queue)[name] += 1

    def sampled(self, samples: Sequence[LoadSample]) -> None:
        for tenant in {sample.tenant for sample in samples}:
            self._of(tenant, "", "")["samples"] += 1
        for one in samples:
            for name, number in (("waiting", one.waiting), ("running", one.running)):
                if number:
                    self._of(one.tenant, one.kind, one.queue)[name] += number

    def take(self) -> Sequence[RollupRow]:
        if not self._counts:
            return ()
        # In order, so that two processes lock rows in the same order.
        rows = [
            RollupRow(tenant, self._at, kind, queue, name, count)
            for (tenant, kind, queue), counts in sorted(self._counts.items())
            for name, count in sorted(counts.items())
        ]
        self._counts.clear()
        return rows


def step_name(name: str) -> str:
    """The name of a step in rollups. Digits are replaced, because a handler may number its steps without a limit."""
    return _short(_DIGITS.sub("#", name))


def _short(text: str) -> str:
    return text.replace("\0", "�")[:MAX_NAME]


# --- SQL, the same for every database, with a `?` per value

ADD = "ON CONFLICT (tenant, span, at, kind, queue, name) DO UPDATE SET count = rollups.count + excluded.count"
_TENANT = "SELECT tenant FROM rollups WHERE tenant > ? ORDER BY tenant LIMIT 1"
_LAST = "SELECT max(at) FROM rollups WHERE tenant = ? AND span = ?"
_NEXT_MINUTE = f"SELECT min(at) FROM rollups WHERE tenant = ? AND span = {MINUTE} AND at >= ?"
_MERGE = (
    f"INSERT INTO rollups (tenant, span, at, kind, queue, name, count) SELECT tenant, CAST(? AS BIGINT), CAST(? AS BIGINT), "
    f"kind, queue, name, sum(count) FROM rollups WHERE tenant = ? AND span = {MINUTE} AND at >= ? AND at < ? "
    "GROUP BY tenant, kind, queue, name ORDER BY kind, queue, name "
    "ON CONFLICT (tenant, span, at, kind, queue, name) DO UPDATE SET count = excluded.count"
)
_OLDEST = "SELECT min(at) FROM rollups WHERE tenant = ? AND span = ?"
_REMOVE = "DELETE FROM rollups WHERE tenant = ? AND span = ? AND at < ?"
_SUMS = (
    "SELECT at - at % ? AS slot, name, CAST(sum(count) AS BIGINT) FROM rollups "
    "WHERE tenant = ? AND span = ? AND at >= ? AND at < ?{more} GROUP BY slot, name"
)


def merge(execute: Execute, now: float) -> bool:
    """Merge the next complete span of each tenant, and remove some old rows. Return whether there is more to do."""
    more = False
    tenant = ""
    while rows := execute(_TENANT, (tenant,)).fetchall():
        tenant = rows[0][0]
        more = _merge_tenant(execute, tenant, now) or more
    return more


def _merge_tenant(execute: Execute, tenant: str, now: float) -> bool:
    more = False
    for span in (FIVE_MINUTES, HOUR):
        last = execute(_LAST, (tenant, span)).fetchone()[0]
        minute = execute(_NEXT_MINUTE, (tenant, 0 if last is None else last + span)).fetchone()[0]
        if minute is not None:
            begin = int(minute) // span * span
            if begin + span + GRACE <= now:
                execute(_MERGE, (span, begin, tenant, begin, begin + span))
                more = more or begin + 2 * span + GRACE <= now
    for span, keep in ((MINUTE, KEEP_MINUTES), (FIVE_MINUTES, KEEP_MINUTES), (HOUR, KEEP_HOURS)):
        end = int(now - keep) // HOUR * HOUR
        oldest = execute(_OLDEST, (tenant, span)).fetchone()[0]
        if oldest is not None and oldest < end:
            until = min(end, int(oldest) // HOUR * HOUR + (86400 if span == HOUR else HOUR))
            execute(_REMOVE, (tenant, span, until))
            more = more or until < end
    return more


def read(run: Callable[[str, Sequence[Any]], Rows], query: RollupQuery) -> Rows:
    """(begin of the point, name, count) of every count, from the longest spans that the points are made of."""
    more, values = "", []
    for column, value in (("kind", query.kind), ("queue", query.queue)):
        if value is not None:
            more += f" AND ({column} = ? OR name = 'samples')"
            values.append(value)
    sql = _SUMS.format(more=more)
    found: Rows = []
    start = query.start
    for span in (HOUR, FIVE_MINUTES):
        if query.width % span == 0:
            # From the next begin of a span to the end of the last one that is merged and within the query.
            begin = -(-start // span) * span
            last = run(_LAST, (query.tenant, span))[0][0]
            end = min(query.end // span * span, 0 if last is None else int(last) + span)
            if end > begin:
                if begin > start:
                    found += run(sql, (query.width, query.tenant, MINUTE, start, begin, *values))
                found += run(sql, (query.width, query.tenant, span, begin, end, *values))
                start = end
    if query.end > start:
        found += run(sql, (query.width, query.tenant, MINUTE, start, query.end, *values))
    return found
