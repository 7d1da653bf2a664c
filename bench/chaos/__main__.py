"""`make chaos`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from bench.chaos import (
    contest,
    crashes,
    database_clock,
    failover,
    full_disk,
    http,
    pauses,
    scale,
    shared_root,
    simulated,
)
from bench.service.table import Line, show

PARTS: dict[str, Callable[[Path], list[Line]]] = {
    "simulation": simulated.measure,
    "pauses": pauses.measure,
    "database-clock": database_clock.measure,
    "failover": failover.measure,
    "full-disk": full_disk.measure,
    "shared-root": shared_root.measure,
    "crashes": crashes.measure,
    "peers": contest.measure,
    "http": http.measure,
    "scale": scale.measure,
}


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all started processes are stopped
    folder = Path(tempfile.mkdtemp(dir=arguments.folder, prefix="bide-chaos-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user
    lines: list[Line] = []
    for name in arguments.only:
        (folder / name).mkdir()
        (folder / name).chmod(0o755)
        begin = time.monotonic()
        found = _measured(name, folder / name)
        print(f"{name} took {time.monotonic() - begin:.0f} s\n{show(found)}\n", flush=True)
        lines += found
    failed = [line for line in lines if not line.holds]
    print(f"{len(lines) - len(failed)} of {len(lines)} lines hold")
    if failed:
        print(f"their data is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _measured(name: str, folder: Path) -> list[Line]:
    """Run every part; report the exception of a part that fails."""
    try:
        return PARTS[name](folder)
    except Exception as error:
        traceback.print_exc()
        return [Line(f"{name}: broke off", 1, "≤", 0, "", f"{type(error).__name__}: {error}"[:200])]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    parser.add_argument("--only", default=list(PARTS), type=_parts, help=",".join(PARTS))
    # Not /tmp, which may be in memory: there a commit would cost nothing.
    parser.add_argument("--folder", default="/var/tmp", type=Path, help="the folder for data; on a disk")
    return parser.parse_args()


def _parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown)}")
    return names


sys.exit(main())
