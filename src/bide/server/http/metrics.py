"""GET /metrics in the Prometheus format. Ended jobs, waiting and running times are counted from events; everything else is
read per request. The first request imports prometheus_client, so that a service starts without it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

from bide.core.jobs.record import TERMINAL
from bide.core.wire.http import Event
from bide.server.engine import WARNINGS
from bide.server.http import Components
from bide.server.http.health import warnings
from bide.server.http.queues import Queue, known_queues
from bide.server.http.request import HttpRequest, Response, text_response
from bide.server.http.routing import HttpOperation, ResponseSpec
from bide.server.webhooks.publisher import Publisher

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_TERMINAL = frozenset(status.value for status in TERMINAL)
_STATES = ("starting", "idle", "busy")
# Seconds: jobs take milliseconds or hours.
BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400)
MAX_STEPS = 50  # series of steps per kind; other steps share one, because a handler may make up names
OTHER = "other"


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
                if job["status"] in _TERMINAL:
                    self._ended[job["kind"], job["status"]] += 1
                    if (seconds := job.get("seconds")) is not None:
                        self._running[job["kind"]].add(seconds)
            elif event.type == "step" and (seconds := job.get("seconds")) is not None:
                self._step(job["kind"], job["step"]["name"]).add(seconds)

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
        families = list(self._families(queues, overdue))
        return text_response(content_type, encode(cast(Any, _Collected(families))))

    def _families(self, queues: list[Queue], overdue: Mapping[str, int]) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        yield from _of_queues(queues)
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
        ("paused", "1 while the queue is paused.", lambda q: int(q.paused)),
        ("unserved", "1 while no worker serves the queue.", lambda q: int(not q.served)),
    ]
    for name, text, read in columns:
        family = GaugeMetricFamily(f"bide_queue_{name}", text, labels=["queue"])
        for queue in queues:
            family.add_metric([queue.name], read(queue))
        yield family


class _Collected:
    """The part of a registry that an encoder uses."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families
