"""The backend in which machines keep a budget that they share: one record per name, changed by compare-and-set.

1. `swap` writes if the record still has the version that the caller knows, and changes nothing otherwise. Either way it
   returns the server's time, which is the time of the budget.
2. A backend may lose its records, as a restarted Redis does. Then it has none, never an old one.
3. The first process makes the salt. The salt outlives the records where the backend can keep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from bide.core.errors import SetupError

NO_RECORD = ""  # the version of a record that does not exist


class BackendUnavailable(Exception):
    """The backend does not answer. The text contains the reason and no password."""


@dataclass(frozen=True, slots=True)
class BackendReply:
    """Whether the record was written; if not, the record that exists."""

    swapped: bool
    now: float
    version: str = NO_RECORD
    data: bytes = b""


class BudgetBackend(Protocol):
    """Used by one thread. `shown` is its URL without secrets."""

    shown: str

    def swap(self, name: str, known: str, version: str, data: bytes) -> BackendReply: ...

    def read(self, name: str) -> BackendReply: ...

    def salt(self, first: bytes) -> bytes:
        """Return the salt that all processes use; store `first` if there is none."""
        ...

    def close(self) -> None: ...


def open_backend(url: str) -> BudgetBackend:
    """Return the backend for a URL. It connects on first use. SetupError if the URL or a package is wrong."""
    scheme = urlsplit(url).scheme
    try:
        if scheme in ("redis", "rediss", "unix"):
            from bide.client.budgets.redis import RedisBackend

            return RedisBackend(url)
        if scheme in ("postgresql", "postgres"):
            from bide.client.budgets.postgres import PostgresBackend

            return PostgresBackend(url)
    except ImportError as error:
        extra = "redis" if scheme.startswith(("redis", "unix")) else "postgres"
        what = f"Sharing a budget through {scheme} needs {error.name or 'a package'}, which is not installed"
        raise SetupError.not_installed(what, extra) from None
    raise SetupError(
        f"A budget cannot be shared through {scheme or url!r}. Use redis://host:6379/0 or "
        "postgresql://user@host/database"
    )
