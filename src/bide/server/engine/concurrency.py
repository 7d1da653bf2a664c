"""How many jobs of each queue may run at the same time. No I/O.

One child is reserved for each queue, so that thumbnails do not wait behind transcodes; the queues share the rest. With
fewer children than queues, they share all of them. A number in `App(queues={...})` replaces this limit. Async jobs need
no child of their own and have one limit per queue.
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
    """Counts running jobs and computes how many more may start."""

    def __init__(
        self,
        registry: Registry,
        children: int,
        async_limit: int,
        only: Collection[str] | None = None,
    ) -> None:
        """`only`: serve these queues, whether the app declares them or not."""
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
        """Every combination of a queue and a kind."""
        return {(q, k) for q in self.queues for kinds in self._kinds.values() for k in kinds}

    def acquire(self, is_async: bool, queue: str) -> None:
        self.running[is_async, queue] += 1

    def release(self, is_async: bool, queue: str) -> None:
        self.running[is_async, queue] -= 1

    def available(self, is_async: bool, queue: str) -> int:
        return self._limits[is_async].get(queue, 0) - self.running[is_async, queue]

    def requests(
        self, is_async: bool, hot: Collection[tuple[str, str]], free: int
    ) -> list[ClaimRequest]:
        """Claim requests for up to `free` jobs; a different queue comes first each time."""
        requests = []
        for queue in self.queues:
            kinds = tuple(k for k in self._kinds[is_async] if (queue, k) in hot)
            limit = min(self.available(is_async, queue), free)
            if kinds and limit > 0:
                requests.append(ClaimRequest(queue, kinds, limit))
        self._turn += 1
        at = self._turn % len(requests) if requests else 0
        return requests[at:] + requests[:at]
