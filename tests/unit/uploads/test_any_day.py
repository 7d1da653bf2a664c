"""Whatever happens on the way, in whatever order: one job, of the very file, and no byte twice that had arrived."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bide.client.client import AsyncClient
from bide.core.errors import BideError
from tests.unit.fake_service import job_id, problem, reset
from tests.unit.uploads.fake import FakeUploads, Slept, digest

SIZE = 120_000
Event = Callable[[FakeUploads], object]


def cut(size: int) -> Event:
    return lambda service: service.cuts.append(size)


def die(size: int) -> Event:
    """Fails in the middle of a piece, permanently: another process must resume."""

    def happen(service: FakeUploads) -> None:
        service.cuts.append(size)
        service.before("HEAD", "/files", problem(401, "http-401"))

    return happen


def lose_an_answer(service: FakeUploads) -> None:
    service.losing += 1


def answered(method: str, status: int) -> Event:
    reply = reset if not status else problem(status, f"http-{status}")
    return lambda service: service.before(method, "/jobs" if method == "GET" else "/files", reply)


EVENTS = st.one_of(
    st.integers(1, SIZE).map(cut),
    st.integers(1, SIZE).map(die),
    st.just(lose_an_answer),
    st.builds(
        answered,
        st.sampled_from(["POST", "HEAD", "PATCH", "GET"]),
        st.sampled_from([0, 429, 500, 503]),
    ),
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(days=st.lists(st.lists(EVENTS, max_size=5), min_size=1, max_size=3))
async def test_one_job_comes_of_it(service: FakeUploads, days: list[list[Event]]) -> None:
    service.uploads.clear()
    service.received = 0
    with tempfile.TemporaryDirectory() as folder:
        film = Path(folder) / "film.mp4"
        film.write_bytes(bytes(range(256)) * (SIZE // 256) + b"end")
        for events in [*days, []]:
            service.cuts, service.losing, service._before = [], 0, []
            for event in events:
                event(service)
            async with AsyncClient(
                service.url, ledger=Path(folder) / "ledger", pace=Slept().pace
            ) as client:
                with suppress(BideError):
                    job = await client.submit("transcode", {"a": 1}, file=film)
        uploads = list(service.uploads.values())
        keys = {upload.metadata["idempotencyKey"] for upload in uploads}
        (done,) = [upload for upload in uploads if len(upload.data) == upload.size]
        assert job.id == job_id(1)
        assert bytes(done.data) == film.read_bytes()
        assert done.digest == digest(film.read_bytes())
        assert len(keys) == 1
        assert [upload for upload in uploads if upload.data] == [done], "no upload was begun in vain"
        assert service.received == len(done.data)
