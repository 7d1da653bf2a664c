"""The identity of a request: which credential it has, and whether its scope allows the operation.

The service checks it after the route is known, and before it reads the query, the body or the store.
"""

from __future__ import annotations

from bide.core.errors import Forbidden, Problem, Unauthenticated
from bide.server.http.request import HttpRequest
from bide.server.http.routing import Route
from bide.server.identities import NOBODY
from bide.server.identities.authenticator import Authenticator

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
        token, header = _bearer(request)
        principal = await authenticator.verify(token, header)
    except (
        Problem
    ):  # for a public operation also if the store cannot be read: a probe must still get its answer
        if scope is not None:
            raise
        principal = NOBODY
    request.principal = principal  # also of a call that is refused, for the audit log
    if scope is not None and scope not in principal.scopes:
        raise Forbidden(
            f"this needs the scope `{scope}`, and {principal.subject} has "
            f"{', '.join(sorted(principal.scopes)) or 'none'}",
            headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
        )
    request.tenant = principal.tenant


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
