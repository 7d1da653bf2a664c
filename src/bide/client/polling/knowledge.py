"""Stores the learned state of an account for the next process: the durations of its kinds and its budget."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

from bide.client.apis import Api
from bide.client.budgets import StorableBudget
from bide.client.ledger import Key, Knowledge, LearnedState
from bide.client.polling.kinds import KindStats
from bide.client.polling.schedule import PollSchedule
from bide.core.pacing.budget import Budget, Limit

log = logging.getLogger("bide.client")


class AccountKnowledge:
    """`learned` is the state that `store` has now, `account` a fingerprint of the credential; `wall` returns epoch
    seconds."""

    def __init__(
        self,
        store: Knowledge,
        learned: LearnedState,
        api: Api,
        account: str,
        limit: Limit | None,
        wall: Callable[[], float],
    ) -> None:
        self._store = store
        self._learned = learned
        self._api = api
        self._account = account
        self._limit = limit
        self._wall = wall

    def budget(self, rng: random.Random, now: float) -> Budget:
        """The budget of the last process; a new one if the limit is another, or none is stored."""
        at, data = self._learned.budgets.get(self._account, (0.0, None))
        if data is None or data.get("limit") != _named(self._limit):
            return Budget(self._limit, rng=rng)
        return Budget.load(data, self._limit, now=now, ago=self._wall() - at, rng=rng)

    def kind(self, name: str, size: str, batch: int) -> KindStats | None:
        data = self._learned.durations.get((self._api.name, name, size))
        return None if data is None else KindStats.load(data, batch)

    async def save(self, schedule: PollSchedule, now: float) -> None:
        durations: dict[Key, dict[str, Any]] = {}
        for name, kind in schedule.kinds.items():
            kind_name, size = name if isinstance(name, tuple) else (name, "")
            if kind.plans.sketch.count:
                durations[self._api.name, str(kind_name), str(size)] = kind.dump()
        budgets: dict[str, tuple[float, dict[str, Any]]] = {}
        if isinstance(schedule.budget, StorableBudget):
            dump = {**schedule.budget.dump(now), "limit": _named(self._limit)}
            budgets[self._account] = (self._wall(), dump)
        try:
            await self._store.learn(LearnedState(durations=durations, budgets=budgets))
        except Exception as error:
            # For example a full disk. The wait continues, but the next process starts without these values.
            log.error("Learned durations and budgets were not written to the ledger: %s", error)


def _named(limit: Limit | None) -> list[Any] | None:
    return None if limit is None else [limit.requests, limit.per, limit.burst]
