"""The jobs that bide runs while it is measured."""

from __future__ import annotations

import socket
import time

from bide import App, Context

app = App()


@app.job()
def noop(n: int) -> int:
    """Returns its input, so that each job has a different result to store."""
    return n


@app.job()
def nap(seconds: float) -> None:
    """Waits, like a job that waits for another system."""
    time.sleep(seconds)


@app.job()
def stamp(port: int) -> None:
    """Sends its start time to a port."""
    now = time.time()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(repr(now).encode(), ("127.0.0.1", port))


@app.job()
def hold(ctx: Context) -> None:
    """Reports progress once, so that the job has an eta, and runs until it is cancelled."""
    time.sleep(0.5)
    ctx.progress(10, 1000, unit="parts", message="Working")
    while not ctx.cancelled:
        time.sleep(0.05)


@app.job()
def report(ctx: Context, calls: int) -> float:
    """Seconds per call of `ctx.progress`."""
    progress = ctx.progress
    begin = time.perf_counter()
    for n in range(calls):
        progress(n, calls)
    return (time.perf_counter() - begin) / calls
