"""The child process that runs handlers: one sync job after another on its main thread, or many async ones on a loop.

1. A result is sent as soon as it is there, so that a crash afterwards cannot lose it.
2. The pulse, a thread of its own, beats, takes wishes to stop, and ends the whole process group when the service is gone.
3. While bide itself reads or writes a socket, a wish to stop does not interrupt: a frame is never cut in two.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from bide.core.errors import InvalidInput, JobError
from bide.core.wire import INLINE_RESULT
from bide.server.blobs.files import FileBlobs
from bide.server.registry import File, FileRef, Kind, Registry
from bide.server.worker import locate
from bide.server.worker import protocol as p
from bide.server.worker.context import Context, Park, Stop, code_of, given_file, to_json
from bide.server.worker.locate import Location

TICK = 0.25
NAG = 0.3  # seconds between being told and being interrupted


class Settings(msgspec.Struct, frozen=True):
    """What the supervisor tells a child on its command line."""

    location: Location
    work_fd: int
    control_fd: int
    blobs: str
    work: str
    beat: float
    is_async: bool


class Attempt:
    """One run of a handler, from the message that asks for it to the one that says how it ended."""

    def __init__(self, run: p.Run, child: Child) -> None:
        self.run = run
        self.kind: Kind = child.registry.kind(run.kind)
        self.context = Context(run, child.channel, child.registry, child.blobs, child.work)
        self.told_at: float | None = None
        self.interrupt: Callable[[], object] = lambda: None
        self._blobs = child.blobs

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = {(g.job, g.file.name): g for g in self.run.files}

        def resolve(ref: FileRef) -> File:
            return given_file(given[ref.job, ref.name])

        values = self.kind.read_input(self.run.input, resolve)
        return ((self.context,) if self.kind.takes_context else ()), values

    def returned(self, value: Any) -> p.Message:
        ctx = self.context
        value, errors = ctx.finish(value)
        result: bytes | None = to_json(value, "the result")
        file = None
        if result is not None and len(result) > INLINE_RESULT:
            file = self._blobs.put(ctx.job_id, ctx.fence, ".result.json", result, "application/json")
            result = None
        return p.Done(ctx.job_id, ctx.fence, result, file, errors, ctx.take_files(), ctx.shown())

    def raised(self, error: BaseException) -> p.Message:
        """What an exception of the handler comes to."""
        ctx = self.context
        where = ctx.job_id, ctx.fence
        if isinstance(error, Park):
            return p.Parked(*where, error.waiting_for, ctx.take_files(), ctx.shown())
        if isinstance(error, Stop | asyncio.CancelledError) and ctx.cancelled:
            return p.Stopped(*where, ctx.shown())
        if isinstance(error, JobError):
            step = error.step or ctx.failed_step
            return p.Failed(*where, error.code, error.message, error.retryable, step, ctx.shown())
        if isinstance(error, InvalidInput):
            places = "; ".join(f"{e['pointer']}: {e['detail']}" for e in error.errors or ())
            text = f"{error.detail}: {places}"
            return p.Failed(*where, "INVALID_INPUT", text, False, ctx.failed_step, ctx.shown())
        return p.Failed(*where, code_of(error), _text(error), True, ctx.failed_step, ctx.shown())


def _text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:  # a __str__ of the user's that fails must not hide the failure
        return type(error).__name__


class Child:
    """What both kinds of children share."""

    def __init__(
        self, settings: Settings, registry: Registry, channel: SyncChannel | AsyncChannel
    ) -> None:
        self.registry = registry
        self.channel = channel
        self.blobs = FileBlobs(Path(settings.blobs))
        self.work = Path(settings.work)
        self.attempts: dict[tuple[str, int], Attempt] = {}
        self.pulse = Pulse(socket.socket(fileno=settings.control_fd), settings.beat, self.attempts)

    def begin(self, run: p.Run) -> Attempt:
        attempt = Attempt(run, self)
        self.attempts[run.job_id, run.fence] = attempt
        self.pulse.check(run.job_id, run.fence)
        return attempt

    def end(self, attempt: Attempt, message: p.Message, error: BaseException | None = None) -> None:
        del self.attempts[attempt.run.job_id, attempt.run.fence]
        if error is not None and isinstance(message, p.Failed) and not isinstance(error, JobError):
            text = "".join(traceback.format_exception(error))[-4000:]
            line = {"level": "error", "message": text}
            self.channel.send(p.Said(attempt.run.job_id, attempt.run.fence, line))
        self.channel.send(message)


class Pulse(threading.Thread):
    """Beats; hears wishes to stop; notices that the service is gone."""

    def __init__(
        self, control: socket.socket, beat: float, attempts: dict[tuple[str, int], Attempt]
    ) -> None:
        super().__init__(name="bide-pulse", daemon=True)
        self._control = control
        self._beat = beat
        self._attempts = attempts
        self._frames = p.Frames(upward=False)
        self._asked_back = False
        self._told: deque[tuple[str, int]] = deque(maxlen=1000)
        self.give_back: Callable[[], bool] = lambda: True

    def run(self) -> None:
        next_beat = 0.0
        while True:
            readable, _, _ = select.select([self._control], [], [], min(TICK, self._beat))
            if readable:
                self._hear()
            if self._asked_back and self.give_back():
                self._asked_back = False
            now = time.monotonic()
            if now >= next_beat:
                next_beat = now + self._beat
                self._send_beat()
            for attempt in list(self._attempts.values()):
                attempt.context.flush()
                if attempt.told_at is not None and now - attempt.told_at > NAG:
                    attempt.interrupt()

    def _hear(self) -> None:
        try:
            data = self._control.recv(65536)
        except OSError:
            data = b""
        if not data:
            _end_group()
        for message in self._frames.feed(data):
            if isinstance(message, p.GiveBack):
                self._asked_back = True
            elif isinstance(message, p.Stop):
                # Noted first: the job itself may still be on its way, through the other socket.
                self._told.append((message.job_id, message.fence))
                self.check(message.job_id, message.fence)

    def check(self, job_id: str, fence: int) -> None:
        """Tells an attempt to stop, if that is wanted. Called when the wish arrives and when the attempt begins."""
        attempt = self._attempts.get((job_id, fence))
        if attempt is not None and attempt.told_at is None and (job_id, fence) in self._told:
            attempt.told_at = time.monotonic()
            attempt.context.tell_to_stop()

    def _send_beat(self) -> None:
        try:
            self._control.sendall(p.frame(p.Beat()))
        except OSError:
            _end_group()


def _end_group() -> None:
    """The service is gone: nobody can take a result any more. Ends what handlers have started, too."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


