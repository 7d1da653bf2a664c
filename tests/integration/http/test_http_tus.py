"""Resumable uploads with tus, without a network."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bide.server.config import Config, HttpConfig, UploadConfig
from bide.server.http.request import Message
from bide.server.intake import read_submission
from bide.server.registry import File, Kind, Registry
from bide.server.store import StoreUnavailable
from bide.server.uploads import staging, upload_jobs
from bide.server.uploads.lifecycle import CONCURRENT_COMMITS
from tests.integration.http.service import MAX_BODY, Reply, Service, scope

CONTENT = os.urandom(10_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
TUS = {"tus-resumable": "1.0.0"}
OFFSET = "application/offset+octet-stream"


def b64(data: str | bytes) -> str:
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


def metadata(**fields: Any) -> str:
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in fields.items()}
    return ",".join(f"{name} {b64(text)}" if text else name for name, text in texts.items())


async def create(service: Service, size: int | None = len(CONTENT), /, **more: Any) -> Reply:
    length = {"upload-defer-length": "1"} if size is None else {"upload-length": str(size)}
    return await service.call("POST", "/files", headers={**TUS, **length, **more})


async def begun(service: Service, size: int | None = len(CONTENT), /, **more: Any) -> str:
    reply = await create(service, size, **more)
    assert reply.status == 201, reply.body
    return reply.headers["location"]


async def patch(service: Service, place: str, offset: int, data: bytes, **more: str) -> Reply:
    lines = {
        **TUS,
        "content-type": OFFSET,
        "upload-offset": str(offset),
        "content-length": str(len(data)),
        **more,
    }
    return await service.call("PATCH", place, body=data, headers=lines)


async def offset_of(service: Service, place: str) -> int:
    reply = await service.call("HEAD", place, headers=TUS)
    assert reply.status == 200, reply
    assert reply.headers["cache-control"] == "no-store"
    return int(reply.headers["upload-offset"])


class Sender:
    """A request whose body the test sends bit by bit."""

    def __init__(self, service: Service, place: str, offset: int, **more: str) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        lines = {**TUS, "content-type": OFFSET, "upload-offset": str(offset), **more}
        self.task = asyncio.ensure_future(
            service.app(scope("PATCH", place, lines), self._messages.get, self._send)
        )

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    def put(self, data: bytes, *, last: bool = False) -> None:
        self._messages.put_nowait({"type": "http.request", "body": data, "more_body": not last})

    def leave(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    async def ended(self) -> int:
        await asyncio.wait_for(self.task, 30)
        return self.sent[0]["status"] if self.sent else 0

    async def read(self) -> None:
        """Until all that was put has been taken."""
        while not self._messages.empty() and not self.task.done():
            await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_options_returns_the_version_and_the_extensions(service: Service) -> None:
    reply = await service.call("OPTIONS", "/files")
    assert reply.status == 204
    assert reply.headers["tus-version"] == "1.0.0"
    extensions = set(reply.headers["tus-extension"].split(","))
    assert extensions == {
        *("creation", "creation-with-upload", "creation-defer-length", "checksum"),
        *("expiration", "termination", "concatenation"),
    }
    assert reply.headers["tus-checksum-algorithm"] == "crc32,sha1,sha256"
    assert int(reply.headers["tus-max-size"]) > 0


@pytest.mark.parametrize("version", [{}, {"tus-resumable": "0.2.2"}])
async def test_another_version_is_refused(service: Service, version: dict[str, str]) -> None:
    reply = await service.call("POST", "/files", headers={"upload-length": "1", **version})
    assert (reply.status, reply.json()["code"]) == (412, "tus-version")
    assert (reply.headers["Tus-Version".lower()], reply.headers["tus-resumable"]) == ("1.0.0", "1.0.0")


async def test_a_file_in_three_pieces(service: Service) -> None:
    place = await begun(service, **{"upload-metadata": metadata(filename="a.mp4", filetype="video/mp4")})
    assert await offset_of(service, place) == 0
    for first, last in ((0, 3000), (3000, 3001), (3001, 10_000)):
        reply = await patch(service, place, first, CONTENT[first:last])
        assert (reply.status, reply.headers["upload-offset"]) == (204, str(last)), reply.body
        assert await offset_of(service, place) == last
    told = (await service.call("GET", place.replace("files", "uploads"))).json()
    assert (told["status"], told["sha256"], told["name"]) == ("DONE", SHA256, "a.mp4")
    file = await service.call("GET", place)
    assert file.body == CONTENT
    assert file.headers["content-disposition"].startswith("attachment")
    assert file.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in file.headers["content-security-policy"]


async def test_head_returns_the_length_and_the_metadata_of_the_creation(service: Service) -> None:
    told = metadata(filename="a", empty="")
    place = await begun(service, **{"upload-metadata": told})
    reply = await service.call("HEAD", place, headers=TUS)
    assert reply.headers["upload-metadata"] == told
    assert reply.headers["upload-length"] == "10000"
    assert "GMT" in reply.headers["upload-expires"]
    later = await begun(service, None)
    reply = await service.call("HEAD", later, headers=TUS)
    assert (reply.headers["upload-defer-length"], "upload-length" in reply.headers) == ("1", False)


async def test_an_unfinished_upload_is_not_served(service: Service) -> None:
    place = await begun(service)
    await patch(service, place, 0, CONTENT[:100])
    reply = await service.call("GET", place)
    assert (reply.status, reply.json()["code"]) == (409, "upload-conflict")


async def test_creation_with_upload(service: Service) -> None:
    lines = {**TUS, "upload-length": "10000", "content-type": OFFSET}
    reply = await service.call(
        "POST", "/files", body=CONTENT[:4000], headers={**lines, "content-length": "4000"}
    )
    assert (reply.status, reply.headers["upload-offset"]) == (201, "4000")
    assert (await patch(service, reply.headers["location"], 4000, CONTENT[4000:])).status == 204
    whole = await service.call("POST", "/files", body=CONTENT, headers=lines)
    assert whole.headers["upload-offset"] == "10000"
    empty = await create(service, 0)
    assert (empty.status, empty.headers["upload-offset"]) == (201, "0")
    assert (await service.call("GET", empty.headers["location"])).body == b""


async def test_a_length_that_comes_later(service: Service) -> None:
    place = await begun(service, None)
    await patch(service, place, 0, CONTENT[:5000])
    short = await patch(service, place, 5000, b"", **{"upload-length": "4999"})
    assert (short.status, short.json()["code"]) == (422, "wrong-length")
    reply = await patch(service, place, 5000, CONTENT[5000:], **{"upload-length": "10000"})
    assert reply.status == 204
    assert (await service.call("GET", place)).body == CONTENT
    fixed = await begun(service)
    other = await patch(service, fixed, 0, b"x", **{"upload-length": "5"})
    assert (other.status, other.json()["code"]) == (422, "wrong-length")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"upload-length": "-1"},
        {"upload-length": "ten"},
        {"upload-length": "²"},
        {"upload-length": "1", "upload-defer-length": "1"},
        {"upload-defer-length": "2"},
        {"upload-length": "1", "upload-metadata": "a !!"},
        {"upload-length": "1", "upload-metadata": "a YQ==,a YQ=="},
        {"upload-length": "1", "upload-metadata": ",a YQ=="},
        {"upload-length": "1", "upload-concat": "something"},
        {"upload-length": "1", "upload-concat": "final;"},
    ],
)
async def test_a_creation_that_cannot_be_read_is_refused(
    service: Service, headers: dict[str, str]
) -> None:
    reply = await service.call("POST", "/files", headers={**TUS, **headers})
    assert (reply.status, reply.json()["code"]) == (400, "malformed-request"), reply.body
    assert reply.headers["tus-resumable"] == "1.0.0"


async def test_a_wrong_offset_is_refused_and_nothing_changes(service: Service) -> None:
    place = await begun(service)
    await patch(service, place, 0, CONTENT[:100])
    for offset in (0, 99, 101, 10_000):
        reply = await patch(service, place, offset, b"x")
        assert (reply.status, reply.json()["code"]) == (409, "wrong-offset")
        assert reply.headers["upload-offset"] == "100"
    assert await offset_of(service, place) == 100
    assert (await patch(service, place, 100, CONTENT[100:])).status == 204
    again = await patch(service, place, 0, CONTENT)
    assert (again.status, again.json()["code"]) == (409, "wrong-offset")
    assert again.headers["upload-offset"] == "10000"
    assert (await patch(service, place, 10_000, b"")).status == 204
    assert (await service.call("GET", place)).body == CONTENT


async def test_what_is_not_a_patch_is_refused(service: Service) -> None:
    place = await begun(service)
    reply = await service.call("PATCH", place, body=b"x", headers={**TUS, "upload-offset": "0"})
    assert reply.status == 415
    reply = await service.call("PATCH", place, body=b"x", headers={**TUS, "content-type": OFFSET})
    assert reply.status == 400
    for method in ("HEAD", "PATCH", "DELETE"):
        lines = {**TUS, "content-type": OFFSET, "upload-offset": "0"}
        assert (await service.call(method, "/files/nobody", headers=lines)).status == 404


async def test_more_bytes_than_announced_are_refused(service: Service) -> None:
    place = await begun(service, 1000)
    reply = await patch(service, place, 0, CONTENT)
    assert (reply.status, reply.json()["code"]) == (422, "wrong-length")
    sender = Sender(service, place, 0)
    sender.put(CONTENT[:900])
    sender.put(CONTENT[900:2000], last=True)
    assert await sender.ended() == 422
    assert await offset_of(service, place) == 900
    await patch(service, place, 900, CONTENT[900:1000])
    assert (await service.call("GET", place)).body == CONTENT[:1000]


async def test_a_cut_connection_keeps_what_came(service: Service) -> None:
    place = await begun(service)
    sender = Sender(service, place, 0, **{"content-length": "10000"})
    sender.put(CONTENT[:6000])
    sender.leave()
    assert await sender.ended() == 0
    assert await offset_of(service, place) == 6000
    await patch(service, place, 6000, CONTENT[6000:])
    assert (await service.call("GET", place)).body == CONTENT


async def test_of_two_writers_the_newer_wins(service: Service) -> None:
    place = await begun(service)
    older = Sender(service, place, 0)
    older.put(CONTENT[:4000])
    await older.read()
    assert await offset_of(service, place) == 4000, (
        "HEAD cuts the older one off, and keeps what it brought"
    )
    assert await older.ended() == 409
    second = Sender(service, place, 4000)
    second.put(CONTENT[4000:5000])
    await second.read()
    third = Sender(service, place, 4000)
    third.put(CONTENT[4000:], last=True)
    statuses = [await second.ended(), await third.ended()]
    assert statuses == [409, 409], "the third was begun where the second had been"
    assert await offset_of(service, place) == 5000
    assert (await patch(service, place, 5000, CONTENT[5000:])).status == 204
    assert (await service.call("GET", place)).body == CONTENT


async def test_a_writer_that_is_cut_off_before_its_bytes_are_noted(service: Service) -> None:
    """They are recorded anyway: the request that replaces this one waits for that."""
    place = await begun(service)
    sender = Sender(service, place, 0)
    sender.put(CONTENT[:4000])
    await sender.read()
    commits = service.lifecycle._commits
    for _ in range(CONCURRENT_COMMITS):
        await commits.acquire()
    sender.leave()
    newer = asyncio.create_task(offset_of(service, place))
    await asyncio.sleep(0.05)
    for _ in range(CONCURRENT_COMMITS):
        commits.release()
    assert await newer == 4000
    await patch(service, place, 4000, CONTENT[4000:])
    shown = (await service.call("GET", place.replace("files", "uploads"))).json()
    assert (shown["status"], shown["sha256"]) == ("DONE", SHA256)


async def test_bytes_that_could_not_be_noted_come_again_and_count_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await begun(service)

    def unwritable(received: Any) -> Any:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(service.store, "receive", unwritable)
    assert (await patch(service, place, 0, CONTENT[:4000])).status == 503
    monkeypatch.undo()
    assert await offset_of(service, place) == 0
    assert (await patch(service, place, 0, CONTENT)).status == 204
    shown = (await service.call("GET", place.replace("files", "uploads"))).json()
    assert (shown["status"], shown["sha256"]) == ("DONE", SHA256)


async def test_many_writers_at_once_spoil_nothing(service: Service) -> None:
    place = await begun(service)
    senders = []
    for _ in range(20):
        sender = Sender(service, place, 0)
        sender.put(CONTENT[:5000])
        senders.append(sender)
    for sender in senders:
        sender.put(CONTENT[5000:], last=True)
    statuses = [await sender.ended() for sender in senders]
    assert set(statuses) <= {204, 409}
    at = await offset_of(service, place)
    if at < 10_000:
        assert (await patch(service, place, at, CONTENT[at:])).status == 204
    assert (await service.call("GET", place)).body == CONTENT


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("sha1", lambda data: hashlib.sha1(data).digest()),
        ("sha256", lambda data: hashlib.sha256(data).digest()),
        ("crc32", lambda data: zlib.crc32(data).to_bytes(4, "big")),
    ],
)
async def test_a_damaged_piece_is_thrown_away(service: Service, name: str, digest: Any) -> None:
    place = await begun(service)
    piece = CONTENT[:5000]
    told = {"upload-checksum": f"{name} {b64(digest(piece))}"}
    damaged = await patch(service, place, 0, piece[:-1] + bytes([piece[-1] ^ 1]), **told)
    assert (damaged.status, damaged.json()["code"]) == (460, "checksum-mismatch")
    assert await offset_of(service, place) == 0
    assert (await patch(service, place, 0, piece, **told)).headers["upload-offset"] == "5000"
    cut = Sender(service, place, 5000, **{"upload-checksum": f"{name} {b64(digest(CONTENT[5000:]))}"})
    cut.put(CONTENT[5000:7000])
    cut.leave()
    await cut.ended()
    assert await offset_of(service, place) == 5000, "what could not be verified was not received"
    assert (await patch(service, place, 5000, CONTENT[5000:])).status == 204
    told_sum = (await service.call("GET", place.replace("files", "uploads"))).json()["sha256"]
    assert told_sum == SHA256


@pytest.mark.parametrize("told", ["md5 YQ==", "sha1 YQ==", "sha1", "sha1 !!"])
async def test_a_checksum_that_cannot_be_read_is_refused(service: Service, told: str) -> None:
    place = await begun(service)
    assert (await patch(service, place, 0, b"x", **{"upload-checksum": told})).status == 400
    assert await offset_of(service, place) == 0


async def test_a_terminated_upload_is_gone(service: Service) -> None:
    place = await begun(service)
    sender = Sender(service, place, 0)
    sender.put(CONTENT[:4000])
    await sender.read()
    assert (await service.call("DELETE", place, headers=TUS)).status == 204
    assert await sender.ended() == 409
    assert (await service.call("HEAD", place, headers=TUS)).status == 410
    assert (await patch(service, place, 4000, b"x")).status == 410
    assert list(service.staging.root.iterdir()) == []


async def test_an_abandoned_upload_expires(service: Service) -> None:
    place = await begun(service)
    await patch(service, place, 0, CONTENT[:100])
    service.clock.advance(86_000)
    await patch(service, place, 100, CONTENT[100:200])
    service.clock.advance(86_000)
    await service.expiry.tick()
    assert await offset_of(service, place) == 200, "each piece gives it new time"
    service.clock.advance(500)
    await service.expiry.tick()
    assert (await service.call("HEAD", place, headers=TUS)).status == 410
    assert list(service.staging.root.iterdir()) == []


async def test_parts_in_parallel_become_one(service: Service) -> None:
    pieces = [CONTENT[:3000], CONTENT[3000:3001], CONTENT[3001:]]
    places = [await begun(service, len(p), **{"upload-concat": "partial"}) for p in pieces]
    told = {"upload-metadata": metadata(kind="thumbnail", filename="a.mp4")}
    joined = {**TUS, "upload-concat": "final;" + " ".join(places), **told}
    early = await service.call("POST", "/files", headers=joined)
    assert (early.status, early.json()["code"]) == (409, "upload-conflict")
    await asyncio.gather(*(patch(service, place, 0, p) for place, p in zip(places, pieces, strict=True)))
    head = await service.call("HEAD", places[0], headers=TUS)
    assert (head.headers["upload-concat"], head.headers["upload-offset"]) == ("partial", "3000")
    assert (await service.call("GET", places[0])).status == 409
    reply = await service.call("POST", "/files", headers=joined)
    assert reply.status == 201, reply.body
    assert reply.headers["job-location"].startswith("/jobs/")
    final = reply.headers["location"]
    assert (await service.call("GET", final)).body == CONTENT
    head = await service.call("HEAD", final, headers=TUS)
    assert head.headers["upload-concat"] == "final;" + " ".join(places)
    assert (head.headers["upload-offset"], head.headers["upload-length"]) == ("10000", "10000")
    reply = await patch(service, final, 10_000, b"x")
    assert (reply.status, reply.json()["code"]) == (403, "final-upload")
    again = await service.call("POST", "/files", headers=joined)
    assert again.status == 201, "the parts exist for a client that lost the response"
    service.clock.advance(3601)
    await service.expiry.tick()
    assert (await service.call("HEAD", places[0], headers=TUS)).status == 410


async def test_the_last_byte_makes_the_job(service: Service) -> None:
    told = metadata(
        kind="thumbnail",
        filename="a.mp4",
        priority=7,
        queue="slow",
        labels={"of": "ann"},
        idempotencyKey="k",
    )
    place = await begun(service, **{"upload-metadata": told})
    first = await patch(service, place, 0, CONTENT[:9999])
    assert "job-location" not in first.headers
    last = await patch(service, place, 9999, CONTENT[9999:])
    job = (await service.call("GET", last.headers["job-location"])).json()
    assert (job["kind"], job["priority"], job["queue"], job["labels"]) == (
        *("thumbnail", 7, "slow"),
        {"of": "ann"},
    )
    assert service.engine.hints[-1] == ("slow", "thumbnail")
    head = await service.call("HEAD", place, headers=TUS)
    assert head.headers["job-location"] == last.headers["job-location"]
    repeated = await patch(service, place, 10_000, b"")
    assert repeated.headers["job-location"] == last.headers["job-location"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"kind": "nothing"}, "unknown-kind"),
        ({"kind": "echo"}, "invalid-input"),
        ({"kind": "thumbnail", "input": {"video": 1}}, "invalid-input"),
        ({"kind": "thumbnail", "input": {"size": 1}}, "invalid-input"),
        ({"kind": "thumbnail", "input": "{"}, "invalid-input"),
        ({"kind": "thumbnail", "priority": 5000}, "invalid-input"),
        ({"kind": "thumbnail", "parameter": "film"}, "invalid-input"),
        ({"kind": "thumbnail", "dedupe": "name"}, "invalid-input"),
        ({"kind": "thumbnail", "queue": "a b"}, "invalid-input"),
        ({"kind": "thumbnail", "runAt": "soon"}, "invalid-input"),
        ({"input": {}}, "invalid-input"),
    ],
)
async def test_a_job_that_cannot_be_is_refused_before_a_byte_is_sent(
    service: Service, fields: dict[str, Any], code: str
) -> None:
    reply = await create(service, **{"upload-metadata": metadata(**fields)})
    assert (reply.status, reply.json()["code"]) == (422, code), reply.body


async def test_concurrent_uploads_of_one_file_are_one_job(service: Service) -> None:
    told = {"upload-metadata": metadata(kind="thumbnail", dedupe="content")}
    places = [await begun(service, **told) for _ in range(5)]
    replies = await asyncio.gather(*(patch(service, place, 0, CONTENT) for place in places))
    assert [r.status for r in replies] == [204] * 5
    assert len({r.headers["job-location"] for r in replies}) == 1


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which parts of a submission are read or validated, in order."""
    calls: list[str] = []

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any) -> Any:
            calls.append(name)
            return call(*args)

        return count

    monkeypatch.setattr(Kind, "check_input", counted("validate", Kind.check_input))
    monkeypatch.setattr(upload_jobs, "read_submission", counted("read", read_submission))
    return calls


