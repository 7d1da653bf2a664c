"""What only the Celery engine can get wrong: hints that are lost, brokers and workers that come and go."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bide.core.errors import InvalidInput
from bide.core.jobs.record import Status
from bide.server.config import (
    Config,
    EngineConfig,
    StoreConfig,
    TraceConfig,
    UpkeepConfig,
    WorkerConfig,
)
from bide.server.engine.celery.broker import Broker, check, queue_of
from bide.server.engine.celery.engine import REFRESH_SOON, CeleryEngine
from bide.server.engine.celery.hint_publisher import MIN_LIMIT
from bide.server.engine.celery.worker_heartbeats import WorkerHeartbeat, write
from bide.server.intake import Submission
from bide.server.store import StoreUnavailable
from bide.server.store.postgres.store import PostgresStore
from bide.server.worker import work_folders
from bide.service.worker_runtime import sweep_work
from bide.testing.engine import EngineHarness, result
from tests.conftest import started
from tests.integration.asgi import call
from tests.integration.engine.test_engines import schema
from tests.servers.otlp import OtlpReceiver
from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer
from tests.servers.worker import WorkerProcess
from tests.waiting import eventually

TARGET = "bide.testing.engine.handlers"
Start = Callable[..., WorkerProcess]


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """One of the test's own, to be killed and emptied."""
    yield from started(RedisServer)


@pytest.fixture
def config(postgres: Postgres, redis: RedisServer, tmp_path: Path) -> Config:
    return Config(
        data=tmp_path / "data",
        store=StoreConfig(schema(postgres, tmp_path), connections=3),
        engine=EngineConfig("celery", redis.url),
        worker=WorkerConfig(workers=1, drain=30.0),
        upkeep=UpkeepConfig(interval=0.05),
    )


@pytest.fixture
async def harness(config: Config) -> AsyncIterator[EngineHarness]:
    harness = EngineHarness(TARGET, config)
    await harness.start()
    yield harness
    await harness.stop()


@pytest.fixture
def start(config: Config, tmp_path: Path) -> Iterator[Start]:
    workers: list[WorkerProcess] = []

    def start(*options: str, command: list[str] | None = None) -> WorkerProcess:
        log = tmp_path / f"worker{len(workers)}.log"
        workers.append(WorkerProcess(config, TARGET, log, *options, command=command or (), cwd=tmp_path))
        return workers[-1]

    yield start
    for worker in workers:
        worker.end()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


def waiting(config: Config) -> int:
    assert config.engine.broker is not None
    return check(config.engine.broker, ["default"])["default"]


async def test_a_crowd_of_jobs_makes_few_hints(harness: EngineHarness, config: Config) -> None:
    for _ in range(5):
        for _ in range(40):
            await harness.submit("add", {"a": 1})
        await asyncio.sleep(0.03)
    await eventually(lambda: waiting(config) > 0)
    assert waiting(config) <= MIN_LIMIT
    engine = harness.service.engine
    assert isinstance(engine, CeleryEngine)
    assert engine._hints.sent <= MIN_LIMIT


async def test_a_broker_that_is_away_keeps_no_job_out(
    harness: EngineHarness, config: Config, redis: RedisServer
) -> None:
    redis.kill()
    job_id = await harness.submit("add", {"a": 1})
    assert (await harness.job(job_id)).status is Status.PENDING
    engine = harness.service.engine
    ready = await call(harness.service.http, "GET", "/readyz")
    assert ready.status == 200
    await eventually(lambda: any(warning.code == "broker-unreachable" for warning in engine.warnings()))
    redis.start()
    await eventually(
        lambda: not any(warning.code == "broker-unreachable" for warning in engine.warnings())
    )
    await eventually(lambda: waiting(config) > 0)  # what there was to say is said


