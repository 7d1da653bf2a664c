"""The Blobs port: the bytes of files, separate from the records that name them.

1. The key of a blob consists of its owner and a name. The key of a job's file contains the fence and the process of the
   attempt, so that a stale attempt cannot overwrite a newer one. The key of an upload contains no text of the caller.
2. A blob is complete and durable before a record names it. A blob that no record names is an orphan; the store that the
   blobs belong to removes it (`orphans`).
3. If storage is unavailable, the service gets `StorageUnavailable` and a handler gets a retryable JobError.
4. Clients can send bytes to storage themselves, with requests that `Signing` signs.
5. Storage with `PartStorage` receives the bytes of uploads as they arrive; otherwise they are on the disk of a replica
   until the upload is complete, and `adopt` moves them.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from bide.core.clock import Clock
from bide.core.errors import BideError, JobError, StorageUnavailable
from bide.core.jobs.record import FileInfo
from bide.server.upload_record import owner_of

# Next to the folders of jobs, whose ids differ from this name. "tenants/" is reserved for tenants other than "-".
UPLOADS = owner_of("").strip("/")
STORAGE_UNAVAILABLE = "STORAGE_UNAVAILABLE"  # error code in handlers
CHUNK = 256 * 1024  # bytes per piece of a stream
STORE_ID = ".store"  # the key with the id of the store that the blobs belong to
# The query parameters of requests that the service signs and receives itself.
SIGNED_VALUES = ("expires", "size", "type", "multipart", "signature")
QUARANTINE = ".quarantine"  # prefix of the keys that mark owners as orphans


def file_gone(name: str) -> JobError:
    """Return the error that a handler gets if an input file no longer exists."""
    return JobError(
        "FILE_GONE",
        f"{name} no longer exists: it expired or was deleted. Submit a new job with the file",
        retryable=False,
    )


class BlobMissing(BideError):
    """No blob has this key."""


class Blobs(Protocol):
    """Handlers call `put` and `fetch`, which block. The service calls the other methods."""

    @property
    def shown(self) -> str:
        """The location, for messages."""
        ...

    def put(
        self, job_id: str, fence: int, name: str, source: Path | bytes, content_type: str
    ) -> FileInfo:
        """Store a file; return its size and checksum."""
        ...

    def fetch(self, file: FileInfo, folder: Path) -> Path:
        """Return a local path of the file. A remote file is downloaded into `folder` once."""
        ...

    async def open(
        self, blob: str, first: int = 0, last: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Return the bytes from `first` to `last`, both included, in pieces. Raise BlobMissing before the first piece."""
        ...

    async def adopt(self, key: str, source: Path, content_type: str) -> None:
        """Move a local, synced file to the blobs. `source` is removed if and only if this succeeds."""
        ...

    async def remove(self, owner: str) -> None:
        """Remove all blobs of an owner: a job id, or `owner_of` an upload."""
        ...

    async def owners(self, space: str, older_than: float) -> Sequence[str]:
        """Return the owners whose blobs are all older: job ids, or upload ids in the space UPLOADS."""
        ...

    async def claim(self, store_id: str) -> str:
        """Record that the blobs belong to this store, unless another store is recorded; return the recorded id."""
        ...

    async def store_id(self) -> str | None:
        """Return the id of the store that the blobs belong to; None if no store has claimed them."""
        ...

    async def quarantine(self, owner: str) -> None:
        """Mark an owner as an orphan. Its blobs are not moved."""
        ...

    async def release(self, owner: str) -> None:
        """Remove the mark."""
        ...

    async def quarantined(self, space: str) -> Mapping[str, float]:
        """Return the marked owners in a space, with the times of their marks."""
        ...

    def signing(self, clock: Clock) -> Signing:
        """Return the signer of requests to these blobs. `clock` is that of the store."""
        ...

    def part_storage(self) -> PartStorage | None:
        """Return the operations that store an upload while it arrives; None: a local folder receives it."""
        ...

    async def check(self) -> str:
        """Write, read and remove a probe; return a description. Raise SetupError with a remedy if that fails."""
        ...

    async def close(self) -> None: ...


class StoredObject(msgspec.Struct, frozen=True):
    """Metadata of an object in storage."""

    size: int
    content_type: str | None  # None: the storage has no content types


class Signed(msgspec.Struct, frozen=True):
    """A signed request. Storage accepts it unchanged, until it expires."""

    url: str
    method: str
    headers: dict[str, str]


class StoredPart(msgspec.Struct, frozen=True):
    """A part of a multipart upload."""

    number: int
    size: int
    etag: str


class PartChanged(StorageUnavailable):
    """A part was overwritten after its ETag was returned."""


class BegunMultipart(msgspec.Struct, frozen=True):
    """A multipart upload that was begun, and neither finished nor aborted."""

    key: str
    multipart: str
    begun_at: float


