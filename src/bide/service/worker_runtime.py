"""The bide part of a Celery worker process: store, runner and handler children on a separate event loop.

1. It works without the broker too, but with more delay: the runner claims without hints every few seconds.
2. Its folder below the data folder is locked while it runs. A worker that finds an unlocked folder voids the leases of the
   worker that used it.
3. Services do the upkeep; a worker recovers no jobs of others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bide.server.config import Config
from bide.server.engine.celery.hint_consumer import HintConsumer
from bide.server.engine.celery.worker_heartbeats import HEARTBEAT, WorkerHeartbeat, write
from bide.server.registry import Registry
from bide.server.store import SharedStore, StoreUnavailable
from bide.server.worker import app_location, work_folders
from bide.server.worker.app_location import AppLocation
from bide.service.assembly import assemble_worker
from bide.service.backends import loop_factory
from bide.service.data_folder import DataFolder

log = logging.getLogger("bide.worker")
HINT_INTERVAL = 0.02  # seconds between two checks whether deferred hints can be followed


class WorkerRuntime:
    """Implements `HintReceiver` for the hint consumer. Celery's thread calls `start`, `stop` and `join`."""

    def __init__(self, registry: Registry, locate: Callable[[], AppLocation], config: Config) -> None:
        """`locate` returns the location of the app, for the children."""
        self.hint_consumer = HintConsumer(self)
        self.registry = registry
        self._locate = locate
        self.config = config
        self._folder: DataFolder | None = None
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self.failure: BaseException | None = None  # the exception that ended it
        self.ending = False

    # --- called on Celery's thread

    @property
    def name(self) -> str:
        """The name of this worker, stable over restarts. The first call locks its folder."""
        if self._folder is None:
            self._folder = take_folder(self.config.data)
        return self._folder.replica

    def start(self, queues: Sequence[str], concurrency: int | None) -> None:
        """Return when the worker accepts jobs, or raise the exception that prevents it."""
        if self._thread is not None:
            return
        app_location.reject_in_child("a worker")
        self.registry.check()
        self._location = self._locate()
        worker = replace(self.config.worker, queues=tuple(queues), workers=concurrency)
        self.config = replace(self.config, worker=worker)
        log.debug("worker %s", self.name)
        self._thread = threading.Thread(target=self._run, name="bide-runtime", daemon=True)
        self._thread.start()
        self._started.wait()
        if self.failure is not None:
            self._thread.join()
            raise self.failure

    def has_capacity(self, queue: str) -> bool:
        return not self.ending and self._engine.has_capacity(queue)

    def hint(self, queue: str) -> None:
        self._call_soon(self._engine.hint_queue, queue)

    def stop(self) -> None:
        """Begin to drain and return immediately. A second call returns the running jobs to the queue."""
        if self._thread is None or self.failure is not None:
            return
        if self.ending:
            self._call_soon(self._engine.stop_now)
        else:
            self.ending = True
            self._call_soon(self._end.set)
            self._call_soon(self.hint_consumer.close)

    def join(self) -> None:
        """Wait for the end, in short intervals so that Python handles signals."""
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(0.2)

    def _call_soon(self, do: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(do, *arguments)

    # --- called on its own loop

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._work())
        except BaseException as error:
            self.failure = error
            if self._started.is_set():
                # Without the runtime the process runs no jobs. End it, so that its supervisor restarts it.
                log.critical("the worker failed; ending the process", exc_info=error)
                os.kill(os.getpid(), signal.SIGTERM)
        finally:
            self._started.set()
            if self._folder is not None:
                self._folder.unlock()

    async def _work(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        assert self._folder is not None
        self._store, progress, self._engine, tracer = assemble_worker(
            self.registry, self._location, self.config, self._folder
        )
        await self._store.open(self._engine.on_events, on_reset=self._engine.reset)
        try:
            lost = await self._store.void(f"{self.name}:")
            if lost:
                log.info("%d jobs were running when this worker last ended; they run again", lost)
            await progress.open()
            await self._engine.start()
            try:
                await self._serve()
            except BaseException:
                await self._engine.stop(0.0)
                raise
        finally:
            await progress.close()
            await self._store.close()
            if tracer is not None:
                await asyncio.to_thread(tracer.close)

    async def _serve(self) -> None:
        beating = asyncio.create_task(self._beat())
        following = asyncio.create_task(self._follow_hints())
        sweeping = asyncio.create_task(self._sweep_folders())
        self._started.set()
        await self._end.wait()
        log.info("stopping: waiting up to %g s for running jobs", self.config.worker.drain)
        await self._engine.stop(self.config.worker.drain)
        for task in (beating, following, sweeping):
            task.cancel()
        await asyncio.gather(beating, following, sweeping, return_exceptions=True)
        with contextlib.suppress(StoreUnavailable):  # the heartbeat expires soon
            await self._store.remove_worker(self.name)

    async def _beat(self) -> None:
        """Send the heartbeat of this worker."""
        wait = 0.1  # short until the children have started
        while True:
            try:
                await self._store.record_worker(self.name, write(self._state()))
            except StoreUnavailable as error:
                log.warning("cannot send the heartbeat of this worker: %s", error)
            await asyncio.sleep(wait)
            wait = min(HEARTBEAT, wait * 2)

    def _state(self) -> WorkerHeartbeat:
        return WorkerHeartbeat(
            self.name,
            tuple(self.config.worker.queues or ()),
            tuple(sorted(self.registry.kinds)),
            self.config.worker.children(1),
            tuple(self._engine.workers()),
            tuple(warning.detail for warning in self._engine.warnings()),
        )

    async def _follow_hints(self) -> None:
        while True:
            await asyncio.sleep(HINT_INTERVAL)
            self.hint_consumer.tick()

    async def _sweep_folders(self) -> None:
        """Remove the working folders of jobs that no longer exist."""
        assert self._folder is not None
        while True:
            try:
                await sweep_work(self._store, self._folder.work, self.config.upkeep.orphan_age)
            except (StoreUnavailable, OSError) as error:
                log.warning("cannot remove old working folders: %s", error)
            await asyncio.sleep(self.config.upkeep.sweep)


async def sweep_work(store: SharedStore, work: Path, age: float) -> None:
    await work_folders.sweep(work, time.time() - age, store.known)


def take_folder(data: Path) -> DataFolder:
    """Lock and return the first of `workers/1`, `workers/2`, … in the data folder that no running worker has."""
    number = 0
    while True:
        number += 1
        folder = DataFolder(data / "workers" / str(number))
        if folder.lock(required=False):
            DataFolder(data).tighten()
            return folder
