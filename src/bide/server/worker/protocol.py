"""The messages between the supervisor and its children: frames of length + msgpack over socket pairs.

Each child has two sockets. `work` carries jobs, results and requests. `control` carries heartbeats to the supervisor and
stop requests to the child; a separate thread serves it, so that it works while a handler runs. When one end dies, the
other reads EOF.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from bide.core.jobs.record import FileInfo, Progress, Status


class ChildMessage(msgspec.Struct, tag=True, array_like=True):
    pass


# --- to the child


class GivenFile(msgspec.Struct, array_like=True):
    """A file that the handler may read."""

    job: str
    file: FileInfo


class SpawnedJobState(msgspec.Struct, array_like=True):
    """A spawned job as it was when the parent was claimed."""

    job_id: str
    key: str
    kind: str
    status: Status | None
    result: bytes | None = None
    result_file: FileInfo | None = None
    error: dict[str, Any] | None = None
    files: list[GivenFile] = []


class RunJob(ChildMessage):
    """Run this job."""

    job_id: str
    fence: int
    attempt: int
    kind: str
    input: bytes
    files: list[GivenFile]
    steps: dict[str, bytes]
    children: list[SpawnedJobState]
    progress: Progress | None = None
    kept: list[str] = []  # steps whose results are not in `steps`: the child requests them with ReadStep
    trace_id: str | None = None
    output_left: int = 0  # bytes that the handler may still emit
    trace: tuple[str, str] | None = None  # traceparent and tracestate of a traced job


class StepReply(ChildMessage):
    """The reply to the request with this number. `stored` is False if the attempt has lost its lease. `result` is for
    `ReadStep`.
    """

    number: int
    stored: bool
    result: bytes | None = None


class StopJob(ChildMessage):
    """Stop this job; the supervisor terminates the child later if it does not stop."""

    job_id: str
    fence: int


class ReturnJobs(ChildMessage):
    """Return the jobs that have not started."""


class ExitChild(ChildMessage):
    """Finish the running jobs and exit."""


# --- from the child


class Ready(ChildMessage):
    """The app is loaded and the start hooks have run."""


class StartFailed(ChildMessage):
    """The app cannot be loaded."""

    error: str


class Heartbeat(ChildMessage):
    """The child is alive."""


class NeedsReplacement(ChildMessage):
    """The process state cannot be restored after a handler, so the child must be replaced. It starts no more jobs."""


class JobsReturned(ChildMessage):
    """These jobs have not started, and the child will not start them."""

    jobs: list[tuple[str, int]]


class AttemptMessage(ChildMessage):
    """A message of an attempt."""

    job_id: str
    fence: int


class ProgressChanged(AttemptMessage):
    """New progress; None is a heartbeat of the handler."""

    progress: Progress | None


class JobLogLine(AttemptMessage):
    """A line for the job's log."""

    line: dict[str, Any]


class OutputEmitted(AttemptMessage):
    """A chunk of the job's output stream, as JSON."""

    data: bytes


class StepBegan(AttemptMessage):
    """A step has started."""

    step: str


class KeepStep(AttemptMessage):
    """Store the result of a step. The child waits for the reply."""

    number: int
    step: str
    result: bytes
    files: list[FileInfo]


class ReadStep(AttemptMessage):
    """Read the result of a step that an earlier attempt has stored. The child waits for the reply."""

    number: int
    step: str


class EnterBreaker(AttemptMessage):
    """Ask whether the handler may call a dependency. The child waits for the reply. `stored` says whether it may; if not,
    `result` is when it may be probed, or None if the attempt must stop.
    """

    number: int
    breaker: str


class LeaveBreaker(AttemptMessage):
    """A call of a dependency has ended. `success` is None if it has no result, because the handler was stopped."""

    breaker: str
    success: bool | None


class Spawn(AttemptMessage):
    """Submit a child job."""

    child_id: str
    key: str
    kind: str
    input: bytes
    files: list[FileInfo]


class AttemptDone(AttemptMessage):
    result: bytes | None
    result_file: FileInfo | None
    errors: bytes | None  # JSON, like the result, because msgpack has no integers over 64 bits
    files: list[FileInfo]
    progress: Progress | None
    took: float | None = None  # seconds, measured by the child, so without the messages' transit


class AttemptFailed(AttemptMessage):
    code: str
    message: str
    retryable: bool
    step: str | None
    progress: Progress | None
    trace: str | None = None  # the end of the traceback
    breaker: str | None = None  # the breaker through which the exception has passed


class AttemptDelayed(AttemptMessage):
    """The handler needs a breaker that is open."""

    breaker: str
    progress: Progress | None


class AttemptParked(AttemptMessage):
    waiting_for: list[str]
    files: list[FileInfo]
    progress: Progress | None


class AttemptStopped(AttemptMessage):
    """The handler has stopped on request."""

    progress: Progress | None


ToChild = RunJob | StepReply | StopJob | ReturnJobs | ExitChild
FromChild = (
    Ready
    | StartFailed
    | Heartbeat
    | NeedsReplacement
    | JobsReturned
    | ProgressChanged
    | JobLogLine
    | OutputEmitted
    | StepBegan
    | KeepStep
    | ReadStep
    | EnterBreaker
    | LeaveBreaker
    | Spawn
    | AttemptDone
    | AttemptFailed
    | AttemptDelayed
    | AttemptParked
    | AttemptStopped
)

StepRequest = KeepStep | ReadStep | EnterBreaker
AttemptEnd = AttemptDone | AttemptFailed | AttemptDelayed | AttemptParked | AttemptStopped
TEXT_LIMIT = 4000  # characters of a message
_LENGTH = struct.Struct("!I")
MAX_LENGTH = 256 * 1024 * 1024  # a longer frame means that a handler has written into the socket
_encoder = msgspec.msgpack.Encoder()
_down = msgspec.msgpack.Decoder(ToChild)
_up = msgspec.msgpack.Decoder(FromChild)


def frame(message: ChildMessage) -> bytes:
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def text_of(value: Any, limit: int = TEXT_LIMIT) -> str:
    """A user's value as text that can be sent and stored: of limited length, without lone surrogates."""
    try:
        text = str(value)
    except BaseException:  # a failing __str__ must not hide the original failure
        text = type(value).__name__
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    return text.encode("utf-8", "backslashreplace").decode()


class FrameDecoder:
    """Decodes a stream of bytes into messages."""

    def __init__(self, *, upward: bool) -> None:
        self._decode = _up.decode if upward else _down.decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= 4:
                (length,) = _LENGTH.unpack_from(buffer, start)
                if length > MAX_LENGTH:
                    raise msgspec.DecodeError(f"a frame of {length} bytes exceeds {MAX_LENGTH}")
                if len(buffer) - start - 4 < length:
                    break
                body = bytes(buffer[start + 4 : start + 4 + length])
                start += 4 + length
                yield self._decode(body)
        finally:
            del buffer[:start]
