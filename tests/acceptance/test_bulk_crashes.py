"""kill -9 of the service during a bulk action: no job is changed twice, and none is left out."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer
from tests.servers.service import ServiceProcess
from tests.waiting import until

JOBS = 1000
KILLS = 2


def test_a_bulk_action_over_kill_9_changes_each_job_once(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path, "tests.apps.echo:app", workers=1)
    service.start()
    try:
        service.ask("POST", "/queues/default/pause")
        job = {"kind": "echo", "runAt": "2100-01-01T00:00:00Z"}
        ids = []
        for _ in range(JOBS // 1000):
            batch = service.ask("POST", "/jobs/batch", {"jobs": [job] * 1000})
            ids += [one["jobId"] for one in batch["jobs"]]
        cancelled = service.ask("POST", "/bulk", {"action": "cancel", "filter": {"kind": "echo"}})
        assert ended(service, cancelled["jobId"])["result"]["changed"] == JOBS
        bulk = service.ask("POST", "/bulk", {"action": "retry", "filter": {"kind": "echo"}})["jobId"]
        later = service.ask("POST", "/jobs", job)["jobId"]
        reached = 0
        for _ in range(KILLS):
            reached = until(partial(beyond, service, bulk, reached))
            assert reached < JOBS, "the action was too fast to be killed"
            service.kill()
            service.start()
        done = ended(service, bulk)
        assert done["status"] == "DONE", done
        assert done["result"] == {
            "action": "retry",
            "count": JOBS,
            "changed": JOBS,
            "refused": 0,
            "skipped": 0,
            "errors": [],
        }
        assert service.ask("GET", f"/jobs/{later}")["status"] == "PENDING"
        events = reruns(service.data)
        assert events == dict.fromkeys(ids, 1)
        attempts = service.ask("GET", f"/jobs/{bulk}?include=attempts")["attempts"]
        assert len(attempts) == KILLS + 1
    finally:
        service.stop()


def test_another_replica_continues_a_bulk_action_with_the_celery_engine(
    tmp_path: Path, postgres: Postgres, redis_server: RedisServer
) -> None:
    """No worker runs, so it also shows that the services themselves run the action."""
    options = ["--store", f"{postgres.url}?schema=bulk", "--lease", "1.5", "--engine", "celery"]
    options += ["--broker", redis_server.url]
    replicas = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        replicas.append(ServiceProcess(tmp_path / name, "tests.apps.echo:app", options=options))
    try:
        for replica in replicas:
            replica.start()
        ids = [
            one["jobId"]
            for one in replicas[0].ask("POST", "/jobs/batch", {"jobs": [{"kind": "echo"}] * 1000})[
                "jobs"
            ]
        ]
        order = {"action": "priority", "filter": {"kind": "echo"}, "priority": 3}
        bulk = replicas[0].ask("POST", "/bulk", order)["jobId"]
        until(partial(beyond, replicas[0], bulk, 0))
        attempts = replicas[0].ask("GET", f"/jobs/{bulk}?include=attempts")["attempts"]
        runs_it = int(attempts[0]["worker"].rpartition(":")[2].removesuffix(".bulk"))
        killed, other = sorted(replicas, key=lambda replica: runs_it not in replica.pids)
        assert runs_it in killed.pids
        killed.kill()
        done = ended(other, bulk)
        assert done["status"] == "DONE", done
        result = done["result"]
        assert (result["count"], result["changed"], result["skipped"]) == (len(ids), len(ids), 0)
        assert len(other.ask("GET", f"/jobs/{bulk}?include=attempts")["attempts"]) == 2
        assert redis_server.waiting("bide") == 0  # no worker is asked to run it
        for some in (ids[0], ids[-1]):
            job = other.ask("GET", f"/jobs/{some}")
            assert (job["status"], job["priority"]) == ("PENDING", 3)
    finally:
        for replica in replicas:
            replica.stop()


def beyond(service: ServiceProcess, job_id: str, reached: int) -> int:
    """The number of jobs that the action has reached, if it is greater; 0 otherwise."""
    job = service.ask("GET", f"/jobs/{job_id}")
    done = int((job["progress"] or {}).get("done") or 0)
    assert job["finishedAt"] is None, "the action was too fast to be killed"
    return done if done > reached else 0


def ended(service: ServiceProcess, job_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        job: dict[str, Any] = service.ask("GET", f"/jobs/{job_id}", headers={"Prefer": "wait=5"})
        return job if job["finishedAt"] is not None else None

    return until(look, timeout=60)


def reruns(data: Path) -> dict[str, int]:
    """How often each job began its second run."""
    found: Counter[str] = Counter()
    (path,) = data.glob("*.db")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        for job_id, text in connection.execute("SELECT job_id, job FROM events WHERE type = 'status'"):
            known = json.loads(text)
            if known["kind"] == "echo" and known["run"] > 1:
                found[job_id] += known["run"] - 1
    return dict(found)
