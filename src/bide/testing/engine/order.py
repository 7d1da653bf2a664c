"""Which job runs next: priorities, limits, pauses and times; and which workers exist."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from msgspec.structs import replace

from bide.core.clock import render_instant
from bide.core.jobs.record import Status
from bide.server.intake import Submission
from bide.testing.engine.ends import begun
from bide.testing.engine.harness import EngineHarness, result


class OrderTests:
    async def test_a_paused_queue_waits_and_then_goes_by_priority_within_its_limit(
        self, harness: EngineHarness, log: Path
    ) -> None:
        await harness.store.pause("narrow", True)
        ids = [
            await harness.submit("narrow", {"name": name, "log": str(log)}, priority=priority)
            for name, priority in [("a", 0), ("b", 5), ("c", 0)]
        ]
        assert result(await harness.run("add", {"a": 1})) == 2  # other queues continue meanwhile
        assert [(await harness.job(i)).status for i in ids] == [Status.PENDING] * 3
        await harness.store.pause("narrow", False)
        harness.service.engine.hint("narrow", "narrow")
        for i in ids:
            await harness.ended(i)
        assert log.read_text().split("\n")[:-1] == [
            f"{what} {name}" for name in "bac" for what in ("begin", "end")
        ]

    async def test_tenants_take_turns(self, harness: EngineHarness, log: Path) -> None:
        await harness.store.pause("narrow", True)
        ids = []
        for tenant in "aaaab":
            given = {"name": tenant, "log": str(log)}
            submission = Submission(kind="narrow", input=msgspec.Raw(msgspec.json.encode(given)))
            new = await harness.service.intake.prepare(submission, trace_id="t")
            await harness.store.insert([replace(new, job=replace(new.job, tenant=tenant))])
            ids.append(new.job.id)
        await harness.store.pause("narrow", False)
        harness.service.engine.hint("narrow", "narrow")
        for i in ids:
            await harness.ended(i)
        begun_by = [line[-1] for line in log.read_text().splitlines() if line.startswith("begin")]
        # The first claim may be of the hinted kind only, and the next one of all kinds. Each has turns of its own, so two
        # jobs of `a` may be first.
        assert sorted(begun_by) == list("aaaab") and begun_by.index("b") <= 2

    async def test_at_most_so_many_jobs_of_a_key_run_at_once(
        self, harness: EngineHarness, log: Path
    ) -> None:
        ids = [
            await harness.submit("one_per_customer", {"customer": customer, "log": str(log)})
            for customer in ("x", "x", "x", "y", "x")
        ]
        for i in ids:
            await harness.ended(i)
        of_x = [line for line in log.read_text().splitlines() if line.endswith("x")]
        assert of_x == ["begin x", "end x"] * 4

    async def test_a_job_waits_for_its_time(self, harness: EngineHarness) -> None:
        at = harness.store.now() + 0.4
        job = await harness.run("add", {"a": 1}, run_at=render_instant(at))
        assert job.started_at is not None and job.started_at >= at - 0.001

    async def test_one_queue_does_not_wait_behind_another(
        self, harness: EngineHarness, log: Path
    ) -> None:
        long = [await harness.submit("sleep", {"seconds": 60, "log": str(log)}) for _ in range(3)]
        await begun(log)
        assert (await harness.run("child", {"number": 2})).status is Status.DONE
        for job_id in long:
            await harness.cancel(job_id)
        for job_id in long:
            assert (await harness.ended(job_id)).status is Status.CANCELLED

    async def test_who_is_there_is_known(self, harness: EngineHarness) -> None:
        engine = harness.service.engine
        assert engine.serves("default") and engine.serves("narrow")
        assert not engine.serves("elsewhere")
        assert engine.warnings() == []
        assert await engine.confirm_served("narrow") and not await engine.confirm_served("elsewhere")
        async with asyncio.timeout(20):
            while not any(worker.state == "idle" for worker in engine.workers()):
                await asyncio.sleep(0.05)
        assert {worker.runs for worker in engine.workers()} == {"sync", "async"}
