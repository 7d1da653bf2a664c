"""The workloads: CPU seconds per operation, each round with a new process and a new data folder. `latency` measures
seconds of a clock instead.

A workload is entered once per round and tree, and then called several times; each call is a slice of the round. Slices of
both trees alternate, so that a machine that becomes slower or faster for a while does so for both.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.before.load import send
from bench.before.trees import Tree
from bench.service import servers
from bench.uploads import sending
from bench.uploads.speed import source
from bench.usage import cpu_of_all

WARM_UP = 500  # operations
SUBMISSIONS, DRAINED, ASKED = 1000, 500, 2000  # per slice
ONE_BY_ONE = 30  # jobs of a slice, each after the result of the one before
LATENCY = "a job from submit to result()"  # in seconds of a clock
MIB = 1024 * 1024
LARGE, SMALL, SMALL_ONES = 64 * MIB, 16 * 1024, 600
FEW, MANY = 1000, 100_000  # jobs that the client waits for
POLL_SLICES, POLL_SECONDS = 16, 0.2  # the last slice has no limit
Costs = dict[str, tuple[float, int]]  # CPU seconds and number of operations, by operation
Slice = Callable[[], Costs]
NOOP = b'{"kind": "noop", "input": {"n": 1}}'


@contextmanager
def submit(tree: Tree, folder: Path) -> Iterator[Slice]:
    """Durable submissions by 32 connections; the queue is paused."""

    def a_slice() -> Costs:
        before = cpu_of_all(site.pid)
        send(site.port, "POST", "/jobs", SUBMISSIONS, NOOP)
        return {"a durable submission": (cpu_of_all(site.pid) - before, SUBMISSIONS)}

    with servers.bide(folder, env=tree.env) as site:
        site.ask("POST", "/queues/default/pause")
        send(site.port, "POST", "/jobs", WARM_UP, NOOP)
        yield a_slice


@contextmanager
def drain(tree: Tree, folder: Path) -> Iterator[Slice]:
    """Jobs of a full queue, run by two workers; the workers count."""

    def a_slice() -> Costs:
        site.ask("POST", "/queues/default/pause")
        _fill(site, DRAINED)
        before = cpu_of_all(site.pid)
        site.ask("POST", "/queues/default/resume")
        _settle(site)
        return {"a drained job": (cpu_of_all(site.pid) - before, DRAINED)}

    with servers.bide(folder, env=tree.env) as site:
        _fill(site, WARM_UP)
        _settle(site)
        yield a_slice


def _fill(site: servers.Site, jobs: int) -> None:
    batch = [{"kind": "noop", "input": {"n": number}} for number in range(jobs)]
    site.ask("POST", "/jobs/batch", {"jobs": batch})


def _settle(site: servers.Site) -> None:
    """Polls rarely, because the responses are part of the measured time."""
    while True:
        (queue,) = site.ask("GET", "/queues").json()["queues"]
        if queue["backlog"] + queue["running"] == 0:
            return
        time.sleep(0.1)


@contextmanager
def status(tree: Tree, folder: Path) -> Iterator[Slice]:
    """`GET /jobs/{id}` of a finished job by 32 connections."""

    def a_slice() -> Costs:
        before = cpu_of_all(site.pid)
        send(site.port, "GET", path, ASKED)
        return {"a status": (cpu_of_all(site.pid) - before, ASKED)}

    with servers.bide(folder, env=tree.env) as site:
        path = f"/jobs/{site.run('noop', n=1)['jobId']}"
        send(site.port, "GET", path, WARM_UP)
        yield a_slice


@contextmanager
def upload(tree: Tree, folder: Path) -> Iterator[Slice]:
    """64 MiB with each upload protocol, and many small files."""
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

    def a_slice() -> Costs:
        before = cpu_of_all(site.pid)
        for way in ways:
            if way(site.port, large, LARGE) != sha256:
                raise RuntimeError("the received file differs from the sent one")
        between = cpu_of_all(site.pid)
        for _ in range(SMALL_ONES):
            sending.direct(site.port, small, SMALL)
        after = cpu_of_all(site.pid)
        return {
            "64 MiB uploaded": (between - before, len(ways)),
            "16 KiB uploaded": (after - between, SMALL_ONES),
        }

    with servers.bide(folder / "bide", workers=1, app="bench.uploads.app:app", env=tree.env) as site:
        for way in ways:
            way(site.port, small, SMALL)
        yield a_slice


@contextmanager
def latency(tree: Tree, folder: Path) -> Iterator[Slice]:
    """One job at a time at an idle service, from `submit` to the return of `result()`."""

    def a_slice() -> Costs:
        return {LATENCY: (float(ask(client)), ONE_BY_ONE)}

    def ask(client: subprocess.Popen[str]) -> str:
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write("\n")
        client.stdin.flush()
        return client.stdout.readline()

    with servers.bide(folder, env=tree.env) as site:
        url = f"http://127.0.0.1:{site.port}"
        with subprocess.Popen(
            [sys.executable, "-m", "bench.before.latency", url, str(ONE_BY_ONE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=servers.ROOT,
            env={**os.environ, **tree.env},
        ) as client:
            assert client.stdin is not None and client.stdout is not None
            client.stdout.readline()
            yield a_slice
            client.stdin.close()
            client.wait(10)


def poll_few(tree: Tree, folder: Path) -> AbstractContextManager[Slice]:
    return _polls("a poll, 1,000 waiting", tree, folder, FEW, one_in=1000)


def poll_many(tree: Tree, folder: Path) -> AbstractContextManager[Slice]:
    return _polls("a poll, 100,000 waiting", tree, folder, MANY, one_in=20)


@contextmanager
def _polls(what: str, tree: Tree, folder: Path, jobs: int, one_in: int) -> Iterator[Slice]:
    """Of the client's process, which is stopped between slices; one response in `one_in` says that the job has ended."""
    folder.mkdir(parents=True)
    log = folder / "polls.log"
    left = POLL_SLICES

    def a_slice() -> Costs:
        nonlocal left
        left -= 1
        process.send_signal(signal.SIGCONT)
        if left:
            time.sleep(POLL_SECONDS)
            process.send_signal(signal.SIGSTOP)
            return {}
        if code := process.wait(300):
            raise RuntimeError(f"the client ended with {code}: {log.read_text()[-2000:]}")
        result = json.loads(log.read_text().strip().splitlines()[-1])
        return {what: (result["cpu"] * result["polls"], result["polls"])}

    with _vendor(one_in) as port:
        command = [sys.executable, "-m", "bench.before.polls", f"http://127.0.0.1:{port}", str(jobs)]
        with servers.running(command, log, tree.env) as process:
            while _state(process.pid) not in "TZ":  # stopped after its warm-up
                time.sleep(0.05)
            yield a_slice


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def _vendor(one_in: int) -> Iterator[int]:
    """The port of a status endpoint with hardly any cost."""
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


Workload = Callable[[Tree, Path], AbstractContextManager[Slice]]
# Each part with the number of slices of a round.
PARTS: dict[str, tuple[Workload, int]] = {
    "submit": (submit, 20),
    "drain": (drain, 20),
    "status": (status, 20),
    "latency": (latency, 20),
    "poll-1000": (poll_few, POLL_SLICES),
    "poll-100000": (poll_many, POLL_SLICES),
    "upload": (upload, 1),
}
