"""GET /metrics in the Prometheus format. Ended, failed and lost attempts, waiting and running times, and the accuracy of
`eta` are counted from events; everything else is read per request, without counting rows.

1. The first request imports prometheus_client, so that a service starts without it.
2. Names that handlers and callers make up (steps, error codes, tenants) have a bounded number of series. The series
   `other` has the rest.
"""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from bide.core.jobs.breaker import BreakerStatus
from bide.core.jobs.record import SUCCESSFUL, TERMINAL, Status
from bide.core.wire.http import Event
from bide.server.engine import WARNINGS
from bide.server.http import Components
from bide.server.http.health import warnings
from bide.server.http.queues import (
    BreakerInfo,
    Queue,
    RetryBudgetInfo,
    known_breakers,
    known_budgets,
    known_queues,
)
from bide.server.http.request import HttpRequest, Response, text_response
from bide.server.http.routing import HttpOperation, ResponseSpec
from bide.server.registry import SERVICE_QUEUE
from bide.server.webhooks.publisher import Publisher

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_TERMINAL = frozenset(status.value for status in TERMINAL)
_STATES = ("starting", "idle", "busy")
# Seconds: jobs take milliseconds or hours.
BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400)
MAX_STEPS = 50  # series of steps per kind; other steps share one, because a handler may make up names
MAX_CODES = 50  # series of error codes per kind
OTHER = "other"
OUTCOMES = ("early", "within", "late")  # when a job ended, compared with its `eta`


