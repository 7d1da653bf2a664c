"""A real service in the process of the test, and helpers to inspect it. Its jobs run in real child processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import cancel
from bide.core.wire.http import Event
from bide.server.config import Config
from bide.server.intake import Submission
from bide.server.worker.app_location import AppLocation
from bide.service.assembly import assemble

PATIENCE = 30.0


class EngineHarness:
    def __init__(self, module: str, config: Config) -> None:
        location = AppLocation(module)
        self.registry = location.load()
        self.service = assemble(self.registry, location, config)
        self.store = self.service.store
        self._open = False

    async def start(self) -> None:
        await self.service.start()
        self._open = True

    async def stop(self) -> None:
        if self._open:
            self._open = False
            await self.service.stop()

    async def ready(self) -> None:
        """Wait until jobs can run."""
        async with asyncio.timeout(PATIENCE):
            while self.service.engine.warnings():
                await asyncio.sleep(0.02)

    async def submit(self, kind: str, input: dict[str, Any] | None = None, **options: Any) -> str:
        submission = Submission(
            kind=kind, input=msgspec.Raw(msgspec.json.encode(input or {})), **options
        )
        inserted = await self.service.intake.submit(submission, trace_id="t")
        return inserted.job.id

    async def job(self, job_id: str) -> Job:
        (found,) = await self.store.get([job_id])
        assert isinstance(found, Job)
        return found

    async def until(self, job_id: str, met: Callable[[Job], bool]) -> Job:
        """Wait for the event that makes the condition true; never sleeps."""
        async with asyncio.timeout(PATIENCE):
            with self.service.notify.subscribe(job_id) as watch:
                while not met(job := await self.job(job_id)):
                    await watch.wait(PATIENCE)
        return job

    async def ended(self, job_id: str) -> Job:
        return await self.until(job_id, lambda job: job.status.terminal)

    async def run(self, kind: str, input: dict[str, Any] | None = None, **options: Any) -> Job:
        return await self.ended(await self.submit(kind, input, **options))

    async def started(self, kind: str, input: dict[str, Any] | None = None, **options: Any) -> Job:
        job_id = await self.submit(kind, input, **options)
        job = await self.until(job_id, lambda job: job.running)
        while not any(job_id in worker.jobs for worker in self.service.engine.workers()):
            await asyncio.sleep(0.001)  # claimed, but not yet passed to a child
        return job

    async def cancel(self, job_id: str) -> None:
        """Cancel as the service does: if a worker claims the job meanwhile, decide again."""
        while not isinstance((await self.store.apply([cancel(await self.job(job_id))]))[0], Job):
            pass

    async def statuses(self, job_id: str) -> list[str]:
        return [e.job["status"] for e in await self.events(job_id) if e.type == "status"]

    async def events(self, job_id: str) -> list[Event]:
        return await self.store.events(job_id=job_id)

    def pid(self, job_id: str) -> int:
        (worker,) = [w for w in self.service.engine.workers() if job_id in w.jobs]
        return worker.pid


def result(job: Job) -> Any:
    assert job.status in (Status.DONE, Status.PARTIAL_SUCCESS), job.error
    return None if job.result is None else msgspec.json.decode(job.result)