@pytest.mark.parametrize("notes", ["short", "long" * 1300])
async def test_a_submission_is_read_and_validated_once(
    tmp_path: Path, readings: list[str], notes: str
) -> None:
    async with Service(tmp_path, registry=films()).opened() as service:
        told = {"upload-metadata": metadata(kind="film", input={"notes": notes})}
        place = await begun(service, len(MP4), **told)
        assert (await patch(service, place, 0, MP4[:2005])).status == 204, "its type is accepted"
        reply = await patch(service, place, 2005, MP4[2005:])
        assert "job-location" in reply.headers
        assert readings == ["validate"]
        jobs = service.lifecycle._jobs
        assert (jobs._checked, jobs._cached_bytes) == ({}, 0), "nothing stays in memory"


async def test_a_submission_is_validated_once_more_after_a_restart(
    tmp_path: Path, readings: list[str]
) -> None:
    async with Service(tmp_path, registry=films()).opened() as service:
        place = await begun(service, len(MP4), **{"upload-metadata": metadata(kind="film")})
        service.lifecycle._jobs.forget(place.rpartition("/")[2])
        assert (await patch(service, place, 0, MP4[:2005])).status == 204
        assert "job-location" in (await patch(service, place, 2005, MP4[2005:])).headers
        assert readings == ["validate", "read", "validate"]


