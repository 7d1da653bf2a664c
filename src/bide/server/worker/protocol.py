"""What a supervisor and its children say to each other: frames of length + msgpack over socket pairs.

Each child has two: `work` carries jobs, results and requests; `control` carries heartbeats up and wishes to stop down,
and is served by a thread of its own, so that it works while a handler does. Either end's death is the other's EOF.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from bide.core.record import FileInfo, Progress, Status


class ChildMessage(msgspec.Struct, tag=True, array_like=True):
    pass


# --- down


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
    kept: list[str] = []  # steps whose results are not in `steps`: the child asks for each that it needs


class StepReply(ChildMessage):
    """To a request with this number: it is stored, or the attempt has lost its lease. `result` answers a `Recall`."""

    number: int
    stored: bool
    result: bytes | None = None


class StopJob(ChildMessage):
    """Stop this job: told first, terminated later."""

    job_id: str
    fence: int


class ReturnJobs(ChildMessage):
    """Give back the jobs that have not been started."""


class ExitChild(ChildMessage):
    """Finish what runs and exit."""


# --- up


class Ready(ChildMessage):
    """The app is loaded and the start hooks have run."""


class StartFailed(ChildMessage):
    """The app cannot be loaded."""

    error: str


class Heartbeat(ChildMessage):
    """Still alive."""


class NeedsReplacement(ChildMessage):
    """A handler has left something behind that cannot be put right: the child is to be replaced. It starts no job more."""


class JobsReturned(ChildMessage):
    """These were not started, and will not be."""

    jobs: list[tuple[str, int]]


class AttemptMessage(ChildMessage):
    """Something that an attempt says."""

    job_id: str
    fence: int


class ProgressChanged(AttemptMessage):
    """There was progress, or at least a sign of life."""

    progress: Progress | None


class LogLine(AttemptMessage):
    """A line for the job's log."""

    line: dict[str, Any]


class StepBegan(AttemptMessage):
    """A step has begun."""

    step: str


class KeepStep(AttemptMessage):
    """A step has succeeded; the child waits for the answer before it goes on."""

    number: int
    step: str
    result: bytes
    files: list[FileInfo]


class ReadStep(AttemptMessage):
    """The child needs the result of a step that an earlier attempt has kept, and waits for the answer."""

    number: int
    step: str


class Spawn(AttemptMessage):
    """A child job to be sent on its way."""

    child_id: str
    key: str
    kind: str
    input: bytes
    files: list[FileInfo]


class AttemptDone(AttemptMessage):
    result: bytes | None
    result_file: FileInfo | None
    errors: bytes | None  # JSON, like the result: msgpack has no integers of more than 64 bits
    files: list[FileInfo]
    progress: Progress | None
    took: float | None = None  # seconds by the child's own watch: ours would count the messages' way too


class AttemptFailed(AttemptMessage):
    code: str
    message: str
    retryable: bool
    step: str | None
    progress: Progress | None


class AttemptParked(AttemptMessage):
    waiting_for: list[str]
    files: list[FileInfo]
    progress: Progress | None


class AttemptStopped(AttemptMessage):
    """The handler has obeyed the wish to stop."""

    progress: Progress | None


ToChild = RunJob | StepReply | StopJob | ReturnJobs | ExitChild
FromChild = (
    Ready
    | StartFailed
    | Heartbeat
    | NeedsReplacement
    | JobsReturned
    | ProgressChanged
    | LogLine
    | StepBegan
    | KeepStep
    | ReadStep
    | Spawn
    | AttemptDone
    | AttemptFailed
    | AttemptParked
    | AttemptStopped
)

StepRequest = KeepStep | ReadStep
AttemptEnd = AttemptDone | AttemptFailed | AttemptParked | AttemptStopped
_LENGTH = struct.Struct("!I")
LONGEST = 256 * 1024 * 1024  # a longer one is not a message: a handler has written into the socket
_encoder = msgspec.msgpack.Encoder()
_down = msgspec.msgpack.Decoder(ToChild)
_up = msgspec.msgpack.Decoder(FromChild)


def frame(message: ChildMessage) -> bytes:
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Cuts a stream of bytes into messages."""

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
                if length > LONGEST:
                    raise msgspec.DecodeError(f"a message of {length} bytes")
                if len(buffer) - start - 4 < length:
                    break
                body = bytes(buffer[start + 4 : start + 4 + length])
                start += 4 + length
                yield self._decode(body)
        finally:
            del buffer[:start]
