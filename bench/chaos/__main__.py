"""`make chaos`: ends with 0 only when nothing was wrong."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.chaos.trial import trial


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = trial(Path(folder), jobs=2000, child_kills=60, service_kills=12, seed=1)
    ended = ", ".join(f"{n} {status}" for status, n in sorted(report.ended.items()))
    print(f"jobs acknowledged  {report.acknowledged} in {report.seconds:.0f} s")
    print(f"ended              {ended}")
    print(f"kills              {report.child_kills} children, {report.service_kills} services")
    print(f"steps run again    {report.repeated_steps} (killed before they were kept)")
    print(f"faults             {len(report.faults)}")
    for fault in report.faults[:20]:
        print("  " + fault)
    return 1 if report.faults else 0


sys.exit(main())
