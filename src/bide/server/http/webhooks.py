"""/webhooks: endpoints that receive events, their deliveries, tests and replays, and the tenant's secret for single jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from bide.core.clock import render_instant
from bide.core.errors import (
    BadCursor,
    Conflict,
    Forbidden,
    Gone,
    InvalidInput,
    MalformedRequest,
    NotFound,
    PayloadTooLarge,
    UnsupportedMedia,
)
from bide.core.wire.http import ID_PATTERN, is_job_id, read_instant_at
from bide.server.http.request import HttpRequest, Response, object_response, wrong_parameter
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec
from bide.server.http.status import JOB_ID, find
from bide.server.identities import Scope
from bide.server.intake import Label, decode
from bide.server.webhooks import JOB_PREFIX, Delivery, DeliveryStatus, Only, SigningSecret, Webhook
from bide.server.webhooks.service import WebhookService

MAX_PAGE = 100
EventType = Literal["status", "terminal", "step", "log", "output", "deleted", "queue"]
UrlText = Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]
EventNames = Annotated[tuple[EventType, ...], msgspec.Meta(min_length=1, max_length=7)]
KindNames = Annotated[tuple[Label, ...], msgspec.Meta(max_length=100)]
LabelMap = Annotated[dict[Label, Label], msgspec.Meta(max_length=50)]
UNCACHED = (b"cache-control", b"no-store")


class NewWebhook(msgspec.Struct, forbid_unknown_fields=True):
    url: UrlText
    events: EventNames = ("terminal",)
    kinds: KindNames = ()
    labels: LabelMap = {}


class WebhookPatch(msgspec.Struct, forbid_unknown_fields=True):
    url: UrlText | msgspec.UnsetType = msgspec.UNSET
    events: EventNames | msgspec.UnsetType = msgspec.UNSET
    kinds: KindNames | msgspec.UnsetType = msgspec.UNSET
    labels: LabelMap | msgspec.UnsetType = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET


class ReplayRequest(msgspec.Struct, forbid_unknown_fields=True, rename={"begin": "from", "end": "to"}):
    begin: str
    end: str | None = None
    only: Only = "failed"


class WireWebhook(msgspec.Struct, rename="camel"):
    """A webhook. `disabledAt` and `reason` say when and why the service has disabled it."""

    id: str
    url: str
    events: tuple[str, ...]
    kinds: tuple[str, ...]
    labels: dict[str, str]
    enabled: bool
    created_at: str
    updated_at: str
    disabled_at: str | None = None
    reason: str | None = None


class WireWebhookWithSecret(WireWebhook, rename="camel", kw_only=True):
    """A webhook and its secret, which no other response contains."""

    secret: str


class WireWebhooks(msgspec.Struct):
    webhooks: list[WireWebhook]


class WireAttempt(msgspec.Struct, rename="camel"):
    """One request: the status of the response, or the error."""

    attempted_at: str
    seconds: float
    status: int | None
    error: str | None


class WireDelivery(msgspec.Struct, rename="camel"):
    """A message to the webhook. `response` is the first KiB of the last response. `webhookId` is null if the webhook is the
    job's own.
    """

    id: str
    webhook_id: str | None
    message_id: str
    type: str
    status: DeliveryStatus
    created_at: str
    next_attempt_at: str | None
    replay: str | None
    url: str
    body: str
    response: str
    attempts: list[WireAttempt]


class WireDeliveries(msgspec.Struct):
    """Deliveries, newest first; `next` is the cursor of the next page."""

    deliveries: list[WireDelivery]
    next: str | None


class WireReplay(msgspec.Struct, rename={"begin": "from", "end": "to"}):
    """The deliveries of a replay have its id in `replay`."""

    id: str
    begin: str
    end: str
    only: Only


class WireSecret(msgspec.Struct, rename="camel"):
    """The secret of jobs whose webhook has none. `previous` still signs until `previousExpiresAt`."""

    secret: str
    previous: str | None = None
    previous_expires_at: str | None = None


_new = msgspec.json.Decoder(NewWebhook)
_patch = msgspec.json.Decoder(WebhookPatch)
_replay = msgspec.json.Decoder(ReplayRequest)


def _service(request: HttpRequest) -> WebhookService:
    return request.components.webhooks


def _optional(at: float | None) -> str | None:
    return None if at is None else render_instant(at)


def _fields(webhook: Webhook) -> dict[str, Any]:
    return {
        "id": webhook.id,
        "url": webhook.url,
        "events": webhook.events,
        "kinds": webhook.kinds,
        "labels": webhook.labels,
        "enabled": webhook.enabled,
        "created_at": render_instant(webhook.created_at),
        "updated_at": render_instant(webhook.updated_at),
        "disabled_at": _optional(webhook.disabled_at),
        "reason": webhook.reason,
    }


def _wire(webhook: Webhook) -> WireWebhook:
    return WireWebhook(**_fields(webhook))


def _with_secret(webhook: Webhook, secret: str) -> WireWebhookWithSecret:
    return WireWebhookWithSecret(**_fields(webhook), secret=secret)


def _delivery(delivery: Delivery) -> WireDelivery:
    pending = delivery.status == "pending"
    return WireDelivery(
        id=delivery.id,
        webhook_id=None if delivery.webhook.startswith(JOB_PREFIX) else delivery.webhook,
        message_id=delivery.message_id,
        type=delivery.type,
        status=delivery.status,
        created_at=render_instant(delivery.created_at),
        next_attempt_at=render_instant(delivery.next_at) if pending else None,
        replay=delivery.replay,
        url=delivery.url,
        body=delivery.body,
        response=delivery.response,
        attempts=[
            WireAttempt(render_instant(a.at), a.seconds, a.status, a.error) for a in delivery.attempts
        ],
    )


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields in the form of the record. Raises InvalidInput."""
    texts = [*fields.get("kinds", ()), *(t for pair in fields.get("labels", {}).items() for t in pair)]
    if any("\0" in text for text in texts):
        detail = "kinds and labels cannot contain NUL"
        raise InvalidInput(detail, errors=[{"pointer": "", "detail": detail}])
    for name in ("events", "kinds"):
        if name in fields:
            fields[name] = tuple(dict.fromkeys(fields[name]))
    return fields


