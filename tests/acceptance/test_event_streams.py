"""Event streams with clients that bide's authors did not write, behind nginx, and over kills of the service."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import httpx_sse
import pytest

from tests.acceptance.serving import Serving
from tests.acceptance.test_postgres import Replica
from tests.acceptance.test_upload_clients import FLAGS, NODE, need, need_browser, need_package
from tests.conftest import started
from tests.servers.nginx import PASSWORD, USER, Nginx
from tests.servers.ports import free_port
from tests.servers.postgres import Postgres
from tests.waiting import until

Heard = tuple[str, str, Any]  # event, id, data
TYPES = ["snapshot", "reset", "status", "step", "log", "output", "deleted", "queue", "progress", "end"]
NODE_CLIENT = """
const {EventSource} = require('eventsource');
const source = new EventSource(process.argv[2]);
const alive = setInterval(() => {}, 1000);  // its timer for a reconnect does not keep the process alive
for (const type of JSON.parse(process.argv[3])) source.addEventListener(type, (event) => {
  console.log(JSON.stringify([type, event.lastEventId, JSON.parse(event.data)]));
  if (type === 'end') { source.close(); clearInterval(alive); }
});
"""
BROWSER_CLIENT = """
([url, types]) => {
  window.heard = [];
  window.source = new EventSource(url);
  for (const type of types) source.addEventListener(type, (event) => {
    heard.push([type, event.lastEventId, JSON.parse(event.data)]);
    if (type === 'end') source.close();
  });
}
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    service = Serving(tmp_path_factory.mktemp("service"))
    service.start()
    yield service
    service.stop()


class March:
    """A running job whose progress and end the test decides."""

    def __init__(self, service: Serving, folder: Path) -> None:
        self._orders = folder / f"orders{time.monotonic_ns()}"
        self._step = 0
        self.advance()
        self.id: str = service.post("march", orders=str(self._orders))
        self._service = service
        until(lambda: self.status == "PROCESSING")

    @property
    def status(self) -> str:
        return str(self._service.ask("GET", f"/jobs/{self.id}")["status"])

    def advance(self) -> None:
        self._step += 1
        new = self._orders.with_suffix(".new")
        new.write_text(str(self._step))
        new.replace(self._orders)

    def end(self) -> None:
        self._orders.unlink()


def check(service: Serving, job_id: str, heard: list[Heard]) -> None:
    """A listener that connected while the job ran has heard the rest of its log, and the end."""
    kinds = [event for event, _, _ in heard]
    assert (kinds[0], kinds[-1]) == ("snapshot", "end")
    assert "progress" in kinds
    ids = [id_ for event, id_, _ in heard if event not in ("progress", "snapshot", "end")]
    log = [event["id"] for event in service.ask("GET", f"/jobs/{job_id}/events")["events"]]
    assert ids and log[-len(ids) :] == ids
    assert heard[-2][2]["job"]["status"] == "DONE" or heard[-3][2]["job"]["status"] == "DONE"


def drive(march: March, listening: Callable[[], bool], moved: Callable[[], bool]) -> None:
    """Moves the job when the listener is connected, and ends it when it has heard of that."""
    until(listening, "the snapshot")
    march.advance()
    until(moved, "progress")
    march.end()


