"""A client with a ledger: what another process finds in it, against a vendor over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bide import AsyncClient, Client, WaitTimeout
from bide.client.account import Account
from bide.client.apis import Ref, Seen, load
from bide.client.blocking import BlockingJob
from bide.client.http.transport import Transport
from bide.client.job_state import JobState
from bide.client.ledger import LedgerRow
from bide.client.ledger.session import LedgerSession
from bide.client.ledger.sqlite import SqliteLedger
from bide.client.options import ClientOptions
from bide.client.timing import Timing
from bide.core.errors import BideError, SetupError
from bide.core.pacing.budget import Limit
from bide.core.wire.http import JobStatus
from bide.lab.scenario import parse_scenario
from bide.lab.simulated_api import SimulatedApi, SimulatedStatus
from bide.lab.vendor import Vendor
from tests.unit.fake_service import FakeService, job, job_id, says

EXAMPLE = Path(__file__).parents[2] / "examples" / "documents.toml"


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as running:
        yield running


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    with Vendor(takes=lambda rng: 0.2) as running:
        yield running


def client(vendor: Vendor, ledger: Path | None) -> Client:
    return Client(vendor.url, "k", api="sync.so", limit="100/1s", ledger=ledger)


def test_a_file_can_still_be_fetched_after_the_result(vendor: Vendor, tmp_path: Path) -> None:
    with client(vendor, tmp_path / "l") as first:
        job = first.submit("lipsync", {})
        assert job.result(timeout=20) == f"{vendor.url}/v2/files/{job.id}.mp4"
        assert job.result() == f"{vendor.url}/v2/files/{job.id}.mp4"
        assert job.files == ("result",)
        assert job.download("result", tmp_path / "film.mp4").read_text() == f"film of {job.id}"


def test_the_next_process_sees_the_unacknowledged_jobs(vendor: Vendor, tmp_path: Path) -> None:
    with client(vendor, tmp_path / "l") as first:
        jobs = [first.submit("lipsync", {}) for _ in range(3)]
        first.acknowledge(jobs[0])  # still runs, so there is nothing to report
        for job in first.as_completed(jobs[:2], timeout=20):
            if job.id == jobs[0].id:
                first.acknowledge(job)
    asked = vendor.requests
    with client(vendor, tmp_path / "l") as second:
        left = {job.id: job for job in second.unacknowledged()}
        assert sorted(left) == [job.id for job in jobs[1:]]
        ended = left[jobs[1].id]
        assert ended.latest is not None and ended.latest.status == "DONE"
        assert ended.download("result", tmp_path).read_text() == f"film of {ended.id}"
        assert ended.result() == f"{vendor.url}/v2/files/{ended.id}.mp4"
        assert vendor.requests == asked  # of status
        assert [job.id for job in _done(second, list(left.values()))]
        second.acknowledge(*left.values())
        assert second.unacknowledged() == []


def _done(client: Client, jobs: list[BlockingJob]) -> list[BlockingJob]:
    return list(client.as_completed(jobs, timeout=20))


class CountingLedger(SqliteLedger):
    added = 0

    async def add(self, rows: Sequence[LedgerRow]) -> list[LedgerRow]:
        self.added += len(rows)
        return await super().add(rows)


async def test_a_wait_writes_only_jobs_that_the_ledger_does_not_have(
    vendor: Vendor, tmp_path: Path
) -> None:
    ledger = CountingLedger(tmp_path / "l")
    await ledger.open()
    async with AsyncClient(vendor.url, "k", api="sync.so", limit="100/1s", ledger=ledger) as client:
        jobs = [await client.submit("lipsync", {}) for _ in range(3)]
        jobs += [client.job(job.id) for job in [await client.submit("lipsync", {})]]
        await client.wait_all(await client.resume(*jobs), timeout=20)
        await client.wait_all(jobs, timeout=20)
    await ledger.close()
    # Each submission, and all of them with `resume`.
    assert ledger.added == 4 + 4


def test_a_changed_job_is_shown_as_the_ledger_knew_it(vendor: Vendor, tmp_path: Path) -> None:
    seen: list[JobStatus] = []
    with client(vendor, tmp_path / "l") as first:
        job = first.submit("lipsync", {})
        vendor.jobs[job.id].ends += 3600.0
        while not seen or seen[-1].progress is None:  # the response to the submission has none
            with pytest.raises(WaitTimeout):
                first.wait_all([job], timeout=0.5, on_change=seen.append)
    known = seen[-1].progress
    assert known is not None
    vendor.jobs[job.id].ends = 0.0
    with client(vendor, tmp_path / "l") as second:
        shown: list[JobStatus] = []
        second.wait_all(second.unacknowledged(), timeout=20, on_change=shown.append)
    assert shown[0].progress == known
    assert shown[-1].status == "DONE"


class Forgetful(Vendor):
    """Its addresses are valid until a response has others."""

    token = "first"

    def _record(self, id: str, seen: SimulatedStatus, now: float) -> dict[str, Any]:
        record = super()._record(id, seen, now)
        if "outputUrl" in record:
            record["outputUrl"] += f"?token={self.token}"
        return record

    async def _file(self, request: web.Request) -> web.Response:
        if request.query.get("token") != self.token:
            return web.Response(status=403)
        return await super()._file(request)


def test_an_address_that_has_expired_meanwhile_is_asked_for_anew(tmp_path: Path) -> None:
    with Forgetful(takes=lambda rng: 0.2) as vendor:
        with client(vendor, tmp_path / "l") as first:
            first.submit("lipsync", {}).result(timeout=20)
        vendor.token = "second"
        with client(vendor, tmp_path / "l") as second:
            (job,) = second.unacknowledged()
            assert job.download("result", tmp_path / "film.mp4").read_text() == f"film of {job.id}"
            vendor.token = "third"
            vendor._record = lambda *_: {"id": job.id, "status": "FAILED"}  # type: ignore[method-assign]
            with pytest.raises(BideError):
                job.download("result", tmp_path / "again.mp4")


async def test_a_job_of_a_service_comes_back_with_its_files(
    service: FakeService, tmp_path: Path
) -> None:
    file = {"name": "a.txt", "contentType": "text/plain", "size": 2, "sha256": "", "url": "/x"}
    service.script(1, says(job(1, result={"n": 1}, files=[file])))
    async with AsyncClient(service.url, ledger=tmp_path / "l") as first:
        assert await first.job(job_id(1)).result(timeout=20) == {"n": 1}
    asked = len(service.asked)
    async with AsyncClient(service.url, ledger=tmp_path / "l") as second:
        (again,) = await second.unacknowledged()
        assert again.files == ("a.txt",)
        assert await again.result() == {"n": 1}
        await second.acknowledge(again)
        assert await second.unacknowledged() == []
    assert len(service.asked) == asked


def test_without_a_ledger_there_is_nothing_to_go_on_with(vendor: Vendor) -> None:
    with client(vendor, None) as without, pytest.raises(SetupError, match="ledger=FILE"):
        without.unacknowledged()


class Heard:
    """Waits for jobs of an account."""

    wants_changes = True

    def __init__(self, jobs: int) -> None:
        self.all_ended = asyncio.Event()
        self._left = jobs

    def changed(self, job: JobState) -> None: ...

    def ended(self, job: JobState) -> None:
        self._left -= 1
        if not self._left:
            self.all_ended.set()


async def test_a_job_that_another_process_knew_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    """Jobs of this kind take ten minutes; the last one is in its eleventh when the second process begins."""
    speed = 200.0
    timing = Timing(speed)
    text = "[[jobs]]\ncount = 6\nduration = { fixed = 600 }\nprogress = 'none'"
    with Vendor(world=SimulatedApi(parse_scenario(text), 0), speed=speed) as vendor:
        vendor.jobs["job-5"].ends = 800.0
        ledger = SqliteLedger(tmp_path / "l")
        await ledger.open()
        for names in (("job-0", "job-1", "job-2", "job-3", "job-4"), ("job-5",)):
            transport = Transport()
            # Without long polls, which would take too long at this speed.
            api = load(EXAMPLE, vendor.url)
            options = ClientOptions(limit=Limit(600, 60), ledger=ledger)
            account = Account(api, transport, api.credential("k"), options, timing=timing)
            assert account.session is not None
            await account.open()
            heard = Heard(len(names))
            jobs = [account.job(name) for name in ("job-5", *names)]
            await account.session.add(jobs)
            for job in dict.fromkeys((*names, "job-5")):
                account.watch([next(one for one in jobs if one.ref.id == job)], heard)
            async with asyncio.timeout(30):
                await heard.all_ended.wait()
            await account.close()
            await transport.close()
        await ledger.close()
    assert vendor.delays()[-1] < 150.0


async def test_what_a_job_knows_itself_is_newer_than_the_ledger(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "l")
    await ledger.open()
    session = LedgerSession(ledger, load("sync.so"), wall=lambda: 1_900_000_000.0)
    early, late = JobState(Ref("j")), JobState(Ref("j"))
    early.seen = Seen(state="live", progress=0.1)
    late.seen = Seen(state="live", progress=0.9)
    await session.add([early])
    await session.add([late])
    stranger = JobState(Ref("j"))
    await session.add([stranger])
    await ledger.close()
    assert late.seen.progress == 0.9
    assert stranger.seen is not None and stranger.seen.progress == 0.1