class PartStorage(Protocol):
    """Stores an upload while it arrives: whole objects, and parts that become one object. `multipart` is the id that
    `begin` returned. All replicas see what one of them has stored.
    """

    smallest_part: int  # bytes; the last part may be smaller
    most_parts: int

    async def put_object(self, key: str, data: bytes, content_type: str) -> None: ...

    async def remove_object(self, key: str) -> None: ...

    async def head(self, key: str) -> StoredObject | None: ...

    async def begin(self, key: str, content_type: str) -> str: ...

    async def put_part(self, key: str, multipart: str, number: int, data: bytes) -> str:
        """Store a part, numbered from 1, and return its ETag. A part with the same number is overwritten. Raise BlobMissing
        if the multipart upload does not exist.
        """
        ...

    async def parts(self, key: str, multipart: str) -> list[StoredPart]:
        """Return the stored parts by number. Raise BlobMissing if the multipart upload does not exist."""
        ...

    async def finish(self, key: str, multipart: str, parts: Sequence[StoredPart]) -> None:
        """Join the parts to an object. Raise PartChanged if an ETag differs, and BlobMissing if the multipart upload does
        not exist.
        """
        ...

    async def abort(self, key: str, multipart: str) -> None: ...

    async def multiparts(self, space: str) -> list[BegunMultipart]:
        """Return the unfinished multipart uploads in a space."""
        ...


class SignedReceiver(Protocol):
    """Receives signed requests at the service, for storage that clients cannot reach."""

    def verify(
        self, method: str, path: str, signed: Mapping[str, str], size: int | None, content_type: str
    ) -> int:
        """Return the size of the body. Raise a Problem if the request differs from the signed one, or has expired."""
        ...

    async def receive(self, key: str, body: AsyncIterator[bytes], size: int) -> str:
        """Store the body; return its ETag. Raise WrongLength, and store nothing, if its size is not `size`."""
        ...

    async def receive_part(
        self, key: str, multipart: str, number: int, body: AsyncIterator[bytes], size: int
    ) -> str:
        """Store a part. Raise BlobMissing if the multipart upload does not exist."""
        ...


class Signing(Protocol):
    """Signs requests with which clients write to storage: whole objects, or the parts of large ones. `multipart` is the id
    that `begin` returned.
    """

    largest_put: int  # bytes
    smallest_part: int  # bytes; the last part may be smaller
    most_parts: int

    @property
    def receiver(self) -> SignedReceiver | None:
        """Receive the signed requests at the service; None: clients send them to the storage."""
        ...

    async def sign_put(self, key: str, content_type: str, size: int, seconds: int) -> Signed: ...

    async def head(self, key: str) -> StoredObject | None: ...

    async def move(self, source: str, key: str, content_type: str) -> None:
        """Move an object to another key, for which no client has a signature."""
        ...

    async def begin(self, key: str, content_type: str) -> str: ...

    async def sign_part(
        self, key: str, multipart: str, number: int, size: int, seconds: int
    ) -> Signed: ...

    async def parts(self, key: str, multipart: str) -> list[StoredPart]:
        """Return the stored parts by number. Raise BlobMissing if the multipart upload does not exist."""
        ...

    async def finish(self, key: str, multipart: str, parts: Sequence[StoredPart]) -> None: ...

    async def abort(self, key: str, multipart: str) -> None: ...


# After a failover that lost claims, two attempts may have the same fence, but they run in different processes.
_PROCESS = secrets.token_hex(4)


def job_key(job_id: str, fence: int, name: str) -> str:
    return f"{job_id}/{fence}.{_PROCESS}/{check_name(name)}"


def upload_key(upload_id: str) -> str:
    return f"{UPLOADS}/{upload_id}/content"


def incoming_key(upload_id: str) -> str:
    """Return the key that clients write to. The verified object is moved to `upload_key`."""
    return f"{UPLOADS}/{upload_id}/incoming"


def new_object_key(upload_id: str) -> str:
    """Return a key of the upload that no other process uses, so that a stale writer overwrites nothing."""
    return f"{UPLOADS}/{upload_id}/{secrets.token_hex(8)}"


def chunk_key(upload_id: str, number: int) -> str:
    """Return the key of a chunk that is too small to be a part."""
    return f"{UPLOADS}/{upload_id}/chunks/{number}"


def check_name(name: str) -> str:
    """Return the name if every file system and URL accepts it. Raise ValueError otherwise."""
    if not name or name in (".", "..") or "/" in name or "\\" in name:
        raise ValueError(f"{name!r} is not a file name: it is empty or contains a path")
    if len(name.encode()) > 200 or not name.isprintable():
        raise ValueError(
            f"{name[:50]!r} is not a file name: it has more than 200 bytes or unprintable characters"
        )
    return name