async def test_submissions_that_no_longer_fit_into_the_cache_are_validated_again(
    service: Service, readings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_jobs, "MAX_CACHED_BYTES", 2 * upload_jobs.ENTRY_BYTES + 200)
    told = {"upload-metadata": metadata(kind="thumbnail")}
    places = [await begun(service, **told) for _ in range(3)]
    refused = metadata(kind="thumbnail", deadline="2000-01-01T00:00:00Z")
    assert (await create(service, **{"upload-metadata": refused})).status == 422
    readings.clear()
    for place in reversed(places):
        assert "job-location" in (await patch(service, place, 0, CONTENT)).headers
    assert readings == ["read", "validate"], "the oldest one alone"


@pytest.mark.parametrize(
    "given", ["[1]", "null", "3", '{"a": 1', '{"a": }', '{"video": 1}', '{"a": \xff}', "[" * 5000]
)
async def test_an_input_that_takes_no_file_is_refused(service: Service, given: str) -> None:
    told = {"upload-metadata": metadata(kind="thumbnail", input=given)}
    reply = await create(service, **told)
    assert (reply.status, reply.json()["code"]) == (422, "invalid-input"), reply.body


async def test_a_post_can_stand_for_another_method(service: Service) -> None:
    place = await begun(service)
    lines = {**TUS, "content-type": OFFSET, "upload-offset": "0", "x-http-method-override": "PATCH"}
    reply = await service.call("POST", place, body=CONTENT, headers=lines)
    assert (reply.status, reply.headers["upload-offset"]) == (204, "10000")
    for other in ({}, {"x-http-method-override": "PUT"}):
        reply = await service.call("POST", place, headers={**TUS, **other})
        assert (reply.status, reply.json()["code"]) == (405, "method-not-allowed")
    reply = await service.call("POST", place, headers={**TUS, "x-http-method-override": "DELETE"})
    assert reply.status == 204


