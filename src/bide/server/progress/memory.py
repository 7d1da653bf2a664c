"""A progress store in memory, for a service that is the only process on its job store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from bide.server.progress import LIFE, AttemptKey, LiveProgress


class MemoryProgressStore:
    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        # The oldest `put` first.
        self._kept: OrderedDict[AttemptKey, tuple[float, LiveProgress]] = OrderedDict()

    async def put(self, batch: Mapping[AttemptKey, LiveProgress]) -> None:
        now = self._now()
        for attempt, live in batch.items():
            self._kept[attempt] = (now, live)
            self._kept.move_to_end(attempt)
        while self._kept:
            first = next(iter(self._kept))
            if self._kept[first][0] >= now - LIFE:
                break
            del self._kept[first]

    async def get(self, attempts: Sequence[AttemptKey]) -> dict[AttemptKey, LiveProgress]:
        return {attempt: self._kept[attempt][1] for attempt in attempts if attempt in self._kept}

    async def close(self) -> None:
        self._kept.clear()
