"""What becomes of jobs in a real service with real children."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bide.core.clock import render_instant
from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import Change, Rerun, StepKept
from bide.core.wire.http import job_id
from bide.server.runner import attempt, runner, settlement
from bide.server.store import Claim, NewJob, StoreUnavailable
from bide.server.worker import protocol as p
from bide.testing.engine.harness import EngineHarness, result
from tests.integration.engine.conftest import runner_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_sync_handler_returns_its_result(harness: EngineHarness) -> None:
    job = await harness.run("add", {"a": 2, "b": 3})
    assert result(job) == 5
    assert job.attempt == 1
    assert await harness.statuses(job.id) == ["PENDING", "PROCESSING", "DONE"]


async def test_async_handlers_run_side_by_side_in_one_child(harness: EngineHarness) -> None:
    begin = time.monotonic()
    ids = [await harness.submit("nap", {"seconds": 0.5}) for _ in range(30)]
    jobs = [await harness.ended(i) for i in ids]
    assert {result(j) for j in jobs} == {"rested"}
    assert time.monotonic() - begin < 5  # one after another they would take 15


async def test_start_hooks_run_once_a_child(harness: EngineHarness) -> None:
    jobs = [await harness.run("starts") for _ in range(4)]
    assert all(len(result(j)) == 1 for j in jobs)


async def test_the_end_has_the_duration_that_the_progress_predicted(harness: EngineHarness) -> None:
    halfway, without = await harness.run("halfway", {"seconds": 0.3}), await harness.run("add", {"a": 1})
    end = (await harness.events(halfway.id))[-1].job
    low, middle, high = end["predicted"]
    assert 0 < low < middle < high
    assert "predicted" not in (await harness.events(without.id))[-1].job


async def test_retries_are_visible_and_counted(harness: EngineHarness, log: Path) -> None:
    job = await harness.run("fails", {"log": str(log), "times": 2})
    assert result(job) == 3
    assert log.read_text().split() == ["1", "2", "3"]
    statuses = await harness.statuses(job.id)
    assert statuses == [
        "PENDING",
        "PROCESSING",
        "RETRYING",
        "PROCESSING",
        "RETRYING",
        "PROCESSING",
        "DONE",
    ]
    events = [e for e in await harness.events(job.id) if e.type == "status"]
    for event, following in pairwise(events):
        # It may be written later than it is due; the next attempt is not early.
        if event.job["status"] == "RETRYING":
            assert event.job["nextAttemptAt"] <= following.at


async def test_when_retries_are_used_up_the_error_stays(harness: EngineHarness, log: Path) -> None:
    job = await harness.run("fails", {"log": str(log)})
    assert job.status is Status.ERROR and job.error is not None
    assert (job.error.code, job.error.retryable, job.error.attempt) == ("NOT_YET", True, 3)


async def test_a_job_without_its_file_says_so_and_is_not_retried(harness: EngineHarness) -> None:
    """A job of an older version, and one whose file was deleted after it was accepted."""
    now, store = harness.store.now(), harness.store
    unstored = Job(job_id(now, b"a" * 16), "reads", "default", now, now, due=now, max_attempts=3)
    upload = job_id(now, b"b" * 16)
    await store.insert([NewJob(unstored, b'{"source": {"upload": "%b"}}' % upload.encode())])
    writer = await harness.run("files")
    await store.pause("default", True)
    waiting = await harness.submit("reads", {"source": {"job": writer.id, "name": "hello.txt"}})
    await store.delete(writer.id)
    await harness.service.blobs.remove(writer.id)
    await store.pause("default", False)
    for one, name in ((unstored.id, f"upload {upload}"), (waiting, "hello.txt")):
        job = await harness.ended(one)
        assert job.status is Status.ERROR and job.error is not None
        assert (job.error.code, job.error.retryable, job.attempt) == ("FILE_GONE", False, 1)
        assert job.error.message.startswith(f"{name} no longer exists")
        assert [e for e in await harness.events(one) if e.type == "log"] == []


async def test_a_job_error_says_it_exactly(harness: EngineHarness) -> None:
    job = await harness.run("refuses")
    assert job.status is Status.ERROR and job.error is not None
    assert (job.error.code, job.error.failed_step, job.attempt) == ("BAD_PAGE", "read", 1)


async def test_a_kept_step_is_not_repeated(harness: EngineHarness, log: Path) -> None:
    job = await harness.run("pipeline", {"log": str(log)})
    assert result(job) == {"video": "transcode", "thumbnail": "picture"}
    assert log.read_text().split() == ["transcode", "thumbnail", "thumbnail"]
    assert job.progress is not None and job.progress.percent == 100


async def test_the_failed_step_is_named(harness: EngineHarness, log: Path) -> None:
    job_id = await harness.submit("pipeline", {"log": str(log)})
    job = await harness.until(job_id, lambda j: j.error is not None)
    assert job.error is not None and job.error.failed_step == "thumbnail"
    assert job.error.code == "VALUE_ERROR"


async def test_steps_of_async_handlers_are_kept(harness: EngineHarness, log: Path) -> None:
    job = await harness.run("async_pipeline", {"log": str(log)})
    assert result(job) == 26
    assert log.read_text().split() == ["first", "second"]


async def test_a_step_name_is_used_once(harness: EngineHarness) -> None:
    job = await harness.run("twice")
    assert job.error is not None and job.error.code == "STEP_REPEATED"


async def test_a_result_that_json_cannot_hold_is_an_error(harness: EngineHarness) -> None:
    job = await harness.run("unwritable")
    assert job.error is not None and job.error.code == "NOT_JSON"


async def test_a_timeout_ends_the_attempt(harness: EngineHarness) -> None:
    job = await harness.run("too_slow")
    assert job.error is not None and job.error.code == "TIMEOUT"


async def test_no_progress_for_too_long_is_a_stall(harness: EngineHarness) -> None:
    job = await harness.run("stalls")
    assert job.error is not None and job.error.code == "STALLED"
    assert result(await harness.run("stalls", {"steady": 5})) == "went on"


@pytest.mark.parametrize("which", ["keep", "recall", "spawn"])
async def test_a_handler_that_waits_for_the_store_does_not_stall(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    monkeypatch.setattr(settlement, "RETRY_AFTER", 0.05)
    monkeypatch.setattr(runner, "RETRY_AFTER", 0.05)
    apply, step, prepare = harness.store.apply, harness.store.step, runner_of(harness).prepare_spawn
    tried: list[float] = []

    def away() -> None:
        """For longer than the kind's `stall`."""
        tried.append(time.monotonic())
        if tried[-1] - tried[0] < 1.5:
            raise StoreUnavailable("the database is away")

    async def apply_later(changes: Sequence[Change]) -> list[Any]:
        if any(isinstance(change, StepKept) for change in changes):
            away()
        return await apply(changes)

    async def step_later(job_id: str, name: str) -> bytes | None:
        away()
        return await step(job_id, name)

    async def prepare_later(message: p.Spawn, parent: Job) -> NewJob:
        away()
        return await prepare(message, parent)

    match which:
        case "keep":
            monkeypatch.setattr(harness.store, "apply", apply_later)
        case "recall":
            monkeypatch.setattr(harness.store, "step", step_later)
        case "spawn":
            monkeypatch.setattr(runner_of(harness), "prepare_spawn", prepare_later)
    inputs: dict[str, Any] = {} if which == "spawn" else {"size": 700_000, "fail": which == "recall"}
    job = await harness.run("stalls_in_spawn" if which == "spawn" else "stalls_in_steps", inputs)
    assert job.status is Status.DONE and len(tried) > 3
    assert job.attempt == (2 if which == "recall" else 1)