def _check_events(request: HttpRequest, events: Sequence[str]) -> None:
    """Queues belong to the service and not to a tenant, so their events need the scope of GET /queues."""
    if "queue" in events and not request.principal.allows("admin"):
        raise Forbidden("`queue` events need the scope `admin`")


async def _find_own(request: HttpRequest) -> None:
    """Raise NotFound if there is no such webhook, and Forbidden if the caller may not see its events."""
    webhook = await _service(request).get(request.tenant, request.args[0])
    _check_events(request, webhook.events)


async def create(request: HttpRequest) -> Response:
    new = decode(_new, await request.json())
    _check_events(request, new.events)
    fields = _checked({"events": new.events, "kinds": new.kinds, "labels": new.labels})
    webhook, secret = await _service(request).create(request.tenant, new.url, fields)
    location = (b"location", f"{request.base}/webhooks/{webhook.id}".encode())
    return object_response(_with_secret(webhook, secret), UNCACHED, location, status=201)


async def listing(request: HttpRequest) -> Response:
    found = await _service(request).find(request.tenant)
    return object_response(WireWebhooks([_wire(webhook) for webhook in found]), UNCACHED)


async def get(request: HttpRequest) -> Response:
    found = await _service(request).get(request.tenant, request.args[0])
    return object_response(_wire(found), UNCACHED)


async def patch(request: HttpRequest) -> Response:
    body = decode(_patch, await request.json())
    await _find_own(request)
    if body.events is not msgspec.UNSET:
        _check_events(request, body.events)
    given = {name: getattr(body, name) for name in body.__struct_fields__}
    fields = _checked({name: value for name, value in given.items() if value is not msgspec.UNSET})
    changed = await _service(request).update(request.tenant, request.args[0], fields)
    return object_response(_wire(changed), UNCACHED)


async def delete(request: HttpRequest) -> Response:
    await _service(request).delete(request.tenant, request.args[0])
    return Response(204, [])


async def rotate(request: HttpRequest) -> Response:
    await _find_own(request)
    webhook, secret = await _service(request).rotate(request.tenant, request.args[0])
    return object_response(_with_secret(webhook, secret), UNCACHED)


async def test(request: HttpRequest) -> Response:
    delivery = await _service(request).test(request.tenant, request.args[0])
    return object_response(_delivery(delivery), UNCACHED)


async def deliveries(request: HttpRequest) -> Response:
    before, limit = _page(request)
    await _find_own(request)
    page, following = await _service(request).deliveries(request.tenant, request.args[0], before, limit)
    return object_response(WireDeliveries([_delivery(d) for d in page], following), UNCACHED)


