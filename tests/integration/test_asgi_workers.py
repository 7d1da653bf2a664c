"""`app.asgi()` in servers with two workers: one runs the service, the other explains why it does not."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.servers.ports import free_port
from tests.servers.service import importing
from tests.waiting import until

SITE = """
import os
from bide import App
from bide.core.errors import SetupError
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

app = App()

@app.job()
def add(a: int, b: int = 0) -> int:
    return a + b

async def submit(request):
    try:
        job = await app.submit_async("add", {"a": 1})
        return JSONResponse({"pid": os.getpid(), "job": job.job_id})
    except SetupError as error:
        return JSONResponse({"pid": os.getpid(), "error": str(error)})

jobs = app.asgi(data=os.environ["DATA"])
site = Starlette(routes=[Mount("/work", app=jobs), Route("/submit", submit)], lifespan=jobs.lifespan)
"""
COMMANDS = {
    "uvicorn": ["uvicorn", "--workers", "2", "--port", "PORT"],
    "granian": ["granian", "--interface", "asgi", "--workers", "2", "--port", "PORT"],
    "hypercorn": ["hypercorn", "--workers", "2", "--bind", "127.0.0.1:PORT"],
    "gunicorn": [
        *("gunicorn", "--workers", "2", "--worker-class", "uvicorn_worker.UvicornWorker"),
        *("--bind", "127.0.0.1:PORT"),
    ],
}
# The first part of the message that the waiting worker logs.
WAITING = re.compile(
    r"Process (\d+), another worker of this server, runs the service of the data folder"
)


@dataclass
class Site:
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        lines = {"Content-Type": "application/json", "Connection": "close", **headers}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self.url + path, data, lines), timeout=60
            ) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)
        except OSError:  # the server starts
            return 0, None

    def until(self, wanted: Callable[[], Any]) -> Any:
        """Repeat until the result is true: each connection goes to any of the workers."""

        def look() -> Any:
            assert self.process.poll() is None, self.log.read_text()
            return wanted()

        return until(look, f"see {self.log}", timeout=60)

    def holder(self) -> int:
        """The worker that runs the service."""
        found: re.Match[str] = self.until(lambda: WAITING.search(self.log.read_text()))
        return int(found[1])


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    modules = {"gunicorn": ("gunicorn", "uvicorn_worker")}.get(request.param, (request.param,))
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    (tmp_path / "two_workers.py").write_text(SITE)
    port = free_port()
    command = [part.replace("PORT", str(port)) for part in COMMANDS[request.param]]
    log = tmp_path / "server.log"
    environment = {**importing(tmp_path), "DATA": str(tmp_path / "data"), "HOME": str(tmp_path)}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, "two_workers:site"],
            stdout=out,
            stderr=out,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        yield Site(f"http://127.0.0.1:{port}", process, log)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def submitted(site: Site, number: int) -> bool:
    """Whether a worker with the service accepted the job and ran it."""
    status, job = site.ask("/work/jobs", {"kind": "add", "input": {"a": number}}, Prefer="wait=30")
    return status == 200 and job["result"] == number


@pytest.mark.parametrize(
    "site",
    [
        "gunicorn",
        "granian",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("uvicorn", "hypercorn")),
    ],
    indirect=True,
)
def test_the_first_worker_serves_and_the_second_explains_itself(site: Site) -> None:
    holder = site.holder()
    for number in range(5):
        site.until(partial(submitted, site, number))

    def refused() -> Any:
        status, problem = site.ask("/work/jobs")
        return problem if status == 503 else None

    problem = site.until(refused)
    assert f"Process {holder}, another worker of this server" in problem["detail"]
    assert "Start the server with one worker" in problem["detail"]
    # The other routes of the application work in both workers.
    answers: dict[int, Any] = {}
    while len(answers) < 2:
        status, answer = site.until(lambda: (found := site.ask("/submit"))[0] and found)
        assert status == 200
        answers[answer["pid"]] = answer
    assert "job" in answers.pop(holder)
    (other,) = answers.values()
    assert f"Process {holder}, another worker" in other["error"]
    assert "Traceback" not in site.log.read_text()
    assert site.process.poll() is None


@pytest.mark.parametrize("site", ["uvicorn"], indirect=True)
def test_another_worker_takes_over_when_the_first_is_killed(site: Site) -> None:
    holder = site.holder()
    site.until(lambda: submitted(site, 1))
    # A stopped server starts no new worker, which could be faster than the waiting one.
    site.process.send_signal(signal.SIGSTOP)
    os.kill(holder, signal.SIGKILL)
    site.until(lambda: "now runs the service of the data folder" in site.log.read_text())
    site.until(lambda: submitted(site, 2))
    # The killed worker's job is in the same store.
    status, found = site.until(lambda: (answer := site.ask("/work/jobs"))[0] == 200 and answer)
    assert status == 200 and len(found["jobs"]) >= 2