async def test_cancelling_a_waiting_job(harness: EngineHarness) -> None:
    job_id = await harness.submit("add", {"a": 1}, run_at="2100-01-01T00:00:00Z")
    await harness.cancel(job_id)
    assert (await harness.job(job_id)).status is Status.CANCELLED
    assert await harness.statuses(job_id) == ["PENDING", "CANCELLED"]


async def test_cancelling_interrupts_a_sleeping_handler_and_spares_its_child(
    harness: EngineHarness,
) -> None:
    job = await harness.started("sleep", {"seconds": 60})
    pid = harness.pid(job.id)
    await harness.cancel(job.id)
    assert (await harness.ended(job.id)).status is Status.CANCELLED
    assert pid in [w.pid for w in harness.service.engine.workers()]


async def test_a_stubborn_handler_is_killed(harness: EngineHarness, log: Path) -> None:
    job = await harness.started("stubborn", {"log": str(log)})
    pid = harness.pid(job.id)
    while not log.read_text():
        await asyncio.sleep(0.01)
    await harness.cancel(job.id)
    assert (await harness.ended(job.id)).status is Status.CANCELLED
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert "told" in log.read_text()


async def test_cancelling_an_async_handler_leaves_its_neighbours_alone(
    harness: EngineHarness, log: Path
) -> None:
    other = await harness.started("nap", {"seconds": 1.5})
    job = await harness.started("deaf", {"log": str(log)})
    assert harness.pid(job.id) == harness.pid(other.id)
    await harness.cancel(job.id)
    assert (await harness.ended(job.id)).status is Status.CANCELLED
    assert result(await harness.ended(other.id)) == "rested"
    assert "told" in log.read_text()


