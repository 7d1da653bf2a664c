"""GET /stats: how many jobs were submitted, started and ended over time, and how long they waited and ran."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from bide.core.clock import render_instant
from bide.core.errors import InvalidInput, Overloaded, QueryTimeout
from bide.core.jobs.histogram import quantile
from bide.core.wire.http import encode, read_instant_at
from bide.server.http.request import HttpRequest, Response, json_response, wrong_parameter
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec
from bide.server.http.status import UNCACHED
from bide.server.store.query_threads import release
from bide.server.store.rollups import KEEP_HOURS, KEEP_MINUTES, MINUTE, RollupQuery, step_name

MAX_POINTS = 1500
POINTS = 300  # by default at most
WIDTHS = (60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 86400)
DAY = 86400.0
COUNTS, WAIT, RUN = range(3)


class Quantiles(msgspec.Struct):
    """Seconds that 50, 95 and 99 percent of the durations do not exceed."""

    p50: float
    p95: float
    p99: float


class StatsPoint(msgspec.Struct, kw_only=True):
    """What happened from `at` until the next point. `waiting` and `running` are average numbers of jobs; null: unknown."""

    at: str
    submitted: int = 0
    started: int = 0
    done: int = 0
    partial: int = 0
    cancelled: int = 0
    failed: dict[str, int] = {}
    wait: Quantiles | None = None
    run: Quantiles | None = None
    waiting: float | None = None
    running: float | None = None


class Statistics(msgspec.Struct, rename={"start": "from", "end": "to"}):
    """Points of `step` seconds each, the oldest first, and the same numbers for the whole time."""

    start: str
    end: str
    step: int
    points: list[StatsPoint]
    total: StatsPoint


class PointCounts:
    """The counts of a point, and its rendering."""

    __slots__ = ("by_place",)

    def __init__(self) -> None:
        self.by_place: tuple[dict[Any, int], ...] = ({}, {}, {})  # by COUNTS, WAIT and RUN

    def point(self, at: float) -> StatsPoint:
        counts: dict[str, int] = self.by_place[COUNTS]
        samples = counts.get("samples", 0)
        return StatsPoint(
            at=render_instant(at),
            submitted=counts.get("submitted", 0),
            started=counts.get("started", 0),
            done=counts.get("done", 0),
            partial=counts.get("partial", 0),
            cancelled=counts.get("cancelled", 0),
            failed={
                name.partition(":")[2]: count
                for name, count in sorted(counts.items())
                if name.startswith("failed:")
            },
            wait=_quantiles(self.by_place[WAIT]),
            run=_quantiles(self.by_place[RUN]),
            waiting=round(counts.get("waiting", 0) / samples, 2) if samples else None,
            running=round(counts.get("running", 0) / samples, 2) if samples else None,
        )


def _place(name: str, step: str | None) -> tuple[int, Any] | None:
    """Where a count belongs, and its key there: the bucket of a histogram, or its name. None: it is not shown."""
    place, _, rest = name.partition(".")
    if place == "wait":
        return WAIT, int(rest)
    if place == "run":
        return (RUN, int(rest)) if step is None else None
    if place == "step":
        bucket, _, of = rest.partition(":")
        return (RUN, int(bucket)) if step is not None and of == step else None
    return COUNTS, name


def _add(counts: dict[Any, int], key: Any, count: int) -> None:
    counts[key] = counts.get(key, 0) + count


def _quantiles(counts: dict[int, int]) -> Quantiles | None:
    found = [quantile(counts, part) for part in (0.5, 0.95, 0.99)]
    values = [round(seconds, 4) for seconds in found if seconds is not None]
    return Quantiles(*values) if len(values) == 3 else None


def statistics_body(rows: Iterable[tuple[int, str, int]], query: RollupQuery, step: str | None) -> bytes:
    """The JSON of `Statistics`; `step`: the name of a step whose durations `run` has. Call it in a thread, because a day
    has thousands of rows. Each point is encoded alone, because an encoder does not release the interpreter.
    """
    points: dict[int, PointCounts] = {}
    places: dict[str, tuple[int, Any] | None] = {}  # each name is read once
    total, totals = PointCounts(), dict[str, int]()
    for number, (at, name, count) in enumerate(rows):
        if name not in places:
            places[name] = _place(name, step)
        place = places[name]
        if place is not None:
            point = points.get(at)
            if point is None:
                point = points[at] = PointCounts()
            _add(point.by_place[place[0]], place[1], count)
            totals[name] = totals.get(name, 0) + count
        if number % 500 == 499:
            release()
    for name, count in totals.items():
        place = places[name]
        assert place is not None
        _add(total.by_place[place[0]], place[1], count)
    nothing = PointCounts()
    shown: list[Any] = []
    first = query.start - query.start % query.width
    for number, at in enumerate(range(first, query.end, query.width)):
        shown.append(msgspec.Raw(encode(points.get(at, nothing).point(at))))
        if number % 12 == 11:
            release()
    found = Statistics(
        render_instant(query.start),
        render_instant(query.end),
        query.width,
        shown,
        total.point(query.start),
    )
    return encode(found)


async def stats(request: HttpRequest) -> Response:
    request.components.admission.check_load()
    query, step = _query(request)
    rows = await request.components.store.statistics(query)
    body = await asyncio.to_thread(statistics_body, rows, query, step)
    return json_response(200, body, *UNCACHED)


def _query(request: HttpRequest) -> tuple[RollupQuery, str | None]:
    now = request.components.store.now()
    end = _instant(request, "to", now)
    start = _instant(request, "from", end - DAY)
    if start >= end:
        raise wrong_parameter("from", "must be before `to`")
    given = request.one("step")
    width, name = None, None
    if given is not None and given.isascii() and given.isdigit():
        width = int(given[:9])
        if width == 0 or width % MINUTE:
            raise wrong_parameter("step", "must be a multiple of 60 seconds, or the name of a step")
    elif given is not None:
        name = step_name(given)
    seconds = end - start
    if width is None:
        old = start < now - KEEP_MINUTES
        fitting = [w for w in WIDTHS if seconds / w <= POINTS and not (old and w < 3600)]
        width = fitting[0] if fitting else int(-(-seconds // POINTS // DAY)) * int(DAY)
    if seconds / width > MAX_POINTS:
        raise wrong_parameter("step", f"would make more than {MAX_POINTS} points; use a larger one")
    first = int(start) // MINUTE * MINUTE
    last = -(-int(end) // MINUTE) * MINUTE + (MINUTE if end % MINUTE else 0)
    query = RollupQuery(
        request.tenant,
        max(0, first),
        max(0, last),
        width,
        request.one("kind"),
        request.one("queue"),
    )
    return query, name


def _instant(request: HttpRequest, name: str, default: float) -> float:
    text = request.one(name)
    return default if text is None else min(max(read_instant_at(f"?{name}", text), 0.0), 1e10)


def _parameter(name: str, description: str, **schema: Any) -> Parameter:
    return Parameter(name, "query", description, {"type": "string", **schema})


OPERATIONS = [
    HttpOperation(
        "GET",
        "/stats",
        stats,
        "getStatistics",
        "Get statistics over time",
        "stats",
        description="How many jobs were submitted, started and ended, how long they waited and ran, and how many waited and "
        f"ran on average. Points of less than an hour exist for {KEEP_MINUTES // 86400} days, others for "
        f"{KEEP_HOURS // 86400} days.",
        parameters=(
            _parameter("kind", "Only jobs of this kind."),
            _parameter("queue", "Only jobs of this queue."),
            _parameter("from", "The begin; 24 hours before `to` by default.", format="date-time"),
            _parameter("to", "The end; now by default.", format="date-time"),
            _parameter(
                "step",
                "The seconds of one point, a multiple of 60. Or the name of a step: then `run` has the durations of that "
                "step.",
            ),
        ),
        scope="read",
        responses=(ResponseSpec(200, "The points.", Statistics, headers=("Cache-Control", "Vary")),),
        problems=(InvalidInput, QueryTimeout, Overloaded),
        example="'$BASE/stats?step=3600'",
    ),
]
