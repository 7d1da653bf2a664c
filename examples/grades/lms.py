"""A simulated learning management system: the account reports of Canvas over HTTP, with invented students.

    python lms.py --port 8000 --speed 30

It is as difficult as the real one. A report takes 15 to 60 seconds, a few take three times as long, and one fails the first
time. The cost of each request fills a leaky bucket (X-Request-Cost, X-Rate-Limit-Remaining); when it is full, the response
is 403 or 429. The file of a report has a signed URL on another port, which expires. `--speed` makes its time pass faster.
How to read it: `Bucket` is the limit, `Lms` the API, `rows_of` the students.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import io
import json
import time
import zipfile
from dataclasses import dataclass, field

from aiohttp import web

TOKEN = "canvas-demo-token"
STUDENTS = 40
LATE = ("attendance 12 spring", "gradebook 31 autumn")
FAILS_ONCE = "attendance 15 autumn"
REPORTS = ("gradebook", "attendance", "engagement")
URL_LIFETIME = 300.0  # seconds until the URL of a file expires


@dataclass
class Bucket:
    """A leaky bucket, filled by the cost of each request."""

    capacity: float = 600.0
    leak: float = 60.0  # units per second
    level: float = 0.0
    at: float = 0.0

    def take(self, now: float, cost: float) -> bool:
        self.level = max(0.0, self.level - (now - self.at) * self.leak)
        self.at = now
        if self.level + cost > self.capacity:
            return False
        self.level += cost
        return True


@dataclass
class Report:
    id: int
    kind: str
    course: str
    term: str
    began: float
    takes: float
    fails: bool


@dataclass
class Lms:
    speed: float = 1.0
    bucket: Bucket = field(default_factory=Bucket)
    reports: dict[int, Report] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)  # names of the requested reports, in order
    refused: int = 0
    files_url: str = ""

    def now(self) -> float:
        return time.monotonic() * self.speed

    # --- the API

    @web.middleware
    async def limited(self, request: web.Request, handler: web.Handler) -> web.StreamResponse:  # type: ignore[name-defined]
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response({"errors": [{"message": "Invalid access token."}]}, status=401)
        cost = 20.0 if request.method == "POST" else 6.0
        if not self.bucket.take(self.now(), cost):
            self.refused += 1
            status = 403 if self.refused % 2 else 429
            return web.Response(
                status=status, text=f"{status} Forbidden (Rate Limit Exceeded)", headers=self._left(0.0)
            )
        response: web.StreamResponse = await handler(request)
        response.headers.update(self._left(cost))
        return response

    def _left(self, cost: float) -> dict[str, str]:
        left = self.bucket.capacity - self.bucket.level
        return {"X-Request-Cost": f"{cost:.3f}", "X-Rate-Limit-Remaining": f"{left:.3f}"}

    async def start(self, request: web.Request) -> web.Response:
        kind = request.match_info["kind"]
        parameters = (await request.json()).get("parameters", {})
        course, term = str(parameters.get("course_id")), str(parameters.get("term"))
        if kind not in REPORTS:
            return web.json_response(
                {"errors": [{"message": f"report {kind} does not exist"}]}, status=404
            )
        name = f"{kind} {course} {term}"
        takes = 15.0 + _number(name) % 46
        report = Report(
            id=len(self.reports) + 1,
            kind=kind,
            course=course,
            term=term,
            began=self.now(),
            takes=takes * 3 if name in LATE else takes,
            fails=name == FAILS_ONCE and name not in self.started,
        )
        self.reports[report.id] = report
        self.started.append(name)
        return web.json_response(self._render(report))

    async def status(self, request: web.Request) -> web.Response:
        report = self.reports.get(int(request.match_info["id"]))
        if report is None or report.kind != request.match_info["kind"]:
            return web.json_response({"errors": [{"message": "the report does not exist"}]}, status=404)
        return web.json_response(self._render(report))

    def _render(self, report: Report) -> dict[str, object]:
        share = min(1.0, (self.now() - report.began) / report.takes)
        rendered: dict[str, object] = {
            "id": report.id,
            "report": report.kind,
            "progress": int(100 * share),
        }
        if share < 1.0:
            return {**rendered, "status": "running" if share > 0.05 else "created"}
        if report.fails:
            message = "Generating the report failed unexpectedly."
            return {**rendered, "status": "error", "message": message, "progress": 40}
        data, name = file_of(report)
        url = f"{self.files_url}/files/{report.id}?{self._signature(report.id)}"
        attachment = {"url": url, "filename": name, "size": len(data)}
        return {**rendered, "status": "complete", "attachment": attachment}

    # --- the files

    def _signature(self, id: int) -> str:
        until = int(self.now() + URL_LIFETIME)
        return f"until={until}&sign={_sign(id, until)}"

    async def file(self, request: web.Request) -> web.Response:
        id, until = int(request.match_info["id"]), int(request.query.get("until", "0"))
        good = hmac.compare_digest(request.query.get("sign", ""), _sign(id, until))
        if not good or until < self.now() or "Authorization" in request.headers:
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        data, _ = file_of(self.reports[id])
        return web.Response(body=data, headers={"ETag": f'"{hashlib.sha256(data).hexdigest()}"'})

    # --- serving

    async def serve(self, port: int) -> tuple[web.AppRunner, web.AppRunner]:
        files, api = web.Application(), web.Application(middlewares=[self.limited])
        files.router.add_get("/files/{id}", self.file)
        reports = "/api/v1/accounts/{account}/reports/{kind}"
        api.router.add_post(reports, self.start)
        api.router.add_get(reports + r"/{id:\d+}", self.status)
        runners = web.AppRunner(api, access_log=None), web.AppRunner(files, access_log=None)
        for runner, at in zip(reversed(runners), (0, port), strict=True):
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", at).start()
            if runner is runners[1]:
                self.files_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runners


def _sign(id: int, until: int) -> str:
    return hmac.new(b"not a secret", f"{id} {until}".encode(), "sha256").hexdigest()[:24]


def _number(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def rows_of(report: Report) -> list[dict[str, object]]:
    """Returns the rows of a report. The same report always has the same rows."""
    rows: list[dict[str, object]] = []
    for student in range(STUDENTS):
        number = _number(f"{report.kind} {report.course} {report.term} {student}")
        row: dict[str, object] = {
            "SIS ID": f"s{report.course}{student:03}",
            "Student": f"Student {student} of {report.course}",
        }
        if report.kind == "gradebook":
            row |= {
                "Assignment": f"essay {number % 3 + 1}",
                "Score": "" if number % 19 == 0 else number % 101,
            }
        elif report.kind == "attendance":
            row |= {"Date": f"{number % 28 + 1:02}/10/2026", "Present": "yes" if number % 5 else "no"}
        else:
            row |= {
                "minutes": number % 600,
                "last_seen": f"2026-10-{number % 28 + 1:02}T{number % 24:02}:30:00",
            }
        rows.append(row)
    return rows


def file_of(report: Report) -> tuple[bytes, str]:
    """Returns the file and its name: gradebooks are CSV, attendance is a zipped CSV, engagement is JSON."""
    rows = rows_of(report)
    if report.kind == "engagement":
        return json.dumps({"students": rows}).encode(), "engagement.json"
    lines = [",".join(rows[0]), *(",".join(str(value) for value in row.values()) for row in rows)]
    data = ("\r\n".join(lines) + "\r\n").encode()
    if report.kind == "gradebook":
        return b"\xef\xbb\xbf" + data, "gradebook.csv"  # with a byte-order mark, for Excel
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("attendance.csv"), data)
    return packed.getvalue(), "attendance.zip"


async def run(port: int, speed: float) -> None:
    lms = Lms(speed)
    runners = await lms.serve(port)
    print(
        f"the LMS is at http://127.0.0.1:{runners[0].addresses[0][1]}, its token is {TOKEN}", flush=True
    )
    try:
        await asyncio.Event().wait()
    finally:
        for runner in runners:
            await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description="A simulated learning management system.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--speed", type=float, default=1.0, help="how much faster its time passes")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.port, given.speed))
    except KeyboardInterrupt:
        print("the LMS has stopped")


if __name__ == "__main__":
    main()
