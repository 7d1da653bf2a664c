"""The Blobs port: the bytes of files, apart from the records that name them.

1. A blob's key is made of its job, the attempt's fence and its name: a stale attempt cannot overwrite a newer one's.
2. A blob is complete and on disk before a record names it; what no record names is an orphan, and is swept.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Protocol

from bide.core.record import FileInfo
from bide.core.upload import owner_of


class Blobs(Protocol):
    def put(
        self, job_id: str, fence: int, name: str, source: Path | bytes, content_type: str
    ) -> FileInfo:
        """Copies a file's bytes in, with their checksum."""
        ...

    def path(self, blob: str) -> Path:
        """Where the bytes can be read on this machine."""
        ...

    async def open(
        self, blob: str, first: int = 0, last: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The bytes from `first` to `last`, both included, in pieces."""
        ...

    async def adopt(self, key: str, source: Path, content_type: str) -> None:
        """Makes a finished file of this machine the blob of that key. `source` is gone then, and only then."""
        ...

    def remove(self, job_id: str) -> None:
        """All files of an owner: a job, or an upload."""
        ...

    def jobs(self, older_than: float) -> Iterator[str]:
        """The ids of jobs that have files which were last touched before this instant."""
        ...


def upload_key(upload_id: str) -> str:
    return f"{owner_of(upload_id)}/content"


def check_name(name: str) -> str:
    """A file's name, when it is one that every file system and URL can bear; ValueError otherwise."""
    if not name or name in (".", "..") or "/" in name or "\\" in name:
        raise ValueError(f"{name!r} is not a file name: it is empty or has a path in it")
    if len(name.encode()) > 200 or not name.isprintable():
        raise ValueError(f"{name[:50]!r} is not a file name: too long, or has unprintable characters")
    return name
