"""The row of an upload: its record as JSON, and columns for the values that queries use."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from bide.server.upload_record import Upload

FIELDS = (
    "id",
    "tenant",
    "status",
    "replica",
    "bytes",
    "reserved",
    "updated_at",
    "expires_at",
    "record",
    "submission",
)
COLUMNS = ", ".join(FIELDS)
CHANGED = tuple(name for name in FIELDS if name not in ("id", "tenant", "submission"))
READ = "record, submission"
TENANT_SUM = (
    "SELECT coalesce(sum(bytes), 0) + coalesce(sum(CASE WHEN status = 'UPLOADING' THEN reserved END), 0) FROM uploads "
    "WHERE tenant = ?"
)
# Only incomplete uploads count as reserved, because an older release left the reservation in the row of a complete one.
SUMS = (
    "SELECT coalesce(sum(bytes), 0), coalesce(sum(CASE WHEN status = 'UPLOADING' THEN reserved END), 0), coalesce(sum("
    "CASE WHEN status <> 'UPLOADING' THEN 0 WHEN reserved < bytes THEN reserved ELSE bytes END), 0) FROM uploads"
)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Upload).decode


def values_of(upload: Upload) -> tuple[Any, ...]:
    record = _encode(replace(upload, submission=None)).decode()
    submission = None if upload.submission is None else bytes(upload.submission).decode()
    return (
        *(upload.id, upload.tenant, upload.status.value, upload.replica),
        *(upload.bytes, upload.reserved),
        *(upload.updated_at, upload.expires_at, record, submission),
    )


def upload_of(row: tuple[Any, ...]) -> Upload:
    """`row` is READ."""
    record, submission = row
    upload = _decode(record)
    return upload if submission is None else replace(upload, submission=msgspec.Raw(submission.encode()))