async def test_a_worker_sweeps_its_own_folder(
    harness: EngineHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await harness.submit("add", {"a": 1})
    orphan, young, work = "0" * 26, "1" * 26, tmp_path / "work"
    for name in (orphan, job_id, young, "stranger"):
        (work / name).mkdir(parents=True)
        if name != young:
            os.utime(work / name, (0, 0))
    half = work / ("2" * 26)
    half.mkdir()
    os.utime(half, (0, 0))
    assert work_folders.rename(str(half)) is not None  # and then came a crash
    store = harness.store
    assert isinstance(store, PostgresStore)
    now = store.now
    monkeypatch.setattr(store, "now", lambda: now() + 86400)  # as of a database whose clock is ahead
    await sweep_work(store, work, 3600.0)
    assert {path.name for path in work.iterdir()} == {job_id, young, "stranger"}


async def test_without_a_worker_it_says_so(harness: EngineHarness) -> None:
    engine = harness.service.engine
    assert engine.workers() == [] and not engine.serves("default")
    assert "no-workers" in [warning.code for warning in engine.warnings()]
    ready = await call(harness.service.http, "GET", "/readyz")
    assert ready.status == 200
    found = [warning["code"] for warning in ready.json()["warnings"]]
    assert "no-workers" in found and "queue-unserved" in found


async def test_queues_of_the_app_and_of_living_workers_are_accepted(harness: EngineHarness) -> None:
    """A fleet that has just started has no worker yet. A worker's own queue is known as soon as it has said so."""
    assert isinstance(harness.store, PostgresStore)
    await harness.submit("add", {"a": 1}, queue="children")
    with pytest.raises(InvalidInput, match="gpu"):
        await harness.submit("add", {"a": 1}, queue="gpu")
    await harness.store.record_worker("new", write(WorkerHeartbeat("new", ("gpu",), ("add",), 1)))
    async with asyncio.timeout(30):
        while not await harness.service.engine.confirm_served("gpu"):
            await asyncio.sleep(0.02)
    await harness.submit("add", {"a": 1}, queue="gpu")


async def test_while_the_roster_cannot_be_read_an_unknown_queue_is_not_refused_for_good(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue may well be served: 503, and the client sends it again."""

    async def away(age: float) -> dict[str, str]:
        raise StoreUnavailable("the database does not answer")

    monkeypatch.setattr(harness.store, "live_workers", away)
    await asyncio.sleep(REFRESH_SOON * 1.5)
    job = {"kind": "add", "input": {"a": 1}, "queue": "gpu"}
    assert (await call(harness.service.http, "POST", "/jobs", json=job)).status == 503
    monkeypatch.undo()
    async with asyncio.timeout(30):
        while (reply := await call(harness.service.http, "POST", "/jobs", json=job)).status == 503:
            await asyncio.sleep(0.05)
    assert reply.status == 422


async def test_hints_that_are_lost_are_sent_again_and_a_worker_survives_its_broker(
    harness: EngineHarness, redis: RedisServer, start: Start
) -> None:
    start()
    await harness.ready()
    assert result(await harness.run("add", {"a": 1})) == 2
    await harness.store.pause("default", True)
    ids = [await harness.submit("add", {"a": n}) for n in range(3)]
    redis.flush()
    await harness.store.pause("default", False)  # without a notification
    assert [result(await harness.ended(i)) for i in ids] == [1, 2, 3]
    redis.restart()
    assert result(await harness.run("add", {"a": 5})) == 6


async def test_a_worker_that_is_killed_and_comes_back_goes_on_at_once(
    harness: EngineHarness, start: Start, log: Path
) -> None:
    worker = start()
    await harness.ready()
    job_id = await harness.submit("sleep", {"seconds": 60, "log": str(log)})
    await harness.until(job_id, lambda job: job.running)
    worker.send(signal.SIGKILL)
    worker.wait()
    # Its lease of 30 seconds is void: the process that has its folder takes over its jobs.
    again = start()
    job = await harness.until(job_id, lambda job: job.fence == 2 and job.running)
    assert (job.attempt, job.losses) == (1, 1)
    # The first signal drains, which would take as long as the job; the second does not wait.
    again.send(signal.SIGTERM)
    await eventually(lambda: "stopping" in again.said)
    again.send(signal.SIGTERM)
    assert await asyncio.to_thread(again.wait) == 0, again.said
    job = await harness.job(job_id)
    assert (job.status, job.held, job.losses) == (Status.PENDING, False, 1)
    assert isinstance(harness.store, PostgresStore)
    assert await harness.store.live_workers(60.0) == {}  # it has signed off, and is not only silent
    await eventually(lambda: harness.service.engine.workers() == [])


async def test_a_signal_during_the_start_of_celery_drains(harness: EngineHarness, start: Start) -> None:
    """The runtime claims jobs before Celery installs its signal handlers."""
    worker = start()
    await eventually(lambda: f"runs {TARGET}" in worker.said)
    assert await asyncio.to_thread(worker.drain) == 0, worker.said
    assert "stopping" in worker.said


async def test_celerys_own_command_starts_a_worker_with_the_options_that_its_users_know(
    harness: EngineHarness, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "courier.py").write_text(
        "import os\nfrom bide.testing.engine.handlers import app\n"
        "celery = app.celery(os.environ['BIDE_STORE'], os.environ['BIDE_BROKER'], "
        f"data={str(harness.service.config.data)!r})\n"
    )
    program = Path(sys.executable).with_name("celery")
    words = ["-A", "courier:celery", "worker", "-Q", "default,elsewhere", "-c", "1", "-l", "INFO"]
    worker = start(command=[str(program), *words])
    engine = harness.service.engine
    await eventually(lambda: engine.serves("default"))
    assert engine.serves("elsewhere") and not engine.serves("children")
    job = await harness.run("add", {"a": 1})
    named = await harness.run("add", {"a": 3}, queue="elsewhere")
    assert [result(j) for j in (job, named)] == [2, 4]
    nobodys = await harness.submit("child", {"number": 1})
    assert await asyncio.to_thread(worker.drain) == 0, worker.said
    assert (await harness.job(nobodys)).status is Status.PENDING


async def test_kinds_that_no_worker_knows_are_named_and_not_hinted_at(
    harness: EngineHarness, config: Config
) -> None:
    engine = harness.service.engine
    assert isinstance(engine, CeleryEngine) and isinstance(harness.store, PostgresStore)
    await harness.store.record_worker("old", write(WorkerHeartbeat("old", ("default",), ("add",), 1)))
    await engine.refresh()
    assert engine.serves("default")
    assert "no worker knows kind child" in " ".join(warning.detail for warning in engine.warnings())
    await harness.submit("runs_once", {"log": "/dev/null"})
    await eventually(lambda: engine._hints.sent == 1)  # which it finds nothing by
    queue_of("default")(Broker(str(config.engine.broker)).connect(engine._hints._app)).purge()
    await engine.refresh()
    await asyncio.sleep(0.1)
    assert waiting(config) == 0
    await harness.submit("add", {"a": 1})
    await eventually(lambda: waiting(config) >= 1)


async def test_a_worker_that_cannot_reach_its_store_says_why(config: Config, tmp_path: Path) -> None:
    nowhere = replace(config, store=StoreConfig("postgresql://bide:secret@127.0.0.1:9/none"))
    worker = WorkerProcess(nowhere, TARGET, tmp_path / "log", cwd=tmp_path)
    assert await asyncio.to_thread(worker.wait) == 1
    assert "postgresql://bide@127.0.0.1:9/none cannot be used" in worker.said
    assert "secret" not in worker.said and "Traceback" not in worker.said


async def test_the_spans_of_service_and_worker_are_one_trace_and_the_log_is_json(
    config: Config, tmp_path: Path
) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    with OtlpReceiver() as receiver:
        harness = EngineHarness(TARGET, replace(config, traces=TraceConfig(receiver.url)))
        await harness.start()
        options = ("--otlp", receiver.url, "--log-format", "json")
        worker = WorkerProcess(config, TARGET, tmp_path / "worker.log", *options, cwd=tmp_path)
        try:
            submission = Submission(kind="child", input=msgspec.Raw(b'{"number": 1, "fail": true}'))
            stored = await harness.service.intake.submit(submission, trace_id=trace_id)
            job = await harness.ended(stored.job.id)
            await eventually(lambda: len(receiver.of(trace_id)) == 3)
        finally:
            worker.end()
            await harness.stop()
    spans = {span.name.partition(" ")[0]: span for span in receiver.of(trace_id)}
    send, process = spans["send"], spans["process"]
    assert process.parent == spans["wait"].parent == send.id and not send.parent
    assert process.attributes["error.type"] == "ODD"
    # Celery writes a line about the shutdown past its log.
    said = [line for line in worker.said.splitlines() if line and "shutdown (MainProcess)" not in line]
    lines = [json.loads(line) for line in said]
    (failed,) = [line for line in lines if line.get("jobId") == job.id]
    assert (failed["tenant"], failed["traceId"], failed["kind"]) == ("-", trace_id, "child")
