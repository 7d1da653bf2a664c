"""Search: jobs by code, label, step, path into the input, time and free text, in three orders; and the capped count."""

from __future__ import annotations

import random
from itertools import combinations

import msgspec
import pytest
from msgspec.structs import replace

from bide.core.errors import ErrorInfo
from bide.core.jobs.record import Status
from bide.core.jobs.state_machine import Failed, StepKept, StepStarted
from bide.core.wire.http import job_id
from bide.server.store import Filter, Position, Term, position_of
from bide.testing.store.harness import OOPS, StoreHarness
from bide.testing.store.lists import found


def error(code: str) -> ErrorInfo:
    return ErrorInfo(code=code, message="it went wrong")


class Search:
    async def test_by_the_code_of_the_error(self, harness: StoreHarness) -> None:
        codes = ["OOPS", 'quo"te', "ü", "OOPS"]
        jobs = []
        for code in codes:
            job = await harness.run()
            jobs.append(await harness.apply(Failed(job_id=job.id, fence=1, error=error(code))))
        await harness.put()
        assert await found(harness, code="OOPS") == [jobs[3].id, jobs[0].id]
        assert await found(harness, code="OOPS", kind="other") == []
        assert await found(harness, code='quo"te', status=frozenset({Status.ERROR})) == [jobs[1].id]
        assert await found(harness, code="OOPS", status=frozenset({Status.DONE})) == []
        assert await found(harness, code="NONE") == await found(harness, code="\0") == []

    async def test_by_paths_into_the_input_and_labels(self, harness: StoreHarness) -> None:
        path = "input.video.id"
        first = await harness.put(search=((path, "42"), (path, "ü")), labels={"team": "ops"})
        second = await harness.put(search=((path, "42"),), queue="video", labels={"team": "dev"})
        await harness.put(labels={path: "42"})
        terms = (Term(path, "42"),)
        assert await found(harness, terms=terms) == [second.id, first.id]
        assert await found(harness, terms=terms, queue="video") == [second.id]
        assert await found(harness, terms=terms, kind="other") == []
        assert await found(harness, terms=(*terms, Term(path, "ü"))) == [first.id]
        assert await found(harness, terms=(*terms, Term("label.team", "dev"))) == [second.id]
        assert await found(harness, terms=(Term("input.video", "42"),)) == []

    async def test_by_step_since_it_began(self, harness: StoreHarness) -> None:
        job = await harness.run()
        other = await harness.run()
        by_step = (Term("step", "probe"),)
        assert await found(harness, terms=by_step) == []
        await harness.apply(StepStarted(job_id=job.id, fence=1, name="probe"))
        assert await found(harness, terms=by_step) == [job.id]
        await harness.apply(StepKept(job_id=job.id, fence=1, name="probe", result=msgspec.Raw(b"1")))
        await harness.apply(StepStarted(job_id=other.id, fence=1, name="probe\0"))
        assert await found(harness, terms=by_step, status=frozenset({Status.PROCESSING})) == [job.id]
        assert await found(harness, terms=by_step, status=frozenset({Status.PENDING})) == []

    async def test_by_free_text(self, harness: StoreHarness) -> None:
        first = await harness.put(labels={"team": "ops", "boss": "ops"})
        harness.clock.advance(3600)
        second = await harness.put(labels={"team": "OPS", "number": "0"})
        assert await found(harness, terms=(Term("", "ops"),)) == [first.id]
        assert await found(harness, terms=(Term("", first.id),)) == [first.id]
        assert await found(harness, terms=(Term("", first.id[:8].lower()),)) == [first.id]
        assert await found(harness, terms=(Term("", "0"),)) == [second.id, first.id]
        assert await found(harness, terms=(Term("", "0"), Term("", "OPS"))) == [second.id]
        assert await harness.store.count(Filter(terms=(Term("", "0"),)), 10) == 2

    async def test_by_time_of_creation(self, harness: StoreHarness) -> None:
        made = []
        for _ in range(3):
            made.append((await harness.put()).id)
            harness.clock.advance(1)
        middle = job_id(harness.clock.now() - 2, bytes(16))
        assert await found(harness, first=middle) == [made[2], made[1]]
        assert await found(harness, end=middle) == [made[0]]
        assert await found(harness, first=middle, end=middle) == []

    async def test_only_jobs_of_the_tenant(self, harness: StoreHarness) -> None:
        own = await harness.put(labels={"a": "b"})
        other = await harness.put(tenant="other", labels={"a": "b"})
        terms = (Term("label.a", "b"),)
        assert (
            await found(harness, tenant="-") == await found(harness, tenant="-", terms=terms) == [own.id]
        )
        assert await found(harness, tenant="other", terms=terms) == [other.id]
        assert await found(harness) == await found(harness, terms=terms) == [other.id, own.id]
        assert await found(harness, tenant="none") == []

    async def test_a_removed_job_is_not_found(self, harness: StoreHarness) -> None:
        kept, gone = [await harness.put(labels={"a": "b"}, search=(("input.x", "1"),)) for _ in range(2)]
        await harness.store.delete(gone.id)
        for term in (Term("label.a", "b"), Term("input.x", "1"), Term("", "b")):
            assert await found(harness, terms=(term,)) == [kept.id]
            assert await harness.store.count(Filter(terms=(term,)), 10) == 1

    async def test_oldest_first(self, harness: StoreHarness) -> None:
        made = []
        for number in range(5):
            made.append((await harness.put(kind="odd" if number % 2 else "even")).id)
        assert await found(harness, order="oldest", limit=2) == made[:2]
        assert await found(harness, order="oldest", after=Position(made[1])) == made[2:]
        assert await found(harness, order="oldest", kind="even", after=Position(made[0])) == made[2::2]

    async def test_longest_first_the_running_ones_before_the_ended_ones(
        self, harness: StoreHarness
    ) -> None:
        expected = []
        for seconds in (5.0, 0.001, 7.0, 0.0, 5.0):
            job = await harness.run(labels={"a": "b"})
            harness.clock.advance(seconds)
            expected.append(await harness.succeed(job))
        five, _, seven, _, also_five = expected
        first = await harness.run()
        harness.clock.advance(1)
        second = await harness.run(labels={"a": "b"})
        await harness.put()
        order = [first.id, second.id, seven.id, also_five.id, five.id]
        assert await found(harness, order="longest") == order
        pages: list[str] = []
        after = None
        while page := await harness.store.find(Filter(order="longest", after=after, limit=2)):
            pages += [job.id for job in page]
            after = position_of(page[-1], "longest")
        assert pages == order
        done = frozenset({Status.DONE})
        assert await found(harness, order="longest", status=done) == order[2:]
        assert await found(harness, order="longest", terms=(Term("label.a", "b"),)) == order[1:]
        assert await found(harness, order="longest", code="OOPS") == []

    async def test_a_count_stops_at_its_limit(self, harness: StoreHarness) -> None:
        for number in range(6):
            await harness.put(kind="odd" if number % 2 else "even", labels={"n": str(number % 3)})
        assert await harness.store.count(Filter(), 100) == 6
        assert await harness.store.count(Filter(), 4) == 4
        assert await harness.store.count(Filter(kind="odd"), 100) == 3
        assert await harness.store.count(Filter(terms=(Term("label.n", "1"),)), 100) == 2
        assert await harness.store.count(Filter(kind="none"), 100) == 0

    @pytest.mark.parametrize("seed", range(3))
    async def test_every_combination_of_filters(self, harness: StoreHarness, seed: int) -> None:
        """All filters at once against a plain loop over all jobs."""
        rng = random.Random(seed)
        for _ in range(40):
            labels = {key: rng.choice("xy") for key in "ab" if rng.random() < 0.7}
            search = (("input.n", rng.choice("12")),) if rng.random() < 0.5 else ()
            job = await harness.put(
                kind=rng.choice(("one", "two")), queue=rng.choice("qr"), labels=labels, search=search
            )
            harness.clock.advance(rng.choice((0.0, 0.5)))
            if rng.random() < 0.5:
                (claim,) = await harness.claim(job.kind, queue=job.queue, limit=1)
                if rng.random() < 0.5:
                    code = replace(OOPS, code=rng.choice(("A", "B")))
                    await harness.apply(Failed(job_id=claim.job.id, fence=claim.job.fence, error=code))
        jobs = await harness.store.find(Filter(limit=100))
        of_input = {
            value: set(await found(harness, terms=(Term("input.n", value),), limit=100))
            for value in "12"
        }
        choices: dict[str, object] = {
            "kind": "one",
            "queue": "q",
            "status": frozenset({Status.ERROR, Status.PENDING}),
            "code": "A",
            "terms": (Term("label.a", "x"), Term("input.n", "1")),
            "first": jobs[30].id,
            "end": jobs[3].id,
        }
        for size in range(4):
            for names in combinations(choices, size):
                filter = Filter(**{name: choices[name] for name in names}, limit=100)  # type: ignore[arg-type]
                expected = [
                    job.id
                    for job in jobs
                    if filter.kind in (None, job.kind)
                    and filter.queue in (None, job.queue)
                    and (not filter.status or job.status in filter.status)
                    and filter.code in (None, job.error and job.error.code)
                    and (filter.first or "") <= job.id < (filter.end or "~")
                    and (not filter.terms or (job.labels.get("a") == "x" and job.id in of_input["1"]))
                ]
                assert [job.id for job in await harness.store.find(filter)] == expected, filter
                assert await harness.store.count(filter, 100) == len(expected)
                oldest = await harness.store.find(replace(filter, order="oldest", limit=5))
                assert [job.id for job in oldest] == expected[::-1][:5]