async def test_a_promised_checksum_must_hold(service: Service) -> None:
    good = await begun(service, **{"upload-metadata": metadata(sha256=SHA256)})
    assert (await patch(service, good, 0, CONTENT)).status == 204
    bad = await begun(service, **{"upload-metadata": metadata(sha256=SHA256[::-1])})
    reply = await patch(service, bad, 0, CONTENT)
    assert (reply.status, reply.json()["code"]) == (460, "checksum-mismatch")
    assert (await service.call("HEAD", bad, headers=TUS)).status == 410


async def test_a_full_disk_keeps_what_was_acknowledged(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await begun(service)
    await patch(service, place, 0, CONTENT[:3000])
    real = os.pwritev

    def full(fd: int, buffers: Any, offset: int) -> int:
        if offset + sum(map(len, buffers)) > 6000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "pwritev", full)
    reply = await patch(service, place, 3000, CONTENT[3000:])
    assert (reply.status, reply.json()["code"]) == (507, "storage-full")
    monkeypatch.undo()
    at = await offset_of(service, place)
    assert at >= 3000
    assert (await patch(service, place, at, CONTENT[at:])).status == 204
    assert (await service.call("GET", place)).body == CONTENT


async def test_a_large_request_is_durable_in_between(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "BATCH", 1000)
    monkeypatch.setattr(staging, "CHECKPOINT", 2000)
    place = await begun(service)
    sender = Sender(service, place, 0)
    for first in range(0, 9000, 500):
        sender.put(CONTENT[first : first + 500])
    await sender.read()
    shown = place.replace("files", "uploads")
    async with asyncio.timeout(30):
        while (await service.call("GET", shown)).json()["received"] < 4000:
            await asyncio.sleep(0.005)
    assert not sender.task.done()
    sender.leave()
    await sender.ended()
    assert await offset_of(service, place) == 9000


