"""Waiting for many jobs of a bide service: one event stream instead of polls, and polls where no stream arrives."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.client.blocking import Client
from tests.servers.relay import Relay
from tests.servers.service import ServiceProcess, serving_tasks
from tests.waiting import until

TASKS = """
import asyncio, os
from bide import App, Context

app = App()

@app.job()
async def waits(ctx: Context, path: str, number: int = 0) -> int:
    ctx.progress(number, 100)
    while not os.path.exists(path):
        await asyncio.sleep(0.02)
    return number
"""
JOBS = 80


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with serving_tasks(tmp_path_factory.mktemp("waiting"), TASKS) as service:
        yield service


def wait_for_many(
    url: str, path: Path, caplog: pytest.LogCaptureFixture, when_waiting: str, before_end: float
) -> tuple[int, float]:
    """Wait for JOBS jobs, which end `before_end` seconds after `when_waiting` is in the log. Return the requests of
    the wait, and the seconds from the end of the jobs to the last result.
    """
    with Client(url) as client, caplog.at_level(logging.INFO, "bide.client"):
        jobs = client.submit_many(
            [{"kind": "waits", "input": {"path": str(path), "number": n}} for n in range(JOBS)]
        )
        handles = [job for job in jobs if not isinstance(job, Exception)]
        ended: list[float] = []

        def end() -> None:
            until(lambda: when_waiting in caplog.text, "the log")
            time.sleep(before_end)
            ended.append(time.monotonic())
            path.touch()

        thread = threading.Thread(target=end)
        thread.start()
        before = client.requests
        results = {job.result() for job in client.as_completed(handles, timeout=60)}
        late = time.monotonic() - ended[0]
        thread.join()
        assert results == set(range(JOBS))
        return client.requests - before, late


def test_one_stream_replaces_polls(
    service: ServiceProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    requests, late = wait_for_many(service.url, tmp_path / "go", caplog, "with one event stream", 5.0)
    # The stream, a poll of all jobs at its begin, and polls of those that have ended.
    assert requests < 30
    assert late < 5


def test_a_lost_stream_is_opened_again(
    service: ServiceProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    relay = Relay(service.port)

    def cut() -> None:
        until(lambda: "with one event stream" in caplog.text, "the log")
        relay.reset()

    thread = threading.Thread(target=cut)
    thread.start()
    _, late = wait_for_many(
        f"http://127.0.0.1:{relay.port}", tmp_path / "go", caplog, "with one event stream", 1.0
    )
    thread.join()
    relay.end()
    assert late < 20


class BufferingProxy(threading.Thread):
    """Forwards requests to a service, and event streams never: as a proxy that waits for the end of a response."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.start()

    def run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, sock=self._listener)
        await self._ending.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        back = asyncio.ensure_future(_pump(far_reader, writer))
        try:
            while data := await reader.read(65536):
                if data.startswith(b"GET /events"):
                    back.cancel()
                far_writer.write(data)
        finally:
            back.cancel()
            writer.close()
            far_writer.close()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self.join(10)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)


def test_behind_a_proxy_that_buffers_streams_the_jobs_are_polled(
    service: ServiceProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = BufferingProxy(service.port)
    _, late = wait_for_many(
        f"http://127.0.0.1:{proxy.port}", tmp_path / "go", caplog, "no event stream from", 0.0
    )
    proxy.end()
    assert "with one event stream" not in caplog.text
    assert late < 30
