"""Handlers that misbehave, and one that checks the state of the process after them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import io
import json
import locale
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bide import App, Context
from tests.apps.handlers import note
from tests.apps.oddities import ERRORS, RESULTS

app = App(memory_limit=400 * 2**20)
real: dict[str, Any] = {
    "monotonic": time.monotonic,
    "time": time.time,
    "sleep": time.sleep,
    "dumps": json.dumps,
    "loads": json.loads,
}
kept: list[Any] = []


@app.job()
def look(ctx: Context) -> dict[str, Any]:
    """A well-behaved job that runs afterwards: uses the context, and reports the state of its process."""
    print("out")
    print("err", file=sys.stderr)
    umask = os.umask(0)
    os.umask(umask)
    ctx.progress(1, 2, unit="pages")
    return {
        "sum": ctx.step("add", lambda: 2 + 3),
        "pid": os.getpid(),
        "folder": str(Path.cwd()),
        "umask": umask,
        "handlers": [
            str(signal.getsignal(n)).partition(" at ")[0] for n in sorted(signal.valid_signals())
        ],
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "alarm": signal.getitimer(signal.ITIMER_REAL)[0],
        "recursion": sys.getrecursionlimit(),
        "limits": [resource.getrlimit(n) for n in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE)],
        "standard": [os.fstat(fd).st_ino for fd in (0, 1, 2)],
    }


@app.job()
async def look_async(ctx: Context) -> dict[str, Any]:
    async def add() -> int:
        await asyncio.sleep(0)
        return 2 + 3

    return {"sum": await ctx.step("add", add), "pid": os.getpid(), "folder": str(Path.cwd())}


# --- processes


@app.job()
def forks(ctx: Context, how: str, log: str) -> str:
    """Forks; the copy sends messages for the job and ends in one of several ways."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return "parent"
    try:
        ctx.step("stolen", lambda: 1)
    except RuntimeError as error:
        note(log, str(error))
    if how == "raises":
        raise ValueError("copy")
    if how == "exits":
        os._exit(0)
    if how == "leaves":
        sys.exit(3)
    return "copy"


@app.job()
async def forks_async(ctx: Context, how: str, log: str) -> str:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        await asyncio.sleep(0.2)
        note(log, "parent")
        return "parent"
    if how == "awaits":
        await asyncio.sleep(0.1)
    note(log, "copy")
    return "copy"


@app.job()
def leaves_fork(ctx: Context, log: str, own_session: bool) -> str:
    """Leaves a grandchild process that keeps running with all inherited descriptors."""
    if os.fork() == 0:
        if own_session:
            os.setsid()
        note(log, str(os.getpid()))
        while True:
            time.sleep(1)
    while not Path(log).read_text():
        time.sleep(0.005)
    return "left"


@app.job()
def leaves_program(ctx: Context, log: str, own_session: bool) -> str:
    process = subprocess.Popen(["sleep", "1000"], start_new_session=own_session)
    kept.append(process)
    note(log, str(process.pid))
    return "left"


@app.job()
def multiprocesses(ctx: Context, method: str) -> list[int]:
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        return list(pool.map(abs, [-1, -2, -3]))


@app.job()
def dies(ctx: Context, how: str) -> None:
    if how == "exit":
        os._exit(0)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "abort":
        os.abort()
    if how == "group":
        os.killpg(0, signal.SIGTERM)
        time.sleep(60)


# --- memory, output, recursion


@app.job()
def allocates(ctx: Context) -> None:
    while True:
        kept.append(bytearray(b"x" * (8 * 2**20)))
        time.sleep(0.02)


@app.job()
def prints(ctx: Context, megabytes: int) -> int:
    for _ in range(megabytes):
        sys.stdout.write("o" * 2**20)
        sys.stderr.write("e" * 2**20)
        os.write(2, b"b" * 2**20)
    return megabytes


@app.job()
def recurses(ctx: Context, deeper: bool) -> int:
    if deeper:
        sys.setrecursionlimit(20_000)

    def down(n: int) -> int:
        return down(n + 1) + 1

    return down(0)


# --- exceptions and results


@app.job()
def raises(ctx: Context, name: str) -> None:
    raise ERRORS[name]()


