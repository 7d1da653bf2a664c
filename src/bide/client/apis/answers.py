"""What goes to a job API and what comes back, in one vocabulary for all of them.

1. A `Ref` holds no credential: it is what a ledger may store.
2. A `BadPoll` says that an answer told nothing about the job. It never means that the job failed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from bide.core.errors import BideError, ErrorInfo
from bide.core.wire import WireJob

State = Literal["live", "done", "failed", "cancelled", "partial", "unknown"]
TERMINAL: frozenset[str] = frozenset(("done", "failed", "cancelled", "partial"))

NOT_FOUND, GONE = "JOB_NOT_FOUND", "JOB_GONE"


class Ref(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one job is addressed at an API: JSON-able, and without a credential."""

    id: str
    url: str | None = None  # where its status is, when the API said so; else it is made from the id
    more: dict[
        str, str
    ] = {}  # what else was learned when it was accepted: where to cancel it, whose it is

    def moved(self, url: str | None) -> Ref:
        """The same job at another address; `Seen.moved` tells one."""
        return self if url is None or url == self.url else Ref(self.id, url, self.more)


class Call(msgspec.Struct, frozen=True):
    """One request, but for the credential. The headers may be shared: they are not to be changed."""

    method: str
    url: str
    headers: dict[str, str] = {}
    body: bytes = b""
    authorized: bool = True  # False: it goes to a host that the credential is not meant for
    known: dict[str, str] = {}  # of a submission: what its Ref is to remember
    hold: float = 0.0  # how long the service was asked to keep it open


class Found(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a job has made."""

    name: str
    url: str
    content_type: str | None = None
    size: int | None = None
    sha256: str | None = None


class Seen(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one answer said about one job; None is what it did not say."""

    state: State
    word: str = ""  # the API's own
    unchanged: bool = False  # 304: all is as it was when the ETag was given out
    progress: float | None = None  # 0 to 1
    counts: tuple[float, float | None] | None = None  # done, and of how many where that is known
    position: int | None = None  # in the API's queue
    message: str | None = None
    eta: float | None = None  # epoch seconds
    remaining: float | None = None  # seconds from the moment of the answer
    retry_after: float | None = None  # seconds: when the API advises to ask again
    started_at: float | None = None  # epoch seconds by the API's clock, as are the next two
    finished_at: float | None = None
    expires_at: float | None = None  # until when result_url and the files can be fetched
    error: ErrorInfo | None = None
    result: Any = None
    result_url: str | None = None
    files: tuple[Found, ...] = ()
    etag: str | None = None
    moved: str | None = None  # where to ask from now on
    record: WireJob | None = None  # all of it, when it is a bide service that answered

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL


class BadPoll(BideError):
    """An answer that says nothing about the job. `final`: asking again will hardly mend it."""

    def __init__(self, status: int, detail: str, *, final: bool = False) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.final = final

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.detail}"


class Throttled(BadPoll):
    """Too many requests: news for every job of the credential."""


class NotYet(BadPoll):
    """404 so soon after the job was accepted that it may only not be visible yet."""


class Denied(BadPoll):
    """The credential is missing, wrong or expired."""


class Crowded(BideError):
    """A submission was refused because too many jobs run already. It says nothing about the limit of requests."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.detail}"
