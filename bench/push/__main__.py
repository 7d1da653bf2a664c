"""`python -m bench.push`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import sys

from bench.push import delay, drain, fanout, output, status, webhooks
from bench.runner import Benchmark

PARTS = {
    "delay": delay.measure,
    "fanout": fanout.measure,
    "status": status.measure,
    "drain": drain.measure,
    "output": output.measure,
    "webhooks": webhooks.measure,
}

benchmark = Benchmark("bench.push", __doc__, rounds=3)
benchmark.parser.add_argument(
    "--seconds", default=60, type=int, help="seconds for which jobs emit output (the part `output`)"
)
sys.exit(benchmark.run(PARTS))
