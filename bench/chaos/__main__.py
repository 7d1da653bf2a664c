"""`make chaos`: ends with 0 only when nothing was wrong."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.chaos import http
from bench.chaos.trial import trial


def crashes() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = trial(Path(folder), jobs=5000, child_kills=120, service_kills=20, seed=1)
    ended = ", ".join(f"{n} {status}" for status, n in sorted(report.ended.items()))
    print(f"jobs acknowledged  {report.acknowledged} in {report.seconds:.0f} s")
    print(f"ended              {ended}")
    print(f"kills              {report.child_kills} children, {report.service_kills} services")
    print(f"steps run again    {report.repeated_steps} (killed before they were kept)")
    print(f"faults             {len(report.faults)}")
    for fault in report.faults[:20]:
        print("  " + fault)
    return 1 if report.faults else 0


def main() -> int:
    print("kill -9 of children and services")
    wrong = crashes()
    print("\nslow, half-open, leaving and talkative clients")
    return wrong | http.main()


sys.exit(main())
