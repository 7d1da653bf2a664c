"""Handlers of strangers: whatever one does, its own job ends as it should and the next one is not affected."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bide.core.jobs.record import Job, Status
from bide.server.config import Config, UpkeepConfig, WorkerConfig
from bide.testing.engine.harness import EngineHarness, result
from tests.integration.engine.conftest import Open

pytestmark = pytest.mark.asyncio(loop_scope="module")
APP = "tests.apps.strangers"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EngineHarness]:
    """One sync child and one async child, so that the next job is in the child of the one before."""
    harness = EngineHarness(
        APP,
        Config(
            data=tmp_path_factory.mktemp("strangers"),
            worker=WorkerConfig(workers=1, grace=0.6, drain=0.0),
            upkeep=UpkeepConfig(interval=0.05),
        ),
    )
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()


class Next:
    """The jobs before and after a stranger's."""

    def __init__(self, harness: EngineHarness, before: dict[str, Any], kind: str) -> None:
        self._house = harness
        self._before = before
        self._kind = kind

    async def is_not_affected(self) -> None:
        """The same child, in every way as it was."""
        for _ in range(2):
            after = result(await self._house.run(self._kind))
            assert after == self._before
            assert after["sum"] == 5

    async def has_a_fresh_child(self) -> None:
        after = result(await self._house.run(self._kind))
        assert after["pid"] != self._before["pid"]
        assert {**after, "pid": 0} == {**self._before, "pid": 0}
        await gone(self._before["pid"])


@pytest_asyncio.fixture(loop_scope="module")
async def following(harness: EngineHarness) -> Next:
    return Next(harness, result(await harness.run("look")), "look")


@pytest_asyncio.fixture(loop_scope="module")
async def following_async(harness: EngineHarness) -> Next:
    return Next(harness, result(await harness.run("look_async")), "look_async")


def error(job: Job) -> tuple[str, str]:
    assert job.status is Status.ERROR and job.error is not None, job.status
    return job.error.code, job.error.message


async def lines(log: Path, count: int) -> list[str]:
    async with asyncio.timeout(10):
        while len(found := log.read_text().splitlines()) < count:
            await asyncio.sleep(0.01)
    return found


async def gone(pid: int) -> None:
    async with asyncio.timeout(10):
        while _alive(pid):
            await asyncio.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


# --- processes


@pytest.mark.parametrize("how", ["returns", "raises", "exits", "leaves"])
async def test_a_forked_copy_does_not_speak_for_the_job(
    harness: EngineHarness, following: Next, log: Path, how: str
) -> None:
    job = await harness.run("forks", {"how": how, "log": str(log)})
    assert result(job) == "parent"
    assert not job.steps
    assert "not in a forked process" in log.read_text()
    await following.is_not_affected()


@pytest.mark.parametrize("how", ["returns", "awaits"])
async def test_a_forked_copy_of_an_async_child_does_not_go_on_with_its_jobs(
    harness: EngineHarness, following_async: Next, log: Path, how: str
) -> None:
    other = await harness.submit("naps", {"seconds": 0.3})
    job = await harness.run("forks_async", {"how": how, "log": str(log)})
    assert result(job) == "parent"
    assert result(await harness.ended(other)) == "rested"
    # The copy that wants to await something has ended instead.
    assert log.read_text().split() == (["copy", "parent"] if how == "returns" else ["parent"])
    await following_async.is_not_affected()


@pytest.mark.parametrize("kind", ["leaves_fork", "leaves_program"])
@pytest.mark.parametrize("own_session", [False, True])
async def test_grandchildren_hold_nobody_up(
    harness: EngineHarness, following: Next, log: Path, kind: str, own_session: bool
) -> None:
    job = await harness.run(kind, {"log": str(log), "own_session": own_session})
    (pid,) = [int(line) for line in await lines(log, 1)]
    assert result(job) == "left"
    try:
        await following.is_not_affected()
        assert _alive(pid)
        # The death of their parent is noticed although they live on, and ends those of its group.
        assert error(await harness.run("dies", {"how": "exit"}))[0] == "POISONED"
        await following.has_a_fresh_child()
        if not own_session:
            await gone(pid)
    finally:
        if _alive(pid):
            os.kill(pid, signal.SIGKILL)


