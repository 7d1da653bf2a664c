"""The job cache returns a job only while it matches the store."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from bide.core.jobs.record import Job
from bide.server.store import job_cache
from bide.server.store.job_cache import JobCache


def _job(job_id: str) -> Job:
    return Job(id=job_id, kind="k", queue="q", created_at=0.0, updated_at=0.0)


def test_a_job_is_kept_until_it_changes() -> None:
    kept = JobCache()
    job = _job("a")
    kept.put(job, kept.generation)
    assert kept.get("a") is job
    kept.invalidate(["b"])
    assert kept.get("a") is job
    kept.invalidate(["a"])
    assert kept.get("a") is None


def test_what_was_read_before_a_commit_is_not_kept_after_it() -> None:
    kept = JobCache()
    generation = kept.generation  # read begins
    kept.invalidate(["a"])  # and is overtaken
    kept.put(_job("a"), generation)
    assert kept.get("a") is None


def test_it_holds_a_bounded_number_of_small_jobs() -> None:
    kept = JobCache()
    for n in range(job_cache.MAX_JOBS + 10):
        kept.put(_job(str(n)), kept.generation)
    assert kept.get("9") is None and kept.get("10") is not None
    large = replace(_job("large"), result=msgspec.Raw(b"1" * (job_cache.MAX_RESULT + 1)))
    kept.put(large, kept.generation)
    assert kept.get("large") is None


def test_what_was_read_while_others_changed_is_kept() -> None:
    kept = JobCache()
    generation = kept.generation
    kept.invalidate(["b"])
    kept.put(_job("a"), generation)
    assert kept.get("a") is not None


def test_a_read_that_is_older_than_what_is_known_of_changes_is_not_kept() -> None:
    kept = JobCache()
    generation = kept.generation
    kept.invalidate(["a"])
    for n in range(job_cache.MAX_JOBS):
        kept.invalidate([str(n)])
    kept.put(_job("a"), generation)
    assert kept.get("a") is None
    generation = kept.generation
    kept.clear()
    kept.put(_job("b"), generation)
    assert kept.get("b") is None
    kept.put(_job("b"), kept.generation)
    assert kept.get("b") is not None
