"""Signed requests for a bucket, and the requests with which the service itself stores objects in parts.

The signature covers method, key, content type, length and expiry. The storage rejects any other request.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Self

from bide.core.clock import Clock
from bide.server.blobs import (
    BegunMultipart,
    BlobMissing,
    Signed,
    Signing,
    StoredObject,
    StoredPart,
)
from bide.server.blobs.s3_client import EmptyRange, S3Client


class PartBody(io.BytesIO):
    """The body of a request. aiohttp asks for the buffer to learn its size, and for that BytesIO would copy all bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._data = data

    def getbuffer(self) -> memoryview:
        return memoryview(self._data)


class S3Signing:
    """`Signing` and `PartStorage` for a bucket."""

    largest_put = 5 * 1024**3
    smallest_part = 5 * 1024 * 1024
    most_parts = 1000  # the limit of the strictest compatible storage; S3 allows 10,000

    def __init__(self, client: S3Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def signing(self, clock: Clock) -> Signing:
        return self

    def part_storage(self) -> Self:
        return self

    @property
    def receiver(self) -> None:
        return None

    async def sign_put(self, key: str, content_type: str, size: int, seconds: int) -> Signed:
        given = {"Key": self._prefix + key, "ContentType": content_type, "ContentLength": size}
        url = await self._client.sign("put_object", seconds, **given)
        return Signed(url, "PUT", {"Content-Type": content_type, "Content-Length": str(size)})

    async def head(self, key: str) -> StoredObject | None:
        # Get the first byte instead of HEAD: some servers send a body with a 404 to HEAD, which is then read as the next
        # response. An empty object has no first byte, so it needs HEAD.
        goal = {"Key": self._prefix + key}
        try:
            answer = await self._client.call("get_object", **goal, Range="bytes=0-0")
        except BlobMissing:
            return None
        except EmptyRange:
            answer = await self._client.call("head_object", **goal)
            return StoredObject(int(answer["ContentLength"]), answer.get("ContentType"))
        async with answer["Body"] as body:
            await body.read()
        size = answer.get("ContentRange", "").rpartition("/")[2] or answer["ContentLength"]
        return StoredObject(int(size), answer.get("ContentType"))

    async def move(self, source: str, key: str, content_type: str) -> None:
        origin = {"Bucket": self._client.location.bucket, "Key": self._prefix + source}
        await self._client.call("copy_object", Key=self._prefix + key, CopySource=origin)
        await self._client.call("delete_object", Key=self._prefix + source)

    async def begin(self, key: str, content_type: str) -> str:
        answer = await self._client.call(
            "create_multipart_upload", Key=self._prefix + key, ContentType=content_type
        )
        return str(answer["UploadId"])

    async def sign_part(self, key: str, multipart: str, number: int, size: int, seconds: int) -> Signed:
        where = {"Key": self._prefix + key, "UploadId": multipart, "PartNumber": number}
        url = await self._client.sign("upload_part", seconds, **where, ContentLength=size)
        return Signed(url, "PUT", {"Content-Length": str(size)})

    async def parts(self, key: str, multipart: str) -> list[StoredPart]:
        where = {"Key": self._prefix + key, "UploadId": multipart}
        found: list[StoredPart] = []
        async for page in self._client.pages("list_parts", **where):
            for part in page.get("Parts", ()):
                found.append(StoredPart(int(part["PartNumber"]), int(part["Size"]), str(part["ETag"])))
        return sorted(found, key=lambda part: part.number)

    async def finish(self, key: str, multipart: str, parts: Sequence[StoredPart]) -> None:
        listed = [{"PartNumber": part.number, "ETag": part.etag} for part in parts]
        where = {"Key": self._prefix + key, "UploadId": multipart}
        await self._client.call("complete_multipart_upload", **where, MultipartUpload={"Parts": listed})

    # --- parts that the service sends itself

    async def put_object(self, key: str, data: bytes, content_type: str) -> None:
        await self._client.call(
            "put_object", Key=self._prefix + key, Body=data, ContentType=content_type
        )

    async def remove_object(self, key: str) -> None:
        with contextlib.suppress(BlobMissing):
            await self._client.call("delete_object", Key=self._prefix + key)

    async def put_part(self, key: str, multipart: str, number: int, data: bytes) -> str:
        where = {"Key": self._prefix + key, "UploadId": multipart, "PartNumber": number}
        answer = await self._client.call("upload_part", **where, Body=PartBody(data))
        return str(answer["ETag"])

    async def multiparts(self, space: str) -> list[BegunMultipart]:
        found: list[BegunMultipart] = []
        base = f"{self._prefix}{space}/"
        async for page in self._client.pages("list_multipart_uploads", Prefix=base):
            for item in page.get("Uploads", ()):
                key = str(item["Key"])[len(self._prefix) :]
                begun = item["Initiated"].timestamp()
                found.append(BegunMultipart(key, str(item["UploadId"]), begun))
        return found

    async def abort(self, key: str, multipart: str) -> None:
        try:
            where = {"Key": self._prefix + key, "UploadId": multipart}
            await self._client.call("abort_multipart_upload", **where)
        except BlobMissing:
            return
