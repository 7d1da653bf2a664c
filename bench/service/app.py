"""The jobs that bide runs while it is measured."""

from __future__ import annotations

import socket
import time

from bide import App, Context

app = App()


@app.job()
def noop(n: int) -> int:
    """Returns what it was given, so that each job has a result of its own to keep."""
    return n


@app.job()
def nap(seconds: float) -> None:
    """Waits for somebody else, as most jobs do."""
    time.sleep(seconds)


@app.job()
def stamp(port: int) -> None:
    """Says when it was started, to who waits on that port."""
    now = time.time()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(repr(now).encode(), ("127.0.0.1", port))


@app.job()
def hold(ctx: Context) -> None:
    """Shows progress once, so that there is an eta, and stays until it is cancelled."""
    time.sleep(0.5)
    ctx.progress(10, 1000, unit="parts", message="Working")
    while not ctx.cancelled:
        time.sleep(0.05)


@app.job()
def report(ctx: Context, calls: int) -> float:
    """Seconds a call of `ctx.progress`."""
    progress = ctx.progress
    begin = time.perf_counter()
    for n in range(calls):
        progress(n, calls)
    return (time.perf_counter() - begin) / calls
