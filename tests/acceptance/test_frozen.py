"""A service that is stopped (SIGSTOP) for longer than a lease and then resumed. Its children keep running."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.servers.postgres import Postgres
from tests.servers.service import ServiceProcess
from tests.waiting import until

LEASE = 1.0
LIVE = ("PENDING", "PROCESSING", "RETRYING")


def ended(service: ServiceProcess, job_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        job: dict[str, Any] = service.ask("GET", f"/jobs/{job_id}?include=attempts")
        return job if job["status"] not in LIVE else None

    return until(look)


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_service_that_was_stopped_loses_no_job(store: str, tmp_path: Path, postgres: Postgres) -> None:
    options = ["--lease", str(LEASE)]
    if store == "postgresql":
        options += ["--store", f"{postgres.url}?schema=frozen"]
    service = ServiceProcess(tmp_path, "tests.apps.leases:app", workers=3, options=options)
    gate, log = tmp_path / "gate", tmp_path / "log"
    gate.touch()
    log.touch()
    service.start()
    (pid,) = service.pids
    try:
        ids = [
            service.ask("POST", "/jobs", {"kind": kind, "input": {"until": str(gate), "log": str(log)}})[
                "jobId"
            ]
            for kind in ("steady", "plain", "chatty")
        ]
        until(lambda: len(log.read_text().split()) == len(ids))
        os.kill(pid, signal.SIGSTOP)
        time.sleep(2.2 * LEASE)
        os.kill(pid, signal.SIGCONT)
        time.sleep(1.2 * LEASE)
        gate.unlink()
        jobs = [ended(service, job_id) for job_id in ids]
        assert [(job["status"], job["error"]) for job in jobs] == [("DONE", None)] * len(ids)
        assert [len(job["attempts"]) for job in jobs] == [1] * len(ids)
        assert sorted(log.read_text().split()) == sorted(ids)
    finally:
        os.kill(pid, signal.SIGCONT)
        service.stop()
