"""Handlers that the tests of the engine run in real child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from bide import App, Context, File, JobError, Partial

app = App(queues={"narrow": 1})
started: list[int] = []


def note(path: str, text: str) -> None:
    """Writes a line that survives the child."""
    with Path(path).open("a") as file:
        file.write(text + "\n")


def noted(path: str, text: str) -> str:
    note(path, text)
    return text


@app.on_worker_start
def load() -> None:
    started.append(os.getpid())


@app.job()
def add(a: int, b: int = 1) -> int:
    return a + b


@app.job()
def starts(ctx: Context) -> list[int]:
    return started


@app.job()
async def nap(ctx: Context, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@app.job()
def sleep(ctx: Context, seconds: float, log: str = "") -> str:
    if log:
        note(log, f"{ctx.attempt} {ctx.fence}")
    time.sleep(seconds)
    return "slept"


@app.job()
def stubborn(ctx: Context, log: str) -> None:
    """Ignores cancellation: only a signal ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(log, str(os.getpid()))
    while True:
        try:
            time.sleep(60)
        except BaseException:
            note(log, "told")


@app.job()
async def deaf(ctx: Context, log: str) -> None:
    note(log, str(os.getpid()))
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        note(log, "told")
        raise


@app.job(retries=2, backoff=0.05)
def fails(ctx: Context, log: str, times: int = 99) -> int:
    note(log, str(ctx.attempt))
    if ctx.attempt <= times:
        raise JobError("NOT_YET", "try later", retryable=True)
    return ctx.attempt


@app.job(retries=3)
def refuses(ctx: Context) -> None:
    raise JobError("BAD_PAGE", "page 7 is torn", retryable=False, step="read")


@app.job(retries=1, backoff=0.01, steps={"transcode": 80, "thumbnail": 20})
def pipeline(ctx: Context, log: str) -> dict[str, str]:
    video = ctx.step("transcode", noted, log, "transcode")

    def thumbnail() -> str:
        note(log, "thumbnail")
        if ctx.attempt == 1:
            raise ValueError("no frame")
        return "picture"

    return {"video": video, "thumbnail": ctx.step("thumbnail", thumbnail)}


@app.job(retries=1, backoff=0.01)
async def async_pipeline(ctx: Context, log: str) -> int:
    async def first() -> int:
        note(log, "first")
        return 20

    value = await ctx.step("first", first)
    more = len(ctx.step("second", noted, log, "second"))
    if ctx.attempt == 1:
        raise ValueError("once")
    return value + more  # 20 + 6


@app.job(timeout=0.5)
def too_slow(ctx: Context) -> None:
    time.sleep(60)


@app.job(stall=0.5)
def stalls(ctx: Context, steady: int = 0) -> str:
    for i in range(steady):
        ctx.progress(i, steady)
        time.sleep(0.2)
    if not steady:
        time.sleep(60)
    return "went on"


@app.job(at_most_once=True)
def once(ctx: Context, log: str) -> None:
    note(log, "ran")
    os.kill(os.getpid(), signal.SIGKILL)


@app.job()
def dies(ctx: Context, log: str, times: int = 99) -> str:
    note(log, str(ctx.fence))
    if ctx.fence <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@app.job()
def family(ctx: Context, log: str, partial: bool = False, bad: int = -1) -> list[int | None]:
    note(log, "parent")
    ctx.step("before", note, log, "before")
    children = [ctx.spawn("child", number=n, fail=n == bad) for n in range(3)]
    return ctx.gather(*children, partial=partial)


@app.job(queue="children")
def child(ctx: Context, number: int, fail: bool = False) -> int:
    if fail:
        raise JobError("ODD", "cannot", retryable=False)
    return number * 10


@app.job()
def hopeless(ctx: Context) -> None:
    ctx.spawn("sleep", seconds=60)
    raise JobError("GAVE_UP", "no more", retryable=False)


@app.job()
def waits_long(ctx: Context) -> None:
    ctx.gather(ctx.spawn("sleep", seconds=60))


@app.job()
def partly(ctx: Context) -> Partial:
    return Partial([1, 2], errors=[JobError("LOST_PAGE", "page 3"), "and more"])


@app.job(queue="narrow")
def narrow(ctx: Context, name: str, log: str) -> None:
    note(log, f"begin {name}")
    time.sleep(0.05)
    note(log, f"end {name}")


@app.job(steps={"count": 50, "rest": 50})
def counts(ctx: Context, calls: int) -> float:
    def count() -> float:
        begin = time.perf_counter()
        for i in range(calls):
            ctx.progress(i, calls, unit="calls")
        return (time.perf_counter() - begin) / calls

    return ctx.step("count", count)


