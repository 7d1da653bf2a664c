"""Files of a job, streamed to disk.

A file appears under its name only when it is whole: it grows beside it as NAME.part, a broken stream goes on where it
ended, and a checksum that does not fit is an error, never a file.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from bide.client.transport import Transport
from bide.client.waiting import Watch
from bide.core.errors import BideError
from bide.core.wire import quote


async def download(transport: Transport, watch: Watch, name: str, path: Path) -> Path:
    """Writes the job's file `name` to `path`, or into it when it is a folder."""
    path = await asyncio.to_thread(_place, path, name)
    partial = path.with_name(path.name + ".part")
    sha256 = hashlib.sha256()
    try:
        with await asyncio.to_thread(partial.open, "wb") as file:

            async def go_on() -> None:
                watch.requests += 1
                source = f"{watch.path}/files/{quote(name)}"
                async for chunk in transport.stream(source, offset=file.tell()):
                    await asyncio.to_thread(file.write, chunk)
                    sha256.update(chunk)

            await watch.persist(go_on)
        _check(watch, name, sha256.hexdigest())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _place(path: Path, name: str) -> Path:
    return path / local_name(name) if path.is_dir() else path


def local_name(name: str) -> str:
    """A service decides the name of a file, but not where it is put."""
    if Path(name).name != name or "\\" in name or "\0" in name:
        raise BideError(f"the file name {name!r} leads elsewhere; give a path for it")
    return name


def _check(watch: Watch, name: str, found: str) -> None:
    files = watch.latest.files if watch.latest is not None else ()
    expected = next((file.sha256 for file in files if file.name == name), "")
    if expected and expected != found:
        raise BideError(
            f"file {name} of job {watch.job_id} arrived damaged: its SHA-256 is {found}, not {expected}"
        )