class DurationHistogram:
    """Counts durations by BUCKETS."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, int]]:
        """The number of durations up to each limit."""
        limits = [*(str(float(limit)) for limit in BUCKETS), "+Inf"]
        return list(zip(limits, accumulate(self.counts), strict=True))


class Metrics:
    """Counts ended jobs since the start, and reads the other metrics from the components."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._ended: Counter[tuple[str, str]] = Counter()
        self._waiting: dict[str, DurationHistogram] = defaultdict(DurationHistogram)  # by kind
        self._running: dict[str, DurationHistogram] = defaultdict(DurationHistogram)
        self._steps: dict[tuple[str, ...], DurationHistogram] = {}  # by kind and step
        self._step_counts: Counter[str] = Counter()  # series by kind
        self._failures: Counter[tuple[str, str, str]] = Counter()  # by kind, code and outcome
        self._codes: dict[str, set[str]] = defaultdict(set)  # that have series, by kind
        self._lost: Counter[tuple[str, str]] = Counter()  # by kind and reason
        # Jobs with each of the OUTCOMES, by kind and basis.
        self._etas: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(OUTCOMES))
        # By kind and basis.
        self._eta_errors: dict[tuple[str, ...], DurationHistogram] = defaultdict(DurationHistogram)
        self.operations = [
            HttpOperation(
                "GET",
                "/metrics",
                self.respond,
                "getMetrics",
                "Metrics",
                "health",
                scope="admin",
                responses=(
                    ResponseSpec(
                        200,
                        "The Prometheus exposition format.",
                        {"type": "string"},
                        content_types=("text/plain", "application/openmetrics-text"),
                    ),
                ),
                example="$BASE/metrics",
            )
        ]

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            job = event.job
            if event.type == "status":
                if (waited := job.get("waited")) is not None:
                    self._waiting[job["kind"]].add(waited)
                if (lost := job.get("lost")) is not None:
                    self._lost[job["kind"], lost] += 1
                if job["status"] in _TERMINAL:
                    self._count_end(job)
                elif "failed" in job:
                    self._count_failure(job, "retried")
            elif event.type == "step" and (seconds := job.get("seconds")) is not None:
                self._step(job["kind"], job["step"]["name"]).add(seconds)

    def _count_end(self, job: dict[str, Any]) -> None:
        kind, status = job["kind"], job["status"]
        self._ended[kind, status] += 1
        if status == Status.ERROR:
            self._count_failure(job, "final")
        if (seconds := job.get("seconds")) is None:
            return
        self._running[kind].add(seconds)
        if status in SUCCESSFUL:
            spread = self._components.estimates.latest_spread(kind)
            if spread is not None:
                self._count_eta(kind, "durations", spread, seconds)
            if (predicted := job.get("predicted")) is not None:
                self._count_eta(kind, "progress", predicted, seconds)

    def _count_eta(self, kind: str, basis: str, predicted: Sequence[float], seconds: float) -> None:
        low, middle, high = predicted
        self._etas[kind, basis][(seconds >= low) + (seconds > high)] += 1
        self._eta_errors[kind, basis].add(abs(seconds - middle))

    def _count_failure(self, job: dict[str, Any], outcome: str) -> None:
        kind, error = job["kind"], job.get("error")
        # The error of an event that another process has committed is not decoded.
        code = error.get("code") if isinstance(error, dict) else getattr(error, "code", None)
        code, codes = str(code or Status.ERROR), self._codes[kind]
        if code not in codes:
            code = code if len(codes) < MAX_CODES else OTHER
            codes.add(code)
        self._failures[kind, code, outcome] += 1

    def _step(self, kind: str, name: str) -> DurationHistogram:
        found = self._steps.get((kind, name))
        if found is None:
            known = self._components.registry.kinds.get(kind)
            if known is None or name not in known.steps:
                if self._step_counts[kind] == MAX_STEPS:
                    return self._steps.setdefault((kind, OTHER), DurationHistogram())
                self._step_counts[kind] += 1
            found = self._steps[kind, name] = DurationHistogram()
        return found

    async def respond(self, request: HttpRequest) -> Response:
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(request.header(b"accept") or "")
        queues = await known_queues(self._components)
        overdue = await self._components.store.overdue_counts()
        disk = await asyncio.to_thread(_read_disk, self._components.config.data)
        families = [*self._families(queues, overdue), *_of_disk(*disk), *_of_process()]
        breakers = await known_breakers(self._components)
        budgets = await known_budgets(self._components)
        families += [*_of_breakers(breakers), *_of_budgets(budgets)]
        return text_response(content_type, encode(cast(Any, _Collected(families))))

    def _families(self, queues: list[Queue], overdue: Mapping[str, int]) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        yield from _of_queues(queues)
        yield self._of_needed(queues)
        found = Counter(warning.code for warning in warnings(self._components, queues))
        current = GaugeMetricFamily(
            "bide_warnings",
            "Warnings of /readyz by code: conditions that keep jobs from running.",
            labels=["code"],
        )
        for code in WARNINGS:
            current.add_metric([code], found[code])
        yield current
        refused = CounterMetricFamily(
            "bide_refused_requests",
            "Requests that a limit or a bound refused, by limit or code.",
            labels=["reason"],
        )
        for reason, count in sorted(self._components.limits.refused.items()):
            refused.add_metric([reason], count)
        yield refused
        throttled = CounterMetricFamily(
            "bide_throttled_requests",
            "Requests that a limit of [limits] refused, by tenant. The tenants after the first 100 are `other`.",
            labels=["tenant", "limit"],
        )
        for (tenant, limit), count in sorted(self._components.limits.throttled.items()):
            throttled.add_metric([tenant, limit], count)
        yield throttled
        admission = self._components.admission
        if admission.on:
            yield GaugeMetricFamily(
                "bide_delay_seconds",
                "How late the event loop or the store was. Measured if [admission] has a lag.",
                value=admission.delay,
            )
        ended = CounterMetricFamily(
            "bide_jobs_ended", "Jobs that ended since the start.", labels=["kind", "status"]
        )
        for (kind, status), count in sorted(self._ended.items()):
            ended.add_metric([kind, status], count)
        yield ended
        yield _of_counts(
            "bide_failures",
            "Attempts that failed: `retried` ones, and `final` ones, whose job ended as ERROR.",
            ("kind", "code", "outcome"),
            self._failures,
        )
        yield _of_counts(
            "bide_leases_lost",
            "Attempts that lost their worker: its process exited, or its lease was not renewed.",
            ("kind", "reason"),
            self._lost,
        )
        yield _of_counts(
            "bide_eta_outcomes",
            "Jobs that succeeded, by whether the attempt ended before, within or after the range of `eta` at its start "
            "(`durations`), and of `eta` halfway (`progress`).",
            ("kind", "basis", "outcome"),
            # All outcomes, so that ratios are known.
            Counter(
                {
                    (*series, outcome): count
                    for series, counts in self._etas.items()
                    for outcome, count in zip(OUTCOMES, counts, strict=True)
                }
            ),
        )
        yield _of_durations(
            "bide_eta_error_seconds",
            "Seconds between the end that such an `eta` predicts and the actual end.",
            ("kind", "basis"),
            self._eta_errors,
        )
        yield _of_durations(
            "bide_job_waiting_seconds",
            "Seconds from when a job could start until its attempt started.",
            ("kind",),
            {(kind,): found for kind, found in self._waiting.items()},
        )
        yield _of_durations(
            "bide_job_running_seconds",
            "Seconds that the last attempt of an ended job took.",
            ("kind",),
            {(kind,): found for kind, found in self._running.items()},
        )
        yield _of_durations(
            "bide_step_running_seconds",
            "Seconds that a finished step took.",
            ("kind", "step"),
            self._steps,
        )
        late = GaugeMetricFamily(
            "bide_jobs_overdue",
            "Running jobs that take longer than three times the 99th percentile of their kind.",
            labels=["kind"],
        )
        for kind in sorted({*overdue, *self._components.registry.kinds}):
            late.add_metric([kind], overdue.get(kind, 0))
        yield late
        workers = GaugeMetricFamily("bide_workers", "Handler children by state.", labels=["state"])
        states = Counter(worker.state for worker in self._components.fleet.workers())
        for state in sorted({*states, *_STATES}):
            workers.add_metric([state], states[state])
        yield workers
        yield GaugeMetricFamily(
            "bide_long_polls", "Requests that wait for a job.", value=self._components.notify.waiting
        )
        yield from _of_webhooks(self._components.webhooks.publisher)
        yield GaugeMetricFamily(
            "bide_event_streams",
            "Open event streams, and requests that wait for an event.",
            value=self._components.events.subscriptions,
        )

    def _of_needed(self, queues: list[Queue]) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(
            "bide_workers_needed",
            "Handler processes that the queue needs, so that its jobs wait no longer than --target-wait.",
            labels=["queue"],
        )
        target = self._components.config.target_wait
        estimates = self._components.estimates
        for queue in queues:
            if queue.name != SERVICE_QUEUE:
                waiting = 0 if queue.paused else queue.backlog
                needed = estimates.workers_needed(queue.kinds, waiting, queue.running, target)
                if queue.concurrency is not None:
                    needed = min(needed, queue.concurrency)
                family.add_metric([queue.name], needed)
        return family


