"""Addresses that the service has signed itself: right as they were made, and wrong after any change."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.errors import BadSignature, Problem, SignatureExpired
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
