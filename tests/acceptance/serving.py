"""A `bide serve` process under faults: in its own mount namespace, with limits, and with its log in a file."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.servers.service import ServiceProcess, importing
from tests.waiting import until

T = TypeVar("T")
LIVE = ("PENDING", "PROCESSING", "RETRYING")

TASKS = """
import os, time
from pathlib import Path
from bide import App, Context, File, JobError, Partial

app = App(queues={"default": 2})

def mark(ctx: Context, step: str) -> str:
    with Path(os.environ["MARKS"]).open("a") as file:
        file.write(f"{ctx.job_id} {step}\\n")
    return step * 10

@app.job(retention=None)
def work(ctx: Context, number: int, seconds: float = 0.0) -> int:
    ctx.step("first", mark, ctx, "first")
    time.sleep(min(seconds, float(os.environ.get("LONGEST", "60"))))
    ctx.step("second", mark, ctx, "second")
    return number

@app.job(retention=None)
def family(ctx: Context, number: int, seconds: float = 0.0) -> int:
    return sum(ctx.gather(*[ctx.spawn("work", number=number + i, seconds=seconds) for i in range(2)]))

@app.job(retries=100, backoff=0.05, backoff_cap=0.1, retention=None)
def paint(ctx: Context, size: int) -> int:
    ctx.output("picture.bin", bytes(size))
    return size

@app.job(retention=None)
def weigh(ctx: Context, picture: File) -> int:
    return picture.path.stat().st_size

@app.job(retention=None)
def deliver(ctx: Context, picture: File, go: str, gather: bool) -> int:
    # Spawns when the file is there.
    mark(ctx, "ready")
    while not Path(go).exists():
        time.sleep(0.02)
    child = ctx.spawn("weigh", picture=picture)
    return ctx.gather(child)[0] if gather else 0

@app.job(retention=None)
def march(ctx: Context, orders: str) -> int:
    # Reports as many steps as the file says, and ends when it is gone.
    last = 0
    while Path(orders).exists():
        if (step := int(Path(orders).read_text())) != last:
            ctx.progress(step, 100, unit="steps")
            last = step
        time.sleep(0.02)
    return 1

@app.job(retention=None)
def fail(ctx: Context) -> None:
    raise JobError("BROKEN", "on purpose", retryable=False)

@app.job(retention=None)
def half(ctx: Context) -> Partial:
    return Partial({"done": 1}, errors=[{"code": "MISSING", "message": "the other half"}])

@app.job(retries=1, backoff=600.0, retention=None)
def heal(ctx: Context) -> str:
    if ctx.attempt == 1:
        raise JobError("NOT_YET", "try again later")
    return "healed"

@app.job(queue="other", retention=None)
def rest(ctx: Context) -> str:
    return "rested"

@app.job(retention=None)
def crash(ctx: Context) -> None:
    os.kill(os.getpid(), 9)
