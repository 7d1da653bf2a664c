"""Handlers that log, in every way that a handler may."""

from __future__ import annotations

import asyncio
import logging
import logging.config
import os
import signal
import threading

from bide import App, Context, JobError, Partial

app = App()
logger = logging.getLogger("shop.pages")


@app.job()
def talks(ctx: Context, count: int = 1) -> int:
    for number in range(count):
        logger.info("line %d", number)
    return count


@app.job()
def says_everything(ctx: Context) -> None:
    logger.debug("not seen")
    logger.log(25, "between")
    logger.critical("\ud800 half a character")
    try:
        raise ValueError("inner")
    except ValueError:
        logger.exception("outer")
    thread = threading.Thread(target=logger.error, args=("from a thread",))
    thread.start()
    thread.join()
    ctx.log("by hand", level="warning", page=3)


@app.job()
def interrupted(ctx: Context) -> int:
    """A signal handler logs while the same thread logs, and reports progress."""
    seen = 0

    def on_alarm(number: int, frame: object) -> None:
        nonlocal seen
        seen += 1
        logger.info("alarm %d", seen)

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    while seen < 200:
        ctx.progress(seen, 200)
        ctx.heartbeat()
        if seen % 2:
            ctx.log("between")
    signal.setitimer(signal.ITIMER_REAL, 0)
    return seen


@app.job()
async def together(ctx: Context, name: str, until: str) -> str:
    """Log in a task, in a thread of it, and in a task that outlives the handler."""
    logger.info("%s begins", name)
    await asyncio.to_thread(logger.info, "%s in a thread", name)
    while not os.path.exists(until):  # noqa: PTH110
        await asyncio.sleep(0.01)
    logger.info("%s ends", name)
    return name


@app.job()
def reconfigures(ctx: Context) -> None:
    settings = {"version": 1, "disable_existing_loggers": False, "root": {"handlers": []}}
    logging.config.dictConfig(settings)
    logger.info("nobody hears this")


@app.job()
def fork(ctx: Context) -> None:
    child = os.fork()
    logger.info("after the fork")
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@app.job()
def dies(ctx: Context) -> None:
    logger.info("last words")
    os.kill(os.getpid(), signal.SIGKILL)


def _count() -> int:
    known: dict[str, int] = {}
    return known["missing"]


@app.job(retries=1, backoff=0.01)
def breaks(ctx: Context) -> None:
    ctx.step("count", _count)


@app.job(secret=["input.token"])
def leaks(ctx: Context, token: str) -> None:
    logger.info("the token is %s", token)
    ctx.log("again", where={token: [token]})
    ctx.progress(message=f"with {token}", unit=token)
    ctx.emit({"token": token, token: [f"<{token}>", 4711]})
    raise ValueError(f"bad token {token}")


@app.job(secret=["input.pin"])
def leaks_partly(ctx: Context, pin: int) -> Partial:
    ctx.emit([pin, pin + 1])
    return Partial(None, errors=[{"code": "BAD_PIN", "message": f"{pin} is wrong", "pin": pin}])


@app.job()
def refuses(ctx: Context, caused: bool) -> None:
    try:
        raise LookupError("no page 7")
    except LookupError as error:
        if caused:
            raise JobError("BAD_PAGE", "the page is missing", step="read") from error
    raise JobError("BAD_PAGE", "the page is missing", step="read")
