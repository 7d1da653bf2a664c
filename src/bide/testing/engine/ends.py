"""How attempts end: with a result, an error, a limit or a cancel."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bide.core.jobs.record import Status
from bide.testing.engine.harness import EngineHarness, result


class Ends:
    async def test_a_job_runs_and_returns_its_result(self, harness: EngineHarness) -> None:
        job = await harness.run("add", {"a": 2, "b": 3})
        assert result(job) == 5
        assert (job.attempt, job.losses, job.fence) == (1, 0, 1)
        assert await harness.statuses(job.id) == ["PENDING", "PROCESSING", "DONE"]

    async def test_async_handlers_run_side_by_side(self, harness: EngineHarness) -> None:
        ids = [await harness.submit("nap", {"seconds": 0.4}) for _ in range(60)]
        async with asyncio.timeout(20):  # in sequence they would take 24
            assert {result(await harness.ended(i)) for i in ids} == {"rested"}

    async def test_each_job_of_a_crowd_runs_once(self, harness: EngineHarness, log: Path) -> None:
        ids = [await harness.submit("runs_once", {"log": str(log)}) for _ in range(100)]
        for job_id in ids:
            assert (await harness.ended(job_id)).status is Status.DONE
        assert sorted(log.read_text().split()) == sorted(ids)

    async def test_failures_are_tried_again(self, harness: EngineHarness, log: Path) -> None:
        job = await harness.run("fails", {"log": str(log), "times": 1})
        assert result(job) == 2
        assert await harness.statuses(job.id) == [
            *("PENDING", "PROCESSING", "RETRYING"),
            *("PROCESSING", "DONE"),
        ]

    async def test_when_retries_are_used_up_the_error_stays(
        self, harness: EngineHarness, log: Path
    ) -> None:
        job = await harness.run("fails", {"log": str(log)})
        assert job.status is Status.ERROR and job.error is not None
        assert (job.error.code, job.error.attempt) == ("NOT_YET", 3)
        assert log.read_text().split() == ["1", "2", "3"]

    async def test_a_timeout_and_a_stall_end_the_attempt(self, harness: EngineHarness) -> None:
        slow = await harness.submit("too_slow")
        still = await harness.submit("stalls", queue="children")
        ended = [await harness.ended(slow), await harness.ended(still)]
        assert [job.error and job.error.code for job in ended] == ["TIMEOUT", "STALLED"]

    async def test_a_waiting_job_is_cancelled_at_once(self, harness: EngineHarness) -> None:
        job_id = await harness.submit("add", {"a": 1}, run_at="2100-01-01T00:00:00Z")
        await harness.cancel(job_id)
        assert await harness.statuses(job_id) == ["PENDING", "CANCELLED"]

    async def test_a_cancel_reaches_a_running_handler(self, harness: EngineHarness, log: Path) -> None:
        job_id = await harness.submit("sleep", {"seconds": 60, "log": str(log)})
        await begun(log)
        await harness.cancel(job_id)
        async with asyncio.timeout(10):  # uncancelled it would take a minute
            assert (await harness.ended(job_id)).status is Status.CANCELLED

    async def test_the_last_progress_is_part_of_the_record(
        self, harness: EngineHarness, log: Path, tmp_path: Path
    ) -> None:
        go = tmp_path / "go"
        job_id = await harness.submit("halfway", {"log": str(log), "go": str(go)})
        await begun(log)
        running = await harness.until(job_id, lambda job: job.running)
        go.touch()
        job = await harness.ended(job_id)
        assert job.progress is not None
        assert (job.progress.percent, job.progress.message) == (50, "Reading")
        assert job.version == running.version + 1  # progress is not a version of the row

    async def test_the_handler_knows_its_trace_and_steps_have_times(
        self, harness: EngineHarness
    ) -> None:
        job = await harness.run("traces")
        assert result(job) == job.trace_id == "t"
        assert [step.name for step in job.steps] == ["first", "second"]
        assert job.started_at is not None and job.finished_at is not None
        times = [at for step in job.steps for at in (step.started_at, step.finished_at)]
        assert None not in times
        assert [job.started_at, *times, job.finished_at] == sorted(
            [job.started_at, *filter(None, times), job.finished_at]
        )

    async def test_log_lines_and_files_are_kept(self, harness: EngineHarness) -> None:
        job = await harness.run("logs")
        (line,) = [e.job["log"] for e in await harness.events(job.id) if e.type == "log"]
        assert line == {"message": "hello", "page": 3}
        assert (
            b"".join([piece async for piece in await harness.service.blobs.open(job.files[0].blob)])
            == b"hello"
        )

    async def test_output_is_stored_in_order_before_the_end(self, harness: EngineHarness) -> None:
        job = await harness.run("emits", {"chunks": 300})
        events = [e for e in await harness.events(job.id) if e.type in ("output", "step", "status")]
        assert events[-1].job["status"] == Status.DONE
        output = [e.job for e in events if e.type == "output"]
        assert sorted({e["generation"] for e in output}) == [1, 2]
        for attempt in (1, 2):
            chunks = [e for e in output if e["generation"] == attempt]
            texts = ["the last text"] if attempt == 2 else []
            expected = [{"attempt": attempt, "number": number} for number in range(300)]
            assert [e["output"] for e in chunks] == expected + texts
            assert [e["index"] for e in chunks] == list(range(len(chunks)))
        # What was emitted before a step is stored before it.
        kept = next(i for i, e in enumerate(events) if e.type == "step")
        assert [e.type for e in events[kept:]].count("output") == 1

    async def test_records_of_logging_and_the_traceback_are_in_the_log(
        self, harness: EngineHarness
    ) -> None:
        job = await harness.run("logs_records")
        assert job.error is not None and job.error.failed_step == "read"
        lines = [e.job["log"] for e in await harness.events(job.id) if e.type == "log"]
        assert lines[:2] == [
            {"level": "info", "logger": "engine.handlers", "message": "page 1 of 2"},
            {"level": "warning", "logger": "engine.handlers", "message": "page 2 is empty"},
        ]
        (trace,) = lines[2:]
        assert trace["level"] == "error"
        assert trace["message"].startswith("Traceback (most recent call last):")
        assert "ValueError: invalid literal for int()" in trace["message"]


async def begun(log: Path) -> None:
    """Wait until the handler has written its first line."""
    async with asyncio.timeout(20):
        while not log.read_text():
            await asyncio.sleep(0.01)
