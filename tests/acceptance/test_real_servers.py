"""`bide wait` with servers of other projects, and only a description that comes with bide.

Celery's Flower in front of a real worker on a real Redis, and moto's AWS Transcribe with signed requests.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.servers import warm
from tests.servers.ports import free_port

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
PASSWORD = "a-password-not-to-be-seen"


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(command: list[str], log: Path, ready: Callable[[], bool], **env: str) -> Iterator[None]:
    """From when it is ready until the block ends."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        until = time.monotonic() + PATIENCE
        while not ready():
            alive = process.poll() is None and time.monotonic() < until
            assert alive, f"{command[0]} does not run:\n{log.read_text()[-2000:]}"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def program(name: str, package: str) -> str:
    """A missing server is skipped here, and fails where a change is judged."""
    found = shutil.which(name)
    if found is None:
        reason = f"there is no {name}: on Debian, apt-get install {package}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def bide(folder: Path, *args: str, **env: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, the lines of --json, and stderr."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BIDE_", "AWS_"))}
    done = warm.run(
        [sys.executable, "-m", "bide", *args, "--json"],
        cwd=folder,
        env={**kept, "AWS_EC2_METADATA_DISABLED": "true", **env},
        timeout=PATIENCE,
    )
    assert PASSWORD not in done.stdout + done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


# --- Celery's Flower


class Flower:
    def __init__(self, port: int, folder: Path) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.folder = folder

    def bide(self, command: str, *args: str) -> tuple[int, list[dict[str, Any]], str]:
        to = ("--api", "flower", "--url", self.address)
        return bide(self.folder, command, *args, *to, FLOWER_BASIC_AUTH=f"me:{PASSWORD}")

    def submit(self, task: str, *args: Any, **kwargs: Any) -> str:
        code, lines, said = self.bide("submit", task, "-i", json.dumps({"args": args, "kwargs": kwargs}))
        assert code == 0, said
        return str(lines[0]["jobId"])


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    redis = program("redis-server", "redis-server")
    folder = tmp_path_factory.mktemp("flower")
    ports = [free_port(), free_port()]
    broker = {"REDIS_URL": f"redis://127.0.0.1:{ports[0]}/0"}
    command = [redis, "--port", str(ports[0]), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    celery = [sys.executable, "-m", "celery", "-A", "tests.apps.celery_app"]
    worker = [*celery, "worker", "-c", "1", "-E", "-l", "INFO", "--without-gossip", "--without-mingle"]
    front = [
        *celery,
        "flower",
        f"--port={ports[1]}",
        "--address=127.0.0.1",
        f"--basic-auth=me:{PASSWORD}",
    ]
    log = folder / "worker.log"
    with ExitStack() as stack:
        stack.enter_context(running(command, folder / "redis.log", lambda: listens(ports[0])))
        stack.enter_context(running(worker, log, lambda: b" ready." in log.read_bytes(), **broker))
        stack.enter_context(running(front, folder / "flower.log", lambda: listens(ports[1]), **broker))
        yield Flower(ports[1], folder)


def test_tasks_of_celery_are_submitted_and_waited_for(flower: Flower) -> None:
    good, bad = flower.submit("add", 2, 3, seconds=0.5), flower.submit("divide", 1, 0)
    code, lines, said = flower.bide("wait", good, bad, "--timeout", "50")
    ended = {line["jobId"]: line for line in lines}
    assert (code, len(lines)) == (1, 2), said
    assert (ended[good]["status"], ended[good]["result"]) == ("DONE", 5)
    assert ended[bad]["status"] == "ERROR"
    assert "ZeroDivisionError" in ended[bad]["error"]["message"]


def test_a_task_of_celery_that_runs_is_cancelled(flower: Flower) -> None:
    long = flower.submit("add", 1, 1, seconds=600)
    until = time.monotonic() + PATIENCE
    while b"add has begun: " + long.encode() not in (flower.folder / "worker.log").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.1)
    code, _, said = flower.bide("cancel", long)
    assert code == 0, said
    code, lines, said = flower.bide("wait", long, "--timeout", "50")
    assert (code, lines[0]["status"]) == (1, "CANCELLED"), said


def test_the_description_fits_flower(flower: Flower) -> None:
    job = flower.submit("add", 1, 2)
    flower.bide("wait", job, "--timeout", "50")
    args = ("api", "check", "flower", "--against", flower.address, "--id", job)
    code, lines, said = bide(flower.folder, *args, FLOWER_BASIC_AUTH=f"me:{PASSWORD}")
    assert code == 0, said
    fits = {line["field"]: line["fits"] for line in lines}
    assert fits["read.status"] and fits["read.id"] and fits["result"] and fits["auth"]
    code, lines, _ = bide(flower.folder, *args, FLOWER_BASIC_AUTH="me:wrong")
    assert (code, lines[0]["field"], lines[0]["fits"]) == (1, "auth", False)


# --- AWS Transcribe


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    serve = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    log = tmp_path_factory.mktemp("moto") / "moto.log"
    with running([sys.executable, "-W", "ignore", "-c", serve], log, lambda: listens(port)):
        yield f"http://127.0.0.1:{port}"


def test_transcriptions_are_submitted_and_waited_for(moto: str, tmp_path: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": PASSWORD}
    to = ("--api", "aws-transcribe", "--url", moto)
    job = {
        "TranscriptionJobName": "talk-1",
        "LanguageCode": "en-US",
        "Media": {"MediaFileUri": "s3://b/t.mp3"},
    }
    code, lines, said = bide(tmp_path, "submit", "-i", json.dumps(job), *to, **keys)
    assert (code, lines[0]["jobId"]) == (0, "talk-1"), said
    # moto's model goes from QUEUED over IN_PROGRESS to COMPLETED, a step with each question.
    code, lines, said = bide(
        tmp_path, "wait", "talk-1", "nobody", "--expect", "1", "--timeout", "50", *to, **keys
    )
    ended = {line["jobId"]: line for line in lines}
    assert (code, len(lines)) == (1, 2), said
    assert (ended["talk-1"]["status"], ended["talk-1"]["requests"] > 1) == ("DONE", True)
    assert ended["talk-1"]["result"].startswith("https://s3.us-east-1.amazonaws.com/")
    assert ended["nobody"]["error"]["code"] == "JOB_NOT_FOUND"
    code, lines, said = bide(tmp_path, "cancel", "talk-1", *to, **keys)
    assert code == 1 and "talk-1: the job has already ended as DONE, so it was not changed" in said
    second = {**job, "TranscriptionJobName": "talk-2"}
    assert bide(tmp_path, "submit", "-i", json.dumps(second), *to, **keys)[0] == 0
    code, lines, said = bide(tmp_path, "cancel", "talk-2", *to, **keys)
    assert (code, lines[0]["status"]) == (0, "CANCELLED"), said


def test_without_credentials_it_says_what_to_do(moto: str, tmp_path: Path) -> None:
    none = {
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }
    to = ("--api", "aws-transcribe", "--url", moto)
    code, lines, _ = bide(tmp_path, "wait", "talk-1", *to, **none)
    assert code == 1 and "Set AWS_ACCESS_KEY_ID" in lines[0]["error"]["message"]
    code, _, said = bide(tmp_path, "submit", "-i", "{}", *to, **none)
    assert code == 1 and "Set AWS_ACCESS_KEY_ID" in said
