"""The status of one job while a bulk action retries 100,000 others. The queues are paused, so that no job runs meanwhile."""

from __future__ import annotations

import json
import time
from statistics import median

from bench.look.queries import Sender, percentile
from bench.service.servers import Site
from bench.service.table import Line

POLLS = 3000
BAR = 1.5
SHARE = 0.1  # of the stored jobs that have failed or were cancelled
FILTER = {"status": ["ERROR", "CANCELLED", "PARTIAL_SUCCESS"]}


def measure(store: str, site: Site, rows: int, rounds: int) -> Line:
    for queue in ("default", "video", "batch"):
        site.ask("POST", f"/queues/{queue}/pause")
    sender = Sender(site.port)
    job_id = json.loads(sender.get("/jobs?limit=1&status=DONE")[1])["jobs"][0]["jobId"]

    def polls() -> float:
        return percentile([sender.get(f"/jobs/{job_id}")[0] for _ in range(POLLS)], 0.99) * 1000

    polls()
    idle = [polls() for _ in range(rounds)]
    begin = time.monotonic()
    bulk = site.ask("POST", "/bulk", {"action": "retry", "filter": FILTER}).json()["jobId"]
    busy: list[float] = []
    while True:
        found = polls()
        job = site.ask("GET", f"/jobs/{bulk}").json()
        if job["status"] not in ("PENDING", "PROCESSING"):
            break
        busy.append(found)
        time.sleep(1)
    seconds = time.monotonic() - begin
    idle += [polls() for _ in range(rounds)]
    changed = job["result"]["changed"]
    if job["status"] != "DONE" or changed < 0.9 * SHARE * rows:
        raise RuntimeError(f"the bulk action ended as {job['status']} with {job['result']}")
    what = f"{store}: status p99 during a bulk retry of {changed:,} jobs : idle"
    detail = f"{median(busy):.2f} : {median(idle):.2f} ms; {seconds:.0f} s, {len(busy)} rounds of polls"
    return Line(what, median(busy) / median(idle), "≤", BAR, detail=detail)
