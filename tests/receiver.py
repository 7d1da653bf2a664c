"""A receiver of webhooks: verifies every message with `standardwebhooks`, and answers as the test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError


@dataclass
class Message:
    """A message that was received, and the response to it."""

    id: str
    timestamp: int
    body: dict[str, Any]
    path: str
    status: int = 0

    @property
    def job_id(self) -> str | None:
        job_id: str | None = self.body["data"]["jobId"]
        return job_id

    @property
    def job_status(self) -> str:
        status: str = self.body["data"]["job"]["status"]
        return status


Answer = Callable[[Message], web.StreamResponse | int | None]


@dataclass
class Receiver:
    """Answers 204, unless `answer` returns another status or response. `hangs`: it does not answer."""

    url: str = ""
    secrets: list[str] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    answer: Answer | None = None
    hangs: asyncio.Event | None = None
    # Whether the sender uses the real time, so that the library verifies all of a message.
    real_time: bool = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        message = Message(
            request.headers["webhook-id"],
            int(request.headers["webhook-timestamp"]),
            json.loads(body),
            request.path,
        )
        if self.real_time:
            self.verify_all(body, dict(request.headers))
        else:
            self.verify(message, body, request.headers["webhook-signature"])
        self.messages.append(message)
        if self.hangs is not None:
            await self.hangs.wait()
        found = None if self.answer is None else self.answer(message)
        if isinstance(found, web.StreamResponse):
            message.status = found.status
            return found
        message.status = found or 204
        return web.Response(status=message.status)

    def verify_all(self, body: bytes, headers: dict[str, str]) -> None:
        lower = {name.lower(): value for name, value in headers.items()}
        assert any(_accepts(secret, body, lower) for secret in self.secrets), "the signature is wrong"

    def verify(self, message: Message, body: bytes, signatures: str) -> None:
        """Raise if none of the secrets has signed the message. The library checks the timestamp against the real time, so
        with a manual clock only its signature is compared.
        """
        at = datetime.fromtimestamp(message.timestamp, UTC)
        expected = {Webhook(secret).sign(message.id, at, body.decode()) for secret in self.secrets}
        assert expected & set(signatures.split(" ")), "the signature is wrong"
        assert "." not in message.id

    @property
    def ids(self) -> list[str]:
        return [message.id for message in self.messages]

    def statuses(self, job_id: str) -> list[str]:
        return [m.job_status for m in self.messages if m.job_id == job_id]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Receiver]:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post("/{tail:.*}", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server = runner.addresses[0]
        self.url = f"http://127.0.0.1:{server[1]}/hook"
        try:
            yield self
        finally:
            if self.hangs is not None:
                self.hangs.set()
            await runner.cleanup()


def _accepts(secret: str, body: bytes, headers: dict[str, str]) -> bool:
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return False
    return True
