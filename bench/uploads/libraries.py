"""Compares two S3 libraries, obstore and aiobotocore, on one server, each in its own processes.

    python -m bench.uploads.libraries [--size MB] [--rounds N]

Uploads a file in parts and downloads it as a stream, then sends a thousand small requests. Each round runs both in turn;
the figures are medians. Both must be installed: `pip install obstore aiobotocore`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.servers.swift import KEY, REGION, SECRET, Swift

BUCKET = "bide-bench"
PART = 8 * 1024 * 1024
SMALL = 300
Calls = dict[str, Callable[[], Awaitable[Any]]]


def _rss() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


async def _obstore(endpoint: str, path: Path) -> Calls:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=endpoint,
        region=REGION,
        access_key_id=KEY,
        secret_access_key=SECRET,
        client_options={"allow_http": True},
    )

    async def up() -> None:
        await obstore.put_async(store, "large", path, chunk_size=PART, max_concurrency=2)

    async def down() -> None:
        got = await obstore.get_async(store, "large")
        size = 0
        async for chunk in got.stream(min_chunk_size=256 * 1024):
            size += len(chunk)
        assert size == path.stat().st_size

    async def small() -> None:
        for n in range(SMALL):
            await obstore.put_async(store, f"small-{n % 10}", b"x" * 4096)
            await (await obstore.get_async(store, f"small-{n % 10}")).bytes_async()

    return {"up": up, "down": down, "small": small}


async def _aiobotocore(endpoint: str, path: Path) -> Calls:
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    config = AioConfig(
        signature_version="s3v4",
        s3={"addressing_style": "path", "payload_signing_enabled": False},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    maker = get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=config,
    )
    s3 = await maker.__aenter__()

    async def up() -> None:
        begun = await s3.create_multipart_upload(Bucket=BUCKET, Key="large")
        where = {"Bucket": BUCKET, "Key": "large", "UploadId": begun["UploadId"]}
        parts: list[dict[str, Any]] = []
        with path.open("rb") as file:

            async def send() -> None:
                while data := file.read(PART):
                    number = file.tell() // PART + (file.tell() % PART > 0)
                    sent = await s3.upload_part(**where, PartNumber=number, Body=data)
                    parts.append({"PartNumber": number, "ETag": sent["ETag"]})

            await asyncio.gather(send(), send())
        parts.sort(key=lambda part: int(part["PartNumber"]))
        await s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})

    async def down() -> None:
        got = await s3.get_object(Bucket=BUCKET, Key="large")
        size = 0
        async with got["Body"] as body:
            while chunk := await body.read(256 * 1024):
                size += len(chunk)
        assert size == path.stat().st_size

    async def small() -> None:
        for n in range(SMALL):
            await s3.put_object(Bucket=BUCKET, Key=f"small-{n % 10}", Body=b"x" * 4096)
            await (await s3.get_object(Bucket=BUCKET, Key=f"small-{n % 10}"))["Body"].read()

    return {"up": up, "down": down, "small": small}


CANDIDATES = {"obstore": _obstore, "aiobotocore": _aiobotocore}


async def _measure(name: str, endpoint: str, path: Path) -> dict[str, float]:
    before, began = _rss(), time.perf_counter()
    calls = await CANDIDATES[name](endpoint, path)
    figures = {"start s": time.perf_counter() - began, "start MB": _rss() - before}
    for what, call in calls.items():
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
        cpu, wall, resident = time.process_time(), time.perf_counter(), _rss()
        await call()
        figures[f"{what} s"] = time.perf_counter() - wall
        figures[f"{what} cpu s"] = time.process_time() - cpu
        figures[f"{what} peak MB"] = _peak() - resident
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=256, help="MB of the large file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name, endpoint, path = given.one
        print(json.dumps(asyncio.run(_measure(name, endpoint, Path(path)))), flush=True)
        return
    server = Swift()
    try:
        server.make_bucket(BUCKET)
        with tempfile.NamedTemporaryFile() as file:
            for _ in range(given.size):
                file.write(os.urandom(2**20))
            file.flush()
            figures: dict[str, list[dict[str, float]]] = {name: [] for name in CANDIDATES}
            for _ in range(given.rounds):
                for name, runs in figures.items():
                    command = [sys.executable, "-m", "bench.uploads.libraries", "--one"]
                    command += [name, server.endpoint, file.name]
                    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
                    runs.append({**json.loads(done.stdout), "died at exit": float(done.returncode != 0)})
        deaths = (
            f"{name} {sum(r.pop('died at exit') for r in runs):8.0f}" for name, runs in figures.items()
        )
        print(f"{'died at exit':16}", *deaths)
        for what in figures["obstore"][0]:
            medians = (
                f"{name} {statistics.median(r[what] for r in runs):8.2f}"
                for name, runs in figures.items()
            )
            print(f"{what:16}", *medians)
    finally:
        server.end()


if __name__ == "__main__":
    main()
