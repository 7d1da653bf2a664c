"""Budgets that machines share through a Redis or a PostgreSQL: the suite, and real processes with their clocks."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from bench.scale.brokers import RedisServer
from bench.scale.postgres import Postgres

from bide.client.budgets import Budgets
from bide.client.budgets.place import Place
from bide.client.budgets.postgres import PostgresPlace
from bide.client.budgets.redis import RedisPlace
from bide.client.budgets.remote_clock import RemoteClock
from bide.client.budgets.shared import SharedBudgets
from bide.testing.budgets import BudgetsSuite


class SameClock(RemoteClock):
    """The server's time is the caller's, as the suite makes it up."""

    def measured(self, sent: float, server: float, received: float) -> None: ...


class Named:
    """A place in which names of one test are not those of another."""

    def __init__(self, place: Place, prefix: str) -> None:
        self._place = place
        self._prefix = prefix
        self.shown = place.shown
        self.salt, self.close = place.salt, place.close

    def swap(self, name: str, *more: str | bytes):  # type: ignore
        return self._place.swap(self._prefix + name, *more)  # type: ignore

    def read(self, name: str):  # type: ignore
        return self._place.read(self._prefix + name)


def patient(place: Place, folder: Path) -> SharedBudgets:
    named = Named(place, hashlib.sha256(str(folder).encode()).hexdigest()[:12])
    return SharedBudgets(named, random.Random(1), clock=SameClock(), wait=20.0)


class TestRedisBudgets(BudgetsSuite):
    @pytest.fixture(autouse=True)
    def server(self, redis_server: RedisServer) -> None:
        self.url = redis_server.url

    def budgets(self, place: Path) -> Budgets:
        return patient(RedisPlace(self.url), place)


class TestPostgresBudgets(BudgetsSuite):
    @pytest.fixture(autouse=True)
    def server(self, postgres: Postgres) -> None:
        self.url = f"{postgres.url}?schema=budgets"

    def budgets(self, place: Path) -> Budgets:
        return patient(PostgresPlace(self.url), place)
