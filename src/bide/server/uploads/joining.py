"""Several uploads become one, in their order: the bytes are copied within the disk, and hashed on the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bide.core.errors import Problem, UploadConflict
from bide.core.upload import Upload, Way
from bide.server.durable_files import create, finished, sync_path
from bide.server.store import StoredUploads
from bide.server.uploads.appending import Appending
from bide.server.uploads.reception import Reception
from bide.server.uploads.room import told
from bide.server.uploads.staging import BATCH, Digest

# A part that was joined is kept for as long as its sender may ask again for the answer that was lost.
LEFT = 3600.0


async def join(
    reception: Reception, upload_id: str, parts: Sequence[str], name: str, **fields: Any
) -> tuple[Upload, StoredUploads]:
    """UploadConflict when one of them is not a whole part."""
    found = [await reception.find(part) for part in parts]
    for part in found:
        reception.check_here(part)
        if not part.partial or part.received != part.size:
            raise UploadConflict(f"upload {part.id} is not a part, or is not whole yet")
    size = sum(part.received for part in found)
    upload = await reception.begin(Way.TUS, name, upload_id, size=size, parts=tuple(parts), **fields)
    staging = reception.staging
    sources = [(staging.path(part.id), part.received) for part in found]
    with reception.room.charge(reserved=True) as charge:
        try:
            charge.take(size)
            digest = await finished(staging.run(_copy, sources, staging.path(upload_id)))
        except Problem:
            await reception.discard(upload)
            raise
        except OSError as error:
            await reception.discard(upload)
            raise told(error) or error from error
        staging.keep_digest(upload_id, digest)
        upload = await reception.note(upload, received=size)
        charge.keep(size)
    kept = await Appending(reception).finish(upload)
    for part in found:
        await reception.note(part, expires_in=LEFT)
    return kept.uploads[0], kept


def _copy(sources: Sequence[tuple[Path, int]], goal: Path) -> Digest:
    """In a thread."""
    digest = Digest()
    with create(goal) as file:
        for path, size in sources:
            with path.open("rb", buffering=0) as source:
                left = size
                while left:
                    data = source.read(min(BATCH, left))
                    if not data:
                        raise OSError(f"{path} is shorter than {size}")
                    file.write(data)
                    digest.update(data)
                    left -= len(data)
    sync_path(goal)
    sync_path(goal.parent)
    return digest
