"""GET /metrics: the service in numbers, in Prometheus's exposition format. Read when asked; only endings are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from bide.core.record import TERMINAL
from bide.core.wire import Event
from bide.server.engine import WARNINGS
from bide.server.http import Parts
from bide.server.http.exchange import Answer, Request, text_answer
from bide.server.http.health import warnings
from bide.server.http.operations import Operation, Reply
from bide.server.http.queues import Queue, known_queues

_TERMINAL = frozenset(status.value for status in TERMINAL)
_STATES = ("starting", "idle", "busy")


class Metrics:
    """Counts what happened since the start, and gathers the rest from the parts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ended: Counter[tuple[str, str]] = Counter()
        self.operations = [
            Operation(
                "GET",
                "/metrics",
                self.answer,
                "getMetrics",
                "The service in numbers",
                "health",
                replies=(
                    Reply(
                        200,
                        "Prometheus's exposition format.",
                        {"type": "string"},
                        content_types=("text/plain", "application/openmetrics-text"),
                    ),
                ),
                example="$BASE/metrics",
            )
        ]

    def heard(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == "status" and event.job["status"] in _TERMINAL:
                self._ended[event.job["kind"], event.job["status"]] += 1

    async def answer(self, request: Request) -> Answer:
        encode, content_type = choose_encoder(request.header(b"accept") or "")
        families = list(self._families(await known_queues(self._parts)))
        return text_answer(content_type, encode(cast(CollectorRegistry, _Gathered(families))))

    def _families(self, queues: list[Queue]) -> Iterator[Metric]:
        yield from _of_queues(queues)
        found = Counter(warning.code for warning in warnings(self._parts, queues))
        told = GaugeMetricFamily(
            "bide_warnings",
            "Warnings of /readyz by code: what keeps jobs from being run.",
            labels=["code"],
        )
        for code in WARNINGS:
            told.add_metric([code], found[code])
        yield told
        ended = CounterMetricFamily(
            "bide_jobs_ended", "Jobs that ended since the start.", labels=["kind", "status"]
        )
        for (kind, status), count in sorted(self._ended.items()):
            ended.add_metric([kind, status], count)
        yield ended
        workers = GaugeMetricFamily("bide_workers", "Handler children by state.", labels=["state"])
        states = Counter(worker.state for worker in self._parts.engine.workers())
        for state in sorted({*states, *_STATES}):
            workers.add_metric([state], states[state])
        yield workers
        yield GaugeMetricFamily(
            "bide_long_polls", "Callers that wait for a job.", value=self._parts.notify.waiting
        )


def _of_queues(queues: list[Queue]) -> Iterator[Metric]:
    columns: list[tuple[str, str, Any]] = [
        ("backlog", "Jobs that could start now.", lambda q: q.backlog),
        ("scheduled", "Jobs whose time has not come.", lambda q: q.scheduled),
        ("running", "Jobs that are being run.", lambda q: q.running),
        ("oldest_age_seconds", "How long the first in line has waited.", lambda q: q.oldest_age or 0),
        ("paused", "1 when no job of the queue is started.", lambda q: int(q.paused)),
        ("unserved", "1 when no worker takes jobs from the queue.", lambda q: int(not q.served)),
    ]
    for name, text, read in columns:
        family = GaugeMetricFamily(f"bide_queue_{name}", text, labels=["queue"])
        for queue in queues:
            family.add_metric([queue.name], read(queue))
        yield family


class _Gathered:
    """All that an encoder wants of a registry."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families
