"""Claims: the order in which workers get jobs, and that a fence only grows."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from bide.core.jobs.record import Child, FileInfo, Status
from bide.core.jobs.state_machine import (
    Begun,
    Failed,
    FailedForNow,
    HandedBack,
    Lost,
    Spawned,
    Stale,
    StepKept,
    StepStarted,
    Succeeded,
)
from bide.server.store import STEPS_WITH_CLAIM, ClaimRequest, InputFile, Missing, NewJob, QueueState
from bide.testing.store.harness import LEASE, OOPS, StoreHarness


class Claims:
    async def test_a_claim_gives_the_job_a_lease_an_owner_and_a_fence(
        self, harness: StoreHarness
    ) -> None:
        job = await harness.put()
        (claim,) = await harness.claim(owner="w1")
        now = harness.clock.now()
        held = claim.job
        assert (held.id, held.status, held.owner) == (job.id, Status.PROCESSING, "w1")
        assert (held.lease_until, held.started_at, held.due) == (now + LEASE, now, None)
        assert (held.fence, held.attempt, held.version) == (1, 1, 2)
        assert await harness.get(job.id) == held

    async def test_a_claim_carries_input_and_files(self, harness: StoreHarness) -> None:
        file = InputFile("other", FileInfo("in.mp4", "video/mp4", 9, "cd", "blob"))
        await harness.store.insert([NewJob(harness.new().job, b'{"height":480}', (file,))])
        (claim,) = await harness.claim()
        assert (claim.input, claim.files, claim.steps, claim.children) == (
            b'{"height":480}',
            (file,),
            {},
            {},
        )

    async def test_nobody_gets_a_job_twice(self, harness: StoreHarness) -> None:
        for _ in range(10):
            await harness.put()
        rounds = await asyncio.gather(*(harness.claim(limit=4) for _ in range(4)))
        ids = [claim.job.id for claims in rounds for claim in claims]
        assert len(ids) == len(set(ids)) == 10

    async def test_higher_priority_first_then_the_oldest(self, harness: StoreHarness) -> None:
        low = await harness.put(priority=-1)
        first = await harness.put()
        second = await harness.put()
        high = await harness.put(priority=5)
        claims = await harness.claim()
        assert [c.job.id for c in claims] == [high.id, first.id, second.id, low.id]

    async def test_the_kinds_of_a_want_are_one_line(self, harness: StoreHarness) -> None:
        a = await harness.put(kind="a")
        b = await harness.put(kind="b", priority=1)
        a2 = await harness.put(kind="a", priority=2)
        b2 = await harness.put(kind="b")
        claims = await harness.claim("a", "b", limit=3)
        assert [c.job.id for c in claims] == [a2.id, b.id, a.id]
        assert [c.job.id for c in await harness.claim("a", "b")] == [b2.id]

    async def test_wants_are_served_in_their_order_each_to_its_limit(
        self, harness: StoreHarness
    ) -> None:
        slow = [await harness.put(queue="slow", priority=9) for _ in range(3)]
        quick = [await harness.put(queue="quick") for _ in range(3)]
        wants = [ClaimRequest("quick", ("work",), 2), ClaimRequest("slow", ("work",), 5)]
        claims = await harness.store.claim("w", wants, 4, LEASE)
        expected = [quick[0].id, quick[1].id, slow[0].id, slow[1].id]
        assert [c.job.id for c in claims] == expected

    async def test_only_the_wanted_queue_and_kinds(self, harness: StoreHarness) -> None:
        await harness.put(kind="other")
        await harness.put(queue="other")
        assert await harness.claim() == []

    async def test_only_due_jobs(self, harness: StoreHarness) -> None:
        await harness.put(run_at=harness.clock.now() + 10)
        await harness.put(status=Status.UPLOADING, due=None)
        assert await harness.claim() == []
        harness.clock.advance(10)
        await harness.store.wake()
        assert len(await harness.claim()) == 1

    async def test_a_paused_queue_gives_none_until_it_goes_on(self, harness: StoreHarness) -> None:
        await harness.put()
        other = await harness.put(queue="other")
        await harness.store.pause("default", True)
        wants = [ClaimRequest("default", ("work",), 5), ClaimRequest("other", ("work",), 5)]
        assert [c.job.id for c in await harness.store.claim("w", wants, 5, LEASE)] == [other.id]
        await harness.store.pause("default", False)
        assert len(await harness.claim()) == 1

    async def test_a_pause_survives_reopening(self, harness: StoreHarness) -> None:
        await harness.put()
        await harness.store.pause("default", True)
        await harness.reopen()
        assert await harness.claim() == []
        assert [q.paused for q in await harness.store.queues()] == [True]

    async def test_the_fence_grows_with_every_claim(self, harness: StoreHarness) -> None:
        job = await harness.run()
        fences = [job.fence]
        for change in (
            Lost(job_id=job.id, fence=1),
            HandedBack(job_id=job.id, fence=2),
            FailedForNow(job_id=job.id, fence=3, error=OOPS, retry_at=harness.clock.now()),
        ):
            await harness.apply(change)
            fences.append((await harness.take(job.id)).fence)
        assert fences == [1, 2, 3, 4]

    async def test_a_loss_uses_up_no_attempt_and_a_failure_does(self, harness: StoreHarness) -> None:
        job = await harness.run()
        await harness.apply(Lost(job_id=job.id, fence=1))
        again = await harness.take(job.id)
        assert (again.attempt, again.losses, again.failures) == (1, 1, 0)
        now = harness.clock.now()
        await harness.apply(FailedForNow(job_id=job.id, fence=2, error=OOPS, retry_at=now))
        third = await harness.take(job.id)
        assert (third.attempt, third.losses, third.failures) == (2, 1, 1)

    async def test_what_is_reserved_has_a_lease_and_does_not_run_yet(
        self, harness: StoreHarness
    ) -> None:
        jobs = [await harness.put() for _ in range(3)]
        claims = await harness.store.claim(
            "w", [ClaimRequest("default", ("work",), 3, begin=1)], 3, LEASE
        )
        assert [c.job.id for c in claims] == [job.id for job in jobs]
        first, second, third = (c.job for c in claims)
        assert (first.status, first.attempt) == (Status.PROCESSING, 1)
        assert (second.status, second.attempt, second.fence) == (Status.PENDING, 0, 1)
        assert second.lease_until == harness.clock.now() + LEASE
        assert await harness.claim() == [], "that worker has prefetched it"
        assert await harness.store.queues() == [QueueState("default", running=3)]
        begun = await harness.apply(Begun(job_id=second.id, fence=1, started_at=harness.clock.now()))
        assert (begun.status, begun.attempt) == (Status.PROCESSING, 1)
        assert (await harness.succeed(begun)).status is Status.DONE
        back = await harness.apply(HandedBack(job_id=third.id, fence=1))
        assert (back.status, back.lease_until, back.attempt) == (Status.PENDING, None, 0)
        assert (await harness.take(third.id)).fence == 2

    async def test_only_some_kinds_and_nobody_is_overtaken(self, harness: StoreHarness) -> None:
        first = await harness.put(kind="a")
        other = await harness.put(kind="b")
        await harness.put(kind="a")
        want = ClaimRequest("default", ("a", "b"), 5, only=frozenset({"a"}))
        assert [c.job.id for c in await harness.store.claim("w", [want], 5, LEASE)] == [first.id]
        assert await harness.store.claim("w", [want], 5, LEASE) == [], "b comes first"
        assert [c.job.id for c in await harness.claim("a", "b", limit=1)] == [other.id]

    async def test_a_job_that_is_handed_back_can_be_claimed_in_the_same_breath(
        self, harness: StoreHarness
    ) -> None:
        job = await harness.run()
        await harness.put()
        settling = harness.store.apply([HandedBack(job_id=job.id, owner="worker", fence=1)])
        claims = await harness.store.claim("w2", [ClaimRequest("default", ("work",), 1)], 1, LEASE)
        assert [(c.job.id, c.job.fence) for c in claims] == [(job.id, 2)]
        await settling

    async def test_a_claim_brings_only_so_much_of_large_kept_steps(self, harness: StoreHarness) -> None:
        job = await harness.run()
        results = {f"ü{n}": msgspec.json.encode(f"{n}ü" * 200_000) for n in range(6)}
        for name, result in results.items():
            await harness.apply(StepKept(job_id=job.id, fence=1, name=name, result=msgspec.Raw(result)))
        await harness.apply(Lost(job_id=job.id, fence=1))
        (claim,) = await harness.claim()
        brought = {name: bytes(raw) for name, raw in claim.steps.items()}
        assert 0 < sum(map(len, brought.values())) <= STEPS_WITH_CLAIM
        assert brought == {name: results[name] for name in brought}
        assert {s.name for s in claim.job.steps} == set(results)
        for name, result in results.items():
            assert await harness.store.step(job.id, name) == result
        assert await harness.store.step(job.id, "none") is None
        assert await harness.store.step("unknown", "ü0") is None

    async def test_kept_steps_are_given_back(self, harness: StoreHarness) -> None:
        job = await harness.run()
        file = FileInfo("a.mp4", "video/mp4", 3, "ab", "blob")
        kept = StepKept(
            job_id=job.id, fence=1, name="probe", result=msgspec.Raw(b'{"s":"\xc3\xbc"}'), files=(file,)
        )
        await harness.apply(kept)
        await harness.apply(Lost(job_id=job.id, fence=1))
        await harness.reopen()
        (claim,) = await harness.claim()
        assert {name: bytes(raw) for name, raw in claim.steps.items()} == {"probe": b'{"s":"\xc3\xbc"}'}
        assert [(s.name, s.status) for s in claim.job.steps] == [("probe", Status.DONE)]
        assert claim.job.files == (file,)

    async def test_another_owner_with_the_same_fence_changes_nothing(
        self, harness: StoreHarness
    ) -> None:
        """After a failover that lost a claim, another worker gets the same fence."""
        job = await harness.run()
        stale: dict[str, Any] = {"job_id": job.id, "owner": "another", "fence": job.fence}
        for change in (
            Succeeded(**stale),
            FailedForNow(error=OOPS, retry_at=harness.clock.now(), **stale),
            StepStarted(name="one", **stale),
            StepKept(name="one", result=msgspec.Raw(b"1"), **stale),
            HandedBack(**stale),
            Lost(lease=job.lease_until, **stale),
            Failed(error=OOPS, **stale),
        ):
            assert isinstance(await harness.refuse(change), Stale), change
        new = harness.new(kind="part", parent=job.id)
        spawned = Spawned(child=Child(new.job.id, "part", "0"), **stale)
        assert isinstance(await harness.store.spawn(spawned, new), Stale)
        assert await harness.store.get([new.job.id]) == [Missing()]
        held = [(job.id, job.fence)]
        assert await harness.store.renew("another", held, LEASE) == held
        await harness.store.log(job.id, "another", job.fence, [{"message": "stale"}])
        assert [e.type for e in await harness.store.events()] == ["status", "status"]
        assert (await harness.get(job.id)) == job
        assert (await harness.succeed(job)).status is Status.DONE
