"""GET /audit: the mutating calls of all tenants, for callers with the scope `admin`; and the entry of a call."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import msgspec

from bide.core.clock import render_instant
from bide.core.errors import BadCursor, InvalidInput
from bide.server.http.jobs import MAX_LIMIT, read_instant_parameter, read_limit
from bide.server.http.keys import UNCACHED
from bide.server.http.proxies import TrustedProxies
from bide.server.http.request import HttpRequest, Response, object_response
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec, Route
from bide.server.identities.audit import (
    CURSOR_PATTERN,
    MAX_EXAMINED,
    AuditEntry,
    AuditFilter,
    is_cursor,
)

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
DISCONNECTED = 499  # the status of a call whose caller disconnected before the response
MAX_PATH = 500


class WireAuditEntry(msgspec.Struct, rename="camel"):
    """One mutating call. `status` 499: the caller disconnected before the response. `resource`: what it has created."""

    at: Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
    subject: str
    tenant: str
    operation: str
    method: str
    path: str
    resource: str | None
    address: str | None
    status: int
    trace_id: str


class WireAudit(msgspec.Struct):
    """Entries, newest first; `next` is the cursor of the next page."""

    entries: list[WireAuditEntry]
    next: str | None


def entry_of(
    request: HttpRequest, route: Route, response: Response | None, proxies: TrustedProxies | None
) -> AuditEntry:
    """The entry of a call. None: the caller has disconnected before the response."""
    principal, path, resource = request.principal, request.path, ""
    if response is not None:
        for name, value in response.headers:
            if name == b"location":
                resource = value.decode()
                break
    if proxies is not None:
        address = proxies.client_address(request)
    else:
        client = request.scope.get("client")
        address = client[0] if client else ""
    return AuditEntry(
        round(request.components.store.now(), 3),  # as instants are rendered
        principal.subject,
        principal.tenant,
        route.operation.name,
        request.scope["method"],
        path if path.isascii() and len(path) <= MAX_PATH else quote(path[:MAX_PATH], errors="replace"),
        resource,
        address,
        DISCONNECTED if response is None else response.status,
        request.trace_id,
    )


async def listing(request: HttpRequest) -> Response:
    cursor = request.one("cursor")
    if cursor is not None and not is_cursor(cursor):
        raise BadCursor("the cursor is not one that this service returned")
    wanted = AuditFilter(
        since=read_instant_parameter(request, "since"),
        until=read_instant_parameter(request, "until"),
        subject=request.one("subject"),
        tenant=request.one("tenant"),
        operation=request.one("operation"),
    )
    limit = read_limit(request.one("limit"))
    entries, following = await request.components.audit.read(wanted, cursor, limit)
    return object_response(WireAudit([_wire(entry) for entry in entries], following), UNCACHED)


def _wire(entry: AuditEntry) -> WireAuditEntry:
    return WireAuditEntry(
        render_instant(entry.at),
        entry.subject,
        entry.tenant,
        entry.operation,
        entry.method,
        entry.path,
        entry.resource or None,
        entry.address or None,
        entry.status,
        entry.trace_id,
    )


def _query(name: str, description: str, **schema: object) -> Parameter:
    return Parameter(name, "query", description, {"type": "string", **schema})


OPERATIONS = [
    HttpOperation(
        "GET",
        "/audit",
        listing,
        "listAudit",
        "List the mutating calls of all tenants",
        "keys",
        description="Newest first. Calls with GET and HEAD are not recorded. An entry is readable about one second after "
        f"its call. A page examines up to {MAX_EXAMINED} entries, so with a filter it can be short although `next` is set.",
        parameters=(
            _query("since", "Only calls at this instant or later.", format="date-time"),
            _query("until", "Only calls before this instant.", format="date-time"),
            _query("subject", "Only calls of this caller, such as `key:4t9hq2m0xk1c`."),
            _query("tenant", "Only calls of this tenant."),
            _query(
                "operation", "Only calls of this operation, by its `operationId`, such as `submitJob`."
            ),
            Parameter(
                "limit",
                "query",
                "Entries per page.",
                {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 50},
            ),
            _query("cursor", "`next` of the previous page.", pattern=f"^{CURSOR_PATTERN}$"),
        ),
        responses=(ResponseSpec(200, "Entries.", WireAudit),),
        scope="admin",
        problems=(BadCursor, InvalidInput),
        example="'$BASE/audit?limit=10'",
    ),
]
