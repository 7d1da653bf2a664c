"""Child processes that die while they run a job."""

from __future__ import annotations

from pathlib import Path

from bide.testing.engine.harness import EngineHarness, result


class Losses:
    async def test_a_lost_child_uses_no_attempt_up_and_no_kept_step(
        self, harness: EngineHarness, log: Path
    ) -> None:
        job = await harness.run("dies", {"log": str(log), "times": 2})
        assert result(job) == "survived"
        assert (job.attempt, job.losses, job.fence) == (1, 2, 3)
        assert log.read_text().split() == ["step", "1", "2", "3"]

    async def test_three_lost_children_poison_a_job_and_one_ends_what_may_run_only_once(
        self, harness: EngineHarness, log: Path, tmp_path: Path
    ) -> None:
        only = tmp_path / "once"
        deadly = await harness.submit("dies", {"log": str(log)})
        once = await harness.submit("once", {"log": str(only)}, queue="children")
        ended = [await harness.ended(deadly), await harness.ended(once)]
        assert [job.error and job.error.code for job in ended] == ["POISONED", "WORKER_LOST"]
        assert log.read_text().split() == ["step", "1", "2", "3"]
        assert only.read_text().split() == ["ran"]

    async def test_a_job_that_comes_further_each_time_outlives_more_losses(
        self, harness: EngineHarness
    ) -> None:
        for by_step in (True, False):
            job = await harness.run("climbs", {"times": 2, "by_step": by_step})
            assert result(job) == "survived"
            assert (job.attempt, job.losses, job.fence) == (1, 2, 3)

    async def test_a_kind_can_bear_fewer_losses(self, harness: EngineHarness, log: Path) -> None:
        job = await harness.run("fragile", {"log": str(log)})
        assert job.error is not None and job.error.code == "POISONED"
        assert "1 worker was lost" in job.error.message and "max_losses=1" in job.error.message
        assert log.read_text().split() == ["ran"]
