"""Two ports. Knowledge stores what was learned of an API; Ledger also stores the jobs, so that another process can resume.

Rules that every ledger keeps, and that `bide.testing.ledger` checks:
1. What `add`, `end`, `tell`, `forget` and `learn` were given is on disk before they resolve: a result is reported
   after that.
2. What `note` was given is on disk within a second or so; the newest for each job counts.
3. The first outcome of a job stands: no later note or outcome changes it.
4. One process at a time; another one is told so by a SetupError. Children of a wait leave the ledger to their parent.
5. No credential is ever in it: addresses are kept without user, password and query, budgets under a fingerprint
   that is made with the ledger's own `salt`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from bide.client.apis.answers import Found, Ref
from bide.core.errors import ErrorInfo
from bide.core.record import Progress

Key = tuple[str, str, str]


class Entry(msgspec.Struct, kw_only=True):
    """One job that is, or was, waited for. Instants are seconds since the epoch."""

    api: str
    base: str  # the address of the API
    job_id: str  # the whole reference where the id alone does not identify it
    ref: Ref | None = None  # how it is addressed there, when its id alone does not say
    kind: str = ""
    size: str = ""
    submitted_at: float | None = None  # by our clock
    since: float | None = None  # when the wait for it began: it is at least that old
    created_at: float | None = None  # by the API's own
    deadline: float | None = None
    # The way there.
    asked_at: float | None = None
    status: str | None = None
    progress: Progress | None = None
    etag: str | None = None
    requests: int = 0
    # The end.
    ended: bool = False
    finished_at: float | None = None
    result: msgspec.Raw | None = None
    result_url: str | None = None  # where it is, when the answer did not hold it
    files: tuple[Found, ...] = ()
    error: ErrorInfo | None = None
    told: bool = False  # whoever waits has been told, and has done what is to be done with it

    def __post_init__(self) -> None:
        self.base = bare(self.base)

    @property
    def key(self) -> Key:
        return self.api, self.base, self.job_id


class Learned(msgspec.Struct, kw_only=True):
    """What was learned: durations by (api, kind, size), budgets by fingerprint with the instant of their dump."""

    durations: dict[Key, dict[str, Any]] = {}
    budgets: dict[str, tuple[float, dict[str, Any]]] = {}


class Knowledge(Protocol):
    """Stores what was learned of an API. It is open for as long as an account uses it."""

    @property
    def salt(self) -> bytes:
        """The salt of credential fingerprints. Each store has its own."""
        ...

    def learn(self, learned: Learned) -> Awaitable[None]:
        """Replaces what was learned under these keys; others stay."""
        ...

    async def learned(self) -> Learned: ...


class Ledger(Knowledge, Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None:
        """Writes what was noted, and lets another process in."""
        ...

    def add(self, entries: Sequence[Entry]) -> Awaitable[list[Entry]]:
        """Waits for these from now on; each as the ledger has it: what it knew already stays."""
        ...

    def note(self, entry: Entry) -> None:
        """Its status, progress, ETag and requests have moved on. Cheap: written with others, later."""
        ...

    def end(self, entry: Entry) -> Awaitable[None]:
        """It has ended with this outcome."""
        ...

    def tell(self, keys: Iterable[Key]) -> Awaitable[None]:
        """Whoever waits has been told of their ends."""
        ...

    async def entries(self, ended: bool | None = None) -> list[Entry]:
        """All, or only those that have ended, or only the others; the longest known first."""
        ...

    def forget(self, keys: Iterable[Key]) -> Awaitable[None]: ...


def bare(url: str) -> str:
    """An address without what may be secret in it."""
    if "@" not in url and "?" not in url and "#" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
