"""Load by wrk: one thread, 32 connections. Raises if a response is not a success: the figure would mean nothing."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bench.service.servers import require

CONNECTIONS = 32


def wrk(
    url: str,
    seconds: int,  # wrk accepts whole seconds only
    *,
    headers: Mapping[str, str] | None = None,
    script: Path | None = None,
) -> float:
    """Responses per second."""
    require("wrk")
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s"]
    for name, value in (headers or {}).items():
        command += ["-H", f"{name}: {value}"]
    if script is not None:
        command += ["-s", str(script)]
    out = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)", out)
    found = re.search(r"Requests/sec:\s+([\d.]+)", out)
    if bad or not found:
        raise RuntimeError(f"wrk {url}: {out}")
    return float(found[1])


def posting(path: Path, body: str) -> Path:
    """A script that posts this body again and again."""
    path.write_text(
        f"wrk.method = 'POST'\nwrk.body = [[{body}]]\nwrk.headers['Content-Type'] = 'application/json'\n"
    )
    return path


def asking(path: Path, ids: Sequence[str]) -> Path:
    """A script that requests these jobs in turn."""
    listed = ",".join(f"'{job_id}'" for job_id in ids)
    path.write_text(
        f"local ids = {{{listed}}}\nlocal n = 0\n"
        "request = function()\n  n = n % #ids + 1\n"
        "  return wrk.format('GET', '/jobs/' .. ids[n])\nend\n"
    )
    return path


class Samples:
    """The figures of several rounds by name, and their medians."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        self._values.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> float:
        return median(self._values[name])

    def ratio(self, name: str, other: str) -> float:
        return self[name] / self[other]
