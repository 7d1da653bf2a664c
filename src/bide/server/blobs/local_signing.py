"""Signed requests to a folder: the service is the storage, so it verifies what it has signed, and takes the bytes itself.

1. Signed are method, address, size, content type and the instant until which it is good, with HMAC-SHA256. The size and
   the type are in the address, so that a refusal can say what would have been right.
2. The secret is in the folder: who shares the files, as replicas do, shares it. Nobody else can read it.
3. What is taken is written beside its goal and renamed, so nothing is ever there in part.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlencode

from bide.core.clock import render_instant
from bide.core.errors import BadSignature, SignatureExpired, WrongLength
from bide.core.upload import upload_of
from bide.server.blobs import BlobMissing, Found, Part, Signed
from bide.server.blobs.files import FileBlobs
from bide.server.durable_files import create, create_once, finished, make_folders, sync_path

NAMES = ("expires", "size", "type", "multipart", "signature")
BATCH = 1024 * 1024


class LocalSigning:
    """`Signing` and `Multipart` for a folder. Addresses are those of the service, without scheme and host."""

    largest_put = 1 << 50
    through_service = True
    smallest_part = 1
    most_parts = 10_000

    def __init__(self, blobs: FileBlobs, now: Callable[[], float]) -> None:
        self._blobs = blobs
        self._now = now
        self._secret: bytes | None = None

    # --- signing and verifying

    async def sign_put(self, key: str, content_type: str, size: int, seconds: int) -> Signed:
        path = f"/uploads/{_upload(key)}/content"
        url = self._sign(path, {"size": str(size), "type": content_type}, seconds)
        return Signed(url, "PUT", {"Content-Type": content_type, "Content-Length": str(size)})

    async def sign_part(self, key: str, multipart: str, number: int, size: int, seconds: int) -> Signed:
        path = f"/uploads/{_upload(key)}/parts/{number}"
        url = self._sign(path, {"size": str(size), "multipart": multipart}, seconds)
        return Signed(url, "PUT", {"Content-Length": str(size)})

    def _sign(self, path: str, what: dict[str, str], seconds: int) -> str:
        asked = {"expires": str(int(self._now()) + seconds), **what}
        return f"{path}?{urlencode({**asked, 'signature': self._signature('PUT', path, asked)})}"

    def _signature(self, method: str, path: str, asked: Mapping[str, str]) -> str:
        text = "\n".join([method, path, *(f"{name}={asked.get(name, '')}" for name in NAMES[:-1])])
        return hmac.new(self._key(), text.encode(), hashlib.sha256).hexdigest()

    def verify(
        self, method: str, path: str, asked: Mapping[str, str], size: int | None, content_type: str
    ) -> int:
        """How many bytes may come. A Problem when this is not what was signed."""
        right = self._signature(method, path, asked)
        if not hmac.compare_digest(right.encode(), asked.get("signature", "").encode()):
            raise BadSignature("this address was not signed here, or was signed for something else")
        expires = int(asked["expires"])
        if self._now() >= expires:
            raise SignatureExpired(f"the address was good until {render_instant(expires)}")
        allowed = int(asked["size"])
        if size != allowed:
            told = "no Content-Length came" if size is None else f"Content-Length is {size}"
            raise BadSignature(f"the address was signed for {allowed} bytes, and {told}")
        signed_type = asked.get("type")
        if signed_type is not None and content_type != signed_type:
            raise BadSignature(
                f"the address was signed for Content-Type {signed_type}, and {content_type[:100]!r} came"
            )
        return allowed

    def _key(self) -> bytes:
        if self._secret is None:
            # Made by the replica that comes first, for all of them.
            self._secret = create_once(self._blobs.root / ".secret", secrets.token_bytes(32))
        return self._secret

    # --- taking

    async def take(self, key: str, body: AsyncIterator[bytes], size: int) -> str:
        """The checksum of what is there then. WrongLength, and nothing is there, when it is not so many bytes."""
        return await _write(self._blobs.path(key), body, size)

    async def take_part(
        self, key: str, multipart: str, number: int, body: AsyncIterator[bytes], size: int
    ) -> str:
        folder = self._folder(key, multipart)
        if not folder.is_dir():
            raise BlobMissing(f"there is no multipart upload {multipart}")
        return await _write(folder / str(number), body, size)

    async def head(self, key: str) -> Found | None:
        try:
            size = (await asyncio.to_thread(self._blobs.path(key).stat)).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Found(size, None)

    async def move(self, source: str, key: str, content_type: str) -> None:
        await self._blobs.adopt(key, self._blobs.path(source), content_type)

    # --- in parts

    def _folder(self, key: str, multipart: str) -> Path:
        return self._blobs.path(key).parent / f"parts-{multipart}"

    async def begin(self, key: str, content_type: str) -> str:
        multipart = secrets.token_hex(8)
        await asyncio.to_thread(make_folders, self._folder(key, multipart))
        return multipart

    async def parts(self, key: str, multipart: str) -> list[Part]:
        try:
            return await asyncio.to_thread(_parts, self._folder(key, multipart))
        except FileNotFoundError:
            raise BlobMissing(f"there is no multipart upload {multipart}") from None

    async def finish(self, key: str, multipart: str, parts: Sequence[Part]) -> None:
        folder = self._folder(key, multipart)
        sources = [folder / str(part.number) for part in parts]
        await asyncio.to_thread(_join, sources, self._blobs.path(key))
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def abort(self, key: str, multipart: str) -> None:
        await asyncio.to_thread(shutil.rmtree, self._folder(key, multipart), ignore_errors=True)


def _upload(key: str) -> str:
    upload_id = upload_of(key.rpartition("/")[0])
    assert upload_id is not None
    return upload_id


async def _write(goal: Path, body: AsyncIterator[bytes], size: int) -> str:
    await asyncio.to_thread(make_folders, goal.parent)
    part = goal.with_name(f".{goal.name}-{secrets.token_hex(4)}.part")
    digest, left, batch = hashlib.sha256(), size, bytearray()
    try:
        with create(part, buffering=0) as file:
            async for data in body:
                left -= len(data)
                if left < 0:
                    raise WrongLength(f"{size} bytes were announced, and more came")
                batch += data
                if len(batch) >= BATCH:
                    await _in_thread(_put, file, batch, digest)
                    batch = bytearray()
            if left > 0:
                raise WrongLength(f"{size} bytes were announced, and {size - left} came")
            await _in_thread(_put, file, batch, digest)
            await _in_thread(os.fsync, file.fileno())
        part.replace(goal)
        await asyncio.to_thread(sync_path, goal.parent)
    finally:
        part.unlink(missing_ok=True)
    return digest.hexdigest()


async def _in_thread(do: Callable[..., None], *arguments: Any) -> None:
    """To its end, also when the request is cut off: the file must not be closed under it."""
    await finished(asyncio.ensure_future(asyncio.to_thread(do, *arguments)))


def _put(file: BinaryIO, batch: bytearray, digest: Any) -> None:
    digest.update(batch)
    view = memoryview(batch)
    while view:
        view = view[file.write(view) or 0 :]


def _parts(folder: Path) -> list[Part]:
    found = [
        Part(int(path.name), path.stat().st_size, f"{path.stat().st_mtime_ns:x}")
        for path in folder.iterdir()
        if path.name.isdigit()
    ]
    return sorted(found, key=lambda part: part.number)


def _join(sources: Sequence[Path], goal: Path) -> None:
    part = goal.with_name(f".{goal.name}-{secrets.token_hex(4)}.part")
    try:
        with create(part) as outgoing:
            for source in sources:
                with source.open("rb") as incoming:
                    shutil.copyfileobj(incoming, outgoing, BATCH)
            outgoing.flush()
            os.fsync(outgoing.fileno())
        part.replace(goal)
        sync_path(goal.parent)
    finally:
        part.unlink(missing_ok=True)
