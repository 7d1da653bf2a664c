"""What is measured of a tree: CPU seconds per operation, each time with a new process and a new data folder."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.before.load import cpu, send
from bench.before.trees import Tree
from bench.service import servers
from bench.uploads import sending
from bench.uploads.speed import source

WARM_UP = 500  # operations
SUBMISSIONS, DRAINED, ASKED = 20_000, 10_000, 40_000
BATCH = 1000
MIB = 1024 * 1024
LARGE, SMALL, SMALL_ONES = 64 * MIB, 16 * 1024, 600
FEW, MANY = 1000, 100_000  # jobs that are waited for
NOOP = b'{"kind": "noop", "input": {"n": 1}}'


def submit(tree: Tree, folder: Path) -> dict[str, float]:
    """Durable submissions by 32 connections; the queue is paused."""
    with servers.bide(folder, env=tree.env) as site:
        site.ask("POST", "/queues/default/pause")
        send(site.port, "POST", "/jobs", WARM_UP, NOOP)
        before = cpu(site.pid)
        send(site.port, "POST", "/jobs", SUBMISSIONS, NOOP)
        return {"a durable submission": (cpu(site.pid) - before) / SUBMISSIONS}


def drain(tree: Tree, folder: Path) -> dict[str, float]:
    """Jobs of a full queue, run by two workers; the workers count."""
    with servers.bide(folder, env=tree.env) as site:
        _fill(site, WARM_UP)
        _settle(site)
        site.ask("POST", "/queues/default/pause")
        _fill(site, DRAINED)
        last = site.ask("POST", "/jobs", {"kind": "noop", "input": {"n": 0}, "priority": -9}).json()
        before = cpu(site.pid)
        site.ask("POST", "/queues/default/resume")
        site.finish(last["jobId"])
        _settle(site)  # the other worker may still have some
        return {"a drained job": (cpu(site.pid) - before) / (DRAINED + 1)}


def _fill(site: servers.Site, jobs: int) -> None:
    for start in range(0, jobs, BATCH):
        numbers = range(start, min(jobs, start + BATCH))
        batch = [{"kind": "noop", "input": {"n": n}} for n in numbers]
        site.ask("POST", "/jobs/batch", {"jobs": batch})


def _settle(site: servers.Site) -> None:
    """Asks seldom, because what it asks for is measured too."""
    while True:
        (queue,) = site.ask("GET", "/queues").json()["queues"]
        if queue["backlog"] + queue["running"] == 0:
            return
        time.sleep(0.1)


def status(tree: Tree, folder: Path) -> dict[str, float]:
    """`GET /jobs/{id}` of a finished job by 32 connections."""
    with servers.bide(folder, env=tree.env) as site:
        path = f"/jobs/{site.run('noop', n=1)['jobId']}"
        send(site.port, "GET", path, WARM_UP)
        before = cpu(site.pid)
        send(site.port, "GET", path, ASKED)
        return {"a status": (cpu(site.pid) - before) / ASKED}


def upload(tree: Tree, folder: Path) -> dict[str, float]:
    """64 MiB in each way, and many small files."""
    folder.mkdir(parents=True)
    large, sha256 = source(folder, LARGE)
    small = folder / "small"
    small.write_bytes(bytes(SMALL))
    ways: list[Callable[[int, Path, int], str]] = [
        sending.direct,
        sending.form,
        sending.tus,
        sending.chunks,
    ]
    with servers.bide(folder / "bide", workers=1, app="bench.uploads.app:app", env=tree.env) as site:
        for way in ways:
            way(site.port, small, SMALL)
        before = cpu(site.pid)
        for way in ways:
            if way(site.port, large, LARGE) != sha256:
                raise RuntimeError("what arrived is not what was sent")
        between = cpu(site.pid)
        for _ in range(SMALL_ONES):
            sending.direct(site.port, small, SMALL)
        after = cpu(site.pid)
    large.unlink()
    return {
        "64 MiB uploaded": (between - before) / len(ways),
        "16 KiB uploaded": (after - between) / SMALL_ONES,
    }


def poll_few(tree: Tree, folder: Path) -> dict[str, float]:
    return {"a poll, 1,000 waiting": _polls(tree, folder, FEW, one_in=1000)}


def poll_many(tree: Tree, folder: Path) -> dict[str, float]:
    return {"a poll, 100,000 waiting": _polls(tree, folder, MANY, one_in=20)}


def _polls(tree: Tree, folder: Path, jobs: int, one_in: int) -> float:
    """Of the client's process; one answer in `one_in` says that the job has ended."""
    folder.mkdir(parents=True)
    log = folder / "polls.log"
    with _vendor(one_in) as port:
        command = [sys.executable, "-m", "bench.before.polls", f"http://127.0.0.1:{port}", str(jobs)]
        with servers.running(command, log, tree.env) as process:
            code = process.wait(300)
    told = log.read_text().strip()
    if code:
        raise RuntimeError(f"the client ended with {code}: {told[-2000:]}")
    return float(json.loads(told.splitlines()[-1])["cpu"])


@contextmanager
def _vendor(one_in: int) -> Iterator[int]:
    """The port of a status endpoint that costs next to nothing."""
    command = [sys.executable, "-m", "bench.poller.server", str(one_in)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=servers.ROOT
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(10)


PARTS: dict[str, Callable[[Tree, Path], dict[str, float]]] = {
    "submit": submit,
    "drain": drain,
    "status": status,
    "poll-1000": poll_few,
    "poll-100000": poll_many,
    "upload": upload,
}
