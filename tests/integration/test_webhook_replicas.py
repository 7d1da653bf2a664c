"""Two publishers on one PostgreSQL database: one of them delivers, and the other takes over when its lease has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bide.core.wire.http import job_id
from bide.server.store import NewJob
from bide.server.store.postgres.store import PostgresStore
from bide.server.webhooks.addresses import Addresses
from bide.server.webhooks.publisher import LeaseLost, Publisher
from bide.server.webhooks.sender import WebhookSender
from bide.server.webhooks.service import WebhookService
from bide.testing.store import StoreHarness
from tests.receiver import Receiver
from tests.servers.postgres import Postgres
from tests.waiting import eventually

LEASE = 1.0


class ReplicaUnderTest:
    """A store and a publisher, as a process has them."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.store = PostgresStore(url)
        addresses = Addresses(allow_private=True)
        sender = WebhookSender(addresses, 5.0, lambda: self.store.now())  # noqa: PLW0108
        self.publisher = Publisher(self.store, sender, shared=True, lease=LEASE)
        self.webhooks = WebhookService(
            self.store, addresses, sender, self.publisher, lambda now: job_id(now, bytes(16))
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ReplicaUnderTest]:
        await self.store.open(self.publisher.on_events)
        await self.publisher.start(self.name)
        try:
            yield self
        finally:
            await self.publisher.stop()
            await self.store.close()

    async def new_job(self, harness: StoreHarness) -> str:
        new: NewJob = harness.new()
        await self.store.insert([new])
        return new.job.id

    def freeze(self) -> None:
        """Stop the publisher as kill -9 does: without giving the lease back."""
        assert self.publisher._task is not None
        self.publisher._task.cancel()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver(real_time=True).serving() as receiver:
        yield receiver


async def test_one_delivers_and_the_other_takes_over(
    tmp_path: Path, postgres: Postgres, receiver: Receiver
) -> None:
    url = f"{postgres.url}?schema=publishers"
    one, two = ReplicaUnderTest(url, "one"), ReplicaUnderTest(url, "two")
    harness = StoreHarness(lambda: one.store, one.store)  # type: ignore[arg-type]  # a clock
    async with one.running(), two.running():
        webhook, secret = await one.webhooks.create("-", receiver.url, {"events": ("status",)})
        receiver.secrets = [secret]
        # Events of both processes arrive once each, also when the other one has not seen the webhook yet.
        jobs = [await replica.new_job(harness) for replica in (one, two) * 10]
        await eventually(lambda: len(receiver.messages) >= len(jobs))
        assert sorted(m.job_id or "" for m in receiver.messages) == sorted(jobs)
        assert one.publisher.active != two.publisher.active
        active, other = (one, two) if one.publisher.active else (two, one)
        active.freeze()
        late = await other.new_job(harness)
        await eventually(lambda: late in [m.job_id for m in receiver.messages])
        assert other.publisher.active
        # The old publisher continues after a pause, as after SIGSTOP: it may not write any more.
        with pytest.raises(LeaseLost):
            await active.publisher._write(lambda tx: tx.put_text("webhooks", webhook.id, "x", "-"))
        # A publisher that stops gives the lease back.
        await active.publisher.start(active.name)
        await other.publisher.stop()
        later = await active.new_job(harness)
        await eventually(lambda: later in [m.job_id for m in receiver.messages], timeout=10)
        assert active.publisher.active
        found = await active.webhooks.get("-", webhook.id)
        assert found.url == receiver.url
        await asyncio.sleep(0)
