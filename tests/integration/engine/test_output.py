"""Output streams of running handlers: limits, a lost child, and a store that is unavailable."""

from __future__ import annotations

import asyncio

from bide.core.jobs.record import Status
from bide.testing.engine.harness import EngineHarness
from tests.integration.engine.conftest import Open


async def _output(harness: EngineHarness, job_id: str) -> list[tuple[int, int]]:
    """The generation and the index of each chunk."""
    events = [e.job for e in await harness.events(job_id) if e.type == "output"]
    return [(e["generation"], e["index"]) for e in events]


async def test_output_beyond_the_limit_fails_the_job(opened: Open) -> None:
    harness = await opened(output_limit=1_000_000)
    job = await harness.run("emits_forever")
    assert job.error is not None
    assert (job.error.code, job.error.retryable) == ("OUTPUT_LIMIT", False)
    assert "output_limit" in job.error.message
    assert await _output(harness, job.id) == [(1, index) for index in range(4)]  # of 200,002 bytes


async def test_the_limit_counts_the_output_of_earlier_attempts(opened: Open) -> None:
    harness = await opened(output_limit=500_000)
    job = await harness.run("emits_twice_and_fails")
    assert job.error is not None
    assert (job.attempt, job.error.code) == (2, "OUTPUT_LIMIT")
    assert await _output(harness, job.id) == [(1, 0), (1, 1)]


async def test_the_output_of_all_jobs_costs_few_commits(opened: Open) -> None:
    harness = await opened(workers=2)
    jobs = await asyncio.gather(*(harness.run("emits_often") for _ in range(2)))
    events = [e for job in jobs for e in await harness.events(job.id) if e.type == "output"]
    assert len(events) == 200
    commits = sorted({event.at for event in events})  # a commit has one time
    assert len(commits) <= 20 * (commits[-1] - commits[0]) + 2 + len(jobs)  # an end is a commit, too


async def test_a_chunk_that_is_too_large_is_rejected(opened: Open) -> None:
    harness = await opened()
    job = await harness.run("emits_a_large_chunk")
    assert job.error is not None
    assert job.error.code == "OUTPUT_TOO_LARGE"
    assert "ctx.output" in job.error.message


async def test_output_of_a_child_that_dies_is_kept_and_the_next_one_begins_again(opened: Open) -> None:
    harness = await opened()
    job = await harness.run("emits_and_dies_once")
    assert job.status is Status.DONE
    output = await _output(harness, job.id)
    assert [index for generation, index in output if generation == 2] == list(range(50))
    first = [index for generation, index in output if generation == 1]
    assert first == list(range(len(first)))  # as far as the child could send it
