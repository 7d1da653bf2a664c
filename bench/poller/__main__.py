"""`python -m bench.poller`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

from bench.poller import reality, shared, speed, spread
from bench.runner import Benchmark
from bench.service.table import Line


@contextlib.contextmanager
def server() -> Iterator[str]:
    command = [sys.executable, "-m", "bench.poller.server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()


def measure_speed() -> list[Line]:
    with server() as url:

        async def run() -> list[Line]:
            return [*await speed.measure(url), await speed.weight(url)]

        return asyncio.run(run())


def measure_spread() -> list[Line]:
    with server() as url:
        return spread.measure(url)


PARTS = {
    "speed": measure_speed,
    "spread": measure_spread,
    "shared": shared.measure,
    "reality": reality.measure,
}

if __name__ == "__main__":
    sys.exit(Benchmark("bench.poller", __doc__).run(PARTS))
