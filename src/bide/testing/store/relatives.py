"""Parents and children: a change of one updates the other in the same transaction."""

from __future__ import annotations

from bide.core.jobs.record import Child, Job, Status
from bide.core.jobs.state_machine import (
    CancelAsked,
    Cancelled,
    Failed,
    Lost,
    Parked,
    Rerun,
    Spawned,
    Stale,
    UnknownChild,
    WrongStatus,
    cancel,
)
from bide.server.store import Missing
from bide.testing.store.harness import OOPS, StoreHarness


class Relatives:
    async def test_a_spawn_stores_the_child_and_tells_its_parent(self, harness: StoreHarness) -> None:
        parent = await harness.run()
        child = await harness.spawn(parent, input=b'{"page":1}')
        assert child.status is Status.PENDING
        assert child.parent == parent.id
        after = await harness.get(parent.id)
        assert after.children == (Child(child.id, "part", "0"),)
        assert after.version == parent.version + 1
        (claim,) = await harness.claim("part", queue="parts")
        assert (claim.job.id, claim.input) == (child.id, b'{"page":1}')

    async def test_a_repeated_spawn_finds_the_first_child(self, harness: StoreHarness) -> None:
        parent = await harness.run()
        first = await harness.spawn(parent, "0")
        other = await harness.spawn(parent, "1")
        await harness.apply(Lost(job_id=parent.id, fence=1))
        again = await harness.take(parent.id)
        before = len(await harness.store.events())
        assert (await harness.spawn(again, "0")).id == first.id
        assert [c.job_id for c in (await harness.get(parent.id)).children] == [first.id, other.id]
        assert len(await harness.store.events()) == before

    async def test_a_stale_spawn_makes_no_child(self, harness: StoreHarness) -> None:
        parent = await harness.run()
        new = harness.new(kind="part", parent=parent.id)
        spawned = Spawned(job_id=parent.id, fence=9, child=Child(new.job.id, "part", "0"))
        assert isinstance(await harness.store.spawn(spawned, new), Stale)
        assert await harness.store.get([new.job.id]) == [Missing()]
        assert await harness.get(parent.id) == parent

    async def test_a_spawn_of_an_unknown_parent_makes_no_child(self, harness: StoreHarness) -> None:
        new = harness.new(kind="part")
        spawned = Spawned(job_id="unknown", fence=1, child=Child(new.job.id, "part", "0"))
        assert await harness.store.spawn(spawned, new) == Missing()
        assert await harness.store.get([new.job.id]) == [Missing()]

    async def test_a_parked_parent_wakes_when_the_last_child_has_ended(
        self, harness: StoreHarness
    ) -> None:
        parent = await harness.run()
        one, two = await harness.spawn(parent, "0"), await harness.spawn(parent, "1")
        harness.clock.advance(1)
        parked = Parked(job_id=parent.id, fence=1, waiting_for=(one.id, two.id))
        assert (await harness.apply(parked)).lease_until is None
        assert await harness.claim() == []
        await harness.succeed(await harness.take(one.id), b'"first"')
        assert await harness.claim() == []
        await harness.apply(Failed(job_id=two.id, error=OOPS))
        (claim,) = await harness.claim()
        assert (claim.job.id, claim.job.status, claim.job.fence) == (parent.id, Status.PROCESSING, 2)
        assert claim.job.started_at == parent.started_at
        assert [c.status for c in claim.job.children] == [Status.DONE, Status.ERROR]
        assert bytes(claim.children[one.id].result or b"") == b'"first"'
        assert claim.children[two.id].error == OOPS

    async def test_parking_for_ended_children_wakes_at_once(self, harness: StoreHarness) -> None:
        parent = await harness.run()
        child = await harness.spawn(parent)
        await harness.succeed(await harness.take(child.id))
        await harness.apply(Parked(job_id=parent.id, fence=1, waiting_for=(child.id,)))
        assert [c.job.id for c in await harness.claim()] == [parent.id]

    async def test_cancelling_a_parked_parent_cancels_its_children(self, harness: StoreHarness) -> None:
        parent = await harness.run()
        done, runs, waits = [await harness.spawn(parent, key) for key in "012"]
        held = [c.job for c in await harness.claim("part", queue="parts", limit=2)]
        await harness.succeed(held[0])
        await harness.apply(Parked(job_id=parent.id, fence=1, waiting_for=(done.id, runs.id, waits.id)))
        await harness.apply(cancel(await harness.get(parent.id)))
        statuses = await harness.statuses(parent.id, done.id, runs.id, waits.id)
        assert statuses == [Status.CANCELLED, Status.DONE, Status.PROCESSING, Status.CANCELLED]
        assert (await harness.get(runs.id)).cancel_asked_at == harness.clock.now()

    async def test_asking_a_running_parent_to_stop_asks_its_children_too(
        self, harness: StoreHarness
    ) -> None:
        parent = await harness.run()
        child = await harness.spawn(parent)
        await harness.apply(CancelAsked(job_id=parent.id))
        assert await harness.statuses(parent.id, child.id) == [Status.PROCESSING, Status.CANCELLED]

    async def test_a_failed_parent_cancels_children_and_theirs(self, harness: StoreHarness) -> None:
        parent = await harness.run()
        child = await harness.spawn(parent)
        held = await harness.take(child.id)
        grandchild = await harness.spawn(held, kind="piece", queue="pieces")
        await harness.apply(Parked(job_id=child.id, fence=1, waiting_for=(grandchild.id,)))
        await harness.apply(Failed(job_id=parent.id, fence=1, error=OOPS))
        statuses = await harness.statuses(parent.id, child.id, grandchild.id)
        assert statuses == [Status.ERROR, Status.CANCELLED, Status.CANCELLED]

    async def test_an_ended_parent_notes_a_childs_end_without_another_terminal_event(
        self, harness: StoreHarness
    ) -> None:
        parent = await harness.run()
        child = await harness.spawn(parent)
        held = await harness.take(child.id)
        await harness.apply(Failed(job_id=parent.id, fence=1, error=OOPS))
        await harness.apply(Cancelled(job_id=child.id, fence=held.fence))
        after = await harness.get(parent.id)
        assert [c.status for c in after.children] == [Status.CANCELLED]
        published = [e.job["status"] for e in await harness.store.events(job_id=parent.id)]
        assert published.count("ERROR") == 1

    async def test_a_rerun_runs_the_unsuccessful_children_again(self, harness: StoreHarness) -> None:
        parent = await harness.run()
        good, bad = await harness.spawn(parent, "0"), await harness.spawn(parent, "1")
        await harness.succeed(await harness.take(good.id))
        await harness.apply(Failed(job_id=bad.id, error=OOPS))
        await harness.apply(Failed(job_id=parent.id, fence=1, error=OOPS))
        again = await harness.apply(Rerun(job_id=parent.id))
        assert [c.status for c in again.children] == [Status.DONE, None]
        assert await harness.statuses(good.id, bad.id) == [Status.DONE, Status.PENDING]
        held = await harness.take(parent.id)
        await harness.apply(Parked(job_id=parent.id, fence=held.fence, waiting_for=(good.id, bad.id)))
        await harness.succeed(await harness.take(bad.id))
        (claim,) = await harness.claim()
        assert [c.status for c in claim.job.children] == [Status.DONE, Status.DONE]

    async def test_a_rerun_is_refused_while_a_child_is_being_cancelled(
        self, harness: StoreHarness
    ) -> None:
        """Else the new run would wait for the child and fail because it ends as CANCELLED."""
        parent = await harness.run()
        child = await harness.take((await harness.spawn(parent)).id)
        grandchild = await harness.take((await harness.spawn(child, kind="piece", queue="pieces")).id)
        await harness.apply(Parked(job_id=child.id, fence=1, waiting_for=(grandchild.id,)))
        await harness.apply(Parked(job_id=parent.id, fence=1, waiting_for=(child.id,)))
        await harness.apply(cancel(await harness.get(parent.id)))
        statuses = await harness.statuses(parent.id, child.id, grandchild.id)
        assert statuses == [Status.CANCELLED, Status.CANCELLED, Status.PROCESSING]
        for ended in (parent, child):
            refusal = await harness.refuse(Rerun(job_id=ended.id))
            assert isinstance(refusal, WrongStatus) and grandchild.id in refusal.reason
        await harness.apply(Cancelled(job_id=grandchild.id, fence=grandchild.fence))
        await harness.apply(Rerun(job_id=parent.id))
        statuses = await harness.statuses(parent.id, child.id, grandchild.id)
        assert statuses == [Status.PENDING, Status.PENDING, Status.PENDING]

    async def test_a_deleted_child_does_not_hold_up_its_parents_next_run(
        self, harness: StoreHarness
    ) -> None:
        parent = await harness.run()
        child = await harness.spawn(parent)
        await harness.apply(Failed(job_id=parent.id, fence=1, error=OOPS))
        assert isinstance(await harness.store.delete(child.id), Job)
        await harness.apply(Rerun(job_id=parent.id))
        held = await harness.take(parent.id)
        parked = Parked(job_id=parent.id, fence=held.fence, waiting_for=(child.id,))
        assert (await harness.apply(parked)).due == harness.clock.now()
        held = await harness.take(parent.id)
        successor = await harness.spawn(held)
        assert successor.id != child.id
        assert [c.job_id for c in (await harness.get(parent.id)).children] == [successor.id]

    async def test_a_job_does_not_park_on_a_job_that_is_not_its_child(
        self, harness: StoreHarness
    ) -> None:
        parent = await harness.run()
        child = await harness.spawn(parent)
        stranger = await harness.put(queue="other")
        for unknown in ("unknown", stranger.id):
            parked = Parked(job_id=parent.id, fence=1, waiting_for=(child.id, unknown))
            assert isinstance(await harness.refuse(parked), UnknownChild)
        assert (await harness.get(parent.id)).running

    async def test_parked_jobs_whose_children_cannot_end_are_resumed(
        self, harness: StoreHarness
    ) -> None:
        now = harness.clock.now()
        waits = {"status": Status.PROCESSING, "due": None, "started_at": now, "attempt": 1, "fence": 1}
        ended = await harness.succeed(await harness.run(kind="part", queue="parts"))
        live = await harness.put(kind="part", queue="parts")
        link = Child(ended.id, "part", "1")
        lost = await harness.put(waiting_for=("unknown",), **waits)
        unnoted = await harness.put(waiting_for=(ended.id,), children=(link,), **waits)
        both = await harness.put(
            waiting_for=("unknown", ended.id), children=(link, Child("unknown", "part", "2")), **waits
        )
        half = await harness.put(
            waiting_for=("unknown", live.id), children=(Child(live.id, "part", "1"),), **waits
        )
        assert await harness.claim() == []
        resumed, more = await harness.store.resume_parked()
        assert (sorted(resumed), more) == (sorted([lost.id, unnoted.id, both.id]), None)
        assert await harness.store.resume_parked() == ([], None), "they are due now"
        assert (await harness.get(half.id)).due is None, "it waits for a job that exists"
        claims = {c.job.id: c.job for c in await harness.claim()}
        assert set(claims) == {lost.id, unnoted.id, both.id}
        assert {job.attempt for job in claims.values()} == {1}, "it continues its attempt"
        assert [c.status for c in claims[unnoted.id].children] == [Status.DONE]
        assert [c.status for c in claims[both.id].children] == [Status.DONE, Status.CANCELLED]

    async def test_parked_jobs_are_examined_a_page_at_a_time(self, harness: StoreHarness) -> None:
        parents = []
        for number in range(5):
            parent = await harness.run()
            child = await harness.spawn(parent)
            await harness.apply(Parked(job_id=parent.id, fence=1, waiting_for=(child.id,)))
            parents.append(await harness.get(parent.id))
            assert number < 4 or await harness.store.resume_parked() == ([], None)
        waits = {"status": Status.PROCESSING, "due": None}
        stuck = [await harness.put(waiting_for=("unknown",), **waits) for _ in range(2)]
        found: list[str] = []
        after: str | None = ""
        pages = 0
        while after is not None:
            resumed, after = await harness.store.resume_parked(after, 3)
            found += resumed
            pages += 1
        assert sorted(found) == [job.id for job in stuck]
        assert pages == 3
        assert [await harness.get(parent.id) for parent in parents] == parents