async def job_deliveries(request: HttpRequest) -> Response:
    before, limit = _page(request)
    job = await find(request, request.args[0])
    page, following = await _service(request).job_deliveries(job.tenant, job.id, before, limit)
    return object_response(WireDeliveries([_delivery(d) for d in page], following), UNCACHED)


def _page(request: HttpRequest) -> tuple[str | None, int]:
    """The cursor and the limit. Raises BadCursor and InvalidInput."""
    before, text = request.one("cursor"), request.one("limit")
    if before is not None and not is_job_id(before):
        raise BadCursor("the cursor is not one that this service returned")
    if text is None:
        return before, 50
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MAX_PAGE):
        raise wrong_parameter("limit", f"must be from 1 to {MAX_PAGE}")
    return before, int(text)


async def replay(request: HttpRequest) -> Response:
    await _find_own(request)
    body = decode(_replay, await request.json())
    begin = read_instant_at("/from", body.begin)
    end = None if body.end is None else read_instant_at("/to", body.end)
    found = await _service(request).replay(request.tenant, request.args[0], begin, end, body.only)
    answer = WireReplay(found.id, render_instant(found.begin), render_instant(found.end), found.only)
    return object_response(answer, UNCACHED, status=202)


async def secret(request: HttpRequest) -> Response:
    return _secret(await _service(request).tenant_secret(request.tenant))


async def rotate_secret(request: HttpRequest) -> Response:
    return _secret(await _service(request).rotate_tenant_secret(request.tenant))


def _secret(secrets: tuple[SigningSecret, ...]) -> Response:
    old = secrets[1] if len(secrets) > 1 else None
    shown = WireSecret(
        secrets[0].value,
        None if old is None else old.value,
        None if old is None else _optional(old.until),
    )
    return object_response(shown, UNCACHED)


WEBHOOK_ID = Parameter(
    "webhookId",
    "path",
    "The id of the webhook.",
    {"type": "string", "pattern": f"^{ID_PATTERN}$"},
    required=True,
)
_PAGE = (
    Parameter(
        "limit",
        "query",
        "Deliveries per page.",
        {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50},
    ),
    Parameter(
        "cursor",
        "query",
        "`next` of the previous page.",
        {"type": "string", "pattern": f"^{ID_PATTERN}$"},
    ),
)
_READING = (MalformedRequest, PayloadTooLarge, UnsupportedMedia, InvalidInput)
_ABOUT = (
    "Messages follow Standard Webhooks: the headers `webhook-id`, `webhook-timestamp` and `webhook-signature`, and the body "
    '`{"type", "timestamp", "data"}`, where `data` is the event. '
)
_ONE = "$BASE/webhooks/WEBHOOK_ID"
_JSON = "-H 'Content-Type: application/json'"


def _operation(
    method: Literal["GET", "POST", "PATCH", "DELETE"],
    path: str,
    handler: Any,
    name: str,
    summary: str,
    response: ResponseSpec,
    example: str,
    scope: Scope = "control",
    **more: Any,
) -> HttpOperation:
    if "{webhookId}" in path:
        more["parameters"] = (WEBHOOK_ID, *more.get("parameters", ()))
        more["problems"] = (NotFound, *more.get("problems", ()))
    return HttpOperation(
        method,
        path,
        handler,
        name,
        summary,
        "webhooks",
        responses=(response,),
        scope=scope,
        example=example,
        **more,
    )


