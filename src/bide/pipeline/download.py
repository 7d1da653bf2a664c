"""One address to one file on disk, in chunks: whole and synced under its name, or not there at all.

A stream that breaks goes on where it ended when the server has told a strong ETag and still has it; otherwise it begins
anew. What is known of the file beforehand, its size and its SHA-256, must be true of what arrived.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from bide.client.account import Account
from bide.client.apis import Call, Found
from bide.client.apis.values import count, header
from bide.client.http.transport import Body
from bide.core.errors import BideError, ServiceError, ServiceUnreachable
from bide.pipeline.outage import Outage
from bide.pipeline.phase import Fetched


class Damaged(BideError):
    """What arrived is not what was announced."""


@dataclass
class _Partial:
    """What has arrived so far."""

    file: BinaryIO
    sha256: Any
    size: int = 0
    etag: str | None = None
    headers: Mapping[str, str] | None = None

    def restart(self) -> None:
        self.file.seek(0)
        self.file.truncate()
        self.size, self.sha256 = 0, hashlib.sha256()

    def write(self, chunk: bytes) -> None:
        self.file.write(chunk)
        self.sha256.update(chunk)
        self.size += len(chunk)


async def download(
    account: Account, outage: Outage, call: Call, path: Path, expected: Found | None = None
) -> tuple[Fetched, Mapping[str, str]]:
    """The file, and the headers that came with it. Damaged, OSError (a full disk) or ServiceError otherwise."""
    partial = path.with_name(path.name + ".part")
    try:
        with partial.open(
            "wb"
        ) as file:  # here, not in a thread: a task that ends meanwhile would leave it open
            so_far = _Partial(file, hashlib.sha256())
            await outage.persist(lambda: _go_on(account, call, so_far))
            await asyncio.to_thread(_sync, file)
        digest = so_far.sha256.hexdigest()
        _check(path.name, so_far.size, digest, expected)
        await asyncio.to_thread(_place, partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return Fetched(path.name, so_far.size, digest), so_far.headers or {}


async def _go_on(account: Account, call: Call, so_far: _Partial) -> None:
    wanted = {"Accept-Encoding": "identity"}
    if so_far.size and so_far.etag:
        wanted |= {"Range": f"bytes={so_far.size}-", "If-Range": so_far.etag}
    try:
        async with account.opener.opened(await account.open(), call, wanted) as body:
            if not _continues(body, so_far):
                so_far.restart()
            so_far.headers, so_far.etag = body.headers, _strong(header(body.headers, "ETag"))
            async for chunk in body.chunks():
                await asyncio.to_thread(so_far.write, chunk)
    except ServiceError as error:
        if error.status == 416 and so_far.size:  # it is another file by now
            so_far.restart()
            so_far.etag = None
            raise ServiceUnreachable(f"{call.url.partition('?')[0]} has changed") from None
        raise


def _continues(body: Body, so_far: _Partial) -> bool:
    told = header(body.headers, "Content-Range") or ""
    return body.status == 206 and told.startswith(f"bytes {so_far.size}-")


def _strong(etag: str | None) -> str | None:
    return etag if etag is not None and etag.startswith('"') else None


def _check(name: str, size: int, digest: str, expected: Found | None) -> None:
    if expected is None:
        return
    if expected.size is not None and count(expected.size) != size:
        raise Damaged(f"{name} arrived with {size} bytes, not the {expected.size} that were announced")
    if expected.sha256 and expected.sha256.lower() != digest:
        raise Damaged(f"{name} arrived damaged: its SHA-256 is {digest}, not {expected.sha256}")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def place(path: Path, data: bytes) -> None:
    """A small file, as safe as a large one."""
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(data)
        _sync(file)
    _place(partial, path)


def _place(partial: Path, path: Path) -> None:
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
