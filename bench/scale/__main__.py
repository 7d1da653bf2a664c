"""`python -m bench.scale`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.servers import ServerMissing

from bench.scale import drain, rows, status, trial
from bench.service import servers
from bench.service.table import Line, report, show

PARTS: dict[str, Callable[[Path, int], list[Line]]] = {
    "status": status.measure,
    "rows": rows.measure,
    "trial": trial.measure,
    "drain": drain.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help=",".join(PARTS))
    parser.add_argument("--rows", default=rows.ROWS, type=int, help="finished jobs, for the part rows")
    parser.add_argument("--rounds", default=3, type=int, help="rounds; each figure is their median")
    # Not /tmp, which may be in memory: there a commit would cost nothing.
    parser.add_argument("--folder", default="/var/tmp", type=Path, help="the folder for data; on a disk")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all started processes are stopped
    PARTS["rows"] = partial(rows.measure, rows=arguments.rows)
    lines: list[Line] = []
    try:
        servers.require("wrk")
        with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bide-scale-") as folder:
            Path(folder).chmod(0o755)  # PostgreSQL runs as another user
            for name in arguments.only.split(","):
                here = Path(folder) / name
                here.mkdir()
                begin = time.monotonic()
                found = PARTS[name](here, arguments.rounds)
                print(f"{name} took {time.monotonic() - begin:.0f} s\n{show(found)}", flush=True)
                lines += found
    except (servers.Unready, ServerMissing) as unready:
        print(f"bench: {unready}", file=sys.stderr)
        return 2
    return report(lines)


if __name__ == "__main__":
    sys.exit(main())
