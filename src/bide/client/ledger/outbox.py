"""The Outbox port: submissions with files that are on their way, so that another process can go on where this one was.

Rules that every outbox keeps, and that `bide.testing.ledger` checks:
1. What `put` was given is on disk before it resolves; the newest of a parcel counts.
2. A parcel is known by where it goes and what it is; no credential is in it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, runtime_checkable

import msgspec

from bide.client.ledger import bare


class Item(msgspec.Struct, kw_only=True):
    """One file of a parcel: by what it is known again, and how far it is."""

    path: str
    size: int
    modified: int  # nanoseconds
    head: str  # the SHA-256 of its beginning
    url: str | None = None  # of its upload, once that was begun


class Parcel(msgspec.Struct, kw_only=True):
    """A submission whose files are being sent. `since` is in seconds since the epoch."""

    base: str  # the address of the service
    what: str  # a digest of everything that was asked for
    key: str | None  # the idempotency key that its job is made with
    since: float
    items: dict[str, Item]  # by parameter
    job_id: str | None = None  # once there is a job

    def __post_init__(self) -> None:
        self.base = bare(self.base)


class Outbox(Protocol):
    async def get(self, base: str, what: str) -> Parcel | None: ...

    def put(self, parcel: Parcel) -> Awaitable[None]: ...

    def drop(self, parcel: Parcel) -> Awaitable[None]: ...

    def forget(self, base: str, job_id: str) -> Awaitable[None]:
        """The parcel that has become this job, if there is one."""
        ...


@runtime_checkable
class HasOutbox(Protocol):
    """A ledger that keeps files on their way, too."""

    @property
    def outbox(self) -> Outbox: ...


def outbox_of(ledger: object) -> Outbox | None:
    return ledger.outbox if isinstance(ledger, HasOutbox) else None
