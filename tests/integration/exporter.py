"""An API that makes exports, over a socket, on good days and bad ones; and pipelines that ask it.

Reports are CSV files at addresses that are signed: they go to another port, and are good until `expire` is called.
Clients that are made here live through minutes in a second.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from bide.client.timing import Timing
from bide.pipeline.plan.loader import load_plan
from bide.pipeline.run.checkpoint import Checkpoint
from bide.pipeline.run.context import ExportUpdate
from bide.pipeline.run.pipeline_run import PipelineRun, RunOptions, RunOutcome
from bide.pipeline.run.publication import OutputUpdate
from tests.unit.fake_service import FakeService

KEY = "lms-0123456789-not-to-be-seen"
SPEED = 60.0

API = """
name = "lms"
[auth]
kind = "bearer"
secret.env = "LMS_KEY"
[submit]
path = "/exports"
{key}
body = {{ report = "{{kind}}", course = "{{input.course}}", since = "{{input.since}}" }}
id = "id"
[ask]
path = "/exports/{{id}}"
[read]
status = "state"
id = "id"
live = ["queued", "running"]
done = ["complete"]
failed = ["error"]
progress = "progress"
[read.error]
code = "code"
message = "message"
[result]
url = "url"
value = "rows"
[[files]]
name = "result"
url = "url"
size = "size"
sha256 = "sha256"
[[throttled]]
status = [403]
contains = "rate limit exceeded"
"""
KEYED = 'headers = { Idempotency-Key = "{key}" }'

PIPELINE = """
[api]
file = "lms.toml"
url = "{url}"
limit = "1000/1s"
{api}

[[exports]]
name = "gradebook"
kind = "gradebook"
input = {{ course = "{{course}}" }}
each = {{ course = [1, 2, 3] }}
columns = {{ course = "{{course}}" }}
{export}
[[exports.schema.columns]]
name = "student"
[[exports.schema.columns]]
name = "grade"
type = "integer"
[[exports.schema.columns]]
name = "course"
[exports.output]
path = "out/gradebook.jsonl"
"""


class Storage(FakeService):
    """Where the files are: another origin, which is not to see the credential."""

    def __init__(self) -> None:
        super().__init__()
        self.valid = 0  # the signature that is good
        self.content: Callable[[str], bytes] = rows
        self.cut: Counter[str] = Counter()  # by file: how often the stream breaks half way
        self.etags = True

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        if request.query.get("sig") != str(self.valid):
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        name = request.path.rpartition("/")[2]
        data = self.content(name)
        start = int(request.headers.get("Range", "bytes=0-")[6:-1])
        headers = {"Content-Length": str(len(data) - start)}
        if self.etags:
            headers["ETag"] = f'"{hash(data)}"'
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        await response.prepare(request)
        if self.cut[name]:
            self.cut[name] -= 1
            await response.write(data[start : start + (len(data) - start) // 2])
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write(data[start:])
        return response


class Exporter(FakeService):
    """Jobs take `takes` seconds; `rules` may answer before it does."""

    def __init__(self, storage: Storage, takes: float = 0.05) -> None:
        super().__init__()
        self.storage = storage
        self.takes = takes
        self.jobs: dict[str, dict[str, Any]] = {}
        # Courses, in the order of arrival: several requests are on their way at the same time.
        self.submitted: list[str] = []
        self.keys: dict[str, str] = {}
        self.token = KEY
        self.rules: list[Callable[[web.Request], web.Response | None]] = []
        self.failing: Counter[str] = Counter()  # by course: jobs that will fail
        self.extra: dict[str, Any] = {}

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        await request.read()
        for rule in self.rules:
            answer = rule(request)
            if answer is not None:
                return answer
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"message": "invalid token"}, status=401)
        if request.method == "POST":
            return await self._submit(request)
        if request.path == "/courses":
            return self._courses(request)
        return self._status(request.path.rpartition("/")[2])

    async def _submit(self, request: web.Request) -> web.Response:
        told = json.loads(await request.read())
        key = request.headers.get("Idempotency-Key")
        id = self.keys.get(key) if key else None
        if id is None:
            id = f"job{len(self.jobs)}"
            course = str(told.get("course"))
            self.submitted.append(course)
            failing = bool(self.failing[course])
            self.failing[course] -= failing
            self.jobs[id] = {**told, "at": time.monotonic(), "failing": failing}
            if key:
                self.keys[key] = id
        return web.json_response({"id": id, "state": "queued"}, status=201)

    def _status(self, id: str) -> web.Response:
        job = self.jobs.get(id)
        if job is None:
            return web.json_response({"message": "no such export"}, status=404)
        if time.monotonic() - job["at"] < self.takes:
            return web.json_response({"id": id, "state": "running", "progress": 40})
        if job["failing"]:
            return web.json_response(
                {"id": id, "state": "error", "code": "TOO_BIG", "message": "the course is too large"}
            )
        url = f"{self.storage.url}/{job['course']}?sig={self.storage.valid}"
        return web.json_response({"id": id, "state": "complete", "url": url, **self.extra})

    def _courses(self, request: web.Request) -> web.Response:
        page = int(request.query.get("page", "1"))
        following = f'<{self.url}/courses?page={page + 1}>; rel="next"' if page < 3 else ""
        return web.json_response([{"id": page}], headers={"Link": following} if following else {})


def rows(name: str) -> bytes:
    """A report of one course: two students."""
    return f"student,grade\nada{name},{90 + len(name)}\nbob{name},70\n".encode()


def published(folder: Path, name: str = "gradebook.jsonl") -> list[dict[str, Any]]:
    text = (folder / "out" / name).read_text()
    return [json.loads(line) for line in text.splitlines()]


class Folder:
    """Where a pipeline lives."""

    def __init__(self, path: Path, exporter: Exporter, *, keyed: bool = True) -> None:
        self.path = path
        self.exporter = exporter
        self.news: list[ExportUpdate] = []
        self.hears: Callable[[ExportUpdate], object] = self.news.append
        self.outputs: list[OutputUpdate] = []
        (path / "lms.toml").write_text(API.format(key=KEYED if keyed else ""))
        self.write()

    def write(self, export: str = "", api: str = "", text: str = PIPELINE) -> None:
        filled = text.format(url=self.exporter.url, export=export, api=api)
        (self.path / "grades.toml").write_text(filled)

    async def sync(self, start: RunOptions | None = None, speed: float = SPEED) -> RunOutcome:
        """One run, as a process would make it."""
        with Checkpoint(self.path / "grades.sync") as state:
            plan = load_plan(self.path / "grades.toml")
            run = PipelineRun(
                plan,
                state,
                on_export=self.hears,
                on_output=self.outputs.append,
                timing=Timing(speed),
            )
            return await run.run(start)

    def phases(self, name: str) -> list[str]:
        """Each reported phase of an export."""
        told = [news.export for news in self.news if news.moved]
        return [export.phase for export in told if export.name == name]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return published(self.path)
