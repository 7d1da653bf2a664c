"""The state of a child process that is restored between two jobs.

1. Restored: working folder, umask, signal handlers and mask, the alarm, standard streams, recursion and resource limits.
2. Not restored: modules, `sys.path`, the locale and `os.environ`, because a warm child keeps them on purpose.
3. If something cannot be restored, the child is replaced before another job runs in it.
4. Restoring takes a few microseconds per job.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # faster than `signal`, which converts to enums
import os
import resource
import select
import signal
import sys
from typing import Any, TextIO

SIGNALS = tuple(
    int(number)
    for number in (
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGPIPE,
        signal.SIGALRM,
        signal.SIGTERM,
        signal.SIGCHLD,
    )
)
LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
STANDARD = (0, 1, 2)


class ProcessState:
    """The state of the process before its first job."""

    def __init__(self) -> None:
        self._folder = os.open(".", os.O_PATH if sys.platform == "linux" else os.O_RDONLY)
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._mask: set[int] = _signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers: dict[int, Any] = {n: _signal.getsignal(n) for n in SIGNALS}
        self._recursion = sys.getrecursionlimit()
        self._limits = [(name, resource.getrlimit(name)) for name in LIMITS]
        self._stdout, self._stderr = sys.stdout, sys.stderr
        self._open = select.poll()
        self._copies = {fd: os.dup(fd) for fd in STANDARD if _is_open(fd)}
        for fd in self._copies:
            self._open.register(fd, 0)

    def restore(self) -> bool:
        """Restore the state. Return False if something could not be restored."""
        try:
            self._restore()
        except (OSError, ValueError):
            return False
        return True

    def _restore(self) -> None:
        # First the state that could end the process: a pending alarm, or a signal that its mask blocks.
        _signal.setitimer(signal.ITIMER_REAL, 0)
        getsignal, getrlimit = _signal.getsignal, resource.getrlimit
        for number, handler in self._handlers.items():
            if getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)
        _signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        if sys.getrecursionlimit() != self._recursion:
            sys.setrecursionlimit(self._recursion)
        os.umask(self._umask)
        os.fchdir(self._folder)
        for name, limits in self._limits:
            if getrlimit(name) != limits:
                resource.setrlimit(name, limits)
        for fd, event in self._open.poll(0):
            if event & select.POLLNVAL:
                os.dup2(self._copies[fd], fd)
        if sys.stdout is not self._stdout or sys.stdout.closed:
            sys.stdout = self._stdout = _usable(self._stdout, 1)
        if sys.stderr is not self._stderr or sys.stderr.closed:
            sys.stderr = self._stderr = _usable(self._stderr, 2)


def _usable(stream: TextIO, fd: int) -> TextIO:
    if not stream.closed:
        return stream
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
