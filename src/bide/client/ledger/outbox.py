"""The outbox port: submissions whose files are being uploaded, so that another process can resume them.

Every outbox keeps these rules, and `bide.testing.ledger` checks them:
1. `put` returns after the submission is on disk; its newest version counts.
2. A submission is identified by its destination and its content; it contains no credential.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, runtime_checkable

import msgspec

from bide.client.apis.values import without_credentials


class PendingFile(msgspec.Struct, kw_only=True):
    """One file of a pending submission: the values that identify it, and its upload."""

    path: str
    size: int
    modified: int  # nanoseconds
    head: str  # the SHA-256 of its first bytes
    url: str | None = None  # of its upload, after that has started


class PendingSubmission(msgspec.Struct, kw_only=True):
    """A submission whose files are being uploaded. `since` is in seconds since the epoch."""

    base: str  # the address of the service
    what: str  # a digest of the submission
    key: str | None  # the idempotency key of the job
    since: float
    files: dict[str, PendingFile]  # by parameter
    job_id: str | None = None  # after the service has created the job

    def __post_init__(self) -> None:
        self.base = without_credentials(self.base)


class UploadOutbox(Protocol):
    async def get(self, base: str, what: str) -> PendingSubmission | None: ...

    def put(self, pending: PendingSubmission) -> Awaitable[None]: ...

    def drop(self, pending: PendingSubmission) -> Awaitable[None]: ...

    def forget(self, base: str, job_id: str) -> Awaitable[None]:
        """Remove the submission of this job, if there is one."""
        ...


@runtime_checkable
class HasOutbox(Protocol):
    """A ledger that stores uploads, too."""

    @property
    def outbox(self) -> UploadOutbox: ...


def outbox_of(ledger: object) -> UploadOutbox | None:
    return ledger.outbox if isinstance(ledger, HasOutbox) else None
