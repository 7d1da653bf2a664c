"""The CPU time that traces of 1 % of the jobs add to a submission.

A round starts two services, with and without traces, and alternates between them in short slices, so that both see the same
machine. The CPU time includes the thread that exports spans, and not the receiver.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from tests.servers.otlp import OtlpReceiver

from bench.before.load import send
from bench.service import servers
from bench.service.table import Line
from bench.usage import cpu_of_all

SUBMISSIONS, SLICES, WARM_UP = 1000, 10, 500
NOOP = b'{"kind": "noop", "input": {"n": 1}}'
SAMPLE = "0.01"


def measure(folder: Path, rounds: int) -> list[Line]:
    pairs: list[tuple[float, float]] = []
    with OtlpReceiver() as receiver:
        traces = ["--otlp", receiver.url, "--trace-sample", SAMPLE]
        for number in range(rounds):
            here = folder / str(number)
            with (
                servers.bide(here / "off") as off,
                servers.bide(here / "on", options=traces) as on,
            ):
                sites, used = (off, on), [0.0, 0.0]
                for site in sites:
                    site.ask("POST", "/queues/default/pause")
                    _submit(site, WARM_UP)
                for part in range(SLICES):
                    for which in (0, 1) if (number + part) % 2 == 0 else (1, 0):
                        used[which] += _submit(sites[which], SUBMISSIONS)
                pairs.append((used[0] / SLICES / SUBMISSIONS, used[1] / SLICES / SUBMISSIONS))
        if not receiver.spans:
            raise RuntimeError("the service has exported no spans")
    ratios = sorted(on / off for off, on in pairs)
    off_time, on_time = (1e6 * median(values) for values in zip(*pairs, strict=True))
    return [
        Line(
            "tracing at 1 % sampling: CPU time per submission : without",
            median(ratios),
            "≤",
            1.05,
            detail=f"{on_time:.1f} : {off_time:.1f} µs; rounds {ratios[0]:.3f} to {ratios[-1]:.3f}",
        )
    ]


def _submit(site: servers.Site, count: int) -> float:
    """CPU seconds of this many submissions."""
    before = cpu_of_all(site.pid)
    send(site.port, "POST", "/jobs", count, NOOP)
    return cpu_of_all(site.pid) - before