async def test_grandchildren_that_have_left_the_group_are_ended_at_the_next_start(
    opened: Open, log: Path
) -> None:
    harness = await opened(APP, workers=1)
    await harness.run("leaves_program", {"log": str(log), "own_session": True})
    (pid,) = [int(line) for line in await lines(log, 1)]
    await harness.stop()
    assert _alive(pid)
    again = await opened(APP, workers=1)
    await gone(pid)
    await again.stop()


@pytest.mark.parametrize("method", ["fork", "spawn"])
async def test_multiprocessing_works_in_a_handler(
    harness: EngineHarness, following: Next, method: str
) -> None:
    assert result(await harness.run("multiprocesses", {"method": method})) == [1, 2, 3]
    await following.is_not_affected()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("exit", "exit code 0"),
        ("segfault", "SIGSEGV"),
        ("abort", "SIGABRT"),
        ("group", "SIGTERM"),
    ],
)
async def test_a_handler_that_ends_its_process(
    harness: EngineHarness, following: Next, how: str, why: str
) -> None:
    code, message = error(await harness.run("dies", {"how": how}))
    assert code == "POISONED" and why in message
    await following.has_a_fresh_child()


# --- memory, output, recursion


async def test_allocating_without_end_is_ended(harness: EngineHarness, following: Next) -> None:
    assert error(await harness.run("allocates"))[0] == "MEMORY_LIMIT"
    await following.has_a_fresh_child()


async def test_megabytes_of_output(harness: EngineHarness, following: Next) -> None:
    assert result(await harness.run("prints", {"megabytes": 5})) == 5
    await following.is_not_affected()


@pytest.mark.parametrize("deeper", [False, True])
async def test_recursion_without_end(harness: EngineHarness, following: Next, deeper: bool) -> None:
    assert error(await harness.run("recurses", {"deeper": deeper}))[0] == "RECURSION_ERROR"
    await following.is_not_affected()


# --- exceptions

ERRORS = {
    "no text": ("NO_TEXT", "NoText"),
    "no pickle": ("NO_PICKLE", "held"),
    "hollow": ("ERROR", "Hollow, an exception that cannot be described"),
    "own": ("OWN", "mine"),
    "group": ("EXCEPTION_GROUP", "two (2 sub-exceptions)"),
    "deep group": ("EXCEPTION_GROUP", "nested (1 sub-exception)"),
    "stop iteration": ("STOP_ITERATION", "5"),
    "generator exit": ("GENERATOR_EXIT", "GeneratorExit"),
    "cancelled": ("CANCELLED_ERROR", "CancelledError"),
    "interrupt": ("KEYBOARD_INTERRUPT", "KeyboardInterrupt"),
    "exit": ("SYSTEM_EXIT", "bye"),
    "giant": ("VALUE_ERROR", "x" * 3999 + "…"),
    "surrogate": ("VALUE_ERROR", "half \\ud800 and \0"),
    "long name": ("N" * 99 + "…", "x"),
    "numbers": ("404", "5"),
    "memory": ("MEMORY_ERROR", "MemoryError"),
    "cannot be sent": (
        "NOT_SENDABLE",
        "the outcome of the attempt cannot be sent to the service: "
        "OverflowError: can't serialize ints < -2**63 or > 2**64 - 1",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_odd_exceptions(harness: EngineHarness, following: Next, name: str) -> None:
    job = await harness.run("raises", {"name": name})
    assert error(job) == ERRORS[name]
    assert job.attempt == 1 and job.losses == 0
    await following.is_not_affected()


@pytest.mark.parametrize(
    "name",
    ["own", "cancelled", "exit", "interrupt", "no text", "stop iteration", "cannot be sent"],
)
async def test_odd_exceptions_of_async_handlers(
    harness: EngineHarness, following_async: Next, name: str
) -> None:
    other = await harness.submit("naps", {"seconds": 0.2})
    code, _ = error(await harness.run("raises_async", {"name": name}))
    assert code == ("RUNTIME_ERROR" if name == "stop iteration" else ERRORS[name][0])
    assert result(await harness.ended(other)) == "rested"
    await following_async.is_not_affected()


async def test_a_task_of_an_async_handler_that_exits(
    harness: EngineHarness, following_async: Next
) -> None:
    assert result(await harness.run("raises_in_task")) == "stayed"
    await following_async.is_not_affected()


# --- results


@pytest.mark.parametrize(
    "name",
    ["object", "nan", "infinity", "huge", "bytes", "surrogate", "deep", "around", "broken", "errors"],
)
async def test_results_that_json_cannot_hold(harness: EngineHarness, following: Next, name: str) -> None:
    job = await harness.run("returns", {"name": name})
    assert error(job)[0] == "NOT_JSON"
    assert job.losses == 0 and job.error is not None and not job.error.retryable
    await following.is_not_affected()


async def test_a_result_that_fails_when_it_is_looked_at(harness: EngineHarness, following: Next) -> None:
    job = await harness.run("returns", {"name": "trap"})
    assert job.status is Status.ERROR and job.losses == 0
    await following.is_not_affected()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("set", [7]),
        ("generator", [0, 1, 2]),
        ("large", 10**30),
        ("words", "NaN, Infinity"),
        ("digits", "7" * 5000),
    ],
)
async def test_results_that_json_can_hold(harness: EngineHarness, name: str, value: Any) -> None:
    assert result(await harness.run("returns", {"name": name})) == value


