"""An HTTP server with the job API of sync.so, on loopback: it accepts jobs, finishes them and enforces its limit.

Start it with `python -m bide.lab.vendor --port 8000 --limit 20/1s:5 --takes 1 4`. `GET /` returns how many requests it has
received and refused.

Tests, benchmarks, examples and the docs use it in place of a vendor; `bide simulate` does not. In a program it runs in a
thread with its own event loop, so that an asynchronous client, a blocking one and the command line can all use it. Its
clock can run faster than real time; all durations are then by its clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from typing import Any, Self

from aiohttp import web

from bide.core.errors import SetupError
from bide.core.pacing.budget import read_limit
from bide.lab.scenario import Rules, Scenario, parse_scenario
from bide.lab.simulated_api import SimulatedApi, SimulatedJob, SimulatedStatus

Draw = Callable[[random.Random], float]
_NOTHING = parse_scenario("[[jobs]]\ncount = 1\nduration = { fixed = 1 }", "vendor")


class Vendor:
    """`with Vendor(Rules(requests=60, per=60, burst=10), takes=lambda rng: rng.uniform(2, 15)) as vendor: vendor.url`"""

    def __init__(
        self,
        limit: Rules | None = None,
        *,
        takes: Draw = lambda rng: 1.0,
        fails: float = 0.0,
        progress: str = "exact",
        key: str | None = None,
        speed: float = 1.0,
        world: SimulatedApi | None = None,
        port: int = 0,
    ) -> None:
        self.world = world or _empty(replace(_NOTHING, limit=limit or Rules()))
        self.jobs: dict[str, SimulatedJob] = {
            f"job-{i}": task for i, task in enumerate(self.world.tasks)
        }
        self.reported: dict[str, float] = {}  # when a response first said that the job has ended
        self.keys: dict[str, str] = {}
        self.url = ""
        self._takes = takes
        self._fails = fails
        self._progress = progress
        self._key = key
        self._speed = speed
        self._port = port
        self._rng = random.Random(0)
        self._failed: set[str] = set()
        self._cancelled: set[str] = set()
        self._start = time.monotonic()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vendor", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> str:
        app = web.Application()
        app.router.add_post("/v2/generate", self._submit)
        app.router.add_get("/v2/generate/{id}", self._status)
        app.router.add_delete("/v2/generate/{id}", self._cancel)
        app.router.add_get("/v2/files/{id}.mp4", self._file)
        app.router.add_get("/", self._counts)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._start = time.monotonic()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def _close(self) -> None:
        """Close all connections, also those that are being accepted while the server closes."""
        server = self._runner.server
        assert server is not None
        await self._runner.cleanup()
        accepting = asyncio.all_tasks() - {asyncio.current_task()}
        if accepting:
            await asyncio.wait(accepting, timeout=2)
        for connection in server.connections:
            connection.force_close()
        await asyncio.sleep(0)  # the transports close in the next iteration of the loop

    def now(self) -> float:
        """Return the seconds of its clock since it was started."""
        return (time.monotonic() - self._start) * self._speed

    @property
    def requests(self) -> int:
        return self.world.requests

    @property
    def refused(self) -> int:
        return self.world.refused

    def delays(self) -> list[float]:
        """Return the seconds, by its clock, from the end of each job to the first response that says so."""
        return [self.reported[id] - self.jobs[id].ends for id in self.reported]

    # --- routes

    async def _submit(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request):
            return refusal
        key = request.headers.get("Idempotency-Key", "")
        id = self.keys.get(key) if key else None
        if id is None:
            id = f"gen-{len(self.jobs)}"
            now = self.now()
            task = SimulatedJob("generation", now, self._takes(self._rng), self._progress, 1, now)
            task.ends = now + task.duration
            self.jobs[id] = task
            if self._rng.random() < self._fails:
                self._failed.add(id)
            if key:
                self.keys[key] = id
        return self._json({"id": id, "status": "PENDING"}, 201)

    async def _status(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        task = self.jobs.get(id)
        now = self.now()
        if refusal := self._denied(request):
            return refusal
        if task is None:
            return self._json({"message": "no such generation"}, 404)
        answer = self.world.poll(now, (task,))
        if answer.status != 200:
            return self._json({"message": "too many requests"}, answer.status, answer.headers)
        return self._json(self._record(id, answer.jobs[0], now), 200, answer.headers)

    def _record(self, id: str, seen: SimulatedStatus, now: float) -> dict[str, Any]:
        if id in self._cancelled:
            return {"id": id, "status": "CANCELED"}
        if not seen.done:
            record: dict[str, Any] = {"id": id, "status": "PROCESSING"}
            if seen.percent is not None:
                record["progress_percent"] = round(seen.percent, 1)
            return record
        self.reported.setdefault(id, now)
        if id in self._failed:
            return {"id": id, "status": "FAILED", "error": "no face found", "errorCode": "NO_FACE"}
        return {"id": id, "status": "COMPLETED", "outputUrl": f"{self.url}/v2/files/{id}.mp4"}

    async def _cancel(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request):
            return refusal
        self._cancelled.add(request.match_info["id"])
        return web.Response(status=204)

    async def _file(self, request: web.Request) -> web.Response:
        text = f"film of {request.match_info['id']}".encode()
        return web.Response(body=text, content_type="video/mp4")

    async def _counts(self, request: web.Request) -> web.Response:
        return self._json({"requests": self.requests, "refused": self.refused}, 200)

    def _refusal(self, request: web.Request) -> web.Response | None:
        denied = self._denied(request)
        if denied is not None:
            return denied
        answer = self.world.poll(self.now(), ())
        if answer.status == 200:
            return None
        return self._json({"message": "too many requests"}, answer.status, answer.headers)

    def _denied(self, request: web.Request) -> web.Response | None:
        if self._key is None or request.headers.get("x-api-key") == self._key:
            return None
        return self._json({"message": "a valid x-api-key is needed"}, 401)

    def _json(self, body: Any, status: int, headers: Any = None) -> web.Response:
        date = formatdate(time.time() + self.now(), usegmt=True)
        return web.Response(
            body=json.dumps(body).encode(),
            status=status,
            headers={"Date": date, **(headers or {})},
            content_type="application/json",
        )


def _empty(scenario: Scenario) -> SimulatedApi:
    world = SimulatedApi(scenario, 0)
    world.tasks.clear()
    return world


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bide.lab.vendor", description="A simulated vendor with the job API of sync.so."
    )
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--limit", type=_rules, default=Rules(), help="e.g. 60/1m:10; default: no limit")
    parser.add_argument(
        "--hidden", action="store_true", help="no response states the limit; only refusals show it"
    )
    parser.add_argument("--takes", type=float, nargs=2, default=(1.0, 4.0), metavar=("LOW", "HIGH"))
    parser.add_argument("--fails", type=float, default=0.0, help="the share of jobs that fail")
    parser.add_argument("--key", help="the key that callers must send as x-api-key; default: any")
    given = parser.parse_args()
    low, high = given.takes
    limit = replace(given.limit, advertised=not given.hidden)
    with Vendor(
        limit,
        takes=lambda rng: rng.uniform(low, high),
        fails=given.fails,
        key=given.key,
        port=given.port,
    ) as vendor:
        sys.stdout.write(f"the vendor is at {vendor.url}; stop it with Ctrl-C\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stdout.write(f"{vendor.requests} requests, {vendor.refused} of them refused\n")


def _rules(text: str) -> Rules:
    try:
        limit = read_limit(text)
    except (SetupError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Rules(requests=limit.requests, per=limit.per, burst=limit.burst or 1.0)


if __name__ == "__main__":
    main()
