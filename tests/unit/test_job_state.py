"""A job at any API, as a bide service would describe it: unknown fields are null."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bide.client.apis import NOT_FOUND, Found, Ref, Seen, State
from bide.client.apis.bide import bide_api
from bide.client.job_state import JobState
from bide.core.errors import ErrorInfo, ServiceError
from bide.core.jobs.record import Status
from bide.core.wire.http import read_job
from tests.unit.fake_service import job as document


def tracked(state: State = "live", submitted_at: float | None = None, **said: Any) -> JobState:
    job = JobState(Ref("gen-1"), "lipsync", submitted_at)
    job.seen = Seen(state=state, **said)
    return job


def test_before_the_first_answer_nothing_is_known() -> None:
    job = JobState(Ref("gen-1"))
    assert job.latest is None and job.status is None and not job.over
    assert repr(job) == "<gen-1 not asked yet>"


@pytest.mark.parametrize(
    "state,status,over",
    [
        ("live", Status.PROCESSING, False),
        ("unknown", Status.PROCESSING, False),
        ("done", Status.DONE, True),
        ("partial", Status.PARTIAL_SUCCESS, True),
        ("failed", Status.ERROR, True),
        ("cancelled", Status.CANCELLED, True),
    ],
)
def test_states_become_statuses(state: State, status: Status, over: bool) -> None:
    job = tracked(state)
    record = job.latest
    assert record is not None
    assert (record.status, job.status, job.over) == (status, status, over)


def test_a_refusal_ends_it_whatever_was_seen() -> None:
    job = tracked()
    job.error = ServiceError(403, {"code": "http-403"})
    assert job.over
    assert job.status is Status.PROCESSING


def test_what_was_not_said_is_null_and_what_was_is_there() -> None:
    bare = tracked().latest
    assert bare is not None
    assert (bare.progress, bare.started_at, bare.finished_at, bare.result, bare.error) == (None,) * 5
    assert (bare.files, bare.created_at, bare.job_id, bare.kind) == ((), "", "gen-1", "lipsync")
    error = ErrorInfo("NO_FACE", "no face found")
    full = tracked(
        "partial",
        submitted_at=1_900_000_000.0,
        word="SOME",
        progress=0.5,
        counts=(3.0, 6.0),
        started_at=1_900_000_060.0,
        finished_at=1_900_000_120.0,
        error=error,
        result_url="https://films.example/1",
        files=(Found("a.mp4", "https://films.example/a"),),
    ).latest
    assert full is not None and full.progress is not None
    progress = full.progress
    assert (progress.percent, progress.message, progress.done, progress.total) == (
        50.0,
        "SOME",
        3.0,
        6.0,
    )
    assert full.started_at is not None and full.started_at.startswith("2030-03-17T17:47:40")
    assert full.created_at == full.started_at
    assert full.finished_at is not None and full.error == error
    assert full.result == "https://films.example/1"
    assert [(file.name, file.url) for file in full.files] == [("a.mp4", "https://films.example/a")]


def test_a_job_of_ours_began_when_we_sent_it() -> None:
    record = tracked(submitted_at=1_900_000_000.0).latest
    assert record is not None and record.created_at.startswith("2030-03-17T17:46:40")


def test_of_a_bide_service_the_whole_record_is_kept() -> None:
    whole = read_job(msgspec.json.encode(document(1, "RETRYING", attempt=3)))
    job = JobState(Ref(whole.job_id))
    job.seen = bide_api("http://127.0.0.1:1").seen(whole)
    assert job.latest is whole
    assert job.status is Status.RETRYING and not job.over


def test_a_job_that_is_gone_after_a_cancel_was_cancelled() -> None:
    """Some APIs delete what they cancel. Without a cancel it is an error, and what ended otherwise stays as it ended."""
    gone = Seen(state="failed", error=ErrorInfo(NOT_FOUND, "no such job"))
    for cancelling, seen, status in (
        (False, gone, Status.ERROR),
        (True, gone, Status.CANCELLED),
        (True, Seen(state="done"), Status.DONE),
        (True, Seen(state="failed", error=ErrorInfo("OTHER", "x")), Status.ERROR),
    ):
        job = JobState(Ref("a"))
        job.cancelling = cancelling
        job.take(seen)
        assert job.status is status
