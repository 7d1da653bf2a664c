"""`client.events`, `job.stream` and `bide events` with a real service, whose connections are reset and which is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from bide.client import events as reading
from bide.client.blocking import Client
from tests.servers.relay import Relay
from tests.servers.service import ServiceProcess, serving_tasks
from tests.servers.warm import warm

TASKS = """
import os, time
from bide import App, Context

app = App()

@app.job()
def writes(ctx: Context, folder: str) -> int:
    ctx.log("begin")
    for number in range(40):
        ctx.emit({"number": number})
        while number == 20 and not os.path.exists(folder + "/go"):
            time.sleep(0.01)
    return 40

@app.job()
def short() -> None: ...
"""
Forward = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
CHUNKS = [{"number": number} for number in range(40)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with serving_tasks(tmp_path_factory.mktemp("events"), TASKS, workers=1) as service:
        yield service


@contextlib.contextmanager
def forwarding(to: int, forward: Forward) -> Iterator[int]:
    """A proxy that forwards responses in a way that the test decides. Yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    loop: asyncio.AbstractEventLoop | None = None
    ending = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to)
        back = asyncio.ensure_future(forward(far_reader, writer))
        try:
            while data := await reader.read(65536):
                far_writer.write(data)
        finally:
            back.cancel()
            far_writer.close()
            writer.close()

    async def run() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(serve, sock=listener)
        await ending.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    yield int(listener.getsockname()[1])
    assert loop is not None
    loop.call_soon_threadsafe(ending.set)
    thread.join(10)


def bide(service: ServiceProcess, *args: str) -> list[str]:
    env = {**os.environ, "BIDE_URL": service.url}
    done = subprocess.run(
        [warm().program, *args], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_events_and_output_are_read_once_and_in_order_over_resets(
    service: ServiceProcess, tmp_path: Path
) -> None:
    relay = Relay(service.port)
    with Client(f"http://127.0.0.1:{relay.port}") as client:
        job = client.submit("writes", {"folder": str(tmp_path)})
        seen: list[str] = []
        output = []
        for event in client.events(job):
            seen.append(event.id or "")
            if event.type == "output":
                output.append(event.job["output"])
                if event.job["index"] == 20:
                    relay.reset()
                    (tmp_path / "go").touch()
        assert output == CHUNKS
        numbers = [int(cursor.partition("-")[2]) for cursor in seen if cursor]
        assert numbers == sorted(set(numbers))
        assert event.job["status"] == "DONE"
        # A late reader gets everything, and continues after any chunk.
        chunks = list(job.stream())
        assert [chunk.data for chunk in chunks] == CHUNKS
        assert {(chunk.generation, chunk.index) for chunk in chunks} == {(1, n) for n in range(40)}
        assert [chunk.data for chunk in job.stream(after=chunks[29].id)] == CHUNKS[30:]
        assert list(job.stream(after=chunks[-1].id)) == []
        # A cursor of another epoch is void, so the output is read from its first chunk.
        assert [chunk.data for chunk in job.stream(after="0-1")] == CHUNKS
    relay.end()


def test_events_are_read_in_pages_behind_a_proxy_that_buffers(
    service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FIRST_BYTES", 0.3)
    monkeypatch.setattr(reading, "SILENT", 1)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards the head of an event stream, and its body never."""
        while data := await reader.read(65536):
            if b"text/event-stream" not in data:
                writer.write(data)
            else:
                writer.write(data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
                while await reader.read(65536):
                    pass

    with forwarding(service.port, forward) as port, Client(f"http://127.0.0.1:{port}") as client:
        job = client.submit("writes", {"folder": str(tmp_path)})
        began = time.monotonic()
        events = []
        for event in client.events(job):
            events.append(event)
            if event.type == "snapshot":
                (tmp_path / "go").touch()
        assert time.monotonic() - began < 20
        assert events[0].type == "snapshot" and events[0].job["jobId"] == job.id
        output = [e.job["output"] for e in events if e.type == "output"]
        assert output == CHUNKS[-len(output) :] and output[-19:] == CHUNKS[21:]
        assert events[-1].job["status"] == "DONE"


def test_a_stream_continues_after_the_service_was_killed(
    service: ServiceProcess, tmp_path: Path
) -> None:
    with Client(service.url) as client:
        job = client.submit("writes", {"folder": str(tmp_path)})
        chunks = []
        restart: threading.Thread | None = None

        def begin_again() -> None:
            service.kill()
            service.start()
            (tmp_path / "go").touch()

        for chunk in job.stream():
            chunks.append(chunk)
            if restart is None and chunk.index == 20:
                restart = threading.Thread(target=begin_again)
                restart.start()
        assert restart is not None
        restart.join()
    # The lost attempt has emitted its first chunks, and the next one all of them.
    first = [chunk.data for chunk in chunks if chunk.generation == 1]
    assert first == CHUNKS[:21]
    assert [chunk.data for chunk in chunks if chunk.generation == 2] == CHUNKS
    assert len({chunk.id for chunk in chunks}) == len(chunks)


def test_the_command_line_prints_events(service: ServiceProcess, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with Client(service.url) as client:
        job = client.submit("writes", {"folder": str(tmp_path)})
        job.result(timeout=30)
        other = client.submit("short")
        other.result(timeout=30)
    lines = bide(service, "events", job.id)
    assert any(line.endswith("log      INFO begin") for line in lines)
    assert lines[-1].endswith("status   DONE")
    documents = [json.loads(line) for line in bide(service, "events", job.id, "--json", "--follow")]
    assert documents[0]["type"] == "snapshot" and documents[0]["job"]["status"] == "DONE"
    of_short = [json.loads(line) for line in bide(service, "events", "--kind", "short", "--json")]
    assert [event["job"]["status"] for event in of_short] == ["PENDING", "PROCESSING", "DONE"]
    assert {event["jobId"] for event in of_short} == {other.id}
    after = of_short[1]["id"]
    (last,) = bide(service, "events", "--kind", "short", "--after", after)
    assert last.startswith(of_short[2]["id"])


def test_mistakes_are_explained(service: ServiceProcess) -> None:
    env = {**os.environ, "BIDE_URL": service.url}
    for args, text in (
        (["events", "--after", "yesterday"], "is not the id of an event"),
        (["events", "0" * 26, "--kind", "x"], "cannot be used with a job id"),
    ):
        done = subprocess.run(
            [warm().program, *args], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode != 0
        assert text in done.stderr
