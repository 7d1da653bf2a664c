"""`python -m bench.look`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import sys
from functools import partial

from bench.look import lists, migration, writes
from bench.runner import Benchmark, Part

PARTS: dict[str, Part] = {
    "sqlite": partial(lists.measure, "sqlite"),
    "postgres": partial(lists.measure, "postgres"),
    "writes": writes.measure,
    "migration": migration.measure,
}

benchmark = Benchmark("bench.look", __doc__, rounds=3)
benchmark.parser.add_argument("--rows", default=lists.ROWS, type=int, help="stored jobs")
benchmark.parser.add_argument(
    "--base",
    metavar="REV",
    help="the revision to compare submit and drain with, for the part writes; by default this tree without rollups and "
    "search indexes",
)
sys.exit(benchmark.run(PARTS))
