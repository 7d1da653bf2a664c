"""The clock of the database is set forward and back by one hour while jobs run. No worker loses a job, and due jobs start
without delay.
"""

from __future__ import annotations

import random
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

from tests.servers import ServerMissing
from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer

from bench.chaos import lasting, marks
from bench.chaos.fleet import Fleet
from bench.chaos.lasting import Became
from bench.service.table import Line

LEASE = 9.0  # renewed every three seconds: a step is likely to be seen before the next renewal
SECONDS = 8.0
STEPS = (3600, 0, -3600, 3600)  # from the true time


def measure(folder: Path) -> list[Line]:
    outcome, slowest = trial(folder)
    return [
        *lasting.lines("the database's clock was set", outcome),
        Line("the database's clock was set: a new job ended within", slowest, "≤", 20, "s"),
    ]


def trial(folder: Path) -> tuple[Became, float]:
    step = folder / "database-clock"
    _set(step, 0)
    env = {
        "LD_PRELOAD": _library(),
        "FAKETIME_TIMESTAMP_FILE": str(step),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    outcome, slowest = Became(), 0.0
    with ExitStack() as stack:
        server = Postgres(str(folder), env=env)
        stack.callback(server.end)
        broker = RedisServer(str(folder))
        stack.callback(broker.end)
        fleet = Fleet(folder, server, broker, LEASE, random.Random(1))
        stack.callback(fleet.stop)
        fleet.start()
        for seconds in STEPS:
            ids = lasting.begin(fleet.insist, fleet.tail, SECONDS)
            _set(step, seconds)
            lasting.ended(fleet.insist, ids)
            outcome.add(lasting.became(fleet.insist, marks.read(fleet.place), ids))
            begin = time.monotonic()
            lasting.ended(fleet.insist, [lasting.submit(fleet.insist, "fenced", number=1)])
            slowest = max(slowest, time.monotonic() - begin)
    return outcome, slowest


def _set(file: Path, seconds: int) -> None:
    scratch = file.with_suffix(".new")
    scratch.write_text(f"{seconds:+d}\n")
    scratch.chmod(0o644)
    scratch.replace(file)


def _library() -> str:
    places = [
        *Path("/usr/lib").glob("*/faketime/libfaketime.so.1"),
        *Path("/usr/lib/faketime").glob("*.so.1"),
    ]
    if shutil.which("faketime") is None or not places:
        raise ServerMissing("there is no libfaketime: apt-get install faketime")
    return str(places[0])
