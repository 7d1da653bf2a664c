"""Delivers events to the endpoints of webhooks, on one replica at a time.

1. A record in `leases` says which process is the publisher. Each of its transactions checks the lease, so a process that was
   stopped for a while changes nothing after another one has taken over.
2. The publisher follows the log of each tenant that has, or had, webhooks. It stores the deliveries of a page of events and
   its new position in one transaction. Then it sends.
3. The deliveries of a job to an endpoint are sent in the order of the events. The next one is sent when the previous one has
   been delivered or has finally failed.
4. A host has a limited number of concurrent requests, and a breaker. So a dead receiver delays no other receiver. Both are
   of one tenant, so a tenant cannot delay the messages of another one to the same host.
5. Memory is bounded: an endpoint loads up to MAX_LOADED deliveries; the others wait in the store. Deliveries get their
   names, are stored, and are added to memory under one lock. So what an endpoint has not loaded has greater names.
6. A process that is not the publisher reads one small record per tenant and second, and a service that never had a webhook
   nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from bide.core.clock import render_instant
from bide.core.wire.events import EventMessage
from bide.core.wire.http import Event, job_id
from bide.server.job_tracer import JobTracer
from bide.server.store import (
    EventFilter,
    EventLog,
    RecordAccess,
    RecordFilter,
    RecordStore,
    RecordTable,
    StoreUnavailable,
)
from bide.server.webhooks import (
    JOB_PREFIX,
    LEASE_NAME,
    Delivery,
    DeliveryAttempt,
    JobWebhook,
    LogPosition,
    PublisherLease,
    Replay,
    SigningSecret,
    TenantSecrets,
    Webhook,
    valid,
)
from bide.server.webhooks.message import matches, message_id, render, type_of
from bide.server.webhooks.retry import HostBreaker, next_attempt
from bide.server.webhooks.sender import SendOutcome, WebhookSender
from bide.server.webhooks.signature import new_secret

log = logging.getLogger("bide.webhooks")
T = TypeVar("T")
LEASE = 10.0  # seconds
POLL = 1.0  # seconds between two looks at what other replicas have changed
PAGE = 500  # events per read of the log
MAX_LOADED = 1000  # deliveries of one endpoint in memory
PER_HOST = 16  # concurrent requests
IN_TOTAL = 256
CLEAN_EVERY = 10.0
CLEAN_PAGE = 500
CLEAN_PAGES = 50  # most pages at a time, if there is much to remove
KEEP_DELIVERIES = 7 * 86400.0  # seconds for which the log of deliveries is kept
COALESCE = 0.005  # seconds from a commit to the read of its events, so that one read serves many commits
KEEP_HOST = 3600.0  # seconds for which the failures of an unused host are remembered
SAVE_POSITION = 5.0  # seconds after which a position is stored if no event matched
RETRY_WRITE = 0.5  # seconds
SKEW = 5.0  # seconds by which the times of events may differ from the order of their numbers
STOP_WAIT = 2.0  # seconds that a stop waits for requests under way
GONE = 410
encode = msgspec.json.Encoder().encode
_read_webhook = msgspec.json.Decoder(Webhook)
_read_job_webhook = msgspec.json.Decoder(JobWebhook)
_read_position = msgspec.json.Decoder(LogPosition)
_read_lease = msgspec.json.Decoder(PublisherLease)
_read_delivery = msgspec.json.Decoder(Delivery)
_read_replay = msgspec.json.Decoder(Replay)
_read_secrets = msgspec.json.Decoder(TenantSecrets)


class PublisherStore(RecordStore, EventLog, Protocol):
    """What the publisher needs of the store."""


class LeaseLost(Exception):
    """Another process is the publisher now."""


def text_of(value: object) -> str:
    return encode(value).decode()


def bump(tx: RecordAccess, tenant: str, begin: LogPosition) -> None:
    """Record that the webhooks of a tenant have changed. The publisher follows its log from now on."""
    stored = tx.text("publisher", tenant, tenant)
    position = begin if stored is None else _read_position.decode(stored)
    tx.put_text("publisher", tenant, text_of(replace(position, version=position.version + 1)), tenant)


def tenant_secrets(tx: RecordAccess, tenant: str, new: str) -> tuple[SigningSecret, ...]:
    """The secrets of a tenant. The first call stores `new`."""
    stored = tx.text("webhook_secrets", tenant, tenant)
    if stored is not None:
        return _read_secrets.decode(stored).secrets
    secrets = (SigningSecret(new),)
    tx.put_text("webhook_secrets", tenant, text_of(TenantSecrets(secrets)), tenant)
    return secrets


class _DeliveryQueue:
    """The deliveries of one job to one endpoint, in order. `ticket` identifies its current entry in the time queue."""

    __slots__ = ("deliveries", "endpoint", "key", "ticket")

    def __init__(self, endpoint: _EndpointQueue, key: str) -> None:
        self.endpoint = endpoint
        self.key = key
        self.deliveries: deque[Delivery] = deque()
        self.ticket = 0


class _Host:
    """A host of a tenant's webhooks, with its concurrent requests, the queues that wait for one, and its breaker."""

    __slots__ = ("active", "breaker", "name", "tenant", "waiting")

    def __init__(self, name: str, tenant: str) -> None:
        self.name = name
        self.tenant = tenant
        self.active = 0
        self.waiting: deque[_DeliveryQueue] = deque()
        self.breaker = HostBreaker()


