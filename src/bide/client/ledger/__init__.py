"""The ledger port: the jobs that a client waits for, so that another process can resume after a crash.

Every ledger keeps these rules, and `bide.testing.ledger` checks them:
1. `add`, `end`, `acknowledge` and `learn` return after their data is on disk. So a result is reported only
   after the ledger has stored it.
2. `note` writes within about a second; the newest note of a job counts.
3. The first outcome of a job stands: no later note or outcome changes it.
4. One process uses a ledger at a time; a second one gets a SetupError. Child processes leave the ledger to their parent.
5. It never contains a credential: URLs are stored without user, password and query, and budgets under a fingerprint
   that is made with the ledger's own `salt`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from bide.client.apis.answers import Found, Ref
from bide.client.apis.values import without_credentials
from bide.client.polling_options import PollingFields
from bide.core.errors import ErrorInfo
from bide.core.jobs.record import Progress

Key = tuple[str, str, str]


class ApiAddress(NamedTuple):
    """One API at one address."""

    api: str
    base: str


class LedgerRow(msgspec.Struct, kw_only=True):
    """One job in a ledger. Times are seconds since the epoch."""

    api: str
    base: str  # the address of the API
    job_id: str  # the whole reference if the id alone does not identify the job
    ref: Ref | None = None  # the job's address at the API if the id alone is not enough
    kind: str = ""
    size: str = ""
    submitted_at: float | None = None  # by the client's clock
    since: float | None = None  # when the wait began: the job is at least that old
    # Until the job ends.
    asked_at: float | None = None
    status: str | None = None
    progress: Progress | None = None
    etag: str | None = None
    requests: int = 0
    # The outcome.
    ended: bool = False
    finished_at: float | None = None
    result: msgspec.Raw | None = None
    result_url: str | None = None  # the result's URL if the answer did not contain it
    files: tuple[Found, ...] = ()
    error: ErrorInfo | None = None
    acknowledged: bool = False  # the caller has processed the outcome

    def __post_init__(self) -> None:
        self.base = without_credentials(self.base)

    @property
    def key(self) -> Key:
        return self.api, self.base, self.job_id

    @property
    def place(self) -> ApiAddress:
        return ApiAddress(self.api, self.base)


class Counts(msgspec.Struct):
    """How many jobs a ledger has at one place."""

    unacknowledged: int = 0
    acknowledged: int = 0
    failed: int = 0  # acknowledged jobs that did not succeed


class WaitSettings(PollingFields, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a wait at one place, so that a later command resumes with the same ones.

    It has the fields of PollingOptions, too. It never contains a key, a header or a command. The URL is that of the place.
    """

    description: str | None = None  # the absolute path; None: the description comes with bide
    out: str | None = None  # the absolute path of the folder for results
    limit: str | None = None
    timeout: float | Literal["none"] | None = None  # None: the default


class LearnedState(msgspec.Struct, kw_only=True):
    """Durations by (api, kind, size), and budgets by fingerprint with the time of their dump."""

    durations: dict[Key, dict[str, Any]] = {}
    budgets: dict[str, tuple[float, dict[str, Any]]] = {}


class Knowledge(Protocol):
    """The part of a ledger that stores learned durations and budgets."""

    @property
    def salt(self) -> bytes:
        """Make fingerprints of credentials. Each ledger has its own."""
        ...

    def learn(self, learned: LearnedState) -> Awaitable[None]:
        """Replace the values of these keys; others stay."""
        ...

    async def learned(self) -> LearnedState: ...


class Ledger(Knowledge, Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None:
        """Write all notes and release the lock."""
        ...

    def add(self, rows: Sequence[LedgerRow]) -> Awaitable[list[LedgerRow]]:
        """Store these jobs. Return each as the ledger has it: a known job stays as it is."""
        ...

    def note(self, row: LedgerRow) -> None:
        """Store the new status, progress, ETag and requests of a job. Cheap: many notes are written together."""
        ...

    def end(self, row: LedgerRow) -> Awaitable[None]:
        """Store the outcome of a job."""
        ...

    def acknowledge(self, keys: Iterable[Key]) -> Awaitable[None]:
        """Mark jobs whose outcome the caller has processed."""
        ...

    async def rows(self, place: ApiAddress | None = None) -> list[LedgerRow]:
        """All jobs, or those of one place, in the order in which they were added."""
        ...

    async def counts(self) -> dict[ApiAddress, Counts]:
        """The number of jobs at each place, without reading them all."""
        ...
