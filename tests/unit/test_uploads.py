"""Files that become jobs, against a service that counts what it gets and can cut it off."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from bide.cli import root
from bide.client import content
from bide.client.api import AsyncClient
from bide.client.sync import Client
from bide.client.timing import Timing
from bide.client.transport import Transport
from bide.client.uploads import patience, submitting, tus
from bide.client.uploads.source import Source
from bide.client.waiting import Pace
from bide.core.digest import read_digest, render_digest
from bide.core.errors import ServiceError, ServiceUnreachable, SetupError, UploadFailed
from bide.testing import ManualClock
from tests.unit.fake_service import FakeService, Reply, job, job_id, problem, reset
from tests.unit.fake_uploads import FakeUploads

SIZE = 300_000
KINDS = {"kinds": [{"kind": "merge", "inputSchema": {"properties": {"video": {}, "sound": {}}}}]}


@pytest.fixture
def service() -> Iterator[FakeUploads]:
    with FakeUploads() as running:
        yield running


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a few kilobytes is a large one."""
    monkeypatch.setattr(submitting, "DIRECT", 50_000)
    monkeypatch.setattr(tus, "PIECE", 100_000)
    monkeypatch.setattr(tus, "TAIL", 1_000)
    monkeypatch.setattr(tus, "BLOCK", 4_096)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "film.mp4"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    return path


class Slept:
    """A pace without waiting: it only notes how long it would have waited."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.at = 0.0
        self.pace = Pace(rng=random.Random(1), sleep=self._sleep, now=lambda: self.at)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.at += seconds
        await asyncio.sleep(0)


def digest(data: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


async def test_a_small_file_goes_with_its_submission_in_one_request(
    service: FakeUploads, tmp_path: Path
) -> None:
    path = tmp_path / 'sm"all.txt'
    path.write_bytes(b"hello")
    async with AsyncClient(service.url) as client:
        job = await client.submit("count", {"a": 1}, file=path, priority=3)

    assert job.id == job_id(1)
    assert service.requests == [("POST", "/jobs")]
    (form,) = service.forms
    assert form["job"] == {"kind": "count", "input": {"a": 1}, "priority": 3}
    assert form["file"] == ("sm%22all.txt", "text/plain", b"hello")
    assert form["digest"] == digest(b"hello")
    assert form["key"], "so that it can be sent again"


async def test_several_small_files_go_by_the_names_of_their_parameters(
    service: FakeUploads, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"a")
    async with AsyncClient(service.url) as client:
        files: dict[str, Path | io.BytesIO] = {"first": tmp_path / "a.txt", "second": io.BytesIO(b"bb")}
        await client.submit("merge", files=files, idempotency_key="k")
    (form,) = service.forms
    assert form["first"] == ("a.txt", "text/plain", b"a")
    assert form["second"] == ("file", "application/octet-stream", b"bb")
    assert form["key"] == '"k"'


async def test_a_large_file_is_begun_with_the_whole_submission(
    service: FakeUploads, large: Path
) -> None:
    shown: list[int] = []
    async with AsyncClient(service.url) as client:
        job = await client.submit(
            "transcode", {"height": 480}, file=large, labels={"a": "b"}, progress=Bar(shown)
        )
    assert job.id == job_id(1)
    upload = service.only
    assert bytes(upload.data) == large.read_bytes()
    assert upload.metadata["kind"] == "transcode"
    assert upload.metadata["input"] == '{"height":480}'
    assert upload.metadata["labels"] == '{"a":"b"}'
    assert upload.metadata["filename"] == "film.mp4" and upload.metadata["filetype"] == "video/mp4"
    assert "parameter" not in upload.metadata and upload.metadata["idempotencyKey"]
    assert upload.digest == digest(large.read_bytes()), "the last piece says what the whole is"
    assert sum(shown) == SIZE
    assert service.requests[0] == ("POST", "/files") and service.received == SIZE


class Bar:
    """As tqdm's."""

    def __init__(self, shown: list[int]) -> None:
        self.total = 0
        self.shown = shown

    def update(self, more: int) -> None:
        self.shown.append(more)


