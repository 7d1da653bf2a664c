"""What an account learns of an API, in the pipeline's checkpoint: the next run begins with it.

It is a ledger that remembers no jobs, for those are the checkpoint's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence

import msgspec

from bide.client.ledger import Entry, Key, Learned
from bide.pipeline.state import State


class _Kept(msgspec.Struct):
    durations: list[tuple[Key, dict[str, object]]] = []
    budgets: dict[str, tuple[float, dict[str, object]]] = {}


class Learning:
    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def salt(self) -> bytes:
        return self._state.salt

    async def open(self) -> None:
        """It is open as long as the state is."""

    async def close(self) -> None:
        """As is it closed."""

    async def _same(self, entries: Sequence[Entry]) -> list[Entry]:
        return list(entries)

    async def _nothing(self) -> None:
        return None

    def add(self, entries: Sequence[Entry]) -> Awaitable[list[Entry]]:
        return self._same(entries)

    def note(self, entry: Entry) -> None:
        """The checkpoint has phases, not progress."""

    def end(self, entry: Entry) -> Awaitable[None]:
        return self._nothing()

    def tell(self, keys: Iterable[Key]) -> Awaitable[None]:
        return self._nothing()

    async def entries(self, ended: bool | None = None) -> list[Entry]:
        return []

    def forget(self, keys: Iterable[Key]) -> Awaitable[None]:
        return self._nothing()

    async def _learn(self, learned: Learned) -> None:
        known = await self.learned()
        durations = {**known.durations, **learned.durations}
        kept = _Kept(list(durations.items()), {**known.budgets, **learned.budgets})
        self._state.learn("account", msgspec.json.encode(kept))

    def learn(self, learned: Learned) -> Awaitable[None]:
        return self._learn(learned)

    async def learned(self) -> Learned:
        data = self._state.learned("account")
        if data is None:
            return Learned()
        kept = msgspec.json.decode(data, type=_Kept)
        return Learned(durations=dict(kept.durations), budgets=kept.budgets)
