"""The identity of a request: which credential it has, and whether its scope allows the operation.

The service checks it after the route is known, and before it reads the query, the body or the store.
"""

from __future__ import annotations

from bide.core.errors import Forbidden, Problem, Unauthenticated
from bide.server.http.request import HttpRequest
from bide.server.http.routing import Route
from bide.server.identities import NOBODY, Principal
from bide.server.identities.authenticator import Authenticator

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="bide"'}


async def authenticate(request: HttpRequest, route: Route, authenticator: Authenticator) -> None:
    """Set the principal of a request. Raises Unauthenticated or Forbidden. A public operation needs no credential, and
    ignores a wrong one.
    """
    scope = route.scope
    principal: Principal | None
    if scope is None:
        principal = await _optional(request, authenticator)
    else:
        token = _bearer(request)
        # Most requests have a token that is known, and need no await.
        principal = authenticator.known(token)
        if principal is None:
            principal = await authenticator.verify(token)
        if scope not in principal.scopes:
            raise Forbidden(
                f"this needs the scope `{scope}`, and {principal.subject} has "
                f"{', '.join(sorted(principal.scopes)) or 'none'}",
                headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
            )
    request.principal = principal
    request.tenant = principal.tenant


async def _optional(request: HttpRequest, authenticator: Authenticator) -> Principal:
    if request.header(b"authorization") is None:
        return NOBODY
    try:
        token = _bearer(request)
        return authenticator.known(token) or await authenticator.verify(token)
    except Problem:  # also if the store cannot be read: a probe must still get its answer
        return NOBODY


def _bearer(request: HttpRequest) -> str:
    """The bearer token of a request. Raises Unauthenticated."""
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
    return token
