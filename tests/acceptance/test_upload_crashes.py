"""A service that is killed during uploads: acknowledged bytes are kept, and clients send the rest again."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

from tests.servers.service import ServiceProcess
from tests.waiting import until

SIZE = 160 * 1024 * 1024
BLOCK = os.urandom(1024 * 1024)
TUS = {"Tus-Resumable": "1.0.0"}
METADATA = "filename ZmlsbS5tcDQ=,kind bG9vaw=="  # film.mp4, look


def content(first: int, last: int) -> bytes:
    """A file in which no two blocks are the same."""
    data = bytearray()
    for number in range(first // len(BLOCK), -(-last // len(BLOCK))):
        data += number.to_bytes(8, "big") + BLOCK[8:]
    skip = first % len(BLOCK)
    return bytes(data[skip : skip + last - first])


def ask(
    service: ServiceProcess, method: str, path: str, headers: dict[str, str], body: bytes | None = None
) -> dict[str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request(method, path, body, {**TUS, **headers})
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status < 400, (answer.status, said)
        return {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def stream(service: ServiceProcess, place: str, offset: int, sent: list[int]) -> None:
    """Until the service dies under it."""
    head = f"PATCH {place} HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: {offset}\r\n"
    head += f"Content-Type: application/offset+octet-stream\r\nContent-Length: {SIZE - offset}\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", service.port), 60) as connection:
            connection.sendall(head.encode())
            for first in range(offset, SIZE, len(BLOCK)):
                data = content(first, min(first + len(BLOCK), SIZE))
                connection.sendall(data)
                sent[0] = first + len(data)
            connection.recv(65536)
    except OSError:
        return


def patch(service: ServiceProcess, place: str, offset: int, last: int) -> dict[str, str]:
    told = {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
    return ask(service, "PATCH", place, told, content(offset, last))


def test_a_killed_service_has_what_it_acknowledged(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path, "tests.apps.uploads:app", workers=1)
    service.start()
    try:
        told = {"Upload-Length": str(SIZE), "Upload-Metadata": METADATA}
        place = ask(service, "POST", "/files", told)["location"]
        acknowledged = int(patch(service, place, 0, 3_000_000)["upload-offset"])
        sent = [0]
        sender = threading.Thread(target=stream, args=(service, place, acknowledged, sent))
        sender.start()
        until(lambda: sent[0] > 0.8 * SIZE, timeout=60)
        service.kill()
        sender.join()
        service.start()
        at = int(ask(service, "HEAD", place, {})["upload-offset"])
        assert at >= acknowledged
        acknowledged = at
        assert acknowledged > 32 * 1024 * 1024, "a long request is made durable in between"
        while acknowledged < SIZE:
            answer = patch(service, place, acknowledged, min(acknowledged + 50_000_000, SIZE))
            acknowledged = int(answer["upload-offset"])
        job = until(lambda: _ended(service, answer["job-location"]), timeout=60)
        whole = hashlib.sha256()
        for first in range(0, SIZE, len(BLOCK)):
            whole.update(content(first, first + len(BLOCK)))
        assert (job["status"], job["result"]["size"]) == ("DONE", SIZE)
        assert job["result"]["sha256"] == job["result"]["real"] == whole.hexdigest()
    finally:
        service.stop()


def _ended(service: ServiceProcess, place: str) -> Any:
    job = service.ask("GET", place)
    return job if job["status"] not in ("PENDING", "PROCESSING") else None


def test_uploads_that_were_answered_are_jobs_after_a_crash(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path, "tests.apps.uploads:app", workers=1)
    service.start()
    jobs: list[str] = []
    stop = threading.Event()

    def send() -> None:
        told = {"Upload-Length": "1000", "Upload-Metadata": METADATA}
        more = {**told, "Content-Type": "application/offset+octet-stream"}
        while not stop.is_set():
            try:
                jobs.append(ask(service, "POST", "/files", more, content(0, 1000))["job-location"])
            except (OSError, http.client.HTTPException, AssertionError, KeyError):
                time.sleep(0.02)

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    try:
        until(lambda: len(jobs) >= 30, timeout=60)
        service.kill()
        service.start()
        known = len(jobs)
        until(lambda: len(jobs) > known, timeout=60)
        stop.set()
        for sender in senders:
            sender.join()
        sha256 = hashlib.sha256(content(0, 1000)).hexdigest()
        for place in jobs:
            job = until(lambda: _ended(service, place), timeout=60)  # noqa: B023
            assert job["result"]["real"] == sha256, json.dumps(job)
    finally:
        stop.set()
        service.stop()
