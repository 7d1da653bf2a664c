"""Children that are replaced, services that end and begin again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bide.core.clock import render_instant
from bide.core.errors import SetupError
from bide.core.jobs.record import Status
from bide.core.jobs.state_machine import Change, Succeeded
from bide.core.wire.http import Event
from bide.server.store import StoreUnavailable
from bide.server.worker import work_folders
from bide.testing.engine.harness import EngineHarness, result

Open = Callable[..., Awaitable[EngineHarness]]
SMALL = "tests.apps.small"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


async def gone(*pids: int) -> None:
    async with asyncio.timeout(10):
        while any(alive(pid) for pid in pids):
            await asyncio.sleep(0.02)


async def told(harness: EngineHarness, words: str) -> None:
    """Wait until the engine reports a problem."""
    async with asyncio.timeout(10):
        while not any(words in warning.detail for warning in harness.service.engine.warnings()):
            await asyncio.sleep(0.02)


async def test_it_is_not_ready_before_a_child_is(opened: Open) -> None:
    harness = await opened(SMALL)
    await told(harness, "still starting")
    await harness.run("pid")
    async with asyncio.timeout(20):  # the other children come when they come
        while harness.service.engine.warnings():
            await asyncio.sleep(0.02)


async def test_a_child_is_replaced_after_so_many_jobs(opened: Open) -> None:
    harness = await opened(SMALL, workers=1)
    pids = [result(await harness.run("pid")) for _ in range(6)]
    assert len(set(pids)) == 3 and pids[0] == pids[1] and pids[2] == pids[3]


async def test_a_child_that_takes_too_much_memory_is_ended(opened: Open) -> None:
    harness = await opened(SMALL)
    job = await harness.run("fill", {"megabytes": 400})
    assert job.error is not None and job.error.code == "MEMORY_LIMIT"


async def test_a_shutdown_waits_for_what_runs(opened: Open, log: Path) -> None:
    harness = await opened(SMALL, drain=20.0)
    job = await harness.started("sleep", {"seconds": 0.5, "log": str(log)})
    await harness.stop()
    harness = await opened(SMALL)
    assert (await harness.job(job.id)).status is Status.DONE
    assert log.read_text().split() == ["1"]


async def test_a_shutdown_hands_back_what_does_not_end(opened: Open, log: Path) -> None:
    harness = await opened(SMALL, drain=0.1)
    job = await harness.started("sleep", {"seconds": 60, "log": str(log)})
    nap = await harness.started("nap", {"seconds": 60})
    await harness.stop()
    harness = await opened(SMALL)
    for job_id in (job.id, nap.id):
        again = await harness.until(job_id, lambda j: j.fence == 2)
        assert (again.attempt, again.losses, again.failures) == (1, 0, 0)
        await harness.cancel(job_id)
        assert (await harness.ended(job_id)).status is Status.CANCELLED


async def test_a_second_signal_counts_before_the_shutdown_waits(opened: Open, log: Path) -> None:
    """`stop` first waits for claims in flight, and for running jobs after that."""
    harness = await opened(SMALL, drain=3600.0)
    job = await harness.started("sleep", {"seconds": 60, "log": str(log)})
    harness.service.engine.stop_now()
    async with asyncio.timeout(30):
        await harness.stop()
    harness = await opened(SMALL)
    again = await harness.until(job.id, lambda j: j.fence == 2)
    assert (again.attempt, again.losses, again.failures) == (1, 0, 0)


async def test_a_shutdown_stores_a_result_that_waits_for_the_store(
    opened: Open, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await opened(SMALL, drain=10.0, lease=0.9)
    job = await harness.started("sleep", {"seconds": 0.3, "log": str(log)})
    apply, renew = harness.store.apply, harness.store.renew
    refused: list[float] = []
    renewed: list[str] = []

    async def refuse(changes: Sequence[Change]) -> list[Any]:
        if any(isinstance(change, Succeeded) for change in changes):
            refused.append(time.monotonic())
            if refused[-1] - refused[0] < 1.5:
                raise StoreUnavailable("the disk is full")
        return await apply(changes)

    def noted(owner: str, held: Sequence[tuple[str, int]], seconds: float) -> Awaitable[Any]:
        if refused:
            renewed.extend(job_id for job_id, _ in held)
        return renew(owner, held, seconds)

    monkeypatch.setattr(harness.store, "apply", refuse)
    monkeypatch.setattr(harness.store, "renew", noted)
    await harness.service.engine.stop(10.0)
    ended = await harness.job(job.id)
    assert (ended.status, ended.losses, len(refused)) == (Status.DONE, 0, 3)
    assert renewed.count(job.id) >= 3, "its lease is renewed until its result is stored"


async def test_a_job_that_is_being_claimed_when_it_stops_is_given_back(opened: Open) -> None:
    harness = await opened(SMALL)
    await harness.run("pid")
    await harness.store.pause("default", True)
    job_id = await harness.submit("pid")
    await harness.store.pause("default", False)
    harness.service.engine.hint("default", "pid")  # from here on the claim is under way
    await harness.service.engine.stop(5.0)
    job = await harness.job(job_id)
    assert (job.status, job.held, job.losses) == (Status.PENDING, False, 0)
    assert job.fence == 1  # it had been claimed


async def test_waiting_jobs_are_found_after_a_restart(opened: Open) -> None:
    harness = await opened(SMALL)
    await harness.store.pause("default", True)
    job_id = await harness.submit("pid")
    await harness.stop()
    harness = await opened(SMALL)
    assert (await harness.job(job_id)).status is Status.PENDING  # the pause is remembered, too
    await harness.store.pause("default", False)
    harness.service.engine.hint("default", "pid")
    assert (await harness.ended(job_id)).status is Status.DONE


async def test_durations_are_remembered(opened: Open) -> None:
    harness = await opened(SMALL)
    for _ in range(4):
        await harness.run("pid")
    assert harness.service.estimates.describe("pid") is not None
    await harness.stop()
    harness = await opened(SMALL)
    assert harness.service.estimates.describe("pid") is not None


async def test_a_stopped_child_loses_its_lease_and_another_runs_the_job(opened: Open, log: Path) -> None:
    harness = await opened(SMALL, lease=1.0)
    job = await harness.started("sleep", {"seconds": 0.2, "log": str(log)})
    pid = harness.pid(job.id)
    os.kill(pid, signal.SIGSTOP)
    ended = await harness.ended(job.id)
    assert (ended.status, ended.fence, ended.losses) == (Status.DONE, 2, 1)
    await gone(pid)
    assert (await harness.statuses(job.id)).count("DONE") == 1


async def test_what_a_handler_started_ends_with_its_child(opened: Open, log: Path) -> None:
    harness = await opened(SMALL)
    job = await harness.started("grandchild", {"log": str(log)})
    while not log.read_text():
        await asyncio.sleep(0.01)
    os.kill(harness.pid(job.id), signal.SIGKILL)
    await gone(int(log.read_text()))
    await harness.cancel(job.id)
    await harness.ended(job.id)


async def test_a_second_service_on_the_same_folder_is_refused(opened: Open) -> None:
    await opened(SMALL)
    with pytest.raises(SetupError, match=r"another service .* uses the data folder"):
        await opened(SMALL)


async def test_a_queue_that_nobody_serves_is_named(opened: Open) -> None:
    harness = await opened(SMALL)
    assert harness.service.engine.serves("default")
    assert not harness.service.engine.serves("elsewhere")


async def test_an_app_that_cannot_be_loaded_in_a_child_is_reported(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_in_children.py").write_text(
        "import os\nfrom bide import App\napp = App()\n"
        "@app.job()\ndef f() -> None: ...\n"
        "@app.on_worker_start\ndef load() -> None: raise RuntimeError('no model')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    harness = await opened("broken_in_children")
    await told(harness, "no model")


async def test_orphaned_files_are_swept(opened: Open, tmp_path: Path) -> None:
    harness = await opened(SMALL)
    job = await harness.run("pid")
    orphan, kept = "0" * 26, job.id
    for name in (orphan, kept):
        for place in ("blobs", "work"):
            folder = tmp_path / "data" / place / name
            folder.mkdir(parents=True)
            (folder / "file").write_text("x")
            os.utime(folder, (0, 0))
    # As a crash leaves it: renamed and not removed, though its job exists.
    renamed = work_folders.rename(str(tmp_path / "data" / "work" / kept))
    assert renamed is not None and not (tmp_path / "data" / "work" / kept).exists()
    now, data = time.time(), tmp_path / "data"
    await harness.service.upkeep.clean_up._sweep(now)
    assert list((data / "work").iterdir()) == []
    assert (data / "blobs" / orphan / "file").read_text() == "x", "it is only in quarantine"
    await harness.service.upkeep.clean_up._sweep(now + 6 * 86400)
    assert (data / "blobs" / orphan).exists()
    await harness.service.upkeep.clean_up._sweep(now + 8 * 86400)
    assert {path.name for path in (data / "blobs").iterdir()} == {kept, ".store", ".quarantine"}
    assert not list((data / "blobs" / ".quarantine").iterdir())


async def test_a_store_whose_clock_is_ahead_sweeps_no_young_folder(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await opened(SMALL)
    young = tmp_path / "data" / "work" / ("0" * 26)
    young.mkdir(parents=True)
    now = harness.store.now
    monkeypatch.setattr(harness.store, "now", lambda: now() + 2 * 86400)
    await harness.service.upkeep.clean_up.tick()
    assert young.exists()


async def test_a_module_that_starts_a_service_on_import_does_not_run_away(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "starts_on_import.py").write_text(
        "import os\nfrom bide import App\napp = App()\n"
        "@app.job()\ndef f() -> None: ...\n"
        "from bide.server.config import Config\nfrom bide.server.worker import app_location\n"
        "from bide.service.assembly import assemble\n"
        "if app_location.in_child:\n"
        "    import asyncio\n"
        "    asyncio.run(assemble(app, app_location.AppLocation(__name__), Config()).start())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    harness = await opened("starts_on_import")
    await told(harness, "__main__")


async def test_a_scheduled_job_starts_at_its_time(opened: Open) -> None:
    harness = await opened(upkeep=3600.0)  # so that only its time can start it
    run_at = harness.store.now() + 0.5
    job = await harness.run("add", {"a": 1}, run_at=render_instant(run_at))
    assert job.started_at is not None and job.started_at - run_at >= -0.002


async def test_a_job_scheduled_while_the_upkeep_looks_for_the_next_one_starts_at_its_time(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await opened(upkeep=3600.0)
    wake, on_events = harness.store.wake, harness.service.upkeep.on_events
    submitted: list[str] = []
    received = asyncio.Event()

    def receive(events: Sequence[Event]) -> None:
        on_events(events)
        if submitted and any(event.job_id == submitted[0] for event in events):
            received.set()

    async def wake_late() -> Any:
        found = await wake()
        if found == ({("default", "add")}, None) and not submitted:
            run_at = render_instant(harness.store.now() + 0.5)
            submitted.append(await harness.submit("add", {"a": 1}, run_at=run_at))
            await received.wait()
        return found

    monkeypatch.setattr(harness.store, "wake", wake_late)
    monkeypatch.setattr(harness.service.upkeep, "on_events", receive)
    first = harness.store.now() + 0.1
    await harness.run("add", {"a": 2}, run_at=render_instant(first))
    assert result(await harness.ended(submitted[0])) == 2
