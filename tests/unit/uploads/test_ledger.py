"""Submissions that another process resumes, and the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bide.cli import root
from bide.client.client import AsyncClient
from bide.client.timing import Timing
from bide.client.uploads import upload_session
from bide.core.errors import ServiceError
from bide.testing import ManualClock
from tests.unit.fake_service import job, job_id, problem
from tests.unit.uploads.fake import SIZE, FakeUploads, Slept, digest, says


async def test_another_process_goes_on_where_the_first_was(
    service: FakeUploads, large: Path, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    service.cuts = [60_000]
    service.before("HEAD", "/files", problem(401, "unauthorized"))
    slept = Slept()
    async with AsyncClient(service.url, ledger=ledger, pace=slept.pace) as client:
        with pytest.raises(ServiceError):
            await client.submit("transcode", {"a": 1}, file=large)
    assert 0 < service.received < SIZE
    key = service.only.metadata["idempotencyKey"]

    async with AsyncClient(service.url, ledger=ledger) as client:
        first = await client.submit("transcode", {"a": 1}, file=large)
        assert [job.id for job in await client.unacknowledged()] == [first.id]
    assert service.received == SIZE
    assert service.only.metadata["idempotencyKey"] == key
    assert service.only.digest == digest(large.read_bytes()), "of all bytes, from either process"

    async with AsyncClient(service.url, ledger=ledger) as client:
        before = len(service.requests)
        again = await client.submit("transcode", {"a": 1}, file=large)
    assert again.id == first.id
    assert service.requests[before:] == [("GET", f"/jobs/{first.id}")]


async def test_another_submission_or_a_changed_file_begins_anew(
    service: FakeUploads, large: Path, tmp_path: Path
) -> None:
    async with AsyncClient(service.url, ledger=tmp_path / "ledger") as client:
        await client.submit("transcode", {"a": 1}, file=large)
        await client.submit("transcode", {"a": 2}, file=large)
        assert len(service.uploads) == 2
        await client.submit("transcode", {"a": 1}, file=large)
        assert len(service.uploads) == 2
        os.utime(large, (1, 1))
        await client.submit("transcode", {"a": 1}, file=large)
        assert len(service.uploads) == 3
    keys = [upload.metadata["idempotencyKey"] for upload in service.uploads.values()]
    assert len(set(keys)) == 3


async def test_a_job_that_the_service_has_forgotten_is_made_anew(
    service: FakeUploads, large: Path, tmp_path: Path
) -> None:
    async with AsyncClient(service.url, ledger=tmp_path / "ledger") as client:
        await client.submit("transcode", file=large)
        service.before("GET", "/jobs", problem(410, "gone"))
        await client.submit("transcode", file=large)
    assert len(service.uploads) == 2


async def test_after_a_day_the_same_submission_is_another_job(
    service: FakeUploads, large: Path, tmp_path: Path
) -> None:
    clock = ManualClock()

    class Later(Timing):
        def wall(self) -> float:
            return clock.now()

    timing = Later()
    async with AsyncClient(service.url, ledger=tmp_path / "ledger", timing=timing) as client:
        await client.submit("transcode", file=large)
        clock.advance(upload_session.KEY_LIFE + 1)
        await client.submit("transcode", file=large)
    assert len(service.uploads) == 2


async def test_a_refused_file_is_not_gone_on_with(
    service: FakeUploads, large: Path, tmp_path: Path
) -> None:
    service.before("PATCH", "/files", problem(422, "wrong-content"))
    async with AsyncClient(service.url, ledger=tmp_path / "ledger") as client:
        with pytest.raises(ServiceError):
            await client.submit("transcode", file=large)
        await client.submit("transcode", file=large)
    assert service.requests.count(("POST", "/files")) == 2


async def test_a_file_that_had_arrived_when_the_client_died_is_the_job_that_came_of_it(
    service: FakeUploads, large: Path, tmp_path: Path
) -> None:
    service.before("GET", "/jobs", problem(401, "unauthorized"))
    async with AsyncClient(service.url, ledger=tmp_path / "ledger") as client:
        with pytest.raises(ServiceError):
            await client.submit("transcode", file=large)
    before = len(service.requests)
    async with AsyncClient(service.url, ledger=tmp_path / "ledger") as client:
        found = await client.submit("transcode", file=large)
    assert found.id == job_id(1)
    assert service.requests[before:] == [("HEAD", "/files/u1"), ("GET", f"/jobs/{job_id(1)}")]


@pytest.mark.parametrize(("status", "uploads"), [("ERROR", 2), ("DONE", 1)])
async def test_a_failed_job_that_was_acknowledged_is_submitted_again(
    service: FakeUploads, large: Path, tmp_path: Path, status: str, uploads: int
) -> None:
    service.before("GET", "/jobs", *[says(job(1, status))] * 2)
    async with AsyncClient(service.url, ledger=tmp_path / "ledger") as client:
        first = await client.submit("transcode", file=large)
        await client.submit("transcode", file=large)
        assert len(service.uploads) == 1, "before that it is the same job"
        await client.acknowledge(first)
        await client.submit("transcode", file=large)
    assert len(service.uploads) == uploads


async def test_a_small_file_has_the_same_key_in_the_next_process(
    service: FakeUploads, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"a")
    service.before("POST", "/jobs", problem(401, "unauthorized"))
    for _ in range(2):
        async with AsyncClient(service.url, ledger=tmp_path / "ledger") as client:
            with suppress(ServiceError):
                await client.submit("count", file=tmp_path / "a")
    first, second = service.header("Idempotency-Key")
    assert first == second and first


@pytest.fixture
def bide(service: FakeUploads, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIDE_URL", service.url)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(root, arguments, prog_name="bide")

    return run


def test_submit_sends_a_file(service: FakeUploads, bide: Callable[..., Result], large: Path) -> None:
    told = bide("submit", "transcode", "-i", '{"a": 1}', "--file", str(large), "--dedupe", "content")
    assert (told.exit_code, told.stdout) == (0, f"{job_id(1)}\n")
    assert told.stderr == "", "no bar without a terminal"
    assert bytes(service.only.data) == large.read_bytes()
    assert service.only.metadata["dedupe"] == "content"
    told = bide("submit", "transcode", "--file", f"source={large}", "--json")
    assert json.loads(told.stdout)["jobId"] == job_id(1)
    assert service.uploads["u2"].metadata["parameter"] == "source"


def test_submit_goes_on_from_its_ledger(
    service: FakeUploads, bide: Callable[..., Result], large: Path
) -> None:
    what = ("submit", "transcode", "--file", str(large), "--ledger", "uploads.ledger")
    service.cuts = [60_000]
    service.before("HEAD", "/files", problem(403, "forbidden"))
    assert bide(*what).exit_code == 1
    assert bide(*what).stdout == f"{job_id(1)}\n"
    assert service.received == SIZE
    assert bide(*what).stdout == f"{job_id(1)}\n"
    assert len(service.uploads) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--file", "nowhere.mp4"), "there is no file nowhere.mp4"),
        (("--file", "a=nowhere.mp4"), "there is no file nowhere.mp4"),
        (("--file", "film.mp4", "--file", "b=film.mp4"), "NAME=PATH"),
        (("--ledger", "l"), "--ledger needs --file"),
        (("--file", "."), "there is no file ."),
    ],
)
def test_submit_says_what_is_wrong_with_its_files(
    bide: Callable[..., Result], large: Path, arguments: tuple[str, ...], told: str
) -> None:
    result = bide("submit", "transcode", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_name_with_a_sign_in_it_is_a_path_when_it_is_there(
    service: FakeUploads, bide: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "a=b.txt").write_bytes(b"x")
    assert bide("submit", "count", "--file", "a=b.txt").exit_code == 0
    assert service.forms[0]["file"][0] == "a=b.txt"