@app.job()
async def raises_async(ctx: Context, name: str) -> None:
    raise ERRORS[name]()


@app.job()
async def raises_in_task(ctx: Context) -> str:
    async def leave() -> None:
        sys.exit(5)

    kept.append(asyncio.get_running_loop().create_task(leave()))
    await asyncio.sleep(0.1)
    return "stayed"


@app.job()
def returns(ctx: Context, name: str) -> Any:
    return RESULTS[name]()


@app.job()
async def returns_async(ctx: Context, name: str) -> Any:
    return RESULTS[name]()


@app.job()
def forgets(ctx: Context, kind: str) -> None:
    """Removes the kind, as if this child had loaded newer code without it."""
    del app.kinds[kind]


@app.job()
async def forgets_async(ctx: Context, kind: str) -> None:
    del app.kinds[kind]


@app.job()
def forgotten(ctx: Context) -> None: ...


@app.job()
async def forgotten_async(ctx: Context) -> None: ...


# --- arguments of the context


@app.job()
def misuses(ctx: Context, how: str) -> str:
    """Calls the context with arguments of wrong types."""
    odd: Any = ctx
    if how == "progress":
        odd.progress(1, 2)
        for value in ("x", object(), float("nan"), 10**400):
            odd.progress(value, value, message=object(), unit="\ud800")
        time.sleep(0.6)  # the heartbeat has tried to send it
    elif how == "step":
        odd.step(5, lambda: 1)
    elif how == "type":
        odd.output("a.txt", b"x", content_type="text/plain\r\nX-Evil: 1")
    elif how == "identity":
        odd.fence += 1
    elif how == "log":
        odd.log("\ud800", field="x")
        odd.log(object())
    return "done"


@app.job()
def threads_use_ctx(ctx: Context) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def use(n: int) -> None:
        for i in range(50):
            ctx.progress(i, 50)
            ctx.heartbeat()
        found[str(n)] = ctx.step(f"step{n}", lambda: n)
        ctx.log("from a thread", n=n)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@app.job()
def keeps_ctx(ctx: Context, log: str) -> str:
    """A thread uses the context after the handler has returned."""

    def use() -> None:
        slow = threading.Thread(
            target=lambda: tell("slow", lambda: ctx.step("slow", real["sleep"], 0.3))
        )
        slow.start()
        while not ctx.cancelled:
            real["sleep"](0.005)
        tell("step", lambda: ctx.step("late", lambda: 1))
        tell("progress", lambda: ctx.progress(9, 9, message="late"))
        tell("log", lambda: ctx.log("late"))
        tell("spawn", lambda: ctx.spawn("look"))
        slow.join()
        note(log, "end")

    def tell(name: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except BaseException as error:
            note(log, f"{name} {type(error).__name__}")

    threading.Thread(target=use).start()
    time.sleep(0.1)
    return "returned"


@app.job()
async def cancels_its_steps(ctx: Context) -> str:
    """The requests are cancelled before their answers arrive."""

    async def nothing() -> None: ...

    for n in range(10):
        task = asyncio.ensure_future(ctx.step(f"step{n}", nothing))
        for _ in range(4):
            await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0.2)
    return "went on"


@app.job()
def thread_asks_too_late(ctx: Context, log: str) -> str:
    """Sends a request after the checks, as a thread does that was about to send when its handler returned."""
    from bide.server.worker import protocol as p

    inner: Any = ctx

    def ask() -> None:
        while not ctx.cancelled:
            real["sleep"](0.005)
        real["sleep"](0.1)
        answer = inner._channel.ask(p.KeepStep(ctx.job_id, ctx.fence, 0, "late", b"1", []))
        note(log, f"stored {answer.stored}")

    threading.Thread(target=ask, daemon=True).start()
    return "returned"


# --- descriptors


