"""Concurrency keys: how many jobs with the same key workers hold at once, and that the others block nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from bide.core.jobs.fair import Weights
from bide.core.jobs.record import Child, Job, Status
from bide.core.jobs.state_machine import (
    CancelAsked,
    Cancelled,
    FailedForNow,
    HandedBack,
    Lost,
    Parked,
    PriorityChanged,
    Spawned,
)
from bide.server.store import Claim, ClaimRequest, QueueState
from bide.testing.store.harness import LEASE, OOPS, StoreHarness

TWO = {"work": 2}


async def claim(
    harness: StoreHarness, room: int = 100, limits: Mapping[str, int] = TWO, owner: str = "worker"
) -> list[Claim]:
    request = ClaimRequest("default", ("work", "free"), room, concurrency=limits)
    return await harness.store.claim(owner, [request], room, LEASE)


async def claimed(harness: StoreHarness, room: int = 100, limits: Mapping[str, int] = TWO) -> list[Job]:
    return [claim.job for claim in await claim(harness, room, limits)]


async def put(harness: StoreHarness, key: str | None, number: int = 1, **fields: object) -> list[str]:
    fields = {"concurrency_key": key, **fields}
    new = [harness.new(**fields) for _ in range(number)]  # type: ignore[arg-type]
    await harness.store.insert(new)
    return [one.job.id for one in new]


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


class Concurrency:
    async def test_at_most_so_many_jobs_of_a_key_are_held(self, harness: StoreHarness) -> None:
        a = await put(harness, "work - a", 5)
        b = await put(harness, "work - b", 1)
        none = await put(harness, None, 2)
        free = await put(harness, None, 1, kind="free")
        jobs = await claimed(harness)
        assert ids(jobs) == [a[0], a[1], *b, *none, *free], "the others are not blocked"
        assert await claimed(harness) == []
        await harness.succeed(jobs[0])
        (third,) = await claimed(harness)
        assert third.id == a[2]
        await harness.succeed(jobs[1])
        await harness.succeed(third)
        assert ids(await claimed(harness, 1)) == [a[3]]
        assert ids(await claimed(harness)) == [a[4]]
        assert await claimed(harness) == []

    async def test_every_end_of_a_lease_frees_its_place(self, harness: StoreHarness) -> None:
        waiting = await put(harness, "work - a", 8)
        one = {"work": 1}
        (job,) = await claimed(harness, limits=one)
        now = harness.clock.now()
        retry = FailedForNow(job_id=job.id, fence=1, error=OOPS, retry_at=now + 5)
        for change, following in (
            (retry, 1),
            (Cancelled(job_id=waiting[1]), 2),
            (HandedBack(job_id=waiting[2], fence=1), 2),
            (Lost(job_id=waiting[2], fence=2), 2),
        ):
            assert await claimed(harness, limits=one) == []
            await harness.apply(change)
            (job,) = await claimed(harness, limits=one)
            assert job.id == waiting[following]
        await harness.apply(CancelAsked(job_id=job.id))
        assert await claimed(harness, limits=one) == [], "it still runs"
        await harness.succeed(job)
        (job,) = await claimed(harness, limits=one)
        assert job.id == waiting[3]
        harness.clock.advance(5)
        await harness.store.wake()
        assert await claimed(harness, limits=one) == []
        await harness.succeed(job)
        assert ids(await claimed(harness, limits=one)) == [waiting[0]], "the retry was submitted first"

    async def test_a_waiting_job_that_is_removed_leaves_its_place(self, harness: StoreHarness) -> None:
        """The end of the first job makes one other claimable. If that one does not start, the next one must."""
        _, second, third, fourth = await put(harness, "work - a", 4)
        one = {"work": 1}
        (job,) = await claimed(harness, limits=one)
        assert await claimed(harness, limits=one) == []
        await harness.succeed(job)
        await harness.apply(Cancelled(job_id=second))
        await harness.store.delete(third)
        assert ids(await claimed(harness, limits=one)) == [fourth]

    async def test_a_parked_job_holds_no_place(self, harness: StoreHarness) -> None:
        first, second = await put(harness, "work - a", 2)
        one = {"work": 1}
        (job,) = await claimed(harness, limits=one)
        new = harness.new(kind="part", queue="parts", parent=first)
        link = Child(new.job.id, "part", "0")
        await harness.store.spawn(Spawned(job_id=first, owner="worker", fence=1, child=link), new)
        await harness.apply(Parked(job_id=first, fence=job.fence, waiting_for=(new.job.id,)))
        (job,) = await claimed(harness, limits=one)
        assert job.id == second
        await harness.apply(Cancelled(job_id=new.job.id))
        assert await claimed(harness, limits=one) == [], "the parent waits for its place"
        await harness.succeed(job)
        assert ids(await claimed(harness, limits=one)) == [first]

    async def test_blocked_jobs_keep_their_order(self, harness: StoreHarness) -> None:
        _, second, third = await put(harness, "work - a", 3)
        one = {"work": 1}
        (job,) = await claimed(harness, limits=one)
        assert await claimed(harness, limits=one) == []
        await harness.apply(PriorityChanged(job_id=third, priority=1))
        (urgent,) = await put(harness, "work - a", priority=2)
        assert await claimed(harness, limits=one) == []
        for expected in (urgent, third, second):
            await harness.succeed(job)
            (job,) = await claimed(harness, limits=one)
            assert job.id == expected

    async def test_a_settlement_and_a_claim_in_one_transaction(self, harness: StoreHarness) -> None:
        first, second, third = await put(harness, "work - a", 3)
        one = {"work": 1}
        assert ids(await claimed(harness, limits=one)) == [first]
        back = HandedBack(job_id=first, owner="worker", fence=1)
        settling = harness.store.apply([back])
        claiming = claim(harness, limits=one)
        assert [c.job.id for c in await claiming] == [first]
        await settling
        storing = harness.store.insert([harness.new(concurrency_key="work - b", kind="work")])
        (other,) = await claim(harness, limits=one)
        await storing
        assert other.job.concurrency_key == "work - b"
        assert await harness.statuses(second, third) == [Status.PENDING, Status.PENDING]

    async def test_blocked_jobs_wait_and_survive_a_restart(self, harness: StoreHarness) -> None:
        await put(harness, "work - a", 5)
        jobs = await claimed(harness)
        assert await harness.store.queues() == [
            QueueState("default", waiting=3, running=2, oldest=harness.clock.now())
        ]
        await harness.reopen()
        assert await claimed(harness) == []
        await harness.reopen()
        more = await claimed(harness, limits={"work": 4})
        assert len(more) == 2, "the limit was raised"
        for job in (*jobs, more[0]):
            assert await claimed(harness) == []
            await harness.succeed(job)
        assert len(await claimed(harness)) == 1

    async def test_a_limit_of_the_whole_kind_is_shared_by_the_tenants(
        self, harness: StoreHarness
    ) -> None:
        for tenant in "ab":
            await put(harness, "work", 9, tenant=tenant)
        await put(harness, None, 1, kind="free", tenant="c")
        found = await claimed(harness, limits={"work": 4})
        assert sorted(job.tenant for job in found) == ["a", "a", "b", "b", "c"]
        for job in found:
            await harness.succeed(job)
        again = await claimed(harness, limits={"work": 4})
        assert sorted(job.tenant for job in again) == ["a", "a", "b", "b"]

    async def test_keys_give_a_tenant_no_larger_share(self, harness: StoreHarness) -> None:
        keys = [f"work a {number}" for number in range(1000)]
        await harness.store.insert([harness.new(concurrency_key=key, tenant="a") for key in keys])
        await put(harness, "work b 0", 3, tenant="b")
        jobs = await claimed(harness, 6, {"work": 9})
        assert [job.tenant for job in jobs] == ["a", "b"] * 3

    async def test_limits_of_the_running_jobs_of_a_tenant_apply_too(self, harness: StoreHarness) -> None:
        harness.store.share_by(
            Weights(), lambda tenant, kind: (3 if tenant == "a" else None, 1 if kind == "free" else None)
        )
        await put(harness, None, 30, kind="free", tenant="a")
        await put(harness, "work a 0", 3, tenant="a")
        await put(harness, "work a 1", 3, tenant="a")
        await put(harness, None, 3, kind="free", tenant="b")
        await put(harness, "work b 0", 3, tenant="b")
        jobs = await claimed(harness, 8)
        expected = {("a", "free"): 1, ("a", "work"): 2, ("b", "free"): 1, ("b", "work"): 2}
        assert Counter((job.tenant, job.kind) for job in jobs) == expected
        assert await claimed(harness, 8) == []
        (first, *_) = [job for job in jobs if (job.tenant, job.kind) == ("a", "work")]
        await harness.succeed(first)
        assert [(job.tenant, job.kind) for job in await claimed(harness, 8)] == [("a", "work")]
        # A limit of the whole kind is shared by the tenants that may start more.
        await put(harness, "work", 2, tenant="a")
        await put(harness, "work", 2, tenant="c")
        assert [job.tenant for job in await claimed(harness, 8)] == ["c", "c"]

    async def test_claims_at_the_same_time_keep_the_limit(self, harness: StoreHarness) -> None:
        for key in ("a", "b", "c"):
            await put(harness, f"work - {key}", 10)
        found = await asyncio.gather(*(claim(harness, 4) for _ in range(8)))
        keys = [c.job.concurrency_key for claims in found for c in claims]
        assert sorted(map(str, keys)) == ["work - a"] * 2 + ["work - b"] * 2 + ["work - c"] * 2

    async def test_prefetched_jobs_hold_their_places(self, harness: StoreHarness) -> None:
        a = await put(harness, "work - a", 3)
        request = ClaimRequest("default", ("work",), 9, 1, concurrency=TWO)
        found = await harness.store.claim("w", [request], 9, LEASE)
        assert [(c.job.id, c.job.status) for c in found] == [
            (a[0], Status.PROCESSING),
            (a[1], Status.PENDING),
        ]
        assert await claimed(harness) == []

    async def test_jobs_that_are_blocked_without_a_reason_become_claimable(
        self, harness: StoreHarness
    ) -> None:
        await put(harness, "work - a", 3)
        (held,) = await put(harness, "work - b", 1)
        await put(harness, "work - b", 1)
        assert ids(await claimed(harness, limits={"work": 0})) == []  # blocks all of them
        assert await claimed(harness) == []
        assert await harness.store.repair_blocked() == {("default", "work")}
        jobs = await claimed(harness, limits={"work": 1})
        assert [job.concurrency_key for job in jobs] == ["work - a", "work - b"] and jobs[1].id == held
        # The others wait for the end of these two.
        assert await claimed(harness, limits={"work": 1}) == []
        assert await harness.store.repair_blocked() == set()
        assert await claimed(harness) == []
        await harness.succeed(jobs[1])
        assert [job.concurrency_key for job in await claimed(harness)] == ["work - b"]
