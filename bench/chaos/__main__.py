"""`make chaos`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import sys

from bench.chaos import (
    contest,
    crashes,
    database_clock,
    dependency,
    failover,
    full_disk,
    http,
    listeners,
    overload,
    pauses,
    scale,
    shared_root,
    simulated,
)
from bench.runner import Benchmark

PARTS = {
    "simulation": simulated.measure,
    "pauses": pauses.measure,
    "database-clock": database_clock.measure,
    "failover": failover.measure,
    "full-disk": full_disk.measure,
    "shared-root": shared_root.measure,
    "crashes": crashes.measure,
    "peers": contest.measure,
    "http": http.measure,
    "listeners": listeners.measure,
    "overload": overload.measure,
    "dependency": dependency.measure,
    "scale": scale.measure,
}

sys.exit(Benchmark("bench.chaos", __doc__).run(PARTS, keep=True))
