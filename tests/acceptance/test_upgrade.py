"""A data folder that an older bide left behind is opened, migrated, and keeps its jobs."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from bide.server.store.migrations import scripts
from tests.acceptance.serving import Serving

DATA = Path(__file__).parent.parent / "data"
VERSIONS = [number for number, _ in scripts("sqlite")]
ENDED = ("cancelled", "done", "error", "file", "key", "partial")


def restored(version: int, folder: Path) -> Serving:
    """What a killed service of that schema left, and the present code's service for it."""
    service = Serving(folder, env={"LONGEST": "0"})
    for part in DATA.joinpath(f"schema_{version}").iterdir():
        if part.is_dir():
            shutil.copytree(part, service.data / part.name)
        elif part.name == "replica":
            shutil.copy(part, service.data)
    with contextlib.closing(sqlite3.connect(service.data / "bide.db")) as database:
        database.executescript((DATA / f"schema_{version}" / "bide.sql").read_text())
        database.execute(f"PRAGMA user_version = {version}")
    return service


# The oldest schema runs all migrations; the first with uploads has partial ones; the last is the present one.
FEW = (VERSIONS[0], 3, VERSIONS[-1])


@pytest.mark.parametrize(
    "version", [pytest.param(n, marks=() if n in FEW else pytest.mark.soak) for n in VERSIONS]
)
def test_a_folder_of_every_schema_keeps_its_jobs(version: int, tmp_path: Path) -> None:
    folder = DATA / f"schema_{version}"
    assert folder.is_dir(), "a migration without its folder: run `python -m tests.data.write_folder`"
    before: dict[str, dict[str, Any]] = json.loads((folder / "jobs.json").read_text())
    service = restored(version, tmp_path)
    ids = {what: job["jobId"] for what, job in before.items()}
    service.start()
    try:
        for what in ENDED:
            job = service.job(ids[what])
            for field in ("kind", "status", "result", "error", "attempt", "createdAt", "finishedAt"):
                assert job[field] == before[what][field], (what, field)
        with urllib.request.urlopen(f"{service.url}/jobs/{ids['file']}/files/picture.bin") as file:
            assert file.read() == bytes(10)
        assert service.job(ids["key"])["labels"] == {"of": "ann"}
        assert service.ended(ids["waiting"])["result"] == 3
        assert service.ended(ids["parent"])["result"] == 21, (
            "its children ran when the service was killed"
        )
        assert service.ended(ids["retrying"])["result"] == "healed"
        assert service.job(ids["scheduled"])["status"] == "PENDING"
        assert service.job(ids["paused"])["status"] == "PENDING"
        service.ask("POST", "/queues/other/resume")
        assert service.ended(ids["paused"])["result"] == "rested"
        marks = service.marks.read_text()
        assert marks.count("first") == 1 and marks.count("second") == 3, "kept steps are not repeated"
        if (folder / "uploads.json").exists():
            _go_on(service, json.loads((folder / "uploads.json").read_text()))
        new = service.post("work", number=9)
        assert new > max(ids.values()) and service.ended(new)["result"] == 9
    finally:
        service.stop()
    with contextlib.closing(sqlite3.connect(service.data / "bide.db")) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (VERSIONS[-1],)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _go_on(service: Serving, ids: dict[str, str]) -> None:
    """Complete uploads exist, and partial ones can be resumed."""
    tus = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream"}
    place = f"{service.url}/files/{ids['half']}"
    sending = urllib.request.Request(place, bytes(10), {**tus, "Upload-Offset": "10"}, method="PATCH")
    with urllib.request.urlopen(sending) as answer:
        assert answer.headers["Upload-Offset"] == "20"
    for what, size in (("whole", 10), ("half", 20)):
        with urllib.request.urlopen(f"{service.url}/files/{ids[what]}") as file:
            assert file.read() == bytes(size)
