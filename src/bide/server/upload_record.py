"""The record of an upload, which becomes a blob and, if requested, a job. Only data.

1. `received` counts the bytes from the start that are safely on disk or in a bucket; it never goes back.
2. A DONE upload is complete: its size and SHA-256 are those of the bytes of `blob`. After that only its job and its
   expiry change.
"""

from __future__ import annotations

import enum

import msgspec

from bide.core.clock import render_instant
from bide.core.jobs.record import FileInfo

ANY_TYPE = "application/octet-stream"
UPLOADS = "uploads/"  # prefix of the owner of a file that belongs to an upload and not to a job
MOST_CHUNKS = 10_000
ANY_REPLICA = (
    "*"  # the replica of uploads whose bytes are in a bucket, so that any replica continues them
)


class UploadStatus(enum.StrEnum):
    UPLOADING = "UPLOADING"
    DONE = "DONE"


class Way(enum.StrEnum):
    """The protocol of an upload."""

    DIRECT = "direct"
    TUS = "tus"
    CHUNKS = "chunks"
    PRESIGNED = "presigned"


class BucketBytes(msgspec.Struct, frozen=True):
    """Where the bytes of an incomplete upload are in a bucket: the parts of a multipart upload, then the tail. Together they
    have the received bytes.
    """

    writer: str  # the process that adds bytes; the store rejects updates of any other one
    part_size: int = (
        0  # bytes of each part but the last; 0: parts grow, because the upload began without a size
    )
    multipart: str = ""  # the id of the multipart upload; "": there is none yet
    parts: tuple[tuple[int, str], ...] = ()  # the size and the ETag of each part, in order
    tail: str = ""  # the key of the object with the bytes after the parts; "": there are none

    @property
    def parts_end(self) -> int:
        """The offset after the last part."""
        return sum(size for size, _ in self.parts)


class Upload(msgspec.Struct, frozen=True):
    """One upload, as the store keeps it."""

    id: str
    way: Way
    name: str
    created_at: float
    updated_at: float
    content_type: str = ANY_TYPE
    tenant: str = "-"
    status: UploadStatus = UploadStatus.UPLOADING
    replica: str = ""  # the replica on whose disk the bytes are until it is DONE; or ANY_REPLICA
    past_service: bool = False  # its bytes go directly to storage, so `received` is not known
    size: int | None = None  # None: not known yet
    received: int = 0
    bucket: BucketBytes | None = None  # None: the bytes are on the disk of a replica, or it is DONE
    promised: str | None = None  # the SHA-256 that the sender declared
    expires_at: float | None = None
    # Set when it is DONE.
    sha256: str = ""
    detected: str = ""  # the content type by its first bytes; "" if unknown
    blob: str | None = None
    # Chunks arrive in any order: a bitmap of those received, in hexadecimal, the first chunk in the lowest bit.
    chunk_size: int | None = None
    chunks: str = "0"
    # tus concatenation: this upload is a part, or consists of these parts.
    partial: bool = False
    parts: tuple[str, ...] = ()
    metadata: str = ""  # Upload-Metadata, unchanged
    # The job to submit when it is DONE.
    submission: msgspec.Raw | None = None  # like the body of POST /jobs, without this file
    parameter: str | None = None  # the parameter for this file; None: the only one that accepts a file
    key: str | None = None
    trace_id: str | None = None
    job_id: str | None = None
    replayed: bool = False  # an earlier submission has created the job

    @property
    def file(self) -> FileInfo:
        """The file of a DONE upload."""
        assert self.blob is not None and self.size is not None
        return FileInfo(self.name, self.content_type, self.size, self.sha256, self.blob)

    @property
    def bytes(self) -> int:
        """The bytes that it occupies."""
        if self.status is UploadStatus.DONE or self.past_service:
            return self.received if self.size is None else self.size
        if self.chunk_size is None:
            return self.received
        chunks, last = int(self.chunks, 16), self.chunk_count - 1
        less = self.chunk_size - self.chunk_length(last) if chunks >> last & 1 else 0
        return chunks.bit_count() * self.chunk_size - less

    @property
    def reserved(self) -> int:
        """The bytes of its declared size that it does not occupy yet."""
        return 0 if self.size is None else max(0, self.size - self.bytes)

    @property
    def chunk_count(self) -> int:
        assert self.chunk_size is not None and self.size is not None
        return max(1, -(-self.size // self.chunk_size))

    def chunk_length(self, number: int) -> int:
        """Return the size of a chunk; the last one may be smaller."""
        assert self.chunk_size is not None and self.size is not None
        return min(self.chunk_size, self.size - number * self.chunk_size)

    def has_chunk(self, number: int) -> bool:
        return bool(int(self.chunks, 16) >> number & 1)

    @property
    def chunks_end(self) -> int:
        """The offset after the last chunk that it has; 0 if it has none."""
        count = int(self.chunks, 16).bit_length()
        return 0 if count == 0 else (count - 1) * (self.chunk_size or 0) + self.chunk_length(count - 1)

    @property
    def has_all_chunks(self) -> bool:
        return int(self.chunks, 16).bit_count() == self.chunk_count

    @property
    def missing(self) -> list[int]:
        bits = int(self.chunks, 16)
        return [n for n in range(self.chunk_count) if not bits >> n & 1]


def with_chunk(chunks: str, number: int) -> str:
    return f"{int(chunks, 16) | 1 << number:x}"


def owner_of(upload_id: str) -> str:
    return UPLOADS + upload_id


def upload_of(owner: str) -> str | None:
    """Return the id of the upload that owns a file; None if a job owns it."""
    return owner.removeprefix(UPLOADS) if owner.startswith(UPLOADS) else None


class WireUpload(msgspec.Struct, rename="camel"):
    """The upload resource. `received` counts bytes from the start; `sha256` is set when it is DONE."""

    upload_id: str
    status: UploadStatus
    way: Way
    name: str
    content_type: str
    size: int | None
    received: int
    sha256: str | None
    job_id: str | None
    replayed: bool
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
        replayed=upload.replayed,
        created_at=render_instant(upload.created_at),
        expires_at=None if upload.expires_at is None else render_instant(upload.expires_at),
    )