@app.job()
def halfway(ctx: Context, seconds: float) -> None:
    ctx.progress(1, 2, unit="pages", message="Reading")
    time.sleep(seconds)


@app.job()
def files(ctx: Context) -> dict[str, str]:
    (ctx.folder / "scratch").write_text("x")
    made = ctx.output("hello.txt", b"hello")
    reader = ctx.spawn("reads", source=made)
    again = ctx.spawn("reads", source=made)
    text, _ = ctx.gather(reader, again)
    copied = reader.files["copy.txt"].path.read_text()
    return {"folder": str(ctx.folder), "text": text, "copied": copied}


@app.job()
def scratch(ctx: Context, log: str, go: str) -> list[str]:
    """Leaves a file in its folder and fails. The second attempt writes another and returns the names in the folder."""
    first = not Path(log).read_text()
    note(log, "old" if first else "new")
    (ctx.folder / ("old" if first else "new")).touch()
    if first:
        raise JobError("NOT_YET", "once more", retryable=False)
    note(log, "written")
    while not Path(go).exists():
        time.sleep(0.005)
    return [path.name for path in ctx.folder.iterdir()]


@app.job()
def reads(ctx: Context, source: File) -> str:
    assert source.size == 5
    ctx.output("copy.txt", source.path)
    return f"{source.name}: {source.path.read_text()}"


@app.job()
def large(ctx: Context, size: int) -> str:
    return "x" * size


@app.job()
def logs(ctx: Context) -> None:
    ctx.log("hello", page=3)


def part_of(number: int, size: int) -> str:
    return f"{number} " * (size // 2)


@app.job(retries=1, backoff=0.01)
def many_steps(ctx: Context, count: int, size: int, log: str) -> int:
    """Stores large step results, fails, and reads all of them again."""

    def part(number: int) -> str:
        note(log, str(number))
        return part_of(number, size)

    for number in range(count):
        assert ctx.step(f"part {number}", part, number) == part_of(number, size)
    if ctx.attempt == 1:
        raise JobError("NOT_YET", "once more")
    return count


@app.job(retries=1, backoff=0.01)
async def many_async_steps(ctx: Context, count: int, size: int, log: str) -> int:
    async def part(number: int) -> str:
        note(log, str(number))
        return part_of(number, size)

    for number in range(count):
        assert await ctx.step(f"part {number}", part, number) == part_of(number, size)
    if ctx.attempt == 1:
        raise JobError("NOT_YET", "once more")
    return count


@app.job(retries=1, backoff=0.01)
def spawns(ctx: Context, gather: bool, number: int = 1) -> int | None:
    part = ctx.spawn("child", number=number)
    return ctx.gather(part)[0] if gather else None


@app.job(stall=0.5, retries=1, backoff=0.01)
def stalls_in_steps(ctx: Context, size: int, fail: bool) -> int:
    """Stores large step results, may fail, and reads them again without any other message to the supervisor."""
    count = sum(len(ctx.step(f"part {number}", part_of, number, size)) for number in range(3))
    if fail and ctx.attempt == 1:
        raise JobError("NOT_YET", "once more")
    return count


@app.job(stall=0.5)
def stalls_in_spawn(ctx: Context) -> int:
    ctx.spawn("child", number=1)
    return ctx.step("one", int)


@app.job()
def sends_nothing(ctx: Context) -> None:
    """Spawns a child whose file does not exist, and does not wait for it."""
    ctx.spawn("reads", source={"job": ctx.job_id, "name": "nothing"})


@app.job()
def orphans(ctx: Context) -> None:
    ctx.spawn("reads", source={"job": ctx.job_id, "name": "nothing"})
    time.sleep(60)


@app.job(retention=0.2)
def forgettable(ctx: Context) -> int:
    ctx.output("file.txt", b"bytes")
    return 1


@app.job()
def twice(ctx: Context) -> None:
    ctx.step("same", lambda: 1)
    ctx.step("same", lambda: 2)


@app.job()
def unwritable(ctx: Context) -> object:
    return object()


@app.job()
def emits_forever(ctx: Context) -> None:
    while True:
        ctx.emit("x" * 200_000)


@app.job(retries=1, backoff=0.01)
def emits_twice_and_fails(ctx: Context) -> None:
    for _ in range(2):
        ctx.emit("x" * 200_000)
    raise RuntimeError("after the output")


@app.job()
def emits_often(ctx: Context) -> None:
    for number in range(100):
        ctx.emit(number)
        time.sleep(0.004)


@app.job()
def emits_a_large_chunk(ctx: Context) -> None:
    ctx.emit("x" * 1_000_000)


@app.job()
def emits_and_dies_once(ctx: Context) -> None:
    for number in range(50):
        ctx.emit(number)
    if ctx.fence == 1:
        os.kill(os.getpid(), signal.SIGKILL)
