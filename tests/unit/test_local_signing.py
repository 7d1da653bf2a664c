"""Addresses that the service has signed itself: right as they were made, and wrong after any change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.errors import BadSignature, Problem, SignatureExpired, Unavailable
from bide.server.blobs import incoming_key, upload_key
from bide.server.blobs.files import FileBlobs
from bide.server.blobs.local_signing import LocalSigning
from bide.testing import ManualClock

UPLOAD = "01J" + "A" * 23
CLOCK = ManualClock()


@pytest.fixture(scope="module")
def signing(tmp_path_factory: pytest.TempPathFactory) -> LocalSigning:
    return LocalSigning(FileBlobs(tmp_path_factory.mktemp("blobs")), CLOCK)


def verify(signing: LocalSigning, url: str, size: int | None, content_type: str) -> int:
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    return signing.verify("PUT", parts.path, asked, size, content_type)


async def test_as_signed(signing: LocalSigning) -> None:
    signed = await signing.sign_put(incoming_key(UPLOAD), "video/mp4; a=b", 7, 60)
    assert verify(signing, signed.url, 7, "video/mp4; a=b") == 7
    part = await signing.sign_part(upload_key(UPLOAD), "m", 3, 5, 60)
    assert verify(signing, part.url, 5, "whatever/it-is") == 5


async def test_nothing_of_it_can_be_changed(signing: LocalSigning) -> None:
    signed = await signing.sign_put(incoming_key(UPLOAD), "video/mp4", 7, 60)

    @given(st.integers(0, len(signed.url) - 1), st.sampled_from("0123456789abcdefXYZ&=/?"))
    def change(at: int, character: str) -> None:
        url = signed.url[:at] + character + signed.url[at + 1 :]
        if url != signed.url:
            with pytest.raises(Problem):
                verify(signing, url, 7, "video/mp4")

    change()


async def test_for_another_request(signing: LocalSigning) -> None:
    signed = await signing.sign_put(incoming_key(UPLOAD), "video/mp4", 7, 60)
    for size, content_type in ((8, "video/mp4"), (None, "video/mp4"), (7, "text/html"), (7, "")):
        with pytest.raises(BadSignature):
            verify(signing, signed.url, size, content_type)
    asked = dict(parse_qsl(urlsplit(signed.url).query))
    with pytest.raises(BadSignature):
        signing.verify("POST", urlsplit(signed.url).path, asked, 7, "video/mp4")


async def test_until_its_instant(signing: LocalSigning) -> None:
    signed = await signing.sign_put(incoming_key(UPLOAD), "video/mp4", 7, 60)
    CLOCK.advance(59)
    assert verify(signing, signed.url, 7, "video/mp4") == 7
    CLOCK.advance(2)
    with pytest.raises(SignatureExpired):
        verify(signing, signed.url, 7, "video/mp4")


async def test_another_secret_is_another_signature(signing: LocalSigning, tmp_path: Path) -> None:
    stranger = LocalSigning(FileBlobs(tmp_path), CLOCK)
    signed = await stranger.sign_put(incoming_key(UPLOAD), "video/mp4", 7, 60)
    with pytest.raises(BadSignature):
        verify(signing, signed.url, 7, "video/mp4")


@pytest.mark.parametrize("key", [incoming_key, None])
async def test_one_replica_at_a_time_receives_a_file(
    tmp_path: Path, key: Callable[[str], str] | None
) -> None:
    one, two = (LocalSigning(FileBlobs(tmp_path), CLOCK) for _ in range(2))
    multipart = await one.begin(upload_key(UPLOAD), "text/plain")

    def receive(replica: LocalSigning, body: AsyncIterator[bytes]) -> Awaitable[str]:
        if key is None:
            return replica.receive_part(upload_key(UPLOAD), multipart, 1, body, 4)
        return replica.receive(key(UPLOAD), body, 4)

    sent: asyncio.Queue[bytes] = asyncio.Queue()
    started = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        started.set()
        for _ in range(2):
            yield await sent.get()

    async def fast() -> AsyncIterator[bytes]:
        yield b"fast"

    receiving = asyncio.ensure_future(receive(one, slow()))
    await started.wait()
    with pytest.raises(Unavailable, match="another replica"):
        await receive(two, fast())
    await one.receive_part(upload_key(UPLOAD), multipart, 2, fast(), 4)  # other parts are independent
    for piece in (b"sl", b"ow"):
        sent.put_nowait(piece)
    await receiving
    goal = tmp_path / (f"{UPLOAD}/parts-{multipart}/1" if key is None else incoming_key(UPLOAD))
    (found,) = [path for path in tmp_path.rglob(goal.name) if path.is_file()]
    assert found.read_bytes() == b"slow"
    await receive(two, fast())
    assert found.read_bytes() == b"fast"
    assert not [path for path in tmp_path.rglob(".*.*") if path.suffix in (".lock", ".part")]
