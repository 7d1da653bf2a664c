"""Requests that run without a task until they wait."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from bide.server.config import HttpConfig
from bide.service.connection import ConnectionLimits, connection_class
from bide.service.request_cycle import RequestCycle, begin


async def test_what_waits_for_nothing_needs_no_task() -> None:
    done = []

    async def work() -> None:
        done.append(1)

    assert begin(asyncio.get_running_loop(), work()) is None
    assert done == [1]


async def test_the_rest_runs_in_a_task_with_values_exceptions_and_timeouts() -> None:
    seen: list[object] = []
    loop = asyncio.get_running_loop()
    first: asyncio.Future[str] = loop.create_future()
    second: asyncio.Future[str] = loop.create_future()

    async def work() -> None:
        seen.append(await first)
        try:
            await second
        except ValueError as error:
            seen.append(str(error))
        async with asyncio.timeout(10):  # needs a task
            await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    task = begin(loop, work())
    assert task is not None and not seen
    first.set_result("value")
    await asyncio.sleep(0)
    second.set_exception(ValueError("odd"))
    await task
    assert seen == ["value", "odd", task]


async def test_a_wait_that_is_over_before_the_task_begins_is_noticed() -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    async def work() -> None:
        await future

    task = begin(loop, work())
    future.set_result(None)
    assert task is not None
    await asyncio.wait_for(task, 1)


async def test_cancelling_the_task_cancels_the_work_and_lets_it_clean_up() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append(1)

    task = begin(asyncio.get_running_loop(), work())
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [1]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_request_that_is_over_leaves_nothing_for_the_garbage_collector(whole: bool) -> None:
    cycles: weakref.WeakSet[RequestCycle] = weakref.WeakSet()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        cycles.add(scope["bide.reply"].__self__)
        if not (whole and scope["bide.reply"](200, [(b"content-length", b"2")], b"ok")):
            headers = [(b"content-length", b"2")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(app, lifespan="off", access_log=False)
    config.load()
    connection = connection_class(ConnectionLimits.of(HttpConfig(), 10))
    loop = asyncio.get_running_loop()
    state = ServerState()
    server = await loop.create_server(
        lambda: connection(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    gc.disable()
    try:
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert len(cycles) == 1  # the last one, which its connection still has
    finally:
        gc.enable()
        writer.close()
        server.close()
        await server.wait_closed()
