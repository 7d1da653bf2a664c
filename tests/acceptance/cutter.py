"""A network with faults on request: a TCP proxy that counts, pauses and cuts the traffic to a service."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

PIECE = 64 * 1024


class Cutter:
    """`cut_every`: each connection is reset after so many bytes to the service. `stop_at`: nothing more is passed on
    once so many have been in all, until `go_on`; `stopped` is set then.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self.cut_every: int | None = None
        self.stop_at: int | None = None
        self.stopped = threading.Event()
        self.sent = 0  # bytes to the service
        self.connections = 0
        self._going = threading.Event()
        self._going.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._going.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def go_on(self) -> None:
        self.stop_at = None
        self.stopped.clear()
        self._going.set()

    def cut(self) -> None:
        """Every connection that is open."""
        with self._lock:
            _end(*self._open)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), 10)
            except OSError:  # the service is down, and so is the way to it
                near.close()
                continue
            self.connections += 1
            self._threads.append(threading.Thread(target=self._carry, args=(near, far), daemon=True))
            self._threads[-1].start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        with self._lock:
            self._open |= {near, far}
        back = threading.Thread(target=self._back, args=(near, far), daemon=True)
        back.start()
        with contextlib.suppress(OSError):
            self._there(near, far)
        _end(near, far)
        back.join()
        with self._lock:
            self._open -= {near, far}
        near.close()
        far.close()

    def _there(self, near: socket.socket, far: socket.socket) -> None:
        left = self.cut_every
        while data := near.recv(PIECE if left is None else min(PIECE, left)):
            far.sendall(data)
            with self._lock:
                self.sent += len(data)
                if self.stop_at is not None and self.sent >= self.stop_at:
                    self._going.clear()
                    self.stopped.set()
            self._going.wait()
            if left is not None:
                left -= len(data)
                if left <= 0:
                    return

    def _back(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(PIECE):
                near.sendall(data)
        _end(near, far)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