async def test_a_quota_refuses_creations_and_later_bytes(tmp_path: Path) -> None:
    uploads = UploadConfig(max_size=9000, quota=8000)
    config = Config(data=tmp_path, http=HttpConfig(max_body=MAX_BODY), uploads=uploads)
    async with Service(tmp_path, config=config).opened() as service:
        assert (await create(service, 9001)).status == 413
        assert (await create(service, 8001)).status == 507
        place = await begun(service, 5000)
        assert (await create(service, 5000)).status == 507
        deferred = await begun(service, None)
        reply = await patch(service, deferred, 0, CONTENT[:4500])
        assert (reply.status, reply.json()["code"]) == (507, "storage-full")
        await service.call("DELETE", place, headers=TUS)
        assert (await patch(service, deferred, 0, CONTENT[:4500])).status == 204


async def test_another_replica_tells_where_the_upload_is(service: Service) -> None:
    place = await begun(service)
    service.lifecycle.replica = "there"
    for method in ("HEAD", "PATCH"):
        lines = {**TUS, "content-type": OFFSET, "upload-offset": "0"}
        reply = await service.call(method, place, body=b"x", headers=lines)
        assert reply.status == 421
    assert "replica here" in (await patch(service, place, 0, b"x")).json()["detail"]


async def test_what_a_crash_left_whole_is_finished(service: Service) -> None:
    told = {"upload-metadata": metadata(kind="thumbnail")}
    place = await begun(service, **told)
    upload_id = place.rpartition("/")[2]
    upload = await service.uploads.find(upload_id)
    (service.staging.root / upload_id).write_bytes(CONTENT)
    await service.lifecycle.record(upload, received=10_000)
    service.clock.advance(11)
    await service.expiry.tick()
    done = (await service.call("GET", f"/uploads/{upload_id}")).json()
    assert (done["status"], done["sha256"]) == ("DONE", SHA256)
    assert done["jobId"] is not None


