"""Short jobs stand in line at their child; what must not break because of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from bide.core.jobs.record import Job, Status
from bide.server.store import NewJob
from bide.server.worker.protocol import Spawn
from bide.testing.engine.harness import EngineHarness, result
from tests.integration.engine.conftest import runner_of

Open = Callable[..., Awaitable[EngineHarness]]


async def trained(opened: Open, **worker: float) -> EngineHarness:
    """A service that has learned that `quick` is quick."""
    harness = await opened("tests.apps.short", **worker)
    depth = runner_of(harness)._slots.durations.depth
    for _ in range(20):  # on a busy machine it takes longer to show
        ids = [await harness.submit("quick") for _ in range(20)]
        for job_id in ids:
            await harness.ended(job_id)
        if depth(harness.registry.kinds["quick"]) > 1:
            return harness
    raise AssertionError("a job that does nothing should be short")


async def paused(harness: EngineHarness, *inputs: tuple[str, Mapping[str, object]]) -> list[str]:
    """Submits all of them before any can start."""
    await harness.store.pause("default", True)
    ids = [await harness.submit(kind, dict(input)) for kind, input in inputs]
    await harness.store.pause("default", False)
    for kind in harness.registry.kinds:
        harness.service.engine.hint("default", kind)
    return ids


async def test_full_records_and_events_for_jobs_that_stood_in_line(opened: Open) -> None:
    harness = await trained(opened, workers=1)
    ids = await paused(harness, *[("quick", {})] * 30)
    jobs = [await harness.ended(i) for i in ids]
    assert {result(j) for j in jobs} == {"ok"}
    for job in jobs:
        assert await harness.statuses(job.id) == ["PENDING", "PROCESSING", "DONE"]
        assert job.started_at is not None and job.finished_at is not None
        assert job.created_at <= job.started_at <= job.finished_at
        assert (job.attempt, job.losses, job.fence) == (1, 0, 1)
    starts = [j.started_at or 0 for j in jobs]
    assert starts == sorted(starts)  # in the order of submission, one after another


async def test_nobody_waits_behind_a_head_that_takes_its_time(opened: Open) -> None:
    harness = await trained(opened, workers=2)
    slow, *others = await paused(harness, ("quick", {"seconds": 3.0}), *[("quick", {})] * 20)
    ended = [await harness.ended(i) for i in others]
    assert all(j.status is Status.DONE and j.losses == 0 for j in ended)
    assert (await harness.job(slow)).status is Status.PROCESSING  # shown as what it is meanwhile
    assert result(await harness.ended(slow)) == "ok"


async def test_only_the_head_is_lost_with_its_child(opened: Open) -> None:
    harness = await trained(opened, workers=1)
    killer, *others = await paused(harness, ("quick", {"kill": True}), *[("quick", {})] * 20)
    ended = [await harness.ended(i) for i in others]
    assert all(j.status is Status.DONE and j.losses == 0 and j.attempt == 1 for j in ended)
    job = await harness.ended(killer)
    assert job.error is not None and job.error.code == "POISONED"
    assert (await harness.statuses(killer)).count("ERROR") == 1


async def test_a_long_job_is_not_overtaken_for_ever(opened: Open) -> None:
    harness = await trained(opened, workers=1)
    inputs: list[tuple[str, Mapping[str, object]]] = [("quick", {})] * 10
    ids = await paused(harness, *inputs, ("long", {}), *inputs)
    jobs = [await harness.ended(i) for i in ids]
    long = jobs[10]
    assert all((j.started_at or 0) < (long.started_at or 0) for j in jobs[:10])
    assert all((j.started_at or 0) > (long.started_at or 0) for j in jobs[11:])


async def test_cancelling_a_job_in_line(opened: Open) -> None:
    harness = await trained(opened, workers=1)
    ids = await paused(harness, ("quick", {"seconds": 1.0}), *[("quick", {"seconds": 0.3})] * 4)
    await harness.until(ids[0], lambda j: j.held)
    await harness.cancel(ids[2])
    assert (await harness.ended(ids[2])).status is Status.CANCELLED
    for job_id in (ids[0], ids[1], ids[3], ids[4]):
        assert (await harness.ended(job_id)).status is Status.DONE


async def test_steps_and_logs_of_jobs_that_stood_in_line(opened: Open) -> None:
    harness = await trained(opened, workers=1)
    ids = await paused(harness, *[("quick", {"step": True})] * 10)
    for job_id in ids:
        job = await harness.ended(job_id)
        assert job.status is Status.DONE
        kinds = [e.type for e in await harness.events(job_id)]
        assert sorted(kinds) == ["log", "status", "status", "status", "step", "step"]
        assert kinds[:2] == ["status", "status"]  # PENDING, PROCESSING, and only then the rest


async def test_a_shutdown_gives_back_those_in_line(opened: Open) -> None:
    harness = await trained(opened, workers=1, drain=0.0)
    ids = await paused(harness, ("quick", {"seconds": 5.0}), *[("quick", {"seconds": 0.01})] * 6)
    await harness.until(ids[0], lambda j: j.held)
    await harness.stop()
    harness = await opened("tests.apps.short", workers=2)
    for job_id in ids[1:]:
        job = await harness.ended(job_id)
        assert job.status is Status.DONE and job.losses == 0
    await harness.cancel(ids[0])
    await harness.ended(ids[0])


async def test_a_job_that_may_run_only_once_never_stands_in_line(opened: Open) -> None:
    harness = await opened("tests.apps.short", workers=1)
    for _ in range(3):
        ids = await paused(harness, *[("once", {})] * 10)
        for job_id in ids:
            await harness.ended(job_id)
    depth = runner_of(harness)._slots.durations.depth
    assert depth(harness.registry.kinds["once"]) == 1
    await asyncio.sleep(0)


async def test_jobs_behind_one_whose_child_is_still_being_stored_run_once(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await trained(opened, workers=1)
    runner = runner_of(harness)
    durations = runner._slots.durations
    for _ in range(50):
        durations.learn("sends", 0.0005)
    prepare = runner.prepare_spawn
    stored = asyncio.Event()

    async def prepared_late(message: Spawn, parent: Job) -> NewJob:
        await stored.wait()
        return await prepare(message, parent)

    monkeypatch.setattr(runner, "prepare_spawn", prepared_late)
    first, *others = await paused(harness, ("sends", {}), *[("quick", {})] * 4)
    await harness.until(first, lambda job: job.running)
    while not any(running.inbox for running in runner.attempts.values()):
        await asyncio.sleep(0.005)
    stored.set()
    jobs = [await harness.ended(job_id) for job_id in (first, *others)]
    assert [result(job) for job in jobs] == ["sent", *["ok"] * 4]
    assert {(job.attempt, job.losses) for job in jobs} == {(1, 0)}
    for job in jobs:
        assert (await harness.statuses(job.id))[-2:] == ["PROCESSING", "DONE"]
