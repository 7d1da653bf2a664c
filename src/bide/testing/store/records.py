"""Records: small texts by name in collections, and the events of removed jobs that are kept for their readers."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from bide.server.store import NewRecord, RecordAccess, RecordFilter, RecordTable
from bide.testing.store.harness import StoreHarness

TABLE: RecordTable = "webhooks"


async def put(harness: StoreHarness, name: str, text: str | None, tenant: str = "-") -> None:
    await harness.store.change_records(lambda tx: tx.put_text(TABLE, name, text, tenant))


class Records:
    async def test_records_are_read_by_name_in_both_orders(self, harness: StoreHarness) -> None:
        for name in ("b/2", "a/1", "b/1", "b/3", "B/1", "b0", "é"):
            await put(harness, name, f"text of {name}")
        await harness.reopen()

        async def names(filter: RecordFilter) -> list[str]:
            return list(await harness.store.records(TABLE, filter))

        assert await names(RecordFilter()) == ["B/1", "a/1", "b/1", "b/2", "b/3", "b0", "é"]
        assert await names(RecordFilter(prefix="b/")) == ["b/1", "b/2", "b/3"]
        assert await names(RecordFilter(prefix="b/", last=True, limit=2)) == ["b/3", "b/2"]
        assert await names(RecordFilter(prefix="b/", before="b/3", last=True)) == ["b/2", "b/1"]
        assert await names(RecordFilter(prefix="b/", after="b/1", limit=1)) == ["b/2"]
        assert await names(RecordFilter(names=("b/3", "a/2", "B/1"))) == ["B/1", "b/3"]
        found = await harness.store.records(TABLE, RecordFilter(prefix="a"))
        assert found == {"a/1": "text of a/1"}

    async def test_a_record_is_replaced_and_deleted(self, harness: StoreHarness) -> None:
        await put(harness, "one", "first")
        await put(harness, "one", "second")
        assert await harness.store.records(TABLE) == {"one": "second"}
        await put(harness, "one", None)
        await put(harness, "never there", None)
        assert await harness.store.records(TABLE) == {}

    async def test_tenants_and_tables_have_names_of_their_own(self, harness: StoreHarness) -> None:
        await put(harness, "one", "mine", "a")
        await put(harness, "one", "yours", "b")
        await harness.store.change_records(lambda tx: tx.put_text("deliveries", "one", "other", "a"))
        assert await harness.store.records(TABLE, RecordFilter(tenant="a")) == {"one": "mine"}
        assert await harness.store.records(TABLE, RecordFilter(tenant="b")) == {"one": "yours"}
        assert await harness.store.records(TABLE, RecordFilter(tenant="c")) == {}
        assert await harness.store.change_records(lambda tx: tx.text(TABLE, "one", "b")) == "yours"

    async def test_a_transaction_reads_its_own_records(self, harness: StoreHarness) -> None:
        def count(tx: RecordAccess) -> int:
            number = int(tx.text(TABLE, "count") or 0) + 1
            tx.put_text(TABLE, "count", str(number))
            assert tx.text(TABLE, "count") == str(number)
            return number

        counted = await asyncio.gather(*(harness.store.change_records(count) for _ in range(20)))
        assert sorted(counted) == list(range(1, 21))
        assert await harness.store.records(TABLE) == {"count": "20"}

    async def test_a_change_that_raises_stores_nothing(self, harness: StoreHarness) -> None:
        def broken(tx: RecordAccess) -> None:
            tx.put_text(TABLE, "one", "text")
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await harness.store.change_records(broken)
        assert await harness.store.records(TABLE) == {}

    async def test_the_events_of_a_removed_job_stay_until_they_are_removed(
        self, harness: StoreHarness
    ) -> None:
        harness.store.keeps_events = True
        expired = await harness.succeed(await harness.run(keep=0.0))
        deleted = await harness.succeed(await harness.run())
        assert await harness.store.purge(tombstones=60.0, keys=60.0) == ([expired.id], False)
        await harness.store.delete(deleted.id)
        assert set(await harness.store.records("removals")) == {expired.id, deleted.id}
        for job in (expired, deleted):
            before = await harness.store.events(job_id=job.id)
            assert [event.job["status"] for event in before][:3] == ["PENDING", "PROCESSING", "DONE"]

            def remove(tx: RecordAccess, job_id: str = job.id) -> None:
                tx.remove_events(job_id, "-")

            await harness.store.change_records(remove)
            after = await harness.store.events(job_id=job.id)
            assert [event for event in after if event.type == "status"] == []
        assert await harness.store.records("removals") == {}

    async def test_a_job_is_stored_with_its_records(self, harness: StoreHarness) -> None:
        first = harness.new(key="k", tenant="a", webhook="terminal")
        record = NewRecord("job_webhooks", first.job.id, "one")
        known = NewRecord("publisher", "a", "begin", if_absent=True)
        await harness.store.insert([replace(first, records=(record, known))])
        await put(harness, "unrelated", "text", "a")
        again = replace(first, records=(replace(record, text="two"), replace(known, text="later")))
        await harness.store.insert([again])
        second = harness.new(tenant="a")
        await harness.store.insert([replace(second, records=(replace(known, text="later"),))])
        filter = RecordFilter(tenant="a")
        assert await harness.store.records("job_webhooks", filter) == {first.job.id: "one"}
        assert await harness.store.records("publisher", filter) == {"a": "begin"}
        assert (await harness.get(first.job.id)).webhook == "terminal"
        events = await harness.store.events(tenant="a")
        assert [event.job.get("webhook") for event in events] == ["terminal", None]
