"""What the tests of uploads share: a service, and what counts as large."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.client.uploads import tus, upload_session
from tests.unit.uploads.fake import SIZE, FakeUploads


@pytest.fixture
def service() -> Iterator[FakeUploads]:
    with FakeUploads() as running:
        yield running


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a few kilobytes is a large one."""
    monkeypatch.setattr(upload_session, "DIRECT", 50_000)
    monkeypatch.setattr(tus, "PIECE", 100_000)
    monkeypatch.setattr(tus, "TAIL", 1_000)
    monkeypatch.setattr(tus, "BLOCK", 4_096)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "film.mp4"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    return path
