"""Two installations, each with a database of its own, keep their files in one place: neither removes a file of the other."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from bench.chaos import lasting, marks
from bench.chaos.fleet import TARGET
from bench.chaos.victim import NotStarted, Victim
from bench.service.table import Line

JOBS = 10
AGE = 3 * 3600  # seconds: old enough to be taken for left over


def measure(folder: Path) -> list[Line]:
    removed = trial(folder)
    return [
        Line("files of another installation that were removed", removed, "≤", 0, "", f"of {JOBS + 1}")
    ]


def trial(folder: Path) -> int:
    root = folder / "blobs"
    one, two = (_installation(folder / name, root) for name in ("one", "two"))
    one.start()
    try:
        ids = [lasting.submit(one.insist, "output", number=n) for n in range(JOBS)]
        lasting.ended(one.insist, ids)
        upload = one.insist("POST", "/uploads?name=a.json", {"a": 1})
        places = [f"/jobs/{job_id}/files/number.txt" for job_id in ids]
        places.append(f"/files/{upload['uploadId']}")
        if not all(_readable(one, place) for place in places):
            raise RuntimeError("not every file can be read before there is another installation")
        _age(root)
        try:
            two.start()  # which looks for left-over files at once
            lasting.ended(two.insist, [lasting.submit(two.insist, "output", number=1)])
            time.sleep(3.0)
        except NotStarted:  # it may refuse the place
            pass
        finally:
            two.stop()
        return sum(not _readable(one, place) for place in places)
    finally:
        one.stop()


def _installation(folder: Path, root: Path) -> Victim:
    folder.mkdir()
    env = {marks.PLACE: str(folder / "marks")}
    return Victim(folder, TARGET, env=env, options=("--blobs", str(root)))


def _age(root: Path) -> None:
    then = time.time() - AGE
    for path in [*root.rglob("*"), root]:
        os.utime(path, (then, then))


def _readable(victim: Any, place: str) -> bool:

    try:
        with urllib.request.urlopen(victim.url + place, timeout=10) as answer:
            return bool(answer.read())
    except urllib.error.HTTPError:
        return False
