"""The composition root: builds one service from an app and its configuration."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import cast

from bide.core.errors import SetupError
from bide.core.jobs.record import Job
from bide.core.wire.http import Event
from bide.server.blobs.factory import make_blobs, signing_for
from bide.server.config import Config
from bide.server.engine import Engine
from bide.server.engine.embedded import EmbeddedEngine
from bide.server.estimates import Estimates
from bide.server.http import Components
from bide.server.http.app import HttpApp
from bide.server.intake import Intake
from bide.server.notifier import Notifier
from bide.server.progress.publisher import ProgressPublisher
from bide.server.registry import Registry
from bide.server.store import NewJob, UploadRecords
from bide.server.upkeep import Upkeep
from bide.server.uploads.chunks import Chunks
from bide.server.uploads.expiry import UploadExpiry
from bide.server.uploads.presigned import Presigned
from bide.server.uploads.staging import Staging
from bide.server.uploads.upload_jobs import UploadJobs
from bide.server.uploads.upload_service import UploadService, UploadStore
from bide.server.worker import app_location
from bide.server.worker.app_location import AppLocation
from bide.server.worker.protocol import Spawn
from bide.server.worker.supervisor import Pool, PoolListener
from bide.service.backends import check_engine, make_celery_engine, make_progress_store, make_store
from bide.service.data_folder import DataFolder

log = logging.getLogger("bide")


class Service:
    """Store, engine, upkeep and HTTP interface of one app."""

    def __init__(self, registry: Registry, location: AppLocation, config: Config) -> None:
        registry.check()
        check_engine(config)
        self.config = config
        self._location = location
        self.folder = DataFolder(config.data)
        self.store = make_store(config.store, self.folder)
        self._blobs_url = config.blobs.url or str(self.folder.blobs)
        self.blobs = make_blobs(self._blobs_url)
        self.notify = Notifier()
        self.estimates = Estimates()
        self.progress = ProgressPublisher(
            make_progress_store(config.progress, config.store, config.engine.broker),
            self.notify.notify,
            self.notify.has_subscribers,
        )
        embedded = config.engine.name == "embedded"
        self.engine: Engine = (
            self._embedded(registry) if embedded else make_celery_engine(registry, self.store, config)
        )
        # Workers of other processes must find the job in the store, so they get a hint only after the commit.
        hint = self.engine.hint if embedded else lambda queue, kind: None
        is_served = None if config.engine.allow_unknown_queues else self.engine.confirm_served
        self.intake = Intake(registry, self.store, hint, is_served)
        self.uploads = self._make_uploads(registry)
        self.upkeep = Upkeep(
            self.store,
            self.blobs,
            registry,
            self.estimates,
            config.upkeep,
            self.engine.hint,
            work=self.folder.work,
            lease=config.worker.lease,
        )
        self.upkeep.holds = self.engine.holds
        self.upkeep.progress = self.progress
        self.presigned = Presigned(self.uploads, signing_for(self.blobs, self.store.now))
        self.upkeep.extra_tasks += [
            UploadExpiry(self.uploads, self.upkeep.orphans).tick,
            self.presigned.tick,
        ]
        self.components = Components(
            config,
            registry,
            self.store,
            self.blobs,
            self.engine,
            self.intake,
            self.notify,
            self.estimates,
            self.progress,
            self.uploads,
            Chunks(self.uploads),
            self.presigned,
        )
        self.http = HttpApp(self.components)

    def _embedded(self, registry: Registry) -> EmbeddedEngine:
        return EmbeddedEngine(
            registry,
            self.store,
            self.config.worker,
            self.folder,
            self._pool,
            prepare_spawn=self._prepare_spawn,
            progress=self.progress,
        )

    def _make_uploads(self, registry: Registry) -> UploadService:
        assert isinstance(self.store, UploadRecords)
        store = cast(UploadStore, self.store)
        staging = Staging(self.folder.uploads)
        jobs = UploadJobs(registry, self.intake)
        return UploadService(store, self.blobs, jobs, staging, self.config.uploads)

    def _pool(self, listener: PoolListener, sync: int, is_async: int) -> Pool:
        beat = min(self.config.worker.lease / 6, 5.0)
        return Pool(
            self._location,
            self.folder.path,
            blobs=self._blobs_url,
            sync=sync,
            is_async=is_async,
            beat=beat,
            listener=listener,
        )

    async def start(self) -> None:
        if app_location.in_child:
            raise SetupError(
                "a handler child tried to start a service, because importing the module of the app starts one: "
                'move that code under `if __name__ == "__main__":`'
            )
        self.loop, self.thread = asyncio.get_running_loop(), threading.get_ident()
        self.folder.lock()
        try:
            await self.store.open(self._on_events, self.engine.hint, self._reset)
            try:
                await self._begin()
            except BaseException:
                await self.progress.close()
                await self.store.close()
                raise
        except BaseException:
            self.folder.unlock()
            raise

    async def _begin(self) -> None:
        self.uploads.open(self.folder.replica)
        self.estimates.load(await self.store.durations())
        # The folder is locked, so claims under its name belong to a process that has ended.
        lost = await self.store.void(f"{self.folder.replica}:")
        if lost:
            log.info("%d jobs were running when the previous service ended; they run again", lost)
        await self.upkeep.recover()
        await self.progress.open()
        await self.engine.start()
        await self.upkeep.start()

    async def stop(self, drain: float | None = None) -> None:
        """Calls `drain` and `close`. If there is a listener, stop it in between, because open requests need the store."""
        await self.drain(drain)
        await self.close()

    async def drain(self, seconds: float | None = None) -> None:
        """Waits for running jobs, returns the rest to the queue, and ends long polls. Requests are still answered."""
        self.http.health.stopping = True
        await self.engine.stop(self.config.worker.drain if seconds is None else seconds)
        self.notify.close()

    async def close(self) -> None:
        """Closes the store and the other components. Call it after the last request."""
        await self.upkeep.stop()
        await self.progress.close()
        await asyncio.to_thread(self.uploads.staging.close)
        await self.blobs.close()
        await self.store.close()
        self.folder.unlock()

    async def _prepare_spawn(self, message: Spawn, parent: Job) -> NewJob:
        """Calls the intake, which is created after the engine."""
        return await self.intake.prepare_spawn(message, parent)

    def _on_events(self, events: Sequence[Event]) -> None:
        self.engine.on_events(events)
        self.notify.on_events(events)
        self.estimates.on_events(events)
        self.upkeep.on_events(events)
        self.http.on_events(events)

    def _reset(self) -> None:
        """Clears all caches after the store has lost events that were already reported."""
        self.progress.forget()
        self.http.forget()
        self.engine.reset()
        self.notify.notify_all()
