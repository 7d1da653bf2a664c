"""Requests that run without a task until they wait, and the ASGI interface of one request."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bide.server.config import HttpConfig
from bide.service.backends import loop_factory
from bide.service.httpd import connection
from bide.service.httpd import server as httpd_server
from bide.service.httpd.connection import ConnectionLimits, HttpConnection
from bide.service.httpd.request_cycle import HIGH_WATER, RequestCycle, WriteBuffer, begin
from bide.service.httpd.server import HttpServer, bind
from tests.waiting import eventually

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(app: Any) -> AsyncIterator[Pair]:
    sock = bind("127.0.0.1", 0)
    server = HttpServer(app, ConnectionLimits.of(HttpConfig(), 10))
    await server.start(sock)
    pair = await asyncio.open_connection(*sock.getsockname())
    try:
        yield pair
    finally:
        pair[1].close()
        await server.stop()
        sock.close()


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


@pytest.mark.parametrize("parts", [1, 2])
async def test_a_request_that_is_over_leaves_nothing_for_the_garbage_collector(parts: int) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if parts == 2:
            await send({"type": "http.response.body", "body": b"o", "more_body": True})
        await send({"type": "http.response.body", "body": b"ok"[parts - 1 :]})

    async with connected(app) as (reader, writer):
        gc.collect()  # of what other tests left
        gc.disable()
        try:
            for _ in range(3):
                writer.write(GET)
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            assert not [x for x in gc.get_objects() if isinstance(x, RequestCycle)]
        finally:
            gc.enable()


async def sent(app: Any, request: bytes = GET, end: bytes = b"") -> bytes:
    """Returns the response; up to `end`, or all bytes until the connection is closed."""
    async with connected(app) as (reader, writer):
        writer.write(request)
        async with asyncio.timeout(10):
            return await (reader.readuntil(end) if end else reader.read())


def responding(
    *bodies: bytes, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None
) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers or []})
        for i, body in enumerate(bodies, 1):
            await send({"type": "http.response.body", "body": body, "more_body": i < len(bodies)})

    return app


async def test_a_complete_response_gets_its_length_and_the_date() -> None:
    answer = await sent(responding(b"ok"), end=b"ok")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\ndate: ") and b"content-length: 2\r\n" in answer


async def test_a_body_of_unknown_length_is_sent_in_chunks() -> None:
    answer = await sent(responding(b"one", b"", b"two", b""), end=b"0\r\n\r\n")
    assert b"transfer-encoding: chunked" in answer
    assert answer.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")


async def test_a_client_of_http_1_0_gets_no_chunks() -> None:
    answer = await sent(responding(b"one", b"two"), b"GET / HTTP/1.0\r\n\r\n")
    assert b"chunked" not in answer and b"connection: close" in answer
    assert answer.endswith(b"\r\n\r\nonetwo")


@pytest.mark.parametrize("bodies", [(b"one",), (b"one", b"two")])
async def test_head_gets_no_body(bodies: tuple[bytes, ...]) -> None:
    head = b"HEAD / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answer = await sent(responding(*bodies, headers=[(b"content-length", b"6")]), head)
    assert b"content-length: 6" in answer and answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("status", [204, 304])
async def test_some_responses_have_no_content(status: int) -> None:
    answer = await sent(responding(b"", status=status), end=b"\r\n\r\n")
    assert b"content-length" not in answer and b"chunked" not in answer
    last = GET[:-2] + b"connection: close\r\n\r\n"
    assert (await sent(responding(b"a", b"b", status=status), last)).endswith(b"close\r\n\r\n")


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\0b"])
async def test_a_header_with_a_line_break_is_not_sent(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "bide.http"):
        answer = await sent(responding(b"ok", headers=[(b"x-name", value)]))
    assert answer.startswith(b"HTTP/1.1 500 ") and b'"code":"internal"' in answer
    assert "line break" in caplog.text


@pytest.mark.parametrize("name", [b"x\r\nset-cookie", b"x y", b"x:", b""])
async def test_a_header_with_an_invalid_name_is_not_sent(
    name: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "bide.http"):
        answer = await sent(responding(b"ok", headers=[(name, b"a")]))
    assert answer.startswith(b"HTTP/1.1 500 ") and "not the name of a header" in caplog.text


async def test_a_complete_body_of_another_length_than_declared_is_not_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "bide.http"):
        answer = await sent(responding(b"one", headers=[(b"content-length", b"4")]))
    assert answer.startswith(b"HTTP/1.1 500 ") and "Content-Length" in caplog.text


@pytest.mark.parametrize("bodies", [(b"one", b"two"), (b"1", b"")])
async def test_a_body_of_another_length_than_declared_closes_the_connection(
    bodies: tuple[bytes, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "bide.http"):
        answer = await sent(responding(*bodies, headers=[(b"content-length", b"4")]))
    assert answer.startswith(b"HTTP/1.1 200 ") and "Content-Length" in caplog.text


async def test_an_application_that_fails_or_does_not_respond(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("odd")

    async def forgets(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR, "bide.http"):
        for app in (fails, forgets):
            answer = await sent(app)
            assert answer.startswith(b"HTTP/1.1 500 ") and b"application/problem+json" in answer
    assert "ValueError: odd" in caplog.text and "without a complete response" in caplog.text


async def test_a_failure_names_its_own_request() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        pipeline = receive.__self__._connection._pipeline
        await eventually(lambda: len(pipeline) == 1, "the second request was received")
        raise ValueError("odd")

    async with connected(app) as (reader, writer), asyncio.timeout(10):
        writer.write(GET.replace(b"/ ", b"/first ") + GET.replace(b"/ ", b"/second "))
        answer = await reader.read()
    assert b'"instance":"/first"' in answer and b"\r\ndate: " in answer


@pytest.mark.parametrize("fields", [b"", b"content-length: x\r\n", b"transfer-encoding: gzip\r\n"])
async def test_head_gets_no_body_of_a_problem(fields: bytes) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("odd")

    answer = await sent(app, b"HEAD / HTTP/1.1\r\nhost: x\r\n" + fields + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 " if fields else b"HTTP/1.1 500 ")
    assert b"\r\ndate: " in answer and answer.endswith(b"\r\n\r\n")


async def test_a_body_is_received_in_parts_and_reading_waits_for_the_application() -> None:
    """Only about HIGH_WATER bytes are in memory while the application does not receive."""
    size = 20_000_000
    going = asyncio.Event()
    seen: list[int] = []
    cycles: list[RequestCycle] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        cycles.append(receive.__self__)
        await going.wait()
        more = True
        while more:
            message = await receive()
            seen.append(len(message["body"]))
            more = message["more_body"]
        await responding(b"ok")(scope, receive, send)

    async with connected(app) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size)
        writer.write(bytes(size))
        await eventually(lambda: bool(cycles) and cycles[0].buffered > HIGH_WATER)
        assert writer.transport.get_write_buffer_size() > 0, "the client has to wait"
        going.set()
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert sum(seen) == size and max(seen) < 1_000_000


async def test_a_long_response_before_the_end_of_the_body_is_sent_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is aborted some time after the response, and not while it is sent."""
    checks: list[None] = []
    check = HttpServer._every_second

    def counted(server: HttpServer) -> None:
        checks.append(None)
        check(server)

    monkeypatch.setattr(HttpServer, "_every_second", counted)
    monkeypatch.setattr(httpd_server, "SWEEP_EVERY", 0.05)
    monkeypatch.setattr(connection, "LINGER", 0.01)
    size = 30_000_000
    head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 100000\r\n\r\n"
    async with connected(responding(bytes(size))) as (reader, writer), asyncio.timeout(20):
        writer.write(head + b"a")
        await reader.readuntil(b"\r\n\r\n")
        passed = len(checks)
        await eventually(lambda: len(checks) >= passed + 2)
        assert len(await reader.read()) == size


