"""Services as they are, on a simulated loop, with simulated children, power cuts and databases that fail.

One seed and one list of deeds give one history. `World.judge` says what is wrong with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable
from unittest.mock import patch
from urllib.parse import urlsplit

import msgspec
import psycopg

from bide.core.errors import SetupError
from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import BY_WORKER, Change, advance
from bide.server.blobs.factory import make_blobs
from bide.server.config import BlobsConfig, Config, StoreConfig, UpkeepConfig, WorkerConfig
from bide.server.progress.memory import MemoryProgressStore
from bide.server.store import StoreUnavailable, operations
from bide.server.store.rows import COLUMNS, job_of
from bide.server.store.upload_rows import READ, upload_of
from bide.server.worker import context as worker_context
from bide.server.worker.app_location import AppLocation
from bide.service import assembly
from bide.service.assembly import assemble
from bide.service.data_folder import DataFolder
from tests.integration.asgi import call
from tests.integration.http.service import Reply
from tests.simulation.app import KINDS, PAIR, app, ran
from tests.simulation.children import SimChild, SimPool
from tests.simulation.faults import MODES, Faults
from tests.simulation.loop import PROCESS, LoopClock, SimLoop
from tests.simulation.sqlite import SqliteDatabase
from tests.simulation.writing import SimWriter

LEASE = 10.0
TIMEOUT = 900.0  # seconds in which every job must end after the last fault
CONTENT = b"what an upload holds"
CHUNK = 64 * 1024
CHUNKED = CONTENT * 3300  # two chunks
EXPECTED = (StoreUnavailable, sqlite3.Error, psycopg.Error)  # raised by a failing database
QUEUES = ("default", "leaves")
Deed = tuple[str, int, float]
DEEDS = (
    *KINDS,
    *("upload", "tus", "chunked", "presigned", "cancel", "rerun", "delete", "pause", "resume"),
    *("kill", "freeze", "thaw", "stop", "sleep", "cut", "fault", "outage", "replicate", "promote"),
)


class Database(Protocol):
    loses_responses: bool
    url: str | None

    def patched(self, writer: Callable[..., Any]) -> Any: ...
    def writing(self, begun: bool) -> None: ...
    def rows(self, sql: str) -> list[tuple[Any, ...]]: ...
    def end(self) -> None: ...


@runtime_checkable
class Replicated(Protocol):
    """A database with a standby."""

    def replicate(self) -> None: ...
    def promote(self) -> None: ...


class SimFolder(DataFolder):
    """A data folder whose replica name is unique, although one process runs many services."""

    started = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        SimFolder.started += 1
        self._number = SimFolder.started

    @property
    def owner(self) -> str:
        return f"{self.replica}:{self._number}"


class Replica:
    """One service process with its children."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.listens = False
        self._world = world
        config = Config(
            data=world.folder / name,
            store=StoreConfig(url=world.database.url),
            blobs=BlobsConfig(url=str(world.folder / "blobs")),
            worker=WorkerConfig(workers=2, lease=LEASE, grace=1.0),
            upkeep=UpkeepConfig(),
        )
        self.service = assemble(app, AppLocation("tests.simulation.app"), config)
        self.folder, self.engine = self.service.folder, cast(Any, self.service.engine)
        self.pool: SimPool = self.engine.pool
        store = cast(Any, self.service.store)
        store._clock = store._wall = world.clock
        store.now = world.clock.now
        self.engine._rng = random.Random(world.rng.random())
        self.service.upkeep._rng = random.Random(world.rng.random())

    def kill(self) -> None:
        writer = getattr(self.service.store, "_writer", None)
        if writer is not None:
            writer.dead = True
        self.pool.kill()
        self._world.loop.kill_process(self.name)
        self.folder.unlock()


