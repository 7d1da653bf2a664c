"""`python -m bench.poller [--only speed,spread,shared,reality]`: exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

from bench.poller import reality, shared, speed, spread
from bench.service.table import Line, report


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


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Measures the speed of the poller, and whether real figures match the simulation."
    )
    parser.add_argument("--only", help="parts, separated by commas: " + ", ".join(PARTS))
    wanted = parser.parse_args().only
    lines: list[Line] = []
    for name, part in PARTS.items():
        if wanted is None or name in wanted.split(","):
            lines += part()
    return report(lines)


if __name__ == "__main__":
    sys.exit(main())
