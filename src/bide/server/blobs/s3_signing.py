"""Requests to a bucket that callers make themselves: signed here, verified there.

What is signed is all of it: method, key, content type and length, and until when. Storage refuses anything else.
"""

from __future__ import annotations

from collections.abc import Sequence

from bide.server.blobs import BlobMissing, Found, Part, Signed
from bide.server.blobs.s3_client import EmptyRange, S3Client


class S3Signing:
    """`Signing` and `Multipart` in a bucket."""

    largest_put = 5 * 1024**3
    through_service = False
    smallest_part = 5 * 1024 * 1024
    most_parts = 1000  # what the strictest of the compatible takes; S3 itself takes ten times as many

    def __init__(self, client: S3Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    async def sign_put(self, key: str, content_type: str, size: int, seconds: int) -> Signed:
        given = {"Key": self._prefix + key, "ContentType": content_type, "ContentLength": size}
        url = await self._client.sign("put_object", seconds, **given)
        return Signed(url, "PUT", {"Content-Type": content_type, "Content-Length": str(size)})

    async def head(self, key: str) -> Found | None:
        # By its first byte: the answers of some servers to HEAD have a body when there is nothing, which is then taken
        # for the next answer. Nothing has no first byte, but is there.
        goal = {"Key": self._prefix + key}
        try:
            answer = await self._client.call("get_object", **goal, Range="bytes=0-0")
        except BlobMissing:
            return None
        except EmptyRange:
            answer = await self._client.call("head_object", **goal)
            return Found(int(answer["ContentLength"]), answer.get("ContentType"))
        async with answer["Body"] as body:
            await body.read()
        size = answer.get("ContentRange", "").rpartition("/")[2] or answer["ContentLength"]
        return Found(int(size), answer.get("ContentType"))

    async def move(self, source: str, key: str, content_type: str) -> None:
        origin = {"Bucket": self._client.place.bucket, "Key": self._prefix + source}
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

    async def parts(self, key: str, multipart: str) -> list[Part]:
        where = {"Key": self._prefix + key, "UploadId": multipart}
        found: list[Part] = []
        async for page in self._client.pages("list_parts", **where):
            for part in page.get("Parts", ()):
                found.append(Part(int(part["PartNumber"]), int(part["Size"]), str(part["ETag"])))
        return sorted(found, key=lambda part: part.number)

    async def finish(self, key: str, multipart: str, parts: Sequence[Part]) -> None:
        listed = [{"PartNumber": part.number, "ETag": part.etag} for part in parts]
        where = {"Key": self._prefix + key, "UploadId": multipart}
        await self._client.call("complete_multipart_upload", **where, MultipartUpload={"Parts": listed})

    async def abort(self, key: str, multipart: str) -> None:
        try:
            where = {"Key": self._prefix + key, "UploadId": multipart}
            await self._client.call("abort_multipart_upload", **where)
        except BlobMissing:
            return