@pytest.mark.parametrize("cuts", [[1], [99_999, 5, 60_000], [3_000] * 40])
async def test_a_cut_upload_goes_on_where_the_service_is(
    service: FakeUploads, large: Path, cuts: list[int]
) -> None:
    slept = Slept()
    service.cuts = list(cuts)
    async with AsyncClient(service.url, pace=slept.pace) as client:
        await client.submit("transcode", file=large)
    assert bytes(service.only.data) == large.read_bytes()
    assert service.only.digest == digest(large.read_bytes())
    assert service.received == SIZE, "no byte that had arrived was sent again"
    assert len(slept.pauses) == len(cuts)
    assert max(slept.pauses) <= 0.5, "each cut that got ahead is the first one"


async def test_a_bad_minute_is_waited_out_as_told(service: FakeUploads, large: Path) -> None:
    slept = Slept()
    service.before("POST", "/files", problem(503, "unavailable", "", **{"Retry-After": "7"}), reset)
    service.before("PATCH", "/files", problem(500, "internal"), reset)
    service.before("HEAD", "/files", problem(502, "http-502"))
    service.before("GET", "/jobs", reset)
    async with AsyncClient(service.url, pace=slept.pace) as client:
        await client.submit("transcode", file=large)
    assert 7.0 <= slept.pauses[0] <= 7.7
    assert len(slept.pauses) == 6
    assert bytes(service.only.data) == large.read_bytes()


async def test_a_direct_one_that_is_cut_off_is_sent_again_with_the_same_key(
    service: FakeUploads, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1000)
    service.before("POST", "/jobs", reset, problem(500, "internal"))
    slept = Slept()
    async with AsyncClient(service.url, pace=slept.pace) as client:
        await client.submit("count", file=tmp_path / "a")
    keys = service.header("Idempotency-Key")
    assert len(keys) == 3 and len(set(keys)) == 1 and keys[0]


@pytest.mark.parametrize("size", [10, SIZE])
async def test_nobody_there_is_told_at_once(tmp_path: Path, size: int) -> None:
    with FakeUploads() as gone:
        url = gone.url
    (tmp_path / "a").write_bytes(bytes(size))
    slept = Slept()
    async with AsyncClient(url, pace=slept.pace) as client:
        with pytest.raises(ServiceUnreachable, match="is `bide serve` running there"):
            await client.submit("count", file=tmp_path / "a")
    assert slept.pauses == []


async def test_what_does_not_get_ahead_is_given_up(service: FakeUploads, large: Path) -> None:
    slept = Slept()
    service.before("PATCH", "/files", *[reset] * 1000)
    async with AsyncClient(service.url, pace=slept.pace) as client:
        with pytest.raises(UploadFailed, match=r"film\.mp4 did not get ahead for 1. minutes") as raised:
            await client.submit("transcode", file=large)
    assert raised.value.resumable
    assert slept.at < 2 * patience.GIVE_UP
    assert len(slept.pauses) < 200


@pytest.mark.parametrize(
    ("status", "code"), [(413, "payload-too-large"), (422, "unknown-kind"), (507, "storage-full")]
)
async def test_a_refusal_is_told_before_a_byte_is_sent(
    service: FakeUploads, large: Path, status: int, code: str
) -> None:
    service.before("POST", "/files", problem(status, code))
    async with AsyncClient(service.url) as client:
        with pytest.raises(ServiceError) as raised:
            await client.submit("transcode", file=large)
    assert raised.value.code == code
    assert service.requests == [("POST", "/files")]


async def test_an_upload_that_the_service_has_forgotten_begins_anew(
    service: FakeUploads, large: Path
) -> None:
    service.cuts = [10_000]
    service.before("HEAD", "/files/u1", problem(410, "gone"))
    async with AsyncClient(service.url, pace=Slept().pace) as client:
        await client.submit("transcode", file=large)
    assert bytes(service.uploads["u2"].data) == large.read_bytes()
    assert service.uploads["u1"].metadata == service.uploads["u2"].metadata, "the same key, too"


async def test_a_file_that_changes_while_it_is_sent_makes_no_job(
    service: FakeUploads, large: Path
) -> None:
    class Meddler(Bar):
        def update(self, more: int) -> None:
            super().update(more)
            if sum(self.shown) == 40_960:
                with large.open("r+b") as file:
                    file.write(b"changed")
                os.utime(large, (1, 1))

    async with AsyncClient(service.url) as client:
        with pytest.raises(
            UploadFailed, match=r"film\.mp4 has changed while it was sent: it was written to"
        ):
            await client.submit("transcode", file=large, progress=Meddler([]))
    assert service.requests[-1] == ("DELETE", "/files/u1"), "what was sent of it is of no use"
    assert service.uploads == {}


