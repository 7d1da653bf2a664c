"""10,000 concurrent resumable uploads of 64 KB, with one connection in a hundred cut: how many become jobs, and the effect
on the latency of status requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from bench.service.servers import ROOT, bide
from bench.service.table import Line
from bench.uploads.polling import p99

UPLOADS = 10_000
SIZE = 64 * 1024
CONNECTIONS = 500
CUT = 0.01
WARM = 5.0
CONTENT = os.urandom(SIZE)
_TUS = "Host: localhost\r\nTus-Resumable: 1.0.0\r\n"
_METADATA = "kind dGFrZQ=="  # take


class Cut(Exception):
    """The connection was cut on purpose."""


class Connection:
    """A connection as a tus client uses it: kept open, and reopened after a failure."""

    def __init__(self, port: int, rng: random.Random) -> None:
        self._port = port
        self._rng = rng
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, headers: str, body: bytes = b"") -> dict[str, str]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\n{_TUS}Content-Length: {len(body)}\r\n{headers}\r\n"
        if body and self._rng.random() < CUT:
            writer.write(head.encode() + body[: len(body) // 2])
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            writer.transport.abort()
            self._streams = None
            raise Cut
        try:
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()
            self._streams = None
            raise Cut from None
        first, *lines = answer.split("\r\n")
        found = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        if "content-length" in found and method != "HEAD":
            await reader.readexactly(int(found["content-length"]))
        if found.get("connection") == "close":
            writer.close()
            self._streams = None
        return {**found, "status": first.split()[1]}


async def begin(connection: Connection) -> str:
    while True:
        try:
            told = f"Upload-Length: {SIZE}\r\nUpload-Metadata: {_METADATA}\r\n"
            answer = await connection.ask("POST", "/files", told)
            if answer["status"] == "201":
                return answer["location"]
        except Cut:
            continue


async def send(connection: Connection, place: str, until: int) -> str | None:
    """Resume as often as needed. Return the URL of the job, if there is one."""
    offset: int | None = None
    while True:
        try:
            if offset is None:
                answer = await connection.ask("HEAD", place, "")
                if answer["status"] != "200":
                    return None
                offset = int(answer["upload-offset"])
                if offset >= until:
                    return answer.get("job-location")
            told = f"Upload-Offset: {offset}\r\nContent-Type: application/offset+octet-stream\r\n"
            answer = await connection.ask("PATCH", place, told, CONTENT[offset:until])
            if answer["status"] == "204":
                return answer.get("job-location")
        except Cut:
            pass
        offset = None


async def everything(port: int, uploads: int) -> list[str | None]:
    """All uploads are started and half sent before the first one is complete."""
    rng = random.Random(1)
    connections: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        connections.put_nowait(Connection(port, rng))
    places: list[str] = []

    async def first() -> None:
        connection = await connections.get()
        place = await begin(connection)
        await send(connection, place, SIZE // 2)
        places.append(place)
        connections.put_nowait(connection)

    async def second(place: str) -> str | None:
        connection = await connections.get()
        try:
            return await send(connection, place, SIZE)
        finally:
            connections.put_nowait(connection)

    await asyncio.gather(*(first() for _ in range(uploads)))
    return await asyncio.gather(*(second(place) for place in places))


def measure(folder: Path, rounds: int) -> list[Line]:
    with bide(folder, workers=1, app="bench.uploads.app:app") as site:
        job = site.run("nothing")["jobId"]
        before = p99(site.port, job, WARM)
        command = [sys.executable, "-m", "bench.uploads.many", str(site.port), str(UPLOADS)]
        begin_at = time.monotonic()
        found_file = folder / "jobs.json"
        with found_file.open("wb") as out, subprocess.Popen(command, cwd=ROOT, stdout=out) as sender:
            busy = p99(site.port, job, lambda: sender.poll() is None)
        took = time.monotonic() - begin_at
        jobs = json.loads(found_file.read_text())
        time.sleep(WARM)  # the last jobs are done
        idle = (before + p99(site.port, job, WARM)) / 2
        found = sum(site.ask("GET", place).json()["status"] != "ERROR" for place in set(jobs) - {None})
    detail = f"{UPLOADS} in {took:.0f} s, {UPLOADS / took:.0f} a second"
    return [
        Line("uploads that became jobs", 100 * found / UPLOADS, "≥", 99.9, "%", detail),
        Line(
            "status p99 meanwhile : idle",
            busy / idle,
            *("≤", 3),
            detail=f"{busy * 1000:.2f} ms beside {idle * 1000:.2f}",
        ),
    ]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(everything(int(sys.argv[1]), int(sys.argv[2])))))