async def test_a_crash_between_the_blob_and_its_record_loses_nothing(service: Service) -> None:
    place = await begun(service, **{"upload-metadata": metadata(kind="thumbnail")})
    upload_id = place.rpartition("/")[2]
    await patch(service, place, 0, CONTENT[:4000])
    blob = service.blobs.path(f"uploads/{upload_id}/content")
    blob.parent.mkdir(parents=True)
    (service.staging.root / upload_id).unlink()
    service.staging.take_digest(upload_id, 0)  # which a crash forgets
    blob.write_bytes(CONTENT)
    assert await offset_of(service, place) == 10_000
    assert (await service.call("GET", place)).body == CONTENT
    head = await service.call("HEAD", place, headers=TUS)
    assert "job-location" in head.headers


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("left", [None, 0, 3999])
async def test_bytes_that_were_removed_from_the_disk_are_reported_as_lost(
    service: Service, left: int | None, crashed: bool
) -> None:
    place = await begun(service)
    await patch(service, place, 0, CONTENT[:4000])
    upload_id = place.rpartition("/")[2]
    path = service.staging.root / upload_id
    if left is None:
        path.unlink()
    else:
        os.truncate(path, left)
    if crashed:
        service.staging.take_digest(upload_id, 0)
    reply = await patch(service, place, 4000, CONTENT[4000:])
    assert reply.status == 410
    assert "lost" in reply.json()["detail"]
    assert (await service.call("HEAD", place, headers=TUS)).status == 410
    assert not path.exists()


