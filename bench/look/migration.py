"""The migration of many stored jobs from the last release without search: how long a submission waits meanwhile.

On PostgreSQL the old service keeps running beside the new one, and both accept submissions. A SQLite file has one service,
so the old one is stopped and the new one started on the same port, once with and once without something to migrate.
"""

from __future__ import annotations

import http.client
import json
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path

import psycopg
from tests.servers.ports import free_port
from tests.servers.postgres import postgres

from bench.before.trees import Tree, trees
from bench.look import filling
from bench.look.lists import ROWS, SETTINGS
from bench.look.writes import BEFORE
from bench.service import servers
from bench.service.servers import Site
from bench.service.table import Line

BAR = 1.0  # seconds
EVERY = 0.02  # seconds between two submissions of a sender
TOGETHER = 5.0  # seconds in which both releases run after the last step of the migration
BODY = json.dumps({"kind": "noop", "input": {"n": 1}, "labels": {"team": "ops"}}).encode()


def measure(folder: Path, rows: int = ROWS) -> list[Line]:
    old, new = trees(BEFORE, folder / "trees")
    return [*_postgres(folder / "postgres", rows, old, new), *_sqlite(folder / "sqlite", rows, old, new)]


class Submissions:
    """Submits one job after the other to the ports, in turn, and keeps how long each one took."""

    def __init__(self, *ports: int) -> None:
        self.ports = list(ports)
        self.taken: list[tuple[float, float]] = []  # when it ended, and its seconds
        self.refused: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Submissions:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def longest(self) -> float:
        return max(seconds for _, seconds in self.taken)

    def gap(self) -> float:
        """The longest time between two accepted submissions."""
        ends = [end for end, _ in self.taken]
        return max(later - earlier for earlier, later in pairwise(ends))

    def wait(self, met: Callable[[], object], timeout: float = 1800) -> None:
        end = time.monotonic() + timeout
        while not met():
            if time.monotonic() > end:
                raise TimeoutError("the migration does not end")
            time.sleep(0.1)

    def more(self, count: int) -> None:
        """Until so many more were accepted."""
        goal = len(self.taken) + count
        self.wait(lambda: len(self.taken) >= goal)

    def _send(self) -> None:
        number = 0
        while not self._ended.wait(EVERY):
            number += 1
            port = self.ports[number % len(self.ports)]
            begin = time.monotonic()
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("POST", "/jobs", BODY, {"Content-Type": "application/json"})
                status = connection.getresponse().status
                connection.close()
            except OSError as error:
                self.refused.append(str(error))
                continue
            if status == 202:
                end = time.monotonic()
                self.taken.append((end, end - begin))
            else:
                self.refused.append(str(status))


def _postgres(folder: Path, rows: int, old: Tree, new: Tree) -> Iterator[Line]:
    folder.mkdir()
    folder.chmod(0o755)
    with postgres(str(folder), settings=SETTINGS) as server, ExitStack() as running:

        def start(name: str, tree: Tree) -> Site:
            options = ("--store", server.url)
            return running.enter_context(servers.bide(folder / name, options=options, env=tree.env))

        first = start("old", old)
        filling.fill_old_postgres(server.url, rows)
        second = start("old-2", old)
        with Submissions(first.port, second.port) as submissions:
            time.sleep(TOGETHER)
            quiet = submissions.longest()
            begin = time.monotonic()
            command = [sys.executable, "-m", "bide", "migrate", "--store", server.url]
            with servers.running(command, folder / "migrate.log", new.env) as process:
                code = process.wait()
            if code:
                raise RuntimeError((folder / "migrate.log").read_text()[-2000:])
            migrated = time.monotonic() - begin
            third = start("new", new)
            submissions.ports = [first.port, second.port, third.port]
            begin = time.monotonic()
            with psycopg.connect(server.url, options="-c search_path=bide", autocommit=True) as asked:
                submissions.wait(lambda: not asked.execute("SELECT 1 FROM search_backfill").fetchall())
            filled = time.monotonic() - begin
            time.sleep(TOGETHER)
        found = third.ask("GET", "/jobs?label=customer:c77&limit=100").json()["jobs"]
        if submissions.refused or not found:
            raise RuntimeError(f"refused: {submissions.refused[:3]}; found {len(found)} old jobs")
        detail = (
            f"{quiet:.2f} before; indexes {migrated:.0f} s, terms {filled:.0f} s, "
            f"{len(submissions.taken)} submissions"
        )
        what = "postgres: longest submission during the migration, old and new side by side"
        yield Line(what, submissions.longest(), "≤", BAR, "s", detail)


def _sqlite(folder: Path, rows: int, old: Tree, new: Tree) -> Iterator[Line]:
    port = free_port()
    with _on_port(folder, old, port):
        pass  # makes the schema
    file = folder / "data" / "bide.db"
    filling.fill_old_sqlite(file, rows)
    begin = time.monotonic()
    with Submissions(port) as submissions:
        with _on_port(folder, old, port):
            submissions.more(100)
        with _on_port(folder, new, port):
            submissions.more(1)
            back = time.monotonic()
            submissions.wait(lambda: _has_terms(file))
            filled = time.monotonic() - back
    migrating = submissions.gap()
    longest = max(seconds for end, seconds in submissions.taken if end > back)
    with Submissions(port) as again:
        for _ in range(2):
            with _on_port(folder, new, port):
                again.more(100)
    detail = f"restart with migration {migrating:.2f} s, without {again.gap():.2f} s"
    yield Line(
        "sqlite: what the migration adds to a restart", migrating - again.gap(), "≤", BAR, "s", detail
    )
    detail = (
        f"terms {filled:.0f} s, {len(submissions.taken)} submissions in {time.monotonic() - begin:.0f} s"
    )
    yield Line("sqlite: longest submission while terms are added", longest, "≤", BAR, "s", detail)


@contextmanager
def _on_port(folder: Path, tree: Tree, port: int) -> Iterator[Site]:
    folder.mkdir(exist_ok=True)
    log = folder / "serve.log"
    command = [sys.executable, "-m", "bide", "serve", "bench.service.app:app", "--port", str(port)]
    command += [
        "--data",
        str(folder / "data"),
        "--workers",
        "1",
        "--drain",
        "1",
        "--log-level",
        "WARNING",
    ]
    with servers.running(command, log, tree.env) as process:
        servers.await_port(port, process, log)
        yield Site(port, process.pid, folder / "data")


def _has_terms(path: Path) -> bool:
    """Whether all old jobs have their terms."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as file:
        return not file.execute("SELECT 1 FROM search_backfill").fetchall()