OPERATIONS = [
    _operation(
        "POST",
        "/webhooks",
        create,
        "createWebhook",
        "Create a webhook",
        ResponseSpec(
            201, "Created. The secret is shown only once.", WireWebhookWithSecret, headers=("Location",)
        ),
        f'-X POST $BASE/webhooks {_JSON} -d \'{{"url": "https://receiver.example/bide"}}\'',
        description=_ABOUT
        + "It receives the events of `events` that follow, of jobs of one of `kinds` that have all of "
        "`labels`. `terminal` is every status event with a final status.",
        body="NewWebhook",
        reads=NewWebhook,
        problems=(*_READING, Conflict),
    ),
    _operation(
        "GET",
        "/webhooks",
        listing,
        "listWebhooks",
        "List the webhooks",
        ResponseSpec(200, "All webhooks, without their secrets.", WireWebhooks),
        "$BASE/webhooks",
        scope="read",
    ),
    _operation(
        "GET",
        "/webhooks/secret",
        secret,
        "getWebhookSecret",
        "Get the secret of jobs whose webhook has none",
        ResponseSpec(200, "The secret. The first request creates it.", WireSecret),
        "$BASE/webhooks/secret",
        description="A submission may have a `webhook` for this job only. Without a `secret` of its own, this one signs "
        "its messages.",
    ),
    _operation(
        "POST",
        "/webhooks/secret/rotate",
        rotate_secret,
        "rotateWebhookSecret",
        "Replace the secret of jobs whose webhook has none",
        ResponseSpec(200, "The new secret. The old one signs, too, for 24 hours.", WireSecret),
        "-X POST $BASE/webhooks/secret/rotate",
    ),
    _operation(
        "GET",
        "/webhooks/{webhookId}",
        get,
        "getWebhook",
        "Get a webhook",
        ResponseSpec(200, "The webhook.", WireWebhook),
        _ONE,
        scope="read",
    ),
    _operation(
        "PATCH",
        "/webhooks/{webhookId}",
        patch,
        "updateWebhook",
        "Change a webhook",
        ResponseSpec(200, "The changed webhook.", WireWebhook),
        f"-X PATCH {_ONE} {_JSON} -d '{{\"enabled\": true}}'",
        description="Fields that are left out do not change. Deliveries that wait for another attempt use the new URL. "
        "If the webhook is disabled, they fail.",
        body="WebhookPatch",
        reads=WebhookPatch,
        problems=_READING,
    ),
    _operation(
        "DELETE",
        "/webhooks/{webhookId}",
        delete,
        "deleteWebhook",
        "Delete a webhook and its deliveries",
        ResponseSpec(204, "Deleted."),
        f"-X DELETE {_ONE}",
    ),
    _operation(
        "POST",
        "/webhooks/{webhookId}/rotate",
        rotate,
        "rotateWebhook",
        "Replace the secret of a webhook",
        ResponseSpec(
            200,
            "The new secret, which is shown only once. The service signs with the old one, too, for 24 hours.",
            WireWebhookWithSecret,
        ),
        f"-X POST {_ONE}/rotate",
    ),
    _operation(
        "POST",
        "/webhooks/{webhookId}/test",
        test,
        "testWebhook",
        "Send a test message",
        ResponseSpec(200, "The delivery, after its only attempt.", WireDelivery),
        f"-X POST {_ONE}/test",
        description="The service sends a message of the type `webhook.test` now, also if the webhook is disabled, and "
        "reports the response of the endpoint.",
    ),
    _operation(
        "GET",
        "/webhooks/{webhookId}/deliveries",
        deliveries,
        "listDeliveries",
        "List the deliveries of a webhook",
        ResponseSpec(200, "Deliveries of the last 7 days, newest first.", WireDeliveries),
        f"'{_ONE}/deliveries?limit=10'",
        scope="read",
        parameters=_PAGE,
        problems=(BadCursor, InvalidInput),
    ),
    _operation(
        "GET",
        "/jobs/{jobId}/deliveries",
        job_deliveries,
        "listJobDeliveries",
        "List the webhook deliveries of a job",
        ResponseSpec(200, "Deliveries of the last 7 days, newest first.", WireDeliveries),
        "'$BASE/jobs/JOB_ID/deliveries?limit=10'",
        scope="read",
        description="The deliveries of the job's events to all webhooks, and to the `webhook` of its submission.",
        parameters=(JOB_ID, *_PAGE),
        problems=(NotFound, Gone, BadCursor, InvalidInput),
    ),
    _operation(
        "POST",
        "/webhooks/{webhookId}/replay",
        replay,
        "replayWebhook",
        "Deliver the events of a range of time again",
        ResponseSpec(202, "Accepted. The deliveries follow.", WireReplay),
        f'-X POST {_ONE}/replay {_JSON} -d \'{{"from": "2026-01-01T00:00:00Z", "only": "failed"}}\'',
        description="`failed`: the events since the webhook was created that the endpoint has not accepted, also those "
        "that occurred while the webhook was disabled. `all`: all events that match the webhook, also earlier ones. A "
        "replay also sends to a disabled webhook, and its outcome does not enable or disable it.",
        body="ReplayRequest",
        reads=ReplayRequest,
        problems=(*_READING, Conflict),
    ),
]
