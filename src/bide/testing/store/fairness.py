"""Fair sharing: how the tenants of a queue take turns, and the order within a tenant."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bide.core.jobs.fair import PRIORITY_STEP, Weights
from bide.core.jobs.record import Job
from bide.core.jobs.state_machine import Cancelled, FailedForNow, HandedBack, PriorityChanged, Rerun
from bide.server.store import ClaimRequest
from bide.testing.store.harness import LEASE, OOPS, StoreHarness


async def put_many(harness: StoreHarness, tenant: str, number: int, **fields: Any) -> list[Job]:
    new = [harness.new(tenant=tenant, **fields) for _ in range(number)]
    await harness.store.insert(new)
    return [one.job for one in new]


async def claimed(harness: StoreHarness, *rooms: int, kinds: tuple[str, ...] = ("work",)) -> str:
    """The tenants of the jobs of several claims, one letter each."""
    claims = [claim for room in rooms for claim in await harness.claim(*kinds, limit=room)]
    return "".join(claim.job.tenant for claim in claims)


class Fairness:
    async def test_tenants_take_turns(self, harness: StoreHarness) -> None:
        for tenant, number in (("a", 9), ("b", 2), ("c", 4)):
            await put_many(harness, tenant, number)
        assert await claimed(harness, 1, 1, 1, 1, 1) == "abcab"
        assert await claimed(harness, 4, 3) == "cacacaa", "b has no more"
        assert await claimed(harness, 100) == "aaa"

    async def test_one_claim_is_as_fair_as_many(self, harness: StoreHarness) -> None:
        for tenant, number in (("a", 30), ("b", 10), ("c", 1)):
            await put_many(harness, tenant, number)
        assert await claimed(harness, 41) == "abc" + 9 * "ab" + 20 * "a"

    async def test_a_new_tenant_is_next_and_has_no_credit_for_waiting(
        self, harness: StoreHarness
    ) -> None:
        await put_many(harness, "m", 50)
        assert await claimed(harness, 5, 3) == "m" * 8
        await put_many(harness, "z", 1)
        assert await claimed(harness, 3) == "zmm"
        await put_many(harness, "a", 9)
        assert await claimed(harness, 1, 1, 1, 1) == "amam", "as often as the others, not more often"

    async def test_what_one_transaction_stores_and_claims_is_fair(self, harness: StoreHarness) -> None:
        await put_many(harness, "a", 10)
        assert await claimed(harness, 1) == "a"
        storing = harness.store.insert([harness.new(tenant="b"), harness.new(tenant="b")])
        claims = await harness.claim(limit=4)
        await storing
        assert "".join(claim.job.tenant for claim in claims) == "baba"

    async def test_weights_are_shares(self, harness: StoreHarness) -> None:
        harness.store.share_by(Weights(1.0, {"b": 3.0, "c": 0.5}))
        for tenant in "abc":
            await put_many(harness, tenant, 60)
        for rooms in ([45], [1] * 45):
            assert Counter(await claimed(harness, *rooms)) == {"a": 10, "b": 30, "c": 5}
        assert Counter(await claimed(harness, 200)) == {"a": 40, "c": 50}, "nothing is left unused"

    async def test_kinds_share_one_turn(self, harness: StoreHarness) -> None:
        for _ in range(4):
            for kind in ("one", "two", "three"):
                await put_many(harness, "a", 1, kind=kind)
            await put_many(harness, "b", 1, kind="two")
        kinds = ("one", "two", "three")
        assert await claimed(harness, 3, 1, 4, kinds=kinds) == "abababab"
        assert await claimed(harness, 100, kinds=kinds) == "a" * 8

    async def test_queues_have_turns_of_their_own(self, harness: StoreHarness) -> None:
        for queue in ("x", "y"):
            for tenant in "ab":
                await put_many(harness, tenant, 2, queue=queue)
        wants = [ClaimRequest("x", ("work",), 1), ClaimRequest("y", ("work",), 1)]
        for expected in ("aa", "bb"):
            claims = await harness.store.claim("w", wants, 2, LEASE)
            assert "".join(claim.job.tenant for claim in claims) == expected

    async def test_names_of_tenants_have_one_order(self, harness: StoreHarness) -> None:
        names = ["-", "A", "B", "_", "a", "b", "ä", "日", "🙂"]
        for tenant in reversed(names):
            await put_many(harness, tenant, 2)
        assert [c.job.tenant for c in await harness.claim(limit=18)] == names * 2

    async def test_many_tenants_are_all_reached(self, harness: StoreHarness) -> None:
        for number in range(60):
            await put_many(harness, f"t{number:02}", 2)
        tenants = [c.job.tenant for _ in range(12) for c in await harness.claim(limit=10)]
        assert tenants == [f"t{number:02}" for number in range(60)] * 2

    async def test_within_a_tenant_by_priority_and_age(self, harness: StoreHarness) -> None:
        old = (await put_many(harness, "a", 1))[0]
        harness.clock.advance(PRIORITY_STEP - 1)
        (urgent,) = await put_many(harness, "a", 1, priority=1)
        (later,) = await put_many(harness, "a", 1)
        harness.clock.advance(2)
        (too_late,) = await put_many(harness, "a", 1, priority=1)
        (first,) = await put_many(harness, "a", 1, priority=2)
        ids = [claim.job.id for claim in await harness.claim()]
        assert ids == [first.id, urgent.id, old.id, too_late.id, later.id]

    async def test_a_priority_does_not_help_against_other_tenants(self, harness: StoreHarness) -> None:
        await put_many(harness, "a", 5, priority=1000)
        await put_many(harness, "b", 5, priority=-1000)
        assert await claimed(harness, 10) == "ab" * 5

    async def test_age_begins_when_a_job_may_start(self, harness: StoreHarness) -> None:
        soon = harness.clock.now() + 2 * PRIORITY_STEP
        scheduled = await harness.put(run_at=soon)
        past = await harness.put(run_at=harness.clock.now() - 9 * PRIORITY_STEP)
        harness.clock.advance(2 * PRIORITY_STEP)
        urgent = await harness.put(priority=1)
        await harness.store.wake()
        ids = [claim.job.id for claim in await harness.claim()]
        assert ids == [past.id, urgent.id, scheduled.id]

    async def test_a_retry_keeps_its_place_and_a_new_run_does_not(self, harness: StoreHarness) -> None:
        retried = await harness.run()
        rerun = await harness.run()
        handed_back = await harness.run()
        await harness.apply(Cancelled(job_id=rerun.id))
        harness.clock.advance(2 * PRIORITY_STEP)
        others = [await harness.put(), await harness.put(priority=1)]
        harness.clock.advance(1)
        now = harness.clock.now()
        await harness.apply(FailedForNow(job_id=retried.id, fence=1, error=OOPS, retry_at=now))
        await harness.apply(Rerun(job_id=rerun.id))
        await harness.apply(HandedBack(job_id=handed_back.id, fence=1))
        ids = [claim.job.id for claim in await harness.claim()]
        assert ids == [retried.id, handed_back.id, others[1].id, others[0].id, rerun.id]

    async def test_a_changed_priority_changes_the_place(self, harness: StoreHarness) -> None:
        first, second = await harness.put(), await harness.put()
        await harness.apply(PriorityChanged(job_id=second.id, priority=1))
        assert [c.job.id for c in await harness.claim()] == [second.id, first.id]

    async def test_running_jobs_of_a_tenant_are_limited(self, harness: StoreHarness) -> None:
        def running(tenant: str, kind: str) -> tuple[int | None, int | None]:
            return {"a": 2}.get(tenant), 1 if kind == "rare" else None

        harness.store.share_by(Weights(), running)
        for tenant in "ab":
            await put_many(harness, tenant, 5)
        claims = await harness.claim(limit=10)
        assert "".join(claim.job.tenant for claim in claims) == "ababbbb"
        assert await claimed(harness, 10) == "", "the others of a wait"
        await harness.succeed(claims[0].job)
        assert await claimed(harness, 10) == "a"
        # A job that starts in the transaction that stores it counts, too.
        storing = harness.store.insert([harness.new(tenant="a"), harness.new(tenant="c")])
        assert await claimed(harness, 10) == "c"
        await storing

    async def test_running_jobs_of_a_kind_are_limited(self, harness: StoreHarness) -> None:
        harness.store.share_by(Weights(), lambda tenant, kind: (None, 1 if kind == "rare" else None))
        await put_many(harness, "a", 30, kind="rare")
        await put_many(harness, "a", 2)
        await put_many(harness, "b", 3, kind="rare")
        claims = await harness.claim("rare", "work", limit=4)
        assert sorted(claim.job.tenant + claim.job.kind for claim in claims) == [
            *("arare", "awork", "awork", "brare")
        ]
        assert await claimed(harness, 4, kinds=("rare", "work")) == ""

    async def test_waiting_jobs_are_counted_by_tenant(self, harness: StoreHarness) -> None:
        await put_many(harness, "a", 3)
        await put_many(harness, "b", 1)
        await put_many(harness, "b", 1, queue="other")
        await put_many(harness, "c", 1, due=harness.clock.now() + 60)
        assert await harness.store.waiting_by_tenant("default") == {"a": 3, "b": 1}
        await harness.claim(limit=1)
        assert sum((await harness.store.waiting_by_tenant("default")).values()) == 3
        assert await harness.store.waiting_by_tenant("none") == {}
