"""Files of a job, streamed to disk.

A file appears under its name only when it is whole: it grows beside it as NAME.part, a broken stream goes on where it
ended, and a checksum that does not fit is an error, never a file.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from bide.client.http.transport import Transport
from bide.client.waiting import Watch
from bide.core.errors import BideError
from bide.core.wire import quote

Persist = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


async def download(transport: Transport, watch: Watch, name: str, path: Path) -> Path:
    """Writes the file `name` of a job of a bide service to `path`, or into it when it is a folder."""

    def source(offset: int) -> AsyncIterator[bytes]:
        watch.requests += 1
        return transport.stream(f"{watch.path}/files/{quote(name)}", offset=offset)

    files = watch.latest.files if watch.latest is not None else ()
    expected = next((file.sha256 for file in files if file.name == name), "")
    return await save(source, watch.persist, name, path, expected)


async def save(
    source: Callable[[int], AsyncIterator[bytes]],
    persist: Persist,
    name: str,
    path: Path,
    expected: str = "",
) -> Path:
    """`source` gives the bytes from an offset on; `expected` is their SHA-256 where it is known."""
    path = await asyncio.to_thread(_place, path, name)
    partial = path.with_name(path.name + ".part")
    sha256 = hashlib.sha256()
    try:
        with partial.open(
            "wb"
        ) as file:  # here, not in a thread: a task that ends meanwhile would leave it open

            async def go_on() -> None:
                async for chunk in source(file.tell()):
                    await asyncio.to_thread(file.write, chunk)
                    sha256.update(chunk)

            await persist(go_on)
        if expected and expected != sha256.hexdigest():
            raise BideError(
                f"file {name} arrived damaged: its SHA-256 is {sha256.hexdigest()}, not {expected}"
            )
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
