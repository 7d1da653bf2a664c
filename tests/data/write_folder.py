"""Writes what a real service leaves behind when it is killed: a data folder of the present schema, as text.

Run it once with a new migration, `python -m tests.data.write_folder`, and keep what it writes: the upgrade test opens
the folder of every schema that there was.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from bide.server.store.migrations import scripts
from tests.acceptance.serving import Serving
from tests.waiting import until

HERE = Path(__file__).parent
PAST = 1_735_732_800.0  # the beginning of 2025: tests open the folder later
FAR = "2100-01-01T00:00:00Z"


def live(service: Serving) -> dict[str, str]:
    """Jobs in every status, by name."""
    ask = service.ask
    jobs = {"done": service.post("work", number=1), "partial": service.post("half")}
    jobs["file"] = service.post("paint", size=10)
    jobs["error"] = service.post("fail")
    body = {"kind": "work", "input": {"number": 2}, "labels": {"of": "ann"}}
    jobs["key"] = ask("POST", "/jobs", body, {"Idempotency-Key": "one"})["jobId"]
    for job_id in jobs.values():
        service.ended(job_id)
    jobs["retrying"] = service.post("heal")
    until(lambda: service.job(jobs["retrying"])["status"] == "RETRYING")
    jobs["scheduled"] = ask("POST", "/jobs", {**body, "runAt": FAR})["jobId"]
    jobs["cancelled"] = ask("POST", "/jobs", {**body, "runAt": FAR})["jobId"]
    ask("POST", f"/jobs/{jobs['cancelled']}/cancel")
    ask("POST", "/queues/other/pause")
    jobs["paused"] = service.post("rest")
    jobs["parent"] = service.post("family", number=10, seconds=60)

    def children_run() -> bool:
        running = ask("GET", "/jobs?kind=work&status=PROCESSING")["jobs"]
        return len(running) == 2 and all(service.job(j["jobId"])["steps"] for j in running)

    until(children_run)
    jobs["waiting"] = service.post("work", number=3)
    return jobs


def uploads(service: Serving) -> dict[str, str]:
    """One complete upload and one partial upload, by name."""
    tus = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}
    places = {}
    for what, size in (("whole", 10), ("half", 20)):
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
        connection.request("POST", "/files", bytes(10), {**tus, "Upload-Length": str(size)})
        answer = connection.getresponse()
        answer.read()
        places[what] = str(answer.getheader("Location")).rpartition("/")[2]
        connection.close()
    return places


def main() -> None:
    goal = HERE / f"schema_{scripts('sqlite')[-1][0]}"
    with tempfile.TemporaryDirectory() as name:
        # Tests open the folder years later, and must still find its uploads.
        service = Serving(Path(name), env={"BIDE_UPLOAD_LIFETIME": "3000000000"})
        service.step_clock(PAST - time.time())
        service.start()
        try:
            sent = uploads(service)
            jobs = live(service)
            shown: dict[str, Any] = {what: service.job(job_id) for what, job_id in jobs.items()}
        finally:
            service.kill()
        goal.mkdir(exist_ok=True)
        for folder in ("blobs", "uploads"):
            shutil.copytree(service.data / folder, goal / folder, dirs_exist_ok=True)
        replica = (service.data / "replica").read_text()
        with contextlib.closing(sqlite3.connect(service.data / "bide.db")) as database:
            dump = "\n".join(database.iterdump())
    text = re.sub(rf"{re.escape(os.uname().nodename)}(\.[0-9a-f]+)?:", "host:", dump)
    text = text.replace(replica, "host")
    (goal / "bide.sql").write_text(text + "\n")
    (goal / "replica").write_text("host")
    (goal / "uploads.json").write_text(json.dumps(sent, indent=1, sort_keys=True) + "\n")
    (goal / "jobs.json").write_text(json.dumps(shown, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
