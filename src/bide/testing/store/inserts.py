"""Inserts: job, key and first event in one transaction; a repeated key returns the first job."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from bide.core.errors import ErrorInfo
from bide.core.record import Child, FileInfo, Job, LossRecord, Progress, Status, Step
from bide.server.store import ClaimRequest, InputFile, Inserted, KeyConflict, Missing, NewJob
from bide.testing.store.bench import LEASE, Bench


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
    )


class Inserts:
    async def test_a_job_is_kept_as_it_was_given(self, bench: Bench) -> None:
        new = bench.new()
        job = full_job(new.job.id, bench.clock.now())
        untouched = [
            name for name in Job.__struct_fields__ if getattr(job, name) == getattr(new.job, name)
        ]
        assert untouched == ["id", "created_at"]
        file = InputFile("other", FileInfo("in.mp4", "video/mp4", 9, "cd", "blob-2"))
        await bench.store.insert([NewJob(job, b'{"height":480}', (file,))])
        await bench.reopen()
        kept = await bench.get(job.id)
        assert kept == job
        assert await bench.store.input(job.id) == b'{"height":480}'

    async def test_an_unknown_job_is_missing_but_not_gone(self, bench: Bench) -> None:
        job = await bench.put()
        assert await bench.store.get(["nobody", job.id]) == [Missing(gone=False), job]

    async def test_the_first_event_comes_with_the_job(self, bench: Bench) -> None:
        job = await bench.put()
        (event,) = await bench.store.events(job_id=job.id)
        assert (event.job_id, event.type, event.at) == (job.id, "status", bench.clock.now())
        assert event.job["status"] == "PENDING"
        assert event.job["version"] == 1

    async def test_answers_are_in_the_order_of_the_submissions(self, bench: Bench) -> None:
        news = [bench.new(key=key) for key in ("a", None, "a", "b")]
        done = await bench.store.insert(news)
        assert [d.created for d in done if isinstance(d, Inserted)] == [True, True, False, True]
        ids = [d.job.id for d in done if isinstance(d, Inserted)]
        assert ids == [news[0].job.id, news[1].job.id, news[0].job.id, news[3].job.id]

    async def test_the_same_key_and_body_give_the_first_job_as_it_is_now(self, bench: Bench) -> None:
        first = await bench.run(key="k")
        done = await bench.succeed(first)
        (again,) = await bench.store.insert([bench.new(key="k")])
        assert again == Inserted(done, created=False)
        assert len(await bench.store.events()) == 3

    async def test_the_same_key_with_another_body_is_a_conflict(self, bench: Bench) -> None:
        first = await bench.put(key="k")
        other = bench.new(key="k", fingerprint=b"another body")
        assert await bench.store.insert([other]) == [KeyConflict(first.id)]
        assert await bench.store.get([other.job.id]) == [Missing()]
        assert len(await bench.store.events()) == 1

    @pytest.mark.parametrize("scope", [{"kind": "other"}, {"tenant": "other"}], ids=["kind", "tenant"])
    async def test_a_key_holds_within_its_tenant_and_kind(
        self, bench: Bench, scope: dict[str, Any]
    ) -> None:
        await bench.put(key="k")
        (other,) = await bench.store.insert([bench.new(key="k", fingerprint=b"another body", **scope)])
        assert isinstance(other, Inserted)
        assert other.created

    async def test_a_key_is_known_once_it_was_used(self, bench: Bench) -> None:
        store = bench.store
        job = await bench.put(key="k")
        assert await store.has_key(job.tenant, job.kind, "k")
        assert not await store.has_key(job.tenant, job.kind, "other")
        assert not await store.has_key("other", job.kind, "k")
        assert not await store.has_key(job.tenant, "other", "k")

    async def test_a_key_survives_reopening(self, bench: Bench) -> None:
        first = await bench.put(key="k")
        await bench.reopen()
        (again,) = await bench.store.insert([bench.new(key="k")])
        assert again == Inserted(first, created=False)

    async def test_of_many_at_once_with_one_key_only_one_is_created(self, bench: Bench) -> None:
        calls = [bench.store.insert([bench.new(key="k")]) for _ in range(20)]
        done = [answer for (answer,) in await asyncio.gather(*calls)]
        inserted = [d for d in done if isinstance(d, Inserted)]
        assert [d.created for d in inserted] == [True] + [False] * 19
        assert len({d.job.id for d in inserted}) == 1
        assert len(await bench.store.events()) == 1

    async def test_a_claim_made_right_after_an_insert_sees_the_job(self, bench: Bench) -> None:
        new = bench.new(input=b'{"x":1}')
        inserting = bench.store.insert([new])
        claiming = bench.store.claim("worker", [ClaimRequest("default", ("work",), 1)], 1, LEASE)
        (claim,) = await claiming
        assert (claim.job.id, claim.input) == (new.job.id, b'{"x":1}')
        assert len(await inserting) == 1
