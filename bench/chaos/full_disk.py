"""A disk that is full for longer than a lease while handlers end: workers keep their results until they can be written."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from tests.servers import ServerMissing
from tests.servers.service import ServiceProcess

from bench.chaos import lasting, marks
from bench.chaos.fleet import TARGET
from bench.chaos.lasting import Became
from bench.service.table import Line

LEASE = 3.0
FULL = 3 * LEASE  # seconds after the last handler has ended
SECONDS = 2.0
ROUNDS = 3
PAGE = 4096


def measure(folder: Path) -> list[Line]:
    outcome = Became()
    for number in range(ROUNDS):
        outcome.add(trial(folder / str(number)))
    return lasting.lines("the disk was full", outcome)


def trial(folder: Path) -> Became:
    disk = folder / "disk"
    disk.mkdir(parents=True)
    place = folder / "marks"
    options = ("--lease", str(LEASE))
    victim = ServiceProcess(
        folder,
        TARGET,
        workers=lasting.TOGETHER,
        env={marks.PLACE: str(place)},
        options=options,
        prefix=_mounted(disk),
        data=disk / "data",
    )
    tail = marks.Tail(place)
    victim.start()
    try:
        (pid,) = victim.pids
        ballast = Path(f"/proc/{pid}/root") / disk.relative_to("/") / "ballast"
        ids = lasting.begin(victim.insist, tail, SECONDS)
        _fill(ballast)
        _await_ends(tail, ids)
        end = time.monotonic() + FULL
        while time.monotonic() < end:  # fill freed space again
            _fill(ballast)
            time.sleep(0.2)
        ballast.unlink()
        lasting.ended(victim.insist, ids)
        return lasting.became(victim.insist, marks.read(place), ids)
    finally:
        victim.stop()


def _await_ends(tail: marks.Tail, ids: list[str]) -> None:
    end = time.monotonic() + 30
    while not tail.finished.issuperset(ids):
        if time.monotonic() > end:
            raise RuntimeError("handlers did not end")
        tail.grow()
        time.sleep(0.02)


def _fill(ballast: Path) -> None:
    page = bytes(PAGE)
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(page)


def _mounted(disk: Path) -> list[str]:
    """A prefix that runs a command with a separate small disk at `disk`."""
    if shutil.which("unshare") is None:
        raise ServerMissing("unshare (util-linux) is not installed; it is needed for a separate disk")
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    script = f"mount -t tmpfs -o size=4m none '{disk}'; exec \"$@\""
    return [*unshare, "sh", "-ec", script, "sh"]
