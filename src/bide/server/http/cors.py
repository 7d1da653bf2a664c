"""Cross-origin requests: pages of allowed origins may use the service from a browser, other pages may not.

A browser sends a preflight first, and hides responses that do not name the origin of the page. `check_origin` rejects
requests that a browser sends without a preflight, such as forms.
"""

from __future__ import annotations

from collections.abc import Collection

from bide.core.errors import CrossSite
from bide.server.http.hosts import is_same_host, split_origin
from bide.server.http.request import Headers, HttpRequest, Message, Response, Send

SAFE = frozenset(("GET", "HEAD", "OPTIONS"))  # methods that change nothing

_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_REQUEST_HEADERS = (
    b"Authorization, Content-Type, Content-Disposition, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, "
    b"Prefer, Range, Repr-Digest, Tus-Resumable, Upload-Checksum, Upload-Concat, Upload-Defer-Length, Upload-Length, "
    b"Upload-Metadata, Upload-Offset, X-HTTP-Method-Override, X-Request-ID, X-Requested-With, traceparent"
)
_EXPOSED_HEADERS = (
    b"Content-Disposition, Content-Range, ETag, Idempotency-Replayed, Job-Location, Location, Preference-Applied, "
    b"RateLimit, RateLimit-Policy, Repr-Digest, Retry-After, Tus-Checksum-Algorithm, "
    b"Tus-Extension, Tus-Max-Size, Tus-Resumable, Tus-Version, "
    b"Upload-Concat, Upload-Defer-Length, Upload-Expires, Upload-Length, Upload-Metadata, Upload-Offset"
)


def allowed_origin(request: HttpRequest) -> bytes | None:
    """Return the origin of the page that sent the request if it is allowed, else None."""
    origins = request.components.config.http.origins
    if not origins:
        return None
    origin = request.header(b"origin")
    return (
        origin.encode("latin-1")
        if origin is not None and (origin in origins or "*" in origins)
        else None
    )


def check_origin(request: HttpRequest, trusted: Collection[str]) -> None:
    """Raise CrossSite for a request that could change something, sent by a page of an origin that is not allowed. That
    includes all methods but the safe ones, and WebSocket handshakes (a GET with Upgrade, or an ASGI scope). Programs
    other than browsers send neither header.

    Another port of the same host is the same site, but another origin. Pages of `trusted` hosts are allowed.
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
    elif (elsewhere or not is_same_host(origin, request.host)) and not (
        allowed_origin(request) is not None
        or ((page := split_origin(origin)) is not None and page[1] in trusted)
    ):
        raise CrossSite(
            f"pages of origin {origin[:200]!r} may not change anything: allow the origin with --origin"
        )


def _is_handshake(request: HttpRequest) -> bool:
    return "websocket" in (request.header(b"upgrade") or "").lower()


def preflight(request: HttpRequest) -> Response | None:
    """Return the response to a preflight request; None for other requests."""
    if request.scope["method"] != "OPTIONS" or request.header(b"access-control-request-method") is None:
        return None
    origin = allowed_origin(request)
    if origin is None:
        raise CrossSite(
            "pages of this origin are not allowed: start the service with --origin and the origin of the page"
        )
    headers = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", _REQUEST_HEADERS),
        (b"access-control-max-age", b"86400"),
    ]
    return Response(204, headers)


def cors_headers(origin: bytes) -> Headers:
    """Return the headers that let a page read the response."""
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED_HEADERS),
        (b"vary", b"Origin"),
    ]


def with_cors_headers(send: Send, origin: bytes) -> Send:
    """Wrap `send` for responses that are streamed."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *cors_headers(origin)]}
        await send(message)

    return sending
