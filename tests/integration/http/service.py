"""The HTTP interface on a real store, without a network: the test itself changes the jobs, as a worker would."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from bide.core.errors import ErrorInfo
from bide.core.jobs.record import Job
from bide.core.jobs.state_machine import Change, Failed, Succeeded
from bide.core.wire.http import PROBLEM_TYPE, Event
from bide.server.blobs.files import FileBlobs
from bide.server.config import Config, HttpConfig
from bide.server.engine import ServiceWarning, WorkerState
from bide.server.http.openapi import describe
from bide.server.http.request import Message
from bide.server.http.request import Scope as AsgiScope
from bide.server.identities import SCOPES, Scope
from bide.server.progress import AttemptKey, attempt_key
from bide.server.registry import File, Registry
from bide.server.store import Claim, ClaimRequest
from bide.server.worker.app_location import AppLocation
from bide.service.assembly import assemble
from bide.testing.clock import ManualClock
from tests.stores import make_store

MAX_BODY = 64 * 1024


@dataclass
class IdleEngine:
    """An engine in which nothing runs."""

    hints: list[tuple[str, str]] = field(default_factory=list)
    unserved: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)  # queues that workers alone know
    warned: list[ServiceWarning] = field(default_factory=list)
    children: list[WorkerState] = field(default_factory=list)

    async def start(self) -> None: ...

    async def stop(self, drain: float) -> None: ...

    def stop_now(self) -> None: ...

    def hint(self, queue: str, kind: str) -> None:
        self.hints.append((queue, kind))

    def on_events(self, events: Sequence[Event]) -> None: ...

    def holds(self, job: Job) -> bool:
        return False

    def reset(self) -> None: ...

    def workers(self) -> list[WorkerState]:
        return self.children

    def serves(self, queue: str) -> bool:
        return queue not in self.unserved

    def slots(self, queue: str) -> int | None:
        return 2

    async def confirm_served(self, queue: str) -> bool:
        return queue in self.elsewhere

    def warnings(self) -> list[ServiceWarning]:
        return self.warned


def kinds() -> Registry:
    registry = Registry(queues={"slow": 1})

    @registry.job(queue="video", retries=2, steps={"probe": 1, "encode": 3})
    def encode(source: str, height: int = 720, tags: list[str] | None = None) -> dict[str, str]:
        """Encodes a video."""
        return {}

    @registry.job()
    def echo(value: Any = None) -> Any:
        return value

    @registry.job(require_key=True)
    def pay(amount: int) -> int:
        return amount

    @registry.job(search=["input.video.id"], secret=["input.token"])
    def clip(video: dict[str, Any], token: str) -> None: ...

    @registry.job()
    def thumbnail(video: File) -> None: ...

    @registry.job(unique=["input.video", "input.source"], unique_for=60)
    def preview(video: str = "", size: int = 200, source: File | None = None) -> None: ...

    return registry


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Service:
    """A service whose engine runs nothing, and methods to call it and to change its jobs."""

    def __init__(
        self, folder: Path, registry: Registry | None = None, config: Config | None = None
    ) -> None:
        self.clock = ManualClock()
        self.registry = registry or kinds()
        self.engine = IdleEngine()
        config = config or Config(http=HttpConfig(max_body=MAX_BODY))
        # Orphans are removed immediately.
        self.config = replace_fields(
            config, data=folder, upkeep=replace_fields(config.upkeep, quarantine=0.0)
        )
        self.parts = assemble(
            self.registry,
            AppLocation("unused"),
            self.config,
            store=make_store(folder, self.clock),
            engine=self.engine,
        )
        self.store, self.notify, self.app = self.parts.store, self.parts.notify, self.parts.http
        self.estimates, self.progress = self.parts.estimates, self.parts.progress
        self.blobs, self.intake = cast(FileBlobs, self.parts.blobs), self.parts.intake
        self.uploads = self.parts.uploads
        self.presigned, self.staging = self.uploads.presigned, self.uploads._staging
        self.quota, self.lifecycle = self.uploads._quota, self.uploads._lifecycle
        self.expiry = self.uploads._expiry

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Service]:
        await self.store.open(self.parts.on_events, on_log=self.parts.events.on_log)
        self.uploads.open("here")
        if self.parts.authenticator is not None:
            await self.parts.authenticator.start()
        try:
            yield self
        finally:
            if self.parts.authenticator is not None:
                await self.parts.authenticator.stop()
            await self.uploads.close()
            await self.store.close()

    # --- calling it

    async def call(
        self,
        method: str,
        target: str,
        *,
        json: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        mount: str = "",
        key: str | None = None,
    ) -> Reply:
        lines = {k.lower(): v for k, v in (headers or {}).items()}
        if key is not None:
            lines["authorization"] = f"Bearer {key}"
        if json is not None:
            body = msgspec.json.encode(json)
            lines.setdefault("content-type", "application/json")
        return await self.send(scope(method, target, lines, mount), [body or b""])

    async def send(
        self, scope: AsgiScope, chunks: Sequence[bytes], leaves: asyncio.Event | None = None
    ) -> Reply:
        """One exchange; the caller goes away when `leaves` is set."""
        sent: list[Message] = []
        waiting = list(chunks)

        async def receive() -> Message:
            if waiting:
                chunk = waiting.pop(0)
                return {"type": "http.request", "body": chunk, "more_body": bool(waiting)}
            await (leaves or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        if not sent:
            return Reply(0, {}, b"")
        headers = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
        reply = Reply(sent[0]["status"], headers, b"".join(m.get("body", b"") for m in sent[1:]))
        self._check_documented(scope, reply)
        return reply

    def _check_documented(self, scope: AsgiScope, reply: Reply) -> None:
        """Every response of every test has a status, and a code if it is a problem, that the operation documents."""
        path = scope["path"].removeprefix(scope["root_path"]).removesuffix("/") or "/"
        found = [
            operation
            for operation in self.app.operations
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", operation.path), path, re.DOTALL)
            and (
                operation.method == scope["method"]
                or (operation.method, scope["method"]) == ("GET", "HEAD")
            )
        ]
        if not found or "//" in scope["path"]:
            return
        # As the router does: names before parameters, and an operation for HEAD before GET.
        operation = min(found, key=lambda o: (o.path.count("{"), o.method != scope["method"]))
        documented = describe(operation)["responses"]
        assert str(reply.status) in documented, (operation.name, reply)
        if reply.headers.get("content-type") == PROBLEM_TYPE and reply.body:
            schema = documented[str(reply.status)]["content"][PROBLEM_TYPE]["schema"]
            codes = schema["allOf"][1]["properties"]["code"]["enum"]
            assert reply.json()["code"] in codes, (operation.name, reply)

    async def key(self, tenant: str = "-", *scopes: Scope) -> str:
        """A new API key; without scopes, with all of them."""
        _, text = await self.parts.keys.create(tenant=tenant, scopes=scopes or SCOPES)
        return text

    # --- moving its jobs

    async def submit(self, kind: str = "echo", **more: Any) -> str:
        reply = await self.call("POST", "/jobs", json={"kind": kind, **more})
        assert reply.status == 202, reply.body
        job_id: str = reply.json()["jobId"]
        return job_id

    async def claim(self, kind: str = "echo", queue: str = "default") -> Job:
        (claim,) = await self.store.claim("worker-1", [ClaimRequest(queue, (kind,), 1)], 1, 30.0)
        return claim.job

    async def claims(self, kind: str, queue: str = "default") -> list[Claim]:
        return await self.store.claim("worker-1", [ClaimRequest(queue, (kind,), 10)], 10, 30.0)

    async def apply(self, change: Change) -> Job:
        """What a worker changes, the job's owner changes."""
        (before,) = await self.store.get([change.job_id])
        if change.fence is not None and isinstance(before, Job):
            change = replace(change, owner=before.owner)
        (job,) = await self.store.apply([change])
        assert isinstance(job, Job), job
        return job

    async def finish(self, job: Job, result: bytes = b'{"ok":true}', **more: Any) -> Job:
        return await self.apply(
            Succeeded(job_id=job.id, fence=job.fence, result=msgspec.Raw(result), **more)
        )

    async def fail(self, job: Job, code: str = "BROKEN") -> Job:
        error = ErrorInfo(code, "it broke", attempt=job.attempt)
        return await self.apply(Failed(job_id=job.id, fence=job.fence, error=error))

    async def done(self, **more: Any) -> Job:
        """A job that was submitted, run and finished."""
        await self.submit()
        return await self.finish(await self.claim(), **more)

    async def events(self) -> int:
        return len(await self.store.events(limit=100_000))


def scope(method: str, target: str, headers: Mapping[str, str], mount: str = "") -> AsgiScope:
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": mount + unquote(path),
        "root_path": mount,
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()],
    }


def attempt(job_id: str, fence: int) -> AttemptKey:
    """Of the worker that the tests claim for."""
    return attempt_key(Job(job_id, "echo", "default", 0.0, 0.0, fence=fence, owner="worker-1"))