"""

STEPPED = """
import os, time
from pathlib import Path
_time = time.time
time.time = lambda: _time() + float(Path(os.environ["CLOCK_STEP"]).read_text())
"""

BOOTED = """
import os, time
_ahead, _monotonic, _gettime = float(os.environ["CLOCK_AHEAD"]), time.monotonic, time.clock_gettime
_since_boot = (time.CLOCK_MONOTONIC, getattr(time, "CLOCK_BOOTTIME", None))
time.monotonic = lambda: _monotonic() + _ahead
time.clock_gettime = lambda clock: _gettime(clock) + (_ahead if clock in _since_boot else 0.0)
"""


class Serving(ServiceProcess):
    """`prefix` is a command that runs another one; the service is that one."""

    def __init__(
        self,
        folder: Path,
        *,
        prefix: Sequence[str] = (),
        data: Path | None = None,
        env: dict[str, str] | None = None,
        drain: float = 2.0,
    ) -> None:
        (folder / "tasks.py").write_text(TASKS)
        self.marks = folder / "marks"
        env = {**importing(folder), "MARKS": str(self.marks), **(env or {})}
        super().__init__(folder, "tasks:app", env=env)
        self.data = data or self.data
        self._prefix = prefix
        self._drain = drain
        self._said = folder / "serve.err"

    def command(self) -> list[str]:
        command = [*self._prefix, sys.executable, "-m", "bide", "serve", self.target]
        command += ["--port", str(self.port), "--data", str(self.data), "--drain", str(self._drain)]
        return [*command, "--workers", str(self.workers), "--log-level", "WARNING"]

    def start(self) -> None:
        with self._said.open("w") as said:
            self._process = self._popen(self.command(), stderr=said, env=self._env)
        self.starts += 1

        def listening() -> re.Match[str] | None:
            assert self._process is not None
            assert self._process.poll() is None, self.said()
            return re.search(r"http://127\.0\.0\.1:(\d+)", self.said())

        self.port = int(until(listening)[1])

    def step_clock(self, seconds: float) -> Path:
        """From the next start on the machine's clock is wrong by what the file says, at any moment."""
        step = self.folder / "step"
        step.write_text(str(seconds))
        (self.folder / "sitecustomize.py").write_text(STEPPED)
        self._env["CLOCK_STEP"] = str(step)
        return step

    def boot_at(self, seconds: float) -> dict[str, str]:
        """From the next start on the machine's monotonic clock begins there. The environment of more such processes."""
        (self.folder / "sitecustomize.py").write_text(BOOTED)
        self._env["CLOCK_AHEAD"] = str(seconds - time.monotonic())
        return self._env

    def refusal(self) -> str:
        """What a start that must fail says; one line, and no traceback."""
        done = subprocess.run(
            self.command(), env=self._env, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 1, done.stderr
        lines = [line for line in done.stderr.splitlines() if line.startswith("bide: ")]
        assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
        return lines[0]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self, *, alone: bool = True) -> None:
        assert alone
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.end(signal.SIGTERM)

    def end(self, number: int) -> int:
        """With this signal; its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(30)

    def inside(self, path: Path) -> Path:
        """A path as the service sees it, when it has mounts of its own."""
        return Path(f"/proc/{self.pid}/root") / path.relative_to("/")

    def said(self) -> str:
        return self._said.read_text()

    def post(self, kind: str, **input: Any) -> str:
        """A job that was acknowledged."""
        job_id: str = self.ask("POST", "/jobs", {"kind": kind, "input": input})["jobId"]
        return job_id

    def refused(self, kind: str, **input: Any) -> tuple[urllib.error.HTTPError, str] | None:
        """The refusal of a submission, with its body; None when there is a job now."""
        try:
            self.post(kind, **input)
        except urllib.error.HTTPError as error:
            with error:
                return error, error.read().decode()
        return None

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/jobs/{job_id}")
        return found

    def ended(self, job_id: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["status"] not in LIVE else None

        try:
            return until(look)
        except AssertionError as error:
            known = [self.ask("GET", path) for path in (f"/jobs/{job_id}?include=attempts", "/queues")]
            raise AssertionError(f"{error}: {known}, and it said: {self.said()[-2000:]}") from None


@cache
def _unshare() -> tuple[str, ...] | None:
    for command in (("unshare", "-m"), ("unshare", "-rm")):
        if shutil.which("unshare") is None:
            continue
        probe = [*command, "mount", "-t", "tmpfs", "none", "/mnt"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return command
    return None


def mounted(script: str, **names: Path) -> list[str]:
    """A prefix that runs a command after `script`, whose mounts only that command sees."""
    unshare = _unshare()
    if unshare is None:
        reason = "this user may not mount anything, not even in a namespace of its own (unshare -m)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    words = " ".join(f"{name}='{path}';" for name, path in names.items())
    return [*unshare, "sh", "-ec", f'{words} {script}; exec "$@"', "sh"]
