"""Concatenates tus uploads: copies the bytes of the parts into one file and hashes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bide.core.errors import Problem, UploadConflict
from bide.server.durable_files import create, finished, sync_path
from bide.server.store import StoredUploads
from bide.server.upload_record import Upload, Way
from bide.server.uploads.quota import disk_problem
from bide.server.uploads.staging import BATCH, Digest
from bide.server.uploads.tus_append import TusAppend
from bide.server.uploads.upload_service import UploadService

# Seconds that the parts are kept, so that the client can repeat a request whose response was lost.
PART_LIFETIME = 3600.0


async def concatenate(
    uploads: UploadService, upload_id: str, parts: Sequence[str], name: str, **fields: Any
) -> tuple[Upload, StoredUploads]:
    """Raises UploadConflict if an upload is not a partial one, or is incomplete."""
    found = [await uploads.find(part) for part in parts]
    for part in found:
        uploads.check_replica(part)
        if not part.partial or part.received != part.size:
            raise UploadConflict(
                f"upload {part.id} cannot be concatenated: it is not a partial upload, or not complete"
            )
    size = sum(part.received for part in found)
    upload = await uploads.begin(Way.TUS, name, upload_id, size=size, parts=tuple(parts), **fields)
    staging = uploads.staging
    sources = [(staging.path(part.id), part.received) for part in found]
    with uploads.quota.charge(reserved=True) as charge:
        try:
            charge.add(size)
            digest = await finished(staging.run(_copy, sources, staging.path(upload_id)))
        except Problem:
            await uploads.discard(upload)
            raise
        except OSError as error:
            await uploads.discard(upload)
            raise disk_problem(error) or error from error
        staging.keep_digest(upload_id, digest)
        upload = await uploads.record(upload, received=size)
        charge.commit(size)
    stored = await TusAppend(uploads).finish(upload)
    for part in found:
        await uploads.record(part, expires_in=PART_LIFETIME)
    return stored.uploads[0], stored


def _copy(sources: Sequence[tuple[Path, int]], goal: Path) -> Digest:
    """Runs in a thread."""
    digest = Digest()
    with create(goal) as file:
        for path, size in sources:
            with path.open("rb", buffering=0) as source:
                left = size
                while left:
                    data = source.read(min(BATCH, left))
                    if not data:
                        raise OSError(f"{path} has less than {size} bytes")
                    file.write(data)
                    digest.update(data)
                    left -= len(data)
    sync_path(goal)
    sync_path(goal.parent)
    return digest
