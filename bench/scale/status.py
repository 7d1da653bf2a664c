"""`GET /jobs/{id}` on PostgreSQL: uncached, compared with a bare psycopg select behind Starlette; cached, compared with a
bare Starlette route.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.servers.postgres import postgres

from bench.scale import filling
from bench.service import servers
from bench.service.load import Samples, asking, wrk
from bench.service.table import Line

JOBS = 30_000  # six times the size of the cache: each job is evicted before it is requested again
SECONDS = 3


def measure(folder: Path, rounds: int) -> list[Line]:
    samples = Samples()
    with postgres(str(folder)) as server:
        filling.fill(server.url, JOBS, 1)
        ids = filling.some_ids(server.url, JOBS - 1)
        all_of_them = asking(folder / "all.lua", ids)
        with servers.bide(folder / "bide", options=("--store", server.url)) as site:
            body = folder / "body"
            body.write_bytes(site.ask("GET", f"/jobs/{ids[0]}").body)
            bare = servers.python_site(sys.executable, "bare", folder, str(body))
            select = servers.python_site(
                sys.executable, "bare", folder / "bide", server.url, package="bench.scale"
            )
            with bare as bare_site, select as select_site:
                for _ in range(rounds):
                    samples.add("select", wrk(select_site.url, SECONDS, script=all_of_them))
                    samples.add("uncached", wrk(site.url, SECONDS, script=all_of_them))
                    samples.add("bare", wrk(f"{bare_site.url}/jobs/{ids[0]}", SECONDS))
                    samples.add("cached", wrk(f"{site.url}/jobs/{ids[0]}", SECONDS))
    return [
        _line("GET /jobs/{id}, not cached : bare select", samples, "uncached", "select", 0.8),
        _line("GET /jobs/{id}, cached : bare Starlette", samples, "cached", "bare", 1.3),
    ]


def _line(what: str, samples: Samples, ours: str, theirs: str, bar: float) -> Line:
    detail = f"{samples[ours]:.0f} : {samples[theirs]:.0f} answers/s"
    return Line(what, samples.ratio(ours, theirs), "≥", bar, detail=detail)
