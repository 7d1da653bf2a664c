"""A child's ends of its socket pairs: how jobs come in and how what becomes of them goes out.

1. While bide itself reads or writes a socket, a wish to stop does not interrupt: a frame is never cut in two.
2. The sockets belong to this process alone: a copy that a handler forks cannot speak for the child.
3. A service that is gone, or a socket that a handler has closed, ends the whole process group.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from select import select
from typing import Any

from bide.server.worker import protocol as p

forked = False  # whether this process is a copy that a handler has made of a child


def keep_from_copies(*sockets: socket.socket) -> None:
    """A copy of this process that a handler forks gets none of these."""

    def copied() -> None:
        global forked
        forked = True
        for sock in sockets:
            sock.close()

    os.register_at_fork(after_in_child=copied)


def end_group() -> None:
    """Nobody can take a result any more. Ends what handlers have started, too."""
    if forked:
        os._exit(1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _refuse_copies() -> None:
    if forked:
        raise RuntimeError("ctx works in the process that runs the handler, not in a forked copy of it")


class SyncChannel:
    """The main thread reads jobs itself; an answer is read by whoever asks, while a handler runs."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self._frames = p.FrameDecoder(upward=False)
        self._waiting: deque[Any] = deque()
        self._sending = threading.Lock()
        self._reading = threading.Lock()
        self._numbers = itertools.count(1)
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
            end_group()
        finally:
            if mine:
                self.shielded -= 1

    def send(self, message: p.ChildMessage) -> None:
        _refuse_copies()
        with self._shield(), self._sending:
            self.socket.sendall(p.frame(message))

    def ask(self, message: p.StepRequest) -> p.StepReply:
        _refuse_copies()
        with self._shield(), self._reading:
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
        with self._shield(), self._reading:
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

    def give_back(self) -> bool:
        """Gives back the jobs that were not started; False when the main thread is reading right now."""
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
    """A thread reads; the loop is woken for jobs, and whoever asked for answers."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self._frames = p.FrameDecoder(upward=False)
        self._sending = threading.Lock()
        self._asked: dict[int, Future[p.StepReply]] = {}
        self._numbers = itertools.count(1)
        self.received: Callable[[Any], object] = lambda message: None

    def send(self, message: p.ChildMessage) -> None:
        _refuse_copies()
        try:
            with self._sending:
                self.socket.sendall(p.frame(message))
        except OSError:
            end_group()

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
        """The reading thread."""
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
        # Whoever asked may have been cancelled meanwhile.
        with suppress(InvalidStateError):
            self._asked.pop(answer.number).set_result(answer)