async def test_tiny_chunks_of_a_body_are_joined() -> None:
    going = asyncio.Event()
    cycles: list[RequestCycle] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        cycles.append(receive.__self__)
        await going.wait()
        body, more = b"", True
        while more:
            message = await receive()
            assert type(message["body"]) is bytes
            body += message["body"]
            more = message["more_body"]
        await responding(b"%d %d" % (len(body), body.count(b"ab")))(scope, receive, send)

    async with connected(app) as (reader, writer), asyncio.timeout(20):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        await eventually(lambda: cycles)
        writer.write(b"2\r\nab\r\n" * 10_000)
        # Of 20 000 bytes, so that their number counts too.
        await eventually(lambda: cycles[0].buffered > HIGH_WATER)
        assert len(cycles.pop()._chunks) <= 2
        writer.write(b"2710\r\n" + b"ab" * 5_000 + b"\r\n0\r\n\r\n")
        going.set()
        assert (await reader.readuntil(b"30000 15000")).startswith(b"HTTP/1.1 200")


async def end_of_input(receive: Any) -> None:
    """Wait until the connection knows that the client sends nothing more."""
    cycle = receive.__self__
    pipeline = cycle._connection._pipeline
    await eventually(lambda: not (pipeline[-1] if pipeline else cycle).keep_alive)