@pytest.mark.parametrize("kind", ["returns", "returns_async"])
async def test_errors_of_a_partial_success_may_have_large_numbers(
    harness: EngineHarness, kind: str
) -> None:
    job = await harness.run(kind, {"name": "large errors"})
    assert job.status is Status.PARTIAL_SUCCESS and job.error is not None, job.error
    assert isinstance(job.error.errors, list)
    assert job.error.errors[0]["n"] == 2**70


@pytest.mark.parametrize("suffix", ["", "_async"])
async def test_a_child_that_does_not_know_the_kind_says_so(harness: EngineHarness, suffix: str) -> None:
    assert result(await harness.run(f"forgets{suffix}", {"kind": f"forgotten{suffix}"})) is None
    job = await harness.run(f"forgotten{suffix}")
    assert error(job)[0] == "UNKNOWN_KIND"
    assert job.losses == 0


# --- the context


async def test_progress_that_is_no_number(harness: EngineHarness, following: Next) -> None:
    assert result(await harness.run("misuses", {"how": "progress"})) == "done"
    await following.is_not_affected()


@pytest.mark.parametrize("how", ["step", "type", "identity"])
async def test_arguments_that_no_signature_allows(
    harness: EngineHarness, following: Next, how: str
) -> None:
    code, _ = error(await harness.run("misuses", {"how": how}))
    assert code == ("ATTRIBUTE_ERROR" if how == "identity" else "VALUE_ERROR")
    await following.is_not_affected()


async def test_lines_of_the_log_with_halves_of_characters(
    harness: EngineHarness, following: Next
) -> None:
    job = await harness.run("misuses", {"how": "log"})
    assert result(job) == "done"
    told = [e.job["log"]["message"] for e in await harness.events(job.id) if e.type == "log"]
    assert told[0] == "\\ud800" and len(told) == 2
    await following.is_not_affected()


async def test_threads_of_a_handler_use_its_context(harness: EngineHarness, following: Next) -> None:
    job = await harness.run("threads_use_ctx")
    assert result(job) == {str(n): n for n in range(8)}
    assert {s.name for s in job.steps} == {f"step{n}" for n in range(8)}
    await following.is_not_affected()


