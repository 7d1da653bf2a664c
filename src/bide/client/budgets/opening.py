"""Which shared budgets an address names. What each needs is imported here."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from bide.client.budgets.shared import SharedBudgets
from bide.core.errors import SetupError


def open_budgets(url: str, *, now: Callable[[], float] = time.monotonic) -> SharedBudgets:
    """Connects with the first use. `now` is the clock of those who take."""
    scheme = urlsplit(url).scheme
    try:
        if scheme in ("redis", "rediss", "unix"):
            from bide.client.budgets.redis import RedisBudgets

            return RedisBudgets(url, now=now)
        if scheme in ("postgresql", "postgres"):
            from bide.client.budgets.postgres import PostgresBudgets

            return PostgresBudgets(url, now=now)
    except ImportError as error:
        extra = "redis" if scheme.startswith(("redis", "unix")) else "postgres"
        raise SetupError(
            f"{error.name or 'a package'} is missing: pip install 'bide[{extra}]'"
        ) from None
    raise SetupError(
        f"budgets cannot be shared through {scheme or url!r}: write redis://host:6379/0, or "
        "postgresql://user@host/database"
    )
