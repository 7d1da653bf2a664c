"""`python -m bench.service`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.service import drain, intake, latency, servers, size, small, status
from bench.service.table import Line, report, show

PARTS: dict[str, Callable[[Path, int], list[Line]]] = {
    "status": status.measure,
    "intake": intake.measure,
    "drain": drain.measure,
    "latency": latency.measure,
    "size": size.measure,
    "progress": small.progress,
    "import": small.importing,
}
NEED_PEERS = {"intake", "drain", "latency"}


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all started processes are stopped
    try:
        servers.require("wrk")
        if NEED_PEERS & set(arguments.only):
            servers.peer_python()
            servers.require("redis-server")
        lines = _measure(arguments.only, arguments.rounds, arguments.folder)
    except servers.Unready as unready:
        print(f"bench: {unready}", file=sys.stderr)
        return 2
    return report(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.service", description=__doc__)
    parser.add_argument("--only", default=list(PARTS), type=_parts, help=",".join(PARTS))
    parser.add_argument("--rounds", default=3, type=int, help="rounds; each figure is their median")
    # Not /tmp, which may be in memory: there a commit would cost nothing.
    parser.add_argument("--folder", default="/var/tmp", type=Path, help="the folder for data; on a disk")
    return parser.parse_args()


def _parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown)}")
    return names


def _measure(names: list[str], rounds: int, home: Path) -> list[Line]:
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(dir=home, prefix="bide-bench-") as folder:
        print(f"a commit's fsync takes {_fsync(Path(folder)):.2f} ms here; {os.cpu_count()} cores")
        for name in names:
            here = Path(folder) / name
            here.mkdir()
            begin = time.monotonic()
            found = PARTS[name](here, rounds)
            print(f"{name} took {time.monotonic() - begin:.0f} s\n{show(found)}", flush=True)
            lines += found
    return lines


def _fsync(folder: Path) -> float:
    """Milliseconds for a page that is written and forced to disk."""
    with (folder / "fsync").open("wb") as file:
        begin = time.perf_counter()
        for _ in range(50):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        return (time.perf_counter() - begin) / 50 * 1000


sys.exit(main())
