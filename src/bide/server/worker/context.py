"""`Context`: the handler's interface to its job. It runs in the child process and exchanges messages with the supervisor.

1. A step's result is on disk before `step` returns; a later attempt gets it without running the step.
2. `progress` is coalesced here: a million calls send a few messages.
3. When the job must stop, the next call of a context method raises `HandlerStopped`, which `except Exception` does not
   catch.
4. `gather` never blocks: it returns the results, or unwinds the handler, which runs again when the children have ended.
"""

from __future__ import annotations

import inspect
import math
import mimetypes
import os
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from pathlib import Path
from time import monotonic, time  # by name, because a handler may patch the module
from typing import Any, Protocol, TypeVar, overload

import msgspec

from bide.core.errors import JobError
from bide.core.jobs.input_paths import HIDDEN
from bide.core.jobs.record import MAX_CHILDREN, FileInfo, Progress, Status
from bide.core.wire.http import job_id
from bide.server.blobs import Blobs, check_name
from bide.server.durable_files import FOLDER_MODE
from bide.server.registry import NAME, File, FileRef, Registry
from bide.server.worker import protocol as p
from bide.server.worker.job_log import JobLog
from bide.server.worker.protocol import text_of

T = TypeVar("T")
STEP_LIMIT = 1024 * 1024
CHUNK_LIMIT = 256 * 1024  # bytes of one `emit`
SEND_EVERY = 0.1  # seconds between two progress messages
# Finds numbers that JSON or its readers may not support: not finite, or with thousands of digits.
_SUSPECT_NUMBER = re.compile(rb"NaN|Infinity|[0-9]{4300}")


class HandlerStopped(BaseException):
    """The job must stop: it was cancelled, or exceeded a time limit."""


class HandlerParked(BaseException):
    """Unwinds the handler until these child jobs have ended."""

    def __init__(self, waiting_for: Sequence[str]) -> None:
        super().__init__(waiting_for)
        self.waiting_for = list(waiting_for)


class HandlerDelayed(BaseException):
    """Unwinds the handler until a breaker closes."""

    def __init__(self, breaker: str) -> None:
        super().__init__(breaker)
        self.breaker = breaker


class BreakerBlock:
    """`with ctx.breaker("vendor"):` or `async with …`: a call of a dependency, whose outcome counts for its breaker."""

    __slots__ = ("_ctx", "_name")

    def __init__(self, ctx: Context, name: str) -> None:
        self._ctx = ctx
        self._name = name

    def __enter__(self) -> None:
        self._ctx.enter_breaker(self._name, self._ctx.ask_breaker(self._name))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._ctx.leave_breaker(self._name, error)

    async def __aenter__(self) -> None:
        self._ctx.enter_breaker(self._name, await self._ctx.ask_breaker_async(self._name))

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._ctx.leave_breaker(self._name, error)


class Partial:
    """`return Partial(value, errors=[…])`: a part of the job succeeded. The job becomes PARTIAL_SUCCESS."""

    def __init__(self, value: Any, errors: Iterable[Any] = ()) -> None:
        self.value = value
        self.errors = [_error(e) for e in errors]


Fetch = Callable[[FileInfo], Path]  # downloads a file if it is not local, and returns its path


class SpawnedJob:
    """A job that the handler has spawned. After `gather` has returned its result, its files can be read, too."""

    __slots__ = ("_fetch", "_state")

    def __init__(self, state: p.SpawnedJobState, fetch: Fetch) -> None:
        self._state = state
        self._fetch = fetch

    @property
    def job_id(self) -> str:
        return self._state.job_id

    @property
    def key(self) -> str:
        return self._state.key

    @property
    def files(self) -> dict[str, File]:
        """The job's outputs by name."""
        return {given.file.name: given_file(given, self._fetch) for given in self._state.files}


def given_file(given: p.GivenFile, fetch: Fetch) -> File:
    """The `File` for a handler."""
    info = given.file
    ref = FileRef(given.job, info.name)
    return File(ref, partial(fetch, info), info.content_type, info.size, info.sha256)


class JobChannel(Protocol):
    """The connection of a context to the supervisor."""

    def send(self, message: p.ChildMessage) -> None: ...

    def try_send(self, message: p.ChildMessage) -> bool:
        """Send the message and return True. Return False, without waiting, while another message is being sent."""
        ...

    def ask(self, message: p.StepRequest) -> p.StepReply:
        """Block until the reply arrives."""
        ...

    async def ask_async(self, message: p.StepRequest) -> p.StepReply: ...


