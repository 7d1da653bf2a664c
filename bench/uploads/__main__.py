"""`python -m bench.uploads`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.service import servers
from bench.service.table import Line, report, show
from bench.uploads import many, speed

PARTS: dict[str, Callable[[Path, int], list[Line]]] = {
    "speed": speed.speed,
    "memory": speed.memory,
    "many": many.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.uploads", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help=",".join(PARTS))
    parser.add_argument("--rounds", default=3, type=int, help="rounds; each figure is their median")
    # Not /tmp, which may be in memory: there a commit would cost nothing. 25 GB are needed.
    parser.add_argument("--folder", default="/var/tmp", type=Path, help="the folder for data; on a disk")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all started processes are stopped
    lines: list[Line] = []
    try:
        with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bide-bench-") as folder:
            for name in arguments.only.split(","):
                here = Path(folder) / name
                here.mkdir()
                begin = time.monotonic()
                found = PARTS[name](here, arguments.rounds)
                print(f"{name} took {time.monotonic() - begin:.0f} s\n{show(found)}", flush=True)
                lines += found
    except servers.Unready as unready:
        print(f"bench: {unready}", file=sys.stderr)
        return 2
    return report(lines)


sys.exit(main())
