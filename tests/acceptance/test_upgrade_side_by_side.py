"""An upgrade without a pause: the last release and this version, beside each other on one database.

`tests/data/release.tar.xz` is the code of a release whose schema is older than this one's; `scripts/keep-release` makes it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from bide.server.store.migrations import scripts
from tests.acceptance.test_postgres import Replica
from tests.servers.postgres import Postgres
from tests.waiting import until

RELEASE = Path(__file__).parents[1] / "data" / "release.tar.xz"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import the release from."""
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(RELEASE) as archive:
        archive.extractall(folder, filter="data")
    return folder


class Old(Replica):
    """A service that runs the release."""

    def __init__(self, folder: Path, url: str, release: Path) -> None:
        super().__init__(folder, url)
        self._env["PYTHONPATH"] = os.pathsep.join([str(release), str(folder)])
        del self._env["PYTHONDONTWRITEBYTECODE"]  # each of its processes would compile the release again


class Traffic:
    """Jobs that are sent to whichever service is up, one after the other."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.doors: list[Replica] = []
        self.refused: list[Exception] = []
        self._ended = threading.Event()

    @contextmanager
    def flowing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._send)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _send(self) -> None:
        number = 0
        while not self._ended.wait(0.02):
            number += 1
            door = self.doors[number % len(self.doors)]
            try:
                self.jobs.append(
                    door.post("work" if number % 5 else "family", number=number, seconds=0.01)
                )
            except Exception as error:
                self.refused.append(error)

    def more(self, count: int = 10) -> None:
        """Until so many more were taken."""
        goal = len(self.jobs) + count
        until(lambda: len(self.jobs) >= goal)


def migrate(url: str, *, code: Path | None = None) -> str:
    env = dict(os.environ)
    if code is not None:
        env["PYTHONPATH"] = str(code)
        del env["PYTHONDONTWRITEBYTECODE"]
    command = [sys.executable, "-m", "bide", "migrate", "--store", url]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_the_release_is_older_and_new_schemas_only_add_to_it(
    postgres: Postgres, release: Path, tmp_path: Path
) -> None:
    url = f"{postgres.url}?schema=side"
    assert migrate(url, code=release) != ""
    old_one, old_two = (Old(tmp_path / f"old-{n}", url, release) for n in (1, 2))
    new = Replica(tmp_path / "new", url)
    traffic = Traffic()
    old_one.start()
    old_two.start()
    traffic.doors = [old_one, old_two]
    try:
        with traffic.flowing():
            traffic.more()
            newest = scripts("postgres")[-1][0]
            assert f"{newest}" in migrate(url), "this version has more to its schema than the release"
            traffic.more()  # the old ones continue
            new.start()
            traffic.doors = [old_one, old_two, new]
            traffic.more()
            traffic.doors = [new, old_two]
            old_one.stop()
            old_one.start()  # it may be started again on the newer schema
            traffic.doors = [new, old_two, old_one]
            traffic.more()
            traffic.doors = [new]
            old_one.stop()
            old_two.stop()
            traffic.more()
        ended = [new.ended(job) for job in traffic.jobs]
    finally:
        for service in (old_one, old_two, new):
            service.kill()
    assert traffic.refused == []
    assert [job["status"] for job in ended] == ["DONE"] * len(ended)
    _one_end_each(url, traffic.jobs)


def _one_end_each(url: str, jobs: list[str]) -> None:
    """One terminal event a job, and steps that ran once."""
    with psycopg.connect(url.partition("?")[0]) as connection:
        rows = connection.execute(
            "SELECT job_id, count(*) FROM side.events WHERE type = 'status' AND job::json->>'status' = 'DONE' "
            "GROUP BY job_id"
        ).fetchall()
    ends: dict[str, int] = dict(rows)
    assert {job: ends.get(job) for job in jobs if ends.get(job) != 1} == {}
