"""Misbehaving clients (slow, half-open, disconnected, or sending invalid bytes) while a normal client requests a status."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.service.table import Line
from bench.usage import memory
from bide import App

app = App()

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@app.job()
def quick() -> int:
    return 1


@app.job()
def large(size: int) -> str:
    return "x" * size


@app.job()
def gate(path: str) -> str:
    """Run until the file exists."""
    while not Path(path).exists():
        time.sleep(0.01)
    return "open"


# --- the service


class Served:
    """A service in a separate process, with a log to read afterwards."""

    def __init__(self, folder: Path, *, files: int | None = None, **http: float) -> None:
        self.log = folder / "serve.log"
        self._command = [sys.executable, "-m", "bench.chaos.http", "serve", str(folder / "data")]
        self._command.append(json.dumps(http))
        if files is not None:  # that it may have open
            self._command = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *self._command]
        self.port = 0

    @contextmanager
    def running(self) -> Iterator[Served]:
        with self.log.open("w") as log:
            process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        self.pid = process.pid
        try:
            found = re.search(r":(\d+)$", process.stdout.readline().strip())
            if found is None:
                raise RuntimeError(f"the service did not start: {self.log.read_text()}")
            self.port = int(found[1])
            yield self
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            finally:
                process.stdout.close()

    @property
    def rss(self) -> int:
        """Bytes in memory."""
        return memory(self.pid)

    @property
    def files(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    @property
    def complaints(self) -> list[str]:
        """The lines that must not be in the log."""
        text = self.log.read_text()
        return [line for line in text.splitlines() if "Traceback" in line or " ERROR " in line]

    async def connect(self) -> Pair:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(
        self, method: str, path: str, body: Any = None, headers: str = ""
    ) -> tuple[int, bytes]:
        """Send one request on a new connection."""
        text = b"" if body is None else json.dumps(body).encode()
        media = f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n" if text else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{media}{headers}\r\n"
        )
        answer = await self.say(head.encode() + text)
        return status_of(answer), answer.partition(b"\r\n\r\n")[2]

    async def say(self, data: bytes, *, patience: float = 30) -> bytes:
        """Send these bytes and return all bytes received until the connection is closed."""
        reader, writer = await self.connect()
        return await exchange((reader, writer), data, patience)

    async def submit(self, kind: str, **input: object) -> str:
        status, body = await self.ask("POST", "/jobs", {"kind": kind, "input": input})
        assert status == 202, body
        return str(json.loads(body)["jobId"])

    async def long_polls(self) -> int:
        _, body = await self.ask("GET", "/metrics")
        found = re.search(rb"^bide_long_polls (\d+)", body, flags=re.MULTILINE)
        assert found is not None
        return int(found[1])

    async def until_long_polls(self, number: int, patience: float = 20) -> bool:
        end = time.monotonic() + patience
        while await self.long_polls() != number:
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.05)
        return True


async def exchange(pair: Pair, data: bytes, patience: float = 30) -> bytes:
    reader, writer = pair
    try:
        async with asyncio.timeout(patience):
            try:
                writer.write(data)
                return await reader.read()
            except OSError:
                return b""  # reset, perhaps after a part of the response
    finally:
        await leave(pair)


async def leave(pair: Pair) -> None:
    pair[1].transport.abort()
    await asyncio.sleep(0)


def status_of(answer: bytes) -> int:
    """The status; 0 for a connection that was closed without a response."""
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    return int(found[1]) if found else 0


def poll(job_id: str, wait: int = 60) -> bytes:
    return f"GET /jobs/{job_id} HTTP/1.1\r\nHost: localhost\r\nPrefer: wait={wait}\r\n\r\n".encode()


async def answer_of(pair: Pair) -> tuple[int, dict[str, Any]]:
    """Read one response from a connection that stays open."""
    head = await pair[0].readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    body = await pair[0].readexactly(int(length[1])) if length else b"{}"
    return status_of(head), json.loads(body or b"{}")


# --- the load

HALF_OPEN = b""
SLOW_HEAD = b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
SLOW_BODY = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"


class Crowd:
    """Connections that never finish their request; a third of them sends nothing."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.pairs: list[Pair] = []
        self._trickling: list[asyncio.StreamWriter] = []
        self._task: asyncio.Task[None] | None = None

    async def gather(self, size: int) -> None:
        beginnings = (HALF_OPEN, SLOW_HEAD, SLOW_BODY)
        for start in range(0, size, 100):
            opened = await asyncio.gather(
                *(self._served.connect() for _ in range(min(100, size - start)))
            )
            for number, pair in enumerate(opened, start):
                beginning = beginnings[number % 3]
                pair[1].write(beginning)
                if beginning:
                    self._trickling.append(pair[1])
            self.pairs += opened
        self._task = asyncio.create_task(self._trickle())

    async def _trickle(self) -> None:
        """Send one byte per second on each connection."""
        while True:
            for number, writer in enumerate(self._trickling):
                if not writer.transport.is_closing():
                    writer.write(b"x")
                if number % 20 == 0:
                    await asyncio.sleep(20 / max(1, len(self._trickling)))
            await asyncio.sleep(0.05)

    async def until_cut(self, patience: float) -> int:
        """Return how many are still open."""

        async def cut(pair: Pair) -> None:
            try:
                while await pair[0].read(4096):
                    pass
            except OSError:
                pass

        waiting = [asyncio.create_task(cut(pair)) for pair in self.pairs]
        _, open_still = await asyncio.wait(waiting, timeout=patience)
        for task in open_still:
            task.cancel()
        return len(open_still)

    async def leave(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for pair in self.pairs:
            pair[1].transport.abort()
        await asyncio.sleep(0.1)


# --- the normal client


async def latencies(port: int, job_id: str, requests: int) -> list[float]:
    """Seconds of each of `requests` status requests over four connections."""
    request = f"GET /jobs/{job_id} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    took: list[float] = []

    async def one(number: int) -> None:
        pair = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(number):
            begin = time.perf_counter()
            pair[1].write(request)
            status, _ = await answer_of(pair)
            took.append(time.perf_counter() - begin)
            assert status == 200
        await leave(pair)

    await asyncio.gather(*(one(requests // 4) for _ in range(4)))
    return took


async def measured_p99(port: int, job_id: str, requests: int) -> float:
    """Run in a separate process, so that the load slows down only the service."""
    command = [sys.executable, "-m", "bench.chaos.http", "measure", str(port), job_id, str(requests)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    return float(output)


# --- invalid requests

_GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

NONSENSE: dict[str, bytes] = {
    "noise": bytes(range(256)) * 20,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "version 3": b"GET /healthz HTTP/3.0\r\n\r\n",
    "no path": b"GET  HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "request, then noise": _GET + b"\x00\xff\x00\xff nonsense\r\n\r\n" * 50,
    "NUL in the path": b"GET /jobs/a\x00b HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bytes in the path": b"GET /jobs/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "NUL in a header": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: a\x00b\r\n\r\n",
    "space before the colon": b"GET /healthz HTTP/1.1\r\nHost : x\r\n\r\n",
    "lengths that differ": b"POST /jobs HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "negative length": b"POST /jobs HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "no number": b"POST /jobs HTTP/1.1\r\nContent-Length: 0x10\r\n\r\n",
    "a huge length": b"POST /jobs HTTP/1.1\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
    "length and chunks": b"POST /jobs HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"0\r\n\r\n" + _GET,
    "chunks and length": b"POST /jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
    b"0\r\n\r\n" + _GET,
    "chunked, but not last": b"POST /jobs HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "a coding that is none": b"POST /jobs HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a bad chunk": b"POST /jobs HTTP/1.1\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a huge chunk": b"POST /jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\n",
    "many headers": b"GET /healthz HTTP/1.1\r\n" + b"X-A: a\r\n" * 1000 + b"\r\n",
    "a long header": b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 200_000 + b"\r\n\r\n",
    "an endless header": b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 2_000_000,
    "a long path": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


WELL_BEGUN = ("request, then noise",)


def judge_nonsense(name: str, answer: bytes) -> str | None:
    """Return the error in this response to an invalid request, if any."""
    statuses = [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]
    allowed = {200, 400} if name in WELL_BEGUN else {400, 413, 415, 431}
    if any(status not in allowed for status in statuses):
        return f"{name}: answered {statuses}"
    return f"{name}: answered twice" if len(statuses) > (2 if 200 in allowed else 1) else None


# --- the trial


@dataclass
class Report:
    alone: list[float] = field(default_factory=list)
    crowded: list[float] = field(default_factory=list)
    rss: dict[str, int] = field(default_factory=dict)
    answered_in: float = 0.0
    cut_in: float = 0.0
    violations: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(self.crowded) / statistics.median(self.alone)

    @property
    def growth(self) -> int:
        """The increase from the idle service to the highest value."""
        return max(self.rss.values()) - self.rss["quiet"]


async def trial(
    folder: Path, *, slow: int, polls: int, requests: int, rounds: int = 3, timeout: float = 10
) -> Report:
    report = Report()
    _allow_files(slow + polls + 500)
    served = Served(folder, request_timeout=timeout)
    with served.running():
        await _crowded(served, report, folder / "gate", slow, polls, (requests, rounds, timeout))
        for name, data in NONSENSE.items():
            violation = judge_nonsense(name, await served.say(data, patience=timeout + 10))
            report.violations += [violation] if violation else []
        report.rss["after nonsense"] = served.rss
        if (await served.ask("GET", "/healthz"))[0] != 200:
            report.violations.append("the service is not healthy afterwards")
    report.violations += served.complaints
    return report


async def _crowded(
    served: Served, report: Report, opened: Path, slow: int, polls: int, pace: tuple[int, int, float]
) -> None:
    requests, rounds, timeout = pace
    status = await served.submit("quick")
    held = await served.submit("gate", path=str(opened))
    await latencies(served.port, status, requests)
    report.rss["quiet"], files = served.rss, served.files
    for _ in range(rounds):
        report.alone.append(await measured_p99(served.port, status, requests))
    waiting = await _wait_for(served, held, polls)
    if not await served.until_long_polls(polls):
        report.violations.append(f"{await served.long_polls()} of {polls} long polls are known")
    crowd = Crowd(served)
    gathered = time.monotonic()
    await crowd.gather(slow)
    for _ in range(rounds):
        report.crowded.append(await measured_p99(served.port, status, requests))
    report.rss["crowded"] = served.rss
    if served.files < files + slow + polls - 10:
        report.violations.append(f"only {served.files - files} of {slow + polls} connections were open")
    await _end_polls(served, report, waiting, opened)
    still = await crowd.until_cut(timeout + 10)
    report.cut_in = time.monotonic() - gathered
    if still:
        report.violations.append(f"{still} slow connections are open after {report.cut_in:.0f} s")
    # Slow clients do not disconnect on request, so the service must.
    end = time.monotonic() + 8
    while served.files > files + 10 and time.monotonic() < end:
        await asyncio.sleep(0.1)
    if served.files > files + 10:
        report.violations.append(f"{served.files - files} connections were never closed")
    await crowd.leave()
    report.rss["after"] = served.rss
    for _ in range(rounds - 1):
        report.alone.append(await measured_p99(served.port, status, requests))


async def _wait_for(served: Served, job_id: str, polls: int) -> list[Pair]:
    waiting: list[Pair] = []
    for start in range(0, polls, 100):
        pairs = await asyncio.gather(*(served.connect() for _ in range(min(100, polls - start))))
        for pair in pairs:
            pair[1].write(poll(job_id))
        waiting += pairs
    return waiting


async def _end_polls(served: Served, report: Report, waiting: list[Pair], opened: Path) -> None:
    """A fifth of the clients disconnect; the others get a response."""
    leaving, staying = waiting[: len(waiting) // 5], waiting[len(waiting) // 5 :]
    for pair in leaving:
        pair[1].transport.abort()
    if not await served.until_long_polls(len(staying)):
        report.violations.append(f"{await served.long_polls()} watches, {len(staying)} callers")
    opened.touch()
    begin = time.monotonic()
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*map(answer_of, staying))
    report.answered_in = time.monotonic() - begin
    wrong = [a for a in answers if a[0] != 200 or a[1].get("status") != "DONE"]
    if wrong:
        report.violations.append(f"{len(wrong)} long polls got something else: {wrong[0]}")
    for pair in staying:
        pair[1].transport.abort()
    if not await served.until_long_polls(0):
        report.violations.append(f"{await served.long_polls()} watches are left over")


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


# --- the command


def _serve(data: str, http: str) -> None:
    from bide.server.config import Config, HttpConfig, WorkerConfig
    from bide.server.worker.app_location import parse
    from bide.service.serve import serve

    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    location = parse("bench.chaos.http:app")
    settings = HttpConfig(port=0, **json.loads(http))
    config = Config(data=Path(data), http=settings, worker=WorkerConfig(workers=1, drain=2))
    serve(location.load(), location, config, listening=lambda url: print(url, flush=True))


def _measure(port: str, job_id: str, requests: str) -> None:
    took = sorted(asyncio.run(latencies(int(port), job_id, int(requests))))
    print(took[int(len(took) * 0.99)])


def measure(folder: Path) -> list[Line]:
    slow, polls, timeout = 2000, 1000, 10.0
    report = asyncio.run(trial(folder, slow=slow, polls=polls, requests=2000, timeout=timeout))
    for violation in report.violations[:20]:
        print("  " + violation)
    alone, crowded = (statistics.median(x) * 1000 for x in (report.alone, report.crowded))
    p99 = f"{crowded:.2f} ms : {alone:.2f} ms alone"
    told = f"{polls - polls // 5} get a response; the others have disconnected"
    return [
        Line("status p99 in the crowd", report.ratio, "≤", 2, detail=p99),
        Line("memory that it took", report.growth / 2**20, "≤", 100, "MB"),
        Line(f"{polls} long polls, notified within", report.answered_in, "≤", 10, "s", told),
        Line(f"{slow} slow connections, cut within", report.cut_in, "≤", timeout + 5, "s"),
        Line("other violations", len(report.violations), "≤", 0, ""),
    ]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", data, http]:
            _serve(data, http)
        case ["measure", port, job_id, requests]:
            _measure(port, job_id, requests)
