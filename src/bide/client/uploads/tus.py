"""One file by tus 1.0: begun, cut off, gone on with at the byte that the service has.

1. Only the service's Upload-Offset says how far an upload is; a byte that it has is not sent again.
2. The last piece says what the whole must come to, so that no job is made of a file that arrived as another one.
3. An upload that the service has forgotten is begun anew.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress

from bide.client.apis import Answer
from bide.client.apis.values import without_credentials
from bide.client.http.transport import Transport
from bide.client.uploads.patience import Patience
from bide.client.uploads.source import BLOCK, Source
from bide.core.digest import read_digest
from bide.core.errors import BideError, ServiceError, ServiceUnreachable, UploadFailed

log = logging.getLogger("bide.client")
VERSION = {"Tus-Resumable": "1.0.0"}
OFFSET_TYPE = "application/offset+octet-stream"
PIECE = 64 * 1024 * 1024  # bytes of one request
TAIL = 1024 * 1024  # bytes that go last, with the checksum of the whole
GONE = (404, 410)
ELSEWHERE = (409, 423)  # we are not where it is, or it is somebody else's turn
ANEW = 3  # times that a forgotten upload is begun again

Begun = Callable[[str], Awaitable[None]]
Show = Callable[[int], object]


class Piece:
    """A range of a file as the body of a request; `show` is told how far it is read."""

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
    """`metadata` is told to the service when the upload is begun; `begun` hears its address, before the first byte."""

    def __init__(
        self,
        transport: Transport,
        source: Source,
        metadata: Mapping[str, str],
        patience: Patience,
        begun: Begun,
        show: Show,
    ) -> None:
        self._transport = transport
        self._source = source
        self._metadata = metadata
        self._patience = patience
        self._begun = begun
        self._show = show
        self._anew = 0
        self._reached = 0

    async def send(self, url: str | None = None) -> tuple[str, str | None]:
        """From where the upload at `url` is, or from the beginning: its address, and that of its job if it makes one."""
        if url is not None and not self._transport.same_origin(url):
            url = None  # an earlier version stored it
        while True:
            try:
                if url is None:
                    url, offset, job = await self._begin()
                else:
                    offset, job = await self._place(await self._ask("HEAD", url))
                self._at(offset)
                if offset < self._source.size:
                    job = await self._fill(url, offset)
                return url, job
            except ServiceError as error:
                if url is not None and error.status in GONE and self._anew < ANEW:
                    log.warning(
                        "the service has forgotten the upload of %s: it begins anew", self._source.name
                    )
                    url = None
                    self._anew += 1
                elif error.status in ELSEWHERE:
                    await self._patience.after(ServiceUnreachable(str(error)))
                else:
                    await self._patience.after(error)
            except ServiceUnreachable as error:
                await self._patience.after(error)

    async def _begin(self) -> tuple[str, int, str | None]:
        told = render_metadata(self._metadata)
        headers = {"Upload-Length": str(self._source.size), "Upload-Metadata": told}
        answer = await self._ask("POST", "/files", headers)
        url = self._transport.path_of(answer.headers.get("Location"), answer.url)
        if url is None:
            raise answer.unreadable("The response has no usable Location header.")
        self._check_origin(url)
        await self._begun(url)
        return url, 0, self._job(answer)

    def _check_origin(self, url: str) -> None:
        """The bytes of a file go only to the service that the user named."""
        if not self._transport.same_origin(url):
            goal = without_credentials("/".join(url.split("/", 3)[:3]))
            raise UploadFailed(
                f"The service places the upload of {self._source.name} at {goal}, and the client sends no file to another "
                "origin. If that is the right address, use it as --url."
            )

    async def _fill(self, url: str, offset: int) -> str | None:
        """The rest of it; the address of the job that it makes."""
        size = self._source.size
        while True:
            rest = size - offset
            end = size if rest <= TAIL else min(offset + PIECE, size - TAIL)
            headers = {**VERSION, "Upload-Offset": str(offset), "Content-Type": OFFSET_TYPE}
            await asyncio.to_thread(self._source.catch_up, offset)
            if end == size:
                headers["Repr-Digest"] = await asyncio.to_thread(self._source.digest)
            piece = Piece(self._source, offset, end, self._show)
            answer = await self._transport.send_content("PATCH", url, piece, headers)
            before, (offset, job) = offset, await self._place(answer)
            if offset <= before:
                raise answer.unreadable(f"the upload stays at {offset}")
            self._at(offset)
            if offset == size:
                return job

    def _at(self, offset: int) -> None:
        if offset > self._reached:
            self._reached = offset
            self._patience.ahead()
        self._show(offset)

    async def _ask(self, method: str, url: str, headers: Mapping[str, str] | None = None) -> Answer:
        answer = await self._transport.send(method, url, headers={**VERSION, **(headers or {})})
        self._patience.met()
        return answer

    async def _place(self, answer: Answer) -> tuple[int, str | None]:
        """How far the upload is, and the job that it has become."""
        text = answer.headers.get("Upload-Offset", "")
        if not (text.isascii() and text.isdigit()):
            raise answer.unreadable(f"Upload-Offset is {text!r}")
        length = answer.headers.get("Upload-Length", str(self._source.size))
        if int(text) > self._source.size or length != str(self._source.size):
            raise UploadFailed(
                f"the upload at {answer.url} is of another file than {self._source.name}: it has {length} bytes"
            )
        if int(text) == self._source.size:
            await self._check(answer)
        return int(text), self._job(answer)

    async def _check(self, answer: Answer) -> None:
        """The service has the file whole: is it the one that was sent? A job of another one is not let go on."""
        theirs = read_digest(answer.headers.get("Repr-Digest"))
        ours = await asyncio.to_thread(self._source.sha256)
        if theirs is None or theirs == ours:
            return
        job = self._job(answer)
        if job is not None:
            with suppress(BideError):
                await self._transport.send("POST", f"{job}/cancel")
        raise UploadFailed(
            f"{self._source.name} arrived as another file: its SHA-256 is {ours}, and at the service {theirs}"
        )

    def _job(self, answer: Answer) -> str | None:
        return self._transport.path_of(answer.headers.get("Job-Location"), answer.url)


def render_metadata(metadata: Mapping[str, str]) -> str:
    return ",".join(f"{name} {_encoded(value)}" for name, value in metadata.items())


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
