"""What an upload is: bytes on their way to a blob and, when that was asked for, to a job. Only data.

1. `received` counts bytes from the first one that are on disk for certain; it never goes back.
2. A DONE upload is whole: its size and SHA-256 are those of the bytes that `blob` names, and nothing of it changes again
   but the job that it has led to and when it expires.
"""

from __future__ import annotations

import enum

import msgspec

from bide.core.clock import render_instant
from bide.core.record import FileInfo

ANY_TYPE = "application/octet-stream"
UPLOADS = "uploads/"  # what the owner of a file begins with when it is an upload and not a job
MOST_CHUNKS = 10_000


class UploadStatus(enum.StrEnum):
    UPLOADING = "UPLOADING"
    DONE = "DONE"


class Way(enum.StrEnum):
    """How the bytes come."""

    DIRECT = "direct"
    TUS = "tus"
    CHUNKS = "chunks"
    PRESIGNED = "presigned"


class Upload(msgspec.Struct, frozen=True):
    """One file on its way, as the store keeps it."""

    id: str
    way: Way
    name: str
    created_at: float
    updated_at: float
    content_type: str = ANY_TYPE
    tenant: str = "-"
    status: UploadStatus = UploadStatus.UPLOADING
    replica: str = ""  # the service on whose disk the bytes are until it is DONE
    past_service: bool = False  # its bytes go straight to storage: nobody sees how many there are
    size: int | None = None  # None: not known yet
    received: int = 0
    promised: str | None = None  # the SHA-256 that its sender has told
    expires_at: float | None = None
    # When it is DONE.
    sha256: str = ""
    detected: str = ""  # the content type that its first bytes show; "" when they show none
    blob: str | None = None
    # Chunks in any order: which there are, a bit each, as hexadecimal digits with the first chunk in the lowest bit.
    chunk_size: int | None = None
    chunks: str = "0"
    # Of several uploads one: this is a part, or is made of these.
    partial: bool = False
    parts: tuple[str, ...] = ()
    metadata: str = ""  # as its sender has written it
    # The job that it is to become.
    submission: msgspec.Raw | None = None  # like the body of POST /jobs, without this file
    parameter: str | None = None  # the one that takes this file; None: the only one that can
    key: str | None = None
    trace_id: str | None = None
    job_id: str | None = None

    @property
    def file(self) -> FileInfo:
        """Of a DONE one."""
        assert self.blob is not None and self.size is not None
        return FileInfo(self.name, self.content_type, self.size, self.sha256, self.blob)

    @property
    def bytes(self) -> int:
        """What it takes of the room for uploads."""
        if self.status is UploadStatus.DONE or self.past_service:
            return self.received if self.size is None else self.size
        if self.chunk_size is None:
            return self.received
        chunks, last = int(self.chunks, 16), self.chunk_count - 1
        less = self.chunk_size - self.chunk_length(last) if chunks >> last & 1 else 0
        return chunks.bit_count() * self.chunk_size - less

    @property
    def reserved(self) -> int:
        """What it will take, too, of its declared size."""
        return 0 if self.size is None else max(0, self.size - self.bytes)

    @property
    def chunk_count(self) -> int:
        assert self.chunk_size is not None and self.size is not None
        return max(1, -(-self.size // self.chunk_size))

    def chunk_length(self, number: int) -> int:
        """How many bytes the chunk has; the last one may have fewer."""
        assert self.chunk_size is not None and self.size is not None
        return min(self.chunk_size, self.size - number * self.chunk_size)

    def has_chunk(self, number: int) -> bool:
        return bool(int(self.chunks, 16) >> number & 1)

    @property
    def missing(self) -> list[int]:
        bits = int(self.chunks, 16)
        return [n for n in range(self.chunk_count) if not bits >> n & 1]


def with_chunk(chunks: str, number: int) -> str:
    return f"{int(chunks, 16) | 1 << number:x}"


def owner_of(upload_id: str) -> str:
    return UPLOADS + upload_id


def upload_of(owner: str) -> str | None:
    """The id of the upload that owns a file; None when a job does."""
    return owner.removeprefix(UPLOADS) if owner.startswith(UPLOADS) else None


class WireUpload(msgspec.Struct, rename="camel"):
    """An upload as it is told. `received` are bytes from the first one; a sha256 is there when it is DONE."""

    upload_id: str
    status: UploadStatus
    way: Way
    name: str
    content_type: str
    size: int | None
    received: int
    sha256: str | None
    job_id: str | None
    created_at: str
    expires_at: str | None


def wire_upload(upload: Upload) -> WireUpload:
    return WireUpload(
        upload_id=upload.id,
        status=upload.status,
        way=upload.way,
        name=upload.name,
        content_type=upload.content_type,
        size=upload.size,
        received=upload.received,
        sha256=upload.sha256 or None,
        job_id=upload.job_id,
        created_at=render_instant(upload.created_at),
        expires_at=None if upload.expires_at is None else render_instant(upload.expires_at),
    )
