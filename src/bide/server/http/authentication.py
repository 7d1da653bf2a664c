"""The identity of a request: which credential it has, and whether its scope allows the operation.

1. The credential is the bearer token of the Authorization header; without this header, the browser token in the query, for
   operations that accept one there; without both, the cookie of a session.
2. A browser adds a cookie to requests of any page. So a request that could change something needs the CSRF token of the
   session, too; and the cookie does not count if the browser reports that the page is of another origin.
3. The service checks this after the route is known, and before it reads the query, the body or the store.
"""

from __future__ import annotations

import hmac
import re
from urllib.parse import quote

from bide.core.errors import Forbidden, Problem, Unauthenticated
from bide.server.http.cors import SAFE
from bide.server.http.hosts import is_same_host, read_names, split_origin
from bide.server.http.request import HttpRequest
from bide.server.http.routing import TOKEN, Route
from bide.server.identities import NOBODY, Principal
from bide.server.identities.authenticator import Authenticator
from bide.server.identities.sessions import csrf_token, session_token
from bide.server.identities.tokens import PREFIX, cached_text

COOKIE = "bide_session"
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="bide"'}


def is_known(request: HttpRequest, route: Route, authenticator: Authenticator) -> bool:
    """Set the principal of a request whose Authorization header was verified before, and return True; return False if
    `authenticate` must do it. This is the path of almost all requests, without an await.
    """
    header = request.header(b"authorization")
    principal = None if header is None else authenticator.known(header)
    if principal is None or (route.scope is not None and route.scope not in principal.scopes):
        return False
    request.principal = principal
    request.tenant = principal.tenant
    return True


async def authenticate(request: HttpRequest, route: Route, authenticator: Authenticator) -> None:
    """Set the principal of a request. Raises Unauthenticated or Forbidden. A public operation needs no credential, and
    ignores a wrong one.
    """
    scope = route.scope
    try:
        token = _query_token(request, route)
        session = None if token is not None else _session(request)
        if session is not None:
            principal = await _of_session(request, session, authenticator)
        else:
            token, text = _bearer(request) if token is None else (token, "")
            if token.startswith(PREFIX):
                text = cached_text(token)
            principal = authenticator.known(text) or await authenticator.verify(token, text)
    except Problem as problem:
        # For a public operation also if the store cannot be read: a probe must still get its answer.
        if scope is not None:
            raise
        principal = NOBODY
        request.refusal = problem
    request.principal = principal  # also of a call that is refused, for the audit log
    if scope is not None and scope not in principal.scopes:
        raise Forbidden(
            f"this needs the scope `{scope}`, and {principal.subject} has "
            f"{', '.join(sorted(principal.scopes)) or 'none'}",
            headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
        )
    if scope is not None and principal.is_restricted and not route.operation.is_for_some_jobs:
        raise Forbidden(f"a token for some jobs does not allow {route.operation.name}")
    request.tenant = principal.tenant


def _query_token(request: HttpRequest, route: Route) -> str | None:
    """The browser token in the query. Other credentials do not belong in a URL, which proxies log."""
    if (
        TOKEN.name not in route.query_names
        or not request.scope["query_string"]
        or request.header(b"authorization") is not None
    ):
        return None
    token = request.one(TOKEN.name)
    if token is not None and not token.startswith(PREFIX):
        raise Unauthenticated("`token` in a URL is a token of POST /tokens", headers=_CHALLENGE)
    return token


def _bearer(request: HttpRequest) -> tuple[str, str]:
    """The bearer token of a request, and the header that has it. Raises Unauthenticated."""
    header = request.header(b"authorization")
    if header is None:
        raise Unauthenticated(
            "this service needs a credential: send `Authorization: Bearer KEY` with an API key",
            headers=_CHALLENGE,
        )
    kind, _, token = header.partition(" ")
    token = token.strip(" ")
    if kind.lower() != "bearer" or not token or " " in token:
        raise Unauthenticated(
            "the Authorization header has another form than `Bearer KEY`", headers=_CHALLENGE
        )
    return token, header


# --- sessions


def _session(request: HttpRequest) -> str | None:
    """The text of the session that the request belongs to."""
    if (
        request.header(b"cookie") is None
        or request.header(b"authorization") is not None
        or _is_foreign(request)
    ):
        return None
    return read_cookie(request, COOKIE)


def read_cookie(request: HttpRequest, name: str) -> str | None:
    """The text of a cookie; None if it is missing or empty."""
    for cookie in re.split(
        "[;,]", request.header(b"cookie") or ""
    ):  # a repeated header is joined by commas
        found, _, text = cookie.strip(" ").partition("=")
        if found == name and text:
            return text
    return None


def _is_foreign(request: HttpRequest) -> bool:
    """Whether a page of another origin has sent the request."""
    origin = request.header(b"origin")
    if origin is None or is_same_host(origin, request.host):
        return False
    page = split_origin(origin)  # a proxy may have changed the host of the request
    return page is None or page[1] not in read_names(request.components.config.http.trusted_hosts)


async def _of_session(request: HttpRequest, text: str, authenticator: Authenticator) -> Principal:
    token = session_token(text)
    principal = authenticator.known(token) or await authenticator.verify(token)
    request.principal = principal
    expected = csrf_token(text)
    if request.scope.get("method", "GET") not in SAFE:
        given = request.header(b"x-csrf-token") or ""
        if not hmac.compare_digest(given.encode(), expected.encode()):
            raise Forbidden(
                "A request with the cookie of a session needs the `csrf` of GET /session in X-CSRF-Token."
            )
    request.csrf = expected
    return principal


def session_cookie(request: HttpRequest, text: str, seconds: float) -> tuple[bytes, bytes]:
    """The header that stores a session in the browser, for the paths of the service."""
    return render_cookie(request, COOKIE, text, seconds)


def render_cookie(
    request: HttpRequest, name: str, text: str, seconds: float, path: str = ""
) -> tuple[bytes, bytes]:
    """The header that stores a cookie for the paths of the service that begin with `path`."""
    scheme = request.forwarded_scheme or request.scope.get("scheme", "http")
    place = quote(request.base + path, safe="/%:@!$&'()*+=~-._") or "/"
    secure = "; Secure" if scheme == "https" else ""
    cookie = f"{name}={text}; Path={place}; Max-Age={seconds:.0f}; HttpOnly; SameSite=Lax{secure}"
    return b"set-cookie", cookie.encode()
