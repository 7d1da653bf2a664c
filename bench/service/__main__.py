"""`python -m bench.service`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import sys

from bench.runner import Benchmark
from bench.service import drain, intake, latency, size, small, status, tracing

PARTS = {
    "status": status.measure,
    "intake": intake.measure,
    "drain": drain.measure,
    "latency": latency.measure,
    "size": size.measure,
    "progress": small.progress,
    "import": small.importing,
    "tracing": tracing.measure,
}

sys.exit(Benchmark("bench.service", __doc__, rounds=3).run(PARTS))
