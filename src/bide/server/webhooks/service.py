"""Creates, changes and reads webhooks, and requests tests and replays.

Every change of a tenant's webhooks and the note for the publisher are one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from bide.core.errors import Conflict, InvalidInput, NotFound
from bide.core.jobs.record import Job
from bide.core.wire.http import is_job_id
from bide.server.engine import ServiceWarning
from bide.server.store import EventFilter, NewRecord, RecordAccess, RecordFilter, RecordTable
from bide.server.webhooks import (
    JOB_PREFIX,
    Delivery,
    DeliveryAttempt,
    JobWebhook,
    LogPosition,
    Only,
    Replay,
    SigningSecret,
    TenantSecrets,
    Webhook,
    rotated,
)
from bide.server.webhooks.addresses import Addresses
from bide.server.webhooks.message import TEST_TYPE, body_of
from bide.server.webhooks.publisher import (
    Publisher,
    PublisherStore,
    bump,
    tenant_secrets,
    text_of,
)
from bide.server.webhooks.sender import WebhookSender
from bide.server.webhooks.signature import key_of, new_secret

T = TypeVar("T")
MAX_WEBHOOKS = 100  # of a tenant
MAX_REPLAYS = 10  # of a webhook at the same time
WARNING = "webhook-disabled"
_read_webhook = msgspec.json.Decoder(Webhook)
_read_delivery = msgspec.json.Decoder(Delivery)


class WebhookService:
    """The webhooks of all tenants. `new_id` returns an id that sorts by time."""

    def __init__(
        self,
        store: PublisherStore,
        addresses: Addresses,
        sender: WebhookSender,
        publisher: Publisher,
        new_id: Callable[[float], str],
    ) -> None:
        self._store = store
        self._addresses = addresses
        self._sender = sender
        self.publisher = publisher
        self._new_id = new_id

    # --- webhooks

    async def create(self, tenant: str, url: str, fields: Mapping[str, Any]) -> tuple[Webhook, str]:
        """Store a new webhook. Return it and its secret."""
        await self.check_url(url)
        now, secret = self._store.now(), new_secret()
        begin = await self._begin(tenant)
        webhook = Webhook(
            id=self._new_id(now),
            tenant=tenant,
            url=url,
            secrets=(SigningSecret(secret),),
            created_at=now,
            updated_at=now,
            epoch=begin.epoch,
            after=begin.number,
            **fields,
        )
        if len(await self._store.records("webhooks", RecordFilter(tenant=tenant))) >= MAX_WEBHOOKS:
            raise Conflict(f"there are {MAX_WEBHOOKS} webhooks, which is the limit; delete one first")

        def change(tx: RecordAccess) -> None:
            tx.put_text("webhooks", webhook.id, text_of(webhook), tenant)
            bump(tx, tenant, begin)

        await self._change(change)
        return webhook, secret

    async def _begin(self, tenant: str) -> LogPosition:
        """The end of the log. A webhook that is created now receives later events."""
        page = await self._store.read_log(EventFilter(tenant=tenant, limit=1))
        return LogPosition(page.epoch, page.last, self._store.now())

    async def find(self, tenant: str) -> list[Webhook]:
        found = await self._store.records("webhooks", RecordFilter(tenant=tenant))
        return [_read_webhook.decode(text) for text in found.values()]

    async def get(self, tenant: str, webhook_id: str) -> Webhook:
        if not is_job_id(webhook_id):
            raise _unknown(webhook_id)
        filter = RecordFilter(tenant=tenant, prefix=webhook_id, limit=1)
        found = (await self._store.records("webhooks", filter)).get(webhook_id)
        if found is None:
            raise _unknown(webhook_id)
        return _read_webhook.decode(found)

    async def update(self, tenant: str, webhook_id: str, fields: Mapping[str, Any]) -> Webhook:
        if "url" in fields:
            await self.check_url(fields["url"])

        def changed(webhook: Webhook, now: float) -> Webhook:
            after = replace(webhook, **fields, updated_at=now)
            if "enabled" in fields:  # the caller has decided, so the service's reason no longer applies
                after = replace(after, disabled_at=None, reason=None, failing_since=None)
            return after

        return await self._update(tenant, webhook_id, changed)

    async def rotate(self, tenant: str, webhook_id: str) -> tuple[Webhook, str]:
        secret = new_secret()

        def changed(webhook: Webhook, now: float) -> Webhook:
            return replace(webhook, secrets=rotated(webhook.secrets, secret, now), updated_at=now)

        return await self._update(tenant, webhook_id, changed), secret

    async def _update(
        self, tenant: str, webhook_id: str, changed: Callable[[Webhook, float], Webhook]
    ) -> Webhook:
        await self.get(tenant, webhook_id)

        def change(tx: RecordAccess) -> Webhook | None:
            stored = tx.text("webhooks", webhook_id, tenant)
            if stored is None:
                return None
            after = changed(_read_webhook.decode(stored), tx.now)
            tx.put_text("webhooks", webhook_id, text_of(after), tenant)
            bump(tx, tenant, LogPosition("", 0))
            return after

        after = await self._change(change)
        if after is None:
            raise _unknown(webhook_id)
        return after

    async def delete(self, tenant: str, webhook_id: str) -> None:
        await self.get(tenant, webhook_id)

        def change(tx: RecordAccess) -> None:
            tx.put_text("webhooks", webhook_id, None, tenant)
            bump(tx, tenant, LogPosition("", 0))

        await self._change(change)

    async def _change(self, change: Callable[[RecordAccess], T]) -> T:
        done = await self._store.change_records(change)
        self.publisher.changed()
        return done

    # --- deliveries

    async def deliveries(
        self, tenant: str, webhook_id: str, before: str | None, limit: int
    ) -> tuple[list[Delivery], str | None]:
        """A page of deliveries, newest first, and the cursor of the next page."""
        await self.get(tenant, webhook_id)
        filter = RecordFilter(
            tenant=tenant,
            prefix=f"{webhook_id}/",
            before=None if before is None else f"{webhook_id}/{before}",
            last=True,
            limit=limit + 1,
        )
        pending = await self._store.records("pending_deliveries", filter)
        ended = await self._store.records("deliveries", filter)
        rows = sorted({**pending, **ended}.items(), reverse=True)
        page = [_read_delivery.decode(text) for _, text in rows[:limit]]
        return page, page[-1].id if len(rows) > limit else None

    async def job_deliveries(
        self, tenant: str, job_id: str, before: str | None, limit: int
    ) -> tuple[list[Delivery], str | None]:
        """A page of the deliveries of one job's events, to its own webhook and to all others, as `deliveries`."""

        def newest(prefix: str) -> RecordFilter:
            end = None if before is None else prefix + before
            return RecordFilter(tenant=tenant, prefix=prefix, before=end, last=True, limit=limit + 1)

        # A delivery moves from `pending_deliveries` to `deliveries`, so they are read in this order.
        tables: tuple[RecordTable, ...] = ("pending_deliveries", "deliveries")
        own = newest(f"{JOB_PREFIX}{job_id}/")
        indexed = await self._store.records("job_deliveries", newest(f"{job_id}/"))
        webhooks = {name.rpartition("/")[2]: webhook for name, webhook in indexed.items()}
        names = tuple(f"{webhook}/{id}" for id, webhook in webhooks.items())
        by_name = RecordFilter(tenant=tenant, names=names, limit=len(names))
        found: dict[str, Delivery] = {}
        for table in tables:
            rows = await self._store.records(table, own)
            if names:
                rows |= await self._store.records(table, by_name)
            for text in rows.values():
                delivery = _read_delivery.decode(text)
                found[delivery.id] = delivery
        ids = sorted({*found, *webhooks}, reverse=True)
        page = [found[id] for id in ids[:limit] if id in found]
        return page, ids[limit - 1] if len(ids) > limit else None

    async def test(self, tenant: str, webhook_id: str) -> Delivery:
        """Send a test message now, whether the webhook is enabled or not. Its health does not change."""
        webhook = await self.get(tenant, webhook_id)
        now = self._store.now()
        delivery_id = self._new_id(now)
        body = body_of(TEST_TYPE, now, msgspec.json.encode({"webhookId": webhook_id}))
        message_id = f"test_{delivery_id}"
        # The HTTP server handles a request without a task, and timeouts need one.
        sending = self._sender.send(webhook.url, webhook.signing(now), message_id, body)
        outcome = await asyncio.create_task(sending)
        delivery = Delivery(
            id=delivery_id,
            webhook=webhook_id,
            tenant=tenant,
            message_id=message_id,
            type=TEST_TYPE,
            job_id="",
            number=0,
            event_at=now,
            created_at=now,
            body=body.decode(),
            status="delivered" if outcome.succeeded else "failed",
            attempts=(DeliveryAttempt(now, outcome.seconds, outcome.status, outcome.error),),
            url=webhook.url,
            response=outcome.response,
        )
        text = text_of(delivery)
        await self._store.change_records(
            lambda tx: tx.put_text("deliveries", delivery.name, text, tenant)
        )
        return delivery

    async def replay(
        self, tenant: str, webhook_id: str, begin: float, end: float | None, only: Only
    ) -> Replay:
        """Request that the publisher delivers the events of a range of time again."""
        await self.get(tenant, webhook_id)
        now = self._store.now()
        end = now if end is None else end
        if end < begin:
            detail = "`to` is earlier than `from`"
            raise InvalidInput(detail, errors=[{"pointer": "/to", "detail": detail}])
        replay = Replay(self._new_id(now), webhook_id, tenant, begin, min(end, now), only, now)
        filter = RecordFilter(tenant=tenant, prefix=f"{webhook_id}/", limit=MAX_REPLAYS)
        if len(await self._store.records("replays", filter)) == MAX_REPLAYS:
            raise Conflict(
                f"{MAX_REPLAYS} replays of webhook {webhook_id} have not ended yet; try later"
            )

        def change(tx: RecordAccess) -> None:
            tx.put_text("replays", replay.name, text_of(replay), tenant)
            bump(tx, tenant, LogPosition("", 0))

        await self._change(change)
        return replay

    # --- webhooks of single jobs

    async def check_url(self, url: str, pointer: str = "/url") -> None:
        """Raise InvalidInput if a webhook cannot have this URL."""
        try:
            await asyncio.create_task(self._addresses.check_url(url))  # needs a task, as `test` does
        except ValueError as error:
            raise InvalidInput.at(pointer, str(error)) from None

    async def check_job_webhook(self, webhook: JobWebhook) -> None:
        """Raise InvalidInput if a job cannot have this webhook."""
        await self.check_url(webhook.url, "/webhook/url")
        if webhook.secret is not None:
            try:
                key_of(webhook.secret)
            except ValueError as error:
                raise InvalidInput.at("/webhook/secret", str(error)) from None

    async def records_of(self, job: Job, webhook: JobWebhook) -> tuple[NewRecord, ...]:
        """The records that are stored together with a job that has a webhook."""
        records = [NewRecord("job_webhooks", job.id, text_of(webhook))]
        self._store.keeps_events = True
        if job.tenant not in self.publisher.tenants:
            position = text_of(await self._begin(job.tenant))
            records.append(NewRecord("publisher", job.tenant, position, if_absent=True))
        return tuple(records)

    # --- the secret of a tenant

    def tenant_secret(self, tenant: str) -> Awaitable[tuple[SigningSecret, ...]]:
        new = new_secret()
        return self._store.change_records(lambda tx: tenant_secrets(tx, tenant, new))

    async def rotate_tenant_secret(self, tenant: str) -> tuple[SigningSecret, ...]:
        new = new_secret()
        begin = await self._begin(tenant)

        def change(tx: RecordAccess) -> tuple[SigningSecret, ...]:
            secrets = rotated(tenant_secrets(tx, tenant, new), new, tx.now)
            tx.put_text("webhook_secrets", tenant, text_of(TenantSecrets(secrets)), tenant)
            bump(tx, tenant, begin)
            return secrets

        return await self._change(change)

    # --- health

    def warnings(self) -> list[ServiceWarning]:
        """The webhooks that the service has disabled."""
        return [
            ServiceWarning(
                WARNING,
                f"Webhook {webhook.id} is disabled: {webhook.reason} Repair the endpoint, enable the webhook with "
                "PATCH, and replay the events that it has missed.",
            )
            for webhook in self.publisher.disabled()
        ]


def _unknown(webhook_id: str) -> NotFound:
    return NotFound(f"there is no webhook {webhook_id[:100]!r}")
