"""How many jobs of which queue may run at once. Pure bookkeeping.

Every queue has one child that no other queue can take, so that thumbnails do not wait behind transcodes; the rest is
shared. Where there are fewer children than queues, all of them are. A number in `App(queues={...})` replaces that. Async
jobs need no child of their own and have a limit a queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from bide.server.registry import DEFAULT_QUEUE, Registry
from bide.server.store import ClaimRequest


def served(registry: Registry) -> set[str]:
    """The queues of an app."""
    return {DEFAULT_QUEUE, *registry.queues, *registry.concurrency}


class ConcurrencyLimits:
    """What runs now, and what could be started."""

    def __init__(
        self,
        registry: Registry,
        children: int,
        async_limit: int,
        only: Collection[str] | None = None,
    ) -> None:
        """`only`: of these queues, whether the app names them or not."""
        self.queues = sorted(served(registry) if only is None else set(only))
        busy_queues = len(registry.queues.keys() & set(self.queues)) or 1
        shared = max(1, children - (busy_queues - 1) if children >= busy_queues else children)
        self._limits = {
            False: {q: registry.concurrency.get(q, shared) for q in self.queues},
            True: {q: registry.concurrency.get(q, async_limit) for q in self.queues},
        }
        self._kinds = {
            mode: tuple(k.name for k in registry.kinds.values() if k.is_async is mode)
            for mode in (False, True)
        }
        self.running: Counter[tuple[bool, str]] = Counter()
        self._turn = 0

    def pairs(self) -> set[tuple[str, str]]:
        """Every queue with every kind: where there could be work."""
        return {(q, k) for q in self.queues for kinds in self._kinds.values() for k in kinds}

    def taken(self, is_async: bool, queue: str) -> None:
        self.running[is_async, queue] += 1

    def freed(self, is_async: bool, queue: str) -> None:
        self.running[is_async, queue] -= 1

    def room(self, is_async: bool, queue: str) -> int:
        return self._limits[is_async].get(queue, 0) - self.running[is_async, queue]

    def wants(self, is_async: bool, hot: Collection[tuple[str, str]], free: int) -> list[ClaimRequest]:
        """What could be started with `free` more slots; queues take turns at being first."""
        wants = []
        for queue in self.queues:
            kinds = tuple(k for k in self._kinds[is_async] if (queue, k) in hot)
            limit = min(self.room(is_async, queue), free)
            if kinds and limit > 0:
                wants.append(ClaimRequest(queue, kinds, limit))
        self._turn += 1
        at = self._turn % len(wants) if wants else 0
        return wants[at:] + wants[:at]
