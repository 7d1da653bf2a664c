"""The child process that runs handlers: one sync job at a time on its main thread, or many async jobs on an event loop.

1. A result is sent immediately, so that a later crash cannot lose it.
2. A separate thread sends heartbeats, receives stop requests, and kills the process group when the service is gone.
3. Nothing that a handler raises, returns or leaves behind affects the next job, or hides how its own job ended.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from select import select
from time import monotonic, sleep  # by name, because a handler may patch the module
from types import FrameType
from typing import Any

import msgspec

from bide.core.errors import InvalidInput, JobError
from bide.core.wire.http import INLINE_RESULT
from bide.server.blobs import file_gone
from bide.server.blobs.factory import make_blobs
from bide.server.registry import File, FileRef, Kind, Registry
from bide.server.upload_record import upload_of
from bide.server.worker import app_location, channels
from bide.server.worker import protocol as p
from bide.server.worker.app_location import AppLocation
from bide.server.worker.channels import AsyncChannel, SyncChannel
from bide.server.worker.context import (
    Context,
    HandlerDelayed,
    HandlerParked,
    HandlerStopped,
    code_of,
    given_file,
    to_json,
)
from bide.server.worker.job_log import JobLog, JobLogHandler, trace_of
from bide.server.worker.process_state import ProcessState
from bide.server.worker.protocol import text_of

TICK = 0.25
INTERRUPT_AFTER = 0.3  # seconds from a stop request to the interruption of the handler
EXIT_TIMEOUT = 2.0  # seconds that left-over threads of handlers may delay the exit
_current: ContextVar[Context] = ContextVar("bide_context")  # of a task in an async child


class ChildSettings(msgspec.Struct, frozen=True):
    """The child's settings, passed on its command line."""

    location: AppLocation
    work_fd: int
    control_fd: int
    blobs: str
    work: str
    heartbeat: float
    is_async: bool


class HandlerRun:
    """One run of a handler, from the RunJob message to the message with its outcome."""

    def __init__(self, run: p.RunJob, child: ChildRuntime) -> None:
        self.run = run
        self.kind: Kind = child.registry.kind(run.kind)
        self.context = Context(run, child.channel, child.registry, child.blobs, child.work)
        self.stop_requested_at: float | None = None
        self.interrupt: Callable[[], object] = lambda: None
        self._blobs = child.blobs
        self._began = monotonic()

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # A reference to an upload has no file name.
        given = {(g.job, "" if upload_of(g.job) else g.file.name): g for g in self.run.files}

        def resolve(ref: FileRef) -> File:
            found = given.get((ref.job, ref.name))
            if (
                found is None
            ):  # an older version stored the job, before its upload or before this was a file
                raise file_gone(ref.name or f"upload {upload_of(ref.job)}")
            return given_file(found, self.context.fetch)

        values = self.kind.read_input(self.run.input, resolve)
        return ((self.context,) if self.kind.takes_context else ()), values

    def returned(self, value: Any) -> p.ChildMessage:
        ctx, run = self.context, self.run
        value, errors = ctx.finish(value)
        result: bytes | None = to_json(value, "the result")
        partial_errors = None
        if errors is not None:
            partial_errors = ctx.hide_json(to_json(errors, "the errors of the partial result"))
        file = None
        if result is not None and len(result) > INLINE_RESULT:
            file = self._blobs.put(run.job_id, run.fence, ".result.json", result, "application/json")
            result = None
        took = monotonic() - self._began
        return p.AttemptDone(
            run.job_id,
            run.fence,
            result,
            file,
            partial_errors,
            ctx.take_files(),
            ctx.latest_progress(),
            took,
        )

    def raised(self, error: BaseException) -> p.ChildMessage:
        """The message for an exception of the handler."""
        try:
            return self._raised(error)
        except BaseException:  # the exception's own attributes or methods raise
            name = text_of(type(error).__name__)
            return self._failed("ERROR", f"{name}, an exception that cannot be described", True)

    def _raised(self, error: BaseException) -> p.ChildMessage:
        ctx = self.context
        where = self.run.job_id, self.run.fence
        if isinstance(error, HandlerParked):
            return p.AttemptParked(*where, error.waiting_for, ctx.take_files(), ctx.latest_progress())
        if isinstance(error, HandlerDelayed):
            return p.AttemptDelayed(*where, error.breaker, ctx.latest_progress())
        if isinstance(error, HandlerStopped | asyncio.CancelledError) and ctx.cancelled:
            return p.AttemptStopped(*where, ctx.latest_progress())
        if isinstance(error, JobError):
            step = None if error.step is None else text_of(error.step)
            return self._failed(error.code, error.message, bool(error.retryable), step)
        if isinstance(error, InvalidInput):
            places = "; ".join(f"{e['pointer']}: {e['detail']}" for e in error.errors or ())
            return self._failed("INVALID_INPUT", f"{error.detail}: {places}", False)
        return self._failed(code_of(error), error, True)

    def _failed(
        self, code: Any, message: Any, retryable: bool, step: str | None = None
    ) -> p.AttemptFailed:
        ctx, run = self.context, self.run
        text = text_of(message) or type(message).__name__
        step = step or ctx.failed_step
        return p.AttemptFailed(
            run.job_id, run.fence, text_of(code, 100), text, retryable, step, ctx.latest_progress()
        )


