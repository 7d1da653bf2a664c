"""Handlers that call a dependency through a breaker."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bide.core.jobs.record import Status
from bide.testing.engine.harness import PATIENCE, EngineHarness, result


class Dependencies:
    async def test_jobs_wait_while_a_dependency_fails_and_use_up_no_attempts(
        self, harness: EngineHarness, log: Path, tmp_path: Path
    ) -> None:
        down = tmp_path / "down"
        down.touch()
        for _ in range(3):  # the dependency works, so the breaker stays closed
            job = await harness.run("rejected")
            assert job.error is not None and job.error.code == "LOOKUP_ERROR"
        assert (await harness.store.breaker("vendor")).status == "closed"
        where = {"down": str(down), "log": str(log)}
        ids = [await harness.submit(kind, where) for kind in ("calls", "calls_async") * 3]
        for job_id in ids:
            await harness.until(job_id, lambda job: job.status is Status.RETRYING)
        async with asyncio.timeout(PATIENCE):  # until a probe has failed
            while (await harness.store.breaker("vendor")).opened < 2:
                await asyncio.sleep(0.02)
        waiting = await harness.submit("calls", where)
        job = await harness.until(waiting, lambda job: job.status is Status.RETRYING)
        assert job.error is not None and job.error.retryable and job.next_attempt_at is not None
        cancelled = await harness.submit("calls", where)
        await harness.until(cancelled, lambda job: job.status is Status.RETRYING)
        await harness.cancel(cancelled)
        assert (await harness.job(cancelled)).status is Status.CANCELLED
        down.unlink()
        for job_id in (*ids, waiting):
            job = await harness.ended(job_id)
            assert result(job) == job_id
            assert job.failures <= 1, "only the calls that opened the breaker count"
        assert (await harness.store.breaker("vendor")).status == "closed"
        lines = [e.job["log"]["message"] for e in await harness.events(waiting) if e.type == "log"]
        assert "the job waits, because the breaker 'vendor' is open" in lines
