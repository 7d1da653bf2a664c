"""GET /metrics in the Prometheus format. Ended jobs are counted; everything else is read per request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from bide.core.jobs.record import TERMINAL
from bide.core.wire.http import Event
from bide.server.engine import WARNINGS
from bide.server.http import Components
from bide.server.http.health import warnings
from bide.server.http.queues import Queue, known_queues
from bide.server.http.request import HttpRequest, Response, text_response
from bide.server.http.routing import HttpOperation, ResponseSpec

_TERMINAL = frozenset(status.value for status in TERMINAL)
_STATES = ("starting", "idle", "busy")


class Metrics:
    """Counts ended jobs since the start, and reads the other metrics from the components."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._ended: Counter[tuple[str, str]] = Counter()
        self.operations = [
            HttpOperation(
                "GET",
                "/metrics",
                self.respond,
                "getMetrics",
                "Metrics",
                "health",
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
            if event.type == "status" and event.job["status"] in _TERMINAL:
                self._ended[event.job["kind"], event.job["status"]] += 1

    async def respond(self, request: HttpRequest) -> Response:
        encode, content_type = choose_encoder(request.header(b"accept") or "")
        families = list(self._families(await known_queues(self._components)))
        return text_response(content_type, encode(cast(CollectorRegistry, _Collected(families))))

    def _families(self, queues: list[Queue]) -> Iterator[Metric]:
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
        ended = CounterMetricFamily(
            "bide_jobs_ended", "Jobs that ended since the start.", labels=["kind", "status"]
        )
        for (kind, status), count in sorted(self._ended.items()):
            ended.add_metric([kind, status], count)
        yield ended
        workers = GaugeMetricFamily("bide_workers", "Handler children by state.", labels=["state"])
        states = Counter(worker.state for worker in self._components.fleet.workers())
        for state in sorted({*states, *_STATES}):
            workers.add_metric([state], states[state])
        yield workers
        yield GaugeMetricFamily(
            "bide_long_polls", "Requests that wait for a job.", value=self._components.notify.waiting
        )


def _of_queues(queues: list[Queue]) -> Iterator[Metric]:
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