class SyncChannel:
    """The main thread reads jobs itself; an answer is read by whoever asks, while a handler runs."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._frames = p.Frames(upward=False)
        self._waiting: deque[Any] = deque()
        self._sending = threading.Lock()
        self._reading = threading.Lock()
        self._main = threading.get_ident()
        self.shielded = 0  # how deep the main thread is in here; no other thread touches it

    @contextmanager
    def _shield(self) -> Iterator[None]:
        mine = threading.get_ident() == self._main
        if mine:
            self.shielded += 1
        try:
            yield
        except OSError:
            _end_group()
        finally:
            if mine:
                self.shielded -= 1

    def send(self, message: p.Message) -> None:
        with self._shield(), self._sending:
            self._socket.sendall(p.frame(message))

    def ask(self, message: p.Kept) -> p.Answer:
        with self._shield(), self._reading:
            self.send(message)
            return self._answer(message.number)

    def _answer(self, number: int) -> p.Answer:
        aside: list[Any] = []
        while True:
            received = self._next()
            if isinstance(received, p.Answer) and received.number == number:
                self._waiting.extendleft(reversed(aside))
                return received
            if not isinstance(received, p.Answer):
                aside.append(received)

    async def ask_async(self, message: p.Kept) -> p.Answer:
        return self.ask(message)

    def receive(self) -> Any:
        with self._shield(), self._reading:
            return self._next()

    def _next(self) -> Any:
        while not self._waiting:
            self._read()
        return self._waiting.popleft()

    def _read(self) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            _end_group()
        self._waiting.extend(self._frames.feed(data))

    def give_back(self) -> bool:
        """Gives back the jobs that were not started; False when the main thread is reading right now."""
        if not self._reading.acquire(blocking=False):
            return False
        try:
            while select.select([self._socket], [], [], 0)[0]:
                self._read()
            jobs = [(m.job_id, m.fence) for m in self._waiting if isinstance(m, p.Run)]
            self._waiting = deque(m for m in self._waiting if not isinstance(m, p.Run))
        finally:
            self._reading.release()
        self.send(p.GaveBack(jobs))
        return True


class SyncChild(Child):
    """One job at a time, on the main thread."""

    def __init__(self, settings: Settings, registry: Registry, channel: SyncChannel) -> None:
        super().__init__(settings, registry, channel)
        self._channel = channel
        self._running = False
        self.pulse.give_back = channel.give_back
        signal.signal(signal.SIGUSR1, self._interrupted)

    def serve(self) -> None:
        self.pulse.start()
        self.channel.send(p.Ready())
        while True:
            message = self._channel.receive()
            if isinstance(message, p.Run):
                self._run(message)
            elif isinstance(message, p.Leave):
                return

    def _run(self, run: p.Run) -> None:
        main = threading.get_ident()
        attempt = self.begin(run)
        attempt.interrupt = lambda: signal.pthread_kill(main, signal.SIGUSR1)
        error: BaseException | None = None
        try:
            args, values = attempt.arguments()
            self._running = True
            try:
                value = attempt.kind.fn(*args, **values)
            finally:
                self._running = False
            message = attempt.returned(value)
        except BaseException as raised:
            self._running = False
            error = raised
            message = attempt.raised(raised)
        self.end(attempt, message, error)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        """Told and not stopped by itself: raise where the handler is, a sleep or a wait included."""
        if self._running and not self._channel.shielded:
            raise Stop


class AsyncChannel:
    """A thread reads; the loop is woken for jobs, and whoever asked for answers."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._frames = p.Frames(upward=False)
        self._sending = threading.Lock()
        self._asked: dict[int, Future[p.Answer]] = {}
        self._numbers = itertools.count(1)
        self.received: Callable[[Any], object] = lambda message: None

    def send(self, message: p.Message) -> None:
        try:
            with self._sending:
                self._socket.sendall(p.frame(message))
        except OSError:
            _end_group()

    def _ask(self, message: p.Kept) -> Future[p.Answer]:
        future: Future[p.Answer] = Future()
        message.number = next(self._numbers)  # one numbering for all jobs of this child
        self._asked[message.number] = future
        self.send(message)
        return future

    def ask(self, message: p.Kept) -> p.Answer:
        return self._ask(message).result()

    async def ask_async(self, message: p.Kept) -> p.Answer:
        return await asyncio.wrap_future(self._ask(message))

    def read(self) -> None:
        """The reading thread."""
        while True:
            try:
                data = self._socket.recv(1 << 18)
            except OSError:
                data = b""
            if not data:
                _end_group()
            for message in self._frames.feed(data):
                if isinstance(message, p.Answer):
                    self._asked.pop(message.number).set_result(message)
                else:
                    self.received(message)


