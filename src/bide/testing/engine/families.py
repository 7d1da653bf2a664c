"""Jobs that spawn jobs, and wait for them without holding a worker."""

from __future__ import annotations

from pathlib import Path

from bide.core.jobs.record import Status
from bide.testing.engine.harness import EngineHarness, result


class Families:
    async def test_a_parent_is_parked_while_its_children_run(
        self, harness: EngineHarness, log: Path
    ) -> None:
        job = await harness.run("family", {"log": str(log)})
        assert result(job) == [0, 10, 20]
        assert job.attempt == 1
        assert log.read_text().split() == ["parent", "parent"]
        children = [await harness.job(c.job_id) for c in job.children]
        assert {(c.queue, c.parent) for c in children} == {("children", job.id)}

    async def test_a_failed_child_fails_its_parent(self, harness: EngineHarness, log: Path) -> None:
        job = await harness.run("family", {"log": str(log), "bad": 1})
        assert job.error is not None and job.error.code == "CHILD_FAILED"

    async def test_cancelling_a_parked_parent_stops_its_running_children(
        self, harness: EngineHarness, log: Path
    ) -> None:
        job_id = await harness.submit("waits_long", {"log": str(log)})
        parent = await harness.until(job_id, lambda job: job.parked)
        child_id = parent.children[0].job_id
        await harness.until(child_id, lambda job: job.running)
        await harness.cancel(job_id)
        assert (await harness.job(job_id)).status is Status.CANCELLED
        assert (await harness.ended(child_id)).status is Status.CANCELLED
