"""The means over several runs of one policy, with a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bide.lab.simulation import Figures


@dataclass(frozen=True)
class Mean:
    value: float
    half: float  # of the 95 % interval; 0 for a single run

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        mean = math.fsum(values) / len(values)
        if len(values) < 2:
            return cls(mean, 0.0)
        variance = math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1)
        return cls(mean, 1.96 * math.sqrt(variance / len(values)))

    def __str__(self) -> str:
        return f"{_plain(self.value)} ± {_plain(self.half)}" if self.half else _plain(self.value)


def _plain(number: float) -> str:
    """Format with three significant digits and no exponent."""
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.3g}"


@dataclass(frozen=True)
class Summary:
    policy: str
    seeds: int
    jobs: int
    price: float | None
    requests: Mean
    per_job: Mean
    refused: Mean
    mean: Mean
    p50: Mean
    p95: Mean
    max: Mean

    @classmethod
    def of(cls, runs: Sequence[Figures]) -> Summary:
        return cls(
            policy=runs[0].policy,
            seeds=len(runs),
            jobs=runs[0].jobs,
            price=runs[0].price,
            requests=Mean.of([run.requests for run in runs]),
            per_job=Mean.of([run.per_job for run in runs]),
            refused=Mean.of([run.refused for run in runs]),
            mean=Mean.of([run.mean for run in runs]),
            p50=Mean.of([run.quantile(0.5) for run in runs]),
            p95=Mean.of([run.quantile(0.95) for run in runs]),
            max=Mean.of([max(run.delays) for run in runs]),
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the means; with several seeds also `seeds` and, in `interval`, half the width of each 95 % interval."""
        wire: dict[str, Any] = {
            "policy": self.policy,
            "jobs": self.jobs,
            "requests": self.requests.value,
            "requestsPerJob": self.per_job.value,
            "refused": self.refused.value,
            "delay": {name: getattr(self, name).value for name in DELAYS},
            "price": self.price,
        }
        if self.seeds > 1:
            wire["seeds"] = self.seeds
            wire["interval"] = {
                "requests": self.requests.half,
                "requestsPerJob": self.per_job.half,
                "refused": self.refused.half,
                "delay": {name: getattr(self, name).half for name in DELAYS},
            }
        return wire


DELAYS = ("mean", "p50", "p95", "max")
COLUMNS = ("policy", "requests per job", "429s", "mean delay, s", "p50", "p95", "max")


def row(summary: Summary) -> list[str]:
    figures = (summary.per_job, summary.refused, summary.mean, summary.p50, summary.p95, summary.max)
    return [summary.policy, *map(str, figures)]
