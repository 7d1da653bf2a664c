"""A service that accepts files by form and by tus, as documented, with failures on request.

`cuts` says after how many bytes each of the next PATCHes is cut off; `before(method, path, …)` what the next requests
are answered with instead.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
from dataclasses import dataclass, field
from typing import Any

from aiohttp import BodyPartReader, web

from bide.client.uploads.upload_session import Pace
from bide.core.wire.digest import render_digest
from tests.unit.fake_service import FakeService, Reply, job, job_id, problem


@dataclass
class Kept:
    """One upload."""

    size: int
    metadata: dict[str, str]
    data: bytearray = field(default_factory=bytearray)
    digest: str | None = None  # that the last piece came with


class FakeUploads(FakeService):
    def __init__(self) -> None:
        super().__init__()
        self.uploads: dict[str, Kept] = {}
        self.cuts: list[int] = []
        self.losing = 0  # answers to the next PATCHes are lost
        self.forms: list[dict[str, Any]] = []
        self.parts: list[str] = []  # of all forms
        self.requests: list[tuple[str, str]] = []
        self.received = 0  # bytes of files, however often
        self.lies: str | None = None  # what it says the whole has come to
        self._before: list[tuple[str, str, Reply]] = []

    def before(self, method: str, path: str, *replies: Reply) -> None:
        self._before += [(method, path, reply) for reply in replies]

    @property
    def only(self) -> Kept:
        (upload,) = self.uploads.values()
        return upload

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        self.requests.append((request.method, request.path))
        for number, (method, path, reply) in enumerate(self._before):
            if method == request.method and request.path.startswith(path):
                del self._before[number]
                await request.read()
                return await reply(request)
        if request.path == "/files":
            return await self._begin(request)
        if request.path.startswith("/files/"):
            return await self._tus(request)
        if request.path == "/jobs" and request.content_type == "multipart/form-data":
            return await self._form(request)
        if request.path.startswith("/jobs/") and request.method == "GET":
            return web.json_response(job(1, "PENDING"))
        return await super()._answer(request)

    async def _begin(self, request: web.Request) -> web.StreamResponse:
        pairs = [pair.split(" ") for pair in request.headers["Upload-Metadata"].split(",")]
        metadata = {name: base64.b64decode(value).decode() for name, value in pairs}
        name = f"u{len(self.uploads) + 1}"
        self.uploads[name] = Kept(int(request.headers["Upload-Length"]), metadata)
        return web.Response(status=201, headers={"Location": f"/files/{name}", "Upload-Offset": "0"})

    async def _tus(self, request: web.Request) -> web.StreamResponse:
        upload = self.uploads.get(request.path.rpartition("/")[2])
        if upload is None:
            return await problem(404, "not-found")(request)
        if request.method == "DELETE":
            del self.uploads[request.path.rpartition("/")[2]]
            return web.Response(status=204)
        if request.method == "PATCH":
            if request.headers["Upload-Offset"] != str(len(upload.data)):
                return await problem(409, "wrong-offset")(request)
            upload.digest = request.headers.get("Repr-Digest")
            whole = await self._take(request, upload)
            if whole and self.losing:
                self.losing -= 1
                assert request.transport is not None
                request.transport.abort()
            if not whole:
                return web.Response()
        headers = {"Upload-Offset": str(len(upload.data)), "Upload-Length": str(upload.size)}
        if len(upload.data) == upload.size:
            headers["Repr-Digest"] = render_digest(self.lies or hashlib.sha256(upload.data).hexdigest())
            if "kind" in upload.metadata:
                headers["Job-Location"] = f"/jobs/{job_id(1)}"
        return web.Response(status=204 if request.method == "PATCH" else 200, headers=headers)

    async def _take(self, request: web.Request, upload: Kept) -> bool:
        """False when the connection was cut."""
        left = self.cuts.pop(0) if self.cuts else None
        async for data in request.content.iter_any():
            part = data if left is None else data[:left]
            upload.data += part
            self.received += len(part)
            if left is not None:
                left -= len(part)
                if left == 0:
                    assert request.transport is not None
                    request.transport.abort()
                    return False
        return True

    async def _form(self, request: web.Request) -> web.StreamResponse:
        found: dict[str, Any] = {"key": request.headers.get("Idempotency-Key")}
        reader = await request.multipart()
        while isinstance(part := await reader.next(), BodyPartReader):
            assert part.name is not None
            body = bytes(await part.read())
            self.parts.append(part.name)
            if part.name == "job":
                found["job"] = json.loads(body)
            else:
                self.received += len(body)
                found[part.name] = (part.filename, part.headers["Content-Type"], body)
                found["digest"] = part.headers["Content-Digest"]
        self.forms.append(found)
        return web.json_response(job(1, "PENDING"), status=202)


SIZE = 300_000


class Slept:
    """A pace without waiting: it only notes how long it would have waited."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.at = 0.0
        self.pace = Pace(rng=random.Random(1), sleep=self._sleep, now=lambda: self.at)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.at += seconds
        await asyncio.sleep(0)


def digest(data: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


class Bar:
    """As tqdm's."""

    def __init__(self, shown: list[int]) -> None:
        self.total = 0
        self.shown = shown

    def update(self, more: int) -> None:
        self.shown.append(more)


def says(document: dict[str, Any], status: int = 200) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        return web.json_response(document, status=status)

    return reply