class ChildRuntime:
    """The common part of sync and async children."""

    def __init__(
        self, settings: ChildSettings, registry: Registry, channel: SyncChannel | AsyncChannel
    ) -> None:
        self.registry = registry
        self.channel = channel
        self.blobs = make_blobs(settings.blobs)
        self.work = Path(settings.work).absolute()
        self.attempts: dict[tuple[str, int], HandlerRun] = {}
        control = socket.socket(fileno=settings.control_fd)
        channels.close_after_fork(channel.socket, control)
        self.heartbeats = HeartbeatThread(control, channel.socket, settings.heartbeat, self.attempts)
        self.process_state: ProcessState | None = None
        self.needs_replacement = False
        self._log_handler = JobLogHandler(self._job_log)
        self._log_handler.install()

    def _job_log(self) -> JobLog | None:
        """The log of the job that this thread or task belongs to; None if there is none, or several are possible."""
        context = _current.get(None)
        if context is None:
            # A thread of a handler has no context variables. In a sync child only one job is possible.
            attempts = list(self.attempts.values())
            context = attempts[0].context if len(attempts) == 1 else None
        return None if context is None else context.job_log()

    def begin(self, run: p.RunJob) -> HandlerRun:
        self._log_handler.ensure_installed()
        attempt = HandlerRun(run, self)
        self.attempts[run.job_id, run.fence] = attempt
        self.heartbeats.check(run.job_id, run.fence)
        return attempt

    def end(
        self, attempt: HandlerRun, message: p.ChildMessage, error: BaseException | None = None
    ) -> None:
        del self.attempts[attempt.run.job_id, attempt.run.fence]
        attempt.context.close()
        # A JobError says what is wrong; a traceback is useful only if another exception caused it.
        if (
            error is not None
            and isinstance(message, p.AttemptFailed)
            and (not isinstance(error, JobError) or error.__cause__ is not None)
        ):
            message.trace = trace_of(error)
        if isinstance(message, p.AttemptFailed):
            message.breaker = attempt.context.failed_breaker(error)
            message.message = attempt.context.hide(message.message)
            if message.trace is not None:
                message.trace = attempt.context.hide(message.trace)
        self.channel.send(message)

    def report_broken(self, run: p.RunJob, error: BaseException) -> None:
        """Report an attempt that cannot begin, or whose outcome cannot be sent. Otherwise the service would wait."""
        self.attempts.pop((run.job_id, run.fence), None)
        text = f"{type(error).__name__}: {text_of(error)}"
        if run.kind in self.registry.kinds:
            code, retryable = "NOT_SENDABLE", False
            text = f"the outcome of the attempt cannot be sent to the service: {text}"
        else:
            code, retryable = "UNKNOWN_KIND", True
            text = f"the app that this worker has loaded has no kind {run.kind!r}: restart the worker"
        self.channel.send(
            p.AttemptFailed(run.job_id, run.fence, code, text_of(text), retryable, None, None)
        )

    def handler_ended(self, error: BaseException | None = None) -> None:
        """Restore the process state that the handler has changed, or request a replacement before the job ends."""
        if channels.forked:
            _exit_fork(error)
        if (
            len(self.attempts) == 1  # another running job may depend on the current state
            and self.process_state is not None
            and not self.process_state.restore()
            and not self.needs_replacement
        ):
            self.needs_replacement = True
            self.channel.send(p.NeedsReplacement())

    def return_job(self, run: p.RunJob) -> None:
        self.channel.send(p.JobsReturned([(run.job_id, run.fence)]))


