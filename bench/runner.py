"""Runs the parts of a benchmark: one folder per part, each figure with its limit, and the exit code.

The exit code is 0 if every figure is within its limit, 1 if not, and 2 if a program that a part needs is missing. If a part
breaks off, the other parts still run. A peer, or a piece of a part, whose program is missing has a line NOT RUN; with
`--all`, or if the variable CI is set, that line fails.
"""

from __future__ import annotations

import argparse
import inspect
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.servers import ServerMissing

from bench.service.servers import Unready
from bench.service.table import Line, report, show

# Its parameters are `folder` and options of the command line, by name.
Part = Callable[..., list[Line]]


class Benchmark:
    """The command line `python -m NAME`. `rounds` is the default of `--rounds`; None: the option does not exist."""

    def __init__(self, name: str, about: str | None, *, rounds: int | None = None) -> None:
        self.parser = argparse.ArgumentParser(prog=f"python -m {name}", description=about)
        if rounds is not None:
            self.parser.add_argument(
                "--rounds", default=rounds, type=_count, help="rounds; each figure is their median"
            )
        # Not /tmp, which may be in memory: there a commit would cost nothing.
        self.parser.add_argument(
            "--folder", default="/var/tmp", type=Path, help="the folder for data; on a disk"
        )

    def run(self, parts: Mapping[str, Part], *, keep: bool = False) -> int:
        """`keep`: if a line fails, the data stays in the folder."""
        self.parser.add_argument(
            "--only", default=list(parts), type=lambda text: _names(text, parts), help=",".join(parts)
        )
        self.parser.add_argument(
            "--all",
            action="store_true",
            default=bool(os.environ.get("CI")),
            help="fail if something cannot be run here; the default if CI is set",
        )
        arguments = self.parser.parse_args()
        # So that all started processes are stopped.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        folder = Path(tempfile.mkdtemp(dir=arguments.folder, prefix="bide-bench-"))
        kept = False
        try:
            folder.chmod(0o755)  # PostgreSQL runs as another user
            code = _run(parts, arguments, folder)
            kept = keep and code != 0
        finally:
            if not kept:
                shutil.rmtree(folder, ignore_errors=True)
        if kept:
            print(f"the data is in {folder}")
        return code


def _run(parts: Mapping[str, Part], arguments: argparse.Namespace, folder: Path) -> int:
    print(f"a commit's fsync takes {_fsync(folder):.2f} ms here; {os.cpu_count()} cores", flush=True)
    lines: list[Line] = []
    missing = False
    for name in arguments.only:
        here = folder / name
        here.mkdir()
        here.chmod(0o755)
        begin = time.monotonic()
        try:
            found = _call(parts[name], {**vars(arguments), "folder": here})
        except (Unready, ServerMissing) as error:
            print(f"bench: {name}: {error}", file=sys.stderr)
            missing = True
            continue
        except Exception as error:
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"[:200]
            found = [Line(f"{name}: broke off", 1, "≤", 0, "", reason)]
        print(f"{name} took {time.monotonic() - begin:.0f} s", flush=True)
        if len(arguments.only) > 1:  # otherwise the report has the same lines
            print(show(found, required=arguments.all), flush=True)
        lines += found
    code = report(lines, required=arguments.all)
    return 2 if missing else code


def _call(part: Part, given: Mapping[str, object]) -> list[Line]:
    return part(**{name: given[name] for name in inspect.signature(part).parameters})


def _names(text: str, parts: Mapping[str, Part]) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in parts]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown)}")
    return names


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return count


def _fsync(folder: Path) -> float:
    """Milliseconds for a page that is written and forced to disk."""
    with (folder / "fsync").open("wb") as file:
        begin = time.perf_counter()
        for _ in range(50):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        return (time.perf_counter() - begin) / 50 * 1000
