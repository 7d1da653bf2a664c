"""The first job of an unknown kind, through the real command: its end is noticed soon, whatever the API reports."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from aiohttp import web

from tests.terminal import BIDE
from tests.unit.fake_service import FakeService

DURATION, LATE = 2.0, 1.5  # seconds
API = """
name = "vendor"
[auth]
kind = "none"
[submit]
path = "/renders"
id = "id"
[ask]
path = "/renders/{id}"
[read]
status = "state"
progress = "percent"
live = ["running"]
done = ["ready"]
"""


def test_the_end_of_a_first_job_that_reports_5_percent_until_then_is_noticed_soon(
    tmp_path: Path,
) -> None:
    submitted: list[float] = []
    noticed: list[float] = []

    async def submit(request: web.Request) -> web.StreamResponse:
        submitted.append(time.monotonic())
        return web.json_response({"id": "a", "state": "running"}, status=202)

    async def status(request: web.Request) -> web.StreamResponse:
        if time.monotonic() < submitted[0] + DURATION:
            return web.json_response({"state": "running", "percent": 5})
        noticed.append(time.monotonic())
        return web.json_response({"state": "ready", "percent": 100})

    (tmp_path / "vendor.toml").write_text(API)
    with FakeService() as server:
        server.on("POST", "/renders", submit)
        server.on("GET", "/renders/a", status)
        at = ("--api", "vendor.toml", "--url", server.url, "--trust")
        command = [*BIDE, "submit", "film", "--wait", *at]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    assert noticed[0] - submitted[0] <= DURATION + LATE
