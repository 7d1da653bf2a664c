"""What polls have read is kept only as long as it is what is stored."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from bide.core.record import Job
from bide.server.store import job_cache
from bide.server.store.job_cache import JobCache


def _job(job_id: str) -> Job:
    return Job(id=job_id, kind="k", queue="q", created_at=0.0, updated_at=0.0)


def test_a_job_is_kept_until_it_changes() -> None:
    kept = JobCache()
    job = _job("a")
    kept.keep(job, kept.turn)
    assert kept.get("a") is job
    kept.changed(["b"])
    assert kept.get("a") is job
    kept.changed(["a"])
    assert kept.get("a") is None


def test_what_was_read_before_a_commit_is_not_kept_after_it() -> None:
    kept = JobCache()
    turn = kept.turn  # read begins
    kept.changed(["a"])  # and is overtaken
    kept.keep(_job("a"), turn)
    assert kept.get("a") is None


def test_it_holds_a_bounded_number_of_small_jobs() -> None:
    kept = JobCache()
    for n in range(job_cache.MOST + 10):
        kept.keep(_job(str(n)), kept.turn)
    assert kept.get("9") is None and kept.get("10") is not None
    large = replace(_job("large"), result=msgspec.Raw(b"1" * (job_cache.LARGEST_RESULT + 1)))
    kept.keep(large, kept.turn)
    assert kept.get("large") is None


def test_what_was_read_while_others_changed_is_kept() -> None:
    kept = JobCache()
    turn = kept.turn
    kept.changed(["b"])
    kept.keep(_job("a"), turn)
    assert kept.get("a") is not None


def test_a_read_that_is_older_than_what_is_known_of_changes_is_not_kept() -> None:
    kept = JobCache()
    turn = kept.turn
    kept.changed(["a"])
    for n in range(job_cache.MOST):
        kept.changed([str(n)])
    kept.keep(_job("a"), turn)
    assert kept.get("a") is None
    turn = kept.turn
    kept.clear()
    kept.keep(_job("b"), turn)
    assert kept.get("b") is None
    kept.keep(_job("b"), kept.turn)
    assert kept.get("b") is not None
