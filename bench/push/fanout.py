"""One event for 4,000 streams, against a bare loop that writes as many bytes to as many sockets; and their memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.push import listeners
from bench.push.listeners import EventListener
from bench.push.sites import bare, push_site, run, write_to_all
from bench.service import servers
from bench.service.load import Samples
from bench.service.table import Line
from bench.usage import memory

STREAMS = 4000
EVENTS = 5  # per round


def measure(folder: Path, rounds: int) -> list[Line]:
    listeners.allow_files(2 * STREAMS + 1000)
    samples = Samples()
    with push_site(folder / "bide") as site, bare(folder) as plain:
        run(_measure(site, plain, rounds, samples))
    return [
        Line(
            f"one event to {STREAMS} streams : bare loop",
            samples.ratio("bide", "bare"),
            "≤",
            2,
            detail=f"{samples['bide'] * 1000:.0f} : {samples['bare'] * 1000:.0f} ms",
        ),
        Line("memory of an idle stream", samples["memory"] / 1024, "≤", 25, "KiB"),
    ]


class _Arrivals:
    """Counts the streams that have received an event."""

    def __init__(self) -> None:
        self.missing = 0
        self.all = asyncio.Event()

    def on_event(self, number: int, name: bytes) -> None:
        if name.startswith(b"queue"):
            self.missing -= 1
            if not self.missing:
                self.all.set()

    async def after(self, send: Callable[[], object]) -> float:
        """Seconds until all streams have received the event that `send` causes."""
        self.missing = STREAMS
        self.all.clear()
        begin = time.perf_counter()
        sending = asyncio.get_running_loop().run_in_executor(None, send)
        await asyncio.wait_for(self.all.wait(), 60)
        seconds = time.perf_counter() - begin
        await sending
        return seconds


async def _measure(site: servers.Site, plain: servers.Site, rounds: int, samples: Samples) -> None:
    ours, theirs = _Arrivals(), _Arrivals()
    paths = ["/events?type=queue"] * STREAMS
    async with listeners.listening(site.port, paths[:100], ours.on_event):
        pass  # the first connections cost more
    before = memory(site.pid)
    async with listeners.listening(site.port, paths, ours.on_event):
        samples.add("memory", (memory(site.pid) - before) / STREAMS)
        loop = asyncio.get_running_loop()
        connected = [
            await loop.create_connection(
                lambda: EventListener(0, b"listen\n", theirs.on_event), servers.HOST, plain.port
            )
            for _ in range(STREAMS)
        ]
        await asyncio.gather(*(listener.opened for _, listener in connected))
        size = len(_event_of(site))
        paused = True
        for _ in range(rounds):
            for _ in range(EVENTS):
                path = f"/queues/default/{'resume' if paused else 'pause'}"
                paused = not paused
                samples.add("bide", await ours.after(partial(site.ask, "POST", path)))
                samples.add("bare", await theirs.after(lambda: write_to_all(plain, size)))
        for transport, _ in connected:
            transport.abort()


def _event_of(site: servers.Site) -> bytes:
    """About the bytes of one event on the wire."""
    site.ask("POST", "/queues/default/resume")
    site.ask("POST", "/queues/default/pause")
    event = site.ask("GET", "/events?type=queue").body
    return b"event: queue\nid: 0123456789-1\ndata: " + event.partition(b"},{")[0] + b"\n\n"