def _exit_fork(error: BaseException | None = None) -> None:
    """Exit a process that a handler has forked when the handler returns, because the job belongs to the child."""
    if error is not None and not isinstance(error, SystemExit):
        with suppress(BaseException):
            traceback.print_exception(error)
    with suppress(BaseException):
        sys.stdout.flush()
    os._exit(0 if error is None else 1)


def _limit_exit_time() -> None:
    """Limit the time that left-over threads and exit functions of handlers may delay the exit."""
    with suppress(Exception):
        sys.stdout.flush()
    timer = threading.Timer(EXIT_TIMEOUT, os._exit, (0,))
    timer.daemon = True
    timer.start()


class HeartbeatThread(threading.Thread):
    """Sends heartbeats, receives stop requests, and detects that the service is gone."""

    def __init__(
        self,
        control: socket.socket,
        work: socket.socket,
        heartbeat: float,
        attempts: dict[tuple[str, int], HandlerRun],
    ) -> None:
        super().__init__(name="bide-heartbeat", daemon=True)
        self._control = control
        self._heartbeat = heartbeat
        self._attempts = attempts
        self._frames = p.FrameDecoder(upward=False)
        self._return_requested = False
        self._stop_requests: deque[tuple[str, int]] = deque(maxlen=1000)
        self._next_heartbeat = -math.inf
        self._sockets = {s.fileno(): os.fstat(s.fileno()).st_ino for s in (control, work)}
        self.return_jobs: Callable[[], bool] = lambda: True

    def run(self) -> None:
        while True:
            try:
                self._run_once()
            except (OSError, ValueError):  # a handler has closed the sockets
                channels.end_group()
            except Exception:  # out of memory or threads: try again
                sleep(TICK)

    def _run_once(self) -> None:
        readable, _, _ = select([self._control], [], [], min(TICK, self._heartbeat))
        if any(os.fstat(fd).st_ino != known for fd, known in self._sockets.items()):
            channels.end_group()  # closed, and their file descriptors are in use for other files
        if readable:
            self._receive()
        if self._return_requested and self.return_jobs():
            self._return_requested = False
        now = monotonic()
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._heartbeat
            self._control.sendall(p.frame(p.Heartbeat()))
        for attempt in list(self._attempts.values()):
            with suppress(Exception):  # invalid progress values raise in the handler's own call
                attempt.context.flush()
            if (
                attempt.stop_requested_at is not None
                and now - attempt.stop_requested_at > INTERRUPT_AFTER
            ):
                attempt.interrupt()

    def _receive(self) -> None:
        data = self._control.recv(65536)
        if not data:
            channels.end_group()
        for message in self._frames.feed(data):
            if isinstance(message, p.ReturnJobs):
                self._return_requested = True
            elif isinstance(message, p.StopJob):
                # Remember it, because the job may still be in transit on the other socket.
                self._stop_requests.append((message.job_id, message.fence))
                self.check(message.job_id, message.fence)

    def check(self, job_id: str, fence: int) -> None:
        """Stop an attempt if that was requested. Called when a request arrives and when an attempt begins."""
        attempt = self._attempts.get((job_id, fence))
        if (
            attempt is not None
            and attempt.stop_requested_at is None
            and (job_id, fence) in self._stop_requests
        ):
            attempt.stop_requested_at = monotonic()
            attempt.context.request_stop()


