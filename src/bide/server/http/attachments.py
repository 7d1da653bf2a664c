"""Responses with the bytes of a blob or of one range of it: streamed, with backpressure.

The bytes come from callers and handlers and are not trusted: a browser must save them as an attachment, and neither
sniff nor run them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from urllib.parse import quote

from bide.core.errors import NotFound, RangeNotSatisfiable
from bide.core.jobs.record import FileInfo
from bide.core.wire.http import etag_matches
from bide.server.blobs import BlobMissing
from bide.server.http.request import Headers, HttpRequest, Receive, Response, Scope, Send, Stream
from bide.server.uploads.names import clean_type

_RANGE = re.compile(r"bytes *= *(\d{0,18})-(\d{0,18})", re.ASCII | re.IGNORECASE)
_PLAIN_NAME = re.compile(r"[\w .,()+-]+", re.ASCII)


def attachment_headers(tag: str, content_type: str, name: str) -> Headers:
    plain = _PLAIN_NAME.fullmatch(name) is not None
    filename = f'filename="{name}"' if plain else f"filename*=utf-8''{quote(name, safe='')}"
    return [
        (b"etag", tag.encode()),
        (b"content-type", content_type.encode()),
        (b"content-disposition", f"attachment; {filename}".encode()),
        (b"accept-ranges", b"bytes"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"default-src 'none'; sandbox"),
    ]


def unchanged(request: HttpRequest, tag: str) -> Response | None:
    known = request.header(b"if-none-match")
    if known is not None and etag_matches(known, tag):
        return Response(304, [(b"etag", tag.encode())])
    return None


def requested_range(request: HttpRequest, tag: str, size: int) -> tuple[int, int] | None:
    """Return the first and last byte of the requested range; None for the whole file.

    Several ranges also return the whole file, as RFC 9110, section 14.2 allows. Raise RangeNotSatisfiable if the
    range does not overlap the file.
    """
    requested = request.header(b"range")
    if requested is None:
        return None
    condition = request.header(b"if-range")
    # A date is too coarse to combine two responses, so only the ETag counts.
    if condition is not None and condition.strip() != tag:
        return None
    match = _RANGE.fullmatch(requested.strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first and last and int(last) < int(first):
        return None
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last), size - 1) if first and last else size - 1
    if start > end:
        raise RangeNotSatisfiable(
            f"Range is {requested[:100]!r}, but the file has {size} bytes",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return start, end


async def attachment(request: HttpRequest, info: FileInfo, declared: str, name: str) -> Response:
    """Return a response with a file or the requested range. Errors of the storage are raised before the first byte."""
    tag = f'"{info.sha256}"'
    same = unchanged(request, tag)
    if same is not None:
        return same
    part = requested_range(request, tag, info.size)
    first, last = part or (0, info.size - 1)
    status = 206 if part else 200
    headers = attachment_headers(tag, clean_type(declared), name)
    if part:
        headers.append((b"content-range", b"bytes %d-%d/%d" % (first, last, info.size)))
    headers.append((b"content-length", b"%d" % (last + 1 - first)))
    if request.scope["method"] == "HEAD":
        return Response(status, headers)
    try:
        body = await request.components.blobs.open(info.blob, *(part or ()))
    except BlobMissing:
        raise NotFound(f"the bytes of {name[:200]!r} have been deleted") from None
    return Response(status, headers, stream=_streaming(request, status, headers, body))


def _streaming(
    request: HttpRequest, status: int, headers: Headers, body: AsyncGenerator[bytes, None]
) -> Stream:
    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        disconnection = asyncio.ensure_future(request.disconnected())
        try:
            async with contextlib.aclosing(body):
                await send({"type": "http.response.start", "status": status, "headers": headers})
                async for chunk in body:
                    if disconnection.done():
                        return
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        finally:
            disconnection.cancel()

    return stream
