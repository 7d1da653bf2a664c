"""Two installations, each with its own database, store their files in one place: neither removes a file of the other.

The second one treats unknown files as orphans after one second, so that its sweeps run during the trial.
"""

from __future__ import annotations

import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.servers import ServerMissing
from tests.servers.service import NotStarted, ServiceProcess
from tests.servers.swift import Swift

from bench.chaos import impatient, lasting, marks
from bench.chaos.fleet import TARGET
from bench.service.table import Line

JOBS = 10
SWEEPS = 8.0  # seconds
BUCKET = "bide-chaos"


def measure(folder: Path) -> list[Line]:
    lines = [_line("folder", trial(folder / "folder", str(folder / "blobs"), {}))]
    try:
        swift = Swift()
    except ServerMissing as missing:
        print(f"shared-root: no bucket, because {missing}", file=sys.stderr)
        return lines
    try:
        swift.make_bucket(BUCKET)
        removed = trial(folder / "bucket", swift.url(BUCKET, "files"), swift.environment)
    finally:
        swift.end()
    return [*lines, _line("bucket", removed)]


def _line(place: str, removed: int) -> Line:
    return Line(
        f"one {place}: files of the other that were removed", removed, "≤", 0, "", f"of {JOBS + 1}"
    )


def trial(folder: Path, place: str, env: Mapping[str, str]) -> int:
    folder.mkdir()
    one = ServiceProcess(
        folder, TARGET, env={marks.PLACE: str(folder / "marks"), **env}, options=("--blobs", place)
    )
    two = Mounted(folder / "two", place, env)
    one.start()
    try:
        ids = [lasting.submit(one.insist, "output", number=n) for n in range(JOBS)]
        lasting.ended(one.insist, ids)
        upload = one.insist("POST", "/uploads?name=a.json", {"a": 1})
        places = [f"/jobs/{job_id}/files/number.txt" for job_id in ids]
        places.append(f"/files/{upload['uploadId']}")
        if not all(_readable(one, path) for path in places):
            raise RuntimeError("not every file can be read before there is another installation")
        time.sleep(2.0)  # wait until they are old enough
        try:
            two.start()
            lasting.ended(two.insist, [lasting.submit(two.insist, "output", number=1)])
            time.sleep(SWEEPS)
        except NotStarted:  # it may refuse the place
            pass
        finally:
            two.stop()
        return sum(not _readable(one, path) for path in places)
    finally:
        one.stop()


class Mounted(ServiceProcess):
    """The second installation: mounted in uvicorn, because `bide serve` has no flags for such an upkeep."""

    def __init__(self, folder: Path, place: str, env: Mapping[str, str]) -> None:
        folder.mkdir()
        own = {
            impatient.DATA: str(folder / "data"),
            impatient.BLOBS: place,
            marks.PLACE: str(folder / "marks"),
        }
        super().__init__(folder, TARGET, env={**own, **env}, shown=r"http://127\.0\.0\.1:(\d+) ")

    def command(self) -> list[str]:
        port = ["--host", "127.0.0.1", "--port", str(self.port), "--lifespan", "on"]
        return [sys.executable, "-m", "uvicorn", "--factory", "bench.chaos.impatient:application", *port]


def _readable(victim: ServiceProcess, path: str) -> bool:
    try:
        with urllib.request.urlopen(victim.url + path, timeout=10) as answer:
            return bool(answer.read())
    except urllib.error.HTTPError:
        return False
