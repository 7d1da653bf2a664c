"""/session: signing in and out of the dashboard with an API key, and who the caller is."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from bide.core.clock import render_instant
from bide.core.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    MalformedRequest,
    PayloadTooLarge,
    Unauthenticated,
    Unavailable,
    UnsupportedMedia,
)
from bide.server.http.authentication import session_cookie
from bide.server.http.keys import UNCACHED
from bide.server.http.request import HttpRequest, Response, object_response, wrong_parameter
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec
from bide.server.identities import Principal, Scope
from bide.server.identities.sessions import csrf_token
from bide.server.intake import decode


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class WireSession(msgspec.Struct, rename="camel"):
    """The caller. `csrf` is for the header X-CSRF-Token; it is null if the caller has no session."""

    subject: str
    tenant: str
    scopes: list[Scope]
    csrf: str | None
    expires_at: str | None


_sign_in = msgspec.json.Decoder(SignIn)


def _wire(principal: Principal, csrf: str | None) -> WireSession:
    end = principal.expires_at
    return WireSession(
        principal.subject,
        principal.tenant,
        sorted(principal.scopes),  # type: ignore[arg-type]
        csrf,
        None if end == math.inf else render_instant(end),
    )


async def sign_in(request: HttpRequest) -> Response:
    body = decode(_sign_in, await request.json())
    components = request.components
    if components.authenticator is None:
        raise Conflict("the service runs without authentication, so nobody signs in")
    text, principal = await components.sessions.open(body.key)
    request.principal = principal
    cookie = session_cookie(request, text, principal.expires_at - components.store.now())
    return object_response(_wire(principal, csrf_token(text)), UNCACHED, cookie)


async def get(request: HttpRequest) -> Response:
    _check_caller(request)
    return object_response(_wire(request.principal, request.csrf), UNCACHED)


async def sign_out(request: HttpRequest) -> Response:
    everywhere = request.one("everywhere")
    if everywhere not in (None, "true", "false"):
        raise wrong_parameter("everywhere", "write true or false")
    _check_caller(request)
    if request.principal.is_restricted:
        raise Forbidden("a browser token has no sessions")
    await request.components.sessions.close(request.principal, everywhere=everywhere == "true")
    return Response(204, [UNCACHED, session_cookie(request, "", 0)])


def _check_caller(request: HttpRequest) -> None:
    if request.refusal is not None:
        raise request.refusal


_CALLER = (Unauthenticated, Unavailable)

OPERATIONS = [
    HttpOperation(
        "POST",
        "/session",
        sign_in,
        "signIn",
        "Sign in with an API key",
        "keys",
        description=(
            "Begins a session of a browser. Its cookie is a credential for all operations that the key allows; requests "
            "that change something also need the header `X-CSRF-Token` with `csrf`. The session ends with the key."
        ),
        body="SignIn",
        reads=SignIn,
        responses=(ResponseSpec(200, "The session.", WireSession, headers=("Set-Cookie",)),),
        scope=None,
        problems=(
            *(MalformedRequest, Unauthenticated, Conflict, PayloadTooLarge),
            *(UnsupportedMedia, InvalidInput),
        ),
        example="-X POST $BASE/session -H 'Content-Type: application/json' -d '{\"key\": \"KEY\"}'",
    ),
    HttpOperation(
        "GET",
        "/session",
        get,
        "getSession",
        "Get who the caller is",
        "keys",
        description="With any credential. The CSRF token is for callers with a session.",
        responses=(ResponseSpec(200, "The caller.", WireSession),),
        scope=None,
        problems=_CALLER,
        example="$BASE/session",
    ),
    HttpOperation(
        "DELETE",
        "/session",
        sign_out,
        "signOut",
        "Sign out",
        "keys",
        parameters=(
            Parameter(
                "everywhere",
                "query",
                "`true`: all sessions of the key end, also those of other browsers.",
                {"type": "boolean", "default": False},
            ),
        ),
        responses=(ResponseSpec(204, "The session has ended.", headers=("Set-Cookie",)),),
        scope=None,
        problems=(*_CALLER, Forbidden, InvalidInput),
        example="-X DELETE $BASE/session",
    ),
]
