"""1,000 listeners of event streams, while the services that they listen to are killed, and replicas take over.

Each listener follows one job with bide's own client until `end`. Afterwards its status events are compared with the log:
each event after its snapshot must have arrived once, in order. A few listeners follow the events of all jobs. Ten WebSockets
follow all jobs, a tenth each; each of their subscriptions counts as a listener.

- SQLite: one service, killed 20 times.
- PostgreSQL: two replicas behind a relay. One is killed in turn, and its listeners continue at the other one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from tests.servers.postgres import Postgres, postgres
from tests.servers.relay import Relay
from tests.servers.service import ServiceProcess

from bench.service.table import Line
from bide import App, AsyncClient, Context
from bide.client.events import JobEvent

app = App()

TARGET = "bench.chaos.listeners:app"
LISTENERS = 1000
OF_ALL = 5
SOCKETS = 10
RETRY = 2.0  # seconds; at most, before a WebSocket connects again
KILLS, SWITCHES = 20, 6
STEPS = 6
PAUSE = 1.5  # seconds from a restart to the next kill
PATIENCE = 600.0
LEASE = 2.0
Entry = tuple[int, str]  # number and time of an event


@app.job(max_losses=20)
async def staged(ctx: Context, seconds: float) -> int:
    for number in range(STEPS):
        await ctx.step(f"part {number}", asyncio.sleep, seconds / STEPS)
    return STEPS


@dataclass
class Heard:
    """What one listener has received."""

    cursor: str | None = None  # of the last event; for WebSockets
    begin: int = 0  # the number of the snapshot
    changed: str = ""  # when the job in the snapshot last changed
    numbers: list[int] = field(default_factory=list)  # of status events
    resets: int = 0
    ended: bool = False


@dataclass
class Outcome:
    missed: int = 0
    repeated: int = 0
    unfinished: int = 0
    resets: int = 0
    events: int = 0
    interruptions: int = 0
    seconds: float = 0.0

    def lines(self, name: str, listeners: int, interruptions: int) -> list[Line]:
        detail = f"{self.events} events, {self.seconds:.0f} s"
        return [
            Line(
                f"{name}: listeners whose stream ended", listeners - self.unfinished, "≥", listeners, ""
            ),
            Line(f"{name}: kills", self.interruptions, "≥", interruptions, ""),
            Line(f"{name}: status events that a listener missed", self.missed, "≤", 0, "", detail),
            Line(f"{name}: status events that a listener got twice", self.repeated, "≤", 0, ""),
            Line(f"{name}: streams that began again with a snapshot", self.resets, "≤", 0, ""),
        ]


def measure(folder: Path) -> list[Line]:
    return asyncio.run(_measure(folder))


async def _measure(folder: Path) -> list[Line]:
    alone = await _on_sqlite(folder / "one")
    lines = alone.lines("SQLite", 2 * LISTENERS + OF_ALL, KILLS)
    with postgres() as server:
        switched = await _on_postgres(folder / "two", server)
    return lines + switched.lines("two replicas", 2 * LISTENERS + OF_ALL, SWITCHES)


async def _on_sqlite(folder: Path) -> Outcome:
    folder.mkdir()
    service = ServiceProcess(folder, TARGET, workers=1)
    service.start()

    async def kill(_: int) -> None:
        await asyncio.to_thread(service.kill)
        await asyncio.to_thread(service.start)

    try:
        return await _trial(service.url, kill, KILLS)
    finally:
        service.stop()


async def _on_postgres(folder: Path, server: Postgres) -> Outcome:
    replicas = []
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        options = ("--store", server.url, "--lease", str(LEASE))
        replicas.append(ServiceProcess(folder / name, TARGET, workers=1, options=options))
    for replica in replicas:
        replica.start()
    relay = Relay(replicas[0].port)

    async def switch(number: int) -> None:
        killed, other = replicas[number % 2], replicas[(number + 1) % 2]
        relay.lead_to(other.port)
        await asyncio.to_thread(killed.kill)
        await asyncio.to_thread(killed.start)

    try:
        return await _trial(f"http://127.0.0.1:{relay.port}", switch, SWITCHES)
    finally:
        relay.end()
        for replica in replicas:
            replica.stop()


async def _trial(url: str, interrupt: Callable[[int], Awaitable[None]], times: int) -> Outcome:
    outcome = Outcome()
    began = time.monotonic()
    async with AsyncClient(url) as client:
        jobs = [
            {"kind": "staged", "input": {"seconds": 2 + 4 * n / LISTENERS}} for n in range(LISTENERS)
        ]
        submitted = await client.submit_many(jobs, idempotency_key="all")  # type: ignore[arg-type]
        ids = [job.id for job in submitted if not isinstance(job, Exception)]
        listeners = [asyncio.create_task(_listen(client, job_id)) for job_id in ids]
        parts = [ids[n::SOCKETS] for n in range(SOCKETS)]
        sockets = [asyncio.create_task(_listen_by_websocket(url, part)) for part in parts]
        over = asyncio.Event()
        of_all = [asyncio.create_task(_listen(client, None, over)) for _ in range(OF_ALL)]
        for number in range(times):
            await asyncio.sleep(PAUSE)
            await interrupt(number)
            outcome.interruptions += 1
        async with asyncio.timeout(PATIENCE):
            heard = await asyncio.gather(*listeners)
            by_socket = await asyncio.gather(*sockets)
        over.set()
        async with asyncio.timeout(60):
            all_heard = await asyncio.gather(*of_all)
        logs = {job_id: await _numbers(client, job_id) for job_id in ids}
    for job_id, one in zip(ids, heard, strict=True):
        _judge(outcome, one, logs[job_id])
    for job_id, one in (pair for part in by_socket for pair in part.items()):
        _judge(outcome, one, logs[job_id])
    everything = sorted(entry for entries in logs.values() for entry in entries)
    for one in all_heard:
        _judge(outcome, one, everything)
    outcome.seconds = time.monotonic() - began
    return outcome


async def _listen(client: AsyncClient, job_id: str | None, over: asyncio.Event | None = None) -> Heard:
    heard = Heard()
    types = () if job_id is not None else ("status",)
    async with aclosing(client.events(job_id, type=types)) as events:
        following: asyncio.Task[None] = asyncio.create_task(_note(heard, events))
        waits = [following] if over is None else [following, asyncio.create_task(over.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if over is not None:
            await asyncio.sleep(3)  # the last events are on their way
            following.cancel()
            heard.ended = True
        else:
            await following
            heard.ended = True
        await asyncio.gather(following, return_exceptions=True)
    return heard


async def _listen_by_websocket(url: str, ids: Sequence[str]) -> dict[str, Heard]:
    """Follow these jobs on one WebSocket until all have ended. Connect again after an interruption."""
    heard = {job_id: Heard() for job_id in ids}
    async with aiohttp.ClientSession() as session:
        while not all(one.ended for one in heard.values()):
            try:
                async with session.ws_connect(f"{url}/ws", protocols=["bide.v1"]) as socket:
                    await _follow(socket, heard)
            except (aiohttp.ClientError, OSError):
                pass
            await asyncio.sleep(random.uniform(0, RETRY))
    return heard


async def _follow(socket: aiohttp.ClientWebSocketResponse, heard: dict[str, Heard]) -> None:
    for job_id, one in heard.items():
        if not one.ended:
            message: dict[str, Any] = {"subscribe": {"jobs": [job_id]}}
            if one.cursor is not None:
                message["after"] = one.cursor
            await socket.send_json(message)
    async for received in socket:
        if received.type is not aiohttp.WSMsgType.TEXT:
            return
        event = msgspec.json.decode(received.data)
        one = heard[event["jobId"]]
        one.cursor = event.get("id", one.cursor)
        if event["type"] == "end":
            one.ended = True
            if all(other.ended for other in heard.values()):
                return
        else:
            changed = event["job"]["updatedAt"] if event["type"] == "snapshot" else event["at"]
            _add(heard[event["jobId"]], event["type"], event.get("id"), changed)


async def _note(heard: Heard, events: object) -> None:
    async for event in events:  # type: ignore[attr-defined]
        assert isinstance(event, JobEvent)
        _add(heard, event.type, event.id, event.at)


def _add(heard: Heard, type_: str, id_: str | None, at: str | None) -> None:
    number = int((id_ or "x-0").partition("-")[2])
    if type_ == "snapshot":
        heard.begin, heard.changed = number, at or ""
    elif type_ == "reset":
        heard.resets += 1
    elif type_ == "status" and number:
        heard.numbers.append(number)


async def _numbers(client: AsyncClient, job_id: str) -> list[Entry]:
    """The numbers and times of the status events of a job, from the log."""
    found = []
    async with aclosing(client.events(job_id, type=("status",), follow=False)) as events:
        async for event in events:
            found.append((int((event.id or "x-0").partition("-")[2]), event.at or ""))
    return found


def _judge(outcome: Outcome, heard: Heard, log: Sequence[Entry]) -> None:
    # A snapshot may be newer than its cursor: it already has the changes up to `changed`, whose events do not follow.
    expected = [number for number, at in log if number > heard.begin and at > heard.changed]
    outcome.events += len(heard.numbers)
    outcome.missed += len(set(expected) - set(heard.numbers))
    outcome.repeated += len(heard.numbers) - len(set(heard.numbers))
    outcome.resets += heard.resets
    if not heard.ended or heard.numbers != sorted(heard.numbers):
        outcome.unfinished += 1
