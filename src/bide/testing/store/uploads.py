"""Uploads: received bytes are kept, and an upload completes together with its job."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bide.core.errors import ErrorInfo, InvalidInput
from bide.core.jobs.record import FileInfo, Status
from bide.core.jobs.state_machine import Failed, Rerun, Succeeded, cancel
from bide.core.wire.http import job_id
from bide.server.store import (
    BulkPage,
    BulkProgress,
    BulkState,
    CompletedUploads,
    InputFile,
    Inserted,
    KeyConflict,
    Missing,
    StoredUploads,
    UploadBytes,
    UploadInUse,
    UploadUpdate,
)
from bide.server.upload_record import BucketBytes, Upload, UploadStatus, Way, owner_of
from bide.testing.store.harness import StoreHarness


def _upload(harness: StoreHarness, number: int = 1, **fields: Any) -> Upload:
    now = harness.clock.now()
    known: dict[str, Any] = {
        "id": job_id(now, bytes([number] * 16)),
        "way": Way.TUS,
        "name": "a.mp4",
        "size": 10,
        "created_at": now,
        "updated_at": now,
        "replica": "here",
        "expires_at": now + 60,
    }
    return Upload(**{**known, **fields})


def _whole(upload: Upload, **fields: Any) -> Upload:
    done: dict[str, Any] = {"status": UploadStatus.DONE, "received": 10, "sha256": "ab", "blob": "b"}
    return replace(upload, **{**done, **fields})


def _input_of(upload: Upload) -> InputFile:
    return InputFile(owner_of(upload.id), FileInfo("a.mp4", "video/mp4", 10, "ab", "b"))


class Uploads:
    async def test_odd_ids_are_missing(self, harness: StoreHarness) -> None:
        for odd in ("\0", "a\0b", "'", "%", "ü", ""):
            assert await harness.store.upload(odd) == Missing()

    async def test_an_upload_is_kept_as_it_was_given(self, harness: StoreHarness) -> None:
        upload = Upload(
            id="U",
            way=Way.CHUNKS,
            name="ü\"'\u202e",
            created_at=1.0,
            updated_at=2.0,
            content_type="video/mp4",
            tenant="someone",
            status=UploadStatus.DONE,
            replica="r",
            past_service=True,
            size=1 << 40,
            received=1 << 39,
            bucket=BucketBytes("w", 9, "m", ((9, '"e"'), (9, '"f"')), "t"),
            promised="cd",
            expires_at=5.5,
            sha256="ab",
            detected="video/mp4",
            blob="b",
            chunk_size=9,
            chunks="ff",
            partial=True,
            parts=("A", "B"),
            metadata="kind eA==",
            parameter="source",
            submission=msgspec.Raw(b'{"kind":"x"}'),
            key="k",
            trace_id="t",
            job_id="J",
            replayed=True,
        )
        plain = Upload("U", Way.CHUNKS, "ü\"'\u202e", 1.0, 2.0)
        same = [f for f in Upload.__struct_fields__ if getattr(upload, f) == getattr(plain, f)]
        assert same == ["id", "way", "name", "created_at", "updated_at"]
        store = harness.store
        await store.add_upload(upload)
        await harness.reopen()
        kept = await harness.store.upload("U")
        assert isinstance(kept, Upload)
        assert (kept.submission, upload.submission) != (None, None)
        assert bytes(kept.submission or b"") == bytes(upload.submission or b"")
        assert replace(kept, submission=None) == replace(upload, submission=None)

    async def test_what_was_received_never_goes_back(self, harness: StoreHarness) -> None:
        store, upload = harness.store, _upload(harness)
        await store.add_upload(upload)
        for received, kept in ((4, 4), (3, 4), (9, 9)):
            after = await store.receive(UploadUpdate(upload.id, received=received))
            assert isinstance(after, Upload)
            assert after.received == kept
        await harness.reopen()
        again = await harness.store.upload(upload.id)
        assert isinstance(again, Upload)
        assert again.received == 9

    async def test_only_the_process_that_has_last_taken_an_upload_over_adds_bytes(
        self, harness: StoreHarness
    ) -> None:
        store = harness.store
        mine = BucketBytes("one", 5)
        upload = _upload(harness, bucket=mine)
        await store.add_upload(upload)
        stored = replace(mine, multipart="m", parts=((5, "e"),))
        after = await store.receive(UploadUpdate(upload.id, received=5, bucket=stored))
        assert isinstance(after, Upload) and (after.received, after.bucket) == (5, stored)
        taken = await store.receive(UploadUpdate(upload.id, writer="two"))
        assert isinstance(taken, Upload)
        assert (taken.received, taken.bucket) == (5, replace(stored, writer="two"))
        stale = replace(stored, tail="t")
        refused = await store.receive(UploadUpdate(upload.id, received=7, bucket=stale))
        assert refused == taken, "nothing has changed"
        newer = replace(stored, writer="two", tail="u")
        assert await store.receive(UploadUpdate(upload.id, received=6, bucket=newer)) != taken
        await harness.reopen()
        kept = await harness.store.upload(upload.id)
        assert isinstance(kept, Upload) and (kept.received, kept.bucket) == (6, newer)
        local = _upload(harness, 2)
        await harness.store.add_upload(local)
        update = UploadUpdate(local.id, received=1, bucket=newer)
        assert await harness.store.receive(update) == local

    async def test_chunks_that_arrive_at_once_are_all_noted(self, harness: StoreHarness) -> None:
        store, upload = harness.store, _upload(harness, way=Way.CHUNKS, size=100, chunk_size=10)
        await store.add_upload(upload)
        await asyncio.gather(*(store.receive(UploadUpdate(upload.id, chunk=n)) for n in (9, 0, 3, 3, 7)))
        after = await store.upload(upload.id)
        assert isinstance(after, Upload)
        assert (after.missing, after.received) == ([1, 2, 4, 5, 6, 8], 0)
        some = [await store.receive(UploadUpdate(upload.id, chunk=n)) for n in (8, 1, 2, 4, 5, 6)]
        assert [each.received for each in some if isinstance(each, Upload)] == [0, 0, 0, 0, 0, 100]

    async def test_a_finished_upload_and_its_job_are_stored_together(
        self, harness: StoreHarness
    ) -> None:
        store, upload = harness.store, _upload(harness)
        await store.add_upload(upload)
        new = replace(harness.new(), files=(_input_of(upload),))
        kept = await store.finish(CompletedUploads((_whole(upload),), new))
        assert isinstance(kept, StoredUploads)
        assert kept.job == Inserted(new.job, created=True)
        await harness.reopen()
        after = await harness.store.upload(upload.id)
        assert isinstance(after, Upload)
        assert (after.status, after.job_id) == (UploadStatus.DONE, new.job.id)
        (claim,) = await harness.claim()
        assert claim.files == new.files

    async def test_finishing_twice_gives_the_first_job(self, harness: StoreHarness) -> None:
        store, upload = harness.store, _upload(harness)
        first, second = (replace(harness.new(), files=(_input_of(upload),)) for _ in range(2))
        calls = [store.finish(CompletedUploads((_whole(upload),), new)) for new in (first, second)]
        for kept in await asyncio.gather(*calls):
            assert isinstance(kept, StoredUploads)
            assert isinstance(kept.job, Inserted)
            assert kept.job.job.id == first.job.id
        assert await harness.store.get([second.job.id]) == [Missing()]

    async def test_a_done_upload_does_not_change(self, harness: StoreHarness) -> None:
        store, upload = harness.store, _upload(harness)
        await store.finish(CompletedUploads((_whole(upload),)))
        await store.receive(UploadUpdate(upload.id, received=99, chunk=3))
        assert await store.upload(upload.id) == _whole(upload)

    async def test_one_key_of_several_uploads_gives_one_job(self, harness: StoreHarness) -> None:
        store = harness.store
        uploads = [_upload(harness, n) for n in range(1, 6)]
        news = [replace(harness.new(key="same"), files=(_input_of(u),)) for u in uploads]
        kept = await asyncio.gather(
            *(
                store.finish(CompletedUploads((_whole(u),), n))
                for u, n in zip(uploads, news, strict=True)
            )
        )
        jobs = {
            k.job.job.id for k in kept if isinstance(k, StoredUploads) and isinstance(k.job, Inserted)
        }
        assert jobs == {news[0].job.id}
        conflict = replace(harness.new(key="same", fingerprint=b"other"), files=(_input_of(uploads[0]),))
        six = _upload(harness, 6)
        other = await store.finish(CompletedUploads((_whole(six),), conflict))
        assert isinstance(other, StoredUploads)
        assert other.job == KeyConflict(news[0].job.id)
        assert other.uploads == (_whole(six),)

    async def test_a_job_waits_for_its_upload(self, harness: StoreHarness) -> None:
        store = harness.store
        job = await harness.put(status=Status.UPLOADING, due=None)
        upload = _upload(harness, job_id=job.id)
        await store.add_upload(upload)
        assert await harness.claim() == []
        kept = await store.finish(CompletedUploads((_whole(upload),), files=(_input_of(upload),)))
        assert isinstance(kept, StoredUploads)
        (claim,) = await harness.claim()
        assert (claim.job.id, claim.files) == (job.id, (_input_of(upload),))

    async def test_an_abandoned_upload_expires_and_takes_its_job_along(
        self, harness: StoreHarness
    ) -> None:
        store = harness.store
        job = await harness.put(status=Status.UPLOADING, due=None)
        upload = _upload(harness, job_id=job.id)
        await store.add_upload(upload)
        assert await store.expire_uploads() == ([], False)
        harness.clock.advance(61)
        removed, more = await store.expire_uploads()
        assert ([u.id for u in removed], more) == ([upload.id], False)
        assert await store.upload(upload.id) == Missing(gone=True)
        failed = await harness.get(job.id)
        assert failed.status is Status.ERROR
        assert failed.error is not None
        assert failed.error.code == "UPLOAD_ABANDONED"
        assert await store.finish(CompletedUploads((_whole(upload),))) == Missing(gone=True)

    async def test_a_job_that_ended_before_its_upload_cannot_run_again(
        self, harness: StoreHarness
    ) -> None:
        store, uploads, jobs = harness.store, [], []
        for number in range(1, 6):
            jobs.append(await harness.put(status=Status.UPLOADING, run=0, due=None))
            uploads.append(_upload(harness, number, job_id=jobs[-1].id))
            await store.add_upload(uploads[-1])
        removed, cancelled, late, stored, abandoned = jobs
        await store.remove_upload(uploads[0].id)
        for job in (cancelled, late):
            await harness.apply(cancel(job))
        for upload in uploads[2:4]:  # the file of a cancelled job arrives, too
            await store.finish(CompletedUploads((_whole(upload),), files=(_input_of(upload),)))
        harness.clock.advance(61)
        await store.expire_uploads()
        await harness.apply(cancel(await harness.get(stored.id)))
        await harness.reopen()
        never = (removed, cancelled, late, abandoned)
        for job in never:
            refusal = await harness.refuse(Rerun(job_id=job.id))
            assert "submit a new job with the file" in refusal.reason
        bulk = await harness.run(kind="bide.bulk", queue="bide")
        page = BulkPage(
            job_id=bulk.id,
            owner=bulk.owner or "",
            fence=bulk.fence,
            state=BulkState(),
            ids=tuple(job.id for job in jobs),
            action="retry",
            status=frozenset(Status),
        )
        done = await harness.store.act(page)
        assert isinstance(done, BulkProgress)
        assert (done.changed, done.state.refused) == ((stored.id,), len(never))
        assert {one.job_id for one in done.state.refusals} == {job.id for job in never}
        assert "submit a new job with the file" in done.state.refusals[0].detail
        (claim,) = await harness.claim()
        assert (claim.job.id, claim.job.run, claim.files) == (stored.id, 2, (_input_of(uploads[3]),))

    async def test_an_upload_lives_as_long_as_a_job_that_uses_it(self, harness: StoreHarness) -> None:
        store, upload = harness.store, _upload(harness)
        await store.finish(CompletedUploads((_whole(upload),)))
        new = replace(harness.new(), files=(_input_of(upload),))
        await harness.store.insert([new])
        harness.clock.advance(61)
        assert await store.expire_uploads() == ([], False)
        assert await store.remove_upload(upload.id) == UploadInUse(new.job.id)
        await harness.store.delete(new.job.id)
        removed, _ = await store.expire_uploads()
        assert [u.id for u in removed] == [upload.id]

    async def test_a_used_upload_can_go_before_its_job(self, harness: StoreHarness) -> None:
        store, upload = harness.store, _upload(harness)
        await store.finish(CompletedUploads((_whole(upload),)))
        new = replace(harness.new(), files=(_input_of(upload),))
        await harness.store.insert([new])
        harness.clock.advance(1000)
        assert await store.expire_uploads(inputs=100) == ([], False)  # the job has not ended
        await harness.apply(cancel(await harness.get(new.job.id)))
        harness.clock.advance(99)
        assert await store.expire_uploads(inputs=100) == ([], False)
        harness.clock.advance(2)
        removed, _ = await store.expire_uploads(inputs=100)
        assert [u.id for u in removed] == [upload.id]
        assert (await harness.get(new.job.id)).status is Status.CANCELLED

    async def test_the_end_of_a_job_can_release_its_uploads(self, harness: StoreHarness) -> None:
        store, upload = harness.store, _upload(harness, expires_at=harness.clock.now() + 1e6)
        await store.finish(CompletedUploads((_whole(upload),)))
        jobs = [replace(harness.new(), files=(_input_of(upload),)) for _ in range(3)]
        await store.insert(jobs)
        failed, one, two = (claim.job for claim in await harness.claim())
        await harness.apply(Failed(job_id=failed.id, fence=1, error=ErrorInfo("BROKEN", "on purpose")))
        await harness.apply(Succeeded(job_id=one.id, fence=1, remove_input=True))
        partial = ErrorInfo("MISSING", "the other half")
        await harness.apply(Succeeded(job_id=two.id, fence=1, error=partial, remove_input=True))
        # The failed one and the partial one can be retried.
        assert await store.expire_uploads() == ([], False)
        for job in (failed, two):
            await harness.apply(Rerun(job_id=job.id))
            again = await harness.take(job.id)
            assert await store.expire_uploads() == ([], False)
            await harness.apply(Succeeded(job_id=job.id, fence=again.fence, remove_input=True))
        await harness.reopen()
        removed, _ = await harness.store.expire_uploads()
        assert [u.id for u in removed] == [upload.id]
        assert await harness.statuses(failed.id, one.id, two.id) == [Status.DONE] * 3

    async def test_a_released_upload_answers_repeated_requests(self, harness: StoreHarness) -> None:
        store, upload = harness.store, _upload(harness, expires_at=harness.clock.now() + 1e6)
        new = replace(harness.new(), files=(_input_of(upload),))
        await store.finish(CompletedUploads((_whole(upload),), new))
        job = await harness.take(new.job.id)
        await harness.apply(Succeeded(job_id=job.id, fence=1, remove_input=True))
        harness.clock.advance(59)
        assert await store.expire_uploads() == ([], False)
        again = await store.upload(upload.id)
        assert isinstance(again, Upload)
        assert again.job_id == job.id
        harness.clock.advance(2)
        removed, _ = await store.expire_uploads()
        assert [u.id for u in removed] == [upload.id]

    async def test_no_job_is_stored_with_an_upload_that_is_not_there(
        self, harness: StoreHarness
    ) -> None:
        store, upload = harness.store, _upload(harness)
        await store.add_upload(upload)
        for file in (_input_of(upload), _input_of(_upload(harness, 2))):
            new = replace(harness.new(), files=(file,))
            with pytest.raises(InvalidInput, match="does not exist or is not complete"):
                await harness.store.insert([new])
            assert await harness.store.get([new.job.id]) == [Missing()]

    async def test_a_removed_upload_is_gone(self, harness: StoreHarness) -> None:
        store, upload = harness.store, _upload(harness)
        await store.add_upload(upload)
        assert await store.remove_upload(upload.id) == upload
        assert await store.upload(upload.id) == Missing(gone=True)
        assert await store.remove_upload(upload.id) == Missing(gone=True)
        assert await store.receive(UploadUpdate(upload.id, received=1)) == Missing(gone=True)
        assert await store.remove_upload("unknown") == Missing()

    async def test_uploads_are_listed_by_tenant_and_status_newest_first(
        self, harness: StoreHarness
    ) -> None:
        store = harness.store
        uploads = [_upload(harness, number) for number in range(1, 6)]
        uploads[1], uploads[3] = _whole(uploads[1]), _whole(uploads[3])
        other = _upload(harness, 9, tenant="other")
        for upload in (*uploads, other):
            await store.add_upload(upload)
        newest = [upload.id for upload in reversed(uploads)]
        listed = await store.list_uploads("-")
        assert [upload.id for upload in listed] == newest
        assert [u.id for u in await store.list_uploads("-", UploadStatus.DONE)] == [newest[1], newest[3]]
        page = await store.list_uploads("-", before=newest[1], limit=2)
        assert [upload.id for upload in page] == newest[2:4]
        assert await store.list_uploads("other", UploadStatus.UPLOADING) == [other]
        assert await store.list_uploads("nobody") == []

    async def test_what_is_unfinished_and_what_all_take_can_be_asked(
        self, harness: StoreHarness
    ) -> None:
        store = harness.store
        first, second, third = (_upload(harness, n, replica=r) for n, r in enumerate("aab", 1))
        for upload in (first, second, third):
            await store.add_upload(upload)
            harness.clock.advance(1)
        await store.finish(CompletedUploads((_whole(_upload(harness, 4, id="D", replica="a")),)))
        assert [u.id for u in await store.unfinished("a", harness.clock.now())] == [first.id, second.id]
        assert await store.unfinished("a", first.updated_at - 1) == []
        assert await store.upload_bytes() == UploadBytes(10, 30, firm=0)
        await store.receive(UploadUpdate(first.id, received=4))
        await store.receive(UploadUpdate(second.id, received=7))
        assert await store.upload_bytes() == UploadBytes(21, 19, firm=7)
        assert await store.known_uploads([first.id, "D", "unknown"]) == {first.id, "D"}