class _EndpointQueue:
    """An endpoint with its loaded deliveries."""

    def __init__(self, id: str, tenant: str) -> None:
        self.id = id
        self.tenant = tenant
        self.queues: dict[str, _DeliveryQueue] = {}
        self.loaded = 0
        self.last = ""  # the greatest name that was loaded
        self.more = False  # whether the store has deliveries that are not loaded
        self.paused_until = 0.0  # because of Retry-After
        self.job_webhook: JobWebhook | None = None

    @property
    def job_id(self) -> str | None:
        return self.id.removeprefix(JOB_PREFIX) if self.id.startswith(JOB_PREFIX) else None


class _Tenant:
    """A tenant's webhooks, and the position in its log."""

    def __init__(self, name: str, position: LogPosition) -> None:
        self.name = name
        self.position = position
        self.stored = position  # as the store has it
        self.webhooks: dict[str, Webhook] = {}
        self.version = -1  # of the webhooks that were read
        self.secrets: tuple[SigningSecret, ...] | None = None
        self.dirty = True  # whether the log may have more events
        self.caught_up = 0.0  # all events that were committed before this time have been read
        self.unsaved_since: float | None = None  # since when the stored position is older


class Publisher:
    """Runs from `start` to `stop`. `shared`: other processes use the store, too."""

    def __init__(
        self,
        store: PublisherStore,
        sender: WebhookSender,
        *,
        shared: bool,
        lease: float = LEASE,
        rng: random.Random | None = None,
    ) -> None:
        self._store = store
        self._sender = sender
        self.tracer: JobTracer | None = None
        self._shared = shared
        self._lease = lease
        self._rng = rng or random.Random()
        self._owner = ""
        self._wake_up = asyncio.Event()
        self._tenants: dict[str, _Tenant] = {}
        self._endpoints: dict[str, _EndpointQueue] = {}
        self._hosts: dict[str, _Host] = {}
        self._due: list[tuple[float, int, int, _DeliveryQueue]] = []
        self._tickets = count(1)
        self._active = 0
        self._active_of: Counter[str] = Counter()  # by tenant
        self._tasks: set[asyncio.Task[None]] = set()
        self._replaying: set[str] = set()
        self._adding = asyncio.Lock()
        self._holding = False
        self._stopping = False
        self._stale = True  # whether webhooks must be read again
        self._renewed_at = 0.0
        self._next_look = 0.0
        self._next_clean = 0.0
        self._cleaned = ""  # the name up to which old deliveries were removed in this round
        self._last_id = (0, 0)
        self._task: asyncio.Task[None] | None = None
        self.outcomes: Counter[str] = Counter()  # attempts since the start, by outcome

    # --- beginning and end

    async def start(self, owner: str) -> None:
        """Start in the background. `owner` is a name that no other living process has; a restarted one has it again."""
        self._owner, self._stopping = owner, False
        await self._look()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._stopping = True
        if self._tasks:  # so that fewer messages are sent again after a restart
            await asyncio.wait(self._tasks, timeout=STOP_WAIT)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            if self._holding:
                for tenant in self._tenants.values():
                    await self._save(tenant)
                await self._release()
        except (LeaseLost, StoreUnavailable):
            pass  # another process takes over when the lease has ended
        await self._sender.close()

    async def _run(self) -> None:
        while True:
            try:
                pause = await self.tick()
            except LeaseLost:
                self._forget()
                pause = POLL
            except StoreUnavailable as error:
                log.error(
                    "webhooks are not delivered, because the store is unavailable; retrying: %s", error
                )
                pause = POLL
            except Exception:
                log.exception("the publisher of webhooks failed; retrying")
                pause = POLL
            try:
                async with asyncio.timeout(pause):
                    await self._wake_up.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(COALESCE)

    # --- notifications

    def on_events(self, events: Sequence[Event]) -> None:
        """The store calls this after each commit."""
        if not self._tenants and not any("webhook" in event.job for event in events):
            return
        for event in events:
            tenant = self._tenants.get(event.tenant)
            if tenant is None:
                if "webhook" in event.job:
                    self._stale = True
            elif not tenant.dirty:
                tenant.dirty = True
        self._wake_up.set()

    def changed(self) -> None:
        """Webhooks were changed, or a replay was requested, by this process."""
        self._stale = True
        self._store.keeps_events = True
        self._wake_up.set()

    @property
    def active(self) -> bool:
        """Whether this process is the publisher."""
        return self._holding

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants whose logs are followed."""
        return frozenset(self._tenants)

    def disabled(self) -> list[Webhook]:
        """The webhooks that the service has disabled, as this process knows them."""
        return [
            webhook
            for tenant in self._tenants.values()
            for webhook in tenant.webhooks.values()
            if webhook.disabled_at is not None
        ]

    def pending(self) -> int:
        """The number of deliveries that are loaded and have not ended."""
        return sum(endpoint.loaded for endpoint in self._endpoints.values())

    def lag(self) -> float:
        """The age of the oldest delivery that is loaded and has not ended."""
        oldest = min(
            (
                queue.deliveries[0].created_at
                for endpoint in self._endpoints.values()
                for queue in endpoint.queues.values()
                if queue.deliveries
            ),
            default=None,
        )
        return 0.0 if oldest is None else max(0.0, self._store.now() - oldest)

    # --- one round

    async def tick(self) -> float:
        """Do everything that is due. Return the seconds until something is due again."""
        self._wake_up.clear()
        now = self._store.now()
        if self._stale or (self._shared and now >= self._next_look):
            await self._look()
        if not self._tenants:
            return POLL if self._shared else 3600.0
        if not await self._hold():
            return POLL
        for tenant in list(self._tenants.values()):
            await self._dispatch(tenant)
        for endpoint in list(self._endpoints.values()):
            if endpoint.more and endpoint.loaded < MAX_LOADED // 2:
                await self._load(endpoint)
        self._pump()
        if now >= self._next_clean:
            self._next_clean = now + CLEAN_EVERY
            await self._clean()
        return self._pause()

    def _pause(self) -> float:
        if self._stale or any(tenant.dirty for tenant in self._tenants.values()):
            return 0.0
        now = self._store.now()
        moments = [self._next_clean]
        if self._shared:
            moments.append(self._next_look)
        if self._due:
            moments.append(self._due[0][0])
        moments += [
            host.breaker.until for host in self._hosts.values() if host.waiting and host.breaker.open
        ]
        return min(max(0.01, min(moments) - now), 60.0)

    async def settled(self, timeout: float = 10.0) -> None:
        """Wait until no request is under way. For tests."""
        async with asyncio.timeout(timeout):
            while self._tasks:
                await asyncio.wait(self._tasks)

    async def _look(self) -> None:
        """Read what other processes, or requests to this one, have changed."""
        self._stale = False
        self._next_look = self._store.now() + POLL
        found = await self._store.records("publisher")
        if found:
            self._store.keeps_events = True
        for name, text in found.items():
            position = _read_position.decode(text)
            tenant = self._tenants.get(name)
            if tenant is None:
                tenant = self._tenants[name] = _Tenant(name, position)
            elif not self._holding:
                tenant.position = tenant.stored = position
            if self._shared:
                tenant.dirty = True
            if tenant.version != position.version:
                await self._read_webhooks(tenant, position.version)

    async def _read_webhooks(self, tenant: _Tenant, version: int) -> None:
        # The records may be newer than the version; then they are read once more.
        found = await self._store.records("webhooks", RecordFilter(tenant=tenant.name))
        tenant.webhooks = {name: _read_webhook.decode(text) for name, text in found.items()}
        tenant.version, tenant.secrets = version, None
        for endpoint in list(self._endpoints.values()):
            if endpoint.tenant == tenant.name and not self._enabled(endpoint):
                self._expedite(endpoint)
        if self._holding:
            await self._begin_replays(tenant)

    # --- the lease

    async def _hold(self) -> bool:
        """Take or renew the lease. Return whether this process is the publisher."""
        now = self._store.now()
        if self._holding and (not self._shared or now < self._renewed_at + self._lease / 3):
            return True
        owner, lease = self._owner, self._lease

        def take(tx: RecordAccess) -> bool:
            stored = tx.text("leases", LEASE_NAME)
            held = None if stored is None else _read_lease.decode(stored)
            if held is not None and held.owner != owner and held.until > tx.now:
                return False
            tx.put_text("leases", LEASE_NAME, text_of(PublisherLease(owner, tx.now + lease)))
            return True

        taken = await self._store.change_records(take)
        if not taken:
            if self._holding:
                raise LeaseLost
            return False
        self._renewed_at = now
        if not self._holding:
            await self._take_over()
        return True

    async def _release(self) -> None:
        def release(tx: RecordAccess) -> None:
            tx.put_text("leases", LEASE_NAME, text_of(PublisherLease("", 0.0)))

        await self._write(release)
        self._holding = False

    async def _write(self, change: Callable[[RecordAccess], T]) -> T:
        """Run a change if this process is still the publisher."""
        owner, shared = self._owner, self._shared

        def checked(tx: RecordAccess) -> tuple[bool, T | None]:
            if shared:
                stored = tx.text("leases", LEASE_NAME)
                if stored is None or _read_lease.decode(stored).owner != owner:
                    return False, None
            return True, change(tx)

        held, result = await self._store.change_records(checked)
        if not held:
            raise LeaseLost
        return result  # type: ignore[return-value]  # what `change` has returned

    def _forget(self) -> None:
        """Stop being the publisher. Requests under way end without a record."""
        if self._holding:
            log.info("another service delivers webhooks now")
        self._holding = False
        self._endpoints.clear()
        self._hosts.clear()
        self._due.clear()
        self._stale = True

    async def _take_over(self) -> None:
        """Become the publisher: load the positions, and the deliveries that have not ended."""
        if self._shared:
            log.info("this service delivers webhooks now")
        for name, text in (await self._store.records("publisher")).items():
            tenant = self._tenants.get(name)
            position = _read_position.decode(text)
            if tenant is None:
                tenant = self._tenants[name] = _Tenant(name, position)
            tenant.position = tenant.stored = position
            tenant.dirty = True
            tenant.caught_up, tenant.unsaved_since = 0.0, None
            after = ""
            while True:  # one read per endpoint
                filter = RecordFilter(tenant=name, after=after, limit=1)
                rows = await self._store.records("pending_deliveries", filter)
                if not rows:
                    break
                id = next(iter(rows)).partition("/")[0]
                self._endpoint(id, name).more = True
                after = f"{id}0"  # follows all names with `/`
        self._holding = True
        for tenant in self._tenants.values():
            await self._begin_replays(tenant)

    # --- from the log to deliveries

    async def _dispatch(self, tenant: _Tenant) -> None:
        """Store the deliveries of the next page of events."""
        if not tenant.dirty:
            return
        tenant.dirty = False
        started, position = self._store.now(), tenant.position
        page = await self._store.read_log(
            EventFilter(tenant=tenant.name, after=position.number, limit=PAGE)
        )
        if page.epoch != position.epoch:
            # Numbers may name other events now, so find the place by the time. Events may be delivered twice.
            number = 0
            if position.at:
                number = await self._number_at(tenant.name, position.at - SKEW, page.last)
            tenant.position = replace(position, epoch=page.epoch, number=number)
            tenant.dirty = True
            return
        if not page.events:
            tenant.caught_up = started
            await self._save_late(tenant)
            return
        endpoints = {
            JOB_PREFIX + event.job_id: event.job_id
            for event in page.events
            if matches(event, event.job.get("webhook", "").split(","))
        }
        job_webhooks = dict(
            zip(
                endpoints,
                await asyncio.gather(*(self._job_webhook(tenant, i) for i in endpoints.values())),
                strict=True,
            )
        )
        last = page.events[-1]
        tenant.dirty = len(page.events) == PAGE
        async with self._adding:
            deliveries = [
                self._delivery(event, page.epoch, tenant.name, id)
                for event in page.events
                for id in self._receivers(event, page.epoch, tenant, job_webhooks)
            ]
            after = LogPosition(page.epoch, last.id, last.at, tenant.version)
            if deliveries:
                if not await self._store_deliveries(tenant, deliveries, after):
                    tenant.dirty = self._stale = True
                    return
            elif tenant.unsaved_since is None:
                tenant.unsaved_since = started
            tenant.position = after
            if not tenant.dirty:
                tenant.caught_up = started
            for delivery in deliveries:
                endpoint = self._endpoint(delivery.webhook, tenant.name)
                endpoint.job_webhook = job_webhooks.get(delivery.webhook)
                self._add(endpoint, delivery)

    @staticmethod
    def _receivers(
        event: Event, epoch: str, tenant: _Tenant, job_webhooks: dict[str, JobWebhook | None]
    ) -> Iterable[str]:
        for webhook in tenant.webhooks.values():
            later = webhook.epoch != epoch or event.id > webhook.after
            if (
                webhook.enabled
                and later
                and matches(event, webhook.events, webhook.kinds, webhook.labels)
            ):
                yield webhook.id
        own = JOB_PREFIX + event.job_id
        job_webhook = job_webhooks.get(own)
        if job_webhook is not None and matches(event, job_webhook.events):
            yield own

    async def _job_webhook(self, tenant: _Tenant, job: str) -> JobWebhook | None:
        filter = RecordFilter(tenant=tenant.name, prefix=job, limit=1)
        found = (await self._store.records("job_webhooks", filter)).get(job)
        return None if found is None else _read_job_webhook.decode(found)

    def _delivery(
        self, event: Event, epoch: str, tenant: str, webhook: str, replay: str | None = None
    ) -> Delivery:
        now = self._store.now()
        return Delivery(
            id=self._id(now),
            webhook=webhook,
            tenant=tenant,
            message_id=message_id(epoch, event),
            type=type_of(event),
            job_id=event.job_id,
            number=event.id,
            event_at=event.at,
            created_at=now,
            body=render(event, EventMessage(event, epoch).json).decode(),
            next_at=now,
            replay=replay,
            trace=_trace_of(event) if "traceparent" in event.job else None,
        )

    def _id(self, now: float) -> str:
        """An id that is greater than all earlier ones."""
        millis = max(int(now * 1000), self._last_id[0])
        number = self._last_id[1] + 1 if millis == self._last_id[0] else 0
        self._last_id = (millis, number)
        digits = bytes(number >> shift & 31 for shift in (20, 15, 10, 5, 0))
        return job_id(millis / 1000 + 0.0005, digits + self._rng.randbytes(11))

    async def _store_deliveries(
        self, tenant: _Tenant, deliveries: Sequence[Delivery], after: LogPosition
    ) -> bool:
        """Store deliveries and the position. Return False if the webhooks have changed since they were read. Raises
        LeaseLost if another publisher has moved the position.
        """
        name, before = tenant.name, tenant.stored
        rows = _new_records(deliveries)

        def change(tx: RecordAccess) -> bool:
            text = tx.text("publisher", name, name)
            stored = None if text is None else _read_position.decode(text)
            if stored is None or (stored.epoch, stored.number) != (before.epoch, before.number):
                raise LeaseLost
            if stored.version != after.version:
                return False
            for table, row, text in rows:
                tx.put_text(table, row, text, name)
            tx.put_text("publisher", name, text_of(after), name)
            return True

        done = await self._write(change)
        if done:
            tenant.stored, tenant.unsaved_since = after, None
        return done

    async def _save_late(self, tenant: _Tenant) -> None:
        since = tenant.unsaved_since
        if since is not None and self._store.now() >= since + SAVE_POSITION:
            await self._save(tenant)

    async def _save(self, tenant: _Tenant) -> None:
        """Store the position of a tenant, if it is newer than the stored one."""
        if tenant.unsaved_since is None:
            return
        await self._store_deliveries(tenant, (), replace(tenant.position, version=tenant.version))
        tenant.unsaved_since = None

    async def _number_at(self, tenant: str, at: float, last: int) -> int:
        """The number after which the first event at this time or later follows."""
        low, high = 0, last
        while low < high:
            middle = (low + high) // 2
            page = await self._store.read_log(EventFilter(tenant=tenant, after=middle, limit=1))
            if not page.events or page.events[0].at >= at:
                high = middle
            else:
                low = page.events[0].id
        return low

    # --- deliveries in memory

    def _endpoint(self, id: str, tenant: str) -> _EndpointQueue:
        found = self._endpoints.get(id)
        if found is None:
            found = self._endpoints[id] = _EndpointQueue(id, tenant)
        return found

    def _add(self, endpoint: _EndpointQueue, delivery: Delivery) -> None:
        if endpoint.more or endpoint.loaded >= MAX_LOADED:
            endpoint.more = True
            return
        endpoint.last = delivery.name
        endpoint.loaded += 1
        key = delivery.job_id if delivery.replay is None else f"{delivery.replay} {delivery.job_id}"
        queue = endpoint.queues.get(key)
        if queue is None:
            queue = endpoint.queues[key] = _DeliveryQueue(endpoint, key)
        queue.deliveries.append(delivery)
        if len(queue.deliveries) == 1:
            self._schedule(queue, delivery.next_at)

    def _schedule(self, queue: _DeliveryQueue, at: float) -> None:
        queue.ticket = next(self._tickets)
        heapq.heappush(self._due, (at, queue.ticket, queue.ticket, queue))

    async def _load(self, endpoint: _EndpointQueue) -> None:
        """Load deliveries that wait in the store."""
        async with self._adding:
            await self._load_next(endpoint)

    async def _load_next(self, endpoint: _EndpointQueue) -> None:
        filter = RecordFilter(
            tenant=endpoint.tenant,
            prefix=f"{endpoint.id}/",
            after=endpoint.last,
            limit=MAX_LOADED - endpoint.loaded,
        )
        found = await self._store.records("pending_deliveries", filter)
        job = endpoint.job_id
        if job is not None and endpoint.job_webhook is None:
            endpoint.job_webhook = await self._job_webhook(self._tenants[endpoint.tenant], job)
        more = len(found) == filter.limit
        endpoint.more = False
        for text in found.values():
            self._add(endpoint, _read_delivery.decode(text))
        endpoint.more = more
        if not found and not endpoint.queues and not more:
            self._endpoints.pop(endpoint.id, None)

    def _expedite(self, endpoint: _EndpointQueue) -> None:
        """Make all waiting deliveries due, because their endpoint was disabled or deleted, or was changed."""
        now = self._store.now()
        for host in self._hosts.values():
            host.waiting = deque(queue for queue in host.waiting if queue.endpoint is not endpoint)
        for queue in endpoint.queues.values():
            if queue.ticket:
                self._schedule(queue, now)

    def _target(self, endpoint: _EndpointQueue) -> Webhook | None:
        """The webhook of an endpoint; None if it was deleted."""
        own = endpoint.job_webhook
        if own is not None:
            return Webhook(endpoint.id, endpoint.tenant, own.url, own.events)
        tenant = self._tenants.get(endpoint.tenant)
        return None if tenant is None else tenant.webhooks.get(endpoint.id)

    def _enabled(self, endpoint: _EndpointQueue) -> bool:
        target = self._target(endpoint)
        return target is not None and target.enabled

    # --- attempts

    def _pump(self) -> None:
        """Start the requests that are due, as many as the limits allow."""
        if not self._holding or self._stopping:
            return
        now = self._store.now()
        while self._due and self._due[0][0] <= now:
            _, ticket, _, queue = heapq.heappop(self._due)
            if ticket != queue.ticket or not queue.deliveries:
                continue
            endpoint, delivery = queue.endpoint, queue.deliveries[0]
            target = self._target(endpoint)
            if target is None or not (target.enabled or delivery.replay):
                self._start(None, queue)
            elif endpoint.paused_until > now:
                self._schedule(queue, endpoint.paused_until)
            else:
                name = f"{endpoint.tenant} {urlsplit(target.url).netloc}"
                host = self._hosts.get(name)
                if host is None:
                    host = self._hosts[name] = _Host(name, endpoint.tenant)
                host.waiting.append(queue)
        # A tenant with slow receivers leaves requests for the others.
        most = IN_TOTAL if len(self._tenants) < 2 else IN_TOTAL // 2
        for host in list(self._hosts.values()):
            while (
                host.waiting
                and host.active < PER_HOST
                and self._active < IN_TOTAL
                and self._active_of[host.tenant] < most
                and host.breaker.admits(now, host.active)
            ):
                self._start(host, host.waiting.popleft())
            if not host.waiting and not host.active and not host.breaker.failures:
                del self._hosts[host.name]

    def _start(self, host: _Host | None, queue: _DeliveryQueue) -> None:
        queue.ticket = 0
        self._active += 1
        if host is not None:
            host.active += 1
            self._active_of[host.tenant] += 1
        task = asyncio.create_task(self._attempt(host, queue))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attempt(self, host: _Host | None, queue: _DeliveryQueue) -> None:
        endpoint, delivery = queue.endpoint, queue.deliveries[0]
        try:
            if host is None:
                await self._give_up(endpoint, delivery)
                done: Delivery | None = None
            else:
                try:
                    done = await self._send(host, endpoint, delivery)
                finally:
                    host.active -= 1
                    self._active_of[host.tenant] -= 1
        except LeaseLost:
            self._forget()
            return
        except asyncio.CancelledError:
            return
        except Exception:
            log.exception("the delivery %s failed unexpectedly; retrying", delivery.name)
            done = delivery
            queue.deliveries[0] = replace(delivery, next_at=self._store.now() + 60.0)
        finally:
            self._active -= 1
        if self._endpoints.get(endpoint.id) is endpoint:  # this process is still the publisher
            self._continue(queue, delivery, done)

    def _continue(self, queue: _DeliveryQueue, delivery: Delivery, done: Delivery | None) -> None:
        """Start the next delivery of the queue, or wait for the next attempt."""
        endpoint = queue.endpoint
        if done is None or done.status != "pending":
            queue.deliveries.popleft()
            endpoint.loaded -= 1
        elif queue.deliveries[0] is delivery:
            queue.deliveries[0] = done
        if queue.deliveries:
            self._schedule(queue, queue.deliveries[0].next_at)
        else:
            del endpoint.queues[queue.key]
            if not endpoint.queues and not endpoint.more:
                del self._endpoints[endpoint.id]
        self._pump()
        if not self._active or self._due or (endpoint.more and endpoint.loaded < MAX_LOADED // 2):
            self._wake_up.set()

    async def _send(self, host: _Host, endpoint: _EndpointQueue, delivery: Delivery) -> Delivery | None:
        """Make one attempt and store its outcome. Return the delivery after it; None if the webhook was deleted."""
        target = self._target(endpoint)
        if target is None:
            await self._give_up(endpoint, delivery)
            return None
        secrets = await self._secrets(endpoint, target)
        at = self._store.now()
        trace = None
        if self.tracer is not None and delivery.trace is not None:
            trace = self.tracer.webhook(delivery.trace, delivery.name, len(delivery.attempts) + 1)
        outcome = await self._sender.send(
            target.url,
            secrets,
            delivery.message_id,
            delivery.body.encode(),
            {} if trace is None else trace.headers,
        )
        now = self._store.now()
        if self.tracer is not None and trace is not None:
            sent = (delivery.job_id, delivery.message_id, target.url, outcome.status, outcome.error)
            self.tracer.delivered(trace, *sent, (at, now))
        if outcome.succeeded:
            host.breaker.succeeded()
        elif outcome.status != GONE:
            host.breaker.failed(now, outcome.retry_after)
            if outcome.retry_after:
                endpoint.paused_until = now + min(outcome.retry_after, 3600.0)
        tried = (*delivery.attempts, DeliveryAttempt(at, outcome.seconds, outcome.status, outcome.error))
        done = replace(delivery, attempts=tried, url=target.url, response=outcome.response)
        return await self._settle(endpoint, target, done, outcome, now)

    async def _secrets(self, endpoint: _EndpointQueue, target: Webhook) -> list[str]:
        now = self._store.now()
        own = endpoint.job_webhook
        if own is None:
            return target.signing(now)
        if own.secret is not None:
            return [own.secret]
        tenant = self._tenants[endpoint.tenant]
        if tenant.secrets is None:
            new, name = new_secret(), tenant.name
            tenant.secrets = await self._write(lambda tx: tenant_secrets(tx, name, new))
        return valid(tenant.secrets, now)

    async def _settle(
        self,
        endpoint: _EndpointQueue,
        target: Webhook,
        delivery: Delivery,
        outcome: SendOutcome,
        now: float,
    ) -> Delivery:
        """Decide what follows an attempt, and store it."""
        health: Callable[[Webhook], Webhook] | None = None
        counts = delivery.replay is None and endpoint.job_webhook is None
        if outcome.succeeded:
            done = replace(delivery, status="delivered")
            if counts and target.failing_since is not None:
                health = _recovered
        else:
            first = delivery.attempts[0].at
            next_at = next_attempt(len(delivery.attempts), now, outcome.retry_after, self._rng)
            reason: str | None = None
            if outcome.status == GONE:
                next_at, reason = None, "The endpoint answered 410 Gone."
            elif next_at is None and target.failing_since is not None and target.failing_since <= first:
                reason = f"No delivery has succeeded since {render_instant(target.failing_since)}."
            done = (
                replace(delivery, status="failed")
                if next_at is None
                else replace(delivery, next_at=next_at)
            )
            if counts and reason is not None:
                health = _disabler(reason, now)
                log.warning("webhook %s is disabled: %s", target.id, reason)
            elif counts and target.failing_since is None:
                health = _failing_since(first)
        outcomes = {"delivered": "delivered", "failed": "failed", "pending": "retried"}
        self.outcomes[outcomes[done.status]] += 1
        ends = outcome.status == GONE and endpoint.job_webhook is not None and delivery.replay is None
        changed = await self._store_outcome(done, health, forget_job=ends)
        if ends:  # the other deliveries of this job are given up
            endpoint.job_webhook = None
        tenant = self._tenants.get(endpoint.tenant)
        if changed is not None and tenant is not None and changed.id in tenant.webhooks:
            tenant.webhooks[changed.id] = changed
            if not changed.enabled:
                self._expedite(endpoint)
        return done

    async def _store_outcome(
        self,
        delivery: Delivery,
        health: Callable[[Webhook], Webhook] | None,
        *,
        forget_job: bool = False,
    ) -> Webhook | None:
        """Store a delivery after an attempt, and the health of its webhook. Return the webhook if it has changed.
        `forget_job`: remove the webhook of the job.
        """
        name, text, tenant = delivery.name, text_of(delivery), delivery.tenant

        def change(tx: RecordAccess) -> Webhook | None:
            if delivery.status == "pending":
                tx.put_text("pending_deliveries", name, text, tenant)
            else:
                tx.put_text("pending_deliveries", name, None, tenant)
                tx.put_text("deliveries", name, text, tenant)
            if forget_job:
                tx.put_text("job_webhooks", delivery.job_id, None, tenant)
            stored = None if health is None else tx.text("webhooks", delivery.webhook, tenant)
            if health is None or stored is None:
                return None
            before = _read_webhook.decode(stored)
            after = health(before)
            if after == before:
                return None
            tx.put_text("webhooks", after.id, text_of(after), tenant)
            bump(tx, tenant, LogPosition("", 0))
            return after

        return await self._until_written(change)

    async def _give_up(self, endpoint: _EndpointQueue, delivery: Delivery) -> None:
        """End a delivery without an attempt, because its webhook is disabled or was deleted."""
        name, by_job, tenant = delivery.name, delivery.name_by_job, delivery.tenant
        target = self._target(endpoint)
        text: str | None = None
        if target is not None:
            now = self._store.now()
            tried = (*delivery.attempts, DeliveryAttempt(now, 0.0, error="the webhook is disabled"))
            text = text_of(replace(delivery, status="failed", attempts=tried, url=target.url))
            self.outcomes["failed"] += 1

        def change(tx: RecordAccess) -> None:
            tx.put_text("pending_deliveries", name, None, tenant)
            if text is not None:
                tx.put_text("deliveries", name, text, tenant)
            elif by_job is not None:
                tx.put_text("job_deliveries", by_job, None, tenant)

        await self._until_written(change)

    async def _until_written(self, change: Callable[[RecordAccess], T]) -> T:
        """Write, with retries while the store is unavailable, because the request was sent."""
        while True:
            try:
                return await self._write(change)
            except StoreUnavailable as error:
                log.error("cannot store the outcome of a delivery; retrying: %s", error)
                await asyncio.sleep(RETRY_WRITE)

    # --- replays

    async def _begin_replays(self, tenant: _Tenant) -> None:
        for text in (await self._store.records("replays", RecordFilter(tenant=tenant.name))).values():
            replay = _read_replay.decode(text)
            if replay.id not in self._replaying:
                self._replaying.add(replay.id)
                task = asyncio.create_task(self._replay(tenant, replay))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _replay(self, tenant: _Tenant, replay: Replay) -> None:
        try:
            await self._deliver_again(tenant, replay)
        except LeaseLost:
            self._forget()  # the next publisher starts it again
        except asyncio.CancelledError:
            pass
        except Exception:
            log.exception("the replay %s failed; it starts again", replay.name)
            await asyncio.sleep(POLL)
            self._stale = True
        finally:
            self._replaying.discard(replay.id)
            self._wake_up.set()

    async def _deliver_again(self, tenant: _Tenant, replay: Replay) -> None:
        """Store a delivery for each event of the range, and remove the request together with the last of them. A replay that
        is interrupted starts again and leaves out the events that it has stored.
        """
        webhook = tenant.webhooks.get(replay.webhook)
        known = await self._known_deliveries(replay)
        skipped = {d.message_id for d in known if d.replay == replay.id}
        if replay.only == "failed":
            skipped |= {d.message_id for d in known if d.status != "failed"}
        page = await self._store.read_log(EventFilter(tenant=tenant.name, limit=1))
        number = await self._number_at(tenant.name, replay.begin - SKEW, page.last)
        rest = {d.message_id: d for d in known if d.status == "failed" and d.message_id not in skipped}
        going = webhook is not None
        events: list[Event] = []
        while going and webhook is not None:
            page = await self._store.read_log(EventFilter(tenant=tenant.name, after=number, limit=PAGE))
            events = []
            for event in page.events:
                if not replay.begin <= event.at <= replay.end:
                    continue
                id = message_id(page.epoch, event)
                rest.pop(id, None)
                missed = replay.only == "all" or webhook.epoch != page.epoch or event.id > webhook.after
                if (
                    id not in skipped
                    and missed
                    and matches(event, webhook.events, webhook.kinds, webhook.labels)
                ):
                    events.append(event)
            last = page.events[-1] if page.events else None
            going = len(page.events) == PAGE and last is not None and last.at <= replay.end + SKEW
            number = last.id if last is not None else number
            if going:
                await self._add_replayed(replay, page.epoch, events)
                await asyncio.sleep(0)
        # Events whose job has been removed: the log of deliveries still has their bodies.
        await self._add_replayed(replay, page.epoch, events, rest.values(), ends=True)

    async def _known_deliveries(self, replay: Replay) -> list[Delivery]:
        """The deliveries of the webhook whose events are in the range."""
        found: list[Delivery] = []
        tables: tuple[RecordTable, ...] = ("pending_deliveries", "deliveries")
        for table in tables:
            after = ""
            while True:
                filter = RecordFilter(
                    tenant=replay.tenant, prefix=f"{replay.webhook}/", after=after, limit=PAGE
                )
                rows = await self._store.records(table, filter)
                deliveries = [_read_delivery.decode(text) for text in rows.values()]
                found += [d for d in deliveries if d.number and replay.begin <= d.event_at <= replay.end]
                if len(rows) < PAGE:
                    break
                after = next(reversed(rows))
                await asyncio.sleep(0)
        return found

    async def _add_replayed(
        self,
        replay: Replay,
        epoch: str,
        events: Sequence[Event],
        earlier: Iterable[Delivery] = (),
        *,
        ends: bool = False,
    ) -> None:
        """Store deliveries of these events, and the earlier ones again. `ends`: they are the last ones of the replay."""
        async with self._adding:
            tenant, webhook, now = replay.tenant, replay.webhook, self._store.now()
            deliveries = [self._delivery(event, epoch, tenant, webhook, replay.id) for event in events]
            for old in earlier:
                again = replace(
                    old, id=self._id(now), replay=replay.id, created_at=now, next_at=now,
                    status="pending", attempts=(), url="", response="",
                )  # fmt: skip
                deliveries.append(again)
            rows = _new_records(deliveries)

            def change(tx: RecordAccess) -> None:
                for table, name, text in rows:
                    tx.put_text(table, name, text, tenant)
                if ends:
                    tx.put_text("replays", replay.name, None, tenant)

            await self._until_written(change)
            endpoint = self._endpoint(webhook, tenant)
            for delivery in deliveries:
                self._add(endpoint, delivery)
            if not endpoint.queues and not endpoint.more:
                self._endpoints.pop(endpoint.id, None)
        self._pump()

    # --- upkeep

    async def _clean(self) -> None:
        """Remove the events of removed jobs that have been dispatched, and old deliveries."""
        self._clean_hosts()
        for tenant in self._tenants.values():
            await self._save_late(tenant)
            await self._clean_removals(tenant)
        for _ in range(CLEAN_PAGES):
            if await self._clean_deliveries() < CLEAN_PAGE // 2:
                return

    async def _clean_deliveries(self) -> int:
        """Remove the old deliveries of the next page. Return how many."""
        rows = await self._store.records(
            "deliveries", RecordFilter(after=self._cleaned, limit=CLEAN_PAGE)
        )
        self._cleaned = next(reversed(rows)) if len(rows) == CLEAN_PAGE else ""
        oldest = self._store.now() - KEEP_DELIVERIES
        old = []
        for name, text in rows.items():
            delivery = _read_delivery.decode(text)
            if delivery.created_at < oldest or self._is_deleted(delivery):
                old.append((name, delivery.name_by_job, delivery.tenant))

        def change(tx: RecordAccess) -> None:
            for name, by_job, tenant in old:
                tx.put_text("deliveries", name, None, tenant)
                if by_job is not None:
                    tx.put_text("job_deliveries", by_job, None, tenant)

        if old:
            await self._write(change)
        return len(old)

    def _clean_hosts(self) -> None:
        """Forget hosts that have failed and are no longer used: jobs may name any number of them."""
        oldest = self._store.now() - KEEP_HOST
        for host in list(self._hosts.values()):
            if not host.waiting and not host.active and host.breaker.failed_at < oldest:
                del self._hosts[host.name]

    def _is_deleted(self, delivery: Delivery) -> bool:
        tenant = self._tenants.get(delivery.tenant)
        return (
            tenant is not None
            and not delivery.webhook.startswith(JOB_PREFIX)
            and delivery.webhook not in tenant.webhooks
        )

    async def _clean_removals(self, tenant: _Tenant) -> None:
        filter = RecordFilter(tenant=tenant.name, limit=CLEAN_PAGE)
        found = await self._store.records("removals", filter)
        passed = [
            job
            for job, removed_at in found.items()
            if float(removed_at) < tenant.caught_up and JOB_PREFIX + job not in self._endpoints
        ]
        if len(passed) < len(found):
            tenant.dirty = True  # reading the log moves `caught_up`

        def change(tx: RecordAccess) -> None:
            for job in passed:
                tx.remove_events(job, tenant.name)
                tx.put_text("job_webhooks", job, None, tenant.name)

        if passed:
            await self._write(change)


def _new_records(deliveries: Iterable[Delivery]) -> list[tuple[RecordTable, str, str]]:
    """Table, name and text of the records of new deliveries."""
    rows: list[tuple[RecordTable, str, str]] = []
    for delivery in deliveries:
        rows.append(("pending_deliveries", delivery.name, text_of(delivery)))
        by_job = delivery.name_by_job
        if by_job is not None:
            rows.append(("job_deliveries", by_job, delivery.webhook))
    return rows


def _recovered(webhook: Webhook) -> Webhook:
    return replace(webhook, failing_since=None)


def _failing_since(at: float) -> Callable[[Webhook], Webhook]:
    def change(webhook: Webhook) -> Webhook:
        return webhook if webhook.failing_since is not None else replace(webhook, failing_since=at)

    return change


def _disabler(reason: str, now: float) -> Callable[[Webhook], Webhook]:
    def change(webhook: Webhook) -> Webhook:
        if not webhook.enabled:
            return webhook
        return replace(webhook, enabled=False, disabled_at=now, reason=reason)

    return change


def _trace_of(event: Event) -> tuple[str, str, int]:
    """What a delivery of an event of a traced job needs."""
    job = event.job
    return job["traceparent"], job.get("tracestate", ""), job.get("fence", 0)