async def test_a_lost_child_uses_no_attempt_up(harness: EngineHarness, log: Path) -> None:
    job = await harness.run("dies", {"log": str(log), "times": 2})
    assert result(job) == "survived"
    assert (job.attempt, job.losses, job.fence) == (1, 2, 3)


async def test_three_lost_children_poison_a_job(harness: EngineHarness, log: Path) -> None:
    job = await harness.run("dies", {"log": str(log)})
    assert job.error is not None and job.error.code == "POISONED"
    assert log.read_text().split() == ["1", "2", "3"]


async def test_at_most_once_does_not_run_again(harness: EngineHarness, log: Path) -> None:
    job = await harness.run("once", {"log": str(log)})
    assert job.error is not None and job.error.code == "WORKER_LOST"
    assert log.read_text().split() == ["ran"]


async def test_a_parent_is_parked_while_its_children_run(harness: EngineHarness, log: Path) -> None:
    job = await harness.run("family", {"log": str(log)})
    assert result(job) == [0, 10, 20]
    assert job.attempt == 1
    assert log.read_text().split() == ["parent", "before", "parent"]
    children = [await harness.job(c.job_id) for c in job.children]
    assert {c.queue for c in children} == {"children"}
    assert {c.parent for c in children} == {job.id}


async def test_a_failed_child_fails_its_parent(harness: EngineHarness, log: Path) -> None:
    job = await harness.run("family", {"log": str(log), "bad": 1})
    assert job.status is Status.ERROR and job.error is not None
    assert job.error.code == "CHILD_FAILED" and "ODD" in job.error.message


async def test_a_failed_child_can_make_its_parent_partial(harness: EngineHarness, log: Path) -> None:
    job = await harness.run("family", {"log": str(log), "bad": 1, "partial": True})
    assert job.status is Status.PARTIAL_SUCCESS
    assert result(job) == [0, None, 20]
    assert job.error is not None and isinstance(job.error.errors, list)
    assert job.error.errors[0]["code"] == "ODD"


async def test_partial_success(harness: EngineHarness) -> None:
    job = await harness.run("partly")
    assert job.status is Status.PARTIAL_SUCCESS and job.error is not None
    assert result(job) == [1, 2]
    assert isinstance(job.error.errors, list)
    assert [e["code"] for e in job.error.errors] == ["LOST_PAGE", "ERROR"]


