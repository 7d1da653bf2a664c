"""Senders with hardly any cost: the kernel copies bytes from a file to a socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
TUS = {"Tus-Resumable": "1.0.0"}
OFFSET = {**TUS, "Content-Type": "application/offset+octet-stream"}


class Caller:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), 600)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        *,
        body: bytes = b"",
        file: tuple[Path, int, int] | None = None,
        around: tuple[bytes, bytes] = (b"", b""),
    ) -> tuple[int, dict[str, str], bytes]:
        """`file`: a path, an offset and a number of bytes; `around`: the bytes before and after it."""
        length = len(body) + sum(map(len, around)) + (file[2] if file else 0)
        lines = {"Host": HOST, "Content-Length": str(length), **(headers or {})}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items())
        self._socket.sendall(head.encode() + b"\r\n" + around[0] + body)
        if file is not None:
            self._send_file(*file)
        self._socket.sendall(around[1])
        return self._answer(method)

    def _send_file(self, path: Path, offset: int, left: int) -> None:
        with path.open("rb") as source:
            self._socket.sendfile(source, offset, left)

    def _answer(self, method: str) -> tuple[int, dict[str, str], bytes]:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in rest)}
        length = 0 if method == "HEAD" else int(headers.get("content-length", 0))
        while len(body) < length:
            body += self._more()
        status = int(first.split()[1])
        if status >= 400:
            raise RuntimeError(f"{method}: {status} {body[:500]!r}")
        return status, headers, body

    def _more(self) -> bytes:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("closed")
        return data


def bare(port: int, path: Path, size: int) -> None:
    Caller(port).ask("POST", "/", file=(path, 0, size))


def direct(port: int, path: Path, size: int) -> str:
    _, _, body = Caller(port).ask("POST", "/uploads?name=a", file=(path, 0, size))
    return str(json.loads(body)["sha256"])


def form(port: int, path: Path, size: int) -> str:
    boundary = b"----FormBoundary7MA4YWxkTrZu0gW"  # as long as those of browsers
    head = b'--%b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' % boundary
    around = (head, b"\r\n--%b--\r\n" % boundary)
    declared = {"Content-Type": f"multipart/form-data; boundary={boundary.decode()}"}
    _, _, body = Caller(port).ask("POST", "/uploads", declared, file=(path, 0, size), around=around)
    return str(json.loads(body)["sha256"])


def tus(port: int, path: Path, size: int, piece: int = 128 * 1024 * 1024) -> str:
    caller = Caller(port)
    _, headers, _ = caller.ask("POST", "/files", {**TUS, "Upload-Length": str(size)})
    place = headers["location"]
    for offset in range(0, size, piece):
        told = {**OFFSET, "Upload-Offset": str(offset)}
        caller.ask("PATCH", place, told, file=(path, offset, min(piece, size - offset)))
    return _sha256(caller, place.replace("files", "uploads"))


def chunks(port: int, path: Path, size: int, at_once: int = 2) -> str:
    caller = Caller(port)
    wanted = json.dumps({"name": "a", "size": size}).encode()
    declared = {"Content-Type": "application/json"}
    _, headers, body = caller.ask("POST", "/uploads/chunked", declared, body=wanted)
    place, told = headers["location"], json.loads(body)
    length, count = told["chunkSize"], told["chunks"]

    def every(first: int) -> None:
        own = Caller(port)
        for number in range(first, count, at_once):
            offset = number * length
            own.ask("PUT", f"{place}/chunks/{number}", file=(path, offset, min(length, size - offset)))

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(every, range(at_once)))
    caller = Caller(port)  # the first connection was idle for too long
    return _sha256(caller, place)


def _sha256(caller: Caller, place: str) -> str:
    _, _, body = caller.ask("GET", place)
    found: dict[str, Any] = json.loads(body)
    return str(found["sha256"])
