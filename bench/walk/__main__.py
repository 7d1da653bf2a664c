"""`python -m bench.walk`: the calls on the path of one job that a reader of the code follows, and their modules.

Two walks are of the client:

- `bide wait` of one job at an imitation of sync.so, with a limit and a ledger;
- `submit` and `result(progress=True)` of a second job at a bide service.

Two are of the service:

- `POST /jobs` and a long poll until the end of the job, on SQLite with the embedded engine;
- a tus upload into a job and a long poll until its end, on S3 (Swift), PostgreSQL and Celery (Redis).

A call is a pair of functions, counted once: of `bide.client`, `bide.cli` and `bide.core`, or of `bide.server`,
`bide.service` and `bide.core`. The rule:

1. A call to a leaf function, which calls no other function, is not counted: its name says enough. Most constructors of
   data, conversions and clocks are leaf functions. The count with them is printed, too.
2. A comprehension, a lambda, a property and a special method such as `__repr__` belong to the function that uses them.
3. All work of `bide.client.apis.loader`, which prepares the description of an API, is one function, `load`.
4. A resumed coroutine is not a call, and neither is code that runs at import. A function that asyncio, click or a thread
   calls has the caller "".
5. A walk of the service has 20 jobs, one after the other, and counts the calls that all of them make. A call that only some
   jobs make depends on time: whether a claim joins the commit of the insert, whether learned durations are computed again.
   Work that a timer starts is not counted.
6. Only the process of the service is traced, not handler processes and not `bide worker`.

`--list` prints the calls, `--only NAME` counts one walk.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from bench.walk import client, service
from bench.walk.calls import Pair, followed

WALKS = {
    "wait": ("bide wait ID --api sync.so --limit 60/1m --ledger FILE", client.wait),
    "submit": ("client.submit() and job.result(progress=True)", client.submit),
    "job": ("POST /jobs until the end of the job, SQLite", service.job),
    "upload": ("tus upload until the end of its job, S3, PostgreSQL and Celery", service.upload),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.walk")
    parser.add_argument("--list", action="store_true", help="print the calls")
    parser.add_argument("--only", choices=WALKS, help="count one walk")
    arguments = parser.parse_args()
    for title, walk in [WALKS[arguments.only]] if arguments.only else WALKS.values():
        with tempfile.TemporaryDirectory(prefix="bide-walk-") as folder:
            pairs = walk(Path(folder))
        calls = followed(pairs)
        print(f"{title}: {_count(calls)}, with leaf functions {_count(pairs)}", flush=True)
        if arguments.list:
            print("".join(f"  {caller or '-'} → {callee}\n" for caller, callee in calls))
    return 0


def _count(calls: Collection[Pair]) -> str:
    modules = {callee.partition(":")[0] for _, callee in calls}
    return f"{len(calls)} calls in {len(modules)} modules"


sys.exit(main())
