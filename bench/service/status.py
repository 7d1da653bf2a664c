"""`GET /jobs/{id}` against a bare Starlette route that returns as many constant bytes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.service import servers
from bench.service.load import Samples, wrk
from bench.service.table import Line

SECONDS = 2


def measure(folder: Path, rounds: int) -> list[Line]:
    with servers.bide(folder / "bide") as site:
        done = site.run("noop", n=1)["jobId"]
        held = _processing(site)
        tag = site.ask("GET", f"/jobs/{done}").header("etag")
        body = folder / "body"
        body.write_bytes(site.ask("GET", f"/jobs/{done}").body)
        longer = folder / "longer"
        longer.write_bytes(site.ask("GET", f"/jobs/{held}").body)
        unchanged = {"If-None-Match": tag}
        if site.ask("GET", f"/jobs/{done}", headers=unchanged).status != 304:
            raise RuntimeError("If-None-Match with the current ETag did not return 304")
        with (
            servers.python_site(sys.executable, "bare", folder, str(body)) as bare,
            servers.python_site(sys.executable, "bare", folder, str(longer)) as bare_longer,
        ):
            samples = Samples()
            for _ in range(rounds):
                samples.add("bare", wrk(f"{bare.url}/jobs/{done}", SECONDS))
                samples.add("done", wrk(f"{site.url}/jobs/{done}", SECONDS))
                samples.add("304", wrk(f"{site.url}/jobs/{done}", SECONDS, headers=unchanged))
                samples.add("bare longer", wrk(f"{bare_longer.url}/jobs/{held}", SECONDS))
                samples.add("processing", wrk(f"{site.url}/jobs/{held}", SECONDS))
        site.ask("POST", f"/jobs/{held}/cancel")
    return [
        _line("GET /jobs/{id}, DONE : bare Starlette", samples, "done", "bare", 1.3),
        _line(
            "GET /jobs/{id}, PROCESSING with eta : bare Starlette",
            samples,
            "processing",
            "bare longer",
            1.3,
        ),
        _line("GET /jobs/{id}, 304 : bare Starlette", samples, "304", "bare", 1.3),
    ]


def _processing(site: servers.Site) -> str:
    """A running job with progress and eta."""
    job_id: str = site.ask("POST", "/jobs", {"kind": "hold", "input": {}}).json()["jobId"]
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if site.ask("GET", f"/jobs/{job_id}").json().get("eta") is not None:
            return job_id
        time.sleep(0.1)
    raise RuntimeError("the job that runs got no eta")


def _line(what: str, samples: Samples, ours: str, theirs: str, bar: float) -> Line:
    detail = f"{samples[ours]:.0f} : {samples[theirs]:.0f} answers/s"
    return Line(what, samples.ratio(ours, theirs), "≥", bar, detail=detail)
