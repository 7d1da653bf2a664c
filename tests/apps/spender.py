"""Spends a shared budget as fast as allowed until its stdin ends: `python -m tests.apps.spender FOLDER [SIGNAL WHEN]`.

Prints the moment of each grant. With a signal, it sends that to itself in the middle of its 20th change of the budget:
`before` its bytes are written, half of them (`within`), or `after` them, always with the lock in hand.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

from bide.client.budgets.file import BudgetFolder
from bide.client.budgets.shared_counters import SharedCounters
from bide.core.pacing.budget import Limit

LIMIT = Limit(400, 1.0, 40)


def strike(number: int, when: str) -> None:
    left, write = 20, SharedCounters.write

    def struck(self: SharedCounters, data: bytes, timestamp: float) -> None:
        nonlocal left
        left -= 1
        if left == 0 and when == "within":
            start = 16 + ((self.version[1] + 1) & 1) * 16 * 1024 + 16
            self._map[start : start + len(data) // 2] = data[: len(data) // 2]
        if left == 0 and when != "after":
            os.kill(os.getpid(), number)
        write(self, data, timestamp)
        if left == 0 and when == "after":
            os.kill(os.getpid(), number)

    SharedCounters.write = struck  # type: ignore[method-assign]


def main(folder: str, number: str = "", when: str = "") -> None:
    if number:
        strike(signal.Signals[number], when)
    budget = BudgetFolder(Path(folder)).open("one", LIMIT)
    while not select.select([0], [], [], 0)[0]:
        now = time.monotonic()
        at = budget.take(now)
        if at <= now:
            os.write(1, f"{now!r}\n".encode())
            budget.record_response(now, 200, {}, 1.9e9)
        else:
            time.sleep(min(at - now, 0.01))


if __name__ == "__main__":
    main(*sys.argv[1:])