class World:
    def __init__(
        self,
        seed: int,
        make_database: Callable[[Faults], Database] = SqliteDatabase,
        names: Sequence[str] = ("one",),
    ) -> None:
        ran.clear()
        self._stack = ExitStack()
        self.rng = random.Random(seed)
        self.loop = SimLoop()
        self.epoch = float(int(time.time()))
        self.clock = LoopClock(self.loop, self.epoch)
        self.faults = Faults(self.loop, self.rng)
        self.replicas: dict[str, Replica] = {}
        try:
            self._open(make_database, names)
        except BaseException:
            self.close()
            raise

    def _open(self, make_database: Callable[[Faults], Database], names: Sequence[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"bide-simulation-{os.getpid()}-", dir=_memory()))
        self._stack.callback(shutil.rmtree, self.folder)
        self.database = make_database(self.faults)
        self._stack.callback(self.database.end)
        self._stack.callback(self.loop.close)
        self.acknowledged: dict[str, tuple[str, int]] = {}
        self.uploads: list[str] = []  # acknowledged uploads
        self.wrong: list[str] = []  # violations seen so far
        self._suspect: list[str] = []  # violations if the transaction is stored
        self.harm = 0  # faults of services and children so far
        self.failed = 0  # faults of the database so far
        self._promotions = 0
        self._reused: set[tuple[str, int]] = (
            set()
        )  # fences that two attempts may have after a lossy promotion
        self._restored: set[str] = set()  # uploads whose removal was lost; their bytes were removed
        self._replicated: tuple[set[str], set[str]] | None = None  # what the standby has received
        self._taken: set[str] = set()  # jobs of a service that was stopped longer than its lease
        self.resumed: dict[str, float] = {}  # when a stopped process was resumed
        self._later: list[tuple[int, Callable[[], None]]] = []
        self._writer_of: Replica | None = None  # whose transaction is running
        self._patch()
        for name in names:
            self._start(name)

    def _patch(self) -> None:
        enter = self._stack.enter_context
        enter(_listening(self))
        enter(patch.object(time, "monotonic", self.loop.time))
        # Closing the coroutines of a killed process raises errors in them.
        enter(patch.object(sys, "unraisablehook", lambda unraisable: None))
        enter(patch.object(os, "urandom", self.rng.randbytes))
        enter(patch.object(worker_context, "time", self.clock.now))
        enter(patch.object(assembly, "DataFolder", SimFolder))
        enter(patch.object(assembly, "make_progress_store", lambda *settings: MemoryProgressStore()))
        enter(patch.object(assembly, "Pool", self._make_pool))
        enter(self.database.patched(self._make_writer))
        enter(patch.object(operations, "advance", partial(self._advance, advance)))
        enter(patch.object(operations, "renew", partial(self._renew, operations.renew)))

    def _make_pool(self, location: AppLocation, data: Path, *, blobs: str, **settings: Any) -> SimPool:
        return SimPool(self.loop, data.name, app, make_blobs(blobs), data / "work", 2, self.rng)

    def _make_writer(self, transact: Any, heard: Any, timeouts: Any, on_delivered: Any) -> SimWriter:
        name = PROCESS.get()

        def begin() -> None:
            self._writer_of = self.replicas[name]
            self._suspect.clear()
            self.database.writing(True)

        def end(stored: bool) -> None:
            self._writer_of = None
            if stored:
                self.wrong += self._suspect
            self.database.writing(False)

        return SimWriter(
            transact,
            heard,
            timeouts,
            on_delivered,
            loop=self.loop,
            rng=self.rng,
            faults=self.faults,
            loses_responses=self.database.loses_responses,
            begin=begin,
            end=end,
        )

    # --- processes

    def _start(self, name: str) -> None:
        replica = self.replicas[name] = self.loop.within(lambda: Replica(self, name))

        async def start() -> None:
            try:
                await replica.service.start()
                replica.listens = True
            except Exception as error:  # restart a moment later, as systemd would
                if not isinstance(error, (*EXPECTED, SetupError)) and not self.loop.killing:
                    self.wrong.append(f"{name} cannot start: {error!r}")
                self.loop.call_later(1.0, self._restart, replica)

        self.loop.start(name, start)

    def _restart(self, replica: Replica) -> None:
        if self.replicas[replica.name] is replica:
            replica.kill()
            self._start(replica.name)

    def _choose(self, number: int) -> Replica:
        names = sorted(self.replicas)
        return self.replicas[names[number % len(names)]]

    def _children(self, number: int) -> SimChild | None:
        children = sorted(self._choose(number).pool.children, key=lambda c: c.pid)
        return children[number // len(self.replicas) % len(children)] if children else None

    # --- what callers do

    async def _insist(self, method: str, path: str, number: int, **what: Any) -> Reply | None:
        """Retry at any replica until there is a response. None after the timeout."""
        for attempt in range(40):
            reply = await self._answer(self._choose(number + attempt), method, path, what)
            if reply is not None and reply.status < 500:
                return reply
            await asyncio.sleep(0.5)
        return None

    def ask(self, method: str, path: str, number: int = 0) -> Reply:
        """The response to one request, after the time that it takes."""
        task = self.loop.within(lambda: self.loop.start("", partial(self._insist, method, path, number)))
        while not task.done():
            self.run(0.01)
        reply = task.result()
        assert reply is not None, f"no response to {method} {path}"
        return cast(Reply, reply)

    async def _answer(
        self, replica: Replica, method: str, path: str, what: dict[str, Any]
    ) -> Reply | None:
        """None if the service does not listen, dies, or takes too long; also if a standby was promoted meanwhile, because
        the response may be that of a lost commit.
        """
        if not replica.listens:
            return None
        promotions = self._promotions
        answered: asyncio.Future[Reply] = self.loop.create_future()

        async def ask() -> None:
            reply = await call(replica.service.http, method, path, **what)
            if not answered.done():
                answered.set_result(reply)

        self.loop.start(replica.name, ask)
        try:
            async with asyncio.timeout(30.0):
                reply = await answered
                return reply if self._promotions == promotions else None
        except TimeoutError:
            return None

    def submit(self, kind: str, number: int) -> None:
        async def submit() -> None:
            input_: dict[str, Any] = {"number": number}
            if kind == "relay":
                if not self.uploads:
                    return
                input_["source"] = {"upload": self.uploads[number % len(self.uploads)]}
            key = {"idempotency-key": f"{kind}-{number}-{self.rng.random()}"}
            body = {"kind": kind, "input": input_}
            reply = await self._insist("POST", "/jobs", number, json=body, headers=key)
            if reply is not None and reply.status == 202:
                job_id = msgspec.json.decode(reply.body)["jobId"]
                if job_id in self.acknowledged:
                    self.wrong.append("two submissions led to one job")
                self.acknowledged[job_id] = (kind, number)

        self.loop.start("", submit)

    def upload(self, number: int) -> None:
        async def send() -> None:
            reply = await self._insist("POST", "/uploads?name=a.txt", number, body=CONTENT)
            if reply is not None and reply.status == 201:
                self.uploads.append(msgspec.json.decode(reply.body)["uploadId"])

        self.loop.start("", send)

    def tus(self, number: int) -> None:
        """An upload in two pieces that becomes a job."""

        async def send() -> None:
            tus = {"tus-resumable": "1.0.0"}
            wish = {**tus, "upload-length": str(len(CONTENT)), "upload-metadata": _metadata(number)}
            reply = await self._insist("POST", "/files", number, headers=wish)
            if reply is None or reply.status != 201:
                return
            place, offset = reply.headers["location"], 0
            for _ in range(20):
                piece = CONTENT[offset : offset + 12]
                head = {**tus, "upload-offset": str(offset)}
                head["content-type"] = "application/offset+octet-stream"
                reply = await self._insist("PATCH", place, number, body=piece, headers=head)
                if reply is None or reply.status in (404, 410):
                    return
                if reply.status != 204:
                    reply = await self._insist("HEAD", place, number, headers=tus)
                    if reply is None or reply.status != 200:
                        return
                offset = int(reply.headers["upload-offset"])
                if offset == len(CONTENT):
                    where = reply.headers.get("job-location", "")
                    if where:
                        self.acknowledged[where.rpartition("/")[2]] = ("relay", number)
                    return

        self.loop.start("", send)

    def chunked(self, number: int) -> None:
        """An upload in two chunks, the second one first. Every other one becomes a job."""

        async def send() -> None:
            wish = {"name": "a.txt", "size": len(CHUNKED), "chunkSize": CHUNK, **_job(number)}
            reply = await self._insist("POST", "/uploads/chunked", number, json=wish)
            if reply is None or reply.status != 201:
                return
            place = reply.headers["location"]
            missing = [1, 0]
            for _ in range(20):
                for chunk in missing:
                    piece = CHUNKED[chunk * CHUNK : (chunk + 1) * CHUNK]
                    reply = await self._insist("PUT", f"{place}/chunks/{chunk}", number, body=piece)
                if reply is not None and reply.status == 200:
                    self._uploaded(reply, number)
                    return
                reply = await self._insist("GET", f"{place}/chunks", number)
                if reply is None or reply.status != 200:
                    return
                # The last chunk is sent again if its response was lost.
                missing = msgspec.json.decode(reply.body)["missing"] or [0]

        self.loop.start("", send)

    def presigned(self, number: int) -> None:
        """An upload to a signed URL. Every other one has a job that waits for it."""

        async def send() -> None:
            wish = {"name": "a.txt", "size": len(CONTENT), **_job(number)}
            wish["idempotencyKey"] = f"presigned-{number}-{self.rng.random()}"
            reply = await self._insist("POST", "/uploads/presign", number, json=wish)
            if reply is None or reply.status != 201:
                return
            signed = msgspec.json.decode(reply.body)
            if signed["job"]:
                self.acknowledged[signed["job"]["jobId"]] = ("relay", number)
            url = urlsplit(signed["url"])
            for _ in range(20):
                where, headers = f"{url.path}?{url.query}", signed["headers"]
                await self._insist("PUT", where, number, body=CONTENT, headers=headers)
                place = f"/uploads/{signed['uploadId']}/complete"
                reply = await self._insist("POST", place, number)
                if reply is not None and reply.status == 200 and not signed["job"]:
                    self._uploaded(reply, number)
                if reply is not None and reply.status in (200, 404, 410):
                    return
                await asyncio.sleep(1.0)

        self.loop.start("", send)

    def _uploaded(self, reply: Reply, number: int) -> None:
        """The response says that an upload is complete."""
        where = reply.headers.get("job-location", "")
        if where:
            self.acknowledged[where.rpartition("/")[2]] = ("relay", number)
        else:
            self.uploads.append(msgspec.json.decode(reply.body)["uploadId"])

    def _some_job(self, number: int) -> str | None:
        ids = list(self.acknowledged)
        return ids[number % len(ids)] if ids else None

    def _post(self, number: int, path: str, method: str = "POST") -> None:
        job_id = self._some_job(number)
        if job_id is not None:
            where = path.format(job_id)
            self.loop.start("", lambda: self._insist(method, where, number))

    def cancel(self, number: int) -> None:
        self._post(number, "/jobs/{}/cancel")

    def rerun(self, number: int) -> None:
        self._post(number, "/jobs/{}/retry")

    def delete(self, number: int) -> None:
        job_id = self._some_job(number)

        async def delete() -> None:
            reply = await self._insist("DELETE", f"/jobs/{job_id}", number)
            if reply is None or reply.status < 400 or reply.status == 410:
                # It is deleted, or that is unknown.
                self.acknowledged.pop(str(job_id), None)

        if job_id is not None:
            self.loop.start("", delete)

    def pause(self, number: int) -> None:
        """For ten seconds."""

        async def pause() -> None:
            queue = QUEUES[number % 2]
            await self._insist("POST", f"/queues/{queue}/pause", number)
            await asyncio.sleep(10.0)
            await self._insist("POST", f"/queues/{queue}/resume", number)

        self.loop.start("", pause)

    def resume(self, number: int) -> None:
        self.loop.start(
            "", partial(self._insist, "POST", f"/queues/{QUEUES[number % 2]}/resume", number)
        )

    # --- faults

    def kill(self, number: int) -> None:
        child = self._children(number)
        if child is not None:
            self.harm += 1
            child.die()

    def freeze(self, number: int) -> None:
        child = self._children(number)
        if child is not None:
            self.harm += 1
            self.loop.stop_process(child.process)

    def thaw(self, number: int) -> None:
        for replica in self.replicas.values():
            for child in replica.pool.children:
                self.loop.resume_process(child.process)

    def stop(self, number: int) -> None:
        """SIGSTOP of a service without its children, for less or more than a lease."""
        replica = self._choose(number)
        seconds = (2.0, 1.2 * LEASE, 3 * LEASE)[number // 2 % 3]
        if not self.loop.is_stopped(replica.name):
            self.loop.stop_process(replica.name)
            self.loop.call_later(seconds, self._resume, replica.name)

    def _resume(self, name: str) -> None:
        self.resumed[name] = self.loop.time()
        self.loop.resume_process(name)

    def sleep(self, number: int) -> None:
        """The machine sleeps: only the time of day advances."""
        self.clock.ahead += 6 * LEASE

    def cut(self, number: int) -> None:
        """A power cut after this many more steps; only committed data stays."""
        self._later.append(
            (self.loop.steps + number % 50, partial(self._cut, self._choose(number).name))
        )

    def _cut(self, name: str) -> None:
        self.harm += 1
        self.replicas[name].kill()
        self._start(name)

    def fault(self, number: int) -> None:
        """A fault of one operation, soon."""
        self.failed += 1
        self.faults.plan(1 + number // len(MODES), MODES[number % len(MODES)])

    def outage(self, number: int) -> None:
        """An outage of the whole database, shorter or longer than a lease."""
        self.failed += 1
        self.faults.take_out((0.5, 4.0, 1.5 * LEASE)[number % 3])

    def replicate(self, number: int) -> None:
        """An asynchronous standby has received everything until now."""
        if isinstance(self.database, Replicated):
            self.database.replicate()
            self._replicated = set(self.acknowledged), set(self.uploads)

    def promote(self, number: int) -> None:
        """Promote the standby. Only what was acknowledged after its last replication may be lost."""
        if isinstance(self.database, Replicated) and self._replicated is not None:
            self.harm += 1
            self._promotions += 1
            before, there = self._fences(), self._upload_ids()
            self.database.promote()
            for job_id, fence in self._fences().items():
                lost = range(fence + 1, before.get(job_id, 0) + 1)
                self._reused.update((job_id, number) for number in lost)
            self._restored |= self._upload_ids() - there
            jobs, uploads = self._replicated
            self.acknowledged = {j: what for j, what in self.acknowledged.items() if j in jobs}
            self.uploads = [u for u in self.uploads if u in uploads]

    def _fences(self) -> dict[str, int]:
        return dict(cast(Any, self.database.rows("SELECT id, fence FROM jobs")))

    def _upload_ids(self) -> set[str]:
        return {upload_id for (upload_id,) in self.database.rows("SELECT id FROM uploads")}

    # --- forbidden writes

    def _advance(self, real: Callable[..., Job], job: Job, change: Change, now: float) -> Job:
        after = real(job, change, now)
        writer = self._writer_of
        if writer is not None and job.held:
            if change.lease is not None:
                self._lost(job, writer)
            elif type(change) in BY_WORKER and job.owner != writer.folder.owner:
                self._suspect.append(
                    f"{writer.folder.owner} wrote {type(change).__name__} of {job.kind}, which {job.owner} holds"
                )
        return after

    def _renew(self, renew: Callable[..., Any], tx: Any, *what: Any) -> Any:
        """Check the renewal of one job, or of many jobs."""
        outcome = renew(tx, *what)
        if isinstance(outcome, bool):
            renewed = [what[0]] if outcome else []
        else:
            renewed = [job_id for job_id, fence in what[1] if (job_id, fence) not in outcome]
        writer = self._writer_of
        if writer is not None:
            for owner in {tx.job(job_id).owner for job_id in renewed} - {writer.folder.owner}:
                self._suspect.append(f"{writer.folder.owner} renewed the lease of {owner}")
        return outcome

    def _lost(self, job: Job, observer: Replica) -> None:
        """A lease was judged lost. That is a violation unless its holder had a fault."""
        holder = next((r for r in self.replicas.values() if r.folder.owner == job.owner), None)
        if holder is None or self.harm:
            return
        if self.loop.is_stopped(holder.name):
            self._taken.add(job.id)
            return
        if len(self.replicas) == 1:  # a single service knows what it runs
            self._suspect.append(f"{job.kind} was taken from the service that has taken it")
        if self.failed:
            return
        if holder is not observer and self.loop.time() - self.resumed.get(holder.name, -1e9) < LEASE:
            self._taken.add(job.id)  # it was stopped longer than its lease
            return
        if any(child.runs(job.id, job.fence) for child in holder.pool.children):
            self._suspect.append(f"{job.kind} was taken from {job.owner}, whose handler lives")

    # --- time

    def run(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            for due in [d for d in self._later if d[0] <= self.loop.steps]:
                self._later.remove(due)
                self.loop.within(due[1])
            if not self.loop.step():
                raise AssertionError("nothing will ever happen again")
            if self.loop.failures:
                raise AssertionError(self.loop.failures[0])

    def act(self, deeds: Sequence[Deed]) -> None:
        for what, number, pause in deeds:
            deed: Callable[..., None] = getattr(self, what, None) or partial(self.submit, what)
            self.loop.within(partial(deed, number))
            self.run(pause)

    def close(self) -> None:
        """Also after a failure: nothing remains of the world."""
        with self._stack:
            for replica in self.replicas.values():
                self.loop.within(replica.kill)
            self.loop.within(partial(self.loop.kill_process, ""))

    def __enter__(self) -> World:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    # --- checks

    def judge(self) -> list[str]:
        """The violations after a time without faults."""
        self._settle()
        wrong = list(self.wrong)
        jobs = {job.id: job for job in self._jobs()}
        for job_id, (kind, number) in self.acknowledged.items():
            job = jobs.get(job_id)
            if job is None:
                wrong.append(f"{kind} {number} is lost")
            elif job.status is Status.DONE:
                right = 2 * number + 1 if kind == "family" else number
                if job.result is None or msgspec.json.decode(job.result) != right:
                    wrong.append(f"{kind} {number} has the result {job.result!r}")
                if kind == "lonely" and not job.children:
                    wrong.append(f"{kind} {number} is DONE, and its child was never stored")
        for job in jobs.values():
            if not job.status.terminal:
                wrong.append(f"{job.kind} never ended: {job}")
            elif (
                not (self.harm or self.failed)
                and job.status is Status.ERROR
                and job.kind != "slow"
                and job.id not in self._taken
            ):
                wrong.append(f"{job.kind} failed without a reason: {job.error}")
        wrong += self._judge_families(jobs)
        wrong += self._judge_events(jobs)
        wrong += self._judge_concurrency()
        wrong += self._judge_steps(jobs)
        wrong += self._judge_uploads()
        wrong += self._judge_slots()
        wrong += [f"{name} does not start" for name, r in self.replicas.items() if not r.listens]
        return wrong

    def _settle(self) -> None:
        """Run until every job has ended and no message is in transit."""
        self.run(0.0)
        self.faults.end()
        for replica in self.replicas.values():
            self.loop.resume_process(replica.name)
        self.thaw(0)
        for number in range(len(QUEUES)):  # a promotion may have restored an old pause
            self.resume(number)
        self.wrong += self._judge_families({job.id: job for job in self._jobs()})
        live = "SELECT 1 FROM jobs WHERE finished_at IS NULL LIMIT 1"
        end = self.loop.time() + TIMEOUT
        quiet = 0
        while quiet < 2 and self.loop.time() < end:
            self.run(12.0)
            busy = self._later or self.loop.is_busy("") or self.database.rows(live)
            quiet = 0 if busy else quiet + 1

    def _jobs(self) -> list[Job]:
        return [job_of(row) for row in self.database.rows(f"SELECT {COLUMNS} FROM jobs")]

    def _judge_families(self, jobs: dict[str, Job]) -> list[str]:
        wrong = []
        for job in jobs.values():
            for child_id in job.waiting_for or ():
                if child_id not in jobs:
                    wrong.append(f"{job.kind} waits for {child_id}, which does not exist")
            for child in job.children:
                other = jobs.get(child.job_id)
                if other is None and not job.status.terminal:
                    wrong.append(f"{job.kind} has a child that does not exist: {child}")
                if other is not None and child.status not in (None, other.status) and other.run == 1:
                    wrong.append(f"{job.kind} and its child disagree: {child} {other.status}")
        return wrong

    def _judge_events(self, jobs: dict[str, Job]) -> list[str]:
        ends: Counter[tuple[str, int]] = Counter()
        wrong = []
        for job_id, text in self.database.rows("SELECT job_id, job FROM events WHERE type = 'status'"):
            known = msgspec.json.decode(text)
            ends[job_id, known["run"]] += Status(known["status"]).terminal
        for job in jobs.values():
            expected = [1] * (job.run - 1) + [int(job.status.terminal)]
            told = [ends[job.id, run] for run in range(1, job.run + 1)]
            if told != expected:
                wrong.append(f"{job.kind} {job.id} has {told} terminal events per run, not {expected}")
        return wrong

    def _judge_concurrency(self) -> list[str]:
        """Whether more jobs of a kind ran at any time than its limit allows."""
        running: set[str] = set()
        rows = self.database.rows("SELECT job_id, job FROM events WHERE type = 'status' ORDER BY id")
        for job_id, text in rows:
            known = msgspec.json.decode(text)
            if known["kind"] == "pair":
                held = known["status"] == Status.PROCESSING and "worker" in known
                (running.add if held else running.discard)(job_id)
                if len(running) > PAIR:
                    return [f"{len(running)} jobs of a kind with the limit {PAIR} ran at once"]
        return []

    def _judge_steps(self, jobs: dict[str, Job]) -> list[str]:
        kept: dict[tuple[str, str], int] = {}
        wrong = []
        for job_id, text in self.database.rows("SELECT job_id, job FROM events WHERE type = 'step'"):
            known = msgspec.json.decode(text)
            if known["step"]["status"] == "DONE":
                place = (job_id, known["step"]["name"])
                if place in kept:
                    wrong.append(f"step {place} was kept twice")
                kept[place] = known["fence"]
        times: dict[tuple[str, str], list[int]] = defaultdict(list)
        for job_id, step, fence in ran:
            if (job_id, fence) not in self._reused:  # a promotion may have undone it
                times[job_id, step].append(fence)
        for (job_id, step), fences in times.items():
            if (job_id, step) in kept and max(fences) > kept[job_id, step]:
                wrong.append(f"step {step} was repeated after it was kept")
            if step == "once" and job_id in jobs and len(fences) > jobs[job_id].run:
                wrong.append("a job that may run once ran again")
        return wrong

    def _judge_uploads(self) -> list[str]:
        rows = self.database.rows(f"SELECT {READ} FROM uploads WHERE status = 'DONE'")
        known = {upload.id: upload for upload in map(upload_of, rows)}
        wrong = [f"upload {u} was acknowledged and is lost" for u in self.uploads if u not in known]
        for upload_id, upload in known.items():
            place = self.folder / "blobs" / "uploads" / upload_id / "content"
            content = CONTENT if upload.size == len(CONTENT) else CHUNKED
            if upload_id in self._restored and not place.exists():
                continue
            if not place.exists():
                wrong.append(f"{upload.way} upload {upload_id} has no bytes")
            elif place.read_bytes() != content:
                wrong.append(f"{upload.way} upload {upload_id} has other bytes")
        return wrong

    def _judge_slots(self) -> list[str]:
        wrong = []
        for replica in self.replicas.values():
            engine = replica.engine
            while engine._claims:  # they reserve slots
                self.loop.step()
            used = engine._slots._running
            if any(used.values()) or engine.attempts:
                wrong.append(f"slots are in use without a job: {dict(used)}")
        return wrong


class _Errors(logging.Handler):
    """Errors of the services that no failing database explains."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        # Coroutines of a killed process may raise anything.
        if error is not None and not isinstance(error, EXPECTED) and not self._world.loop.killing:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self._world.wrong.append(
                f"{record.getMessage()}: {error!r} at {place.filename}:{place.lineno}"
            )


@contextmanager
def _listening(world: World) -> Iterator[None]:
    log = logging.getLogger("bide")
    before = log.level, log.propagate
    handler = _Errors(world)
    log.addHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]


def _job(number: int) -> dict[str, Any]:
    """The fields of an upload that becomes a job."""
    return {"kind": "relay", "input": {"number": number}} if number % 2 else {}


def _metadata(number: int) -> str:
    from base64 import b64encode

    def pair(name: str, value: bytes) -> str:
        return f"{name} {b64encode(value).decode()}"

    return ",".join(
        (
            pair("filename", b"a.txt"),
            pair("kind", b"relay"),
            pair("input", msgspec.json.encode({"number": number})),
        )
    )


def _memory() -> str | None:
    """A folder on a memory file system, if there is one, because nothing has to survive."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
