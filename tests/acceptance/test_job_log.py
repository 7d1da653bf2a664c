"""`bide log`, `status` and `list` for a job that logs and fails, and for one that is overdue, with a real service."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.client.blocking import BlockingJob, Client
from tests.servers.service import ServiceProcess, serving_tasks
from tests.servers.warm import warm
from tests.terminal import Terminal

PATIENCE = 60.0
TASKS = """
import logging, os, time
from bide import App, Context

app = App()
log = logging.getLogger(__name__)

def read(path: str) -> int:
    log.info("reading %s", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    log.warning("\\x1b[31mthe file is empty")
    return 1 // os.path.getsize(path)

@app.job(steps={"look": 1, "read": 3})
def count(ctx: Context, path: str) -> int:
    ctx.step("look", lambda: None)
    ctx.progress(1, 4, message="Reading")
    return ctx.step("read", read, path)

@app.job()
def wait(path: str = "") -> None:
    while path and not os.path.exists(path):
        time.sleep(0.01)
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with serving_tasks(tmp_path, TASKS) as service:
        yield service


def bide(service: ServiceProcess, *args: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BIDE_")}
    env = {**kept, "BIDE_URL": service.url}
    done = subprocess.run(
        [warm().program, *args], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_log_of_a_job_is_followed_to_its_end(service: ServiceProcess, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    job_id = bide(service, "submit", "count", "--input", json.dumps({"path": str(empty)})).strip()
    with Terminal(tmp_path, "log", job_id, "--follow", env={"BIDE_URL": service.url}) as terminal:
        terminal.until(f"1  INFO      tasks: reading {empty}")
        assert terminal.process.poll() is None
        look, read = service.ask("GET", f"/jobs/{job_id}")["steps"]
        assert (look["name"], look["status"]) == ("look", "DONE")
        assert look["startedAt"] <= look["finishedAt"] <= read["startedAt"]
        assert (read["name"], read["status"], read["finishedAt"]) == ("read", "PROCESSING", None)
        empty.touch()
        assert terminal.wait() == 0
        shown = terminal.lines()
    # No character of a record moves the cursor.
    assert "1  WARNING   tasks: ?[31mthe file is empty" in shown[1]
    assert "1  ERROR     Traceback (most recent call last):" in shown[2]
    assert shown[-1].startswith("ZeroDivisionError: ")

    printed = bide(service, "log", job_id, "--level", "warning", "--json").splitlines()
    assert [json.loads(line)["level"] for line in printed] == ["warning", "error"]
    assert json.loads(printed[0])["logger"] == "tasks"

    # The failure is an error with its step; the progress is only that.
    details, _, log = bide(service, "status", job_id, "--log").partition("\n\n")
    facts = {line[:9].strip(): line[11:] for line in details.splitlines()}
    assert facts["error"].startswith("ZERO_DIVISION_ERROR: ")
    assert facts["failed in"] == "step read, attempt 1"
    assert facts["progress"] == "44%"
    assert log.splitlines()[0].endswith(f"1  INFO      tasks: reading {empty}")
    (document,) = bide(service, "status", job_id, "--log", "--json").splitlines()
    assert [line["level"] for line in json.loads(document)["log"]] == ["info", "warning", "error"]

    said = (tmp_path / "serve.log").read_text()
    assert f"ERROR bide.engine: job {job_id}: attempt 1 of 1 of 'count' failed in step 'read'" in said
    assert said.rstrip().splitlines()[-1].startswith("ZeroDivisionError: ")


def test_a_job_that_is_overdue_is_seen_in_the_list(service: ServiceProcess, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Client(service.url) as client:
        jobs = client.submit_many([{"kind": "wait"}] * 10)
        client.wait_all([job for job in jobs if isinstance(job, BlockingJob)], timeout=PATIENCE)
        job = client.submit("wait", {"path": str(go)})
        marked = next(e for e in client.events(job) if e.type == "status" and e.job.get("overdue"))
        assert (marked.job_id, marked.job["status"]) == (job.id, "PROCESSING")
        assert job.status().overdue
        (line,) = client.log(job.id)
        assert "longer than 3 times the 99th percentile of 'wait'" in line["message"]
        listed = bide(service, "list", "--status", "PROCESSING").splitlines()[1]
        assert listed.split()[-1] == "overdue"
        details = bide(service, "status", job.id).splitlines()
        assert "   status  PROCESSING (overdue)" in details
        go.touch()
        job.result(timeout=PATIENCE)
        assert not job.status().overdue
