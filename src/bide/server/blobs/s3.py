"""Blobs in a bucket of S3 or compatible storage: PREFIX{job id}/{fence}.{process}/{name} and
PREFIXuploads/{upload id}/content.

1. Objects are created atomically: small ones in one request, larger ones as multipart uploads.
2. A large file is never in memory as a whole; at most a few of its parts are.
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
from bide.core.jobs.record import FileInfo
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
from bide.server.blobs.s3_client import BackgroundLoop, S3Client, read_bucket_url, translated
from bide.server.blobs.s3_signing import S3Signing

PART = 8 * 1024 * 1024
MAX_PARTS = 1000  # the limit of the strictest compatible storage; S3 allows 10,000
CONCURRENT_PARTS = 2  # of one file
CONCURRENT_FILES = 4  # each has its parts in memory
CONCURRENT_DELETES = 16


class S3Blobs(S3Signing):
    """`Blobs` and `Signing` in a bucket."""

    def __init__(self, url: str) -> None:
        self.location = read_bucket_url(url)
        super().__init__(S3Client(self.location), self.location.prefix)
        # Handlers have their own client, because a client belongs to the loop that created it.
        self._background = BackgroundLoop()
        self._blocking = S3Client(self.location)
        self._adopting = asyncio.Semaphore(CONCURRENT_FILES)

    # --- for handlers

    def put(
        self, job_id: str, fence: int, name: str, source: Path | bytes, content_type: str
    ) -> FileInfo:
        key = job_key(job_id, fence, name)
        with _for_handlers(name):
            if isinstance(source, bytes):
                size, digest = len(source), hashlib.sha256(source)
                self._background.run(self._put_bytes(self._blocking, key, source, content_type))
            else:
                digest = hashlib.sha256()
                size = self._background.run(
                    self._put_file(self._blocking, key, source, content_type, digest)
                )
        return FileInfo(name, content_type, size, digest.hexdigest(), key)

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
                    f"{file.name} has changed since it was stored: expected {file.size} bytes with SHA-256 {file.sha256}, "
                    f"got {size} bytes with {digest.hexdigest()}. Check the access to {file.blob} in the bucket",
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
        request = {}
        if first or last is not None:
            request["Range"] = f"bytes={first}-{'' if last is None else last}"
        pieces = self._read(client, {"Key": self._prefix + blob, **request})
        await anext(pieces)  # sends the request
        return pieces

    async def _read(self, client: S3Client, request: dict[str, str]) -> AsyncGenerator[bytes, None]:
        """Yield an empty piece when the object is open: a generator that has started can be closed."""
        answer = await client.call("get_object", **request)
        left = int(answer["ContentLength"])
        with translated(self.location):
            async with answer["Body"] as body:
                yield b""
                while chunk := await body.read(CHUNK):
                    left -= len(chunk)
                    yield chunk
        if left > 0:
            raise StorageUnavailable(
                f"{self.location.shown} closed the connection with {left} bytes missing"
            )

    async def adopt(self, key: str, source: Path, content_type: str) -> None:
        async with self._adopting:  # its digest is already in the record
            await self._put_file(self._client, key, source, content_type)
        await asyncio.to_thread(source.unlink)

    async def remove(self, owner: str) -> None:
        keys: list[str] = []
        async for page in self._client.pages("list_objects_v2", Prefix=f"{self._prefix}{owner}/"):
            keys += [item["Key"] for item in page.get("Contents", ())]
        # One request per key, because the limit per request differs between compatible storages.
        for i in range(0, len(keys), CONCURRENT_DELETES):
            await asyncio.gather(*(self._remove(key) for key in keys[i : i + CONCURRENT_DELETES]))

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
        return self.location.shown

    async def claim(self, store_id: str) -> str:
        found = await self.store_id()
        if found is None:
            # Not all S3-compatible storage supports conditional writes. If two stores write at the same time, the later
            # one wins, and the earlier one notices in its next sweep, before it removes anything.
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
            raise SetupError(f"{self.location.shown} returned other bytes than were written")
        return f"{self.location.shown}: written, read and removed"

    async def close(self) -> None:
        await self._client.close()
        await asyncio.to_thread(self._background.end, self._blocking.close)

    # --- writing

    async def _put_bytes(self, client: S3Client, key: str, data: bytes, content_type: str) -> None:
        goal = self._prefix + key
        await client.call("put_object", Key=goal, Body=data, ContentType=content_type)

    async def _put_file(
        self, client: S3Client, key: str, source: Path, content_type: str, digest: Any = None
    ) -> int:
        """Store a file atomically; return its size. Add the bytes to `digest`, if there is one."""
        goal = self._prefix + key
        size = (await asyncio.to_thread(source.stat)).st_size
        with source.open("rb") as file:
            if size <= PART:
                data = await asyncio.to_thread(_read_part, file, -1, digest)
                await client.call("put_object", Key=goal, Body=data, ContentType=content_type)
                return len(data)
            created = await client.call("create_multipart_upload", Key=goal, ContentType=content_type)
            where = {"Key": goal, "UploadId": created["UploadId"]}
            try:
                sent, parts = await _send_parts(client, where, file, size, digest)
                await client.call("complete_multipart_upload", **where, MultipartUpload={"Parts": parts})
            except BaseException:
                with contextlib.suppress(BideError):  # a lifecycle rule of the bucket removes the rest
                    await asyncio.shield(client.call("abort_multipart_upload", **where))
                raise
        return sent


def _read_part(file: BinaryIO, length: int, digest: Any) -> bytes:
    data = file.read(length)
    if digest is not None:
        digest.update(data)
    return data


async def _send_parts(
    client: S3Client, where: dict[str, str], file: BinaryIO, size: int, digest: Any
) -> tuple[int, list[dict[str, Any]]]:
    """Read the parts in order, and send a few at a time."""
    length = max(PART, -(-size // MAX_PARTS))
    parts: list[dict[str, Any]] = []
    reading = asyncio.Lock()
    sent = 0

    async def send() -> None:
        nonlocal sent
        while True:
            async with reading:
                data = await asyncio.to_thread(_read_part, file, length, digest)
                if not data:
                    return
                part: dict[str, Any] = {"PartNumber": len(parts) + 1}
                parts.append(part)
                sent += len(data)
            answer = await client.call("upload_part", **where, PartNumber=part["PartNumber"], Body=data)
            part["ETag"] = answer["ETag"]

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENT_PARTS):
                group.create_task(send())
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None  # the others were cancelled because of it
    return sent, parts


@contextlib.contextmanager
def _for_handlers(name: str) -> Iterator[None]:
    """Turn errors of storage into errors of the job, which the `retries` of the kind cover."""
    try:
        yield
    except BlobMissing:
        raise file_gone(name) from None
    except StorageUnavailable as error:
        raise JobError(STORAGE_UNAVAILABLE, f"{name}: {error}") from error
    except OSError as error:
        if is_full(error):
            text = f"cannot download {name}: the disk of the data folder is full; free disk space"
            raise JobError("DISK_FULL", text) from error
        raise
