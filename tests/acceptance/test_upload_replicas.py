"""Two served replicas with PostgreSQL and a bucket: one is killed in the middle of an upload, and the other continues."""

from __future__ import annotations

import hashlib
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import test_upload_crashes as crashes
from tests.acceptance.test_upload_crashes import METADATA, ask, content, patch, stream
from tests.servers.postgres import Postgres
from tests.servers.service import ServiceProcess
from tests.servers.swift import Swift
from tests.waiting import until

BUCKET = "bide-upload-replicas"
SIZE = 96 * 1024 * 1024


@pytest.mark.timeout(300)
def test_another_replica_continues_the_upload_of_a_killed_one(
    postgres: Postgres, swift: Swift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crashes, "SIZE", SIZE)
    swift.make_bucket(BUCKET)
    options = ["--store", f"{postgres.url}?schema=t{uuid.uuid4().hex[:16]}"]
    options += ["--blobs", swift.url(BUCKET, uuid.uuid4().hex)]
    replicas = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        replicas.append(
            ServiceProcess(
                tmp_path / name,
                "tests.apps.uploads:app",
                workers=1,
                options=options,
                env=swift.environment,
            )
        )
    one, two = replicas
    try:
        for replica in replicas:
            replica.start()
        told = {"Upload-Length": str(SIZE), "Upload-Metadata": METADATA}
        place = ask(one, "POST", "/files", told)["location"]
        acknowledged = int(patch(one, place, 0, 3_000_000)["upload-offset"])
        sent = [0]
        sender = threading.Thread(target=stream, args=(one, place, acknowledged, sent))
        sender.start()
        # A long request is recorded in between.
        shown = place.replace("/files/", "/uploads/")
        recorded = until(lambda: _received(two, shown, acknowledged), timeout=120)
        one.kill(alone=False)
        sender.join()
        at = int(ask(two, "HEAD", place, {})["upload-offset"])
        assert recorded <= at < SIZE
        while at < SIZE:
            answer = patch(two, place, at, min(at + 50_000_000, SIZE))
            at = int(answer["upload-offset"])
        job = until(lambda: _ended(two, answer["job-location"]), timeout=120)
        whole = hashlib.sha256()
        for first in range(0, SIZE, 1024 * 1024):
            whole.update(content(first, first + 1024 * 1024))
        assert (job["status"], job["result"]["size"]) == ("DONE", SIZE), job
        assert job["result"]["sha256"] == job["result"]["real"] == whole.hexdigest()
        for replica in replicas:
            assert not list((replica.data / "uploads").iterdir())
    finally:
        for replica in replicas:
            replica.stop()


def _received(service: ServiceProcess, shown: str, more_than: int) -> int | None:
    received = int(service.ask("GET", shown)["received"])
    return received if received > more_than else None


def _ended(service: ServiceProcess, place: str) -> Any:
    job = service.ask("GET", place)
    return job if job["status"] not in ("PENDING", "PROCESSING") else None
