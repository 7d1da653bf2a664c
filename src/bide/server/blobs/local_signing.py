"""Signed requests for a folder: the service verifies its own signatures and receives the bytes.

1. The HMAC-SHA256 signature covers method, path, size, content type and expiry. Size and type are query parameters, so
   that an error can name the expected values.
2. The secret is a file in the folder, so that replicas share it. Only the owner of the folder can read it.
3. The bytes are written to a temporary file, which is then renamed, so that a file is never incomplete.
4. One request at a time writes to a key, also of all replicas that share the folder. A lock of the file system ensures
   that; if the file system has none, it holds for each replica by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import hmac
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlencode

from bide.core.clock import Clock, render_instant
from bide.core.errors import BadSignature, SignatureExpired, Unavailable, WrongLength
from bide.server.blobs import SIGNED_VALUES, BlobMissing, Signed, StoredObject, StoredPart
from bide.server.blobs.files import FileBlobs
from bide.server.durable_files import (
    create,
    create_once,
    finished,
    make_folders,
    part_of,
    sync_path,
    written,
)
from bide.server.upload_record import upload_of

BATCH = 1024 * 1024


class LocalSigning:
    """`Signing` and `SignedReceiver` for a folder. URLs are paths of the service."""

    largest_put = 1 << 50
    smallest_part = 1
    most_parts = 10_000

    def __init__(self, blobs: FileBlobs, clock: Clock) -> None:
        self._blobs = blobs
        self._clock = clock
        self._secret: bytes | None = None

    @property
    def receiver(self) -> LocalSigning:
        return self

    # --- signing and verifying

    async def sign_put(self, key: str, content_type: str, size: int, seconds: int) -> Signed:
        path = f"/uploads/{_upload(key)}/content"
        url = self._sign(path, {"size": str(size), "type": content_type}, seconds)
        return Signed(url, "PUT", {"Content-Type": content_type, "Content-Length": str(size)})

    async def sign_part(self, key: str, multipart: str, number: int, size: int, seconds: int) -> Signed:
        path = f"/uploads/{_upload(key)}/parts/{number}"
        url = self._sign(path, {"size": str(size), "multipart": multipart}, seconds)
        return Signed(url, "PUT", {"Content-Length": str(size)})

    def _sign(self, path: str, values: dict[str, str], seconds: int) -> str:
        signed = {"expires": str(int(self._clock.now()) + seconds), **values}
        return f"{path}?{urlencode({**signed, 'signature': self._signature('PUT', path, signed)})}"

    def _signature(self, method: str, path: str, signed: Mapping[str, str]) -> str:
        text = "\n".join(
            [method, path, *(f"{name}={signed.get(name, '')}" for name in SIGNED_VALUES[:-1])]
        )
        return hmac.new(self._key(), text.encode(), hashlib.sha256).hexdigest()

    def verify(
        self, method: str, path: str, signed: Mapping[str, str], size: int | None, content_type: str
    ) -> int:
        expected = self._signature(method, path, signed)
        if not hmac.compare_digest(expected.encode(), signed.get("signature", "").encode()):
            raise BadSignature(
                "the signature does not match this URL; use the URL exactly as the service returned it"
            )
        expires = int(signed["expires"])
        if self._clock.now() >= expires:
            raise SignatureExpired(f"the URL expired at {render_instant(expires)}; request a new one")
        allowed = int(signed["size"])
        if size != allowed:
            given = "is missing" if size is None else f"is {size}"
            raise BadSignature(f"Content-Length {given}, but the URL is signed for {allowed} bytes")
        signed_type = signed.get("type")
        if signed_type is not None and content_type != signed_type:
            raise BadSignature(
                f"Content-Type is {content_type[:100]!r}, but the URL is signed for {signed_type}"
            )
        return allowed

    def _key(self) -> bytes:
        if self._secret is None:
            # The first replica creates it for all.
            self._secret = create_once(self._blobs.root / ".secret", secrets.token_bytes(32))
        return self._secret

    # --- receiving

    async def receive(self, key: str, body: AsyncIterator[bytes], size: int) -> str:
        return await _write(self._blobs.path(key), body, size)

    async def receive_part(
        self, key: str, multipart: str, number: int, body: AsyncIterator[bytes], size: int
    ) -> str:
        folder = self._folder(key, multipart)
        if not folder.is_dir():
            raise BlobMissing(f"multipart upload {multipart} does not exist")
        return await _write(folder / str(number), body, size)

    async def head(self, key: str) -> StoredObject | None:
        try:
            size = (await asyncio.to_thread(self._blobs.path(key).stat)).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        return StoredObject(size, None)

    async def move(self, source: str, key: str, content_type: str) -> None:
        await self._blobs.adopt(key, self._blobs.path(source), content_type)

    # --- multipart

    def _folder(self, key: str, multipart: str) -> Path:
        return self._blobs.path(key).parent / f"parts-{multipart}"

    async def begin(self, key: str, content_type: str) -> str:
        multipart = secrets.token_hex(8)
        await asyncio.to_thread(make_folders, self._folder(key, multipart))
        return multipart

    async def parts(self, key: str, multipart: str) -> list[StoredPart]:
        try:
            return await asyncio.to_thread(_parts, self._folder(key, multipart))
        except FileNotFoundError:
            raise BlobMissing(f"multipart upload {multipart} does not exist") from None

    async def finish(self, key: str, multipart: str, parts: Sequence[StoredPart]) -> None:
        folder = self._folder(key, multipart)
        sources = [folder / str(part.number) for part in parts]
        await asyncio.to_thread(_concatenate, sources, self._blobs.path(key))
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def abort(self, key: str, multipart: str) -> None:
        await asyncio.to_thread(shutil.rmtree, self._folder(key, multipart), ignore_errors=True)


def _upload(key: str) -> str:
    upload_id = upload_of(key.rpartition("/")[0])
    assert upload_id is not None
    return upload_id


async def _write(goal: Path, body: AsyncIterator[bytes], size: int) -> str:
    await asyncio.to_thread(make_folders, goal.parent)
    with _only_writer(goal):
        return await _write_alone(goal, body, size)


async def _write_alone(goal: Path, body: AsyncIterator[bytes], size: int) -> str:
    part = part_of(goal)
    left, batch = size, bytearray()
    try:
        with create(part, buffering=0) as file:
            async for data in body:
                left -= len(data)
                if left < 0:
                    raise WrongLength(f"the request sends more than the signed {size} bytes")
                batch += data
                if len(batch) >= BATCH:
                    await _in_thread(_put, file, batch)
                    batch = bytearray()
            if left > 0:
                raise WrongLength(f"the request sent {size - left} of the signed {size} bytes")
            await _in_thread(_put, file, batch)
            await _in_thread(os.fsync, file.fileno())
            etag = _etag(os.fstat(file.fileno()))
        part.replace(goal)
        await asyncio.to_thread(sync_path, goal.parent)
    finally:
        part.unlink(missing_ok=True)
    return etag


@contextlib.contextmanager
def _only_writer(goal: Path) -> Iterator[None]:
    """Raise Unavailable while another replica writes `goal`. The system releases the lock of a process that dies."""
    path = goal.with_name(f".{goal.name}.lock")
    while True:
        file = create(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = path.stat()
        except BlockingIOError:
            file.close()
            raise Unavailable(
                "another replica is receiving this file: wait until that request has ended, then send the file again"
            ) from None
        except FileNotFoundError:  # the last holder has removed it
            file.close()
            continue
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                file.close()
                raise
            break
        if os.path.samestat(found, os.fstat(file.fileno())):
            break
        file.close()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def _etag(found: os.stat_result) -> str:
    """The checksum is computed once, when the upload is verified."""
    return f"{found.st_mtime_ns:x}"


async def _in_thread(do: Callable[..., None], *arguments: Any) -> None:
    """Wait for the thread even if the request is cancelled: the file must not be closed while it writes."""
    await finished(asyncio.ensure_future(asyncio.to_thread(do, *arguments)))


def _put(file: BinaryIO, batch: bytearray) -> None:
    view = memoryview(batch)
    while view:
        view = view[file.write(view) or 0 :]


def _parts(folder: Path) -> list[StoredPart]:
    found = [
        StoredPart(int(path.name), path.stat().st_size, _etag(path.stat()))
        for path in folder.iterdir()
        if path.name.isdigit()
    ]
    return sorted(found, key=lambda part: part.number)


def _concatenate(sources: Sequence[Path], goal: Path) -> None:
    with written(goal) as outgoing:
        for source in sources:
            with source.open("rb") as incoming:
                shutil.copyfileobj(incoming, outgoing, BATCH)
