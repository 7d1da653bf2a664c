"""Callers that are slow, gone, or talk nonsense, against a service in its own process.

It imports bench, because it runs a small trial of `python -m bench.chaos --only http`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from bench.chaos.http import (
    NONSENSE,
    Crowd,
    Served,
    answer_of,
    exchange,
    judge_nonsense,
    leave,
    poll,
    status_of,
    trial,
)

TIMEOUT = 1.5
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
SUBMIT = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("abuse")
    with Served(folder, request_timeout=TIMEOUT, max_body=300_000).running() as served:
        yield served


@pytest.fixture
async def served(shared: Served) -> AsyncIterator[Served]:
    """Whatever was done to it, it is well afterwards and has nothing to complain about."""
    yield shared
    assert (await shared.ask("GET", "/healthz"))[0] == 200
    assert await shared.until_long_polls(0)
    assert shared.complaints == []


def problem(answer: bytes) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    document: dict[str, object] = json.loads(body)
    assert document["status"] == status_of(answer)
    return document


# --- many at once


async def test_a_crowd_of_slow_callers_and_long_polls(tmp_path: Path) -> None:
    report = await trial(tmp_path, slow=300, polls=200, requests=400, rounds=1, timeout=4)
    assert report.violations == []
    assert report.growth < 60 * 2**20
    assert report.cut_in < 4 + 5
    assert max(report.crowded) < 1  # a bound of sanity: figures are for the benchmark


async def test_beyond_the_most_connections_it_says_so(tmp_path: Path) -> None:
    with Served(tmp_path, max_connections=20).running() as served:
        crowd = Crowd(served)
        await crowd.gather(20)
        answer = await served.say(LAST)
        assert (status_of(answer), problem(answer)["code"]) == (503, "unavailable")
        assert b"retry-after: " in answer
        await crowd.leave()
        assert (await served.ask("GET", "/healthz"))[0] == 200
        async with asyncio.timeout(30):
            while "max_connections" not in served.log.read_text():
                await asyncio.sleep(0.05)
        assert served.complaints == []


async def test_connections_leave_files_for_the_service(tmp_path: Path) -> None:
    with Served(tmp_path, files=600).running() as served:
        crowd = Crowd(served)
        await crowd.gather(500)
        await asyncio.sleep(0.3)
        assert served.files < 400
        await crowd.leave()
        assert (await served.ask("POST", "/jobs", {"kind": "quick"}))[0] == 202
        assert "ulimit -n" in served.log.read_text()
        assert served.complaints == []


async def test_bodies_are_bounded_together_too(tmp_path: Path) -> None:
    with Served(tmp_path, max_body=500_000, max_unanswered=1_000_000).running() as served:
        job_id = await served.submit("quick")
        before = served.rss
        head = SUBMIT + b"Content-Length: 499999\r\n\r\n"
        pairs = [await served.connect() for _ in range(40)]
        for pair in pairs:
            pair[1].write(head + b"x" * 400_000)
        done, _ = await asyncio.wait([asyncio.create_task(answer_of(pair)) for pair in pairs], timeout=3)
        refused = [task for task in done if task.exception() is None]
        assert len(refused) >= 30
        assert {task.result()[0] for task in refused} == {503}
        assert served.rss - before < 12 * 2**20  # of 16 MB that were sent
        assert (await served.ask("GET", f"/jobs/{job_id}"))[0] == 200  # the small ones continue
        for pair in pairs:
            await leave(pair)
        assert (await served.ask("POST", "/jobs", {"kind": "quick"}))[0] == 202


@pytest.mark.parametrize(
    ("fields", "unit"),
    [(b"", b"\r\n" * 1000), (b"Content-Length: 1000000000\r\n", b"x" * 2000)],
)
async def test_bytes_that_are_not_kept_take_nothing_from_other_clients(
    tmp_path: Path, fields: bytes, unit: bytes
) -> None:
    """Empty lines, and a body that the application does not read, behind the head of a long poll."""
    limits = {"max_body": 500_000, "max_unanswered": 1_000_000}
    with Served(tmp_path, **limits).running() as served:
        job_id = await served.submit("gate", path=str(tmp_path / "gate"))
        pair = await served.connect()
        pair[1].write(poll(job_id)[:-2] + fields + b"\r\n")
        assert await served.until_long_polls(1)
        for _ in range(50):
            pair[1].write(unit * 100)
            await asyncio.sleep(0.01)
        body = b'{"kind": "quick", "labels": {}}' + b" " * 100_000
        answer = await served.say(
            SUBMIT + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        assert status_of(answer) == 202
        (tmp_path / "gate").touch()
        assert (await answer_of(pair))[0] == 200
        await leave(pair)
        assert served.complaints == []


# --- slow ones


@pytest.mark.parametrize(
    ("beginning", "status"),
    [
        (b"", 0),
        (b"\r\n\r\n", 0),
        (b"GET /healthz HTTP/1.1\r\nHost:", 408),
        (SUBMIT + b"Content-Length: 100\r\n\r\n{", 408),
        (SUBMIT + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{", 408),
    ],
)
async def test_what_is_not_finished_is_cut(served: Served, beginning: bytes, status: int) -> None:
    begin = time.monotonic()
    answer = await served.say(beginning, patience=10)
    assert status_of(answer) == status
    if status:
        assert problem(answer)["code"] == "request-timeout"
    assert TIMEOUT - 0.1 < time.monotonic() - begin < TIMEOUT + 8


UPLOAD = b"POST /uploads HTTP/1.1\r\nHost: localhost\r\nContent-Type: video/mp4\r\n"


async def test_an_upload_may_take_long_but_not_be_slow(served: Served) -> None:
    pair = await served.connect()
    pair[1].write(UPLOAD + b"Content-Length: 30000\r\n\r\n")
    begin = time.monotonic()
    for _ in range(30):  # ten times as fast as it must be, for twice as long as other requests may take
        pair[1].write(b"x" * 1000)
        await asyncio.sleep(0.1)
    assert time.monotonic() - begin > TIMEOUT * 1.5
    status, told = await answer_of(pair)
    assert (status, told["size"]) == (201, 30_000)
    await leave(pair)
    slow = await served.connect()
    slow[1].write(UPLOAD + b"Content-Length: 30000\r\n\r\n")
    begin = time.monotonic()
    answering = asyncio.ensure_future(answer_of(slow))
    while not answering.done() and time.monotonic() - begin < 15:
        slow[1].write(b"x" * 10)
        await asyncio.sleep(0.1)
    assert TIMEOUT - 0.1 < time.monotonic() - begin < TIMEOUT + 8
    assert (await answering)[0] == 408
    await leave(slow)


async def test_an_upload_is_not_held_in_memory(tmp_path: Path) -> None:
    with Served(tmp_path, max_unanswered=1_000_000).running() as served:
        before = served.rss
        pair = await served.connect()
        pair[1].write(UPLOAD + b"Content-Length: 60000000\r\n\r\n")
        most = before
        for _ in range(60):
            pair[1].write(bytes(1_000_000))
            await pair[1].drain()
            most = max(most, served.rss)
        status, told = await answer_of(pair)
        assert (status, told["size"]) == (201, 60_000_000)
        assert most - before < 20 * 2**20
        await leave(pair)


async def test_a_refused_upload_is_answered_before_it_was_sent(served: Served) -> None:
    """The client can read the error although it continues to send."""
    head = b"PATCH /files/nobody HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n"
    head += b"Content-Type: application/offset+octet-stream\r\nContent-Length: 100000000\r\n\r\n"
    pair = await served.connect()
    pair[1].write(head + bytes(500_000))
    status, told = await answer_of(pair)
    assert (status, told["code"]) == (404, "not-found")
    await leave(pair)


async def test_empty_lines_do_not_keep_a_connection(served: Served) -> None:
    pair = await served.connect()
    pair[1].write(HEALTH)
    assert (await answer_of(pair))[0] == 200
    begin = time.monotonic()
    while not pair[0].at_eof() and time.monotonic() - begin < 10:
        pair[1].write(b"\r\n")
        await asyncio.sleep(0.1)
    assert time.monotonic() - begin < TIMEOUT + 8
    await leave(pair)


async def test_a_caller_that_does_not_take_its_answer_is_cut(served: Served) -> None:
    job_id = await served.submit("large", size=4_000_000)
    assert b'"DONE"' in (await served.ask("GET", f"/jobs/{job_id}", headers="Prefer: wait=10\r\n"))[1]
    files = served.files
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", served.port))
        sock.sendall(f"GET /jobs/{job_id}/result HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 10)
        await asyncio.sleep(0.3)
        assert served.files > files
        end = time.monotonic() + TIMEOUT + 8
        while served.files > files and time.monotonic() < end:
            await asyncio.sleep(0.1)
        assert served.files <= files


async def test_a_long_poll_outlasts_the_time_for_requests(served: Served, tmp_path: Path) -> None:
    job_id = await served.submit("gate", path=str(tmp_path / "gate"))
    pair = await served.connect()
    pair[1].write(poll(job_id))
    await asyncio.sleep(TIMEOUT + 1.5)
    (tmp_path / "gate").touch()
    status, job = await answer_of(pair)
    assert (status, job["status"]) == (200, "DONE")
    await leave(pair)


async def test_a_request_that_is_not_finished_does_not_take_the_answer_before_it(
    served: Served, tmp_path: Path
) -> None:
    job_id = await served.submit("gate", path=str(tmp_path / "gate"))
    asking = asyncio.create_task(served.say(poll(job_id) + b"G"))
    await asyncio.sleep(TIMEOUT + 2.5)  # two checks of the deadline
    (tmp_path / "gate").touch()
    answer = await asking
    assert status_of(answer) == 200 and b'"DONE"' in answer and b"connection: close" in answer


# --- clients that disconnect


@pytest.mark.parametrize("behind", [b"", HEALTH, HEALTH * 5, b"\x00 nonsense"])
async def test_a_watch_goes_with_its_caller(served: Served, tmp_path: Path, behind: bytes) -> None:
    job_id = await served.submit("gate", path=str(tmp_path / "gate"))
    pairs = [await served.connect() for _ in range(10)]
    for pair in pairs:
        pair[1].write(poll(job_id) + behind)
    assert await served.until_long_polls(10)
    for pair in pairs:
        await leave(pair)
    assert await served.until_long_polls(0, patience=5)
    (tmp_path / "gate").touch()


# --- nonsense


@pytest.mark.parametrize("name", NONSENSE)
async def test_nonsense_is_refused(served: Served, name: str) -> None:
    assert judge_nonsense(name, await served.say(NONSENSE[name], patience=TIMEOUT + 5)) is None


@pytest.mark.parametrize("name", ["many headers", "a long header", "an endless header", "a long path"])
async def test_a_head_that_is_too_large(served: Served, name: str) -> None:
    answer = await served.say(NONSENSE[name])
    assert (status_of(answer), problem(answer)["code"]) == (431, "head-too-large")


async def test_a_head_that_is_too_large_behind_a_request(served: Served) -> None:
    large = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 40_000 + b"\r\n\r\n"
    answer = await served.say(HEALTH + large + LAST)
    assert answer.count(b"HTTP/1.1 200 ") == answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    "request_",
    [
        SUBMIT + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/0.9\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_what_is_not_supported_gets_a_problem(served: Served, request_: bytes) -> None:
    answer = await served.say(request_)
    assert (status_of(answer), problem(answer)["code"]) == (400, "malformed-request")
    assert "not supported" in str(problem(answer)["detail"])


@pytest.mark.parametrize("name", ["noise", "length and chunks", "chunks and length", "a bad chunk"])
async def test_what_is_no_request_gets_a_problem(served: Served, name: str) -> None:
    answer = await served.say(NONSENSE[name])
    assert (status_of(answer), problem(answer)["code"]) == (400, "malformed-request")


async def test_nonsense_behind_a_request_does_not_take_its_answer(
    served: Served, tmp_path: Path
) -> None:
    job_id = await served.submit("gate", path=str(tmp_path / "gate"))
    asking = asyncio.create_task(served.say(poll(job_id) + b"\x00\xff nonsense"))
    assert await served.until_long_polls(1)
    (tmp_path / "gate").touch()
    answer = await asking
    assert answer.count(b"HTTP/1.1 ") == 1
    assert status_of(answer) == 200 and b'"DONE"' in answer and b"connection: close" in answer


async def test_a_bad_body_behind_a_request_does_not_take_its_answer(served: Served) -> None:
    chunked = SUBMIT + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n"
    answer = await served.say(HEALTH * 2 + chunked)
    assert answer.count(b"HTTP/1.1 200 ") == answer.count(b"HTTP/1.1 ") == 2
    assert answer.count(b"connection: close") == 1


async def test_requests_ahead_are_answered_in_order_and_bounded(served: Served) -> None:
    ids = [await served.submit("quick") for _ in range(3)]
    asked = [f"GET /jobs/{i} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for i in ids]
    answer = await served.say(b"".join(asked) + LAST)
    places = [answer.index(f'"jobId":"{i}"'.encode()) for i in ids]
    assert places == sorted(places) and answer.count(b"HTTP/1.1 200") == 4

    before = served.rss
    flood = await served.say(HEALTH * 20_000)
    assert 1 <= flood.count(b"HTTP/1.1 200") < 100
    assert served.rss - before < 15 * 2**20


# --- bodies


async def test_a_body_that_is_too_large(served: Served) -> None:
    for body in (
        SUBMIT + b"Content-Length: 300001\r\n\r\n",
        SUBMIT + b"Content-Length: 300001\r\n\r\n" + b"x" * 300_001,
        SUBMIT + b"Transfer-Encoding: chunked\r\n\r\n" + (b"2710\r\n" + b"x" * 10_000 + b"\r\n") * 40,
    ):
        pair = await served.connect()
        pair[1].write(body)
        status, document = await answer_of(pair)
        assert (status, document["code"]) == (413, "payload-too-large")
        await leave(pair)


async def test_more_than_was_announced_is_another_request(served: Served) -> None:
    body = b'{"kind": "quick"}'
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    answer = await served.say(SUBMIT + length + body + b'{"kind": "quick"}\r\n\r\n')
    assert status_of(answer) == 202
    assert answer.count(b"HTTP/1.1 202") == 1 and answer.count(b"HTTP/1.1 ") <= 2


async def test_a_trailer_is_no_header(served: Served) -> None:
    body = b'11\r\n{"kind": "quick"}\r\n0\r\n'
    chunked = SUBMIT + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + body
    assert status_of(await served.say(chunked + b"Prefer: wait=30\r\nX-A: a\r\n" * 200 + b"\r\n")) == 202


@pytest.mark.parametrize("beginning", [b"1\r\na\r\n0\r\nX: ", b"1;x="])
@pytest.mark.parametrize("head", [SUBMIT, UPLOAD])
async def test_a_trailer_or_a_chunk_extension_that_is_too_large(
    served: Served, head: bytes, beginning: bytes
) -> None:
    before = served.rss
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + beginning
    answer = await served.say(chunked + b"a" * 8_000_000)
    assert (status_of(answer), problem(answer)["code"]) == (431, "head-too-large")
    assert served.rss - before < 10 * 2**20


# --- unusual, but right


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"GET http://elsewhere/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200),
        (b"GET /jobs/%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET /jobs/%ff%fe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"\r\n\r\n" + LAST, 200),
        (b"GET /healthz HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 200),
        (b"CONNECT example.org:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://elsewhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400),
    ],
)
async def test_unusual_requests(served: Served, request_: bytes, status: int) -> None:
    assert status_of(await served.say(request_)) == status


async def test_a_body_that_waits_to_be_asked_for(served: Served) -> None:
    reader, writer = await served.connect()
    body = b'{"kind": "quick"}'
    head = b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    writer.write(SUBMIT + head)
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert status_of(await exchange((reader, writer), body)) == 202


async def test_continue_comes_after_the_answer_before_it(served: Served) -> None:
    """Both heads are in one packet, and the first request is answered without waiting for anything."""
    reader, writer = await served.connect()
    body = b'{"kind": "quick"}'
    head = b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    writer.write(HEALTH + SUBMIT + head)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    assert await reader.readuntil(b"}") == b'{"status":"ok"}'
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert status_of(await exchange((reader, writer), body)) == 202


# --- another protocol is offered

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
OFFERED = b'{"kind": "quick"}'
LENGTH = SUBMIT + OFFER + b"Content-Length: %d\r\n\r\n" % len(OFFERED)
CHUNKED = SUBMIT + OFFER + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"11\r\n" + OFFERED + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize("request_", [LENGTH + OFFERED, CHUNKED + CHUNKS])
@pytest.mark.parametrize("packet", [1000, 300, 7, 1])
async def test_a_body_beside_an_offer_of_another_protocol_is_kept(
    served: Served, request_: bytes, packet: int
) -> None:
    """However it is split into packets; and the connection continues as if there had been no offer."""
    pair = await served.connect()
    for i in range(0, len(request_), packet):
        pair[1].write(request_[i : i + packet])
        await asyncio.sleep(0)
    status, job = await answer_of(pair)
    assert (status, job["kind"]) == (202, "quick")
    assert status_of(await exchange(pair, LAST)) == 200


async def test_offers_in_a_row(served: Served) -> None:
    answer = await served.say((LENGTH + OFFERED) * 3 + (CHUNKED + CHUNKS) * 3 + LAST)
    assert answer.count(b"HTTP/1.1 202 ") == 6 and answer.count(b"HTTP/1.1 200 ") == 1


@pytest.mark.parametrize(
    "field",
    ["Proxy-Connection: keep-alive, upgrade", "Proxy-Connection: Upgrade\r\nConnection: upgrade"],
)
async def test_an_offer_by_another_name_is_ignored_too(served: Served, field: str) -> None:
    """The parser knows this one as well: reading the request again must come to an end."""
    head = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\n{field}\r\nUpgrade: h2c\r\n\r\n"
    answer = await served.say(head.encode() + LAST)
    assert answer.count(b"HTTP/1.1 200 ") == 2


async def test_an_offer_changes_no_other_field(served: Served) -> None:
    head = SUBMIT + OFFER + b"Idempotency-Key: upgrade\r\nContent-Length: %d\r\n\r\n" % len(OFFERED)
    answer = await served.say((head + OFFERED) * 2 + LAST)
    first, second = (part.split(b'"', 1)[0] for part in answer.split(b'"jobId":"')[1:3])
    assert first == second
