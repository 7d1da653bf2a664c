"""The walks of the service, which runs in this process with its HTTP server."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.ports import HOST, free_port
from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer
from tests.servers.swift import Swift
from tests.servers.worker import WorkerProcess

from bench.walk.calls import Pair, traced
from bide.server.config import (
    BlobsConfig,
    Config,
    EngineConfig,
    HttpConfig,
    StoreConfig,
    UpkeepConfig,
    WorkerConfig,
)
from bide.server.worker.app_location import AppLocation
from bide.service.serve import serve

PACKAGES = ("bide.server", "bide.service", "bide.core")
TIMERS = (
    "bide.server.engine.celery.engine:CeleryEngine._refresh_loop",
    "bide.server.progress.publisher:ProgressPublisher._refresh_loop",
    "bide.server.runner.runner:Runner._tick_loop",
    "bide.server.store.postgres.feed:ChangeFeed._ping",
    "bide.server.upkeep:Upkeep._run",
    "bide.service.httpd.server:HttpServer._every_second",
)
APP = AppLocation("bench.walk.app")
BUCKET = "bide-walk"
JOBS = 20
SECONDS = 0.3  # of a job, so that the long poll begins before its end


class Caller:
    """Sends requests on one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=60)

    def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[http.client.HTTPResponse, bytes]:
        self._connection.request(method, path, body, dict(headers))
        response = self._connection.getresponse()
        content = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status} {content[:500]!r}")
        return response, content

    def finish(self, path: str) -> None:
        """Wait for the end of a job."""
        status = "PENDING"
        while status in ("PENDING", "PROCESSING"):
            _, content = self.request("GET", path, {"Prefer": "wait=30"})
            status = json.loads(content)["status"]
        if status != "DONE":
            raise RuntimeError(f"{path} is {status}")


def job(folder: Path) -> set[Pair]:
    """`POST /jobs` and a long poll until the end of the job, on SQLite."""

    def run(caller: Caller, number: int) -> None:
        body = json.dumps({"kind": "nap", "input": {"seconds": SECONDS}}).encode()
        response, _ = caller.request("POST", "/jobs", {"Content-Type": "application/json"}, body)
        caller.finish(_path(response, "Location"))

    return _walk(Config(data=folder / "data", worker=WorkerConfig(workers=1, drain=5.0)), run)


def upload(folder: Path) -> set[Pair]:
    """A tus upload into a job and a long poll until its end, on S3, PostgreSQL and Celery."""

    def run(caller: Caller, number: int) -> None:
        data = str(number).encode() * 100_000
        fields = {"filename": "a.bin", "kind": "take", "input": json.dumps({"seconds": SECONDS})}
        metadata = [
            f"{name} {base64.b64encode(text.encode()).decode()}" for name, text in fields.items()
        ]
        created, _ = caller.request(
            "POST",
            "/files",
            {
                "Tus-Resumable": "1.0.0",
                "Upload-Length": str(len(data)),
                "Upload-Metadata": ",".join(metadata),
            },
        )
        done, _ = caller.request(
            "PATCH",
            _path(created, "Location"),
            {
                "Tus-Resumable": "1.0.0",
                "Upload-Offset": "0",
                "Content-Type": "application/offset+octet-stream",
            },
            data,
        )
        caller.finish(_path(done, "Job-Location"))

    with contextlib.ExitStack() as stack:
        swift = Swift()
        stack.callback(swift.end)
        postgres = Postgres()
        stack.callback(postgres.end)
        redis = RedisServer()
        stack.callback(redis.end)
        os.environ.update(swift.environment)
        swift.make_bucket(BUCKET)
        config = Config(
            data=folder / "data",
            store=StoreConfig(postgres.url),
            engine=EngineConfig("celery", redis.url),
            blobs=BlobsConfig(swift.url(BUCKET)),
            worker=WorkerConfig(workers=1, drain=5.0),
        )
        target = f"{APP.module}:{APP.attribute}"
        worker = WorkerProcess(config, target, folder / "log", "--blobs", swift.url(BUCKET))
        stack.callback(worker.end)
        return _walk(config, run)


def _path(response: http.client.HTTPResponse, header: str) -> str:
    return urlsplit(response.headers[header]).path


def _walk(config: Config, run: Callable[[Caller, int], None]) -> set[Pair]:
    """The calls that each job makes, after a first one that opens connections and fills caches. The service has the main
    thread, because it handles signals; the requests come from another one.
    """
    port = free_port()
    config = replace(config, http=HttpConfig(port=port), upkeep=UpkeepConfig(interval=3600.0))
    found: list[set[Pair]] = []

    with traced(PACKAGES, TIMERS) as pairs:

        def send() -> None:
            try:
                caller = Caller(port)
                run(caller, 0)
                for number in range(1, JOBS + 1):
                    pairs.clear()
                    run(caller, number)
                    found.append(set(pairs))
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        sender = threading.Thread(target=send)
        serve(APP.load(), APP, config, listening=lambda url: sender.start())
    sender.join()
    if len(found) < JOBS:
        raise RuntimeError("a request failed; the output has the reason")
    return set.intersection(*found)