@pytest.mark.parametrize("kind", ["many_steps", "many_async_steps"])
async def test_large_kept_steps_are_sent_to_the_handler_when_it_asks_for_them(
    harness: EngineHarness, log: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    sizes: list[int] = []
    make = attempt.run_message

    def measured(claim: Claim, output_limit: int) -> p.RunJob:
        message = make(claim, output_limit)
        sizes.append(len(p.frame(message)))
        return message

    monkeypatch.setattr(runner, "run_message", measured)
    job = await harness.run(kind, {"count": 6, "size": 700_000, "log": str(log)})
    assert (result(job), job.attempt) == (6, 2)
    assert log.read_text().split() == [str(n) for n in range(6)], "kept steps do not run again"
    assert len(sizes) == 2 and max(sizes) < 1_100_000


@pytest.mark.parametrize("kind", ["many_steps", "many_async_steps"])
async def test_a_kept_step_that_cannot_be_read_ends_the_attempt(
    harness: EngineHarness, log: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async def fail(job_id: str, name: str) -> bytes | None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(harness.store, "step", fail)
    job = await harness.run(kind, {"count": 6, "size": 700_000, "log": str(log)})
    assert job.status is Status.ERROR and job.error is not None
    assert (job.error.code, job.error.retryable, job.attempt) == ("STEP_UNREADABLE", True, 2)
    assert "RuntimeError: a bug" in job.error.message
    assert job.losses == 0


async def test_a_retry_has_a_folder_of_its_own_while_the_old_one_is_removed(
    harness: EngineHarness, log: Path, tmp_path: Path
) -> None:
    loop, work, go = asyncio.get_running_loop(), harness.service.folder.work, tmp_path / "go"
    released = threading.Event()
    busy = [loop.run_in_executor(None, released.wait) for _ in range(64)]  # what removes folders waits
    try:
        job = await harness.run("scratch", {"log": str(log), "go": str(go)})
        assert job.status is Status.ERROR
        assert isinstance((await harness.store.apply([Rerun(job_id=job.id)]))[0], Job)
        async with asyncio.timeout(20):
            while "written" not in log.read_text():
                await asyncio.sleep(0.01)
    finally:
        released.set()
    await asyncio.gather(*busy)
    async with asyncio.timeout(20):
        while any(work.glob(f"{job.id}*/old")):
            await asyncio.sleep(0.01)
    go.touch()
    again = await harness.until(job.id, lambda job: job.run == 2 and job.status.terminal)
    assert result(again) == ["new"]
    async with asyncio.timeout(20):
        while any(work.glob(f"{job.id}*")):
            await asyncio.sleep(0.01)


async def test_children_of_a_failed_parent_are_cancelled(harness: EngineHarness) -> None:
    job = await harness.run("hopeless")
    assert job.status is Status.ERROR
    child = await harness.ended(job.children[0].job_id)
    assert child.status is Status.CANCELLED


async def test_cancelling_a_parked_parent_stops_its_children(harness: EngineHarness) -> None:
    job_id = await harness.submit("waits_long")
    job = await harness.until(job_id, lambda j: j.parked)
    assert not job.running
    child_id = job.children[0].job_id
    await harness.until(child_id, lambda j: j.running)
    await harness.cancel(job_id)
    assert (await harness.job(job_id)).status is Status.CANCELLED
    assert (await harness.ended(child_id)).status is Status.CANCELLED


async def test_a_spawn_that_is_refused_fails_the_attempt(harness: EngineHarness) -> None:
    job = await harness.run("orphans")
    assert job.error is not None and job.error.code == "SPAWN_REFUSED"
    assert "nothing" in job.error.message


async def test_progress_is_live_and_then_part_of_the_record(harness: EngineHarness) -> None:
    job = await harness.started("halfway", {"seconds": 1.0})
    async with asyncio.timeout(5):
        with harness.service.notify.subscribe(job.id) as watch:
            while (live := harness.service.progress.live(job)) is None:
                await watch.wait(5)
    assert (live.progress.percent, live.progress.unit, live.progress.message) == (50, "pages", "Reading")
    assert (await harness.job(job.id)).version == job.version  # progress is not a version of the row
    ended = await harness.ended(job.id)
    assert ended.progress == live.progress


async def test_a_million_calls_of_progress_cost_little(harness: EngineHarness) -> None:
    before = len(await harness.store.events())
    job = await harness.run("counts", {"calls": 1_000_000})
    assert result(job) < 20e-6  # a bound that a busy machine keeps, too; the bench has the figure
    assert job.progress is not None and job.progress.percent == 50  # its step has half the weight
    assert len(await harness.store.events()) - before < 20


async def test_files_outlive_the_attempt_and_reach_other_jobs(harness: EngineHarness) -> None:
    job = await harness.run("files")
    value = result(job)
    assert value["text"] == "hello.txt: hello"
    assert value["copied"] == "hello"
    (file,) = job.files
    assert (file.name, file.size, file.content_type) == ("hello.txt", 5, "text/plain")
    assert harness.service.blobs.fetch(file, Path()).read_bytes() == b"hello"
    async with asyncio.timeout(5):
        while Path(value["folder"]).exists():  # its scratch folder goes with it
            await asyncio.sleep(0.01)


async def test_a_large_result_is_kept_in_a_file(harness: EngineHarness) -> None:
    job = await harness.run("large", {"size": 100_000})
    assert job.status is Status.DONE and job.result is None and job.result_file is not None
    assert len(harness.service.blobs.fetch(job.result_file, Path()).read_bytes()) == 100_002


async def test_log_lines_are_kept(harness: EngineHarness) -> None:
    job = await harness.run("logs")
    (line,) = [e.job["log"] for e in await harness.events(job.id) if e.type == "log"]
    assert line == {"message": "hello", "page": 3}


async def test_higher_priority_first_and_one_at_a_time_in_a_narrow_queue(
    harness: EngineHarness, log: Path
) -> None:
    await harness.store.pause("narrow", True)
    ids = [
        await harness.submit("narrow", {"name": name, "log": str(log)}, priority=priority)
        for name, priority in [("a", 0), ("b", 5), ("c", 0)]
    ]
    assert [(await harness.job(i)).status for i in ids] == [Status.PENDING] * 3
    await harness.store.pause("narrow", False)
    harness.service.engine.hint("narrow", "narrow")
    for i in ids:
        await harness.ended(i)
    assert log.read_text().split("\n")[:-1] == [
        f"{what} {name}" for name in "bac" for what in ("begin", "end")
    ]


async def test_one_queue_does_not_wait_behind_another(harness: EngineHarness) -> None:
    long = [await harness.submit("sleep", {"seconds": 60}) for _ in range(4)]
    job = await harness.run("child", {"number": 4})  # on a queue of its own
    assert result(job) == 40
    for i in long:
        await harness.cancel(i)
        await harness.ended(i)


async def test_a_deadline_passes_before_a_worker_took_it(harness: EngineHarness) -> None:
    await harness.store.pause("narrow", True)
    deadline = render_instant(harness.store.now() + 0.3)
    job = await harness.run("narrow", {"name": "x", "log": "/dev/null"}, deadline=deadline)
    await harness.store.pause("narrow", False)
    assert job.error is not None and job.error.code == "DEADLINE" and job.attempt == 0
    assert await harness.statuses(job.id) == ["PENDING", "ERROR"]


async def test_a_deadline_passes_while_it_runs(harness: EngineHarness) -> None:
    deadline = render_instant(harness.store.now() + 0.4)
    job = await harness.run("sleep", {"seconds": 60}, deadline=deadline)
    assert job.error is not None and job.error.code == "DEADLINE"
    async with asyncio.timeout(5):
        while any(job.id in w.jobs for w in harness.service.engine.workers()):
            await asyncio.sleep(0.01)


async def test_retention_then_gone_with_its_files(harness: EngineHarness) -> None:
    from bide.server.store import Missing

    job = await harness.run("forgettable")
    path = harness.service.blobs.fetch(job.files[0], Path())
    async with asyncio.timeout(10):
        while (await harness.store.get([job.id])) != [Missing(gone=True)] or path.exists():
            await asyncio.sleep(0.02)
