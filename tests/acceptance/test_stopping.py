"""A service that is stopped while clients send: each accepted request gets a response, and none is a 500."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.serving import Serving
from tests.waiting import until

CALLERS = 6


class Load:
    """Callers that submit and ask until they cannot connect any more."""

    def __init__(self, port: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.accepted: list[str] = []
        self.failures: Counter[str] = Counter()
        self.ending = threading.Event()
        self._port = port
        self._threads = [threading.Thread(target=self._call, args=(n,)) for n in range(CALLERS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        for thread in self._threads:
            thread.join(30)

    def _call(self, number: int) -> None:
        """Half of them keep their connection."""
        body = json.dumps({"kind": "work", "input": {"number": number}})
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        while not self.ending.is_set():
            try:
                connection.request("POST", "/jobs", body, {"Content-Type": "application/json"})
                with connection.getresponse() as answer:
                    self.statuses[answer.status] += 1
                    told = json.loads(answer.read())
                if answer.status == 202:
                    self.accepted.append(told["jobId"])
                    connection.request("GET", f"/jobs/{told['jobId']}")
                    with connection.getresponse() as answer:
                        self.statuses[answer.status] += 1
                        answer.read()
                if number % 2:
                    connection.close()
            except ConnectionRefusedError:
                return
            except (OSError, http.client.HTTPException) as error:  # closed, as an idle one may be
                self.failures[type(error).__name__] += 1
                connection.close()
        connection.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Serving]:
    service = Serving(tmp_path)
    service.start()
    yield service
    service.stop()


def test_requests_during_a_stop_are_answered_or_refused(service: Serving) -> None:
    until(lambda: service.ask("GET", "/queues"))
    long = service.post("work", number=0, seconds=0.5)
    held: list[int] = []

    def wait() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", f"/jobs/{late}", headers={"Prefer": "wait=50"})
            held.append(connection.getresponse().status)

    late = service.ask(
        "POST", "/jobs", {"kind": "work", "input": {"number": 1}, "runAt": "2999-01-01T00:00:00Z"}
    )["jobId"]
    waiting = threading.Thread(target=wait)
    waiting.start()
    with Load(service.port) as load:
        until(lambda: len(load.accepted) > 100)
        assert service.end(signal.SIGTERM) == 0
    waiting.join(10)
    assert set(load.statuses) <= {200, 202, 503}, (load.statuses, service.said()[-3000:])
    assert held == [200], "a long poll is answered with the status of the moment"
    assert "Traceback" not in service.said()
    service.start()
    known = {job_id for job_id in load.accepted if service.job(job_id)["jobId"] == job_id}
    assert known == set(load.accepted)
    assert service.ended(long)["status"] == "DONE"


def test_a_service_that_drains_refuses_new_work_and_answers_everything_else(tmp_path: Path) -> None:
    """A caller that is refused sends the submission to another replica, or again after the restart."""
    service = Serving(tmp_path, drain=30.0)
    service.start()
    orders, go = tmp_path / "orders", tmp_path / "go"
    orders.write_text("1")
    try:
        failed = service.post("fail")
        assert service.ended(failed)["status"] == "ERROR"
        upload = service.ask("POST", "/uploads?name=picture.json", {"a": 1})["uploadId"]
        running = service.post("march", orders=str(orders))
        parent = service.post("deliver", picture={"upload": upload}, go=str(go), gather=False)
        until(lambda: {service.job(job_id)["status"] for job_id in (running, parent)} == {"PROCESSING"})
        os.kill(service.pid, signal.SIGTERM)
        until(lambda: refusal(service, "GET", "/readyz"))
        job = {"kind": "fail", "input": {}}
        for path, body in (
            ("/jobs", job),
            ("/jobs/batch", {"jobs": [job]}),
            (f"/jobs/{failed}/retry", {}),
        ):
            assert refusal(service, "POST", path, body) == (503, True)
        go.touch()
        (child,) = until(lambda: service.job(parent)["children"])  # a running job may still spawn
        assert service.job(running)["status"] == "PROCESSING"
        assert service.ended(parent)["status"] == "DONE"
        orders.unlink()
        assert service._process is not None
        assert service._process.wait(30) == 0
        assert "Traceback" not in service.said()
        service.start()
        assert service.job(running)["status"] == "DONE"
        assert service.ended(child["jobId"])["result"] == len(b'{"a": 1}')
        assert service.post("fail")
    finally:
        orders.unlink(missing_ok=True)
        service.stop()


def refusal(service: Serving, method: str, path: str, body: object = None) -> tuple[int, bool] | None:
    """The status, and whether it says when to try again. None: the request was accepted."""
    try:
        service.ask(method, path, body)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, int(error.headers["Retry-After"]) > 0
    return None


def test_an_upload_that_does_not_end_is_cut_and_kept(service: Serving) -> None:
    """The sender of a large file is not waited for: it resumes at the next start."""
    base = {"Tus-Resumable": "1.0.0"}
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.request("POST", "/files", headers={**base, "Upload-Length": "10000000"})
    with connection.getresponse() as answer:
        place = answer.headers["Location"]
        answer.read()
    with socket.create_connection(("127.0.0.1", service.port), 30) as sender:
        head = (
            f"PATCH {place} HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n"
        )
        head += "Content-Type: application/offset+octet-stream\r\nContent-Length: 10000000\r\n\r\n"
        sender.sendall(head.encode() + bytes(3_000_000))
        begin = time.monotonic()
        until(_sent(sender))
        assert service.end(signal.SIGTERM) == 0
        assert time.monotonic() - begin < 20
    connection.close()
    assert "Traceback" not in service.said(), service.said()[-3000:]
    service.start()
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.request("HEAD", place, headers=base)
    with connection.getresponse() as answer:
        assert int(answer.headers["Upload-Offset"]) == 3_000_000
    connection.close()


def _sent(sender: socket.socket) -> Callable[[], bool]:
    """Whether the system has nothing of it left to send."""
    import fcntl
    import struct
    import termios

    def look() -> bool:
        (left,) = struct.unpack("i", fcntl.ioctl(sender, termios.TIOCOUTQ, bytes(4)))
        return bool(left == 0)

    return look