def _read_disk(folder: Path) -> tuple[int, int]:
    """The free bytes and the size of the disk with the data folder."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def _of_disk(free: int, size: int) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    text = "Bytes of the disk with the data folder"
    yield GaugeMetricFamily("bide_disk_free_bytes", f"{text} that the service may use.", value=free)
    yield GaugeMetricFamily("bide_disk_size_bytes", f"{text}.", value=size)


def _of_process() -> Iterable[Metric]:
    """Processor time, memory and file descriptors of this process."""
    from prometheus_client import PROCESS_COLLECTOR

    return PROCESS_COLLECTOR.collect()


def _of_breakers(breakers: list[BreakerInfo]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    states = GaugeMetricFamily(
        "bide_breaker_state", "1 for the state that a breaker is in.", labels=["breaker", "state"]
    )
    opened = CounterMetricFamily(
        "bide_breaker_opened", "How often a breaker opened.", labels=["breaker"]
    )
    waiting = GaugeMetricFamily(
        "bide_breaker_waiting_jobs",
        "Jobs that wait for a breaker. At most 1,000 are counted.",
        labels=["breaker"],
    )
    for breaker in breakers:
        for state in get_args(BreakerStatus):
            states.add_metric([breaker.name, state], int(breaker.state == state))
        opened.add_metric([breaker.name], breaker.opened)
        waiting.add_metric([breaker.name], breaker.waiting)
    yield from (states, opened, waiting)


def _of_budgets(budgets: list[RetryBudgetInfo]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    allowed = GaugeMetricFamily(
        "bide_retry_budget_available",
        "Retries that the budget of a kind allows now.",
        labels=["kind"],
    )
    waiting = GaugeMetricFamily(
        "bide_retries_waiting",
        "Jobs whose retries wait for the budget of their kind. At most 1,000 are counted.",
        labels=["kind"],
    )
    for budget in budgets:
        allowed.add_metric([budget.kind], budget.available)
        waiting.add_metric([budget.kind], budget.waiting)
    yield from (allowed, waiting)


def _of_webhooks(publisher: Publisher) -> Iterator[Metric]:
    """The deliveries of this process. The replica that is not the publisher has none."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    attempts = CounterMetricFamily(
        "bide_webhook_attempts", "Attempts to deliver an event since the start.", labels=["outcome"]
    )
    for outcome in ("delivered", "retried", "failed"):
        attempts.add_metric([outcome], publisher.outcomes[outcome])
    yield attempts
    yield GaugeMetricFamily(
        "bide_webhook_pending", "Deliveries that wait for an attempt.", value=publisher.pending()
    )
    yield GaugeMetricFamily(
        "bide_webhook_lag_seconds", "Age of the oldest delivery that waits.", value=publisher.lag()
    )


def _of_counts(name: str, text: str, labels: Sequence[str], counts: Counter[Any]) -> Metric:
    """A counter; the keys of `counts` are the values of the labels."""
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family


def _of_durations(
    name: str, text: str, labels: Sequence[str], found: Mapping[tuple[str, ...], DurationHistogram]
) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in sorted(found.items()):
        family.add_metric(values, histogram.buckets(), histogram.total)
    return family


def _of_queues(queues: list[Queue]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    columns: list[tuple[str, str, Any]] = [
        ("backlog", "Jobs that could start now.", lambda q: q.backlog),
        ("scheduled", "Jobs whose run time is in the future.", lambda q: q.scheduled),
        ("running", "Jobs that are running.", lambda q: q.running),
        (
            "oldest_age_seconds",
            "Seconds that the oldest waiting job has waited.",
            lambda q: q.oldest_age or 0,
        ),
        (
            "predicted_wait_seconds",
            "Seconds until a job that is submitted now would start; missing if it is unknown.",
            lambda q: q.predicted_wait,
        ),
        (
            "slots",
            "Jobs that the live workers run at once; missing if it is unknown.",
            lambda q: q.slots,
        ),
        ("paused", "1 while the queue is paused.", lambda q: int(q.paused)),
        ("unserved", "1 while no worker serves the queue.", lambda q: int(not q.served)),
    ]
    for name, text, read in columns:
        family = GaugeMetricFamily(f"bide_queue_{name}", text, labels=["queue"])
        for queue in queues:
            if (value := read(queue)) is not None:
                family.add_metric([queue.name], value)
        yield family


class _Collected:
    """The part of a registry that an encoder uses."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families
