"""The log of a job: the records of `logging` and the exceptions of its handler."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bide.core.jobs.record import Job, Status
from bide.server.config import Config, UpkeepConfig, WorkerConfig
from bide.server.worker.job_log import BURST
from bide.testing.engine.harness import EngineHarness
from tests.stores import store_config

pytestmark = pytest.mark.asyncio(loop_scope="module")
LOGGER = "shop.pages"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EngineHarness]:
    folder = tmp_path_factory.mktemp("logs")
    config = Config(
        data=folder,
        store=store_config(folder),
        worker=WorkerConfig(workers=1, grace=2.5, drain=0.0),
        upkeep=UpkeepConfig(interval=0.05),
    )
    harness = EngineHarness("tests.apps.loggers", config)
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()


async def lines(harness: EngineHarness, job: Job) -> list[dict[str, Any]]:
    events = await harness.store.events(job_id=job.id, limit=20_000)
    return [e.job["log"] for e in events if e.type == "log"]


def record(level: str, message: str) -> dict[str, Any]:
    return {"level": level, "logger": LOGGER, "message": message}


async def test_records_have_level_logger_and_message(harness: EngineHarness) -> None:
    job = await harness.run("says_everything")
    found = await lines(harness, job)
    assert found[:2] == [record("info", "between"), record("critical", "\\ud800 half a character")]
    assert (found[2]["level"], found[2]["logger"]) == ("error", LOGGER)
    first, *_, last = found[2]["message"].splitlines()
    assert (first, last) == ("outer", "ValueError: inner")
    assert found[3] == record("error", "from a thread")
    assert found[4] == {"message": "by hand", "level": "warning", "page": 3}
    assert len(found) == 5


async def test_a_flood_is_limited_and_the_log_says_so(harness: EngineHarness) -> None:
    job = await harness.run("talks", {"count": 20_000})
    assert job.status is Status.DONE
    found = await lines(harness, job)
    kept = [line for line in found if line["logger"] == LOGGER]
    # More than a burst, by the rate and the time that the loop takes.
    assert BURST <= len(kept) < 10_000
    assert [line["message"] for line in kept[:BURST]] == [f"line {n}" for n in range(BURST)]
    notes = [line["message"] for line in found if line["logger"] == "bide"]
    assert notes == [
        "the attempt logs more than 100 records per second: records are dropped",
        f"{20_000 - len(kept)} records were dropped: the attempt logs more than 100 records per second",
    ]
    assert await lines(harness, await harness.run("talks")) == [record("info", "line 0")]


async def test_a_signal_handler_logs_at_any_moment(harness: EngineHarness) -> None:
    job = await harness.run("interrupted")
    assert job.status is Status.DONE
    alarms = [line for line in await lines(harness, job) if line["message"].startswith("alarm")]
    assert alarms[0] == record("info", "alarm 1")


async def test_async_jobs_that_run_together_have_their_own_logs(
    harness: EngineHarness, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    ids = [await harness.submit("together", {"name": name, "until": str(go)}) for name in "ab"]
    for job_id in ids:
        await harness.until(job_id, lambda job: job.running)
    go.touch()
    for name, job_id in zip("ab", ids, strict=True):
        found = await lines(harness, await harness.ended(job_id))
        assert [line["message"] for line in found] == [
            f"{name} begins",
            f"{name} in a thread",
            f"{name} ends",
        ]


async def test_a_handler_that_configures_logging_affects_only_itself(harness: EngineHarness) -> None:
    assert (await harness.run("reconfigures")).status is Status.DONE
    assert await lines(harness, await harness.run("talks")) == [record("info", "line 0")]


async def test_a_forked_process_does_not_log(harness: EngineHarness) -> None:
    job = await harness.run("fork")
    assert await lines(harness, job) == [record("info", "after the fork")]


async def test_the_last_record_before_a_crash_is_stored(harness: EngineHarness) -> None:
    job = await harness.run("dies")
    assert job.error is not None and job.error.code == "POISONED"
    assert await lines(harness, job) == [record("info", "last words")] * 3


async def test_the_service_logs_an_exception_with_traceback_and_job(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "bide.engine"):
        job = await harness.run("breaks")
    first, last = [r for r in caplog.records if job.id in r.getMessage()]
    assert first.levelno == last.levelno == logging.ERROR
    begin = f"job {job.id}: attempt {{}} of 2 of 'breaks' failed in step 'count'"
    assert first.getMessage().startswith(begin.format(1) + " and will be retried: KEY_ERROR: ")
    assert last.getMessage().startswith(begin.format(2) + ": KEY_ERROR: ")
    for said in (first, last):
        assert "\nTraceback (most recent call last):\n" in said.getMessage()
        assert said.getMessage().rstrip().endswith("KeyError: 'missing'")


@pytest.mark.parametrize("caused", [False, True])
async def test_a_job_error_has_a_traceback_only_with_a_cause(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture, caused: bool
) -> None:
    with caplog.at_level(logging.WARNING, "bide.engine"):
        job = await harness.run("refuses", {"caused": caused})
    (said,) = [r for r in caplog.records if job.id in r.getMessage()]
    assert ("LookupError: no page 7" in said.getMessage()) == caused
    assert said.levelno == (logging.ERROR if caused else logging.WARNING)
    assert len(await lines(harness, job)) == int(caused)


async def test_lines_have_the_time_when_they_were_logged(harness: EngineHarness) -> None:
    job = await harness.run("talks", {"count": 5})
    events = [e for e in await harness.events(job.id) if e.type == "log"]
    times = [e.job["loggedAt"] for e in events]
    assert times == sorted(times)
    assert all(job.started_at is not None and job.started_at <= at for at in times)
    assert all(e.job["loggedAt"] <= e.at for e in events)


async def test_a_secret_of_the_input_is_hidden_in_logs_errors_and_progress(
    harness: EngineHarness,
) -> None:
    job = await harness.run("leaks", {"token": "open sesame"})
    assert job.status is Status.ERROR and job.error is not None
    assert job.error.message == "bad token [secret]"
    found = await lines(harness, job)
    assert found[0]["message"] == "the token is [secret]"
    assert found[1]["where"] == {"[secret]": ["[secret]"]}
    events = await harness.store.events(job_id=job.id)
    (output,) = [event.job["output"] for event in events if event.type == "output"]
    assert output == {"token": "[secret]", "[secret]": ["<[secret]>", 4711]}
    assert "sesame" not in f"{events}{job.progress}{job.error}"


async def test_a_secret_number_is_hidden_in_output_and_partial_errors(harness: EngineHarness) -> None:
    job = await harness.run("leaks_partly", {"pin": 471_100})
    assert job.status is Status.PARTIAL_SUCCESS and job.error is not None
    assert job.error.errors == [{"code": "BAD_PIN", "message": "[secret] is wrong", "pin": "[secret]"}]
    assert "471100" not in f"{await harness.store.events(job_id=job.id)}"
