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
from typing import NamedTuple

from tests.servers import ServerMissing
from tests.servers.service import ServiceProcess
from tests.servers.swift import Swift

from bench.chaos import impatient, lasting, marks
from bench.chaos.fleet import TARGET
from bench.service.table import Line, not_run

JOBS = 10
SWEEPS = 8.0  # seconds
BUCKET = "bide-chaos"
REFUSAL = "cannot remove orphaned files"  # in the log of a service that finds the files of another


def measure(folder: Path) -> list[Line]:
    lines = _lines("folder", trial(folder / "folder", str(folder / "blobs"), {}))
    try:
        swift = Swift()
    except ServerMissing as missing:
        return [*lines, not_run("one bucket", str(missing).strip().splitlines()[-1])]
    try:
        swift.make_bucket(BUCKET)
        outcome = trial(folder / "bucket", swift.url(BUCKET, "files"), swift.environment)
    finally:
        swift.end()
    return lines + _lines("bucket", outcome)


class Outcome(NamedTuple):
    removed: int  # files of the first installation
    refusals: int  # of the second installation, in its log


def _lines(place: str, outcome: Outcome) -> list[Line]:
    files = f"of {JOBS + 1}"
    return [
        Line(f"one {place}: files of the other that were removed", outcome.removed, "≤", 0, "", files),
        Line(f"one {place}: the other refused to sweep", outcome.refusals, "≥", 1, ""),
    ]


def trial(folder: Path, place: str, env: Mapping[str, str]) -> Outcome:
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
        finally:
            two.stop()
        refusals = (two.folder / "serve.log").read_text().count(REFUSAL)
        return Outcome(sum(not _readable(one, path) for path in places), refusals)
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