@pytest.mark.parametrize("size", [SIZE, 1000])
async def test_a_file_that_gets_shorter_says_by_how_much(
    service: FakeUploads, tmp_path: Path, size: int
) -> None:
    shrinking = io.BytesIO(bytes(size))
    source = Source(shrinking)
    shrinking.truncate(7)
    with pytest.raises(UploadFailed, match=f"it had {size} bytes and ends after 7"):
        source.block(0)


async def test_several_large_files_are_uploads_of_one_job(service: FakeUploads, large: Path) -> None:
    service.on("GET", "/kinds", _says(KINDS))
    service.on("POST", "/jobs", problem(503, "unavailable"), _says(_job(), 202))
    shown: list[int] = []
    async with AsyncClient(service.url, pace=Slept().pace) as client:
        files: dict[str, Path | io.BytesIO] = {"video": large, "sound": io.BytesIO(b"la")}
        await client.submit("merge", {"loud": True}, files=files, progress=Bar(shown))
    assert service.bodies[-1] == {
        "kind": "merge",
        "input": {"loud": True, "video": {"upload": "u1"}, "sound": {"upload": "u2"}},
    }
    assert bytes(service.uploads["u2"].data) == b"la"
    assert sum(shown) == SIZE + 2
    keys = service.header("Idempotency-Key")[-2:]
    assert keys[0] == keys[1] and keys[0]


@pytest.mark.parametrize(
    ("kind", "name", "pointer"), [("mergd", "video", "/kind"), ("merge", "vidio", "/input/vidio")]
)
async def test_wrong_names_with_several_files_are_told_before_a_byte_is_sent(
    service: FakeUploads, large: Path, kind: str, name: str, pointer: str
) -> None:
    service.on("GET", "/kinds", _says(KINDS))
    async with AsyncClient(service.url) as client:
        with pytest.raises(ServiceError) as raised:
            await client.submit(kind, files={name: large, "sound": large})
    assert raised.value.status == 422
    assert [e["pointer"] for e in raised.value.problem["errors"]] == [pointer]
    assert service.requests == [("GET", "/kinds")]


async def test_another_api_takes_no_files(tmp_path: Path) -> None:
    async with AsyncClient(api="sync.so", key="k") as client:
        with pytest.raises(SetupError, match=r"sync\.so takes no file from this client"):
            await client.submit("lipsync", file=tmp_path / "any")


def test_the_sync_client_sends_files_too(service: FakeUploads, large: Path) -> None:
    with Client(service.url) as client, large.open("rb") as file:
        file.seek(123)  # it is sent from its beginning
        client.submit("transcode", file=file)
        assert not file.closed
    assert bytes(service.only.data) == large.read_bytes()
    assert service.only.metadata["filename"] == "film.mp4"


async def test_what_cannot_be_sent_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb"):
        wrong: list[tuple[Any, type[Exception], str]] = [
            (tmp_path / "missing", FileNotFoundError, "missing"),
            (tmp_path, ValueError, "folder"),
            (tmp_path / "pipe", ValueError, "pipe"),
            (io.StringIO("text"), TypeError, "'rb'"),
            (pipe, ValueError, "seekable"),
            (b"bytes", TypeError, "not bytes"),
        ]
        async with AsyncClient("http://127.0.0.1:1") as client:
            for given_file, error, text in wrong:
                with pytest.raises(error, match=text):
                    await client.submit("count", file=given_file)
            with pytest.raises(TypeError, match="not both"):
                await client.submit("count", file=tmp_path, files={"a": tmp_path})


# --- the ledger


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
        assert [job.id for job in await client.untold()] == [first.id]
    assert service.received == SIZE
    assert service.only.metadata["idempotencyKey"] == key
    assert service.only.digest == digest(large.read_bytes()), "of all bytes, whoever sent them"

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
        clock.advance(submitting.KEY_LIFE + 1)
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


async def test_dedupe_by_content_needs_no_key(service: FakeUploads, large: Path) -> None:
    async with AsyncClient(service.url) as client:
        await client.submit("transcode", file=large, dedupe="content")
    assert service.only.metadata["dedupe"] == "content"
    assert "idempotencyKey" not in service.only.metadata


# --- a source