class Context:
    """The argument `ctx` of a handler."""

    def __init__(
        self, run: p.RunJob, channel: JobChannel, registry: Registry, blobs: Blobs, work: Path
    ) -> None:
        self._run = run
        self._channel = channel
        self._registry = registry
        self._blobs = blobs
        self._work = work
        self._stop = False
        self._ended = False
        kind = registry.kind(run.kind)
        self._weights = kind.steps
        self._secrets = kind.secret_texts(run.input) if kind.secret else ()
        self._begun: list[str] = []
        self._finished: set[str] = set()
        self._active: list[str] = []
        self._files: list[FileInfo] = []
        self._children = {state.key: state for state in run.children}
        self._spawned: dict[str, int] = {}
        self._missing: list[dict[str, Any]] = []
        self._failed_calls: list[tuple[BaseException, str]] = []  # exceptions, and the breakers
        self._log: JobLog | None = None
        self._output_left = run.output_left
        # done, total, unit, message of the latest progress; None when it was sent
        self._latest: tuple[float | None, float | None, str | None, str | None] | None = None
        self._shown: Progress | None = run.progress
        self._next_send = -math.inf

    @property
    def job_id(self) -> str:
        return self._run.job_id

    @property
    def attempt(self) -> int:
        """The attempt's number: 1 for the first one, increased by each retry."""
        return self._run.attempt

    @property
    def fence(self) -> int:
        """A number that grows with each claim of the job. Lets other systems reject writes of older attempts."""
        return self._run.fence

    @property
    def trace_id(self) -> str | None:
        """The id of the trace that the job belongs to: from the caller's `traceparent`, or made at the submission."""
        return self._run.trace_id

    @property
    def trace_headers(self) -> dict[str, str]:
        """`traceparent` and `tracestate` for requests that the handler sends, so that their spans belong to the trace of
        the job; empty if the job is not traced.
        """
        if self._run.trace is None:
            return {}
        parent, state = self._run.trace
        return {"traceparent": parent, **({"tracestate": state} if state else {})}

    # --- progress

    def progress(
        self,
        done: float | None = None,
        total: float | None = None,
        *,
        unit: str | None = None,
        message: str | None = None,
    ) -> None:
        """Report progress: `ctx.progress(3, 10, unit="pages", message="Reading")`. Cheap: call it as often as you like."""
        self._latest = (done, total, unit, message)
        if self._stop:
            self._check()
        now = monotonic()
        if now >= self._next_send:
            self._next_send = now + SEND_EVERY
            self.flush()

    def heartbeat(self) -> None:
        """Reset the `stall` timer without progress to report."""
        self._check()
        now = monotonic()
        if now >= self._next_send:
            self._next_send = now + SEND_EVERY
            self._channel.send(p.ProgressChanged(self.job_id, self.fence, None))

    def flush(self) -> None:
        """Send the log lines and the latest progress that have not been sent. The heartbeat thread calls it, too."""
        if self._log is not None:
            self._log.flush()
        latest = self._latest
        if latest is not None:
            self._latest = None
            self._shown = self._measure(*latest)
            self._channel.send(p.ProgressChanged(self.job_id, self.fence, self._shown))

    def latest_progress(self) -> Progress | None:
        """The latest progress, for the record."""
        latest = self._latest
        if latest is not None:
            self._latest = None
            with suppress(Exception):  # an invalid value must not hide how the job ended
                self._shown = self._measure(*latest)
        return self._shown

    def _measure(
        self, done: float | None, total: float | None, unit: str | None, message: str | None
    ) -> Progress:
        step = self._active[-1] if self._active else self._next_step()
        part = None
        done, total = _number(done), _number(total)
        unit = None if unit is None else self.hide(text_of(unit, 100))
        message = None if message is None else self.hide(text_of(message))
        if done is not None and total is not None and total > 0:
            part = min(max(done / total, 0.0), 1.0)
        percent = None if part is None else round(self._percent(step, part), 2)
        return Progress(percent, message, step, done, total, unit)

    def _next_step(self) -> str | None:
        """Progress outside of a step counts for the next declared step."""
        return next((name for name in self._weights if name not in self._begun), None)

    def _percent(self, step: str | None, part: float) -> float:
        whole = sum(self._weights.values())
        if whole <= 0:
            return part * 100
        behind = sum(w for name, w in self._weights.items() if name in self._finished and name != step)
        return (behind + self._weights.get(step or "", 0.0) * part) * 100 / whole

    # --- steps

    @overload
    def step(
        self, name: str, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(self, name: str, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T: ...

    def step(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run `fn` and store its result (JSON, up to 1 MiB), so that a later attempt does not repeat it."""
        self._check()
        if not isinstance(name, str) or name != text_of(name, 200):
            raise ValueError(
                f"{name!r:.50} is not a valid step name: use text of at most 200 characters"
            )
        if name in self._begun:
            text = f"step name {name!r} is used twice in this job: step names must be unique"
            raise JobError("STEP_REPEATED", text, retryable=False)
        self._begun.append(name)
        if inspect.iscoroutinefunction(fn):
            return self._step_async(name, fn, *args, **kwargs)
        if name in self._run.steps:
            return self._use_stored(name, self._run.steps[name])
        if name in self._run.kept:
            return self._use_stored(name, self._read_result(self._channel.ask(self._read_message(name))))
        self._begin_step(name)
        value = fn(*args, **kwargs)
        message = self._keep_message(name, value)
        self._end_step(name, self._channel.ask(message))
        return value

    async def _step_async(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if name in self._run.steps:
            return self._use_stored(name, self._run.steps[name])
        if name in self._run.kept:
            answer = await self._channel.ask_async(self._read_message(name))
            return self._use_stored(name, self._read_result(answer))
        self._begin_step(name)
        value = await fn(*args, **kwargs)
        message = self._keep_message(name, value)
        self._end_step(name, await self._channel.ask_async(message))
        return value

    def _use_stored(self, name: str, result: bytes) -> Any:
        self._finished.add(name)  # without a message, because progress must not go back
        return msgspec.json.decode(result)

    def _read_message(self, name: str) -> p.ReadStep:
        return p.ReadStep(self.job_id, self.fence, 0, name)

    def _read_result(self, answer: p.StepReply) -> bytes:
        if answer.result is None:
            self._stop = True
            raise HandlerStopped
        return answer.result

    def _begin_step(self, name: str) -> None:
        self._active.append(name)
        self._channel.send(p.StepBegan(self.job_id, self.fence, name))

    def _keep_message(self, name: str, value: Any) -> p.KeepStep:
        result = to_json(value, f"the result of step {name!r}")
        if len(result) > STEP_LIMIT:
            raise JobError(
                "STEP_TOO_LARGE",
                f"the result of step {name!r} has {len(result)} bytes; the limit is {STEP_LIMIT}",
                retryable=False,
            )
        self._check()  # a thread may finish its step after the handler has returned
        return p.KeepStep(self.job_id, self.fence, 0, name, result, self.take_files())

    def _end_step(self, name: str, answer: p.StepReply) -> None:
        if not answer.stored:
            self._stop = True
            raise HandlerStopped
        # After an exception the step stays active, so that it is reported as the failed step.
        self._active.remove(name)
        self._finish_step(name)

    def _finish_step(self, name: str) -> None:
        self._finished.add(name)
        if self._weights:
            percent = round(self._percent(None, 0.0), 2)
            self._latest, self._shown = None, Progress(percent=percent, step=name)
            self._channel.send(p.ProgressChanged(self.job_id, self.fence, self._shown))

    @property
    def failed_step(self) -> str | None:
        return self._active[-1] if self._active else None

    # --- breakers

    def breaker(self, name: str) -> BreakerBlock:
        """A context manager for a call of a dependency: `with ctx.breaker("vendor"): …`. All workers share the breaker.

        While it is open, this ends the attempt, which does not count. The handler runs again when the breaker has closed.
        """
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r:.50} is not a valid name of a breaker: use at most 100 letters, digits, '_', '.' and '-'"
            )
        return BreakerBlock(self, name)

    def ask_breaker(self, name: str) -> p.StepReply:
        self._check()
        return self._channel.ask(p.EnterBreaker(self.job_id, self.fence, 0, name))

    async def ask_breaker_async(self, name: str) -> p.StepReply:
        self._check()
        return await self._channel.ask_async(p.EnterBreaker(self.job_id, self.fence, 0, name))

    def enter_breaker(self, name: str, answer: p.StepReply) -> None:
        if answer.stored:
            return
        if answer.result is None:
            self._stop = True
            raise HandlerStopped
        raise HandlerDelayed(name)

    def leave_breaker(self, name: str, error: BaseException | None) -> None:
        if self._ended:
            return
        success: bool | None = True
        if error is not None and not isinstance(error, Exception):
            success = None
        elif isinstance(error, Exception) and self._registry.counts(name, error):
            success = False
            self._failed_calls.append((error, name))
        self._channel.send(p.LeaveBreaker(self.job_id, self.fence, name, success))

    def failed_breaker(self, error: BaseException | None) -> str | None:
        """The breaker of the failed call that this exception, or its cause, has ended."""
        for _ in range(len(self._failed_calls) + 10):
            for failed, name in self._failed_calls:
                if failed is error:
                    return name
            error = None if error is None else error.__cause__
        return None

    # --- files

    @property
    def folder(self) -> Path:
        """A folder for this job: kept across its attempts, removed after its end."""
        path = self._work / self.job_id
        for folder in (self._work, path):
            folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        return path

    def output(self, name: str, source: str | Path | bytes, content_type: str | None = None) -> File:
        """Add a file (or bytes) to the job's results. The file is copied; `source` does not change."""
        self._check()
        check_name(name)
        if name.startswith("."):
            raise ValueError(f"output name {name!r} must not begin with a dot")
        kind = str(content_type or mimetypes.guess_type(name)[0] or "application/octet-stream")
        if not (kind.isascii() and kind.isprintable()) or len(kind) > 200:
            raise ValueError(f"{kind[:50]!r} is not a content type")
        data = source if isinstance(source, bytes) else Path(source)
        info = self._blobs.put(self.job_id, self.fence, name, data, kind)
        self._files.append(info)
        return given_file(p.GivenFile(self.job_id, info), self.fetch)

    def fetch(self, file: FileInfo) -> Path:
        """The local path of a file. A file in remote storage is downloaded once, into this job's folder."""
        return self._blobs.fetch(file, self._work / self.job_id / ".files")

    def take_files(self) -> list[FileInfo]:
        files, self._files = self._files, []
        return files

    # --- children

    def spawn(self, kind: str, /, **input: Any) -> SpawnedJob:
        """Submit a child job, which runs on the queue of its kind. `gather` returns its result."""
        self._check()
        count = self._spawned[kind] = self._spawned.get(kind, 0) + 1
        key = f"{kind}#{count}"
        if key in self._children:
            return SpawnedJob(self._children[key], self.fetch)
        if len(self._children) >= MAX_CHILDREN:
            raise JobError(
                "TOO_MANY_CHILDREN", f"a job can have at most {MAX_CHILDREN} children", retryable=False
            )
        raw = to_json(input, f"the input of {kind!r}")
        self._registry.kind(kind).read_input(raw)
        child_id = job_id(time(), os.urandom(16))
        self._children[key] = p.SpawnedJobState(child_id, key, kind, None)
        self._channel.send(p.Spawn(self.job_id, self.fence, child_id, key, kind, raw, self.take_files()))
        return SpawnedJob(self._children[key], self.fetch)

    def gather(self, *children: SpawnedJob, partial: bool = False) -> list[Any]:
        """Return the children's results in order. If a child has not ended, this call unwinds the handler, which runs again
        when all of them have ended.

        A failed child fails this job (CHILD_FAILED). With `partial=True` its result is None, and this job becomes
        PARTIAL_SUCCESS.
        """
        self._check()
        states = [self._children[child.key] for child in children]
        waiting = [s.job_id for s in states if s.status is None]
        if waiting:
            raise HandlerParked([s.job_id for s in states])
        return [self._outcome(state, partial) for state in states]

    def _outcome(self, state: p.SpawnedJobState, partial: bool) -> Any:
        if state.status in (Status.DONE, Status.PARTIAL_SUCCESS):
            if state.result_file is not None:
                return msgspec.json.decode(self.fetch(state.result_file).read_bytes())
            return msgspec.json.decode(state.result) if state.result is not None else None
        error = state.error or {"code": str(state.status), "message": f"it is {state.status}"}
        if not partial:
            raise JobError(
                "CHILD_FAILED",
                f"{state.kind} {state.job_id}: {error['code']}: {error['message']}",
                retryable=False,
            )
        self._missing.append({**error, "jobId": state.job_id, "kind": state.kind})
        return None

    # --- the rest

    @property
    def cancelled(self) -> bool:
        """Whether the job must stop. Context methods raise then; loops without context calls can check this."""
        return self._stop

    def log(self, message: str, **fields: Any) -> None:
        """Add a line to the job's log, which `bide log` and GET /jobs/{id}/log return."""
        self._check()
        raw = to_json({"message": text_of(message), **fields}, "the log line")
        self._open_log().add(msgspec.json.decode(raw))

    def emit(self, data: Any) -> None:
        """Append text or any JSON value to the job's output stream: a token, a line, a page. Readers get it after it is
        stored, in order. A later attempt starts a new generation of the stream.
        """
        self._check()
        raw = to_json(data, "the output")
        if self._secrets:
            raw = self.hide_json(raw)
        if len(raw) > CHUNK_LIMIT:
            text = f"the output has {len(raw)} bytes; the limit of one call is {CHUNK_LIMIT}. Use ctx.output for files"
            raise JobError("OUTPUT_TOO_LARGE", text, retryable=False)
        if len(raw) > self._output_left:
            text = (
                "the output stream of the job is full: raise output_limit, or use ctx.output for files"
            )
            raise JobError("OUTPUT_LIMIT", text, retryable=False)
        self._output_left -= len(raw)
        self._channel.send(p.OutputEmitted(self.job_id, self.fence, raw))

    def job_log(self) -> JobLog | None:
        """The log, for the records of `logging`; None after the handler has returned."""
        return None if self._ended else self._open_log()

    def _open_log(self) -> JobLog:
        log = self._log
        if log is None:  # most handlers log nothing
            run = self._run
            about = {
                "job_id": run.job_id,
                "kind": run.kind,
                "attempt": run.attempt,
                "trace_id": run.trace_id,
            }
            log = self._log = JobLog(
                lambda line: self._channel.try_send(self._log_line(line)), about, self.hide
            )
        return log

    def _log_line(self, line: dict[str, Any]) -> p.JobLogLine:
        return p.JobLogLine(self.job_id, self.fence, self._hidden_in(line) if self._secrets else line)

    def hide_json(self, raw: bytes) -> bytes:
        """The JSON without the values at secret paths of the input."""
        return msgspec.json.encode(self._hidden_in(msgspec.json.decode(raw))) if self._secrets else raw

    def hide(self, text: str) -> str:
        """The text without the values at secret paths of the input."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def _hidden_in(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, dict):
            return {self.hide(name): self._hidden_in(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._hidden_in(inner) for inner in value]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return HIDDEN if number and repr(value) in self._secrets else value

    def finish(self, value: Any) -> tuple[Any, list[dict[str, Any]] | None]:
        """The handler's return value, and the errors of a partial result."""
        errors = list(self._missing)
        if isinstance(value, Partial):
            errors = value.errors + errors
            return value.value, errors
        return value, errors or None

    def request_stop(self) -> None:
        self._stop = True

    def close(self) -> None:
        """Called when the handler has returned. For left-over threads `cancelled` is True, and context methods raise."""
        self._ended = self._stop = True
        if self._log is not None:
            for line in self._log.finish():
                self._channel.send(self._log_line(line))

    def _check(self) -> None:
        if self._ended:
            raise RuntimeError(f"job {self.job_id}: ctx cannot be used after the handler has returned")
        if self._stop:
            raise HandlerStopped


def _number(value: Any) -> int | float | None:
    """A number that can be sent; None if it is not finite. TypeError if it is not a number."""
    if value is None or (type(value) is int and -(2**63) <= value < 2**63):
        return value
    number = float(value)
    return number if isfinite(number) else None


def _error(error: Any) -> dict[str, Any]:
    if isinstance(error, JobError):
        return {"code": error.code, "message": text_of(error.message), "failedStep": error.step}
    if isinstance(error, BaseException):
        return {"code": code_of(error), "message": text_of(error) or type(error).__name__}
    if isinstance(error, dict):
        return {"code": "ERROR", "message": "", **error}
    return {"code": "ERROR", "message": text_of(error)}


def code_of(error: BaseException) -> str:
    """An error code from the exception's class name: ValueError becomes VALUE_ERROR."""
    name = text_of(type(error).__name__, 100)
    return "".join(
        ("_" if i and c.isupper() and not name[i - 1].isupper() else "") + c.upper()
        for i, c in enumerate(name)
    )


def to_json(value: Any, subject: str) -> bytes:
    """Encode a value as JSON. JobError if JSON cannot represent it."""
    from pydantic_core import PydanticSerializationError, to_json

    try:
        written = to_json(value, fallback=_encode_fallback)
        if _SUSPECT_NUMBER.search(written):  # it may also be part of a string
            msgspec.json.decode(written)
    except msgspec.DecodeError as error:
        text = f"{subject} has a number that JSON cannot represent: NaN, infinity, or one with thousands of digits"
        raise JobError("NOT_JSON", text, retryable=False) from error
    except (PydanticSerializationError, ValueError, TypeError, RecursionError, UnicodeError) as error:
        raise JobError(
            "NOT_JSON", f"{subject} cannot be written as JSON: {text_of(error)}", retryable=False
        ) from error
    return written


def _encode_fallback(value: Any) -> Any:
    """The JSON form of bide's own types."""
    if isinstance(value, File):
        return value.ref.written()
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