async def test_a_context_is_of_no_use_after_its_job(
    harness: EngineHarness, following: Next, log: Path
) -> None:
    job = await harness.run("keeps_ctx", {"log": str(log)})
    assert result(job) == "returned"
    await following.is_not_affected()
    assert sorted(await lines(log, 6)) == [
        "end",
        "log RuntimeError",
        "progress RuntimeError",
        "slow RuntimeError",
        "spawn RuntimeError",
        "step RuntimeError",
    ]
    assert (await harness.job(job.id)).version == job.version
    await following.is_not_affected()


async def test_answers_that_nobody_waits_for(harness: EngineHarness, following_async: Next) -> None:
    job = await harness.run("cancels_its_steps")
    assert result(job) == "went on" and len(job.steps) == 10
    await following_async.is_not_affected()


async def test_a_thread_that_asks_too_late_is_answered(
    harness: EngineHarness, following: Next, log: Path
) -> None:
    """It reads from the child's socket: without an answer it would take the next jobs for its own."""
    job = await harness.run("thread_asks_too_late", {"log": str(log)})
    assert result(job) == "returned"
    slow = await harness.submit("sleeps", {"seconds": 0.3})
    assert result(await harness.ended(slow)) == "slept"
    assert await lines(log, 1) == ["stored False"]
    assert (await harness.job(job.id)).version == job.version
    await following.is_not_affected()


# --- descriptors


@pytest.mark.parametrize("what", ["streams", "standard", "replaced"])
async def test_standard_streams_are_put_back(harness: EngineHarness, following: Next, what: str) -> None:
    assert result(await harness.run("closes", {"what": what})) == "closed"
    await following.is_not_affected()


@pytest.mark.parametrize(
    "what",
    [
        *("all", "all and opens", "nonsense"),
        *(pytest.param(what, marks=pytest.mark.soak) for what in ("all and waits", "garbage")),
    ],
)
async def test_a_child_without_its_sockets_is_replaced(
    harness: EngineHarness, following: Next, what: str
) -> None:
    assert error(await harness.run("closes", {"what": what}))[0] == "POISONED"
    await following.has_a_fresh_child()


# --- signals


async def test_blocked_signals_are_let_through_again(
    harness: EngineHarness, following: Next, log: Path
) -> None:
    assert result(await harness.run("blocks_signals", {"log": str(log), "stay": False})) == "blocked"
    await following.is_not_affected()
    await _can_be_interrupted(harness)


async def test_a_handler_that_blocks_signals_and_does_not_listen(
    harness: EngineHarness, following: Next, log: Path
) -> None:
    job = await harness.started("blocks_signals", {"log": str(log), "stay": True})
    await lines(log, 1)
    await harness.cancel(job.id)
    assert (await harness.ended(job.id)).status is Status.CANCELLED
    await following.has_a_fresh_child()


async def test_signal_handlers_and_the_alarm_are_put_back(
    harness: EngineHarness, following: Next
) -> None:
    assert result(await harness.run("replaces_handlers")) == "replaced"
    await following.is_not_affected()
    assert result(await harness.run("sleeps", {"seconds": 0.4})) == "slept"  # no alarm
    await following.is_not_affected()
    await _can_be_interrupted(harness)


async def test_a_job_without_a_stop_request_is_not_interrupted(
    harness: EngineHarness, following: Next
) -> None:
    assert result(await harness.run("interrupts_itself")) == "went on"
    await following.is_not_affected()


async def _can_be_interrupted(harness: EngineHarness) -> None:
    job = await harness.started("sleeps", {"seconds": 60})
    pid = harness.pid(job.id)
    await harness.cancel(job.id)
    assert (await harness.ended(job.id)).status is Status.CANCELLED
    assert result(await harness.run("look"))["pid"] == pid


# --- threads and loops


@pytest.mark.parametrize("daemon", [True, False])
async def test_threads_without_end(harness: EngineHarness, following: Next, daemon: bool) -> None:
    assert result(await harness.run("leaves_threads", {"daemon": daemon})) == "left"
    await following.is_not_affected()


