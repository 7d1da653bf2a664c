"""GET /ui/{file}: the static files of the package folder `ui`: bide.js, its types, and the dashboard; and the page that
GET / sends to a browser.

1. Only files that are in the folder at the first request are served, by their exact names. The path is never used as a
   path of the file system.
2. A browser asks again at each use (`no-cache`) and gets 304, so that all files are of the same version after an upgrade.
3. The page may load and call only its own service (Content-Security-Policy), and has no inline script or style.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from urllib.parse import urlsplit

import msgspec

from bide.core.errors import NotFound
from bide.core.wire.http import etag_matches
from bide.server.http.request import Headers, HttpRequest, Response, text_response
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec
from bide.server.http.status import IF_NONE_MATCH

# By the end of the name; other files of the folder are not served.
CONTENT_TYPES = {
    ".d.ts": "text/plain; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
_COMPRESSED = (".d.ts", ".js", ".css", ".svg")

_POLICY = (
    b"default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class StaticFile(msgspec.Struct, frozen=True):
    """One file, as it is sent. `gzipped` is None if compression gains nothing."""

    content_type: str
    body: bytes
    gzipped: bytes | None
    etag: str
    gzipped_etag: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Reads all files of the folder once. Their number is small."""
    found = {}
    for entry in files("bide").joinpath("ui").iterdir():
        ending = next((end for end in CONTENT_TYPES if entry.name.endswith(end)), None)
        if ending is None or not entry.is_file():
            continue
        body = entry.read_bytes()
        digest = hashlib.sha256(body).hexdigest()[:32]
        gzipped = gzip.compress(body, mtime=0) if ending in _COMPRESSED else None
        found[entry.name] = StaticFile(
            CONTENT_TYPES[ending], body, gzipped, f'"{digest}"', f'"{digest}.gzip"'
        )
    return found


async def serve(request: HttpRequest) -> Response:
    file = static_files().get(request.args[0])
    if file is None:
        raise NotFound(f"/ui has no file {request.args[0][:100]!r}")
    compress = file.gzipped is not None and _takes_gzip(request.header(b"accept-encoding"))
    tag = file.gzipped_etag if compress else file.etag
    headers: Headers = [
        (b"etag", tag.encode()),
        (b"cache-control", b"no-cache"),
        (b"vary", b"Accept-Encoding"),
        (b"x-content-type-options", b"nosniff"),
    ]
    known = request.header(b"if-none-match")
    if known is not None and etag_matches(known, tag):
        return Response(304, headers)
    body = file.gzipped if compress and file.gzipped is not None else file.body
    if compress:
        headers.append((b"content-encoding", b"gzip"))
    headers.append((b"content-type", file.content_type.encode()))
    headers.append((b"content-length", b"%d" % len(body)))
    return Response(200, headers, body)


@cache
def _template() -> str:
    return files("bide").joinpath("ui", "index.html").read_text("utf-8")


def dashboard(request: HttpRequest, version: str) -> Response:
    """Return the page of the dashboard. Its files are under the path where the service is mounted."""
    page = _template()
    config = request.components.config
    issuer = config.auth.oidc
    provider = "" if request.components.sign_in is None or issuer is None else issuer.issuer
    for name, value in (
        ("$BASE", request.base),
        ("$VERSION", version),
        ("$MODE", config.http.ui),
        ("$AUTH", "keys" if config.auth.enabled else "none"),
        ("$PROVIDER", urlsplit(provider).netloc),
    ):
        page = page.replace(name, escape(value))
    return text_response(
        "text/html; charset=utf-8",
        page.encode(),
        (b"content-security-policy", _POLICY),
        (b"cache-control", b"no-cache"),
        (b"vary", b"Accept"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    )


def _takes_gzip(accepted: str | None) -> bool:
    for entry in (accepted or "").lower().split(","):
        name, _, weight = entry.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


_TYPES = tuple(dict.fromkeys(value.partition(";")[0] for value in CONTENT_TYPES.values()))

OPERATIONS = [
    HttpOperation(
        "GET",
        "/ui/{file}",
        serve,
        "getUiFile",
        "Get a file of the browser's side: the module bide.js, or one of the dashboard",
        "docs",
        parameters=(
            Parameter("file", "path", "The name of the file, for example `bide.js`.", required=True),
            Parameter("Accept-Encoding", "header", "With `gzip`, text is sent compressed."),
            IF_NONE_MATCH,
        ),
        scope=None,
        responses=(
            ResponseSpec(
                200,
                "The file.",
                {"type": "string"},
                content_types=_TYPES,
                headers=("ETag", "Cache-Control", "Vary"),
            ),
            ResponseSpec(304, "The ETag has not changed.", headers=("ETag",)),
        ),
        problems=(NotFound,),
        example="$BASE/ui/bide.js",
    )
]
