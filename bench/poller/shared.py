"""How much of a limit two machines use that share it through Redis or PostgreSQL, and the cost per request.

The machines are two processes whose clocks are an hour apart; each always has a request to send. No window may
contain more than the limit.

    python -m bench.poller --only shared
"""

from __future__ import annotations

import bisect
import subprocess
import sys
import time

from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer

from bench.service.table import Line
from bide.core.pacing.budget import read_limit

LIMITS = {"50/1s": 15.0, "60/1m": 185.0}  # and for how many seconds
WARM_UP = 1.0  # after the first grant of the last machine


def measure() -> list[Line]:
    lines = []
    for name, make in (("Redis", RedisServer), ("PostgreSQL", Postgres)):
        server = make()
        try:
            for limit, seconds in LIMITS.items():
                lines += _spend(name, server.url, limit, seconds)
        finally:
            server.end()
    return lines


def _spend(place: str, url: str, limit: str, seconds: float) -> list[Line]:
    command = [sys.executable, "-m", "bench.poller.spender", url, limit]
    machines = [
        subprocess.Popen(
            [*command, str(-3600.0 * number), limit.replace("/", "x")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    time.sleep(seconds)
    said = [machine.communicate() for machine in machines]
    each = [[float(line) for line in out.split()] for out, _ in said]
    cpu = sum(float(err) for _, err in said)
    given, everything = read_limit(limit), sorted(at for some in each for at in some)
    most = max(bisect.bisect_left(everything, at + given.per) - i for i, at in enumerate(everything))
    begin = max(some[0] for some in each) + WARM_UP
    inside = [at for at in everything if at >= begin]
    rate = (len(inside) - 1) / (inside[-1] - inside[0])
    detail = f"{rate:.3g} per second, at most {most:g} in a window"
    lines = [
        Line(
            f"two machines on {limit} through {place}",
            rate * given.per / given.requests,
            "≥",
            0.9,
            "×",
            detail,
        ),
        Line(f"most in a window of {limit} through {place}", most, "≤", given.requests, ""),
    ]
    if given.per == 1.0:
        spent = 1e6 * cpu / len(everything)
        lines.append(Line(f"CPU per request through {place}", spent, "≤", 1500, "µs"))
    return lines
