"""Other people's job APIs over a socket, on scripted bad days: sync.so's shapes, and anything else by its path.

`generation` scripts what the next questions are answered with; the last answer stays. Clients that are made here live
through minutes in a second.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from bide.client.client import AsyncClient
from bide.client.timing import Timing
from tests.unit.fake_service import FakeService, Reply, job_id, problem
from tests.unit.fake_service import job as own_job

KEY = "sk-0123456789-not-to-be-seen"
SPEED = 100.0


class ThirdParty(FakeService):
    """Whatever has no script is answered by `rest`. With a socket it listens there, with a context by TLS."""

    def __init__(self, sock: socket.socket | None = None, context: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._sock = sock
        self._context = context
        self.came: list[float] = []  # monotonic seconds of each request
        self.rest: Reply | None = None

    def generation(self, number: int, *replies: Reply) -> None:
        """What sync.so says of a generation."""
        self.on("GET", f"/v2/generate/gen-{number}", *replies)

    def count(self, path: str = "") -> int:
        """Requests to addresses that contain this."""
        return sum(path in request.path for request in self.asked)

    async def _start(self) -> web.AppRunner:
        if self._sock is None:
            self._sock = socket.socket()
            self._sock.bind(("127.0.0.1", 0))
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        host, port = self._sock.getsockname()
        await web.SockSite(runner, self._sock, ssl_context=self._context).start()
        self.url = f"{'https' if self._context else 'http'}://{host}:{port}"
        return runner

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.came.append(time.monotonic())
        self.asked.append(request)
        await request.read()
        replies = self._scripts.get((request.method, request.path))
        if replies:
            return await (replies.pop(0) if len(replies) > 1 else replies[0])(request)
        return await (self.rest or problem(404, "not-found"))(request)


def sync_so(server: FakeService, speed: float = SPEED, **options: Any) -> AsyncClient:
    """An account there, in a hurry."""
    return AsyncClient(server.url, KEY, api="sync.so", timing=Timing(speed), **options)


def own(server: FakeService, speed: float = SPEED, **options: Any) -> AsyncClient:
    return AsyncClient(server.url, KEY, timing=Timing(speed), **options)


def described(
    tmp_path: Any, server: FakeService, text: str, speed: float = SPEED, **options: Any
) -> AsyncClient:
    """An API that the text describes."""
    path = tmp_path / "api.toml"
    path.write_text(text)
    return AsyncClient(server.url, KEY, api=str(path), timing=Timing(speed), **options)


# --- answers


def generation(number: int = 1, status: str = "COMPLETED", **fields: Any) -> dict[str, Any]:
    ended = {"outputUrl": f"https://films.example/gen-{number}.mp4"} if status == "COMPLETED" else {}
    return {"id": f"gen-{number}", "status": status, **ended, **fields}


def film(number: int = 1) -> str:
    return f"https://films.example/gen-{number}.mp4"


def tells(document: Any, status: int = 200, **headers: str) -> Reply:
    """`tells({}, Retry_After="5")`"""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def reply(request: web.Request) -> web.StreamResponse:
        return web.json_response(document, status=status, headers=named)

    return reply


def done(number: int = 1) -> Reply:
    return tells(generation(number))


def going_on(number: int = 1, **headers: str) -> Reply:
    return tells(generation(number, "PROCESSING"), 200, **headers)


def leads_to(url: Callable[[], str] | str, status: int = 302) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        where = url if isinstance(url, str) else url()
        return web.Response(status=status, headers={"Location": where})

    return reply


def page(state: Callable[[str], str] = lambda id: "DONE") -> Reply:
    """A bide service's answer about many jobs, each in the state that is given for its id."""

    async def reply(request: web.Request) -> web.StreamResponse:
        jobs = []
        for id in request.query.getall("id"):
            number = int(id[-6:])
            jobs.append(own_job(number, state(id), result=number))
        return web.json_response({"jobs": jobs, "next": None, "missing": []})

    return reply


async def hang(request: web.Request) -> web.StreamResponse:
    """Nothing, for as long as the client waits."""
    while request.transport is not None:
        await asyncio.sleep(0.01)
    return web.Response()


async def drip(request: web.Request) -> web.StreamResponse:
    """A byte now and then, for ever: no single read takes long."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while request.transport is not None:
        await response.write(b" ")
        await asyncio.sleep(0.02)
    return response


def raw(data: bytes) -> Reply:
    """Not even HTTP."""

    async def reply(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(data)
        request.transport.close()
        return web.Response()

    return reply


def ids(count: int) -> list[str]:
    return [job_id(number) for number in range(count)]
