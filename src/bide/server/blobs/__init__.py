"""The Blobs port: the bytes of files, apart from the records that name them.

1. A blob's key is made of its owner and a name. A job's has the attempt's fence and its process in it: a stale attempt
   cannot overwrite a newer one's. An upload's has none of the caller's words in it.
2. A blob is complete and durable before a record names it; what no record names is an orphan, and is swept by the
   store that the blobs belong to (`orphans`).
3. Storage that does not answer is told as such: `StorageUnavailable` to who awaits, a retryable JobError to a handler.
4. What only some storage can do is a protocol of its own (`Signing`, `Multipart`): a capability is its presence.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from bide.core.errors import BideError, JobError
from bide.core.record import FileInfo
from bide.core.upload import owner_of

# Beside the ids of jobs, which look like neither. Those of tenants other than "-" will be below "tenants/".
UPLOADS = owner_of("").strip("/")
STORAGE_UNAVAILABLE = "STORAGE_UNAVAILABLE"  # the code of a handler's error
CHUNK = 256 * 1024  # of a stream
STORE_ID = ".store"  # the key of the id of the store that the blobs belong to
QUARANTINE = ".quarantine"  # a mark's key is this and its owner


def file_gone(name: str) -> JobError:
    """What a handler is told when an input is no longer kept."""
    return JobError(
        "FILE_GONE",
        f"{name} is no longer kept: its time was over, or it was removed. Submit a new job with the file",
        retryable=False,
    )


class BlobMissing(BideError):
    """Nothing is kept under this key."""


class Blobs(Protocol):
    """`put` and `fetch` are for handlers and block; the others are the service's."""

    @property
    def shown(self) -> str:
        """Where they are, for messages."""
        ...

    def put(
        self, job_id: str, fence: int, name: str, source: Path | bytes, content_type: str
    ) -> FileInfo:
        """Copies a file's bytes in, with their checksum."""
        ...

    def fetch(self, file: FileInfo, folder: Path) -> Path:
        """Where the bytes can be read on this machine; brought into `folder`, once, when they are elsewhere."""
        ...

    async def open(
        self, blob: str, first: int = 0, last: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The bytes from `first` to `last`, both included, in pieces. BlobMissing before the first of them."""
        ...

    async def adopt(self, key: str, source: Path, content_type: str) -> None:
        """Makes a finished file of this machine, which is on disk, the blob of that key. `source` is gone then, and only
        then.
        """
        ...

    async def remove(self, owner: str) -> None:
        """All that an owner has: a job by its id, an upload by `owner_of`."""
        ...

    async def owners(self, space: str, older_than: float) -> Sequence[str]:
        """Who has blobs, none of them touched since: ids of jobs, or with the space UPLOADS of uploads."""
        ...

    async def claim(self, store_id: str) -> str:
        """Writes that the blobs belong to this store, unless another was written before; the id that is written."""
        ...

    async def store_id(self) -> str | None:
        """The store that the blobs belong to; None when none has claimed them."""
        ...

    async def quarantine(self, owner: str) -> None:
        """Marks an owner as an orphan from now on. Its blobs stay where they are."""
        ...

    async def release(self, owner: str) -> None:
        """Removes the mark."""
        ...

    async def quarantined(self, space: str) -> Mapping[str, float]:
        """The marked owners in a space, and since when."""
        ...

    async def check(self) -> str:
        """Writes, reads and removes a probe; what was found. SetupError, with what to do, when it cannot."""
        ...

    async def close(self) -> None: ...


class Found(msgspec.Struct, frozen=True):
    """What storage says of an object."""

    size: int
    content_type: str | None  # None: it does not keep one


class Signed(msgspec.Struct, frozen=True):
    """A request that whoever has it may make: exactly so, and only until then."""

    url: str
    method: str
    headers: dict[str, str]


class Part(msgspec.Struct, frozen=True):
    """A part of an object that is put in several requests."""

    number: int
    size: int
    etag: str


@runtime_checkable
class Signing(Protocol):
    """Callers put straight to storage, by requests that were signed for them."""

    largest_put: int  # bytes
    through_service: bool  # what is put passes through the service, which counts it

    async def sign_put(self, key: str, content_type: str, size: int, seconds: int) -> Signed: ...

    async def head(self, key: str) -> Found | None: ...

    async def move(self, source: str, key: str, content_type: str) -> None:
        """What was put becomes the blob of another key, which nobody has a signature for."""
        ...


@runtime_checkable
class Multipart(Protocol):
    """The same in parts, for what is large. `multipart` is what `begin` gave."""

    smallest_part: int  # bytes, but for the last
    most_parts: int

    async def begin(self, key: str, content_type: str) -> str: ...

    async def sign_part(
        self, key: str, multipart: str, number: int, size: int, seconds: int
    ) -> Signed: ...

    async def parts(self, key: str, multipart: str) -> list[Part]:
        """Those that are there, by their numbers. BlobMissing when there is no such multipart upload."""
        ...

    async def finish(self, key: str, multipart: str, parts: Sequence[Part]) -> None: ...

    async def abort(self, key: str, multipart: str) -> None: ...


@runtime_checkable
class Storage(Signing, Multipart, Protocol):
    """Both."""


# After a failover that lost claims two attempts may have the same fence, each in a child process of its own.
_PROCESS = secrets.token_hex(4)


def job_key(job_id: str, fence: int, name: str) -> str:
    return f"{job_id}/{fence}.{_PROCESS}/{check_name(name)}"


def upload_key(upload_id: str) -> str:
    return f"{owner_of(upload_id)}/content"


def incoming_key(upload_id: str) -> str:
    """Where its sender may put it: until it was verified it is not the blob."""
    return f"{owner_of(upload_id)}/incoming"


def check_name(name: str) -> str:
    """A file's name, when it is one that every file system and URL can bear; ValueError otherwise."""
    if not name or name in (".", "..") or "/" in name or "\\" in name:
        raise ValueError(f"{name!r} is not a file name: it is empty or has a path in it")
    if len(name.encode()) > 200 or not name.isprintable():
        raise ValueError(f"{name[:50]!r} is not a file name: too long, or has unprintable characters")
    return name