@app.job()
def closes(ctx: Context, what: str, log: str = "") -> str:
    if what == "streams":
        sys.stdout.close()
        sys.stderr.close()
    elif what == "standard":
        for fd in (0, 1, 2):
            os.close(fd)
    elif what == "replaced":
        sys.stdout = sys.stderr = io.StringIO()
    elif what == "all":
        os.closerange(3, 1000)
    elif what == "all and waits":
        os.closerange(3, 1000)
        time.sleep(60)
    elif what == "all and opens":
        os.closerange(3, 1000)
        kept.extend(socket.socketpair() for _ in range(20))
    elif what == "garbage":
        for fd in range(3, 1000):
            with contextlib.suppress(OSError):
                os.write(fd, b"\xff" * 100)
        time.sleep(60)
    elif what == "nonsense":
        for fd in range(3, 1000):
            with contextlib.suppress(OSError):
                os.write(fd, b"\0\0\0\3abc")
        time.sleep(60)
    return "closed"


# --- signals


@app.job()
def blocks_signals(ctx: Context, log: str, stay: bool) -> str:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    note(log, "blocked")
    while stay:
        time.sleep(1)
    return "blocked"


@app.job()
def replaces_handlers(ctx: Context) -> str:
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, lambda *_: os._exit(1))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    return "replaced"


@app.job()
def interrupts_itself(ctx: Context) -> str:
    """Simulates a stop request that arrives after the end of its job."""
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.05)
    return "went on"


@app.job()
def sleeps(ctx: Context, seconds: float) -> str:
    real["sleep"](seconds)
    return "slept"


# --- threads and loops


@app.job()
def leaves_threads(ctx: Context, daemon: bool) -> str:
    for _ in range(3):
        threading.Thread(target=real["sleep"], args=(1000,), daemon=daemon).start()
    return "left"


@app.job()
async def leaves_threads_async(ctx: Context) -> str:
    kept.append(asyncio.get_running_loop().run_in_executor(None, real["sleep"], 1000))
    await asyncio.sleep(0)
    return "left"


@app.job()
def runs_a_loop(ctx: Context) -> str:
    async def inner() -> str:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, lambda: None)
        await asyncio.sleep(0.01)
        return "looped"

    return asyncio.run(inner())


@app.job(timeout=30)
async def blocks_the_loop(ctx: Context, seconds: float, log: str) -> str:
    note(log, "blocking")
    time.sleep(seconds)
    return "blocked"


@app.job()
async def naps(ctx: Context, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


# --- the process as a whole


@app.job()
def moves(ctx: Context, what: str) -> str:
    if what == "folder":
        os.chdir("/")
    elif what == "deleted folder":
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
        ctx.output("big.bin", b"x")
    elif what == "umask":
        os.umask(0o777)
    elif what == "recursion":
        sys.setrecursionlimit(100)
    elif what == "python":
        os.environ["STRANGER"] = "1"
        sys.path.insert(0, "/nowhere")
        locale.setlocale(locale.LC_ALL, "C")
    elif what == "clock":
        time.monotonic = time.time = lambda: 0.0
        time.sleep = lambda seconds: None
        json.dumps = json.loads = None  # type: ignore[assignment]
    elif what == "limits":
        for name, soft in (
            (resource.RLIMIT_NOFILE, 16),
            (resource.RLIMIT_AS, 2**31),
            (resource.RLIMIT_FSIZE, 1),
        ):
            resource.setrlimit(name, (soft, resource.getrlimit(name)[1]))
    return "x" * 100_000  # large enough for a file, which is written after the process state is restored


@app.job()
def loses_its_rights(ctx: Context) -> str:
    """Lowers a hard limit, which cannot be restored without privileges."""

    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    resource.setrlimit = refuse
    return "done"


@app.job()
async def loses_its_rights_async(ctx: Context) -> str:
    return loses_its_rights(ctx)


@app.job()
def may_lose_its_rights(ctx: Context, loses: bool) -> int:
    """Short, so that the engine prefetches more jobs."""
    if loses:
        loses_its_rights(ctx)
    return os.getpid()


@app.job(at_most_once=True)
def once(ctx: Context) -> int:
    return os.getpid()


@app.job()
def mends(ctx: Context) -> None:
    """Restores the modules, which bide does not restore because they belong to the app."""
    time.monotonic, time.time, time.sleep = real["monotonic"], real["time"], real["sleep"]
    json.dumps, json.loads = real["dumps"], real["loads"]
