"""`GET /jobs` and `GET /stats` with many stored jobs: every filter, pairs, empty intersections, deep pages and orders.

Also the status of one job while such queries run and during a bulk action, and the pages of the dashboard.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from urllib.parse import quote

from tests.servers.postgres import postgres

from bench.look import bulk, filling, pages, queries
from bench.look.queries import Sender, path, percentile
from bench.service import servers
from bench.service.servers import Site
from bench.service.table import Line

ROWS = 1_000_000
REPEAT = 7  # requests per round and query
POLLS = 3000
SLICES = 3  # per round, idle and busy in turn
BAR, STATS_BAR, STATUS_BAR, REFUSAL_BAR = 200.0, 150.0, 1.5, 10.0
TARGET = "bench.look.app:app"
SETTINGS = ("shared_buffers=256MB", "max_wal_size=4GB")  # of PostgreSQL
DEEP = 0.6  # where deep pages begin, as a part of the day


def measure(store: str, folder: Path, rounds: int, rows: int = ROWS) -> list[Line]:
    with _site(store, folder, rows) as site:
        sender = Sender(site.port)
        groups = {
            "one filter": [path(text) for text in queries.SINGLE],
            "two filters": [path(text) for text in queries.PAIRS],
            "empty intersections": [path(text) for text in queries.EMPTY],
            "deep pages": _deep(sender),
            "other orders": [path(text) for text in queries.ORDERS],
            "with count": [f"{path(text)}&count=true" for text in queries.COUNTS],
        }
        lines = [
            _line(f"{store}: lists, {what}, p95", sender, targets, rounds, BAR)
            for what, targets in groups.items()
        ]
        stats = [f"/stats?{text}" for text in queries.STATS]
        lines.append(_line(f"{store}: /stats of 24 h, p95", sender, stats, rounds, STATS_BAR))
        lines.append(_refusals(store, site, rounds))
        lines.append(_status(store, site, sender, rounds))
        lines += pages.measure(store, site)
        lines.append(bulk.measure(store, site, rows, rounds))
    return lines


@contextmanager
def _site(store: str, folder: Path, rows: int) -> Iterator[Site]:
    begin = time.monotonic()
    if store == "sqlite":
        filling.fill_sqlite(folder / "bide" / "data" / "bide.db", rows)
        print(f"{rows:,} jobs took {time.monotonic() - begin:.0f} s to make", flush=True)
        with servers.bide(folder / "bide", app=TARGET) as site:
            yield site
        return
    with postgres(str(folder), settings=SETTINGS) as server:
        filling.fill_postgres(server.url, rows)
        print(f"{rows:,} jobs took {time.monotonic() - begin:.0f} s to make", flush=True)
        with servers.bide(folder / "bide", app=TARGET, options=("--store", server.url)) as site:
            yield site


def _deep(sender: Sender) -> list[str]:
    """Pages that begin far behind the first one."""
    middle = datetime.fromtimestamp(time.time() - DEEP * filling.DAY, UTC).isoformat()
    found = []
    for text in (
        "",
        "kind=transcode",
        "status=DONE",
        "label=team:ops",
        "q=label.team:ops label.env:dev",
        "code=TIMEOUT",
    ):
        target = f"{path(text)}&createdBefore={quote(middle)}"
        cursor = json.loads(sender.get(target)[1])["next"]
        found += [target, f"{path(text)}&cursor={cursor}", f"{path(text)}&order=oldest&cursor={cursor}"]
    return found


def _line(what: str, sender: Sender, targets: Sequence[str], rounds: int, bar: float) -> Line:
    taken: dict[str, list[float]] = {target: [] for target in targets}
    for _ in range(REPEAT * rounds):
        for target in targets:
            taken[target].append(sender.get(target)[0] * 1000)
    every = [value for values in taken.values() for value in values]
    slowest = max(taken, key=lambda target: percentile(taken[target], 0.95))
    detail = f"p50 {percentile(every, 0.5):.1f}; slowest p95 {percentile(taken[slowest], 0.95):.0f} ms: {slowest}"
    worst = percentile(taken[slowest], 0.95)  # each query is within the limit, not only their mixture
    return Line(what, worst, "≤", bar, "ms", detail)


def _refusals(store: str, site: Site, rounds: int) -> Line:
    """Queries that are too large: the slowest response, each on a new connection. The requests are made before, because an
    HTTP client needs milliseconds to check an address of 1 MB.
    """
    requests: dict[str, bytes] = {}
    for what, text in queries.LARGE.items():
        requests[f"GET {what}"] = (
            b"GET /jobs?q=%b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % quote(text).encode()
        )
        body = json.dumps({"action": "retry", "filter": {"q": text}}).encode()
        head = "POST /bulk HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        requests[f"POST {what}"] = head.encode() + b"%d\r\n\r\n" % len(body) + body
    taken: dict[str, list[float]] = {}
    for _ in range(REPEAT * rounds):
        for what, request in requests.items():
            with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
                begin = time.perf_counter()
                with suppress(BrokenPipeError):  # the service need not read all of it
                    connection.sendall(request)
                answer = connection.recv(65536)
                seconds = time.perf_counter() - begin
            status = int(answer.split()[1])
            taken.setdefault(f"{what}: {status}", []).append(seconds)
            if not 400 <= status < 500:
                raise RuntimeError(f"{what} was answered with {status}")
    slowest = max(taken, key=lambda what: percentile(taken[what], 0.5))
    worst = percentile(taken[slowest], 0.5) * 1000
    return Line(f"{store}: refusal of a large query, median", worst, "≤", REFUSAL_BAR, "ms", slowest)


def _status(store: str, site: Site, sender: Sender, rounds: int) -> Line:
    job_id = json.loads(sender.get("/jobs?limit=1")[1])["jobs"][0]["jobId"]

    def polls() -> float:
        return percentile([sender.get(f"/jobs/{job_id}")[0] for _ in range(POLLS)], 0.99) * 1000

    def compare(rate: int) -> tuple[float, str]:
        """The ratio of the p99 while queries run to that of an idle service, and what it was made of."""
        pairs = []
        for _ in range(SLICES * rounds):
            idle = polls()
            command = [sys.executable, "-m", "bench.look.queries", str(site.port), str(rate)]
            with servers.running(command, site.data.parent / "queries.log"):
                time.sleep(0.5)
                pairs.append((polls(), idle))
        loaded, idle = (median(values) for values in zip(*pairs, strict=True))
        ratio = median(loaded / idle for loaded, idle in pairs)
        return ratio, f"{loaded:.2f} : {idle:.2f} ms; medians of {len(pairs)} pairs"

    polls()
    ratio, detail = compare(queries.RATE)
    always, of = compare(0)
    detail += f". Not the bar: while a query runs at every moment {always:.2f} × ({of})"
    what = f"{store}: status p99 while {queries.RATE} queries per second run : idle"
    return Line(what, ratio, "≤", STATUS_BAR, detail=detail)
