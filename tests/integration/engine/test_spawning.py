"""Children that cannot be stored: their parent does not wait for them, and does not end as if they were."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from bide.core.jobs.record import Job, Status
from bide.server.intake import read_submission
from bide.server.runner import runner
from bide.server.store import NewJob, StoreUnavailable
from bide.server.worker.protocol import AttemptEnd, Spawn
from bide.testing.engine import EngineHarness, result
from tests.integration.engine.conftest import Open, runner_of

Admit = Callable[[Spawn, Job], Awaitable[NewJob]]


def failing(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch, error: Exception, times: int
) -> list[Spawn]:
    """The next admissions raise; the spawns that were asked for."""
    prepare = runner_of(harness).prepare_spawn
    asked: list[Spawn] = []

    async def fail(message: Spawn, parent: Job) -> NewJob:
        asked.append(message)
        if len(asked) <= times:
            raise error
        return await prepare(message, parent)

    monkeypatch.setattr(runner_of(harness), "prepare_spawn", fail)
    monkeypatch.setattr(runner, "RETRY_AFTER", 0.01)
    return asked


@pytest.mark.parametrize("gather", [True, False])
async def test_a_spawn_is_repeated_while_the_store_is_away(
    opened: Open, monkeypatch: pytest.MonkeyPatch, gather: bool
) -> None:
    harness = await opened()
    asked = failing(harness, monkeypatch, StoreUnavailable("the database is away"), 3)
    job = await harness.run("spawns", {"gather": gather})
    assert result(job) == (10 if gather else None)
    assert (job.attempt, len(asked)) == (1, 4)
    (child,) = job.children
    assert result(await harness.ended(child.job_id)) == 10


@pytest.mark.parametrize("gather", [True, False])
async def test_a_spawn_that_fails_ends_the_attempt_which_is_tried_again(
    opened: Open, monkeypatch: pytest.MonkeyPatch, gather: bool
) -> None:
    harness = await opened()
    asked = failing(harness, monkeypatch, RuntimeError("no connection left"), 1)
    job = await harness.run("spawns", {"gather": gather})
    assert result(job) == (10 if gather else None)
    assert (job.attempt, len(asked), len(job.children)) == (2, 2, 1)
    assert "RETRYING" in await harness.statuses(job.id)


@pytest.mark.parametrize("gather", [True, False])
async def test_a_spawn_that_always_fails_ends_the_job_with_the_reason(
    opened: Open, monkeypatch: pytest.MonkeyPatch, gather: bool
) -> None:
    harness = await opened()
    failing(harness, monkeypatch, RuntimeError("no connection left"), 99)
    job = await harness.run("spawns", {"gather": gather})
    assert job.status is Status.ERROR and job.error is not None
    assert (job.error.code, job.error.retryable) == ("SPAWN_FAILED", True)
    assert "child could not be stored: RuntimeError: no connection left" in job.error.message
    assert job.children == ()


async def test_a_shutdown_hands_back_a_job_whose_child_could_not_be_stored(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await opened()
    asked = failing(harness, monkeypatch, StoreUnavailable("the database is away"), 99)
    job_id = await harness.submit("spawns", {"gather": True})
    await harness.until(job_id, lambda job: job.running)
    while not asked:
        await asyncio.sleep(0.005)
    await harness.service.engine.stop(0.0)
    job = await harness.job(job_id)
    assert (job.status, job.held, job.parked, job.losses) == (Status.PENDING, False, False, 0)


@pytest.mark.parametrize("gather", [True, False])
async def test_an_attempt_that_has_ended_is_not_lost_with_its_worker(
    opened: Open, monkeypatch: pytest.MonkeyPatch, gather: bool
) -> None:
    """The end waits until the child is stored, and the worker process dies in the meantime."""
    harness = await opened(workers=1, lease=0.9)
    engine = runner_of(harness)
    asked = failing(harness, monkeypatch, StoreUnavailable("the database is away"), 150)
    renew = harness.store.renew
    renewed: list[str] = []

    def noted(owner: str, held: Sequence[tuple[str, int]], seconds: float) -> Awaitable[Any]:
        if len(asked) > 100:
            renewed.extend(job_id for job_id, _ in held)
        return renew(owner, held, seconds)

    monkeypatch.setattr(harness.store, "renew", noted)
    job_id = await harness.submit("spawns", {"gather": gather})
    async with asyncio.timeout(20):
        while not any(isinstance(m, AttemptEnd) for r in engine.attempts.values() for m in r.inbox):
            await asyncio.sleep(0.005)
    assert len(asked) < 100
    os.kill(harness.pid(job_id), signal.SIGKILL)
    job = await harness.ended(job_id)
    assert result(job) == (10 if gather else None)
    assert (job.attempt, job.losses, len(asked)) == (1, 0, 151)
    assert job_id in renewed, "its lease is renewed although its worker is gone"
    assert all(head.child.state != "gone" for head in engine._slots.heads())


async def test_a_refused_child_that_nobody_waits_for_fails_its_parent(opened: Open) -> None:
    harness = await opened()
    job = await harness.run("sends_nothing")
    assert job.status is Status.ERROR and job.error is not None
    assert (job.error.code, job.error.retryable) == ("SPAWN_REFUSED", False)


async def test_upkeep_resumes_a_job_that_waits_for_a_child_that_does_not_exist(opened: Open) -> None:
    """As a release before this one has left it."""
    harness = await opened()
    stuck: dict[str, Any] = {"status": Status.PROCESSING, "due": None, "waiting_for": ("nobody",)}
    job = await stored(harness, "spawns", b'{"gather":true}', **stuck)
    harness.service.upkeep.clean_up._next_resume = 0.0
    assert result(await harness.ended(job.id)) == 10


async def stored(harness: EngineHarness, kind: str, input: bytes, **fields: Any) -> Job:
    submission = read_submission(b'{"kind":"%s","input":%s}' % (kind.encode(), input))
    new = await harness.service.intake.prepare(submission)
    new = replace(new, job=replace(new.job, attempt=1, fence=1, **fields))
    await harness.store.insert([new])
    return new.job
