"""A worker's own half: store, engine and handler children on a loop of their own, beside Celery's in the same process.

1. It works without the broker too, if more slowly: it looks around every few seconds.
2. Its folder below the data folder is locked while it lives; whoever finds it unlocked voids the leases of the dead.
3. Upkeep is the services': a worker rescues nobody.
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

from bide.core.errors import SetupError
from bide.server.config import Config
from bide.server.engine.embedded import EmbeddedEngine
from bide.server.engine.hint_consumer import HintConsumer
from bide.server.engine.worker_heartbeats import HEARTBEAT, WorkerHeartbeat, write
from bide.server.intake import Intake
from bide.server.progress.publisher import ProgressPublisher
from bide.server.registry import Registry
from bide.server.store import SharedStore, StoreUnavailable
from bide.server.worker import app_location, work_folders
from bide.server.worker.app_location import AppLocation
from bide.server.worker.supervisor import Pool, PoolListener
from bide.service.folder import DataFolder
from bide.service.loops import loop_factory
from bide.service.shelves import make_shelf
from bide.service.stores import make_shared_store

log = logging.getLogger("bide.worker")
LOOK_AGAIN = 0.02  # seconds between two looks whether there is room for hints that were left


class Node:
    """`HintReceiver` for Celery; `start`, `stop` and `stop_now` are called from Celery's thread."""

    def __init__(self, registry: Registry, locate: Callable[[], AppLocation], config: Config) -> None:
        """`locate`: where the app is, for its children."""
        self.hint_consumer = HintConsumer(self)
        self.registry = registry
        self._locate = locate
        self.config = config
        self._folder: DataFolder | None = None
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self.failure: BaseException | None = None  # what ended it
        self.ending = False
        self._patience = config.worker.drain

    # --- from Celery's thread

    @property
    def name(self) -> str:
        """Of this worker, over all its restarts. Its folder is taken with the first look."""
        if self._folder is None:
            self._folder = take_folder(self.config.data)
        return self._folder.replica

    def start(self, queues: Sequence[str], concurrency: int | None) -> None:
        """Returns when it takes jobs, or raises what keeps it from that."""
        if self._thread is not None:
            return
        if app_location.in_child:
            raise SetupError(
                "a handler child was about to start a worker of its own, because importing the app's module "
                'starts one: put that under `if __name__ == "__main__":`'
            )
        self.registry.check()
        self._location = self._locate()
        worker = replace(self.config.worker, queues=tuple(queues), workers=concurrency)
        self.config = replace(self.config, worker=worker)
        log.debug("worker %s", self.name)
        self._thread = threading.Thread(target=self._run, name="bide-node", daemon=True)
        self._thread.start()
        self._started.wait()
        if self.failure is not None:
            self._thread.join()
            raise self.failure

    def has_capacity(self, queue: str) -> bool:
        return not self.ending and self._engine.has_capacity(queue)

    def hint(self, queue: str) -> None:
        self._soon(self._engine.hint_queue, queue)

    def stop(self) -> None:
        """Begins to drain; called again, it hands back at once what still runs. Returns at once."""
        if self._thread is None or self.failure is not None:
            return
        if self.ending:
            self._soon(self._stop_now)
        else:
            self.ending = True
            self._soon(self._end.set)
            self._soon(self.hint_consumer.close)

    def join(self) -> None:
        """Waits for the end. Signals are still heard meanwhile."""
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(0.2)

    def _soon(self, do: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(do, *arguments)

    # --- on the loop of its own

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._work())
        except BaseException as error:
            self.failure = error
            if (
                self._started.is_set()
            ):  # nobody is here to run jobs: whoever watches this process shall know
                log.critical("the worker failed, and ends", exc_info=error)
                os.kill(os.getpid(), signal.SIGTERM)
        finally:
            self._started.set()
            if self._folder is not None:
                self._folder.unlock()

    async def _work(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        assert self._folder is not None
        self._store = make_shared_store(self.config.store)
        shelf = make_shelf(self.config.progress, self.config.store, self.config.engine.broker)
        progress = ProgressPublisher(
            shelf, notify=lambda job_id: None, has_subscribers=lambda job_id: False
        )
        self._engine = EmbeddedEngine(
            self.registry,
            self._store,
            self.config.worker,
            self._folder,
            self._pool,
            prepare_spawn=Intake(self.registry, self._store, lambda queue, kind: None).prepare_spawn,
            progress=progress,
        )
        await self._store.open(self._engine.on_events, on_reset=self._engine.reset)
        try:
            lost = await self._store.void(f"{self.name}:")
            if lost:
                log.info(
                    "%d jobs were running when this worker ended the last time; they run again", lost
                )
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

    async def _serve(self) -> None:
        beating = asyncio.create_task(self._beat())
        looking = asyncio.create_task(self._look())
        sweeping = asyncio.create_task(self._sweep_on())
        self._started.set()
        await self._end.wait()
        log.info("stopping: waiting up to %g s for running jobs", self._patience)
        await self._engine.stop(self._patience)
        for task in (beating, looking, sweeping):
            task.cancel()
        await asyncio.gather(beating, looking, sweeping, return_exceptions=True)
        with contextlib.suppress(StoreUnavailable):  # it will be missed soon enough
            await self._store.remove_worker(self.name)

    def _stop_now(self) -> None:
        self._patience = 0.0  # it may not have begun to wait
        self._engine.stop_now()

    async def _beat(self) -> None:
        """Keeps this worker's line in the roster."""
        wait = 0.1  # until the children are there
        while True:
            try:
                await self._store.record_worker(self.name, write(self._state()))
            except StoreUnavailable as error:
                log.warning("this worker cannot say that it lives: %s", error)
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

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AGAIN)
            self.hint_consumer.tick()

    async def _sweep_on(self) -> None:
        """Removes the working folders of jobs that there are not any more."""
        assert self._folder is not None
        while True:
            try:
                await sweep_work(self._store, self._folder.work, self.config.upkeep.orphan_age)
            except (StoreUnavailable, OSError) as error:
                log.warning("working folders are not swept: %s", error)
            await asyncio.sleep(self.config.upkeep.sweep)

    def _pool(self, listener: PoolListener, sync: int, is_async: int) -> Pool:
        assert self._folder is not None
        return Pool(
            self._location,
            self._folder.path,
            blobs=self.config.blobs.url or str(self.config.data.resolve() / "blobs"),
            sync=sync,
            is_async=is_async,
            beat=min(self.config.worker.lease / 6, 5.0),
            listener=listener,
        )


async def sweep_work(store: SharedStore, work: Path, age: float) -> None:
    jobs, renamed = await asyncio.to_thread(work_folders.old, work, time.time() - age)
    for folder in renamed:
        await asyncio.to_thread(work_folders.delete, folder)
    for job_id in jobs - await store.known(list(jobs)):
        await asyncio.to_thread(work_folders.remove, work / job_id)


def take_folder(data: Path) -> DataFolder:
    """The first of `workers/1`, `workers/2`, … in the data folder that no living worker has, locked."""
    number = 0
    while True:
        number += 1
        folder = DataFolder(data / "workers" / str(number))
        if folder.lock(or_not=True):
            DataFolder(data).tighten()
            return folder
