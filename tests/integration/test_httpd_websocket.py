"""WebSockets of bide's own HTTP server: real sockets, two client libraries, and bytes that no library sends."""

from __future__ import annotations

import asyncio
import base64
import functools
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import aiohttp
import pytest
import websockets.asyncio.client
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode, Frame, Opcode

from bide.server.config import HttpConfig
from bide.server.http.request import Message, Receive, Scope, Send
from bide.service.backends import loop_factory
from bide.service.httpd import websocket
from bide.service.httpd.connection import ConnectionLimits
from bide.service.httpd.server import HttpServer, bind
from tests.waiting import eventually

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
Run = Callable[[Coroutine[Any, Any, None]], None]
KEY = base64.b64encode(bytes(16)).decode()
OFFER = (
    "GET /echo HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n"
)
HEAD = OFFER.encode() + b"\r\n"
LIMIT = 64 * 1024


@pytest.fixture(params=[None, loop_factory()], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test on each of the event loops that the service may use."""

    return functools.partial(run_on, request.param)


def run_on(factory: LoopFactory | None, work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(work, 30))


@dataclass
class EchoApp:
    """Returns each message. The path selects what else it does."""

    scopes: list[Scope] = field(default_factory=list)
    received: list[Message] = field(default_factory=list)
    reading: asyncio.Event = field(default_factory=asyncio.Event)
    accept: Message = field(default_factory=lambda: {"type": "websocket.accept"})

    def __post_init__(self) -> None:
        self.reading.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"HTTP"})
            return
        assert await receive() == {"type": "websocket.connect"}
        await getattr(self, scope["path"].strip("/"))(receive, send)

    async def echo(self, receive: Receive, send: Send) -> None:
        await send(self.accept)
        while True:
            await self.reading.wait()
            message = await receive()
            self.received.append(message)
            if message["type"] == "websocket.disconnect":
                return
            await send({**message, "type": "websocket.send"})

    async def late(self, receive: Receive, send: Send) -> None:
        await self.reading.wait()
        await self.echo(receive, send)

    async def deny(self, receive: Receive, send: Send) -> None:
        head = {"status": 418, "headers": [(b"x-why", b"tea")]}
        await send({"type": "websocket.http.response.start", **head})
        await send({"type": "websocket.http.response.body", "body": b"no ", "more_body": True})
        await send({"type": "websocket.http.response.body", "body": b"coffee"})

    async def refuse(self, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.close", "code": 4000})

    async def forget(self, receive: Receive, send: Send) -> None:
        """Ends without an answer."""

    async def fail(self, receive: Receive, send: Send) -> None:
        await send(self.accept)
        raise ValueError("odd")

    async def leave(self, receive: Receive, send: Send) -> None:
        await send(self.accept)

    async def flood(self, receive: Receive, send: Send) -> None:
        """Sends more than the client reads, and closes while it does."""
        await send(self.accept)

        async def sending() -> None:
            while True:
                await send({"type": "websocket.send", "bytes": bytes(50_000)})
                self.received.append({"type": "sent"})
                await asyncio.sleep(0)

        task = asyncio.create_task(sending())
        self.received.append(await receive())
        await send({"type": "websocket.close", "code": 1013, "reason": "too slow " * 30})
        self.received.append(await receive())
        task.cancel()


@dataclass
class Served:
    app: EchoApp
    server: HttpServer
    port: int

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def connect(self, path: str = "/echo", **more: Any) -> websockets.asyncio.client.connect:
        return websockets.asyncio.client.connect(self.url + path, proxy=None, **more)

    async def raw(self, head: bytes = HEAD) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection after a handshake by hand."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(head)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        return reader, writer


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Served]:
    sock = bind("127.0.0.1", 0)
    app = EchoApp()
    server = HttpServer(app, replace(ConnectionLimits.of(HttpConfig(), 10), **limits))
    await server.start(sock)
    try:
        yield Served(app, server, sock.getsockname()[1])
    finally:
        await server.stop()
        sock.close()


async def closed(connection: Any) -> tuple[int, str]:
    """Reads until the close; returns its code and reason."""
    with pytest.raises(ConnectionClosed) as raised:
        while True:
            await connection.recv()
    received = raised.value.rcvd
    assert received is not None, raised.value
    return received.code, received.reason


def frame(opcode: Opcode, data: bytes = b"", fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


async def close_of(reader: asyncio.StreamReader) -> tuple[int, str]:
    """Reads unmasked frames until a close and the end of the stream."""
    while True:
        first, length = await reader.readexactly(2)
        size = length
        if length == 126:
            (size,) = struct.unpack("!H", await reader.readexactly(2))
        elif length == 127:
            (size,) = struct.unpack("!Q", await reader.readexactly(8))
        data = await reader.readexactly(size)
        if first & 15 == Opcode.CLOSE:
            assert await reader.read() == b""
            return struct.unpack("!H", data[:2])[0], data[2:].decode()


# --- the handshake


def test_messages_in_both_directions(run: Run) -> None:
    async def main() -> None:
        async with serving() as served:
            async with served.connect(compression="deflate") as connection:
                assert connection.response is not None
                assert "sec-websocket-extensions" not in connection.response.headers
                for message in ("", "żółw", b"", b"\x00\xff", "x" * LIMIT):
                    await connection.send(message)
                    assert await connection.recv() == message
                await connection.send([b"in ", b"three ", b"frames"])
                assert await connection.recv() == b"in three frames"
                await (await connection.ping())
                await connection.close(4001, "enough")
            await eventually(lambda: served.app.received[-1]["type"] == "websocket.disconnect")
            assert served.app.received[-1] == {
                "type": "websocket.disconnect",
                "code": 4001,
                "reason": "enough",
            }
            scope = served.app.scopes[0]
            assert (scope["type"], scope["scheme"], scope["path"]) == ("websocket", "ws", "/echo")
            assert "method" not in scope and "websocket.http.response" in scope["extensions"]
            assert scope["client"][0] == "127.0.0.1"

    run(main())


def test_subprotocols_and_headers(run: Run) -> None:
    async def main() -> None:
        async with serving() as served:
            headers = [(b"x-more", b"1")]
            served.app.accept = {
                "type": "websocket.accept",
                "subprotocol": "bide.v1",
                "headers": headers,
            }
            async with served.connect("/echo?a=b", subprotocols=["other", "bide.v1"]) as connection:
                assert connection.subprotocol == "bide.v1"
                assert connection.response is not None
                assert connection.response.headers["x-more"] == "1"
            assert served.app.scopes[0]["subprotocols"] == ["other", "bide.v1"]
            assert served.app.scopes[0]["query_string"] == b"a=b"

    run(main())


def test_aiohttp(run: Run) -> None:
    async def main() -> None:
        async with serving() as served, aiohttp.ClientSession() as session:
            async with session.ws_connect(served.url + "/echo", compress=15) as connection:
                assert not connection.compress
                await connection.send_str("a")
                assert await connection.receive_str(timeout=5) == "a"
                await connection.send_bytes(b"b")
                assert await connection.receive_bytes(timeout=5) == b"b"
            with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
                await session.ws_connect(served.url + "/deny")
            assert raised.value.status == 418

    run(main())


def test_a_response_instead_of_a_websocket(run: Run) -> None:
    async def main() -> None:
        async with serving() as served:
            for path, status, body in (("/deny", 418, b"no coffee"), ("/refuse", 403, b"")):
                with pytest.raises(InvalidStatus) as raised:
                    await served.connect(path)
                response = raised.value.response
                assert (response.status_code, response.body) == (status, body)
                assert response.headers["connection"] == "close"

    run(main())


def test_an_application_that_fails(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving() as served:
            with pytest.raises(InvalidStatus) as raised:
                await served.connect("/forget")
            assert raised.value.response.status_code == 500
            async with served.connect("/fail") as connection:
                assert (await closed(connection))[0] == 1011
            async with served.connect("/leave") as connection:
                assert (await closed(connection))[0] == 1000

    with caplog.at_level(logging.ERROR, "bide.http"):
        run(main())
    assert "ended without an answer" in caplog.text and "ValueError: odd" in caplog.text


@pytest.mark.parametrize(
    "head",
    [
        OFFER.replace("GET", "POST") + "Content-Length: 0\r\n",
        OFFER.replace("GET", "POST"),
        OFFER.replace("HTTP/1.1", "HTTP/1.0"),
        OFFER.replace(KEY, "AAAA"),
        OFFER.replace(f"Sec-WebSocket-Key: {KEY}\r\n", ""),
        OFFER + f"Sec-WebSocket-Key: {KEY}\r\n",
        OFFER.replace("Version: 13", "Version: 8"),
        OFFER.replace("Upgrade: websocket", "Upgrade: h2c"),
        OFFER.replace("Upgrade: websocket", "Upgrade: websocket, h2c"),
        OFFER.replace("keep-alive, Upgrade", "keep-alive"),
        OFFER + "Content-Length: 2\r\n",
        OFFER + "Transfer-Encoding: chunked\r\n",
    ],
)
def test_any_other_upgrade_is_ignored(run: Run, head: str) -> None:
    async def main() -> None:
        body = b"hi" if "Length: 2" in head else b"2\r\nhi\r\n0\r\n\r\n" if "chunked" in head else b""
        async with serving() as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(head.encode() + b"\r\n" + body)
            answer = await reader.readuntil(b"HTTP/1.1 200 OK")
            answer += await reader.readuntil(b"\r\n\r\nHTTP")
            assert served.app.scopes[0]["type"] == "http"
            if "HTTP/1.0" not in head:  # the connection continues
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()

    run(main())


def test_a_handshake_behind_an_unanswered_request_is_an_ordinary_request(run: Run) -> None:
    """Responses are in order, so a WebSocket cannot begin before them."""

    async def main() -> None:
        async with serving() as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + HEAD)
            for _ in range(2):
                await reader.readuntil(b"\r\n\r\nHTTP")
            assert [scope["type"] for scope in served.app.scopes] == ["http", "http"]
            writer.write(HEAD)  # now it can
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            writer.close()

    run(main())


def test_a_handshake_in_small_packets_and_frames_before_its_answer(run: Run) -> None:
    async def main() -> None:
        async with serving() as served:
            served.app.reading.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            for byte in HEAD.replace(b"/echo", b"/late"):
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            writer.write(frame(Opcode.BINARY, b"early"))
            await eventually(lambda: served.app.scopes)
            writer.write(frame(Opcode.BINARY, bytes(LIMIT)) * 3)
            served.app.reading.set()
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            assert await reader.readexactly(7) == b"\x82\x05early"
            assert len(await reader.readexactly(3 * (LIMIT + 10))) == 3 * (LIMIT + 10)
            writer.close()

    run(main())


def test_a_client_that_leaves_during_the_handshake(run: Run) -> None:
    async def main() -> None:
        async with serving() as served:
            served.app.reading.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(HEAD.replace(b"/echo", b"/late"))
            await eventually(lambda: served.app.scopes)
            writer.write_eof()
            assert await reader.read() == b""
            served.app.reading.set()
            await eventually(lambda: served.app.received)
            assert served.app.received[0]["code"] == 1006
            writer.close()

    run(main())


# --- limits


def test_messages_that_are_too_large(run: Run) -> None:
    async def main() -> None:
        async with serving() as served:
            for message in ("x" * (LIMIT + 1), b"x" * 10_000_000, ["x" * 40_000, "y" * 40_000]):
                connection = await served.connect()
                with pytest.raises(ConnectionClosed) as raised:
                    await connection.send(message)
                    await connection.recv()
                received = raised.value.rcvd
                assert received is not None and received.code == 1009, raised.value
                assert "exceeds limit" in received.reason
            assert all(m["type"] == "websocket.disconnect" for m in served.app.received)
            assert [m["code"] for m in served.app.received] == [1009] * 3

    run(main())


@pytest.mark.parametrize(
    ("garbage", "code"),
    [
        (b"GET /again HTTP/1.1\r\nHost: localhost\r\n\r\n", 1002),
        (bytes(range(256)) * 40, 1002),
        (b"\xff" * 100, 1002),
        (b"\x82\x05plain", 1002),  # not masked
        (b"\xc2" + frame(Opcode.BINARY, b"x")[1:], 1002),  # compressed, without the extension
        (frame(Opcode.CONT, b"x"), 1002),
        (frame(Opcode.TEXT, b"a", fin=False) + frame(Opcode.TEXT, b"b"), 1002),
        (b"\x89\xfe\x00\x7e" + bytes(4 + 126), 1002),  # a ping that is too long
        (frame(Opcode.CLOSE, b"\x00\x01"), 1002),
        (frame(Opcode.TEXT, b"\xff\xfe"), 1007),
        (frame(Opcode.TEXT, b"\xe2\x82", fin=False) + frame(Opcode.CONT, b"x"), 1007),
    ],
)
def test_garbage_gets_a_close(run: Run, garbage: bytes, code: int) -> None:
    async def main() -> None:
        async with serving() as served:
            reader, writer = await served.raw()
            writer.write(garbage)
            found, reason = await close_of(reader)
            assert found == code and reason
            writer.write(garbage)  # is ignored
            writer.close()
            await eventually(lambda: served.app.received)
            assert served.app.received == [
                {"type": "websocket.disconnect", "code": code, "reason": reason}
            ]

    run(main())


def test_text_split_inside_a_character(run: Run) -> None:
    async def main() -> None:
        async with serving() as served:
            reader, writer = await served.raw()
            data = "€".encode()
            writer.write(
                frame(Opcode.TEXT, data[:1], fin=False)
                + frame(Opcode.PING, b"?")
                + frame(Opcode.CONT, fin=False) * 1000
                + frame(Opcode.CONT, data[1:])
            )
            assert await reader.readexactly(8) == b"\x8a\x01?" + b"\x81\x03" + data
            writer.close()

    run(main())


def test_half_closed_sockets_end(run: Run) -> None:
    async def main() -> None:
        async with serving() as served:
            reader, writer = await served.raw()
            writer.write(frame(Opcode.TEXT, b"a"))
            writer.write_eof()
            assert await reader.read() in (b"", b"\x81\x01a")
            await eventually(lambda: served.app.received[-1:] and served.app.received[-1].get("code"))
            assert served.app.received[-1]["code"] == 1006
            writer.close()

    run(main())


def test_many_tiny_messages_wait_in_the_socket(run: Run) -> None:
    """The service parses no more of them than the application receives."""

    async def main() -> None:
        async with serving() as served:
            served.app.reading.clear()
            reader, writer = await served.raw()
            count = 20_000
            writer.write(frame(Opcode.BINARY) * count)
            (connection,) = served.server._connections.open
            assert isinstance(connection, websocket.WebSocketConnection)
            await eventually(lambda: connection._read_paused)
            assert len(connection._messages) < websocket.SLICE
            served.app.reading.set()
            assert len(await reader.readexactly(2 * count)) == 2 * count
            writer.write(frame(Opcode.CLOSE, b"\x03\xe8"))
            assert await close_of(reader) == (1000, "")
            writer.close()

    run(main())


def test_a_client_that_never_reads_its_pongs_is_not_read() -> None:
    async def main() -> None:
        async with serving(timeout=0.5) as served:
            _, writer = await served.raw()
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            cast(asyncio.Transport, writer.transport).pause_reading()
            (connection,) = served.server._connections.open
            pings = frame(Opcode.PING, bytes(125)) * 1000

            async def sending() -> None:
                while True:
                    writer.write(pings)
                    await writer.drain()

            task = asyncio.create_task(sending())
            await eventually(lambda: connection._read_paused)
            assert connection._transport.get_write_buffer_size() < 2 * websocket.MAX_REPLIES
            await eventually(lambda: not served.server._connections.open)  # its deadline has passed
            task.cancel()
            await asyncio.wait([task])
            writer.close()

    run_on(loop_factory(), main())


def test_a_slow_reader_is_closed_without_waiting(run: Run) -> None:
    """The buffer of the service is bounded; the close follows what the client has not read yet."""

    async def main() -> None:
        async with serving() as served, served.connect("/flood", max_queue=2) as connection:
            transport = connection.transport
            transport.pause_reading()
            app = served.app
            (serverside,) = served.server._connections.open
            await eventually(lambda: serverside._write_paused)  # type: ignore[union-attr]
            sent = len(app.received)
            assert serverside._transport.get_write_buffer_size() < 200_000
            await connection.send("close me")
            await eventually(lambda: app.received[-1]["type"] == "websocket.disconnect")
            assert app.received[-1]["code"] == 1013
            assert len([m for m in app.received if m["type"] == "sent"]) <= sent + 1
            transport.resume_reading()
            code, reason = await closed(connection)
            assert code == 1013 and len(reason) == 123

    run(main())


def test_pings_and_a_client_that_does_not_answer() -> None:
    """The deadlines of requests do not apply."""

    async def main() -> None:
        async with serving(ping=0.5, timeout=0.5) as served:
            reader, writer = await served.raw()
            async with served.connect() as connection:
                code, reason = await close_of(reader)
                assert (code, reason) == (1011, "no pong within 0.5 s")
                await connection.send("alive")
                assert await connection.recv() == "alive"
            writer.close()

    run_on(loop_factory(), main())


def test_a_stop_closes_websockets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "LINGER", 0.1)

    async def main() -> None:
        async with serving() as served, served.connect() as connection:
            reader, writer = await served.raw()  # does not close its side
            served.app.reading.clear()
            opening = asyncio.create_task(served.connect("/late").__aenter__())
            await eventually(lambda: len(served.app.scopes) == 3)
            stopping = asyncio.create_task(served.server.stop())
            code, reason = await closed(connection)
            assert (code, reason) == (CloseCode.GOING_AWAY, "the service is stopping")
            served.app.reading.set()
            late = await opening
            assert (await closed(late))[0] == CloseCode.GOING_AWAY
            assert (await close_of(reader))[0] == CloseCode.GOING_AWAY
            await stopping
            assert not served.server._connections.open
            assert not served.server._connections.tasks
            writer.close()

    run(main())
