"""Downloads to a file, over connections that break."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from bide.client.apis import Call
from bide.client.apis.pagination import NextPage
from bide.client.http.download import Damaged, FollowingPages, Open, download
from bide.client.http.retrying import Retrying, RetryPolicy
from bide.client.http.transport import Download, Transport
from bide.client.timing import Timing
from tests.unit.fake_service import FakeService, Reply

DATA = bytes(range(256)) * 1000
HALF = len(DATA) // 2


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as running:
        yield running


@pytest_asyncio.fixture
async def opened() -> AsyncIterator[Open]:
    transport = Transport()

    async def open(call: Call) -> Download:
        answer = await transport.exchange(call.method, call.url, call.headers, stream=True)
        answer.raise_for_status()
        assert isinstance(answer, Download)
        return answer

    yield open
    await transport.close()


def retrying() -> Retrying:
    return Retrying(RetryPolicy(base=0.001, tries=5), Timing(), random.Random(1))


def breaks(data: bytes, **headers: str) -> Reply:
    """Announces all of DATA and closes the connection after `data`."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(DATA)), **headers})
        await response.prepare(request)
        await response.write(data)
        assert request.transport is not None
        request.transport.close()
        return response

    return reply


def sends(data: bytes, **headers: str) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        return web.Response(body=data, headers=headers)

    return reply


async def rest(request: web.Request) -> web.StreamResponse:
    start = int(request.headers["Range"].removeprefix("bytes=").removesuffix("-"))
    part = {"Content-Range": f"bytes {start}-{len(DATA) - 1}/{len(DATA)}"}
    return web.Response(status=206, body=DATA[start:], headers=part)


async def test_a_broken_stream_is_resumed_by_its_etag(
    service: FakeService, opened: Open, tmp_path: Path
) -> None:
    service.on("GET", "/x", breaks(DATA[:HALF], ETag='"1"'), rest)
    done = await download(opened, Call("GET", f"{service.url}/x"), tmp_path / "x", retrying())
    assert done.path.read_bytes() == DATA
    assert done.sha256 == hashlib.sha256(DATA).hexdigest()
    assert service.header("If-Range") == [None, '"1"']
    assert service.header("Range") == [None, f"bytes={HALF}-"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("headers", [{}, {"ETag": 'W/"1"'}])
async def test_without_a_strong_etag_it_starts_again(
    service: FakeService, opened: Open, tmp_path: Path, headers: dict[str, str]
) -> None:
    service.on("GET", "/x", breaks(b"the old file", **headers), sends(DATA, **headers))
    done = await download(opened, Call("GET", f"{service.url}/x"), tmp_path / "x", retrying())
    assert (done.path.read_bytes(), done.size) == (DATA, len(DATA))
    assert service.header("Range") == [None, None]


async def test_a_file_that_changed_meanwhile_starts_again(
    service: FakeService, opened: Open, tmp_path: Path
) -> None:
    service.on("GET", "/x", breaks(b"the old file", ETag='"1"'), sends(DATA, ETag='"2"'))
    done = await download(opened, Call("GET", f"{service.url}/x"), tmp_path / "x", retrying())
    assert done.path.read_bytes() == DATA
    assert service.header("If-Range") == [None, '"1"']


@pytest.mark.parametrize("expected", [{"size": 3}, {"sha256": "0" * 64}])
async def test_what_does_not_match_never_appears(
    service: FakeService, opened: Open, tmp_path: Path, expected: dict[str, object]
) -> None:
    service.on("GET", "/x", sends(b"four"))
    call = Call("GET", f"{service.url}/x")
    with pytest.raises(Damaged, match="expected"):
        await download(opened, call, tmp_path / "x", retrying(), **expected)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


async def test_pages_become_one_file_and_a_broken_page_is_repeated_alone(
    service: FakeService, opened: Open, tmp_path: Path
) -> None:
    service.on("GET", "/1", sends(b"head\na\nb\n", Link='</2>; rel="next"'))
    service.on("GET", "/2", breaks(b"head\nc"), sends(b"head\nc\nd\n"))
    rule = NextPage(link=True, value=None, query=None, where="", may_be_absent=False)
    pages = FollowingPages(rule, lambda url: Call("GET", url), skip=1)
    call = Call("GET", f"{service.url}/1")
    done = await download(opened, call, tmp_path / "x", retrying(), pages=pages)
    assert done.path.read_bytes() == b"head\na\nb\nc\nd\n"
    assert done.sha256 == hashlib.sha256(b"head\na\nb\nc\nd\n").hexdigest()
    assert [request.path for request in service.asked] == ["/1", "/2", "/2"]