async def test_pages_of_allowed_origins_may_upload(tmp_path: Path) -> None:
    http = HttpConfig(max_body=MAX_BODY, origins=("https://shop.example",))
    config = Config(data=tmp_path, http=http)
    async with Service(tmp_path, config=config).opened() as service:
        asked = {"origin": "https://shop.example", "access-control-request-method": "PATCH"}
        reply = await service.call("OPTIONS", "/files/x", headers=asked)
        assert reply.status == 204
        assert reply.headers["access-control-allow-origin"] == "https://shop.example"
        assert "Upload-Offset" in reply.headers["access-control-allow-headers"]
        page = {"origin": "https://shop.example", "sec-fetch-site": "cross-site"}
        place = await begun(service, **page)
        done = await patch(service, place, 0, CONTENT, **page)
        assert done.headers["access-control-allow-origin"] == "https://shop.example"
        assert "Upload-Offset" in done.headers["access-control-expose-headers"]
        file = await service.call("GET", place, headers=page)
        assert file.headers["access-control-allow-origin"] == "https://shop.example"
        evil = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        assert (await create(service, **evil)).status == 403
        other = await service.call(
            "OPTIONS", "/files", headers={**asked, "origin": "https://evil.example"}
        )
        assert other.status == 403
        assert "access-control-allow-origin" not in other.headers


