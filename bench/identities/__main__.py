"""`python -m bench.identities`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import sys

from bench.identities import cost, fair
from bench.runner import Benchmark, Part

PARTS: dict[str, Part] = {
    "cost": cost.cost,
    "claim": fair.claims,
    "flood": fair.floods,
    "throughput": fair.throughput,
}

benchmark = Benchmark("bench.identities", __doc__, rounds=3)
sys.exit(benchmark.run(PARTS))
