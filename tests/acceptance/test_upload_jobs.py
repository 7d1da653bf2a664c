"""Jobs from uploads, at a served service over sockets: with SQLite and a folder, and with PostgreSQL and a bucket."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.servers.postgres import Postgres
from tests.servers.service import ServiceProcess
from tests.servers.swift import Swift
from tests.waiting import until

CHUNK = 64 * 1024
BUCKET = "bide-upload-jobs"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


def ask(
    service: ServiceProcess,
    method: str,
    path: str,
    body: Any = b"",
    headers: dict[str, str] | None = None,
) -> Answer:
    """Sends bytes as they are and other values as JSON."""
    told = dict(headers or {})
    if not isinstance(body, bytes):
        body, told["Content-Type"] = json.dumps(body).encode(), "application/json"
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request(method, path, body, told)
        answer = connection.getresponse()
        data = answer.read()
        lines = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, lines, json.loads(data) if data else None)
    finally:
        connection.close()


@pytest.fixture(scope="module", params=["SQLite and a folder", "PostgreSQL and a bucket"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    options: list[str] = []
    env: dict[str, str] = {}
    if request.param == "PostgreSQL and a bucket":
        postgres: Postgres = request.getfixturevalue("postgres")
        swift: Swift = request.getfixturevalue("swift")
        swift.make_bucket(BUCKET)
        options = ["--store", f"{postgres.url}?schema=t{uuid.uuid4().hex[:16]}"]
        options += ["--blobs", swift.url(BUCKET, uuid.uuid4().hex)]
        env = swift.environment
    process = ServiceProcess(
        tmp_path_factory.mktemp("service"), "tests.apps.uploads:app", options=options, env=env
    )
    process.start()
    yield process
    process.stop()


def begin_chunks(service: ServiceProcess, content: bytes, **more: Any) -> str:
    asked = {"name": "a.bin", "size": len(content), "chunkSize": CHUNK, **more}
    begun = ask(service, "POST", "/uploads/chunked", asked)
    assert begun.status == 201, begun.body
    return begun.headers["location"]


def put_chunk(service: ServiceProcess, place: str, content: bytes, number: int) -> Answer:
    return ask(
        service, "PUT", f"{place}/chunks/{number}", content[number * CHUNK : (number + 1) * CHUNK]
    )


def ended(service: ServiceProcess, job_id: str) -> Any:
    """The job when it has ended."""
    held = {"Prefer": "wait=20"}
    return until(
        lambda: (job := ask(service, "GET", f"/jobs/{job_id}", headers=held).body)["finishedAt"] and job,
        timeout=60,
    )


# --- the last chunk


def test_the_last_chunk_completes_the_upload(service: ServiceProcess) -> None:
    content = os.urandom(3 * CHUNK + 7)
    place = begin_chunks(service, content, kind="look")
    answers: list[Answer] = []
    senders = [
        threading.Thread(target=lambda n=n: answers.append(put_chunk(service, place, content, n)))
        for n in (3, 0, 2, 1)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    (last,) = [answer for answer in answers if answer.status != 204]
    assert (last.status, last.body["status"], last.body["size"]) == (200, "DONE", len(content))
    assert last.headers["job-location"] == f"/jobs/{last.body['jobId']}"
    job = ended(service, last.body["jobId"])
    assert job["status"] == "DONE"
    assert job["result"]["sha256"] == job["result"]["real"] == last.body["sha256"]
    # An older client still sends this request, and a client whose response was lost repeats its chunk.
    assert ask(service, "POST", f"{place}/complete").body == last.body
    assert put_chunk(service, place, content, 1).body == last.body


def test_the_last_chunk_before_a_crash_completes_the_upload(service: ServiceProcess) -> None:
    for delay in (0.0, 0.003, 0.01):
        content = os.urandom(CHUNK + 1000)
        place = begin_chunks(service, content, kind="look")
        assert put_chunk(service, place, content, 0).status == 204
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            head = f"PUT {place}/chunks/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
            connection.sendall(head.encode() + content[CHUNK:])
            time.sleep(delay)  # to kill it at different moments
            service.kill()
        service.start()
        last = put_chunk(service, place, content, 1)
        assert (last.status, last.body["status"]) == (200, "DONE"), last.body
        job = ended(service, last.body["jobId"])
        assert (job["status"], job["result"]["size"]) == ("DONE", len(content))
        assert job["result"]["sha256"] == job["result"]["real"]
