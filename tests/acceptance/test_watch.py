"""`bide watch` with a real service: the screen of a terminal with its keys, and lines without a terminal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.client.blocking import Client
from tests.servers.service import ServiceProcess, serving_tasks
from tests.terminal import BIDE, Terminal
from tests.waiting import until

TASKS = """
import os, time
from bide import App, Context, JobError

app = App()

@app.job()
def encode(ctx: Context, path: str) -> str:
    ctx.progress(1, 4, message="Encoding \\x1b[2Jnow")
    ctx.log("opened the film")
    while not os.path.exists(path):
        ctx.heartbeat()
        time.sleep(0.02)
    return "encoded"

@app.job(retries=0)
def scan(ctx: Context, path: str) -> str:
    if not os.path.exists(path):
        raise JobError("NO_PAGE", "the page is missing", retryable=False)
    return "scanned"
"""
ESCAPE = "\x1b"


def lists(terminal: Terminal, job_id: str) -> bool:
    """Whether a line of the list begins with the job."""
    return any(line.startswith(job_id) for line in terminal.lines())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with serving_tasks(tmp_path_factory.mktemp("watch"), TASKS) as service:
        yield service


def test_the_screen_shows_jobs_and_obeys_keys(service: ServiceProcess, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Client(service.url) as client:
        failed = client.submit("scan", {"path": str(go)}, labels={"team": "ops"})
        until(lambda: failed.status().status.terminal, "the job has failed")
        running = client.submit("encode", {"path": str(go)})
        options = ("watch", "--url", service.url)
        with Terminal(tmp_path, *options, columns=140, lines=30, snapshots=False) as terminal:
            # Jobs with their progress, queues and failures, without the control characters of a handler's text.
            texts = (
                running.id,
                "PROCESSING",
                "Encoding ?[2Jnow",
                "default",
                "NO_PAGE: the page is missing",
            )
            for text in ("25%", *texts):
                terminal.until(text)

            # A job that is submitted meanwhile appears.
            late = client.submit("encode", {"path": str(go)})
            until(lambda: lists(terminal, late.id), "the job appears")

            # A filter selects jobs, and Enter opens the selected one, with its log.
            terminal.type("/kind:scan\r")
            until(lambda: not lists(terminal, late.id), "the filter applies")
            terminal.type("/" + "\x7f" * 9 + f"{late.id}\r")
            until(lambda: lists(terminal, late.id), "another filter applies")
            terminal.type("j")
            terminal.type("\r")
            terminal.until("opened the film")

            # The open job is cancelled after a confirmation.
            terminal.type("c")
            terminal.until(f"Cancel encode {late.id}? y/n")
            terminal.type("n")
            terminal.type("c")
            terminal.until(f"Cancel encode {late.id}? y/n")
            terminal.type("y")
            until(lambda: late.status().status == "CANCELLED", "the job is cancelled")
            terminal.until("CANCELLED")
            terminal.type("c")
            terminal.until("Cannot cancel")

            # Only failed jobs, one of which is retried.
            terminal.type(ESCAPE)
            terminal.type("/" + "\x7f" * 26 + "\r")
            until(lambda: lists(terminal, running.id), "all jobs are shown")
            terminal.type("f")
            terminal.until("failed jobs")
            go.touch()
            terminal.type("j")
            terminal.type("r")
            terminal.until(f"Retry scan {failed.id}? y/n")
            terminal.type("y")
            until(lambda: failed.status().status == "DONE", "the job has run again")
            terminal.type("q")
            assert terminal.wait() == 0


def test_without_a_terminal_each_change_is_a_line(service: ServiceProcess, tmp_path: Path) -> None:
    command = [*BIDE, "watch", "--url", service.url, "--kind", "scan"]
    files = [tmp_path / "lines", tmp_path / "json"]
    outputs = [path.open("wb") for path in files]
    watching = [
        subprocess.Popen([*command, *more], stdout=out, stdin=subprocess.DEVNULL)
        for out, more in zip(outputs, ([], ["--json"]), strict=True)
    ]
    try:
        with Client(service.url) as client:

            def seen() -> bool:
                client.submit("scan", {"path": str(tmp_path / "none")})
                return all("NO_PAGE" in path.read_text() for path in files)

            until(seen, "both commands print a failure")
        (line, *_) = [line for line in files[0].read_text().splitlines() if "NO_PAGE" in line]
        assert line.endswith("  scan  ERROR  NO_PAGE: the page is missing")
        statuses = {json.loads(line)["job"]["status"] for line in files[1].read_text().splitlines()}
        assert {"PENDING", "PROCESSING", "ERROR"} >= statuses >= {"ERROR"}
    finally:
        for process in watching:
            process.kill()
            process.wait()
        for out in outputs:
            out.close()


def test_a_service_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with Terminal(tmp_path, "watch", "--url", "http://127.0.0.1:9", snapshots=False) as terminal:
        assert terminal.wait() == 1
        assert any("127.0.0.1:9" in line for line in terminal.lines())
