"""Responses with the bytes of a blob: streamed, with ranges and backpressure.

The bytes come from callers and handlers and are not trusted: a browser must save them as an attachment, and neither
sniff nor run them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncGenerator
from urllib.parse import quote

from bide.core.errors import NotFound
from bide.core.jobs.record import FileInfo
from bide.core.wire.http import etag_matches
from bide.server.blobs import BlobMissing, Blobs
from bide.server.http.ranges import read_range
from bide.server.http.request import Headers, HttpRequest, Receive, Response, Scope, Send, Stream

_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(; ?[\w-]{1,50}=[\w.+-]{1,100})*", re.ASCII)
_ANYTHING = "application/octet-stream"
_PLAIN_NAME = re.compile(r"[\w .,()+-]+", re.ASCII)


def media_type(declared: str) -> str:
    """Returns the declared type if it is valid in a header, else application/octet-stream."""
    return declared if _MEDIA_TYPE.fullmatch(declared) else _ANYTHING


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


def requested_ranges(request: HttpRequest, tag: str, size: int) -> list[tuple[int, int]]:
    requested = request.header(b"range")
    if requested is None:
        return []
    condition = request.header(b"if-range")
    # A date is too coarse to combine two responses, so only the ETag counts.
    if condition is not None and condition.strip() != tag:
        return []
    return read_range(requested, size)


async def attachment(request: HttpRequest, info: FileInfo, declared: str, name: str) -> Response:
    """Returns a response with a file or the requested ranges. Errors of the storage are raised before the first byte."""
    tag = f'"{info.sha256}"'
    same = unchanged(request, tag)
    if same is not None:
        return same
    content_type = media_type(declared)
    ranges = requested_ranges(request, tag, info.size)
    headers = attachment_headers(tag, content_type, name)
    status = 206 if ranges else 200
    if len(ranges) > 1:
        pieces = _several(ranges, info.size, content_type, headers)
    else:
        first, last = ranges[0] if ranges else (0, info.size - 1)
        if ranges:
            headers.append((b"content-range", b"bytes %d-%d/%d" % (first, last, info.size)))
        headers.append((b"content-length", b"%d" % (last + 1 - first)))
        pieces = [(first, last)]
    if request.scope["method"] == "HEAD":
        return Response(status, headers)
    body = _body(request.components.blobs, info.blob, pieces)
    try:
        await anext(body)  # opens the blob, so that a failure is still a problem response
    except BlobMissing:
        raise NotFound(f"the bytes of {name[:200]!r} have been deleted") from None
    return Response(status, headers, stream=_streaming(status, headers, body))


def _several(
    ranges: list[tuple[int, int]], size: int, content_type: str, headers: Headers
) -> list[tuple[int, int] | bytes]:
    """Returns the pieces of a multipart/byteranges body (RFC 9110, 14.6): boundaries and ranges."""
    boundary = secrets.token_hex(13)
    pieces: list[tuple[int, int] | bytes] = []
    length = 0
    for first, last in ranges:
        head = f"--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: bytes {first}-{last}/{size}\r\n\r\n"
        pieces += [head.encode(), (first, last), b"\r\n"]
        length += len(head) + last + 1 - first + 2
    end = f"--{boundary}--\r\n".encode()
    pieces.append(end)
    for i, (key, _) in enumerate(headers):
        if key == b"content-type":
            headers[i] = (key, f"multipart/byteranges; boundary={boundary}".encode())
    headers.append((b"content-length", b"%d" % (length + len(end))))
    return pieces


async def _body(
    blobs: Blobs, blob: str, pieces: list[tuple[int, int] | bytes]
) -> AsyncGenerator[bytes, None]:
    """Yields an empty piece when the blob is open: a generator that has started can be closed."""
    for i, piece in enumerate(pieces):
        if isinstance(piece, bytes):
            if i == 0:
                yield b""
            yield piece
            continue
        opened = await blobs.open(blob, *piece)
        async with contextlib.aclosing(opened):
            if i == 0:
                yield b""
            async for chunk in opened:
                yield chunk


def _streaming(status: int, headers: Headers, body: AsyncGenerator[bytes, None]) -> Stream:
    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        async def disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        disconnection = asyncio.ensure_future(disconnected())
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
