"""A WebSocket after its handshake: the frames of RFC 6455, and the `receive` and `send` of ASGI.

1. `websockets` parses and makes the frames; this module moves bytes and messages within limits. There are no extensions,
   so a frame is never larger in memory than on the wire.
2. A message has at most `limits.message` bytes (1009). Other bytes than frames close the WebSocket with 1002, text that is
   not UTF-8 with 1007.
3. Frames are parsed only as fast as the application receives messages: at most MAX_MESSAGES of them, or HIGH_WATER bytes,
   wait for it. The rest waits unparsed, and reading pauses.
4. `send` waits while the client does not read. A close is sent at once, because an application that closes the WebSocket of
   a slow client does not want to wait for it.
5. The service sends a ping every `limits.ping` seconds, and closes the WebSocket if there was no pong until the next one.
6. Each closed WebSocket ends: after a close the client has LINGER seconds to close its side.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol

from bide.service.httpd.deadlines import LINGER, SendDeadline
from bide.service.httpd.request_cycle import HIGH_WATER, Message

if TYPE_CHECKING:
    from bide.service.httpd.connection import Connections

MAX_MESSAGES = 16  # complete messages that wait for the application
SLICE = 4096  # bytes that are parsed at once: a read can have thousands of tiny messages
# Unsent bytes above which nothing is read: a client may send pings and never read the pongs.
MAX_REPLIES = 256 * 1024
MAX_REASON = 123  # bytes of the reason of a close

# `websockets` reports each opened and closed connection at the level INFO.
_protocol_log = logging.getLogger("bide.websocket")
_protocol_log.setLevel(logging.WARNING)


class WebSocketConnection(asyncio.Protocol):
    """The connection to a client that has switched from HTTP. It is open from the start."""

    def __init__(self, shared: Connections, transport: asyncio.Transport, write_paused: bool) -> None:
        limits = shared.limits
        self._shared = shared
        self._loop = shared.loop
        self._transport = transport
        self._protocol = ServerProtocol(state=State.OPEN, max_size=limits.message, logger=_protocol_log)
        # From the client.
        self._unparsed = bytearray()
        self._parts: bytearray | None = None  # of a message in several frames
        self._is_text = False
        self._messages: deque[tuple[int, Message]] = deque()  # with their bytes
        self._waiting = 0  # bytes of _messages
        self._read_paused = False
        self._event: asyncio.Event | None = None  # set when there is something to receive
        self._closed: tuple[int, str] | None = None  # code and reason: no more messages
        # To the client.
        self._write_paused = write_paused
        self._writable: asyncio.Event | None = None
        self._send_deadline = SendDeadline(limits.timeout)
        self._ping_at = self._loop.time() + limits.ping
        self._pong_due = False
        self._until: float | None = None  # deadline of a client that should close its side

    # --- from the transport

    def data_received(self, data: bytes) -> None:
        if self._protocol.eof_sent:  # the rest is ignored
            return
        self._unparsed += data
        self._parse()

    def eof_received(self) -> bool:
        """A client that sends nothing more cannot answer a ping or a close, so the connection ends."""
        self._protocol.receive_eof()
        self._disconnect(CloseCode.ABNORMAL_CLOSURE, "")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.open.discard(self)
        self._disconnect(CloseCode.ABNORMAL_CLOSURE, "")
        self.resume_writing()
        self._unparsed.clear()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._continue_sends()
        self._parse()

    def _continue_sends(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    # --- frames

    def _parse(self) -> None:
        """Parse until the application has enough to receive."""
        protocol = self._protocol
        while self._unparsed and not protocol.eof_sent and self._wants_more():
            part = self._unparsed[:SLICE]
            del self._unparsed[:SLICE]
            protocol.receive_data(part)
            for frame in protocol.events_received():
                assert isinstance(frame, Frame)
                self._on_frame(frame)
            self._flush()
        if protocol.eof_sent:
            self._unparsed.clear()
        paused = bool(self._unparsed)
        if paused != self._read_paused and not self._transport.is_closing():
            self._read_paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _wants_more(self) -> bool:
        if self._closed is not None:  # only a close is still of interest
            return True
        return (
            self._waiting < HIGH_WATER
            and len(self._messages) < MAX_MESSAGES
            and not (self._write_paused and self._transport.get_write_buffer_size() > MAX_REPLIES)
        )

    def _on_frame(self, frame: Frame) -> None:
        opcode = frame.opcode
        if opcode is Opcode.PONG:
            self._pong_due = False
        elif opcode in (Opcode.TEXT, Opcode.BINARY):
            self._is_text = opcode is Opcode.TEXT
            if frame.fin:
                self._on_message(bytes(frame.data))
            else:
                self._parts = bytearray(frame.data)
        elif opcode is Opcode.CONT and self._parts is not None:
            self._parts += frame.data
            if frame.fin:
                data, self._parts = bytes(self._parts), None
                self._on_message(data)

    def _on_message(self, data: bytes) -> None:
        if self._closed is not None:
            return
        message: Message = {"type": "websocket.receive"}
        if self._is_text:
            try:
                message["text"] = data.decode()
            except UnicodeDecodeError as error:
                reason = f"the text is not UTF-8: {error.reason} at byte {error.start}"
                self._protocol.fail(CloseCode.INVALID_DATA, reason)
                self._disconnect(CloseCode.INVALID_DATA, reason)
                return
        else:
            message["bytes"] = data
        self._messages.append((len(data), message))
        self._waiting += len(data)
        self._wake()

    def _flush(self) -> None:
        """Write what the protocol has to send, and end the connection if it is closed."""
        protocol, transport = self._protocol, self._transport
        writes = protocol.data_to_send()
        ended = SEND_EOF in writes
        if transport.is_closing():
            return
        if data := b"".join(writes):
            transport.write(data)
        if not protocol.close_expected():
            return
        self._continue_sends()
        received, sent = protocol.close_rcvd, protocol.close_sent
        close = received or sent
        if close is not None:
            self._disconnect(close.code, close.reason)
        if not ended:
            self._until = self._until or self._loop.time() + LINGER
        elif received is not None:
            transport.close()
        else:
            # Closing immediately would reset the connection while the client sends, and the close would be lost.
            transport.write_eof()
            self._until = self._loop.time() + LINGER

    # --- from the application

    async def receive(self) -> Message:
        while True:
            if self._messages:
                size, message = self._messages.popleft()
                self._waiting -= size
                self._parse()
                return message
            if self._closed is not None:
                code, reason = self._closed
                return {"type": "websocket.disconnect", "code": code, "reason": reason}
            if self._event is None:
                self._event = asyncio.Event()
            self._event.clear()
            await self._event.wait()

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "websocket.close":
            self.close(message.get("code", 1000), message.get("reason") or "")
            return
        if kind != "websocket.send":
            raise RuntimeError(f"ASGI message {kind!r} is not supported")
        while self._write_paused and self._is_open:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()
        if not self._is_open:
            return
        data = message.get("bytes")
        if data is None:
            self._protocol.send_text(message["text"].encode())
        else:
            self._protocol.send_binary(data)
        self._flush()

    def close(self, code: int, reason: str = "") -> None:
        if self._is_open:
            self._protocol.send_close(code, _shorten(reason))
            self._flush()

    @property
    def _is_open(self) -> bool:
        return self._protocol.state is State.OPEN and not self._transport.is_closing()

    def _disconnect(self, code: int, reason: str) -> None:
        if self._closed is None:
            self._closed = (code, reason)
            self._wake()

    def _wake(self) -> None:
        if self._event is not None:
            self._event.set()

    # --- limits

    def check(self, now: float) -> None:
        """Send a ping if it is time, and end the connection if its client does not answer."""
        transport = self._transport
        unsent = transport.get_write_buffer_size()
        if self._send_deadline.passed(now, unsent):
            transport.abort()
        elif self._until is not None:
            if now >= self._until:
                if unsent:  # the close is still being sent
                    self._until = now + LINGER
                else:
                    transport.abort()
        elif now >= self._ping_at and self._is_open:
            self._ping(now, unsent)

    def _ping(self, now: float, unsent: int) -> None:
        interval = self._shared.limits.ping
        self._ping_at = now + interval
        if not self._pong_due:
            self._protocol.send_ping(b"")
            self._pong_due = True
        elif not self._read_paused and not unsent:  # otherwise the ping or the pong may be waiting here
            self._protocol.fail(CloseCode.INTERNAL_ERROR, f"no pong within {interval:g} s")
        self._flush()

    # --- closing

    def shutdown(self) -> None:
        """Called when the service stops."""
        self.close(CloseCode.GOING_AWAY, "the service is stopping")

    def abort(self) -> None:
        self._transport.abort()


def _shorten(reason: str) -> str:
    return reason.encode()[:MAX_REASON].decode(errors="ignore")