@pytest.mark.parametrize("kind", ["leaves_threads", "leaves_threads_async"])
async def test_a_child_with_threads_without_end_leaves_when_it_is_asked(opened: Open, kind: str) -> None:
    harness = await opened(APP, workers=1, grace=30.0)
    assert result(await harness.run(kind, {} if "async" in kind else {"daemon": False})) == "left"
    begin = time.monotonic()
    await harness.stop()
    assert time.monotonic() - begin < 15  # by itself: it would be killed after 30


async def test_a_loop_inside_a_sync_handler(harness: EngineHarness, following: Next) -> None:
    assert result(await harness.run("runs_a_loop")) == "looped"
    await following.is_not_affected()


async def test_a_handler_that_blocks_the_loop_for_a_while(
    harness: EngineHarness, following_async: Next, log: Path
) -> None:
    other = await harness.started("naps", {"seconds": 0.1})
    job = await harness.run("blocks_the_loop", {"seconds": 0.8, "log": str(log)})
    assert result(job) == "blocked"
    assert result(await harness.ended(other.id)) == "rested"
    await following_async.is_not_affected()


async def test_a_handler_that_blocks_the_loop_for_ever(
    harness: EngineHarness, following_async: Next, log: Path
) -> None:
    other = await harness.started("naps", {"seconds": 1.0})
    job = await harness.started("blocks_the_loop", {"seconds": 1000, "log": str(log)})
    await lines(log, 1)
    await harness.cancel(job.id)
    assert (await harness.ended(job.id)).status is Status.CANCELLED
    neighbour = await harness.ended(other.id)  # handed back, and run again
    assert result(neighbour) == "rested" and neighbour.losses == 0
    await following_async.has_a_fresh_child()


# --- the process as a whole


@pytest.mark.parametrize("what", ["folder", "deleted folder", "umask", "recursion", "limits", "python"])
async def test_what_a_handler_changes_around_it_is_put_back(
    harness: EngineHarness, following: Next, what: str
) -> None:
    job = await harness.run("moves", {"what": what})
    assert job.status is Status.DONE and job.result_file is not None, job.error
    path = harness.service.blobs.fetch(job.result_file, Path())
    assert path.stat().st_size == 100_002 and path.stat().st_mode & 0o777 == 0o600
    await following.is_not_affected()


async def test_a_handler_that_replaces_the_clock(harness: EngineHarness, following: Next) -> None:
    job = await harness.run("moves", {"what": "clock"})
    assert job.status is Status.DONE
    try:
        await following.is_not_affected()
        await _can_be_interrupted(harness)  # the pulse has its own
    finally:
        await harness.run("mends")


async def test_what_cannot_be_put_back_makes_a_child_leave(
    harness: EngineHarness, following: Next
) -> None:
    job = await harness.submit("loses_its_rights")
    behind = [await harness.submit(kind) for kind in ("once", "look", "once")]
    assert result(await harness.ended(job)) == "done"
    jobs = [await harness.ended(i) for i in behind]
    assert all(j.status is Status.DONE and j.losses == 0 and j.attempt == 1 for j in jobs), jobs
    await following.has_a_fresh_child()


async def test_an_async_child_leaves_too(harness: EngineHarness, following_async: Next) -> None:
    assert result(await harness.run("loses_its_rights_async")) == "done"
    await following_async.has_a_fresh_child()


async def test_those_in_line_behind_it_run_in_another_child(
    harness: EngineHarness, following: Next
) -> None:
    for _ in range(30):  # until it is known to be short
        await harness.run("may_lose_its_rights", {"loses": False})
    ids = [await harness.submit("may_lose_its_rights", {"loses": n == 10}) for n in range(60)]
    jobs = [await harness.ended(i) for i in ids]
    assert all(job.losses == 0 and job.attempt == 1 for job in jobs)
    pids = [result(job) for job in jobs]
    assert len(set(pids)) == 2 and pids[0] == pids[10] and pids[10] not in pids[11:]
    await following.has_a_fresh_child()
