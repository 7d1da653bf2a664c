"""Pages of other origins: those that were allowed may use the service from a browser, all others may not.

A browser asks first (a preflight), and then hides answers that do not name its page's origin. What it sends without
asking, such as a form, is refused by `check_origin`.
"""

from __future__ import annotations

from collections.abc import Collection

from bide.core.errors import CrossSite
from bide.server.http.exchange import Answer, Headers, Message, Request, Send
from bide.server.http.hosts import is_same_host, split_origin

SAFE = frozenset(("GET", "HEAD", "OPTIONS"))  # methods that change nothing

_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_TAKEN = (
    b"Authorization, Content-Type, Content-Disposition, Idempotency-Key, If-Match, If-None-Match, Prefer, Range, "
    b"Repr-Digest, Tus-Resumable, Upload-Checksum, Upload-Concat, Upload-Defer-Length, Upload-Length, "
    b"Upload-Metadata, Upload-Offset, X-HTTP-Method-Override, X-Request-ID, X-Requested-With, traceparent"
)
_SHOWN = (
    b"Content-Disposition, Content-Range, ETag, Job-Location, Location, Preference-Applied, Repr-Digest, Retry-After, "
    b"Tus-Checksum-Algorithm, Tus-Extension, Tus-Max-Size, Tus-Resumable, Tus-Version, Upload-Concat, "
    b"Upload-Defer-Length, Upload-Expires, Upload-Length, Upload-Metadata, Upload-Offset"
)


def allowed_origin(request: Request) -> bytes | None:
    """The origin of the page that sent this, when it may."""
    origins = request.parts.config.uploads.origins
    if not origins:
        return None
    origin = request.header(b"origin")
    return (
        origin.encode("latin-1")
        if origin is not None and (origin in origins or "*" in origins)
        else None
    )


def check_origin(request: Request, trusted: Collection[str]) -> None:
    """Raises CrossSite for what could change something and was sent for a page of an origin that may not: all methods but
    the safe ones, and handshakes of WebSockets (as a GET that offers one, and as a scope of ASGI). Programs other than
    browsers send neither header.

    Another port of the same host is the same site, but another origin. `trusted` are hosts whose pages may.
    """
    origin = request.header(b"origin")
    if request.scope.get("method") in SAFE and (origin is None or not _is_handshake(request)):
        return
    elsewhere = request.header(b"sec-fetch-site") in ("cross-site", "same-site")
    if origin is None:
        if elsewhere:
            method = request.scope.get("method", "WebSocket")
            raise CrossSite(
                "The browser reports a cross-site request without an Origin header. Only pages of this service may "
                f"send {method} requests; allow other origins with --origin."
            )
    elif (elsewhere or not is_same_host(origin, request.header(b"host"))) and not (
        allowed_origin(request) is not None
        or ((page := split_origin(origin)) is not None and page[1] in trusted)
    ):
        raise CrossSite(
            f"a page of the origin {origin[:200]!r} may not change anything here: allow it with --origin"
        )


def _is_handshake(request: Request) -> bool:
    return "websocket" in (request.header(b"upgrade") or "").lower()


def preflight(request: Request) -> Answer | None:
    """The answer to a browser's question; None when this is none."""
    if request.scope["method"] != "OPTIONS" or request.header(b"access-control-request-method") is None:
        return None
    origin = allowed_origin(request)
    if origin is None:
        raise CrossSite(
            "pages of this origin are not allowed: start the service with --origin and the page's address"
        )
    headers = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", _TAKEN),
        (b"access-control-max-age", b"86400"),
    ]
    return Answer(204, headers)


def shown(origin: bytes) -> Headers:
    """What lets a page read the answer."""
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _SHOWN),
        (b"vary", b"Origin"),
    ]


def showing(send: Send, origin: bytes) -> Send:
    """For answers that send themselves."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *shown(origin)]}
        await send(message)

    return sending
