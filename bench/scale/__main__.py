"""`python -m bench.scale`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import sys

from bench.runner import Benchmark
from bench.scale import concurrency, drain, rows, status, trial, uploads
from bench.service import tracing

PARTS = {
    "status": status.measure,
    "rows": rows.measure,
    "trial": trial.measure,
    "drain": drain.measure,
    "concurrency": concurrency.measure,
    "uploads": uploads.measure,
    "tracing": tracing.measure,
}

benchmark = Benchmark("bench.scale", __doc__, rounds=3)
benchmark.parser.add_argument(
    "--rows", default=rows.ROWS, type=int, help="finished jobs, for the part rows"
)
sys.exit(benchmark.run(PARTS))
