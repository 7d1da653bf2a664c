"""A service that is killed during a presigned upload: a partial file does not count, and the upload resumes."""

from __future__ import annotations

import socket
import urllib.error
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bide.server.blobs import Signed
from bide.testing.blobs import send
from tests.servers.service import ServiceProcess


def put(signed: Any, body: bytes) -> int:
    return send(Signed(signed["url"], signed["method"], signed["headers"]), body)


def begin_to_put(signed: Any, body: bytes) -> socket.socket:
    """The head and a half of the body, on a connection that stays."""
    parts = urlsplit(signed["url"])
    connection = socket.create_connection((parts.hostname or "", parts.port or 80))
    head = f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in signed["headers"].items())
    connection.sendall(f"{head}\r\n".encode() + body)
    return connection


def test_killed_in_the_middle_of_a_put(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path, "tests.apps.handlers", workers=1)
    service.start()
    try:
        asked = {"name": "a.txt", "contentType": "text/plain", "size": 5, "kind": "reads"}
        signed = service.ask("POST", "/uploads/presign", asked)
        half = begin_to_put(signed, b"hel")
        service.kill()
        half.close()
        service.start()

        with pytest.raises(urllib.error.HTTPError) as early:
            service.ask("POST", f"/uploads/{signed['uploadId']}/complete", {})
        assert early.value.code == 409
        early.value.close()
        assert put(signed, b"hello") == 200  # what was signed before the crash still holds
        done = service.ask("POST", f"/uploads/{signed['uploadId']}/complete", {})
        assert done["status"] == "DONE"
        job = service.insist("GET", f"/jobs/{signed['job']['jobId']}", headers={"Prefer": "wait=30"})
        assert (job["status"], job["result"]) == ("DONE", "a.txt: hello")
    finally:
        service.stop()
