"""The conformance suite of ledgers. Say how to create one:

    class TestMyLedger(LedgerSuite):
        def ledger(self, place: Path) -> Ledger:
            return MyLedger(place / "ledger")

The suite calls `ledger` again with the same place when a test reopens the ledger. Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from bide.client.apis import Found, Ref
from bide.client.ledger import ApiAddress, Counts, LearnedState, Ledger, LedgerRow
from bide.client.ledger.outbox import PendingFile, PendingSubmission, UploadOutbox, outbox_of
from bide.core.errors import ErrorInfo, SetupError
from bide.core.jobs.record import Progress

NOW = 1_900_000_000.0


def entry(job_id: str = "j1", **fields: object) -> LedgerRow:
    given = {
        "api": "sync.so",
        "base": "https://api.example",
        "kind": "lipsync",
        "submitted_at": NOW,
        **fields,
    }
    return LedgerRow(job_id=job_id, **given)  # type: ignore[arg-type]


async def live(ledger: Ledger) -> list[LedgerRow]:
    return [row for row in await ledger.rows() if not row.ended]


async def ended(ledger: Ledger) -> list[LedgerRow]:
    return [row for row in await ledger.rows() if row.ended]


def pending(base: str = "https://jobs.example") -> PendingSubmission:
    file = PendingFile(path="/films/a.mp4", size=2**40, modified=10**18, head="ab")
    return PendingSubmission(base=base, what="what", key="k", since=NOW, files={"source": file})


@pytest.mark.asyncio
class LedgerSuite:
    """Every rule of `bide.client.ledger` and `bide.client.ledger.outbox` that can be observed from outside."""

    def ledger(self, place: Path) -> Ledger:
        """Return a ledger, not opened yet, with its data at `place`; an empty one on the first call."""
        raise NotImplementedError

    @pytest_asyncio.fixture
    async def book(self, tmp_path: Path) -> AsyncIterator[Ledger]:
        ledger = self.ledger(tmp_path)
        await ledger.open()
        yield ledger
        await ledger.close()

    async def reopened(self, book: Ledger, place: Path) -> Ledger:
        await book.close()
        again = self.ledger(place)
        await again.open()
        return again

    async def test_acknowledged_jobs_stay_acknowledged(self, book: Ledger, tmp_path: Path) -> None:
        await book.add([entry("j1"), entry("j2")])
        await book.end(entry("j1", status="DONE"))
        await book.acknowledge([entry("j1").key])
        again = await self.reopened(book, tmp_path)
        assert [(e.job_id, e.acknowledged) for e in await again.rows()] == [("j1", True), ("j2", False)]
        await again.close()

    async def test_jobs_are_counted_and_read_by_place(self, book: Ledger) -> None:
        here, there = (
            ApiAddress("sync.so", "https://api.example"),
            ApiAddress("fal", "https://api.example"),
        )
        jobs = [entry("a"), entry("b"), entry("c"), entry("d", api="fal")]
        await book.add(jobs)
        await book.end(entry("a", status="DONE"))
        await book.end(entry("b", status="ERROR"))
        await book.acknowledge([jobs[0].key, jobs[1].key])
        assert await book.counts() == {here: Counts(1, 2, 1), there: Counts(1, 0, 0)}
        assert [row.job_id for row in await book.rows(here)] == ["a", "b", "c"]

    async def test_what_is_waited_for_survives(self, book: Ledger, tmp_path: Path) -> None:
        full = entry(
            "j2",
            ref=Ref("j2", "https://api.example/elsewhere?v=1", {"whose": "ours"}),
            size="large",
            asked_at=NOW + 3,
            status="PROCESSING",
            progress=Progress(percent=41.5, message="half"),
            etag='"3.7"',
            requests=4,
        )
        assert await book.add([entry("j1"), full]) == [entry("j1"), full]
        again = await self.reopened(book, tmp_path)
        assert await again.rows() == [entry("j1"), full]
        await again.close()

    async def test_what_the_ledger_knew_already_stays(self, book: Ledger) -> None:
        known = entry("j1", requests=7, status="PROCESSING", submitted_at=NOW - 100)
        await book.add([known])
        assert await book.add([entry("j1"), entry("j2")]) == [known, entry("j2")]
        assert len(await book.rows()) == 2

    async def test_the_same_id_elsewhere_is_another_job(self, book: Ledger) -> None:
        jobs = [entry("j"), entry("j", api="fal"), entry("j", base="https://other.example")]
        await book.add(jobs)
        await book.end(jobs[1])
        assert [e.key for e in await live(book)] == [jobs[0].key, jobs[2].key]

    async def test_the_newest_note_survives(self, book: Ledger, tmp_path: Path) -> None:
        await book.add([entry("j1"), entry("j2")])
        for requests in range(1, 50):
            book.note(entry("j1", requests=requests, asked_at=NOW + requests, etag=f'"{requests}"'))
        book.note(entry("j2", status="PROCESSING", progress=Progress(percent=5.0)))
        again = await self.reopened(book, tmp_path)
        first, second = await again.rows()
        assert (first.requests, first.asked_at, first.etag) == (49, NOW + 49, '"49"')
        assert (second.status, second.progress) == ("PROCESSING", Progress(percent=5.0))
        assert first.submitted_at == NOW
        await again.close()

    async def test_an_outcome_survives_with_its_result(self, book: Ledger, tmp_path: Path) -> None:
        await book.add([entry("good"), entry("bad"), entry("open")])
        result = msgspec.Raw(b'{"url":"https://cdn.example/v.mp4"}')
        at, files = "https://cdn.example/v.mp4", (Found("v.srt", "https://cdn.example/v.srt", size=9),)
        known = {"result": result, "result_url": at, "files": files}
        await book.end(entry("good", status="DONE", **known, finished_at=NOW + 9, requests=3))
        error = ErrorInfo("OCR_TIMEOUT", "page 7")
        await book.end(entry("bad", status="ERROR", error=error))
        again = await self.reopened(book, tmp_path)
        good, bad = await ended(again)
        assert (good.status, bytes(good.result or b""), good.finished_at, good.requests) == (
            "DONE",
            bytes(result),
            NOW + 9,
            3,
        )
        assert (good.result_url, good.files) == (at, files)
        assert (bad.status, bad.error, bad.result, bad.files) == ("ERROR", error, None, ())
        assert [e.job_id for e in await live(again)] == ["open"]
        await again.close()

    async def test_the_first_outcome_stands(self, book: Ledger, tmp_path: Path) -> None:
        await book.add([entry()])
        await book.end(entry(status="DONE", result=msgspec.Raw(b"1")))
        await book.end(entry(status="ERROR", result=msgspec.Raw(b"2")))
        book.note(entry(status="PROCESSING", requests=99))
        assert (await book.add([entry()]))[0].status == "DONE"
        again = await self.reopened(book, tmp_path)
        (kept,) = await again.rows()
        assert (kept.ended, kept.status, bytes(kept.result or b""), kept.requests) == (
            True,
            "DONE",
            b"1",
            0,
        )
        await again.close()

    async def test_a_note_from_before_the_end_does_not_undo_it(
        self, book: Ledger, tmp_path: Path
    ) -> None:
        await book.add([entry()])
        book.note(entry(status="PROCESSING"))
        await book.end(entry(status="DONE"))
        again = await self.reopened(book, tmp_path)
        assert [(e.status, e.ended) for e in await again.rows()] == [("DONE", True)]
        await again.close()

    async def test_a_job_that_was_never_added_can_end(self, book: Ledger) -> None:
        await book.end(entry("new", status="DONE"))
        assert [e.job_id for e in await ended(book)] == ["new"]

    async def test_what_was_learned_survives_and_is_replaced_by_key(
        self, book: Ledger, tmp_path: Path
    ) -> None:
        short, long = ("sync.so", "lipsync", ""), ("sync.so", "lipsync", "large")
        await book.learn(LearnedState(durations={short: {"count": 1}, long: {"count": 2}}))
        await book.learn(
            LearnedState(durations={short: {"count": 3}}, budgets={"abc": (NOW, {"rate": 1.5})})
        )
        again = await self.reopened(book, tmp_path)
        learned = await again.learned()
        assert learned.durations == {short: {"count": 3}, long: {"count": 2}}
        assert learned.budgets == {"abc": (NOW, {"rate": 1.5})}
        await again.close()

    async def test_the_salt_is_the_ledgers_own_and_stays(self, book: Ledger, tmp_path: Path) -> None:
        salt = book.salt
        assert len(salt) >= 16
        again = await self.reopened(book, tmp_path)
        assert again.salt == salt
        await again.close()
        (tmp_path / "other").mkdir()
        other = self.ledger(tmp_path / "other")
        await other.open()
        assert other.salt != salt
        await other.close()

    async def test_a_second_one_is_refused_until_the_first_is_closed(
        self, book: Ledger, tmp_path: Path
    ) -> None:
        second = self.ledger(tmp_path)
        with pytest.raises(SetupError, match="another process"):
            await second.open()
        await book.add([entry()])
        await book.close()
        await second.open()
        assert len(await second.rows()) == 1
        await second.close()

    async def test_an_address_is_kept_without_its_secrets(self, book: Ledger) -> None:
        await book.add([entry(base="https://me:sk-secret@api.example/v1?token=sk-secret#sk-secret")])
        (kept,) = await book.rows()
        assert kept.base == "https://api.example/v1"

    async def test_many_at_once(self, book: Ledger) -> None:
        jobs = [entry(f"j{i:05}") for i in range(5000)]
        await book.add(jobs)
        for job in jobs:
            book.note(job)
        assert [e.job_id for e in await live(book)] == [e.job_id for e in jobs]

    async def test_pending_submissions_survive_and_the_newest_counts(
        self, book: Ledger, tmp_path: Path
    ) -> None:
        sent = pending()
        box = self.outbox(book)
        await box.put(sent)
        assert await box.get(sent.base, "other") is None
        assert await box.get("https://elsewhere.example", sent.what) is None
        assert await box.get(sent.base, sent.what) == sent
        sent.files["source"].url = "/files/u1"
        await box.put(sent)
        sent.job_id = "j1"
        await box.put(sent)
        again = await self.reopened(book, tmp_path)
        box = self.outbox(again)
        assert await box.get(sent.base, sent.what) == sent
        await box.forget(sent.base, "another job")
        assert await box.get(sent.base, sent.what) == sent
        await box.forget(sent.base, "j1")
        assert await box.get(sent.base, sent.what) is None
        await box.put(sent)
        await box.drop(sent)
        assert await box.get(sent.base, sent.what) is None
        await again.close()

    async def test_a_pending_submission_is_kept_without_secrets(self, book: Ledger) -> None:
        secret = "https://me:sk-secret@jobs.example/v1?token=sk-secret"
        box = self.outbox(book)
        await box.put(pending(base=secret))
        kept = await box.get(secret, "what")
        assert kept is not None and kept.base == "https://jobs.example/v1"

    def outbox(self, book: Ledger) -> UploadOutbox:
        found = outbox_of(book)
        if found is None:
            pytest.skip("this ledger does not support uploads")
        return found

    async def test_closing_twice_does_no_harm(self, book: Ledger) -> None:
        await book.close()
        await book.close()
