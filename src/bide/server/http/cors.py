"""Pages of other origins: those that were allowed may use the service from a browser, all others may not.

A browser asks first (a preflight), and then hides answers that do not name its page's origin.
"""

from __future__ import annotations

from bide.core.errors import CrossSite
from bide.server.http.exchange import Answer, Headers, Message, Request, Send

_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_TAKEN = (
    b"Authorization, Content-Type, Content-Disposition, Idempotency-Key, If-Match, If-None-Match, Prefer, Range, "
    b"Tus-Resumable, Upload-Checksum, Upload-Concat, Upload-Defer-Length, Upload-Length, Upload-Metadata, "
    b"Upload-Offset, X-HTTP-Method-Override, X-Request-ID, X-Requested-With, traceparent"
)
_SHOWN = (
    b"Content-Disposition, Content-Range, ETag, Job-Location, Location, Preference-Applied, Retry-After, "
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


def check_page(request: Request) -> None:
    """For what a page could send without asking first, as a form can be: CrossSite when the page is of another origin.

    Another port of the same host is the same site, but another origin.
    """
    site = request.header(b"sec-fetch-site")
    if site in ("cross-site", "same-site") and allowed_origin(request) is None:
        raise CrossSite("a page of another origin may not send files here: allow it with --origin")


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
