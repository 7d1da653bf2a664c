"""The messages between a parent and its child processes: a length and msgpack, over a socket pair.

Jobs and kinds have numbers, which are never reused. If one end dies, the other reads EOF. Credentials are sent over the
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
from bide.client.client_tracer import Carrier
from bide.client.polling.schedule import PollSettings
from bide.core.pacing.budget import Limit

CHUNK = 1 << 18
_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_read_seen = msgspec.json.Decoder(Seen).decode


class PollingMessage(msgspec.Struct, tag=True, array_like=True):
    pass


# --- from the parent


class StartPolling(PollingMessage):
    """The API to poll, and the options."""

    form: Description
    url: str | None
    own: bool  # the API is a bide service
    folder: str | None  # of the description; relative file names start here
    limit: Limit | None
    settings: PollSettings
    budgets: str  # the folder of the shared budget
    clock: tuple[float, float]  # speed, and start
    search: list[str]  # sys.path of the parent
    shared: tuple[str, str] | None = None  # URL and name of a budget that machines share
    traced: bool = False  # report each request

    def __repr__(self) -> str:
        return f"<StartPolling {self.form.name}>"


class CredentialUpdate(PollingMessage):
    """The headers that authenticate; `generation` is higher than before if they differ."""

    generation: int
    headers: dict[str, str]  # of the credential
    added: dict[str, str]  # of the caller
    source: str  # a sentence about where the credential comes from

    def __repr__(self) -> str:
        return f"<CredentialUpdate {self.generation}>"


class KindKnowledge(PollingMessage):
    """The statistics of a kind."""

    number: int
    data: dict[str, Any]
    batch: int
    size: str | None


class WatchJob(PollingMessage):
    """Poll this job."""

    number: int
    kind: int
    ref: Ref
    submitted_at: float | None
    seen: bytes | None
    etag: str | None
    options: dict[str, Any]
    caller: Carrier | None = None  # the span in which the program submitted the job, or began to wait


class UnwatchJob(PollingMessage):
    number: int


class StopPolling(PollingMessage):
    """Send the remaining messages, and exit."""


# --- in both directions


class KindNews(PollingMessage):
    """Observations about a kind since the last such message."""

    kind: int
    news: dict[str, Any]


# --- from a child


class JobObserved(PollingMessage):
    """The state of a job in a response."""

    number: int
    requests: int  # for this job, since the last message about it
    sent: int  # for all jobs, since the last message
    ref: Ref
    submitted_at: float | None
    seen: bytes


class JobGivenUp(PollingMessage):
    """The child stopped polling a job because of this problem."""

    number: int
    requests: int
    sent: int
    status: int
    problem: dict[str, Any]


class CredentialRejected(PollingMessage):
    """The API rejected the credential of this generation. The parent replies with a CredentialUpdate."""

    generation: int


class PollingHeartbeat(PollingMessage):
    """The child is alive."""

    sent: int
    refused: int  # requests that the API rejected because there were too many, since the last heartbeat


class RequestSent(PollingMessage):
    """A request, of which the parent makes a span. `status`: None if there was no answer."""

    method: str
    url: str
    callers: list[Carrier] | None  # of the jobs of a poll; None: it is no poll
    times: tuple[int, int]  # begin and end, in nanoseconds
    status: int | None
    error: str | None

    def __repr__(self) -> str:
        return f"<RequestSent {self.status}>"


class LogLine(PollingMessage):
    """A line for the parent's log."""

    level: int
    text: str


ParentMessage = (
    StartPolling | CredentialUpdate | KindKnowledge | WatchJob | UnwatchJob | KindNews | StopPolling
)
ChildMessage = (
    JobObserved | JobGivenUp | CredentialRejected | KindNews | PollingHeartbeat | RequestSent | LogLine
)


def pack(seen: Seen | None) -> bytes | None:
    """Encode as JSON, because a result may contain integers that msgpack cannot encode."""
    return None if seen is None else msgspec.json.encode(seen)


def unpack(data: bytes) -> Seen:
    return _read_seen(data)


class MessageChannel:
    """One end of the socket. Messages sent in one iteration of the event loop are written together."""

    def __init__(self, form: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(form).decode
        self._outgoing = bytearray()
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = await asyncio.open_unix_connection(sock=sock)

    def send(self, message: PollingMessage) -> None:
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        body = _encode(message)
        self._outgoing += _LENGTH.pack(len(body)) + body

    def _flush(self) -> None:
        if self._outgoing and self._writer is not None and not self._writer.is_closing():
            self._writer.write(bytes(self._outgoing))
        self._outgoing.clear()

    async def received(self) -> AsyncIterator[Any]:
        """Yield messages until the other end closes."""
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