@given(
    st.binary(max_size=500), st.lists(st.tuples(st.integers(0, 500), st.integers(1, 200)), max_size=20)
)
def test_each_byte_is_hashed_once_in_whatever_order_it_is_read(
    data: bytes, reads: list[tuple[int, int]]
) -> None:
    source = Source(io.BytesIO(data))
    for offset, size in reads:
        at = min(offset, len(data))
        assert source.block(at, size) == data[at : at + size]
    assert source.sha256() == hashlib.sha256(data).hexdigest()


def test_a_file_is_known_by_its_beginning_too(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    os.utime(path, (1, 1))
    with Source(path) as source:
        first = source.item()
    path.write_bytes(b"two")
    os.utime(path, (1, 1))
    with Source(path) as source:
        assert source.item() != first


def _job() -> dict[str, Any]:
    return job(1, "PENDING")


def _says(document: dict[str, Any], status: int = 200) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        return web.json_response(document, status=status)

    return reply


# --- the command line


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
    assert told.stderr == "", "no bar where nobody looks"
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
        (("--file", "a=film.mp4", "--file", "a=film.mp4"), "NAME=PATH"),
        (("--ledger", "l"), "--ledger is for --file"),
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


# --- on the way


async def test_a_connection_that_takes_no_byte_is_left(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "STALL", 0.2)

    class Endless:
        size = 2**30

        async def chunks(self) -> AsyncIterator[bytes]:
            while True:
                yield bytes(2**20)

    deaf = socket.create_server(("127.0.0.1", 0))  # accepted by the system, and read by nobody
    with deaf:
        transport = Transport(f"http://127.0.0.1:{deaf.getsockname()[1]}")
        try:
            with pytest.raises(ServiceUnreachable, match="it took too long"):
                await transport.send_content("PATCH", "/files/u1", Endless(), {})
        finally:
            await transport.close()


async def test_a_form_that_is_sent_elsewhere_is_sent_there_whole(
    service: FakeUploads, tmp_path: Path
) -> None:
    with FakeService() as gate:

        async def elsewhere(request: web.Request) -> web.StreamResponse:
            return web.Response(status=308, headers={"Location": service.url + "/jobs"})

        gate.on("POST", "/jobs", elsewhere)
        (tmp_path / "a").write_bytes(b"x" * 20_000)
        async with AsyncClient(gate.url, key="sesame") as client:
            await client.submit("count", file=tmp_path / "a")
    assert service.forms[0]["file"][2] == b"x" * 20_000
    assert service.header("Authorization") == [None], "the key is for nobody else"


async def test_what_arrived_as_another_file_makes_no_job(service: FakeUploads, large: Path) -> None:
    service.lies = "0" * 64
    service.on("POST", f"/jobs/{job_id(1)}/cancel", _says(_job()))
    async with AsyncClient(service.url) as client:
        with pytest.raises(
            UploadFailed, match=r"film\.mp4 arrived as another file: .* at the service 000"
        ):
            await client.submit("transcode", file=large)
    assert ("POST", f"/jobs/{job_id(1)}/cancel") in service.requests


@pytest.mark.parametrize("offset", ["", "many", "-1", "1e3", str(SIZE + 1)])
async def test_nonsense_about_where_an_upload_is_does_no_harm(
    service: FakeUploads, large: Path, offset: str
) -> None:
    async def nonsense(request: web.Request) -> web.StreamResponse:
        return web.Response(headers={"Upload-Offset": offset})

    slept = Slept()
    service.cuts = [10_000]
    service.before("HEAD", "/files", nonsense)
    async with AsyncClient(service.url, pace=slept.pace) as client:
        if offset.isdigit():
            with pytest.raises(UploadFailed, match="is of another file"):
                await client.submit("transcode", file=large)
        else:
            await client.submit("transcode", file=large)
            assert bytes(service.only.data) == large.read_bytes()


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (digest(b"a"), hashlib.sha256(b"a").hexdigest()),
        (f"md5=:AA==:, {digest(b'a')}", hashlib.sha256(b"a").hexdigest()),
        ("sha-512=:AA==:", None),
        ("sha-256=:short=:", None),
        ("", None),
        (None, None),
    ],
)
def test_digests_are_read(value: str | None, found: str | None) -> None:
    assert read_digest(value) == found


@given(st.binary(min_size=32, max_size=32))
def test_digests_are_read_as_they_are_written(sha256: bytes) -> None:
    assert read_digest(render_digest(sha256.hex())) == sha256.hex()
