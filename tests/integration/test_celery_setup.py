"""Settings that cannot go together are refused, and `bide doctor` explains the others."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bide import App
from bide.cli import root
from bide.core.errors import SetupError
from bide.server.config import Config, EngineConfig, StoreConfig, WorkerConfig
from bide.server.engine import WorkerState
from bide.server.engine.celery.broker import Broker, check, check_settings
from bide.server.engine.celery.worker_heartbeats import WorkerHeartbeat, read, write
from bide.server.runner.slots import Slots
from bide.server.store.postgres.store import PostgresStore
from bide.service.backends import check_engine
from bide.service.worker import RuntimeStep
from bide.service.worker_runtime import take_folder
from tests.integration.test_store_postgres import url_of
from tests.servers.postgres import Postgres
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

STORE = StoreConfig("postgresql://bide@127.0.0.1:5432/jobs")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Config(engine=EngineConfig("celery", "redis://127.0.0.1")), "SQLite allows one service only"),
        (Config(store=STORE, engine=EngineConfig("celery")), "needs a broker"),
        (Config(store=STORE, engine=EngineConfig("celery", "sqs://")), "unknown broker 'sqs'"),
        (Config(store=STORE, engine=EngineConfig("embedded", "redis://h")), "add --engine celery"),
        (Config(engine=EngineConfig("cron")), "use embedded or celery"),
    ],
)
def test_what_cannot_go_together_is_refused(config: Config, said: str) -> None:
    with pytest.raises(SetupError, match=said):
        check_engine(config)


def test_both_brokers_are_taken() -> None:
    for url in ("redis://127.0.0.1:6379/0", "amqp://bide@127.0.0.1//"):
        check_engine(Config(store=STORE, engine=EngineConfig("celery", url)))
    check_engine(Config())


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@host:6379/1", "redis://host:6379/1"),
        ("rediss://me:secret@host/0?password=secret", "rediss://me@host/0"),
        ("amqp://me:secret@host:5672//", "amqp://me@host:5672//"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert Broker(url).shown == shown
    assert "secret" not in repr(EngineConfig("celery", url))
    assert "secret" not in Broker(url).explain(ConnectionError("refused"))


def test_what_a_broker_says_is_explained(redis_server: RedisServer, rabbit: RabbitServer) -> None:
    for url in (redis_server.url, rabbit.url):
        assert check(url, ["default", "video"]).keys() == {"default", "video"}
    wrong = rabbit.url.replace("guest:guest", "guest:wrong")
    with pytest.raises(SetupError, match="rejects this user"):
        check(wrong, ["default"])
    with pytest.raises(SetupError, match="cannot be reached"):
        check("redis://127.0.0.1:9/0", ["default"])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("task_acks_late", True, "acknowledged early"),
        ("worker_prefetch_multiplier", 4, "prefetch hints that free workers need"),
        ("worker_pool", "prefork", "bide's own children"),
        ("result_backend", "redis://127.0.0.1/1", "keeps results in its store"),
        ("broker_transport_options", {"visibility_timeout": 3600}, "leases"),
        ("task_queue_max_priority", 10, "the store picks the next job"),
        ("task_ignore_result", False, "no results"),
        ("task_always_eager", True, "never reach a worker"),
        ("task_create_missing_queues", False, "would get no hints"),
    ],
)
def test_a_setting_that_does_harm_is_explained(name: str, value: Any, said: str) -> None:
    app = Broker("redis://127.0.0.1").celery(["default"], **{name: value})
    (wrong,) = check_settings(app)
    assert name in wrong and said in wrong


def test_bides_own_settings_are_right() -> None:
    assert list(check_settings(Broker("redis://127.0.0.1").celery(["default"]))) == []
    assert (
        list(check_settings(Broker("redis://127.0.0.1").celery(["default"], worker_pool="threads")))
        == []
    )


def test_a_pool_that_would_stand_beside_is_refused() -> None:
    class Prefork:
        pool_cls = type("TaskPool", (), {"__module__": "celery.concurrency.prefork"})
        use_eventloop = True

    with pytest.raises(SetupError, match="--pool solo"):
        RuntimeStep(Prefork()).create(Prefork())


def test_a_worker_takes_the_first_folder_that_nobody_has(tmp_path: Path) -> None:
    first, second = take_folder(tmp_path), take_folder(tmp_path)
    name = first.replica
    assert first.path != second.path and name != second.replica
    first.unlock()
    heir = take_folder(tmp_path)
    assert heir.replica == name
    heir.unlock()
    second.unlock()


def test_a_worker_of_another_version_is_no_reason_to_know_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    child = WorkerState("1.1", 7, "idle", "sync", [], "2030-01-01T00:00:00Z", 3)
    mine = WorkerHeartbeat("one", ("default",), ("add",), 2, (child,))
    with caplog.at_level(logging.WARNING):
        assert read([write(mine), '{"name": 5}']) == [mine]
    assert "cannot be decoded" in caplog.text


def test_a_worker_has_the_queues_and_children_of_its_settings() -> None:
    app = App(queues={"narrow": 1})
    for name, queue in [("a", "default"), ("b", "video"), ("c", "narrow")]:
        app.job(name=name, queue=queue)(lambda: None)
    assert WorkerConfig(workers=2, queues=("video",)).children(9) == 2
    limits = Slots(app, 2, 100, ("video", "elsewhere"))
    assert limits.queues == ["elsewhere", "video"]
    assert limits.available(False, "video") == 2 and limits.available(False, "default") == 0
    # Fewer children than queues: the queues share all children.
    crowded = Slots(app, 2, 100, ("default", "video", "narrow"))
    assert [crowded.available(False, q) for q in crowded.queues] == [2, 1, 2]


# --- doctor


def doctor(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(root, ["doctor", "--data", str(folder / "data"), *words])


async def test_doctor_looks_at_broker_and_workers(
    tmp_path: Path, postgres: Postgres, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url_of(postgres, tmp_path)
    store = PostgresStore(url)
    await store.open(lambda events: None)
    target = ("bide.testing.engine.handlers:app", "--store", url, "--broker", redis_server.url)
    try:
        said = (await asyncio.to_thread(doctor, tmp_path, *target)).output
        assert "waiting hints" in said and "no worker is running" in said
        one = WorkerHeartbeat("one", ("default", "narrow"), ("add",), 2, (), ("children cannot start",))
        await store.record_worker("one", write(one))
        said = (await asyncio.to_thread(doctor, tmp_path, *target)).output
        assert "one: children cannot start" in said
        assert "no worker serves queue children" in said
        assert "kind narrow is missing at one" in said
        kinds = __import__("bide.testing.engine.handlers", fromlist=["app"]).app.kinds
        await store.record_worker(
            "one", write(WorkerHeartbeat("one", ("default", "narrow", "children"), tuple(kinds), 2))
        )
        result = await asyncio.to_thread(doctor, tmp_path, *target)
        assert "workers: one: default, narrow, children, concurrency 2" in result.output
    finally:
        await store.close()


def test_doctor_reads_the_settings_of_a_celery_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_acks.py").write_text(
        "from bide import App\nfrom celery import Celery\napp = App()\n"
        "@app.job()\ndef f() -> None: ...\n"
        "celery = app.celery('postgresql://me:pw@127.0.0.1:9/none', 'redis://127.0.0.1:9/0', task_acks_late=True)\n"
        "stranger = Celery('stranger')\n"
    )
    monkeypatch.chdir(tmp_path)
    said = doctor(tmp_path, "late_acks:celery").output
    assert "celery settings: task_acks_late is True" in said
    assert "broker: the broker redis://127.0.0.1:9/0 cannot be reached" in said
    assert "postgresql://me@127.0.0.1:9/none cannot be used" in said and "pw" not in said
    said = doctor(tmp_path, "late_acks:stranger").output
    assert "without bide: create it with app.celery(store, broker)" in said
    said = doctor(tmp_path, "--broker", "redis://127.0.0.1:9/0").output
    assert "Give a database with --store" in said


def test_doctor_looks_at_progress_budget_and_clocks(
    tmp_path: Path, postgres: Postgres, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url_of(postgres, tmp_path)
    all_parts = ("--store", url, "--progress", redis_server.url, "--budget", redis_server.url)
    said = doctor(tmp_path, *all_parts).output
    assert "ok    progress store: progress was stored and read" in said
    assert "ok    clock of the database: its clock differs by less than 5 s" in said
    assert f"ok    budget: {redis_server.url}" in said

    none = "redis://127.0.0.1:9/0"
    said = doctor(tmp_path, "--progress", none, "--budget", none).output
    assert "wrong progress store: the Redis for progress does not answer" in said
    assert "wrong budget: redis://127.0.0.1:9/0 does not answer" in said

    monkeypatch.setattr("bide.cli.admin.time", SimpleNamespace(time=lambda: time.time() - 60))
    said = doctor(tmp_path, *all_parts).output
    assert said.count("its clock is 60 s ahead of the clock of this machine") == 2
