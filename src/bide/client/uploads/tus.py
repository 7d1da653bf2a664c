"""One file by tus 1.0: an interrupted upload is resumed at the byte that the service has.

1. Only the service's Upload-Offset counts; a byte that the service has is not sent again.
2. The last piece has the checksum of the whole, so that no job is created from a damaged file.
3. An upload that the service no longer knows starts again.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress

from bide.client.apis import Answer
from bide.client.apis.values import without_credentials
from bide.client.http.retrying import Retrying
from bide.client.http.service import ServiceRequests
from bide.client.uploads.source import BLOCK, Source
from bide.core.errors import BideError, ServiceError, ServiceUnreachable, UploadFailed
from bide.core.wire.digest import read_digest
from bide.core.wire.tus import BODY_TYPE, VERSION

log = logging.getLogger("bide.client")
RESUMABLE = {"Tus-Resumable": VERSION}
PIECE = 64 * 1024 * 1024  # bytes of one request
TAIL = 1024 * 1024  # bytes of the last request, which has the checksum of the whole
GONE = (404, 410)
CONFLICT = (409, 423)  # the offset is wrong, or another request writes to the upload
RESTARTS = 3  # of an upload that the service no longer knows

Begun = Callable[[str], Awaitable[None]]
Show = Callable[[int], object]


class Piece:
    """A range of a file as the body of a request; `show` gets the position."""

    def __init__(self, source: Source, first: int, end: int, show: Show) -> None:
        self.size = end - first
        self._source = source
        self._first = first
        self._end = end
        self._show = show

    async def chunks(self) -> AsyncIterator[bytes]:
        at = self._first
        while at < self._end:
            data = await asyncio.to_thread(self._source.block, at, min(BLOCK, self._end - at))
            at += len(data)
            yield data
            self._show(at)


class Resumable:
    """`metadata` is sent when the upload is created; `begun` gets its URL before the first byte is sent."""

    def __init__(
        self,
        service: ServiceRequests,
        source: Source,
        metadata: Mapping[str, str],
        retrying: Retrying,
        begun: Begun,
        show: Show,
    ) -> None:
        self._service = service
        self._source = source
        self._metadata = metadata
        self._retrying = retrying
        self._begun = begun
        self._show = show
        self.replayed = False  # the job of the upload is that of an earlier submission
        self._url: str | None = None
        self._restarts = 0
        self._reached = 0

    async def send(self, url: str | None = None) -> tuple[str, str | None]:
        """Upload the file, or the rest of the upload at `url`. Return its URL, and that of its job if it makes one."""
        # The URL of a ledger counts only if it is at the service, because the file is sent there.
        self._url = url if url is not None and self._service.same_origin(url) else None
        return await self._retrying.run(self._send)

    async def _send(self) -> tuple[str, str | None]:
        try:
            if self._url is None:
                self._url, offset, job = await self._begin()
            else:
                offset, job = await self._place(await self._ask("HEAD", self._url))
            self._at(offset)
            if offset < self._source.size:
                job = await self._fill(self._url, offset)
            return self._url, job
        except ServiceError as error:
            if error.status in CONFLICT:
                raise ServiceUnreachable(str(error)) from error
            if self._url is None or error.status not in GONE or self._restarts >= RESTARTS:
                raise
        log.warning("the service no longer knows the upload of %s: it starts again", self._source.name)
        self._url = None
        self._restarts += 1
        return await self._send()

    async def _begin(self) -> tuple[str, int, str | None]:
        metadata = render_metadata(self._metadata)
        headers = {"Upload-Length": str(self._source.size), "Upload-Metadata": metadata}
        answer = await self._ask("POST", "/files", headers)
        url = self._service.path_of(answer.headers.get("Location"), answer.url)
        if url is None:
            raise answer.unreadable("The response has no usable Location header.")
        self._check_origin(url)
        await self._begun(url)
        return url, 0, self._job(answer)

    def _check_origin(self, url: str) -> None:
        """The bytes of a file go only to the service that the user named."""
        if not self._service.same_origin(url):
            target = without_credentials("/".join(url.split("/", 3)[:3]))
            raise UploadFailed(
                f"The service places the upload of {self._source.name} at {target}, and the client sends no file to another "
                "origin. If that is the right address, use it as --url."
            )

    async def _fill(self, url: str, offset: int) -> str | None:
        """Send the rest. Return the URL of the job that it makes."""
        size = self._source.size
        while True:
            rest = size - offset
            end = size if rest <= TAIL else min(offset + PIECE, size - TAIL)
            headers = {**RESUMABLE, "Upload-Offset": str(offset), "Content-Type": BODY_TYPE}
            await asyncio.to_thread(self._source.catch_up, offset)
            if end == size:
                headers["Repr-Digest"] = await asyncio.to_thread(self._source.digest)
            piece = Piece(self._source, offset, end, self._show)
            answer = await self._service.send_content("PATCH", url, piece, headers)
            before, (offset, job) = offset, await self._place(answer)
            if offset <= before:
                raise answer.unreadable(f"The upload stays at byte {offset} after a PATCH.")
            self._at(offset)
            if offset == size:
                return job

    def _at(self, offset: int) -> None:
        if offset > self._reached:
            self._reached = offset
            self._retrying.progress()
        self._show(offset)

    async def _ask(self, method: str, url: str, headers: Mapping[str, str] | None = None) -> Answer:
        answer = await self._service.send(method, url, headers={**RESUMABLE, **(headers or {})})
        self._retrying.answered()
        return answer

    async def _place(self, answer: Answer) -> tuple[int, str | None]:
        """The offset of the upload, and the URL of its job."""
        text = answer.headers.get("Upload-Offset", "")
        if not (text.isascii() and text.isdigit()):
            raise answer.unreadable(f"Upload-Offset is {text!r}")
        length = answer.headers.get("Upload-Length", str(self._source.size))
        if int(text) > self._source.size or length != str(self._source.size):
            raise UploadFailed(
                f"The upload at {answer.url} belongs to another file than {self._source.name}: it has {length} bytes"
            )
        if int(text) == self._source.size:
            await self._check(answer)
        return int(text), self._job(answer)

    async def _check(self, answer: Answer) -> None:
        """Compare the checksum of the complete file. A job of a damaged one is cancelled."""
        theirs = read_digest(answer.headers.get("Repr-Digest"))
        ours = await asyncio.to_thread(self._source.sha256)
        if theirs is None or theirs == ours:
            return
        job = self._job(answer)
        if job is not None:
            with suppress(BideError):
                await self._service.send("POST", f"{job}/cancel")
        raise UploadFailed(
            f"{self._source.name}: checksum mismatch: expected SHA-256 {ours}, the service has {theirs}"
        )

    def _job(self, answer: Answer) -> str | None:
        self.replayed = answer.replayed
        return self._service.path_of(answer.headers.get("Job-Location"), answer.url)


def render_metadata(metadata: Mapping[str, str]) -> str:
    return ",".join(f"{name} {_encoded(value)}" for name, value in metadata.items())


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
