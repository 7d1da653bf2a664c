"""A service over a socket that answers in the contract's shapes, on good days and on scripted bad ones.

It runs on a thread with a loop of its own, so that the async client, the sync one and the command line can all speak to
it. `script(job_id, …)` says what the next GETs of a job are answered with; the last answer stays.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiohttp import web

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


def job_id(number: int) -> str:
    return f"01JC3X8M0V0000000000{number:06d}"


def job(number: int = 1, status: str = "DONE", **fields: Any) -> dict[str, Any]:
    """A status resource."""
    here = f"/jobs/{job_id(number)}"
    ended = status in ("DONE", "PARTIAL_SUCCESS", "ERROR", "CANCELLED")
    document: dict[str, Any] = {
        "jobId": job_id(number),
        "kind": "transcode",
        "status": status,
        "progress": None,
        "eta": None,
        "attempt": 1,
        "maxAttempts": 4,
        "priority": 0,
        "queue": "video",
        "labels": {},
        "createdAt": "2030-01-01T00:00:00.000Z",
        "runAt": None,
        "startedAt": None,
        "nextAttemptAt": None,
        "finishedAt": "2030-01-01T00:01:00.000Z" if ended else None,
        "updatedAt": "2030-01-01T00:00:30.000Z",
        "expiresAt": None,
        "deadline": None,
        "steps": [],
        "children": [],
        "result": None,
        "files": [],
        "error": None,
        "links": {"self": here, "result": f"{here}/result"},
    }
    return {**document, **fields}


def failed(number: int = 1, code: str = "OCR_TIMEOUT") -> dict[str, Any]:
    error = {"code": code, "message": "page 7", "retryable": True, "failedStep": "text", "attempt": 3}
    return job(number, "ERROR", error=error)


def says(document: dict[str, Any], etag: str | None = None, **headers: str) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        tag = {"ETag": etag} if etag else {}
        return web.json_response(document, headers={**tag, **headers})

    return reply


def problem(status: int, code: str, detail: str = "", **headers: str) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        document = {
            "type": f"/problems/{code}",
            "title": code,
            "status": status,
            "detail": detail,
            "code": code,
        }
        return web.Response(
            status=status,
            body=json.dumps(document).encode(),
            headers={"Content-Type": "application/problem+json", **headers},
        )

    return reply


def text(status: int, body: str, content_type: str) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body, content_type=content_type)

    return reply


def held(document: dict[str, Any], event: threading.Event) -> Reply:
    """A long poll that comes back when the event is set."""

    async def reply(request: web.Request) -> web.StreamResponse:
        while not event.is_set():
            await asyncio.sleep(0.005)
        return web.json_response(document)

    return reply


async def not_modified(request: web.Request) -> web.StreamResponse:
    return web.Response(status=304, headers={"Retry-After": "1"})


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut_off(request: web.Request) -> web.StreamResponse:
    """Announces more than it sends."""
    response = web.StreamResponse(headers={"Content-Length": "500", "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"jobId": "01J')
    assert request.transport is not None
    request.transport.close()
    return response


TRUNCATED = text(200, '{"jobId": "01J", "sta', "application/json")
EMPTY = text(200, "", "application/json")
HTML_502 = text(502, "<html><h1>Bad Gateway</h1></html>", "text/html")


class FakeService:
    def __init__(self) -> None:
        self.asked: list[web.Request] = []
        self.bodies: list[Any] = []
        self._scripts: dict[tuple[str, str], list[Reply]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.url = ""

    def on(self, method: str, path: str, *replies: Reply) -> None:
        self._scripts[method, path] = list(replies)

    def script(self, number: int, *replies: Reply) -> None:
        self.on("GET", f"/jobs/{job_id(number)}", *replies)

    def header(self, name: str) -> list[str | None]:
        """What each request had in this header."""
        return [request.headers.get(name) for request in self.asked]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        body = await request.read()
        form = request.content_type != "application/json"
        self.bodies.append(body.decode() if form else json.loads(body) if body else None)
        replies = self._scripts.get((request.method, request.path))
        if not replies:
            return await problem(404, "not-found", f"nothing at {request.path}")(request)
        return await (replies.pop(0) if len(replies) > 1 else replies[0])(request)

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return runner

    async def _stop(self) -> None:
        """Closes connections, also those that were being accepted while the server closed."""
        await self._runner.cleanup()
        accepting = asyncio.all_tasks() - {asyncio.current_task()}
        if accepting:
            await asyncio.wait(accepting, timeout=2)
        for transport in list(self._loop._transports.values()):  # type: ignore[attr-defined]
            transport.abort()
        for _ in range(5):
            await asyncio.sleep(0.005)

    def __enter__(self) -> Self:
        self._thread.start()
        self._runner = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(5)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()
