"""POST /tokens: a token with which a browser page follows some jobs for some minutes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from bide.core.clock import render_instant
from bide.core.errors import Conflict, InvalidInput, MalformedRequest, PayloadTooLarge, UnsupportedMedia
from bide.core.wire.http import is_job_id
from bide.server.http.keys import UNCACHED
from bide.server.http.request import HttpRequest, Response, object_response
from bide.server.http.routing import HttpOperation, ResponseSpec
from bide.server.identities.tokens import MAX_LENGTH, MAX_TTL
from bide.server.intake import decode

MAX_JOBS = 100
TokenScope = Literal["read", "submit", "control"]


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    """A token for these jobs, or for the jobs that have all these labels: either field."""

    jobs: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=MAX_JOBS)] | None = None
    labels: Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=10)] | None = None
    scopes: Annotated[tuple[TokenScope, ...], msgspec.Meta(min_length=1, max_length=3)] = ("read",)
    ttl: Annotated[float, msgspec.Meta(gt=0, le=MAX_TTL)] = 300.0


class WireToken(msgspec.Struct, rename="camel"):
    token: str
    expires_at: str


_new = msgspec.json.Decoder(NewToken)


async def create(request: HttpRequest) -> Response:
    new = decode(_new, await request.json())
    components = request.components
    if components.authenticator is None:
        raise Conflict("the service runs without authentication, so pages need no token")
    if (new.jobs is None) == (new.labels is None):
        raise InvalidInput.at("", "give either `jobs` or `labels`")
    for index, job_id in enumerate(new.jobs or ()):
        if not is_job_id(job_id):
            raise InvalidInput.at(f"/jobs/{index}", "is not the id of a job")
    token, end = await components.tokens.create(
        request.principal, scopes=new.scopes, ttl=new.ttl, jobs=new.jobs, labels=new.labels
    )
    if len(token) > MAX_LENGTH:
        raise InvalidInput.at(
            "", f"the token has {len(token)} characters, more than {MAX_LENGTH}: name fewer jobs"
        )
    return object_response(WireToken(token, render_instant(end)), UNCACHED, status=201)


OPERATIONS = [
    HttpOperation(
        "POST",
        "/tokens",
        create,
        "createToken",
        "Create a token for a browser page",
        "keys",
        description=(
            "The token is for the jobs with these ids, or for those with all these labels. Other jobs do not exist for it, "
            f"and lists get `403`. It is valid for `ttl` seconds, at most {MAX_TTL:g}, and ends with the key that made it."
        ),
        body="NewToken",
        reads=NewToken,
        responses=(ResponseSpec(201, "The token.", WireToken),),
        scope="submit",
        problems=(MalformedRequest, Conflict, PayloadTooLarge, UnsupportedMedia, InvalidInput),
        example=(
            "$BASE/tokens -H 'Content-Type: application/json' "
            '-d \'{"labels": {"user": "7"}, "scopes": ["read"], "ttl": 300}\''
        ),
    )
]
