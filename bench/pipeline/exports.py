"""How long 200 exports take on one budget, compared with the bound from the vendor's limit and windows.

The vendor is a server on a socket; its clock and the pipeline's run faster than real time. No client can beat the bound:
each export needs a submission and one poll after its job has ended, requests are no faster than the limit, and no client
knows beforehand which job takes longest.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from bench.service.table import Line
from bide.client.timing import Timing
from bide.lab.scenario import Rules
from bide.lab.simulated_api import SimulatedJob
from bide.lab.vendor import Vendor
from bide.pipeline.plan.loader import load_plan
from bide.pipeline.run.checkpoint import Checkpoint
from bide.pipeline.run.pipeline_run import PipelineRun

EXPORTS = 200
WINDOW = (15.0, 60.0)  # seconds that a job takes
BAR = 1.2

API = """
name = "school"
[auth]
kind = "header"
header = "x-api-key"
secret.env = "SCHOOL_KEY"
[submit]
path = "/v2/generate"
body = "{input}"
id = "id"
[ask]
path = "/v2/generate/{id}"
[read]
status = "status"
id = "id"
live = ["PENDING", "PROCESSING"]
done = ["COMPLETED"]
failed = ["FAILED"]
progress = "progress_percent"
[result]
url = "outputUrl"
"""
PIPELINE = """
[api]
file = "school.toml"
url = "{url}"
limit = "{limit}"
[[exports]]
name = "gradebook"
input = {{ course = "{{course}}", term = "{{term}}" }}
each = {{ course = {courses}, term = ["autumn", "spring"] }}
columns = {{ course = "{{course}}", term = "{{term}}" }}
[exports.schema]
key = ["course", "term", "student"]
[[exports.schema.columns]]
name = "course"
[[exports.schema.columns]]
name = "term"
[[exports.schema.columns]]
name = "student"
[[exports.schema.columns]]
name = "grade"
type = "integer"
[exports.output]
path = "out/gradebook.parquet"
"""


@dataclass(frozen=True)
class Case:
    name: str
    limit: str
    rules: Rules
    progress: str
    speed: float  # of the clocks; work in real time, such as a sync to disk, counts that much more


CASES = (
    Case(
        "the limit is tight",
        "60/1m:10",
        Rules(requests=60, per=60, burst=10, advertised=False),
        "none",
        10.0,
    ),
    Case(
        "the limit is wide, jobs report progress",
        "1200/1m:60",
        Rules(requests=1200, per=60, burst=60, advertised=False),
        "exact",
        3.0,
    ),
    Case(
        "the limit is wide, jobs report none",
        "1200/1m:60",
        Rules(requests=1200, per=60, burst=60, advertised=False),
        "none",
        3.0,
    ),
)


class School(Vendor):
    """Its limit is only documented, not advertised; its files are at another origin without a limit."""

    async def _submit(self, request: web.Request) -> web.Response:
        answer = self.world.poll(self.now(), ())
        if answer.status != 200:
            return self._json({"message": "too many requests"}, answer.status, answer.headers)
        id = f"gen-{len(self.jobs)}"
        now = self.now()
        task = SimulatedJob("export", now, self._takes(self._rng), self._progress, 1, now)
        task.ends = now + task.duration
        self.jobs[id] = task
        return self._json({"id": id, "status": "PENDING"}, 201, answer.headers)

    def _record(self, id: str, seen: object, now: float) -> dict[str, object]:
        record = super()._record(id, seen, now)  # type: ignore[arg-type]
        if "outputUrl" in record:
            record["outputUrl"] = str(record["outputUrl"]).replace("127.0.0.1", "localhost")
        return record

    async def _file(self, request: web.Request) -> web.Response:
        lines = "".join(f"s{number},{number % 101}\n" for number in range(500))
        return web.Response(text=f"student,grade\n{lines}", content_type="text/csv")


def allowed(case: Case, durations: list[float]) -> float:
    """The bound in seconds; durations are in the order of the submissions."""
    rules = case.rules
    gap = rules.per / rules.requests

    def sent(number: int) -> float:
        return max(0.0, (number + 1 - rules.burst) * gap)

    ends = [sent(i) + took for i, took in enumerate(durations)]
    return max(sent(2 * len(durations) - 1), *ends)


def _measure(case: Case) -> Line:
    rng = random.Random(5)
    with (
        tempfile.TemporaryDirectory() as name,
        School(
            case.rules, takes=lambda _: rng.uniform(*WINDOW), progress=case.progress, speed=case.speed
        ) as vendor,
    ):
        folder = Path(name)
        text = PIPELINE.format(url=vendor.url, limit=case.limit, courses=list(range(EXPORTS // 2)))
        (folder / "grades.toml").write_text(text)
        (folder / "school.toml").write_text(API)
        os.environ["SCHOOL_KEY"] = "any"
        with Checkpoint(folder / "grades.sync") as state:
            began = vendor.now()
            done: list[float] = []
            run = PipelineRun(
                load_plan(folder / "grades.toml"),
                state,
                on_output=lambda update: done.append(vendor.now()),
                timing=Timing(case.speed),
            )
            outcome = asyncio.run(run.run())
            took = done[-1] - began
        if not outcome.good or len(vendor.jobs) != EXPORTS:
            return Line(
                f"{EXPORTS} exports, {case.name}", math.inf, "≤", BAR, detail="not all published"
            )
        bound = allowed(case, [task.duration for task in vendor.jobs.values()])
        detail = (
            f"{took:.0f} s, {bound:.0f} s allowed; {outcome.requests} requests, {vendor.refused} refused; "
            f"the machine's load was {os.getloadavg()[0]:.1f}"
        )
        return Line(f"{EXPORTS} exports, {case.name}", took / bound, "≤", BAR, detail=detail)


def measure() -> list[Line]:
    return [_measure(case) for case in CASES]
