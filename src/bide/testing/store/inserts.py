"""Inserts: job, key and first event in one transaction; a repeated key returns the first job."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bide.core.errors import ErrorInfo, InvalidInput
from bide.core.jobs.record import Child, FileInfo, Job, LossRecord, Progress, Status, Step
from bide.core.jobs.state_machine import CancelAsked, Cancelled, Failed, Rerun
from bide.server.store import ClaimRequest, InputFile, Inserted, KeyConflict, Missing, NewJob
from bide.server.upload_record import owner_of
from bide.testing.store.harness import LEASE, StoreHarness


def full_job(id: str, now: float) -> Job:
    """Return a job with every field set to a different value."""
    file = FileInfo("a.mp4", "video/mp4", 3, "ab", "blob-1")
    return Job(
        id=id,
        kind="full",
        queue="video",
        created_at=now,
        updated_at=now + 0.25,
        tenant="someone",
        status=Status.ERROR,
        version=7,
        run=2,
        priority=-3,
        labels={"team": "a \"b' ü", "": ""},
        run_at=now + 1,
        due=now + 2,
        deadline=now + 3,
        attempt=2,
        max_attempts=4,
        failures=1,
        losses=2,
        loss_record=LossRecord(1, 3, 41.5),
        fence=5,
        owner="w",
        lease_until=now + 4,
        lease_seconds=30.0,
        started_at=now + 5,
        next_attempt_at=now + 6,
        cancel_asked_at=now + 7,
        finished_at=now + 8,
        keep=60.5,
        expires_at=now + 9,
        result=msgspec.Raw(b'{"a":[1,null]}'),
        result_file=file,
        error=ErrorInfo("E", "m", True, "s", 2, "t", [{"part": 1}]),
        progress=Progress(41.5, "m", "s", 1, 2, "frames"),
        steps=(Step("probe", Status.DONE),),
        files=(file,),
        parent="P",
        children=(Child("C", "part", "0", Status.DONE),),
        waiting_for=("C",),
        trace_id="t",
        overdue_at=now + 10,
        webhook="terminal",
        concurrency_key="work - 1",
        tracestate="vendor=one",
    )


class Inserts:
    async def test_a_job_is_kept_as_it_was_given(self, harness: StoreHarness) -> None:
        new = harness.new()
        job = full_job(new.job.id, harness.clock.now())
        untouched = [
            name for name in Job.__struct_fields__ if getattr(job, name) == getattr(new.job, name)
        ]
        assert untouched == ["id", "created_at"]
        file = InputFile("other", FileInfo("in.mp4", "video/mp4", 9, "cd", "blob-2"))
        await harness.store.insert([NewJob(job, b'{"height":480}', (file,))])
        await harness.reopen()
        kept = await harness.get(job.id)
        assert kept == job
        assert await harness.store.input(job.id) == b'{"height":480}'

    async def test_an_unknown_job_is_missing_but_not_gone(self, harness: StoreHarness) -> None:
        job = await harness.put()
        assert await harness.store.get(["unknown", job.id]) == [Missing(gone=False), job]

    async def test_the_first_event_comes_with_the_job(self, harness: StoreHarness) -> None:
        job = await harness.put()
        (event,) = await harness.store.events(job_id=job.id)
        assert (event.job_id, event.type, event.at) == (job.id, "status", harness.clock.now())
        assert event.job["status"] == "PENDING"
        assert event.job["version"] == 1

    async def test_answers_are_in_the_order_of_the_submissions(self, harness: StoreHarness) -> None:
        news = [harness.new(key=key) for key in ("a", None, "a", "b")]
        done = await harness.store.insert(news)
        assert [d.created for d in done if isinstance(d, Inserted)] == [True, True, False, True]
        ids = [d.job.id for d in done if isinstance(d, Inserted)]
        assert ids == [news[0].job.id, news[1].job.id, news[0].job.id, news[3].job.id]

    async def test_the_same_key_and_body_give_the_first_job_as_it_is_now(
        self, harness: StoreHarness
    ) -> None:
        first = await harness.run(key="k")
        done = await harness.succeed(first)
        (again,) = await harness.store.insert([harness.new(key="k")])
        assert again == Inserted(done, created=False)
        assert len(await harness.store.events()) == 3

    async def test_the_same_key_with_another_body_is_a_conflict(self, harness: StoreHarness) -> None:
        first = await harness.put(key="k")
        other = harness.new(key="k", fingerprint=b"another body")
        assert await harness.store.insert([other]) == [KeyConflict(first.id)]
        assert await harness.store.get([other.job.id]) == [Missing()]
        assert len(await harness.store.events()) == 1

    @pytest.mark.parametrize("scope", [{"kind": "other"}, {"tenant": "other"}], ids=["kind", "tenant"])
    async def test_a_key_holds_within_its_tenant_and_kind(
        self, harness: StoreHarness, scope: dict[str, Any]
    ) -> None:
        await harness.put(key="k")
        (other,) = await harness.store.insert(
            [harness.new(key="k", fingerprint=b"another body", **scope)]
        )
        assert isinstance(other, Inserted)
        assert other.created

    async def test_a_key_is_known_once_it_was_used(self, harness: StoreHarness) -> None:
        store = harness.store
        job = await harness.put(key="k")
        assert await store.has_key(job.tenant, job.kind, "k")
        assert not await store.has_key(job.tenant, job.kind, "other")
        assert not await store.has_key("other", job.kind, "k")
        assert not await store.has_key(job.tenant, "other", "k")

    async def test_a_key_survives_reopening(self, harness: StoreHarness) -> None:
        first = await harness.put(key="k")
        await harness.reopen()
        (again,) = await harness.store.insert([harness.new(key="k")])
        assert again == Inserted(first, created=False)

    async def test_of_many_at_once_with_one_key_only_one_is_created(self, harness: StoreHarness) -> None:
        calls = [harness.store.insert([harness.new(key="k")]) for _ in range(20)]
        done = [answer for (answer,) in await asyncio.gather(*calls)]
        inserted = [d for d in done if isinstance(d, Inserted)]
        assert [d.created for d in inserted] == [True] + [False] * 19
        assert len({d.job.id for d in inserted}) == 1
        assert len(await harness.store.events()) == 1

    async def test_the_same_content_is_the_same_job_under_any_key(self, harness: StoreHarness) -> None:
        first = await harness.put(key="a", content=b"c")
        for again in (harness.new(key="b", content=b"c"), harness.new(content=b"c")):
            assert await harness.store.insert([again]) == [Inserted(first, created=False)]
        await harness.reopen()
        # The second key belongs to the first job, too.
        other = harness.new(key="b", fingerprint=b"another body", content=b"d")
        assert await harness.store.insert([other]) == [KeyConflict(first.id)]
        assert await harness.store.insert([harness.new(key="b")]) == [Inserted(first, created=False)]
        assert len(await harness.store.events()) == 1

    @pytest.mark.parametrize("scope", [{"kind": "other"}, {"tenant": "other"}], ids=["kind", "tenant"])
    async def test_content_counts_within_its_tenant_and_kind(
        self, harness: StoreHarness, scope: dict[str, Any]
    ) -> None:
        first = await harness.put(content=b"c")
        assert (await harness.put(content=b"c", **scope)).id != first.id

    async def test_of_many_at_once_with_one_content_only_one_is_created(
        self, harness: StoreHarness
    ) -> None:
        calls = [harness.store.insert([harness.new(key=f"k{n}", content=b"c")]) for n in range(20)]
        inserted = [d for (d,) in await asyncio.gather(*calls) if isinstance(d, Inserted)]
        assert [d.created for d in inserted] == [True] + [False] * 19
        assert len({d.job.id for d in inserted}) == 1

    @pytest.mark.parametrize("end", ["failed", "cancelled", "being cancelled"])
    async def test_the_content_of_a_failed_job_makes_a_new_job(
        self, harness: StoreHarness, end: str
    ) -> None:
        first = await harness.run(key="a", content=b"c")
        if end == "failed":
            await harness.apply(
                Failed(job_id=first.id, fence=first.fence, error=ErrorInfo("BROKEN", "on purpose"))
            )
        else:
            await harness.apply(CancelAsked(job_id=first.id))
        if end == "cancelled":
            await harness.apply(Cancelled(job_id=first.id, fence=first.fence))
        calls = [harness.store.insert([harness.new(content=b"c")]) for _ in range(3)]
        done = [d for (d,) in await asyncio.gather(*calls) if isinstance(d, Inserted)]
        assert [d.created for d in done] == [True, False, False]
        assert {d.job.id for d in done} == {done[0].job.id} != {first.id}
        await harness.reopen()
        assert await harness.store.insert([harness.new(content=b"c")]) == [done[1]]
        (by_key,) = await harness.store.insert([harness.new(key="a", content=b"c")])
        assert isinstance(by_key, Inserted)
        assert (by_key.job.id, by_key.created) == (first.id, False)

    async def test_content_that_passes_on_twice_in_one_commit(self, harness: StoreHarness) -> None:
        store, first = harness.store, await harness.put(content=b"c")
        await harness.apply(Cancelled(job_id=first.id))
        second, third = harness.new(content=b"c"), harness.new(content=b"c")
        calls = [
            *(store.insert([second]), store.apply([Cancelled(job_id=second.job.id)])),
            *(store.insert([third]), store.delete(first.id), store.insert([harness.new(content=b"c")])),
        ]
        done = await asyncio.gather(*calls)
        assert done[4] == [Inserted(third.job, created=False)]
        await store.delete(second.job.id)
        assert await store.insert([harness.new(content=b"c")]) == [Inserted(third.job, created=False)]

    async def test_a_retried_job_is_the_job_of_its_content_again(self, harness: StoreHarness) -> None:
        first = await harness.put(content=b"c")
        await harness.apply(Cancelled(job_id=first.id))
        again = await harness.apply(Rerun(job_id=first.id))
        assert await harness.store.insert([harness.new(content=b"c")]) == [
            Inserted(again, created=False)
        ]

    async def test_a_claim_made_right_after_an_insert_sees_the_job(self, harness: StoreHarness) -> None:
        new = harness.new(input=b'{"x":1}')
        inserting = harness.store.insert([new])
        claiming = harness.store.claim("worker", [ClaimRequest("default", ("work",), 1)], 1, LEASE)
        (claim,) = await claiming
        assert (claim.job.id, claim.input) == (new.job.id, b'{"x":1}')
        assert len(await inserting) == 1

    async def test_an_operation_that_fails_undoes_nothing_of_the_others_in_its_commit(
        self, harness: StoreHarness
    ) -> None:
        """Operations that are requested together share a commit."""
        held = await harness.put(queue="other")
        unknown = harness.new()
        unknown = replace(
            unknown,
            files=(InputFile(owner_of("unknown"), FileInfo("a", "text/plain", 1, "ab", "blob-1")),),
        )
        requested = [
            *(harness.store.insert([harness.new()]) for _ in range(10)),
            harness.claim(queue="other"),
            harness.store.insert([unknown]),
        ]
        *stored, failed = await asyncio.gather(*requested, return_exceptions=True)
        assert isinstance(failed, InvalidInput)
        assert not [outcome for outcome in stored if isinstance(outcome, BaseException)]
        assert (await harness.get(held.id)).running
        assert await harness.store.get([unknown.job.id]) == [Missing()]
        assert len(await harness.store.events()) == 12

    async def test_a_job_with_the_id_of_another_is_refused(self, harness: StoreHarness) -> None:
        new = harness.new(input=b'{"first":1}')
        await harness.store.insert([new])
        again = harness.store.insert([replace(new, input=b'{"second":2}')])
        (outcome,) = await asyncio.gather(again, return_exceptions=True)
        assert isinstance(outcome, Exception)  # of any type: it is a fault of the caller
        assert await harness.store.input(new.job.id) == b'{"first":1}'

    async def test_the_input_of_an_unknown_job_is_null(self, harness: StoreHarness) -> None:
        assert await harness.store.input("unknown") == b"null"
