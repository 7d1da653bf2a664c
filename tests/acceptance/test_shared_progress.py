"""Two replicas of a service on one PostgreSQL: both return the progress of a job with the same ETag."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.serving import Serving
from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer
from tests.waiting import until


class Replica(Serving):
    def __init__(self, folder: Path, options: list[str]) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.workers = 1
        self._more = options

    def command(self) -> list[str]:
        return [*super().command(), *self._more]

    def poll(self, job_id: str, **headers: str) -> tuple[int, str, Any]:
        """Status, ETag and the job, if there is one."""
        request = urllib.request.Request(
            f"{self.url}/jobs/{job_id}", headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, reply.headers["ETag"], json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["ETag"], None

    def steps(self, job_id: str) -> float | None:
        _, _, job = self.poll(job_id)
        return None if job["progress"] is None else job["progress"]["done"]


@pytest.mark.parametrize("backend", ["redis", pytest.param("table", marks=pytest.mark.soak)])
def test_progress_is_the_same_at_every_replica(
    tmp_path: Path, postgres: Postgres, redis_server: RedisServer, backend: str
) -> None:
    options = ["--store", f"{postgres.url}?schema=progress_{backend}"]
    if backend == "redis":
        options += ["--progress", redis_server.url]
    one, two = Replica(tmp_path / "one", options), Replica(tmp_path / "two", options)
    orders = tmp_path / "orders"
    orders.write_text("0")

    def order(steps: int) -> None:
        part = tmp_path / "part"
        part.write_text(str(steps))
        part.rename(orders)

    one.start()
    two.start()
    try:
        job = one.post("march", orders=str(orders))
        until(lambda: two.job(job)["status"] == "PROCESSING")
        order(10)
        until(lambda: one.steps(job) == two.steps(job) == 10)
        (_, tag, _), (_, other, _) = one.poll(job), two.poll(job)
        assert tag == other
        assert two.poll(job, If_None_Match=tag)[0] == one.poll(job, If_None_Match=tag)[0] == 304
        # A long poll at either replica returns new progress, wherever the job runs.
        answers: list[tuple[int, str, Any]] = []
        waiting = [
            threading.Thread(
                target=lambda r=replica: answers.append(r.poll(job, If_None_Match=tag, Prefer="wait=20"))
            )
            for replica in (one, two)
        ]
        for thread in waiting:
            thread.start()
        begin = time.monotonic()
        order(20)
        for thread in waiting:
            thread.join()
        assert [(status, found["progress"]["done"]) for status, _, found in answers] == [(200, 20.0)] * 2
        assert answers[0][1] == answers[1][1] > tag
        assert time.monotonic() - begin < 10  # about one second; more on a busy machine
        # At the end of the job, its record has the progress.
        orders.unlink()
        ended = two.ended(job)
        assert ended["progress"]["done"] == 20
        until(lambda: one.poll(job)[1] == two.poll(job)[1])
    finally:
        one.stop()
        two.stop()
