"""`bide serve --store postgresql://…`, with several replicas on one database, during failures of the database.

It imports bench, because it runs a small trial of `python -m bench.scale`.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.scale.trial import Trial

from bide.server.store.migrations import scripts
from tests.acceptance.serving import Serving
from tests.servers import ServerMissing
from tests.servers.postgres import Postgres
from tests.servers.warm import warm
from tests.waiting import until

VERSIONS = [str(number) for number, _ in scripts("postgres")]


@pytest.fixture(scope="module")
def server(postgres: Postgres) -> Iterator[Postgres]:
    """One that can be killed, with the waits for the disk that keep what it has acknowledged."""
    try:
        server = Postgres()
    except ServerMissing as missing:  # which the other fixture would have said
        pytest.skip(str(missing))
    yield server
    server.end()


class Replica(Serving):
    def __init__(self, folder: Path, url: str, *, lease: float = 30.0) -> None:
        folder.mkdir()
        super().__init__(folder)
        self._store = url
        self._lease = lease

    def command(self) -> list[str]:
        return [*super().command(), "--store", self._store, "--lease", str(self._lease)]


def say(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [warm().program, *words], capture_output=True, text=True, timeout=30, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.soak
def test_nothing_is_lost_repeated_or_reported_twice(tmp_path: Path, server: Postgres) -> None:
    faults = {"database": 1, "replica": 1, "child": 2, "connections": 1}
    report = Trial(tmp_path, server, seed=3).run(60, faults)
    assert report.violations == []
    assert report.acknowledged == sum(report.ended.values()) == 60
    assert report.faults == faults
    assert max(report.away) < 10, "it is used again soon after it is back, without a restart"


def test_replicas_are_one_service(tmp_path: Path, postgres: Postgres) -> None:
    url = f"{postgres.url}?schema=replicas"
    one, two = (Replica(tmp_path / name, url, lease=1.5) for name in ("one", "two"))
    two.data.mkdir()
    (two.data / "blobs").symlink_to(one.data / "blobs")  # as replicas share their files
    one.start()
    two.start()
    try:
        painted = one.ended(one.post("paint", size=70_000))
        for replica in (one, two):
            file = urllib.request.urlopen(f"{replica.url}/jobs/{painted['jobId']}/files/picture.bin")
            assert len(file.read()) == 70_000
        # Both have two children and a queue that takes two jobs: four can only run on both.
        jobs = [one.post("work", number=n, seconds=60) for n in range(4)]
        until(lambda: all(two.job(job)["status"] == "PROCESSING" for job in jobs))
        attempts = [one.ask("GET", f"/jobs/{j}?include=attempts")["attempts"][0] for j in jobs]
        workers = {attempt["worker"].rpartition(":")[0] for attempt in attempts}
        assert len(workers) == 2
        mine = (one.data / "replica").read_text()
        of_one = [j for j, a in zip(jobs, attempts, strict=True) if a["worker"].startswith(mine)]
        of_two = [job for job in jobs if job not in of_one]
        # A cancel reaches the replica that runs it, and a long poll at the other returns the end immediately.
        answers: list[Any] = []
        wait = {"Prefer": "wait=8"}
        waiting = threading.Thread(
            target=lambda: answers.append(two.ask("GET", f"/jobs/{of_one[0]}", headers=wait))
        )
        waiting.start()
        begin = time.monotonic()
        two.ask("POST", f"/jobs/{of_one[0]}/cancel")
        waiting.join()
        assert answers[0]["status"] == "CANCELLED"
        assert time.monotonic() - begin < 8
        two.ask("POST", f"/jobs/{of_one[1]}/cancel")
        # A replica that is gone for good: the other takes its jobs over when their leases have run out.
        two.kill()
        until(lambda: all(one.job(job)["attempt"] == 1 for job in of_two))

        def taken() -> bool:
            found = [one.ask("GET", f"/jobs/{j}?include=attempts")["attempts"][-1] for j in of_two]
            return all(a["worker"].startswith(mine) and a["endedAt"] is None for a in found)

        until(taken)
    finally:
        one.stop()
        two.stop()


def test_while_the_database_is_away_callers_get_503_and_nothing_is_lost(
    tmp_path: Path, server: Postgres
) -> None:
    service = Replica(tmp_path / "one", f"{server.url}?schema=away")
    service.start()
    try:
        done = service.post("work", number=1)
        service.ended(done)
        runs = service.post("work", number=7, seconds=1.0)
        until(lambda: service.job(runs)["steps"])
        server.kill()
        begin = time.monotonic()
        refused = service.refused("work", number=2)
        assert refused is not None
        error, body = refused
        assert (error.code, json.loads(body)["code"]) == (503, "unavailable")
        assert int(error.headers["Retry-After"]) >= 1
        assert "does not answer" in json.loads(body)["detail"]
        assert time.monotonic() - begin < 5
        assert service.ask("GET", "/healthz") == {"status": "ok"}
        # The handler ends meanwhile: what it came to is kept, and stored afterwards.
        until(lambda: f"{runs} second" in service.marks.read_text())
        server.start()
        assert service.ended(runs)["result"] == 7
        assert service.job(runs)["attempt"] == 1
        assert service.ended(service.post("work", number=3))["result"] == 3
    finally:
        service.stop()


def test_a_child_that_is_spawned_while_the_database_is_away_is_stored_when_it_is_back(
    tmp_path: Path, server: Postgres
) -> None:
    service = Replica(tmp_path / "one", f"{server.url}?schema=spawn")
    service.start()
    try:
        painted = service.ended(service.post("paint", size=1000))["jobId"]
        go = tmp_path / "go"
        given = {"picture": {"job": painted, "name": "picture.bin"}, "go": str(go)}
        parents = [service.post("deliver", **given, gather=gather) for gather in (True, False)]
        until(lambda: service.marks.exists() and service.marks.read_text().count("ready") == 2)
        server.kill()
        go.touch()
        until(lambda: all(f"{job} cannot spawn" in service.said() for job in parents))
        server.start()
        ended = [service.ended(job) for job in parents]
        assert [(job["status"], job["result"], job["attempt"]) for job in ended] == [
            ("DONE", 1000, 1),
            ("DONE", 0, 1),
        ]
        (alone,) = ended[1]["children"]
        assert service.ended(alone["jobId"])["result"] == 1000, (
            "no request waits for it, and it is not lost"
        )
    finally:
        service.stop()


def test_the_commands_know_the_store(tmp_path: Path, postgres: Postgres) -> None:
    url = f"{postgres.url}?schema=commands"
    assert say("migrate", "--store", url) == (0, f"{url}: applied {', '.join(VERSIONS)}\n")
    assert say("migrate", "--store", url, "--json") == (
        0,
        json.dumps({"database": url, "applied": []}) + "\n",
    )
    code, key = say("keys", "create", "--store", url, "--scope", "admin")
    assert code == 0 and key.startswith("bide_")
    code, said = say("keys", "list", "--store", url, "--json")
    assert json.loads(said)["id"] == key.split("_")[1] and key.split("_")[2].strip() not in said
    code, said = say("doctor", "--data", str(tmp_path), "--store", url)
    assert code == 1, "tests run without fsync"
    assert "fsync = off" in said and "in a power cut" in said
    code, said = say("doctor", "--data", str(tmp_path), "--store", "postgresql://me:pw@127.0.0.1:1/db")
    assert code == 1
    assert "wrong database: postgresql://me@127.0.0.1:1/db cannot be used" in said
    code, said = say("serve", "tests.apps.echo:app", "--data", str(tmp_path), "--store", "redis://x")
    assert (code, said) == (
        1,
        "bide: unknown store 'redis': write postgresql://user@host:5432/database\n",
    )


def test_doctor_says_that_a_sound_database_is_sound(tmp_path: Path, server: Postgres) -> None:
    url = f"{server.url}?schema=sound"
    assert say("migrate", "--store", url)[0] == 0
    code, said = say("doctor", "--data", str(tmp_path), "--store", url)
    assert code == 0, said
    assert "database: PostgreSQL" in said and f"schema sound at {VERSIONS[-1]}" in said
