"""A file as it is read, and its digest."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.client.uploads.source import Source
from bide.core.wire.digest import read_digest, render_digest
from tests.unit.uploads.fake import digest


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
        first = source.pending_file()
    path.write_bytes(b"two")
    os.utime(path, (1, 1))
    with Source(path) as source:
        assert source.pending_file() != first


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
