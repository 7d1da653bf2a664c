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

SUBMISSIONS, SLICES, WARM_UP = 200, 60, 500
NOOP = b'{"kind": "noop", "input": {"n": 1}}'
SAMPLE = "0.01"


def measure(folder: Path, rounds: int) -> list[Line]:
    times: list[tuple[float, float]] = []  # of each round: per submission, off and on
    with OtlpReceiver() as receiver:
        traces = ["--otlp", receiver.url, "--trace-sample", SAMPLE]
        for number in range(rounds):
            here = folder / str(number)
            with (
                servers.bide(here / "off") as off,
                servers.bide(here / "on", options=traces) as on,
            ):
                for site in (off, on):
                    site.ask("POST", "/queues/default/pause")
                    _submit(site, WARM_UP)
                slices = [_pair(off, on, on_first=part % 2 == 1) for part in range(SLICES)]
            # Sums, because the thread exports only every two seconds.
            times.append(
                (sum(pair[0] for pair in slices) / SLICES, sum(pair[1] for pair in slices) / SLICES)
            )
        if not receiver.spans:
            raise RuntimeError("the service has exported no spans")
    ratios = sorted(on_time / off_time for off_time, on_time in times)
    off_time, on_time = (1e6 * median(values) for values in zip(*times, strict=True))
    return [
        Line(
            "tracing at 1 % sampling: CPU time per submission : without",
            median(ratios),
            "≤",
            1.05,
            detail=f"{on_time:.1f} : {off_time:.1f} µs; rounds {ratios[0]:.3f} to {ratios[-1]:.3f}",
        )
    ]


def _pair(off: servers.Site, on: servers.Site, *, on_first: bool) -> tuple[float, float]:
    first, second = (
        _submit(site, SUBMISSIONS) / SUBMISSIONS for site in ((on, off) if on_first else (off, on))
    )
    return (second, first) if on_first else (first, second)


def _submit(site: servers.Site, count: int) -> float:
    """CPU seconds of this many submissions."""
    before = cpu_of_all(site.pid)
    send(site.port, "POST", "/jobs", count, NOOP)
    return cpu_of_all(site.pid) - before