@pytest.mark.parametrize("number", [1, 3])
async def test_a_client_that_sends_nothing_more_gets_its_responses(number: int) -> None:
    received = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        received.set()
        await end_of_input(receive)  # it is known before the response
        await responding(b"ok")(scope, receive, send)

    async with connected(app) as (reader, writer), asyncio.timeout(10):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\na" * number)
        await received.wait()
        writer.write_eof()
        answer = await reader.read()
    assert answer.count(b"HTTP/1.1 200 ") == answer.count(b"ok") == number
    assert answer.count(b"connection: close") == 1


async def test_an_application_that_waits_for_the_client_learns_that_it_sends_nothing_more() -> None:
    """Also if it waits later: it cannot tell whether the client still reads."""
    received: list[str] = []
    done = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        received.append((await receive())["type"])
        await end_of_input(receive)
        received.append((await receive())["type"])
        done.set()

    async with connected(app) as (_, writer), asyncio.timeout(10):
        writer.write(GET)
        await eventually(lambda: received)
        writer.write_eof()
        await done.wait()
    assert received == ["http.request", "http.disconnect"]


async def test_receive_reports_a_client_that_disconnects() -> None:
    received: list[str] = []
    done = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        received.append((await receive())["type"])
        received.append((await receive())["type"])
        await responding(b"ok")(scope, receive, send)  # is ignored
        done.set()

    async with connected(app) as (_, writer):
        writer.write(GET)
        await eventually(lambda: received)
        writer.transport.abort()
        await asyncio.wait_for(done.wait(), 5)
    assert received == ["http.request", "http.disconnect"]


def test_a_client_that_is_gone_takes_no_response_of_other_clients() -> None:
    """The responses of one loop iteration are written together, and uvloop rejects writing to a closed transport."""

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            accepted.put_nowait(transport)

    accepted: asyncio.Queue[asyncio.Transport] = asyncio.Queue()

    async def main() -> bytes:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Accepting, "127.0.0.1", 0)
        pairs, transports = [], []
        for _ in range(3):
            pairs.append(await asyncio.open_connection(*server.sockets[0].getsockname()))
            transports.append(await accepted.get())
        buffer = WriteBuffer(loop)
        for transport in transports:
            buffer.put(transport, b"response")
        transports[0].abort()
        transports[1].write_eof()  # a write after it raises an exception in every event loop
        try:
            async with asyncio.timeout(10):
                return await pairs[2][0].readexactly(8)
        finally:
            for _, writer in pairs:
                writer.close()
            for transport in transports:
                transport.abort()
            server.close()
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert runner.run(main()) == b"response"


async def test_a_connection_that_cannot_be_checked_does_not_stop_the_checks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checked: set[HttpConnection] = set()

    def check(checking: HttpConnection, now: float) -> None:
        checked.add(checking)
        raise ValueError("odd")

    monkeypatch.setattr(HttpConnection, "check", check)
    async with connected(responding(b"ok")) as (reader, writer), asyncio.timeout(10):
        other, other_writer = await asyncio.open_connection(*writer.get_extra_info("peername"))
        try:
            await asyncio.gather(reader.read(), other.read())  # both are aborted
        finally:
            other_writer.close()
        assert len(checked) == 2
    assert "ValueError: odd" in caplog.text