class Lines:
    """The lines that a program prints."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait(self) -> list[str]:
        try:
            assert self._process.wait(30) == 0
        finally:
            self.end()
        return self.lines

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


def test_httpx_sse(service: Serving, tmp_path: Path) -> None:
    march = March(service, tmp_path)
    heard: list[Heard] = []
    with (
        httpx.Client(timeout=20, trust_env=False) as client,
        httpx_sse.connect_sse(client, "GET", f"{service.url}/jobs/{march.id}/events") as source,
    ):
        for event in source.iter_sse():
            heard.append((event.event, event.id, event.json()))
            if event.event == "snapshot":
                assert event.retry is not None
                march.advance()
            elif event.event == "progress" and event.json()["job"]["progress"]["done"] == 2:
                march.end()
    check(service, march.id, heard)


def test_curl(service: Serving, tmp_path: Path) -> None:
    march = March(service, tmp_path)
    url = f"{service.url}/jobs/{march.id}/events"
    curl = Lines([need("curl"), "--silent", "--no-buffer", "-H", "Accept: text/event-stream", url])
    drive(march, lambda: "event: snapshot" in curl.lines, lambda: "event: progress" in curl.lines)
    lines = curl.wait()
    events = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    datas = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert (events[0], events[-1], len(datas)) == ("snapshot", "end", len(events))


def node(url: str, folder: Path) -> Lines:
    need_package("eventsource")
    script = folder / "listen.cjs"
    script.write_text(NODE_CLIENT)
    return Lines([need("node"), str(script), url, json.dumps(TYPES)], {"NODE_PATH": str(NODE)})


def test_npm_eventsource(service: Serving, tmp_path: Path) -> None:
    march = March(service, tmp_path)
    client = node(f"{service.url}/jobs/{march.id}/events", tmp_path)
    drive(
        march,
        lambda: any(line.startswith('["snapshot"') for line in client.lines),
        lambda: any(line.startswith('["progress"') for line in client.lines),
    )
    check(service, march.id, [tuple(json.loads(line)) for line in client.wait()])


def test_eventsource_of_a_browser(service: Serving, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    march = March(service, tmp_path)
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=need_browser(), args=FLAGS)
        page = browser.new_page()
        page.goto(f"{service.url}/healthz")
        page.evaluate(BROWSER_CLIENT, [f"/jobs/{march.id}/events", TYPES])

        def heard(type_: str) -> bool:
            return bool(page.evaluate("type => heard.some(e => e[0] === type)", type_))

        drive(march, lambda: heard("snapshot"), lambda: heard("progress"))
        until(lambda: heard("end"))
        found = [tuple(event) for event in page.evaluate("heard")]
        # One that does not close at `end` reconnects, and the 204 stops it.
        cursor = found[-1][1]
        page.evaluate(
            "url => { window.again = new EventSource(url) }", f"/jobs/{march.id}/events?after={cursor}"
        )
        until(lambda: page.evaluate("again.readyState === EventSource.CLOSED"))
        browser.close()
    check(service, march.id, found)


@pytest.fixture
def nginx(service: Serving) -> Iterator[Nginx]:
    yield from started(lambda: Nginx((service.port, free_port()), without="proxy_buffering"))


def test_nginx_with_its_default_buffering(service: Serving, nginx: Nginx, tmp_path: Path) -> None:
    march = March(service, tmp_path)
    url = f"{nginx.url}/jobs/{march.id}/events"
    accept = ["-H", "Accept: text/event-stream", "--user", f"{USER}:{PASSWORD}"]
    curl = Lines([need("curl"), "--silent", "--no-buffer", *accept, url])
    drive(march, lambda: "event: snapshot" in curl.lines, lambda: "event: progress" in curl.lines)
    assert "event: end" in curl.wait()


# --- kills


class Listener:
    """Reads a stream, and reconnects with its cursor whenever the connection breaks, to the next service."""

    def __init__(self, path: str, *services: Serving) -> None:
        self._services = cycle(services)
        self._path = path
        self.heard: list[Heard] = []
        self.interruptions = 0
        self._cursor = ""
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._thread.join(20)

    def _run(self) -> None:
        while not self._stopped:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._listen()
            self.interruptions += 1
            time.sleep(0.02)

    def _listen(self) -> None:
        headers = {"Accept": "text/event-stream"}
        if self._cursor:
            headers["Last-Event-ID"] = self._cursor
        connection = http.client.HTTPConnection("127.0.0.1", next(self._services).port, timeout=1)
        with contextlib.closing(connection):
            connection.request("GET", self._path, headers=headers)
            with contextlib.closing(connection.getresponse()) as response:
                self._read(response)

    def _read(self, response: http.client.HTTPResponse) -> None:
        fields: dict[str, str] = {}
        while not self._stopped and (line := response.readline()):
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "data":
                cursor = fields.get("id", "")
                self.heard.append((fields["event"], cursor, json.loads(value)))
                self._cursor = cursor or self._cursor
                fields = {}
            elif name:
                fields[name] = value


def test_no_event_is_missed_or_repeated_over_kills(tmp_path: Path) -> None:
    service = Serving(tmp_path)
    service.start()
    types = "type=status,step,deleted"
    try:
        listeners = [Listener(f"/events?{types}", service) for _ in range(3)]
        long = service.post("work", number=1, seconds=30)
        until(lambda: service.ask("GET", f"/jobs/{long}")["status"] == "PROCESSING")
        eventsource = node(f"{service.url}/jobs/{long}/events?{types}", tmp_path)
        until(lambda: any(line.startswith('["snapshot"') for line in eventsource.lines))
        until(lambda: all(listener.heard for listener in listeners))
        service._env["LONGEST"] = "0"
        jobs: list[str] = []
        for _ in range(2):
            jobs += [service.post("work", number=number) for number in range(10)]
            service.kill()
            service.start()
        for job_id in jobs:
            service.ended(job_id)
        # A client that bide's authors did not write resumes by itself.
        heard = [tuple(json.loads(line)) for line in eventsource.wait()]
        assert (heard[0][0], heard[-1][0]) == ("snapshot", "end"), heard
        found = [data for _, _, data in heard[1:-1]]
        events = service.ask("GET", f"/jobs/{long}/events")["events"]
        assert [event for event in events if event["type"] != "log"][-len(found) :] == found
        assert len(found) >= 4, "the job runs again"
        # All events, for listeners that reconnect immediately.
        log = service.ask("GET", f"/events?{types}")["events"]
        until(lambda: all(listener.heard[-1][1] == log[-1]["id"] for listener in listeners))
        for listener in listeners:
            listener.stop()
            assert listener.interruptions >= 2
            (_, first, _), *rest = listener.heard
            assert [data for _, _, data in rest] == [e for e in log if number(e["id"]) > number(first)]
    finally:
        service.stop()


# --- replicas


@pytest.fixture(scope="module")
def replicas(
    tmp_path_factory: pytest.TempPathFactory, postgres: Postgres
) -> Iterator[tuple[Replica, Replica]]:
    folder = tmp_path_factory.mktemp("replicas")
    url = f"{postgres.url}?schema=listened"
    one, two = (Replica(folder / name, url, lease=1.5) for name in ("one", "two"))
    one.start()
    two.start()
    yield one, two
    one.stop()
    two.stop()


def test_progress_of_a_job_at_another_replica(replicas: tuple[Replica, Replica], tmp_path: Path) -> None:
    # Of two jobs of one queue with two processes per replica, each replica may run any.
    before = [March(replica, tmp_path) for replica in replicas]
    # No listener names a job.
    paths = ("/events", "/events?kind=march&type=progress")
    listeners = [Listener(path, replica) for path in paths for replica in replicas]
    until(lambda: all(listener.heard for listener in listeners))
    jobs = [*before, *(March(replica, tmp_path) for replica in replicas)]

    def told(job: March, done: int) -> bool:
        """Whether all listeners have heard of this progress."""
        return all(
            any(
                event == "progress"
                and data["jobId"] == job.id
                and data["job"]["progress"]["done"] == done
                for event, _, data in listener.heard
            )
            for listener in listeners
        )

    for done in (2, 3):
        for job in jobs:
            job.advance()
        until(lambda done=done: all(told(job, done) for job in jobs))  # type: ignore[misc]
    for job in jobs:
        job.end()
    for listener in listeners:
        listener.stop()


def test_listeners_of_replicas_continue_at_another_one(replicas: tuple[Replica, Replica]) -> None:
    one, two = replicas
    types = "type=status,step,deleted"
    listeners = [Listener(f"/events?{types}", *pair) for pair in ((one, two), (two, one))]
    until(lambda: all(listener.heard for listener in listeners))
    jobs = [replica.post("work", number=n) for n in range(10) for replica in replicas]
    one.kill()
    jobs += [two.post("work", number=n) for n in range(10)]
    one.start()
    jobs += [one.post("work", number=n) for n in range(5)]
    two.kill()
    for job_id in jobs:
        one.ended(job_id)
    log = one.ask("GET", f"/events?{types}")["events"]
    until(lambda: all(listener.heard[-1][1] == log[-1]["id"] for listener in listeners))
    for listener in listeners:
        listener.stop()
        assert listener.interruptions
        (_, first, _), *rest = listener.heard
        assert [data for _, _, data in rest] == [e for e in log if number(e["id"]) > number(first)]


def number(cursor: str) -> int:
    return int(cursor.partition("-")[2])
