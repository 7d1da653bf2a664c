"""A stub server in front of a service: it passes HTTP on, and answers `/ws` with many events about given jobs."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455
TICK = 0.02  # seconds


class Stub:
    """`sent`: how many events the browser got."""

    def __init__(self, service: int, jobs: Sequence[dict[str, Any]], rate: int) -> None:
        self.port = 0
        self.sent = 0
        self._service = service
        self._jobs = jobs
        self._rate = rate
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /ws"):
                await self._flood(head, writer)
                return
            from_service, to_service = await asyncio.open_connection("127.0.0.1", self._service)
            to_service.write(head)
            await asyncio.gather(_pipe(reader, to_service), _pipe(from_service, writer))

    async def _flood(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        lines = (line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        key = next(value for name, value in lines if name.lower() == b"sec-websocket-key")
        accept = base64.b64encode(hashlib.sha1(key + GUID, usedforsecurity=False).digest())
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\nSec-WebSocket-Protocol: bide.v1\r\n\r\n" % accept
        )
        begin, self.sent = time.monotonic(), 0
        while not writer.is_closing():
            due = int((time.monotonic() - begin) * self._rate)
            for number in range(self.sent, due):
                if writer.is_closing():
                    return
                writer.write(_frame(self._event(number)))
            self.sent = due
            await writer.drain()
            await asyncio.sleep(TICK)

    def _event(self, number: int) -> bytes:
        job = self._jobs[number % len(self._jobs)]
        progress = {
            "percent": number % 100,
            "message": "Working",
            "step": None,
            "done": number % 900,
            "total": 900,
            "unit": "parts",
        }
        changed: dict[str, Any] = {
            name: job[name] for name in ("kind", "queue", "labels") if name in job
        }
        changed |= {"status": "PROCESSING", "version": 100 + number, "progress": progress}
        kind = "progress" if number % 3 else "status"
        event = {"id": f"stub-{number}", "type": kind, "jobId": job["jobId"], "job": changed}
        return json.dumps(event).encode()


@contextmanager
def flooding(service: int, jobs: Sequence[dict[str, Any]], rate: int) -> Iterator[Stub]:
    stub = Stub(service, jobs, rate)
    stub.start()
    try:
        yield stub
    finally:
        stub.stop()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def _frame(text: bytes) -> bytes:
    size = len(text)
    length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
    return b"\x81" + length + text
