"""Uploads to a disk that is really full: the response, the bytes that are kept, and the resumed upload."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bide.core.wire.tus import BODY_TYPE
from tests.acceptance.test_bad_days import SmallDisk, running

SIZE = 20 * 1024 * 1024
HALF = SIZE // 2
CONTENT = os.urandom(SIZE)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
TUS = {"Tus-Resumable": "1.0.0"}
BYTES = {"Content-Type": "application/octet-stream"}


class Sender:
    def __init__(self, service: SmallDisk) -> None:
        self.service = service

    def __call__(
        self,
        method: str,
        place: str,
        headers: dict[str, str],
        body: bytes = b"",
        filled_after: int | None = None,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """`filled_after` so many bytes of the body the disk becomes full."""
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
        try:
            connection.putrequest(method, place)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                connection.putheader(name, value)
            first = len(body) if filled_after is None else filled_after
            connection.endheaders(body[:first])
            if filled_after is not None:
                self.service.leave(0)
                connection.send(body[first:])
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, method: str, place: str, **fields: Any) -> dict[str, Any]:
        body = json.dumps(fields).encode() if fields else b""
        status, _, answer = self(method, place, {"Content-Type": "application/json"}, body)
        assert status < 300, answer
        found: dict[str, Any] = json.loads(answer)
        return found


@pytest.fixture
def send(tmp_path: Path) -> Iterator[Sender]:
    with running(SmallDisk(tmp_path, "200m")) as service:
        assert isinstance(service, SmallDisk)
        service.until_ready()
        yield Sender(service)


def is_told(status: int, body: bytes) -> None:
    """By the disk of the uploads, or by the store, which is on the same one."""
    problem = json.loads(body)
    assert (status, problem["code"]) in ((507, "storage-full"), (503, "unavailable"))
    assert "full" in problem["detail"] and problem["retryable"]


def stored(send: Sender) -> list[Path]:
    """Files of uploads, whole or not."""
    inside = send.service.inside(send.service.disk) / "data"
    return [path for path in inside.rglob("*") if path.is_file() and path.stat().st_size >= HALF]


def test_a_body_is_refused_and_leaves_nothing(send: Sender) -> None:
    status, _, body = send("POST", "/uploads", BYTES, CONTENT, HALF)
    is_told(status, body)
    assert stored(send) == []
    status, _, body = send("POST", "/uploads", BYTES, CONTENT)
    assert status == 507 and "bytes requested" in json.loads(body)["detail"]  # before it is read
    send.service.make_room()
    status, _, body = send("POST", "/uploads", BYTES, CONTENT)
    assert (status, json.loads(body)["sha256"]) == (201, SHA256)
    assert "Traceback" not in send.service.said()


def test_tus_goes_on_where_it_was(send: Sender) -> None:
    _, headers, _ = send("POST", "/files", {**TUS, "Upload-Length": str(SIZE)})
    place = headers["Location"]

    def patch(at: int, filled_after: int | None = None, until: int = SIZE) -> tuple[int, bytes]:
        told = {**TUS, "Content-Type": BODY_TYPE, "Upload-Offset": str(at)}
        status, _, body = send("PATCH", place, told, CONTENT[at:until], filled_after)
        return status, body

    assert patch(0, until=HALF)[0] == 204
    is_told(*patch(HALF, HALF // 2))
    send.service.make_room()
    _, headers, _ = send("HEAD", place, TUS)
    at = int(headers["Upload-Offset"])
    assert at >= HALF, "what was acknowledged is kept"
    assert patch(at)[0] == 204
    assert hashlib.sha256(send("GET", place, {})[2]).hexdigest() == SHA256
    assert "Traceback" not in send.service.said()


def test_a_chunk_is_sent_again(send: Sender) -> None:
    begun = send.json("POST", "/uploads/chunked", size=SIZE, chunkSize=HALF)
    place = f"/uploads/{begun['uploadId']}"
    assert send("PUT", f"{place}/chunks/1", BYTES, CONTENT[HALF:])[0] == 204
    status, _, body = send("PUT", f"{place}/chunks/0", BYTES, CONTENT[:HALF], HALF // 2)
    is_told(status, body)
    send.service.make_room()
    assert send.json("GET", f"{place}/chunks")["missing"] == [0]
    assert send("PUT", f"{place}/chunks/0", BYTES, CONTENT[:HALF])[0] == 200
    assert send.json("POST", f"{place}/complete")["sha256"] == SHA256
    assert "Traceback" not in send.service.said()


def test_what_was_signed_is_put_again(send: Sender) -> None:
    fields = {"name": "a.bin", "contentType": "application/octet-stream", "size": SIZE, "sha256": SHA256}
    signed = send.json("POST", "/uploads/presign", **fields)
    status, _, body = send("PUT", signed["url"], signed["headers"], CONTENT, HALF)
    is_told(status, body)
    send.service.make_room()
    assert send("PUT", signed["url"], signed["headers"], CONTENT)[0] == 200
    assert send.json("POST", f"/uploads/{signed['uploadId']}/complete")["sha256"] == SHA256
    assert "Traceback" not in send.service.said()
