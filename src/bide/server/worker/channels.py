"""The child's end of its work socket: receives jobs, sends results and requests.

1. A stop request does not interrupt bide's own reads and writes, so a frame is never truncated.
2. Only the child itself uses the sockets: a process that a handler forks cannot send messages.
3. If the service is gone, or a handler has closed a socket, the child kills its whole process group.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from select import select
from types import TracebackType
from typing import Any

from bide.server.worker import protocol as p

forked = False  # whether a handler has forked this process from a child


def close_after_fork(*sockets: socket.socket) -> None:
    """Close these sockets in processes that a handler forks."""

    def copied() -> None:
        global forked
        forked = True
        for sock in sockets:
            sock.close()

    os.register_at_fork(after_in_child=copied)


def end_group() -> None:
    """Kill this child and the processes that handlers have started, because no service can receive a result."""
    if forked:
        os._exit(1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _reject_fork() -> None:
    if forked:
        raise RuntimeError(
            "ctx works only in the process that runs the handler, not in a forked process"
        )


class _Shield:
    """Delays stop requests inside of it. Not a generator, because each job enters it twice."""

    __slots__ = ("_main", "depth")

    def __init__(self) -> None:
        self._main = threading.get_ident()
        self.depth = 0  # of the main thread's reads and writes; only that thread changes it

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, OSError):
                end_group()
        finally:
            if threading.get_ident() == self._main:
                self.depth -= 1


class SyncChannel:
    """The main thread reads jobs. While a handler runs, the thread that makes a request reads the reply."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self._frames = p.FrameDecoder(upward=False)
        self._waiting: deque[Any] = deque()
        self._sending = threading.Lock()
        self._reading = threading.Lock()
        self._numbers = itertools.count(1)
        self._shield = _Shield()

    @property
    def shielded(self) -> bool:
        """Whether the main thread reads or writes now."""
        return self._shield.depth > 0

    def send(self, message: p.ChildMessage) -> None:
        _reject_fork()
        with self._shield, self._sending:
            self.socket.sendall(p.frame(message))

    def try_send(self, message: p.ChildMessage) -> bool:
        """Send the message and return True. Return False, without waiting, while another message is being sent, perhaps
        by the code that a signal handler has interrupted.
        """
        _reject_fork()
        with self._shield:
            if not self._sending.acquire(blocking=False):
                return False
            try:
                self.socket.sendall(p.frame(message))
            finally:
                self._sending.release()
        return True

    def ask(self, message: p.StepRequest) -> p.StepReply:
        _reject_fork()
        with self._shield, self._reading:
            message.number = next(self._numbers)  # one numbering for all jobs of this child
            self.send(message)
            return self._answer(message.number)

    def _answer(self, number: int) -> p.StepReply:
        aside: list[Any] = []
        while True:
            received = self._next()
            if isinstance(received, p.StepReply) and received.number == number:
                self._waiting.extendleft(reversed(aside))
                return received
            if not isinstance(received, p.StepReply):
                aside.append(received)

    async def ask_async(self, message: p.StepRequest) -> p.StepReply:
        return self.ask(message)

    def receive(self) -> Any:
        with self._shield, self._reading:
            return self._next()

    def _next(self) -> Any:
        while not self._waiting:
            self._read()
        return self._waiting.popleft()

    def _read(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            end_group()
        self._waiting.extend(self._frames.feed(data))

    def return_jobs(self) -> bool:
        """Return the jobs that have not started. False if the main thread is reading right now."""
        if not self._reading.acquire(blocking=False):
            return False
        try:
            while select([self.socket], [], [], 0)[0]:
                self._read()
            jobs = [(m.job_id, m.fence) for m in self._waiting if isinstance(m, p.RunJob)]
            self._waiting = deque(m for m in self._waiting if not isinstance(m, p.RunJob))
        finally:
            self._reading.release()
        self.send(p.JobsReturned(jobs))
        return True


class AsyncChannel:
    """A thread reads messages, passes jobs to the event loop, and resolves the futures of requests."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self._frames = p.FrameDecoder(upward=False)
        self._sending = threading.Lock()
        self._asked: dict[int, Future[p.StepReply]] = {}
        self._numbers = itertools.count(1)
        self.received: Callable[[Any], object] = lambda message: None

    def send(self, message: p.ChildMessage) -> None:
        _reject_fork()
        try:
            with self._sending:
                self.socket.sendall(p.frame(message))
        except OSError:
            end_group()

    def try_send(self, message: p.ChildMessage) -> bool:
        """As `SyncChannel.try_send`."""
        _reject_fork()
        if not self._sending.acquire(blocking=False):
            return False
        try:
            self.socket.sendall(p.frame(message))
        except OSError:
            end_group()
        finally:
            self._sending.release()
        return True

    def _ask(self, message: p.StepRequest) -> Future[p.StepReply]:
        future: Future[p.StepReply] = Future()
        message.number = next(self._numbers)  # one numbering for all jobs of this child
        self._asked[message.number] = future
        self.send(message)
        return future

    def ask(self, message: p.StepRequest) -> p.StepReply:
        return self._ask(message).result()

    async def ask_async(self, message: p.StepRequest) -> p.StepReply:
        return await asyncio.wrap_future(self._ask(message))

    def read(self) -> None:
        """Run in the reader thread."""
        while True:
            try:
                data = self.socket.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                end_group()
            for message in self._frames.feed(data):
                if isinstance(message, p.StepReply):
                    self._answered(message)
                else:
                    self.received(message)

    def _answered(self, answer: p.StepReply) -> None:
        # The caller may have been cancelled.
        with suppress(InvalidStateError):
            self._asked.pop(answer.number).set_result(answer)
