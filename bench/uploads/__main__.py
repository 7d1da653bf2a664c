"""`python -m bench.uploads`: prints each figure with its limit; exits with 0 only if every figure is within its limit.

It needs 25 GB of disk.
"""

from __future__ import annotations

import sys

from bench.runner import Benchmark
from bench.uploads import many, speed

PARTS = {
    "speed": speed.speed,
    "memory": speed.memory,
    "many": many.measure,
}

sys.exit(Benchmark("bench.uploads", __doc__, rounds=3).run(PARTS))