class AsyncChild(Child):
    """Many jobs at once, each a task of one loop."""

    def __init__(self, settings: Settings, registry: Registry, channel: AsyncChannel) -> None:
        super().__init__(settings, registry, channel)
        self._channel = channel
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        leaving = asyncio.Event()

        def received(message: Any) -> None:
            if isinstance(message, p.Run):
                task = loop.create_task(self._run(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            elif isinstance(message, p.Leave):
                leaving.set()

        self._channel.received = lambda message: loop.call_soon_threadsafe(received, message)
        threading.Thread(target=self._channel.read, name="bide-reader", daemon=True).start()
        self.pulse.start()
        self.channel.send(p.Ready())
        await leaving.wait()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, run: p.Run) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        attempt = self.begin(run)
        attempt.interrupt = lambda: loop.call_soon_threadsafe(task.cancel)
        error: BaseException | None = None
        try:
            args, values = attempt.arguments()
            message = attempt.returned(await attempt.kind.fn(*args, **values))
        except BaseException as raised:
            error = raised
            message = attempt.raised(raised)
        self.end(attempt, message, error)


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    for fd in (settings.work_fd, settings.control_fd):
        os.set_inheritable(fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = AsyncChannel(settings.work_fd) if settings.is_async else SyncChannel(settings.work_fd)
    locate.in_child = True
    try:
        registry = settings.location.load()
        for hook in registry.worker_start_hooks:
            hook()
    except BaseException as error:
        traceback.print_exc()
        channel.send(p.Broken(f"{type(error).__name__}: {_text(error)}"))
        sys.exit(1)
    if isinstance(channel, AsyncChannel):
        AsyncChild(settings, registry, channel).serve()
    else:
        SyncChild(settings, registry, channel).serve()
