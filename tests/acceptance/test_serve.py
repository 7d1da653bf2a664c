"""`bide serve`, `bide doctor` and `bide migrate` as a person meets them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bide.server.store.migrations import scripts
from tests.servers.service import ServiceProcess, importing

TASKS = """
import subprocess, time
from bide import App, Context

app = App()

@app.job()
def sleep(ctx: Context, seconds: float = 60) -> str:
    process = subprocess.Popen(["sleep", "300"])
    ctx.log("started", pid=process.pid)
    ctx.progress(1, 2)
    time.sleep(seconds)
    return "slept"

@app.job(queue="other")
def quick() -> int:
    return 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


def bide(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bide", *arguments],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def service_of(folder: Path, *options: str) -> ServiceProcess:
    return ServiceProcess(folder, "tasks:app", env=importing(folder), options=options, forked=False)


def test_it_refuses_to_be_open_to_the_network(folder: Path) -> None:
    done = bide(folder, "serve", "tasks:app", "--host", "0.0.0.0")
    assert done.returncode == 1 and "--insecure" in done.stderr
    assert not (folder / "bide-data").exists()


def test_a_port_in_use(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = bide(folder, "serve", "tasks:app", "--port", port)
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr and "--port" in done.stderr


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere:app", "no module 'nowhere'"),
        ("tasks:application", "it has app"),
        ("tasks.py:app", "tasks:app"),
    ],
)
def test_an_app_that_is_not_there(folder: Path, target: str, words: str) -> None:
    done = bide(folder, "serve", target, "--port", "0")
    assert done.returncode == 1 and words in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_come_from_flags_then_variables_then_the_file(folder: Path) -> None:
    (folder / "bide.toml").write_text('[serve]\nhost = "10.1.1.1"\n')
    assert "10.1.1.1" in bide(folder, "serve", "tasks:app").stderr
    assert "10.2.2.2" in bide(folder, "serve", "tasks:app", BIDE_HOST="10.2.2.2").stderr
    done = bide(folder, "serve", "tasks:app", "--host", "10.3.3.3", BIDE_HOST="10.2.2.2")
    assert "10.3.3.3" in done.stderr


def test_sigterm_drains_and_everything_is_gone_afterwards(folder: Path) -> None:
    service = service_of(folder)
    service.start()
    job = service.ask("POST", "/jobs", {"kind": "sleep", "input": {"seconds": 1.0}})
    _until_running(service, job["jobId"])
    service.stop()
    service.start()
    try:
        assert service.ask("GET", f"/jobs/{job['jobId']}")["status"] == "DONE"
    finally:
        service.stop()
    assert _children_of(service.data) == []


def test_children_and_what_they_started_die_with_a_killed_service(folder: Path) -> None:
    service = service_of(folder)
    service.start()
    job = service.ask("POST", "/jobs", {"kind": "sleep"})
    _until_running(service, job["jobId"])
    assert _children_of(service.data)
    service.kill()
    end = time.monotonic() + 10
    while _children_of(service.data) and time.monotonic() < end:
        time.sleep(0.02)
    assert _children_of(service.data) == []


def test_a_child_that_hangs_when_its_service_is_killed_is_ended_by_the_next(folder: Path) -> None:
    service = service_of(folder)
    service.start()
    job = service.ask("POST", "/jobs", {"kind": "sleep"})
    _until_running(service, job["jobId"])
    (worker,) = [w for w in service.ask("GET", "/workers")["workers"] if w["jobs"]]
    os.kill(worker["pid"], signal.SIGSTOP)
    service.kill()
    service.start()
    try:
        assert worker["pid"] not in _children_of(service.data)
    finally:
        service.ask("POST", f"/jobs/{job['jobId']}/cancel")
        service.stop()


def _until_running(service: ServiceProcess, job_id: str) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        job = service.ask("GET", f"/jobs/{job_id}")
        if job["status"] == "PROCESSING" and job["progress"]:
            return
        time.sleep(0.02)
    raise AssertionError(job)


def _children_of(data: Path) -> list[int]:
    mark = f"BIDE_CHILD_OF={data.resolve()}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def test_doctor_and_migrate(folder: Path) -> None:
    first = bide(folder, "migrate", "--json")
    assert first.returncode == 0 and json.loads(first.stdout)["applied"] == [
        number for number, _ in scripts("sqlite")
    ]
    assert "nothing to do" in bide(folder, "migrate").stdout
    epochs = [
        json.loads(bide(folder, "migrate", "--new-epoch", "--json").stdout)["epoch"] for _ in range(2)
    ]
    assert epochs[0] != epochs[1]
    assert "the ids of events begin with" in bide(folder, "migrate", "--new-epoch").stdout
    done = bide(folder, "doctor", "tasks:app", "--json")
    findings = {f["check"]: f for f in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0 and all(f["ok"] for f in findings.values())
    assert findings["app"]["detail"] == "queue default: sleep; queue other: quick"
    (folder / "bide-data" / "bide.db").write_bytes(b"not a database" * 1000)
    done = bide(folder, "doctor")
    assert done.returncode == 1 and "Restore it from a backup" in done.stdout


def test_doctor_names_a_queue_that_nobody_serves(folder: Path) -> None:
    service = service_of(folder, "--allow-unknown-queues")
    service.start()
    try:
        service.until_ready()
        assert bide(folder, "doctor", "--url", service.url).returncode == 0
        service.ask("POST", "/jobs", {"kind": "quick", "queue": "nobody"})
        assert service.ask("GET", "/readyz")["status"] == "ready"
        done = bide(folder, "doctor", "--url", service.url)
        assert done.returncode == 1 and "No worker serves queue nobody" in done.stdout
        assert "unserved" in _metrics(service, 'queue="nobody"')
    finally:
        service.stop()


def _metrics(service: ServiceProcess, words: str) -> str:
    import urllib.request

    with urllib.request.urlopen(service.url + "/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return "\n".join(line for line in lines if words in line and line.endswith(" 1.0"))
