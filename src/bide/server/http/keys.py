"""/keys: API keys, for callers with the scope `admin`. Only the response that creates a key contains its text."""

from __future__ import annotations

from typing import Annotated

import msgspec

from bide.core.clock import render_instant
from bide.core.errors import (
    Conflict,
    InvalidInput,
    MalformedRequest,
    NotFound,
    PayloadTooLarge,
    UnsupportedMedia,
)
from bide.core.wire.http import read_instant_at
from bide.server.http.request import HttpRequest, Response, object_response
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec
from bide.server.identities import DEFAULT_SCOPES, TENANT, Scope
from bide.server.identities.keys import ID_PATTERN, MAX_OVERLAP, OVERLAP, ApiKey
from bide.server.intake import decode

UNCACHED = (b"cache-control", b"no-store")
Instant = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
TenantName = Annotated[str, msgspec.Meta(pattern=f"^(?:{TENANT.pattern})$")]


class NewKey(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    name: Annotated[str, msgspec.Meta(max_length=200)] = ""
    scopes: Annotated[tuple[Scope, ...], msgspec.Meta(min_length=1, max_length=10)] = DEFAULT_SCOPES
    tenant: TenantName | None = None  # None: that of the caller
    expires_at: Instant | None = None


class KeyRotation(msgspec.Struct, forbid_unknown_fields=True):
    """`overlap`: seconds for which the previous secret stays valid."""

    overlap: Annotated[float, msgspec.Meta(ge=0, le=MAX_OVERLAP)] = OVERLAP


class WireKey(msgspec.Struct, rename="camel"):
    """An API key. After a rotation, the previous secret is valid until `previousExpiresAt`."""

    id: str
    name: str
    tenant: str
    scopes: tuple[Scope, ...]
    created_at: str
    expires_at: str | None = None
    rotated_at: str | None = None
    previous_expires_at: str | None = None
    last_used_at: str | None = None


class WireKeyWithSecret(WireKey, rename="camel", kw_only=True):
    """An API key with its text, which no other response contains."""

    key: str


class WireKeys(msgspec.Struct):
    keys: list[WireKey]


_new = msgspec.json.Decoder(NewKey)
_rotation = msgspec.json.Decoder(KeyRotation)


def _optional(at: float | None) -> str | None:
    return None if at is None else render_instant(at)


def wire_key(key: ApiKey, used_at: float | None = None) -> WireKey:
    previous = [known.until for known in key.hashes[1:] if known.until is not None]
    return WireKey(
        key.id,
        key.name,
        key.tenant,
        key.scopes,
        render_instant(key.created_at),
        _optional(key.expires_at),
        _optional(key.rotated_at),
        _optional(max(previous, default=None)),
        _optional(used_at),
    )


def wire_key_with_secret(key: ApiKey, text: str) -> WireKeyWithSecret:
    return WireKeyWithSecret(*msgspec.structs.astuple(wire_key(key)), key=text)


async def listing(request: HttpRequest) -> Response:
    found = await request.components.keys.find_all()
    return object_response(WireKeys([wire_key(key, used_at) for key, used_at in found]), UNCACHED)


async def create(request: HttpRequest) -> Response:
    new = decode(_new, await request.json())
    if "\0" in new.name:
        raise InvalidInput.at("/name", "cannot contain NUL")
    if new.tenant is not None and not TENANT.fullmatch(new.tenant):  # `$` allows a line break at the end
        raise InvalidInput.at("/tenant", "must be one line")
    key, text = await request.components.keys.create(
        tenant=request.tenant if new.tenant is None else new.tenant,
        scopes=new.scopes,
        name=new.name,
        expires_at=_expiry(request, new.expires_at),
    )
    return object_response(wire_key_with_secret(key, text), UNCACHED, status=201)


def _expiry(request: HttpRequest, text: str | None) -> float | None:
    if text is None:
        return None
    found = read_instant_at("/expiresAt", text)
    if found <= request.components.store.now():
        raise InvalidInput.at("/expiresAt", "is in the past")
    return found


async def rotate(request: HttpRequest) -> Response:
    body = await request.raw()
    wanted = decode(_rotation, body) if body else KeyRotation()
    key, text = await request.components.keys.rotate(request.args[0], wanted.overlap)
    return object_response(wire_key_with_secret(key, text), UNCACHED)


async def revoke(request: HttpRequest) -> Response:
    await request.components.keys.revoke(request.args[0])
    return Response(204, [])


_KEY_ID = Parameter(
    "keyId",
    "path",
    "The id of the key.",
    {"type": "string", "pattern": f"^{ID_PATTERN}$"},
    required=True,
)
_READING = (MalformedRequest, PayloadTooLarge, InvalidInput)
_JSON = "-H 'Content-Type: application/json'"

OPERATIONS = [
    HttpOperation(
        "GET",
        "/keys",
        listing,
        "listKeys",
        "List the API keys of all tenants",
        "keys",
        description="Without their secrets, the oldest first. `lastUsedAt` is about one minute late.",
        responses=(ResponseSpec(200, "All keys.", WireKeys),),
        scope="admin",
        example="$BASE/keys",
    ),
    HttpOperation(
        "POST",
        "/keys",
        create,
        "createKey",
        "Create an API key",
        "keys",
        description="Without `scopes` the key has `read`, `submit` and `control`, and without `tenant` that of the caller.",
        body="NewKey",
        reads=NewKey,
        responses=(ResponseSpec(201, "Created. `key` is shown only once.", WireKeyWithSecret),),
        scope="admin",
        problems=(*_READING, UnsupportedMedia, Conflict),
        example=f'$BASE/keys {_JSON} -d \'{{"name": "backend", "scopes": ["read", "submit"]}}\'',
    ),
    HttpOperation(
        "POST",
        "/keys/{keyId}/rotate",
        rotate,
        "rotateKey",
        "Replace the secret of an API key",
        "keys",
        description=f"The previous secret stays valid for `overlap` seconds, {OVERLAP:g} by default. 0: it is invalid now.",
        parameters=(_KEY_ID,),
        body="KeyRotation",
        reads=KeyRotation,
        needs_body=False,
        responses=(ResponseSpec(200, "The new key, which is shown only once.", WireKeyWithSecret),),
        scope="admin",
        problems=(NotFound, *_READING),
        example="-X POST $BASE/keys/KEY_ID/rotate",
    ),
    HttpOperation(
        "DELETE",
        "/keys/{keyId}",
        revoke,
        "revokeKey",
        "Revoke an API key",
        "keys",
        description="Requests with the key get `401`, and its open streams end, within a few seconds on all replicas.",
        parameters=(_KEY_ID,),
        responses=(ResponseSpec(204, "Revoked."),),
        scope="admin",
        problems=(NotFound,),
        example="-X DELETE $BASE/keys/KEY_ID",
    ),
]
