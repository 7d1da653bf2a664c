"""An asynchronous standby takes over, and commits that it had not received are lost.

What may be lost: jobs that were acknowledged, and changes of jobs that were written, after the last commit that the standby
has received. Jobs whose last changes are lost continue from the state before them, so their handlers may run again.

What must hold: every job that the standby has ends; no attempt writes the result of another one with the same fence; and
no service returns data that the standby does not have.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
import urllib.error
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from tests.servers import ServerMissing
from tests.servers.ports import HOST
from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer
from tests.servers.relay import Relay

from bench.chaos import lasting
from bench.chaos.fleet import SETTINGS, Fleet
from bench.chaos.follower import SEARCH
from bench.chaos.judge import TERMINAL
from bench.service.table import Line

LEASE = 3.0
BEFORE, LAG = 3.0, 1.5  # seconds of work that the standby has, and that it does not have
ROUNDS = 2


class Standby(Postgres):
    """Of a primary, over a wire."""

    def __init__(self, home: str, wire: Relay) -> None:
        self._wire = wire
        super().__init__(home, settings=SETTINGS)

    def _initialise(self) -> None:
        command = [str(self._programs / "pg_basebackup"), "-h", HOST, "-p", str(self._wire.port)]
        command += ["-U", "bide", "-D", str(self._data), "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, check=False, **self._as)
        if done.returncode != 0:
            raise ServerMissing(f"pg_basebackup failed: {done.stderr.decode()}")

    def promote(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true, 60)")


class Stream(threading.Thread):
    """Submits jobs of some tenths of a second, one after another."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(daemon=True)
        self._fleet = fleet
        self.over = threading.Event()
        self.acknowledged: list[tuple[float, str]] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self.over.is_set():
                seconds = 1.5 * LEASE if len(self.acknowledged) % 10 == 5 else 0.1
                job_id = lasting.submit(self._fleet.insist, "lasting", number=1, seconds=seconds)
                self.acknowledged.append((time.monotonic(), job_id))
                time.sleep(0.1)
        except Exception as error:
            self.error = error


def measure(folder: Path) -> list[Line]:
    figures: dict[str, int] = {}
    for number in range(ROUNDS):
        here = folder / str(number)
        here.mkdir(mode=0o755)
        for name, count in trial(here, seed=number).items():
            figures[name] = figures.get(name, 0) + count
    lost = f"{figures['lost']} of {figures['window']} that were acknowledged within {LAG:g} s before it are lost"
    return [
        Line("promotions: acknowledged jobs", figures["acknowledged"], "≥", 50, "", lost),
        Line("promotions: lost although the standby had them", figures["lost before"], "≤", 0, ""),
        Line("promotions: jobs that never ended", figures["hung"], "≤", 0, ""),
        Line("promotions: results of another attempt", figures["stale"], "≤", 0, ""),
        Line("promotions: answers of what is gone", figures["remembered"], "≤", 0, ""),
    ]


def trial(folder: Path, seed: int) -> dict[str, int]:
    with ExitStack() as stack:
        primary = Postgres(str(folder), settings=SETTINGS)
        stack.callback(primary.end)
        wire = Relay(primary.port)
        standby = Standby(str(folder), wire)
        stack.callback(standby.end)
        broker = RedisServer(str(folder))
        stack.callback(broker.end)
        fleet = Fleet(folder, primary, broker, LEASE, random.Random(seed))
        stack.callback(fleet.stop)
        fleet.start()
        stream = Stream(fleet)
        stream.start()
        time.sleep(BEFORE)
        cut = time.monotonic()
        wire.end()  # the standby does not receive later commits
        time.sleep(LAG)
        primary.kill()
        standby.promote()
        fleet.to_database.lead_to(standby.port)
        fleet.to_database.reset()
        promoted = time.monotonic()
        time.sleep(BEFORE)
        stream.over.set()
        stream.join(150)
        if stream.error is not None:
            raise stream.error
        return _figures(fleet, standby.url, stream.acknowledged, cut, promoted)


def _figures(
    fleet: Fleet, url: str, acknowledged: list[tuple[float, str]], cut: float, promoted: float
) -> dict[str, int]:
    with psycopg.connect(url, autocommit=True, options=SEARCH) as connection:
        hung = _open(connection)
        rows: dict[str, Any] = dict(
            connection.execute("SELECT id, result FROM jobs WHERE status = 'DONE'").fetchall()
        )
        known = {job_id for (job_id,) in connection.execute("SELECT id FROM jobs")}
        events = connection.execute("SELECT job_id, job FROM events WHERE type = 'status' ORDER BY id")
        holder: dict[str, str] = {}  # the last worker in the record
        for job_id, text in events.fetchall():
            holder[job_id] = json.loads(text).get("worker") or holder.get(job_id, "")
    lost = {job_id for _, job_id in acknowledged} - known
    window = [job_id for at, job_id in acknowledged if cut - 0.5 <= at <= promoted]
    stale = 0
    for job_id, result in rows.items():
        worker = json.loads(result)["worker"] if result is not None else None
        stale += worker is not None and not holder[job_id].endswith(f":{worker}")
    return {
        "acknowledged": len(acknowledged),
        "window": len(window),
        "lost": len(lost),
        "lost before": len(lost - set(window)),
        "hung": hung,
        "stale": stale,
        "remembered": sum(_remembers(replica, job_id) for job_id in lost for replica in fleet.replicas),
    }


def _open(connection: psycopg.Connection[Any], longest: float = 60.0) -> int:
    """Return the jobs that have not ended after the timeout."""
    names = ", ".join(repr(status) for status in TERMINAL)
    end = time.monotonic() + longest
    while True:
        found = connection.execute(f"SELECT count(*) FROM jobs WHERE status NOT IN ({names})".encode())
        count = int((found.fetchone() or (0,))[0])
        if count == 0 or time.monotonic() > end:
            return count
        time.sleep(0.2)


def _remembers(replica: Any, job_id: str) -> bool:
    try:
        replica.ask("GET", f"/jobs/{job_id}")
    except urllib.error.HTTPError as error:
        return error.code not in (404, 410)
    return True
