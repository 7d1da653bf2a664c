"""Uploads to S3 (OpenStack Swift), against boto3's multipart upload; and how fast another replica continues.

A client sends the file to bide in pieces of 64 MiB. Each is acknowledged when it is in the bucket and in PostgreSQL. boto3
sends the file straight to the bucket, in parts of 8 MiB and up to ten at a time, and neither hashes nor records it. Then a
replica is killed in the middle of a piece: the time until another replica has acknowledged more bytes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.servers.postgres import Postgres
from tests.servers.service import ServiceProcess
from tests.servers.swift import Swift

from bench.service.load import Samples
from bench.service.table import Line
from bench.uploads import sending
from bench.uploads.sending import OFFSET, TUS, Caller

SIZE = 512 * 1024 * 1024
PIECE = 64 * 1024 * 1024
BUCKET = "bide-bench"


def measure(folder: Path, rounds: int) -> list[Line]:
    samples = Samples()
    file = folder / "file"
    with file.open("wb") as out:
        for _ in range(SIZE // PIECE):
            out.write(os.urandom(PIECE))
    with _replicas(folder) as (swift, one, two):
        client = swift.client()
        sending.tus(one.port, file, PIECE, PIECE)  # creates the clients of the storage
        for number in range(rounds):
            begin = time.perf_counter()
            client.upload_file(str(file), BUCKET, f"boto3/{number}")
            samples.add("boto3", SIZE / (time.perf_counter() - begin) / 1e6)
            begin = time.perf_counter()
            sending.tus(one.port, file, SIZE, PIECE)
            samples.add("bide", SIZE / (time.perf_counter() - begin) / 1e6)
            samples.add("switch", _switch(one, two, file))
            one.start()
        client.close()
    speeds = f"{samples['bide']:.0f} : {samples['boto3']:.0f} MB/s"
    what = "an upload to S3 through bide : boto3's multipart upload"
    return [
        Line(what, samples.ratio("bide", "boto3"), "≥", 0.8, detail=speeds),
        Line("another replica continues the upload of a killed one", samples["switch"], "≤", 1.0, "s"),
    ]


@contextlib.contextmanager
def _replicas(folder: Path) -> Iterator[tuple[Swift, ServiceProcess, ServiceProcess]]:
    with contextlib.ExitStack() as stack:
        swift = Swift(str(folder))
        stack.callback(swift.end)
        swift.make_bucket(BUCKET)
        server = Postgres(str(folder))
        stack.callback(server.end)
        options = ["--store", server.url, "--blobs", swift.url(BUCKET, "bide")]
        found = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            replica = ServiceProcess(
                folder / name, "bench.uploads.app:app", workers=1, options=options, env=swift.environment
            )
            replica.start()
            stack.callback(replica.stop)
            found.append(replica)
        yield swift, found[0], found[1]


def _switch(one: ServiceProcess, two: ServiceProcess, file: Path) -> float:
    """Seconds from the kill of one replica until the other one has acknowledged more bytes."""
    caller = Caller(one.port)
    _, headers, _ = caller.ask("POST", "/files", {**TUS, "Upload-Length": str(SIZE)})
    place = headers["location"]
    caller.ask("PATCH", place, {**OFFSET, "Upload-Offset": "0"}, file=(file, 0, PIECE))
    told = {**OFFSET, "Upload-Offset": str(PIECE)}

    def send() -> None:
        with contextlib.suppress(OSError, RuntimeError):
            Caller(one.port).ask("PATCH", place, told, file=(file, PIECE, SIZE - PIECE))

    sender = threading.Thread(target=send)
    sender.start()
    time.sleep(0.5)  # in the middle of the request
    one.kill(alone=False)
    begin = time.perf_counter()
    caller = Caller(two.port)
    _, headers, _ = caller.ask("HEAD", place, TUS)
    at = int(headers["upload-offset"])
    if at < PIECE:
        raise RuntimeError(f"{at} bytes are left of {PIECE} that were acknowledged")
    caller.ask("PATCH", place, {**OFFSET, "Upload-Offset": str(at)}, file=(file, at, 1024 * 1024))
    took = time.perf_counter() - begin
    sender.join()
    caller.ask("DELETE", place, TUS)
    return took
