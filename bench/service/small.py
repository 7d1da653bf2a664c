"""Operations that must be cheap: `ctx.progress` and `import bide`."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from bench.service import servers
from bench.service.load import Samples
from bench.service.table import Line

CALLS = 1_000_000
STARTS = 10
SERVER = ("starlette", "uvicorn", "pydantic", "prometheus_client", "uvloop", "httptools", "bide.server")


def progress(folder: Path, rounds: int) -> list[Line]:
    with servers.bide(folder / "bide") as site:
        samples = Samples()
        events = 0
        for _ in range(rounds):
            job = site.run("report", calls=CALLS)
            if job["status"] != "DONE":
                raise RuntimeError(f"the job that reports is {job['status']}: {job.get('error')}")
            samples.add("call", job["result"] * 1e6)
            with closing(sqlite3.connect(folder / "bide" / "data" / "bide.db")) as database:
                count = "SELECT count(*) FROM events WHERE job_id = ?"
                events = max(events, database.execute(count, (job["jobId"],)).fetchone()[0])
    return [
        Line("ctx.progress, a million calls", samples["call"], "≤", 2, "µs"),
        Line("events that a million calls write", events, "≤", 10, ""),
    ]


def importing(folder: Path, rounds: int) -> list[Line]:
    samples = Samples()
    for _ in range(STARTS):
        samples.add("bare", _start("pass"))
        samples.add("bide", _start("import bide"))
    code = "import bide, json, sys; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    loaded = [name for name in json.loads(out) if name in SERVER]
    return [
        Line("import bide", samples["bide"] - samples["bare"], "≤", 150, "ms"),
        Line("server packages that it loads", len(loaded), "≤", 0, "", ", ".join(loaded)),
    ]


def _start(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - begin) * 1000