ELF = b"\x7fELF\x02\x01\x01" + bytes(2000)
MP4 = b"\x00\x00\x00\x18ftypisom" + bytes(2000)


def films() -> Registry:
    from typing import Annotated

    from bide.server.registry import Accepts

    registry = Registry()

    def film(video: Annotated[File, Accepts("video/*")], notes: str = "") -> None: ...

    film.__annotations__["video"] = Annotated[File, Accepts("video/*")]  # which is local
    registry.job()(film)
    return registry


async def test_an_executable_dressed_as_a_video_is_refused(tmp_path: Path) -> None:
    async with Service(tmp_path, registry=films()).opened() as service:
        told = {"upload-metadata": metadata(kind="film", filename="a.mp4", filetype="video/mp4")}
        for data in (ELF, ELF[:100]):
            place = await begun(service, len(data), **told)
            reply = await patch(service, place, 0, data)
            assert (reply.status, reply.json()["code"]) == (422, "wrong-content"), reply.body
            assert "video/*" in reply.json()["detail"] and "executable" in reply.json()["detail"]
            assert (await service.call("HEAD", place, headers=TUS)).status == 410
        early = await begun(service, 1_000_000, **told)
        assert (await patch(service, early, 0, ELF)).status == 422, "before all of it was sent"
        place = await begun(service, len(MP4), **told)
        assert (await patch(service, place, 0, MP4)).headers["job-location"]
        assert list(service.staging.root.iterdir()) == []
