"""Blobs in a bucket of S3, or of what is compatible: PREFIX{job id}/{fence}.{process}/{name} and
PREFIXuploads/{upload id}/content.

1. An object appears whole or not at all: small ones in one request, larger ones in parts that are only then put together.
2. No file is ever in memory as a whole; of an upload at most a few parts are.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, BinaryIO

from bide.core.errors import BideError, JobError, SetupError, StorageUnavailable
from bide.core.record import FileInfo
from bide.server.blobs import (
    CHUNK,
    QUARANTINE,
    STORAGE_UNAVAILABLE,
    STORE_ID,
    BlobMissing,
    file_gone,
    job_key,
)
from bide.server.blobs.files import is_full
from bide.server.blobs.s3_client import Background, S3Client, read_place, translated
from bide.server.blobs.s3_signing import S3Signing

PART = 8 * 1024 * 1024
MOST_PARTS = 1000  # what the strictest of the compatible takes; S3 itself takes ten times as many
AT_ONCE = 2  # parts of one file
ADOPTED = 4  # files at once; each has its parts in memory
DELETED = 16  # keys at once


class S3Blobs(S3Signing):
    """`Blobs`, `Signing` and `Multipart` in a bucket."""

    def __init__(self, url: str) -> None:
        self.place = read_place(url)
        super().__init__(S3Client(self.place), self.place.prefix)
        # The handlers' own connections: a client belongs to the loop that it was made on.
        self._background = Background()
        self._blocking = S3Client(self.place)
        self._adopting = asyncio.Semaphore(ADOPTED)

    # --- for handlers

    def put(
        self, job_id: str, fence: int, name: str, source: Path | bytes, content_type: str
    ) -> FileInfo:
        key = job_key(job_id, fence, name)
        with _for_handlers(name):
            if isinstance(source, bytes):
                size, digest = len(source), hashlib.sha256(source).hexdigest()
                self._background.run(self._put_bytes(self._blocking, key, source, content_type))
            else:
                size, digest = self._background.run(
                    self._put_file(self._blocking, key, source, content_type)
                )
        return FileInfo(name, content_type, size, digest, key)

    def fetch(self, file: FileInfo, folder: Path) -> Path:
        goal = folder / file.blob
        if not goal.exists():
            with _for_handlers(file.name):
                self._background.run(self._fetch(file, goal))
        return goal

    async def _fetch(self, file: FileInfo, goal: Path) -> None:
        await asyncio.to_thread(goal.parent.mkdir, parents=True, exist_ok=True)
        part = goal.with_name(f".{secrets.token_hex(4)}.part")
        try:
            with part.open("wb") as outgoing:
                size, digest = 0, hashlib.sha256()
                async for chunk in await self._open(self._blocking, file.blob, 0, None):
                    await asyncio.to_thread(outgoing.write, chunk)
                    digest.update(chunk)
                    size += len(chunk)
            if (size, digest.hexdigest()) != (file.size, file.sha256):
                raise JobError(
                    "FILE_CHANGED",
                    f"{file.name} is not what was stored: {size} bytes instead of {file.size}, or others. Somebody "
                    f"has changed {file.blob} in the bucket",
                    retryable=False,
                )
            part.replace(goal)
        finally:
            part.unlink(missing_ok=True)

    # --- for the service

    async def open(
        self, blob: str, first: int = 0, last: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        return await self._open(self._client, blob, first, last)

    async def _open(
        self, client: S3Client, blob: str, first: int, last: int | None
    ) -> AsyncGenerator[bytes, None]:
        asked = {}
        if first or last is not None:
            asked["Range"] = f"bytes={first}-{'' if last is None else last}"
        pieces = self._read(client, {"Key": self._prefix + blob, **asked})
        await anext(pieces)  # which opens it
        return pieces

    async def _read(self, client: S3Client, asked: dict[str, str]) -> AsyncGenerator[bytes, None]:
        """First an empty piece, when it is open: what has begun can be closed."""
        answer = await client.call("get_object", **asked)
        left = int(answer["ContentLength"])
        with translated(self.place):
            async with answer["Body"] as body:
                yield b""
                while chunk := await body.read(CHUNK):
                    left -= len(chunk)
                    yield chunk
        if left > 0:
            raise StorageUnavailable(f"{self.place.shown} broke off with {left} bytes to come")

    async def adopt(self, key: str, source: Path, content_type: str) -> None:
        async with self._adopting:
            await self._put_file(self._client, key, source, content_type)
        await asyncio.to_thread(source.unlink)

    async def remove(self, owner: str) -> None:
        keys: list[str] = []
        async for page in self._client.pages("list_objects_v2", Prefix=f"{self._prefix}{owner}/"):
            keys += [item["Key"] for item in page.get("Contents", ())]
        # One by one: how many are removed in one request is not the same for all that is compatible.
        for i in range(0, len(keys), DELETED):
            await asyncio.gather(*(self._remove(key) for key in keys[i : i + DELETED]))

    async def _remove(self, key: str) -> None:
        with contextlib.suppress(BlobMissing):
            await self._client.call("delete_object", Key=key)

    async def owners(self, space: str, older_than: float) -> Sequence[str]:
        base = f"{self._prefix}{space}/" if space else self._prefix
        touched: dict[str, float] = {}
        async for page in self._client.pages("list_objects_v2", Prefix=base):
            for item in page.get("Contents", ()):
                owner, slash, _ = str(item["Key"])[len(base) :].partition("/")
                if slash:
                    at = item["LastModified"].timestamp()
                    touched[owner] = max(at, touched.get(owner, 0.0))
        return [owner for owner, at in touched.items() if at < older_than]

    @property
    def shown(self) -> str:
        return self.place.shown

    async def claim(self, store_id: str) -> str:
        found = await self.store_id()
        if found is None:
            # S3-compatible storage need not know conditional writes. Of two stores that come at the same moment the
            # later one wins, and the earlier one notices with its next sweep, before anything was removed.
            await self._put_bytes(self._client, STORE_ID, store_id.encode(), "text/plain")
            found = await self.store_id()
        return found or store_id

    async def store_id(self) -> str | None:
        try:
            async with aclosing(await self.open(STORE_ID)) as pieces:
                return b"".join([piece async for piece in pieces]).decode().strip()
        except BlobMissing:
            return None

    async def quarantine(self, owner: str) -> None:
        await self._put_bytes(self._client, f"{QUARANTINE}/{owner}", b"", "text/plain")

    async def release(self, owner: str) -> None:
        await self._remove(f"{self._prefix}{QUARANTINE}/{owner}")

    async def quarantined(self, space: str) -> Mapping[str, float]:
        base = f"{self._prefix}{QUARANTINE}/{space}/" if space else f"{self._prefix}{QUARANTINE}/"
        found: dict[str, float] = {}
        async for page in self._client.pages("list_objects_v2", Prefix=base):
            for item in page.get("Contents", ()):
                name = str(item["Key"])[len(base) :]
                if "/" not in name:
                    found[name] = item["LastModified"].timestamp()
        return found

    async def check(self) -> str:
        key = f".probe-{secrets.token_hex(8)}/probe"
        try:
            await self._put_bytes(self._client, key, b"bide", "text/plain")
            read = b"".join([chunk async for chunk in await self.open(key)])
            await self.remove(key.partition("/")[0])
        except (StorageUnavailable, BlobMissing) as error:
            raise SetupError(str(error)) from None
        if read != b"bide":
            raise SetupError(f"{self.place.shown} gives back something else than what was put there")
        return f"{self.place.shown}: written, read and removed"

    async def close(self) -> None:
        await self._client.close()
        await asyncio.to_thread(self._background.end, self._blocking.close)

    # --- putting

    async def _put_bytes(self, client: S3Client, key: str, data: bytes, content_type: str) -> None:
        goal = self._prefix + key
        await client.call("put_object", Key=goal, Body=data, ContentType=content_type)

    async def _put_file(
        self, client: S3Client, key: str, source: Path, content_type: str
    ) -> tuple[int, str]:
        """Size and checksum of what is there then, or nothing is."""
        size = (await asyncio.to_thread(source.stat)).st_size
        digest = hashlib.sha256()
        with source.open("rb") as file:
            if size <= PART:
                data = await asyncio.to_thread(file.read)
                digest.update(data)
                await self._put_bytes(client, key, data, content_type)
                return len(data), digest.hexdigest()
            begun = await client.call(
                "create_multipart_upload", Key=self._prefix + key, ContentType=content_type
            )
            where = {"Key": self._prefix + key, "UploadId": begun["UploadId"]}
            try:
                sent, parts = await _send_parts(client, where, file, size, digest)
                await client.call("complete_multipart_upload", **where, MultipartUpload={"Parts": parts})
            except BaseException:
                with contextlib.suppress(BideError):  # it may be away; a lifecycle rule removes the rest
                    await asyncio.shield(client.call("abort_multipart_upload", **where))
                raise
        return sent, digest.hexdigest()


async def _send_parts(
    client: S3Client, where: dict[str, str], file: BinaryIO, size: int, digest: Any
) -> tuple[int, list[dict[str, Any]]]:
    """A few at once: read and hashed in order, sent as they come."""
    length = max(PART, -(-size // MOST_PARTS))
    parts: list[dict[str, Any]] = []
    reading = asyncio.Lock()
    sent = 0

    def read() -> bytes:
        data = file.read(length)
        digest.update(data)
        return data

    async def send() -> None:
        nonlocal sent
        while True:
            async with reading:
                data = await asyncio.to_thread(read)
                if not data:
                    return
                part: dict[str, Any] = {"PartNumber": len(parts) + 1}
                parts.append(part)
                sent += len(data)
            answer = await client.call("upload_part", **where, PartNumber=part["PartNumber"], Body=data)
            part["ETag"] = answer["ETag"]

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(send())
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None  # the first; it has ended the others
    return sent, parts


@contextlib.contextmanager
def _for_handlers(name: str) -> Iterator[None]:
    """What a handler is told: an error that the kind's `retries` are for."""
    try:
        yield
    except BlobMissing:
        raise file_gone(name) from None
    except StorageUnavailable as error:
        raise JobError(STORAGE_UNAVAILABLE, f"{name}: {error}") from error
    except OSError as error:
        if is_full(error):
            text = (
                f"{name} cannot be brought here: the disk with the data folder is full; make room on it"
            )
            raise JobError("DISK_FULL", text) from error
        raise
