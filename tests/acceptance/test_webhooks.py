"""Webhooks of a real service: the command line, kill -9 between an event and its delivery, and two replicas."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.receiver import Receiver
from tests.servers.postgres import Postgres
from tests.servers.service import ServiceProcess
from tests.servers.warm import warm
from tests.waiting import eventually, until

APP = "tests.apps.echo:app"
OPTIONS = ["--webhooks-allow-private"]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver(real_time=True).serving() as receiver:
        yield receiver


def bide(service: ServiceProcess, *words: str) -> subprocess.CompletedProcess[str]:
    command = [warm().program, "webhooks", *words, "--url", service.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def doctor(service: ServiceProcess, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [warm().program, "doctor", "--url", service.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=folder)


async def ask(service: ServiceProcess, method: str, path: str, body: Any = None) -> Any:
    return await asyncio.to_thread(service.ask, method, path, body)


async def done(service: ServiceProcess) -> str:
    headers = {"Prefer": "wait=30"}
    job = await asyncio.to_thread(service.ask, "POST", "/jobs", {"kind": "echo"}, headers)
    assert job["status"] == "DONE"
    job_id: str = job["jobId"]
    return job_id


async def test_the_command_line_creates_tests_replays_and_deletes(
    tmp_path: Path, receiver: Receiver
) -> None:
    service = ServiceProcess(tmp_path, APP, options=OPTIONS)
    await asyncio.to_thread(service.start)
    try:
        made = await asyncio.to_thread(bide, service, "create", receiver.url, "--kind", "echo")
        assert made.returncode == 0, made.stderr
        secret = made.stdout.strip()
        receiver.secrets = [secret]
        (listed,) = [
            json.loads(line)
            for line in (await asyncio.to_thread(bide, service, "list", "--json")).stdout.splitlines()
        ]
        assert (listed["url"], listed["kinds"]) == (receiver.url, ["echo"])
        tested = await asyncio.to_thread(bide, service, "test", listed["id"])
        assert (tested.returncode, "status 204" in tested.stdout) == (0, True)
        job_id = await done(service)
        await eventually(lambda: job_id in [m.body["data"].get("jobId") for m in receiver.messages])
        receiver.answer = lambda message: 500
        refused = await asyncio.to_thread(bide, service, "test", listed["id"])
        assert (refused.returncode, "status 500" in refused.stderr) == (1, True)
        receiver.answer = None
        sent = len(receiver.messages)
        words = ("replay", listed["id"], "--from", "1h", "--only", "all")
        replayed = await asyncio.to_thread(bide, service, *words)
        assert replayed.returncode == 0, replayed.stderr
        await eventually(lambda: len(receiver.messages) > sent)
        assert receiver.messages[-1].job_id == job_id
        shown = await asyncio.to_thread(bide, service, "list")
        assert listed["id"] in shown.stdout
        assert secret not in shown.stdout
        # A job with a webhook of its own.
        receiver.secrets.append((await ask(service, "GET", "/webhooks/secret"))["secret"])
        command = [warm().program, "submit", "echo", "--url", service.url]
        command += ["--webhook", receiver.url + "/own"]
        submitted = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        own_id = submitted.stdout.strip()
        await eventually(
            lambda: own_id in [m.job_id for m in receiver.messages if m.path == "/hook/own"]
        )
        # A receiver that is gone: the service disables the webhook, and says so.
        receiver.answer = lambda message: 410
        await done(service)

        def disabled() -> bool:
            return "webhook-disabled" in str(service.ask("GET", "/readyz")["warnings"])

        await asyncio.to_thread(until, disabled)
        checked = await asyncio.to_thread(doctor, service, tmp_path)
        assert f"Webhook {listed['id']} is disabled" in checked.stdout
        deleted = await asyncio.to_thread(bide, service, "delete", listed["id"])
        assert deleted.returncode == 0
        assert (await ask(service, "GET", "/webhooks"))["webhooks"] == []
        named = await asyncio.to_thread(bide, service, "create", "http://receiver.invalid/")
        assert named.returncode == 0, named.stderr
        assert secret not in (tmp_path / "serve.log").read_text()
    finally:
        await asyncio.to_thread(service.stop)


async def test_a_killed_service_delivers_after_its_restart(tmp_path: Path, receiver: Receiver) -> None:
    service = ServiceProcess(tmp_path, APP, options=OPTIONS)
    await asyncio.to_thread(service.start)
    try:
        receiver.answer = lambda message: 503
        webhook = await ask(service, "POST", "/webhooks", {"url": receiver.url})
        receiver.secrets = [webhook["secret"]]
        jobs = [await done(service) for _ in range(3)]
        await eventually(lambda: receiver.messages)
        await asyncio.to_thread(service.kill)
        before = set(receiver.ids)
        receiver.answer = None
        await asyncio.to_thread(service.start)
        await eventually(lambda: {m.job_id for m in receiver.messages if m.status == 204} == set(jobs))
        assert before <= {m.id for m in receiver.messages if m.status == 204}
        ids = {m.job_id: m.id for m in receiver.messages}
        assert all(ids[m.job_id] == m.id for m in receiver.messages), "one id per event"
    finally:
        await asyncio.to_thread(service.stop)


@pytest.mark.soak
async def test_one_of_two_replicas_delivers_and_the_other_takes_over(
    tmp_path: Path, postgres: Postgres, receiver: Receiver
) -> None:
    url = f"{postgres.url}?schema=webhooks"
    replicas = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        replicas.append(
            ServiceProcess(
                tmp_path / name,
                APP,
                options=[*OPTIONS, "--store", url],
                shown=r"http://127\.0\.0\.1:(\d+), ",
                env={"TMPDIR": str(tmp_path / name)},
            )
        )
    one, two = replicas
    for replica in replicas:
        await asyncio.to_thread(replica.start)

    async def attempts(replica: ServiceProcess) -> int:
        import urllib.request

        def read() -> str:
            with urllib.request.urlopen(f"{replica.url}/metrics", timeout=10) as answer:
                text: str = answer.read().decode()
                return text

        text = await asyncio.to_thread(read)
        lines = [line for line in text.splitlines() if line.startswith("bide_webhook_attempts_total")]
        return sum(int(float(line.split()[-1])) for line in lines)

    try:
        webhook = await ask(one, "POST", "/webhooks", {"url": receiver.url})
        receiver.secrets = [webhook["secret"]]
        jobs = [await done(replica) for replica in replicas * 5]
        await eventually(lambda: len(receiver.messages) >= len(jobs))
        assert sorted(m.job_id or "" for m in receiver.messages) == sorted(jobs), "each once"
        counts = [await attempts(replica) for replica in replicas]
        assert sorted(counts) == [0, len(jobs)], "by one of them"
        active, other = (one, two) if counts[0] else (two, one)
        receiver.answer = lambda message: 503
        late = [await done(other) for _ in range(3)]
        await eventually(lambda: len(receiver.messages) > len(jobs))
        await asyncio.to_thread(active.kill)
        receiver.answer = None
        accepted = {m.job_id for m in receiver.messages if m.status == 204}

        def delivered() -> bool:
            return {*accepted, *late} <= {m.job_id for m in receiver.messages if m.status == 204}

        await eventually(delivered, timeout=40)
        assert await attempts(other) >= 1
        ids = {m.job_id: m.id for m in receiver.messages}
        assert all(ids[m.job_id] == m.id for m in receiver.messages)
    finally:
        for replica in replicas:
            await asyncio.to_thread(replica.stop)
