"""Spends a shared budget as fast as it allows until stdin ends.

`python -m bench.poller.spender URL LIMIT CLOCK NAME` prints the time of each grant on stdout, and on stderr the CPU
seconds that it took.

CLOCK is the difference in seconds between its clock and the others', because clocks of machines differ.
"""

from __future__ import annotations

import os
import select
import sys
import time

from bide.client.budgets.backend import open_backend
from bide.client.budgets.shared import BudgetConnection
from bide.core.pacing.budget import read_limit


def main(url: str, limit: str, clock: str, name: str) -> None:
    budgets = BudgetConnection(open_backend(url), now=lambda: time.monotonic() + float(clock))
    budget = budgets.open(name, read_limit(limit))
    cpu, wait = time.process_time(), 0.0
    while not select.select([0], [], [], wait)[0]:
        moment = time.monotonic()
        now = moment + float(clock)
        at = budget.take(now)
        wait = 0.0 if at <= now else min(at - now, 0.5)
        if at <= now:
            os.write(1, f"{moment!r}\n".encode())
            budget.record_response(now, 200, {}, 1.9e9)
    os.write(2, f"{time.process_time() - cpu!r}\n".encode())
    budgets.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
