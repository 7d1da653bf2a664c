"""Children that die under their jobs."""

from __future__ import annotations

from pathlib import Path

from bide.testing.engine.house import House, result


class Losses:
    async def test_a_lost_child_uses_no_attempt_up_and_no_kept_step(
        self, house: House, log: Path
    ) -> None:
        job = await house.run("dies", {"log": str(log), "times": 2})
        assert result(job) == "survived"
        assert (job.attempt, job.losses, job.fence) == (1, 2, 3)
        assert log.read_text().split() == ["step", "1", "2", "3"]

    async def test_three_lost_children_poison_a_job(self, house: House, log: Path) -> None:
        job = await house.run("dies", {"log": str(log)})
        assert job.error is not None and job.error.code == "POISONED"
        assert log.read_text().split() == ["step", "1", "2", "3"]

    async def test_at_most_once_does_not_run_again(self, house: House, log: Path) -> None:
        job = await house.run("once", {"log": str(log)})
        assert job.error is not None and job.error.code == "WORKER_LOST"
        assert log.read_text().split() == ["ran"]
