"""The metrics of this process's clients in Prometheus's text format: requests, refusals and budgets of each API.

1. Nothing is counted per request: the text is made from what the open accounts know.
2. Accounts of the same API are one series: counters are sums, `wait` is the longest one. A closed account leaves its counts.
3. A file is replaced as a whole, so that a reader, such as the textfile collector of node_exporter, finds no half of it.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

EVERY = 15.0  # seconds between two writes of a file


@dataclass
class ApiUse:
    """What the accounts of one API have used of it."""

    requests: int = 0
    refused: int = 0
    jobs: int = 0  # that the client waits for
    rate: float | None = None  # requests per second that the budget allows
    needed: float | None = None  # requests per second that the waiting jobs need
    wait: float = 0.0  # seconds until the budget allows the next request

    def add(self, other: ApiUse) -> None:
        self.requests += other.requests
        self.refused += other.refused
        self.jobs += other.jobs
        self.wait = max(self.wait, other.wait)
        for name in ("rate", "needed"):
            values = [v for v in (getattr(self, name), getattr(other, name)) if v is not None]
            setattr(self, name, sum(values) if values else None)


class MeasuredAccount(Protocol):
    @property
    def api_name(self) -> str: ...

    def use(self) -> ApiUse: ...


_open: set[MeasuredAccount] = set()
_closed: defaultdict[str, ApiUse] = defaultdict(ApiUse)


def add_account(account: MeasuredAccount) -> None:
    _open.add(account)


def remove_account(account: MeasuredAccount, requests: int, refused: int) -> None:
    """Keep the counts of an account that is closed."""
    if account in _open:
        _open.discard(account)
        closed = _closed[account.api_name]
        closed.requests += requests
        closed.refused += refused


def metrics_text() -> str:
    """The metrics of all clients of this process, in Prometheus's text format."""
    uses: defaultdict[str, ApiUse] = defaultdict(ApiUse)
    for name, use in list(_closed.items()):
        uses[name].add(use)
    for account in list(_open):
        uses[account.api_name].add(account.use())
    found = sorted(uses.items())
    lines: list[str] = []
    for metric, kind, text, field in _METRICS:
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}"]
        for name, use in found:
            value = getattr(use, field)
            if value is not None:
                lines.append(f'{metric}{{api="{_escaped(name)}"}} {value:.12g}')
    return "\n".join([*lines, ""])


_METRICS = (
    ("bide_client_requests_total", "counter", "Requests that clients have sent.", "requests"),
    (
        "bide_client_refused_requests_total",
        "counter",
        "Requests that the API refused because there were too many (429).",
        "refused",
    ),
    ("bide_client_waiting_jobs", "gauge", "Jobs that clients wait for.", "jobs"),
    (
        "bide_client_budget_requests_per_second",
        "gauge",
        "Requests per second that the budget allows; missing without a known limit.",
        "rate",
    ),
    (
        "bide_client_needed_requests_per_second",
        "gauge",
        "Requests per second with which the waiting jobs would be polled at the best times; missing if unknown.",
        "needed",
    ),
    (
        "bide_client_budget_wait_seconds",
        "gauge",
        "Seconds until the budget allows the next request.",
        "wait",
    ),
)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def write_metrics(path: Path) -> None:
    """Replace the file with the current metrics."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(metrics_text(), encoding="utf-8")
    part.replace(path)


@asynccontextmanager
async def metrics_file(path: Path | None) -> AsyncIterator[None]:
    """Write the metrics to a file while the body runs, and at its end. None: write nothing."""
    if path is None:
        yield
        return
    write_metrics(path)
    task = asyncio.create_task(_write_periodically(path))
    try:
        yield
    finally:
        task.cancel()
        write_metrics(path)


async def _write_periodically(path: Path) -> None:
    while True:
        await asyncio.sleep(EVERY)
        write_metrics(path)
