"""The CPU time that keys, limits and the audit log add to a status and to a submission.

A round starts two services, with and without them, and alternates between them in short slices, so that both see the same
machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.before.load import send
from bench.service import servers
from bench.service.table import Line
from bench.usage import cpu_of_all

BAR = 1.25
SUBMISSIONS, STATUSES, SLICES, WARM_UP = 1000, 2000, 10, 500
NOOP = b'{"kind": "noop", "input": {"n": 1}}'
# No submission reaches these limits, so that each is counted and accepted.
LIMITS = """
[limits]
submit = "1000000/1s"
waiting = 100000000
running = 1000
"""
Slice = Callable[[], float]  # returns CPU seconds


def cost(folder: Path, rounds: int) -> list[Line]:
    found: dict[str, list[tuple[float, float]]] = {"status": [], "submission": []}
    for number in range(rounds):
        here = folder / str(number)
        with _open(here / "open") as of_open, _protected(here / "keys") as of_keys:
            for what, operations in (("status", STATUSES), ("submission", SUBMISSIONS)):
                used = [0.0, 0.0]
                for part in range(SLICES):
                    for which in (0, 1) if (number + part) % 2 == 0 else (1, 0):
                        used[which] += (of_open, of_keys)[which][what]()
                done = SLICES * operations
                found[what].append((used[0] / done, used[1] / done))
    return [_line(what, pairs) for what, pairs in found.items()]


def _line(what: str, pairs: list[tuple[float, float]]) -> Line:
    ratios = sorted(with_them / without for without, with_them in pairs)
    without, with_them = (1e6 * median(values) for values in zip(*pairs, strict=True))
    detail = f"{with_them:.1f} : {without:.1f} µs; rounds {ratios[0]:.3f} to {ratios[-1]:.3f}"
    name = f"CPU time per {what} with keys, limits and audit on : without"
    return Line(name, median(ratios), "≤", BAR, detail=detail)


@contextmanager
def _open(folder: Path) -> Iterator[dict[str, Slice]]:
    with servers.bide(folder) as site:
        yield _slices(site)


@contextmanager
def _protected(folder: Path) -> Iterator[dict[str, Slice]]:
    folder.mkdir(parents=True)
    settings = folder / "bide.toml"
    settings.write_text(LIMITS)
    command = [sys.executable, "-m", "bide", "keys", "create", "--data", str(folder / "data")]
    command += ["--scope", "read,submit,admin", "--tenant", "acme"]
    made = subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ))
    env = {"BIDE_CONFIG": str(settings)}
    with servers.bide(folder, options=["--auth", "keys"], env=env) as site:
        yield _slices(site, made.stdout.strip())


def _slices(site: servers.Site, key: str | None = None) -> dict[str, Slice]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    path = site.ask("POST", "/jobs", {"kind": "noop", "input": {"n": 1}}, headers).header("location")
    while site.ask("GET", path, headers={**headers, "Prefer": "wait=30"}).json()["status"] != "DONE":
        pass
    site.ask("POST", "/queues/default/pause", headers=headers)

    def status(count: int = STATUSES) -> float:
        before = cpu_of_all(site.pid)
        send(site.port, "GET", path, count, key=key)
        return cpu_of_all(site.pid) - before

    def submission(count: int = SUBMISSIONS) -> float:
        before = cpu_of_all(site.pid)
        send(site.port, "POST", "/jobs", count, NOOP, key=key)
        return cpu_of_all(site.pid) - before

    status(WARM_UP)
    submission(WARM_UP)
    return {"status": status, "submission": submission}
