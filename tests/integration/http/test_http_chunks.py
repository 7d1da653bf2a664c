"""Uploads in numbered chunks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from typing import Any, cast

import pytest

from bide.core.errors import StorageUnavailable
from bide.server.store import Filter
from bide.server.upload_record import Upload, owner_of
from bide.server.uploads.expiry import INTERRUPTED_AFTER
from tests.integration.http.service import Reply, Service, scope

CHUNK = 64 * 1024
CONTENT = os.urandom(5 * CHUNK + 1000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


async def begin(service: Service, **more: Any) -> Reply:
    body = {"name": "a.mp4", "size": len(CONTENT), "chunkSize": CHUNK, **more}
    return await service.call("POST", "/uploads/chunked", json=body)


async def put(service: Service, place: str, number: int, data: bytes | None = None) -> Reply:
    data = CONTENT[number * CHUNK : (number + 1) * CHUNK] if data is None else data
    lines = {"content-length": str(len(data))}
    return await service.call("PUT", f"{place}/chunks/{number}", body=data, headers=lines)


async def test_chunks_in_any_order_and_at_once(service: Service) -> None:
    reply = await begin(service, kind="thumbnail", sha256=SHA256, labels={"of": "ann"})
    assert reply.status == 201, reply.body
    place = reply.headers["location"]
    assert (reply.json()["chunks"], reply.json()["missing"]) == (6, [0, 1, 2, 3, 4, 5])
    numbers = list(range(6))
    random.Random(7).shuffle(numbers)
    await asyncio.gather(*(put(service, place, n) for n in numbers[:4]))
    state = (await service.call("GET", f"{place}/chunks")).json()
    assert state["missing"] == sorted(numbers[4:])
    early = await service.call("POST", f"{place}/complete")
    assert (early.status, early.json()["code"]) == (409, "upload-conflict")
    assert str(min(numbers[4:])) in early.json()["detail"]
    assert (await put(service, place, numbers[4])).status == 204
    done = await put(service, place, numbers[5])
    assert (done.status, done.json()["sha256"]) == (200, SHA256), done.body
    job = (await service.call("GET", done.headers["job-location"])).json()
    assert (job["kind"], job["labels"]) == ("thumbnail", {"of": "ann"})
    for again in (
        await service.call("POST", f"{place}/complete"),
        await put(service, place, numbers[5]),
    ):
        assert (again.status, again.json()) == (200, done.json())
        assert again.headers["job-location"] == done.headers["job-location"]
    file = await service.call("GET", place.replace("uploads", "files"))
    assert file.body == CONTENT


async def test_a_chunk_twice_changes_nothing(service: Service) -> None:
    place = (await begin(service)).headers["location"]
    assert (await put(service, place, 1)).status == 204
    assert (await put(service, place, 1, bytes(CHUNK))).status == 204
    done = [await put(service, place, number) for number in (0, 2, 3, 4, 5)]
    assert [reply.status for reply in done] == [204, 204, 204, 204, 200]
    assert done[-1].json()["sha256"] == SHA256


async def test_the_last_chunks_at_once_complete_the_upload_once(service: Service) -> None:
    place = (await begin(service, kind="thumbnail")).headers["location"]
    # Each chunk twice, as from a client that has lost connections.
    replies = await asyncio.gather(*(put(service, place, n) for n in range(6) for _ in range(2)))
    done = [reply for reply in replies if reply.status == 200]
    assert done and {reply.status for reply in replies} <= {200, 204, 409}
    taken = [reply.json()["code"] for reply in replies if reply.status == 409]
    assert set(taken) <= {"taken-over"}  # only the earlier one of two requests for a chunk
    assert {reply.headers["job-location"] for reply in done} == {done[0].headers["job-location"]}
    assert len(await service.store.find(Filter())) == 1


async def test_an_early_complete_does_not_affect_the_last_chunk(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = (await begin(service)).headers["location"]
    for number in range(5):
        await put(service, place, number)
    find, reads, has_read, may_go = service.lifecycle.find, [0], asyncio.Event(), asyncio.Event()

    async def slow_find(upload_id: str) -> Upload:
        reads[0] += 1
        found = await find(upload_id)
        if reads[0] == 1:
            has_read.set()
            await may_go.wait()
        return found

    monkeypatch.setattr(service.lifecycle, "find", slow_find)
    early = asyncio.create_task(service.call("POST", f"{place}/complete"))
    await has_read.wait()
    last = asyncio.create_task(put(service, place, 5))
    while (await service.call("GET", f"{place}/chunks")).json()["missing"]:
        await asyncio.sleep(0)
    for _ in range(50):  # until the request with the last chunk wants to complete the upload
        await asyncio.sleep(0)
    may_go.set()
    assert (await early).status == 409
    assert (await last).status == 200


async def unavailable(*_: Any) -> None:
    raise StorageUnavailable("the storage does not answer")


async def test_the_upkeep_completes_an_upload_that_the_storage_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = (await begin(service, kind="thumbnail")).headers["location"]
    for number in range(5):
        await put(service, place, number)
    with monkeypatch.context() as broken:
        broken.setattr(service.blobs, "adopt", unavailable)
        assert (await put(service, place, 5)).status == 503
    assert (await service.call("GET", place)).json()["status"] == "UPLOADING"
    service.clock.advance(INTERRUPTED_AFTER + 1)
    await service.expiry.tick()
    done = (await service.call("GET", place)).json()
    assert (done["status"], done["sha256"]) == ("DONE", SHA256)
    again = await put(service, place, 5)
    assert again.headers["job-location"] == f"/jobs/{done['jobId']}"


@pytest.mark.parametrize("by", ["the upkeep", "the client"])
async def test_a_crash_after_the_move_to_the_blobs_loses_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    place = (await begin(service, kind="thumbnail")).headers["location"]
    for number in range(5):
        await put(service, place, number)
    with monkeypatch.context() as crashed:
        crashed.setattr(service.lifecycle, "store_finished", unavailable)
        await put(service, place, 5)
    service.staging._digests.clear()  # a new process has none
    if by == "the upkeep":
        service.clock.advance(INTERRUPTED_AFTER + 1)
        await service.expiry.tick()
    else:
        assert (await put(service, place, 5)).status == 200
    done = (await service.call("GET", place)).json()
    assert (done["status"], done["sha256"]) == ("DONE", SHA256)
    assert done["jobId"] is not None


async def test_the_upkeep_leaves_an_upload_to_the_request_that_finishes_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = (await begin(service, kind="thumbnail")).headers["location"]
    for number in range(5):
        await put(service, place, number)
    moving, may_move, adopt = asyncio.Event(), asyncio.Event(), service.blobs.adopt

    async def slow(*args: Any) -> None:
        moving.set()
        await may_move.wait()
        await adopt(*args)

    monkeypatch.setattr(service.blobs, "adopt", slow)
    last = asyncio.create_task(put(service, place, 5))
    await moving.wait()
    service.clock.advance(INTERRUPTED_AFTER + 1)
    await service.expiry.tick()
    may_move.set()
    assert (await last).status == 200


async def test_half_a_chunk_counts_for_nothing(service: Service) -> None:
    place = (await begin(service)).headers["location"]
    for length in (0, 1, CHUNK - 1, CHUNK + 1):
        reply = await put(service, place, 0, CONTENT[:length])
        assert (reply.status, reply.json()["code"]) == (422, "wrong-length")
        unannounced = await service.call("PUT", f"{place}/chunks/0", body=CONTENT[:length])
        assert unannounced.json()["code"] == "wrong-length"
    lines = {"content-length": str(CHUNK)}

    async def receive() -> Any:
        return messages.pop(0)

    messages = [
        {"type": "http.request", "body": CONTENT[:5000], "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def send(message: Any) -> None:
        raise AssertionError("the client has disconnected")

    await service.app(scope("PUT", f"{place}/chunks/0", lines), receive, send)
    assert (await service.call("GET", f"{place}/chunks")).json()["missingCount"] == 6


async def test_a_file_that_is_no_multiple_and_one_that_is_empty(service: Service) -> None:
    empty = await begin(service, size=0)
    assert empty.json()["chunks"] == 1
    done = await put(service, empty.headers["location"], 0, b"")
    assert (done.json()["size"], done.json()["sha256"]) == (0, hashlib.sha256().hexdigest())
    place = (await begin(service)).headers["location"]
    assert (await put(service, place, 5)).status == 204, "the last one is shorter"
    assert (await put(service, place, 6, b"x")).status == 404
    assert (await service.call("PUT", f"{place}/chunks/x", body=b"x")).status == 404


@pytest.mark.parametrize(
    "body",
    [
        {"size": -1},
        {"size": 1 << 60},
        {"chunkSize": 10},
        {"size": 1 << 40, "chunkSize": CHUNK},
        {"sha256": "x"},
        {"unknown": 1},
        {"kind": "nothing"},
        {"kind": "thumbnail", "input": {"video": 1}},
        {"kind": "thumbnail", "priority": 10_000},
    ],
)
async def test_what_cannot_be_is_refused_before_a_byte_is_sent(
    service: Service, body: dict[str, Any]
) -> None:
    reply = await begin(service, **body)
    assert reply.status in (413, 422), reply.body


async def test_a_wrong_promise_is_found(service: Service) -> None:
    place = (await begin(service, sha256="0" * 64)).headers["location"]
    replies = await asyncio.gather(*(put(service, place, n) for n in range(6)))
    (reply,) = [reply for reply in replies if reply.status != 204]
    assert (reply.status, reply.json()["code"]) == (460, "checksum-mismatch")
    assert (await service.call("GET", place)).status == 410


async def test_ways_are_not_mixed(service: Service) -> None:
    place = (await begin(service)).headers["location"]
    lines = {
        "tus-resumable": "1.0.0",
        "upload-offset": "0",
        "content-type": "application/offset+octet-stream",
    }
    tus = place.replace("uploads", "files")
    assert (await service.call("PATCH", tus, body=b"x", headers=lines)).status == 409
    assert (await service.call("HEAD", tus, headers=lines)).status == 404
    direct = (await service.call("POST", "/uploads", body=b"x")).headers["location"]
    assert (await put(service, direct, 0, b"x")).status == 409
    assert (await service.call("GET", f"{direct}/chunks")).status == 409
    assert (await service.call("POST", f"{direct}/complete")).status == 200, "it is whole"


@pytest.mark.parametrize("removed", [False, True], ids=["moved", "removed"])
@pytest.mark.parametrize("last", [0, 5])
async def test_a_record_that_has_gone_back_gives_no_file_with_a_hole(
    service: Service, last: int, removed: bool
) -> None:
    """After a lossy failover the record lacks the last chunk, and the others have left the staging folder."""
    place = (await begin(service)).headers["location"]
    upload_id = place.rpartition("/")[2]
    for number in set(range(6)) - {last}:
        assert (await put(service, place, number)).status == 204
    before = await service.store.upload(upload_id)
    assert isinstance(before, Upload)
    assert (await put(service, place, last)).status == 200
    await cast(Any, service.store)._writer.submit(lambda tx: tx.put_upload(before))
    if removed:
        await service.blobs.remove(owner_of(upload_id))
        gone = await put(service, place, last)
        assert (gone.status, gone.json()["code"]) == (410, "gone")
        return
    assert (await service.call("GET", f"{place}/chunks")).json()["missing"] == [last]
    *_, done = await asyncio.gather(*(put(service, place, last) for _ in range(3)))
    assert (done.status, done.json()["sha256"]) == (200, SHA256), done.body
    assert (await service.call("GET", place.replace("uploads", "files"))).body == CONTENT
