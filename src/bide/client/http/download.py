"""Downloads to a file: the file appears under its name only when it is complete.

1. The bytes go to NAME.part. A broken stream is resumed if the server's strong ETag, or a known SHA-256 of the whole,
   shows that the bytes fit together; otherwise its page starts again.
2. Size and SHA-256 must match if they are known in advance.
3. A result in pages becomes one file with the bytes of all pages. A page that cannot be fetched fails the download.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from bide.client.apis import Answer, Call, Found
from bide.client.apis.pagination import NextPage
from bide.client.apis.values import header
from bide.client.http.retrying import Retrying
from bide.client.http.transport import LARGEST, Download
from bide.core.errors import BideError, ServiceError, ServiceUnreachable

MOST_PAGES = 100_000  # limits an API whose pages never end
Open = Callable[[Call], Awaitable[Download]]


class Damaged(BideError):
    """The bytes do not match the announced size or checksum."""


@dataclass(frozen=True)
class FollowingPages:
    """How the pages of a result follow each other. `skip` lines of each further page are left out."""

    rule: NextPage
    fetch: Callable[[str], Call]
    skip: int = 0


@dataclass(frozen=True)
class Downloaded:
    path: Path
    size: int
    sha256: str
    headers: Mapping[str, str]  # of the last page


async def download(
    open: Open,
    call: Call,
    path: Path,
    retrying: Retrying,
    *,
    size: int | None = None,
    sha256: str | None = None,
    pages: FollowingPages | None = None,
    sync: bool = False,
) -> Downloaded:
    """Damaged, ServiceError or OSError (e.g. a full disk) otherwise. With `sync` the file is on disk on return."""
    part = path.with_name(path.name + ".part")
    try:
        # Opened here and not in a thread, because a cancelled task would leave the file open.
        with part.open("w+b") as file:
            whole = _PartFile(file, resumable=sha256 is not None)
            await _fetch(open, call, whole, retrying, pages)
            if sync:
                await asyncio.to_thread(_sync, file)
        digest = whole.sha256.hexdigest()
        if size is not None and size != whole.size:
            raise Damaged(f"{path.name} has {whole.size} bytes; expected {size}")
        if sha256 and sha256.lower() != digest:
            raise Damaged(f"{path.name}: checksum mismatch: expected SHA-256 {sha256}, got {digest}")
        await asyncio.to_thread(_rename, part, path, sync)
    finally:
        part.unlink(missing_ok=True)
    return Downloaded(path, whole.size, digest, whole.headers)


async def _fetch(
    open: Open, call: Call, whole: _PartFile, retrying: Retrying, pages: FollowingPages | None
) -> None:
    number = 0
    while True:
        page = call
        await retrying.run(partial(_fetch_page, open, page, whole))
        if pages is None:
            return
        rule = pages.rule
        body = await asyncio.to_thread(whole.page) if rule.reads_body else b""
        following = rule.following(page.url, Answer(200, whole.headers, body, page.url))
        if rule.reads_body:
            await asyncio.to_thread(whole.write, b"\n")
        if following is None:
            return
        number += 1
        if number >= MOST_PAGES:
            raise BideError(f"The result has more than {MOST_PAGES} pages")
        call = pages.fetch(following)
        whole.next_page(0 if rule.reads_body else pages.skip)


async def _fetch_page(open: Open, call: Call, whole: _PartFile) -> None:
    wanted = {"Accept-Encoding": "identity", **whole.rest()}
    try:
        answer = await open(msgspec.structs.replace(call, headers={**call.headers, **wanted}))
    except ServiceError as error:
        if error.status != 416 or not whole.received:
            raise
        whole.restart()
        raise ServiceUnreachable(f"{call.url.partition('?')[0]} has changed") from None
    with closing(answer):
        if not whole.continues(answer):
            whole.restart()
        whole.headers, whole.etag = answer.headers, _strong(header(answer.headers, "ETag"))
        async for chunk in answer.chunks():
            await asyncio.to_thread(whole.write, chunk)


class _PartFile:
    """The bytes so far: earlier pages, and the current one."""

    def __init__(self, file: BinaryIO, resumable: bool) -> None:
        self.size = 0
        self.sha256: Any = hashlib.sha256()
        self.headers: Mapping[str, str] = {}
        self.etag: str | None = None
        self._file = file
        self._resumable = resumable
        self.next_page(0)

    def next_page(self, skip: int) -> None:
        self._start, self._start_sha256 = self.size, self.sha256.copy()
        self._lines = self._skip = skip
        self.received = 0  # bytes of the page
        self.etag = None

    def restart(self) -> None:
        """Discard the received bytes of the page."""
        self._file.seek(self._start)
        self._file.truncate()
        self.size, self.sha256 = self._start, self._start_sha256.copy()
        self._lines, self.received, self.etag = self._skip, 0, None

    def rest(self) -> dict[str, str]:
        """The headers that ask for the rest of the page."""
        if not self.received or not (self.etag or self._resumable):
            return {}
        return {"Range": f"bytes={self.received}-", **({"If-Range": self.etag} if self.etag else {})}

    def continues(self, answer: Answer) -> bool:
        part = header(answer.headers, "Content-Range") or f"bytes {self.received}-"
        return answer.status == 206 and part.startswith(f"bytes {self.received}-")

    def write(self, chunk: bytes) -> None:
        self.received += len(chunk)
        while self._lines and chunk:
            _, newline, chunk = chunk.partition(b"\n")
            self._lines -= bool(newline)
        self._file.write(chunk)
        self.sha256.update(chunk)
        self.size += len(chunk)

    def page(self) -> bytes:
        if self.size - self._start > LARGEST:
            raise BideError(
                f"A page of the result is larger than {LARGEST >> 20} MiB. The client must read it to find the next "
                "page: request smaller pages"
            )
        self._file.seek(self._start)
        return self._file.read()


def local_path(path: Path, name: str) -> Path:
    """`path`, or the file `name` in it if it is a folder. The service chooses the name, but not the folder."""
    if not path.is_dir():
        return path
    return path / local_name(name)


def local_name(name: str) -> str:
    if Path(name).name != name or "\\" in name or "\0" in name:
        raise BideError(f"The file name {name!r} leads to another folder. Give a path for the file")
    return name


def write_file(path: Path, data: bytes) -> None:
    """Write a small file with the guarantees of a download."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(data)
        _sync(file)
    _rename(part, path, sync=True)


def expectation(found: Found | None) -> dict[str, Any]:
    """The arguments of `download` for a file whose size or SHA-256 the API has named."""
    return {} if found is None else {"size": found.size, "sha256": found.sha256}


def _strong(etag: str | None) -> str | None:
    return etag if etag is not None and etag.startswith('"') else None


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _rename(part: Path, path: Path, sync: bool) -> None:
    part.replace(path)
    if not sync:
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
