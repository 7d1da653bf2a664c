"""/session/oidc: a browser signs in to the dashboard at the OpenID Connect issuer of the service.

1. Both operations are pages of a browser: their problems are pages, too, with what the user can do.
2. The redirect URI is made from the public URL of the service, so it is the same in both requests to the issuer.
3. `next` is a path of this service. Anything that a browser could take for another host is refused.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from urllib.parse import quote

from bide.core.errors import InvalidInput, NotFound, Problem, ProviderUnavailable, SignInFailed
from bide.server.http.authentication import read_cookie, render_cookie, session_cookie
from bide.server.http.html import escape, html_response, wants_html
from bide.server.http.keys import UNCACHED
from bide.server.http.request import HttpRequest, Response, header_lines, wrong_parameter
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec
from bide.server.identities.keys import new_secret
from bide.server.identities.sign_in import OidcSignIn

PATH = "/session/oidc"
CALLBACK = f"{PATH}/callback"
COOKIE = "bide_sign_in"
SECONDS = 600  # for a sign-in at the issuer
MAX_NEXT = 1000
HOME = "/"
# Printable ASCII. The path has no empty segment and no backslash, which browsers read as a slash.
_SEGMENT = r"[!\"$-.0-9:;<=>@A-Z\[\]^_`a-z{|}~]+"
_NEXT = re.compile(rf"/(?:{_SEGMENT}(?:/{_SEGMENT})*/?)?(?:[?#][!-\[\]-~]*)?")
_NO_REFERRER = (b"referrer-policy", b"no-referrer")  # the URL of the callback has the code
_ANSWER = ("code", "state", "iss", "error", "error_description")
Handler = Callable[[HttpRequest], Awaitable[Response]]


def _page(handler: Handler) -> Handler:
    """Answer a problem with a page, if a browser asks."""

    @wraps(handler)
    async def answer(request: HttpRequest) -> Response:
        try:
            return await handler(request)
        except Problem as problem:
            if not wants_html(request.header(b"accept")):
                raise
            return _problem_page(request, problem)

    return answer


@_page
async def begin(request: HttpRequest) -> Response:
    place = request.one("next") or HOME
    if not _is_path(place):
        raise wrong_parameter("next", "write a path of this service, such as /#/jobs")
    text = new_secret()
    url = await _sign_in(request).begin(text, request.url + CALLBACK)
    cookie = f"{text}.{base64.urlsafe_b64encode(place.encode()).decode().rstrip('=')}"
    return _redirect(url, _cookie(request, cookie, SECONDS))


@_page
async def finish(request: HttpRequest) -> Response:
    sign_in = _sign_in(request)
    text, place = _read(request)
    answer = {name: request.one(name) for name in _ANSWER}
    user = await sign_in.finish(text, request.url + CALLBACK, answer)
    components = request.components
    session, principal = await components.sessions.open_for(user)
    request.principal = principal  # for the audit log
    seconds = principal.expires_at - components.store.now()
    return _redirect(
        request.base + place, _cookie(request, "", 0), session_cookie(request, session, seconds)
    )


def _sign_in(request: HttpRequest) -> OidcSignIn:
    found = request.components.sign_in
    if found is None:
        raise NotFound("nobody signs in to this service at an issuer: it has no --oidc-client-id")
    return found


def _is_path(text: str) -> bool:
    return len(text) <= MAX_NEXT and _NEXT.fullmatch(text) is not None


def _read(request: HttpRequest) -> tuple[str | None, str]:
    """The random text of the sign-in that this browser has begun, if any, and where it goes afterwards."""
    text, _, encoded = (read_cookie(request, COOKIE) or "").partition(".")
    try:
        place = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        place = HOME
    return text or None, place if _is_path(place) else HOME


def _cookie(request: HttpRequest, text: str, seconds: float) -> tuple[bytes, bytes]:
    return render_cookie(request, COOKIE, text, seconds, PATH)


def _redirect(url: str, *more: tuple[bytes, bytes]) -> Response:
    location = (b"location", url.encode("ascii", "replace"))
    return Response(303, [location, (b"content-length", b"0"), UNCACHED, _NO_REFERRER, *more])


def _problem_page(request: HttpRequest, problem: Problem) -> Response:
    """What went wrong, and links to try again or to sign in with a key."""
    again, home = escape(request.base + PATH), escape(f"{request.base}/")
    _, place = _read(request)
    if place != HOME:
        again += f"?next={quote(place, safe='')}"
    links = f'<li><a href="{home}">Sign in with an API key</a></li>'
    if not isinstance(problem, NotFound):
        links = f'<li><a href="{again}">Try again</a></li>{links}'
    body = (
        f"<section><p>{escape(problem.detail)}</p><p>{escape(problem.remedy)}</p></section>"
        f"<nav><ul>{links}</ul></nav>"
        f"<p><code>{problem.code}</code>, trace id <code>{escape(request.trace_id)}</code></p>"
    )
    response = html_response(problem.title, body)
    response.status = problem.status
    retry = {"Retry-After": "5"} if problem.status == 503 else {}
    response.headers += [UNCACHED, _NO_REFERRER, *header_lines({**retry, **problem.headers})]
    return response


_PROBLEMS = (NotFound, InvalidInput, SignInFailed, ProviderUnavailable)

OPERATIONS = [
    HttpOperation(
        "GET",
        PATH,
        begin,
        "beginSignIn",
        "Sign in at the OpenID Connect issuer",
        "keys",
        description=(
            "For a browser: redirects it to the issuer of `--oidc`, which sends it back to `/session/oidc/callback`. "
            "Problems are pages if the request prefers HTML."
        ),
        parameters=(
            Parameter(
                "next",
                "query",
                "Where the browser goes after the sign-in: a path of this service, such as `/#/jobs`.",
                {"type": "string", "maxLength": MAX_NEXT, "default": HOME},
            ),
        ),
        responses=(ResponseSpec(303, "To the issuer.", headers=("Location", "Set-Cookie")),),
        scope=None,
        problems=_PROBLEMS,
        example="$BASE/session/oidc",
    ),
    HttpOperation(
        "GET",
        CALLBACK,
        finish,
        "finishSignIn",
        "Begin the session of a user whom the issuer has signed in",
        "keys",
        description=(
            "The redirect URI of the service at the issuer. It accepts only the answer to a sign-in that began in the same "
            "browser, and checks the id token: signature, issuer, audience, time, nonce, and claims as in a bearer token."
        ),
        parameters=(
            Parameter("code", "query", "The authorization code."),
            Parameter("state", "query", "What the issuer got at the begin of the sign-in."),
            Parameter("iss", "query", "The issuer (RFC 9207)."),
            Parameter("error", "query", "Why the issuer refused the sign-in."),
            Parameter("error_description", "query", "The same, for humans."),
        ),
        other_parameters=True,
        audited=True,
        responses=(ResponseSpec(303, "To `next`.", headers=("Location", "Set-Cookie")),),
        scope=None,
        problems=_PROBLEMS,
        example="'$BASE/session/oidc/callback?code=CODE&state=STATE'",
    ),
]