class SyncChild(ChildRuntime):
    """One job at a time, on the main thread."""

    def __init__(self, settings: ChildSettings, registry: Registry, channel: SyncChannel) -> None:
        super().__init__(settings, registry, channel)
        self._channel = channel
        self._current: HandlerRun | None = None
        self.heartbeats.return_jobs = channel.return_jobs
        signal.signal(signal.SIGUSR1, self._interrupted)

    def serve(self) -> None:
        self.process_state = ProcessState()
        self.heartbeats.start()
        self.channel.send(p.Ready())
        while True:
            message = self._channel.receive()
            if isinstance(message, p.RunJob):
                if self.needs_replacement:
                    self.return_job(message)
                else:
                    self._run(message)
            elif isinstance(message, p.ExitChild):
                _limit_exit_time()
                return

    def _run(self, run: p.RunJob) -> None:
        try:
            self._attempt(run)
        except BaseException as error:
            self.report_broken(run, error)

    def _attempt(self, run: p.RunJob) -> None:
        main = threading.get_ident()
        attempt = self.begin(run)
        attempt.interrupt = lambda: signal.pthread_kill(main, signal.SIGUSR1)
        error: BaseException | None = None
        try:
            args, values = attempt.arguments()
            self._current = attempt
            value = attempt.kind.fn(*args, **values)
            self._current = None
            self.handler_ended()
            message = attempt.returned(value)
        except BaseException as raised:
            self._current = None
            self.handler_ended(raised)
            error = raised
            message = attempt.raised(raised)
        self.end(attempt, message, error)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        """Raise in a handler that has not stopped on request, even in a sleep or a wait.

        The signal may arrive when the next job already runs, so the current job's own stop request is checked.
        """
        current = self._current
        if current is not None and current.stop_requested_at is not None and not self._channel.shielded:
            raise HandlerStopped


class AsyncChild(ChildRuntime):
    """Many jobs at the same time, each in a task of one event loop."""

    def __init__(self, settings: ChildSettings, registry: Registry, channel: AsyncChannel) -> None:
        super().__init__(settings, registry, channel)
        self._channel = channel
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self) -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            serving = loop.create_task(self._serve())
            while not serving.done():
                # A handler's task that raises SystemExit must not end the other jobs.
                with suppress(SystemExit, KeyboardInterrupt):
                    loop.run_until_complete(serving)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        leaving = asyncio.Event()
        self.process_state = ProcessState()
        # A process that a handler forks must not continue the other jobs.
        os.register_at_fork(after_in_child=lambda: loop.call_soon(os._exit, 1))

        def received(message: Any) -> None:
            if isinstance(message, p.RunJob) and self.needs_replacement:
                self.return_job(message)
            elif isinstance(message, p.RunJob):
                task = loop.create_task(self._run(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            elif isinstance(message, p.ExitChild):
                leaving.set()

        self._channel.received = lambda message: loop.call_soon_threadsafe(received, message)
        threading.Thread(target=self._channel.read, name="bide-reader", daemon=True).start()
        self.heartbeats.start()
        self.channel.send(p.Ready())
        await leaving.wait()
        if self._tasks:
            await asyncio.wait(self._tasks)
        _limit_exit_time()

    async def _run(self, run: p.RunJob) -> None:
        try:
            await self._attempt(run)
        except BaseException as error:
            self.report_broken(run, error)

    async def _attempt(self, run: p.RunJob) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        attempt = self.begin(run)
        attempt.interrupt = lambda: loop.call_soon_threadsafe(task.cancel)
        _current.set(attempt.context)
        error: BaseException | None = None
        try:
            args, values = attempt.arguments()
            value = await attempt.kind.fn(*args, **values)
            self.handler_ended()
            message = attempt.returned(value)
        except BaseException as raised:
            self.handler_ended(raised)
            error = raised
            message = attempt.raised(raised)
        self.end(attempt, message, error)


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=ChildSettings)
    for fd in (settings.work_fd, settings.control_fd):
        os.set_inheritable(fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = AsyncChannel(settings.work_fd) if settings.is_async else SyncChannel(settings.work_fd)
    app_location.in_child = True
    try:
        registry = settings.location.load()
        for hook in registry.worker_start_hooks:
            hook()
    except BaseException as error:
        traceback.print_exc()
        channel.send(p.StartFailed(f"{type(error).__name__}: {text_of(error)}"))
        sys.exit(1)
    if isinstance(channel, AsyncChannel):
        AsyncChild(settings, registry, channel).serve()
    else:
        SyncChild(settings, registry, channel).serve()
