"""What a parent and its children say to each other: frames of length + msgpack over a socket pair.

Jobs and kinds have numbers, which are never used again. Either end's death is the other's EOF. Credentials go over the
socket and nowhere else.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec

from bide.client.apis import Ref, Seen
from bide.client.apis.form import Description
from bide.core.budget import Limit

CHUNK = 1 << 18
_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_read_seen = msgspec.json.Decoder(Seen).decode


class Message(msgspec.Struct, tag=True, array_like=True):
    pass


# --- down


class Start(Message):
    """Where to ask, and how."""

    form: Description
    url: str | None
    own: bool  # a bide service
    folder: str | None  # of the description, for files that it names
    limit: Limit | None
    price: float
    budgets: str  # the folder of the shared budget
    clock: tuple[float, float]  # speed, and since when
    search: list[str]  # where modules are found
    shared: tuple[str, str] | None = None  # where machines share the budget, and its name there

    def __repr__(self) -> str:
        return f"<Start {self.form.name}>"


class Proof(Message):
    """The headers that prove who asks; a higher turn than before when they are others."""

    turn: int
    headers: dict[str, str]  # of the credential
    added: dict[str, str]  # of the caller

    def __repr__(self) -> str:
        return f"<Proof {self.turn}>"


class Kind(Message):
    """What is known of a kind."""

    number: int
    data: dict[str, Any]
    batch: int
    size: str | None


class Watch(Message):
    """Wait for this job."""

    number: int
    kind: int
    ref: Ref
    submitted_at: float | None
    seen: bytes | None
    etag: str | None
    options: dict[str, Any]


class Unwatch(Message):
    number: int


class Leave(Message):
    """Tell the rest, and exit."""


# --- both ways


class Learned(Message):
    """What was learned of a kind since the last time."""

    kind: int
    news: dict[str, Any]


# --- up


class Told(Message):
    """A job as an answer told: it goes on, or has ended."""

    number: int
    requests: int  # since it was last told of
    sent: int  # requests for all jobs, since the last message
    ref: Ref
    submitted_at: float | None
    seen: bytes


class GaveUp(Message):
    """Nothing more will be heard of a job, for this reason."""

    number: int
    requests: int
    sent: int
    status: int
    problem: dict[str, Any]


class Denied(Message):
    """The API does not take the proof of this turn. A Proof must follow."""

    turn: int


class Beat(Message):
    """Still alive."""

    sent: int


class Said(Message):
    """A line for the log."""

    level: int
    text: str


Down = Start | Proof | Kind | Watch | Unwatch | Learned | Leave
Up = Told | GaveUp | Denied | Learned | Beat | Said


def pack(seen: Seen | None) -> bytes | None:
    """As JSON, for a result may hold numbers that msgpack does not know."""
    return None if seen is None else msgspec.json.encode(seen)


def unpack(data: bytes) -> Seen:
    return _read_seen(data)


class Channel:
    """One end of the socket. What is said in one round of the loop goes out together."""

    def __init__(self, form: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(form).decode
        self._outgoing = bytearray()
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = await asyncio.open_unix_connection(sock=sock)

    def say(self, message: Message) -> None:
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        body = _encode(message)
        self._outgoing += _LENGTH.pack(len(body)) + body

    def _flush(self) -> None:
        if self._outgoing and self._writer is not None and not self._writer.is_closing():
            self._writer.write(bytes(self._outgoing))
        self._outgoing.clear()

    async def heard(self) -> AsyncIterator[Any]:
        """Until the other end is gone."""
        buffer = bytearray()
        while data := await self._read():
            buffer += data
            start = 0
            while len(buffer) - start >= 4:
                end = start + 4 + _LENGTH.unpack_from(buffer, start)[0]
                if len(buffer) < end:
                    break
                yield self._decode(memoryview(buffer)[start + 4 : end].tobytes())
                start = end
            del buffer[:start]

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(CHUNK)
        except OSError:
            return b""

    async def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
