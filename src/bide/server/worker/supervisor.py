"""The pool of warm child processes: starts them, reads their messages, and replaces dead ones.

1. Children are started with spawn, not fork, because the service has threads.
2. Each child leads a process group of its own; processes that a handler has started end with it.
3. All messages that a child sent before it died are handled before its exit is reported.
4. If children cannot start, the pool retries with growing delays and reports the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Protocol

import msgspec

from bide.server.worker import protocol as p
from bide.server.worker.app_location import AppLocation
from bide.server.worker.child import ChildSettings

log = logging.getLogger("bide.worker")
MARK = "BIDE_CHILD_OF"  # environment variable of every child: its service's data folder
MAX_START_DELAY = 30.0
AT_ONCE = 16 * 1024  # bytes that the socket of an idle child accepts as a whole or not at all


class PoolListener(Protocol):
    """Receives the events of the pool."""

    def ready(self, child: ChildProcess) -> None: ...

    def received(self, child: ChildProcess, message: Any) -> None: ...

    def exited(self, child: ChildProcess) -> None: ...


class ChildProcess:
    """One child process, seen from its supervisor."""

    def __init__(self, name: str, is_async: bool, pool: Pool) -> None:
        self.name = name
        self.is_async = is_async
        self.state = "starting"
        self.started = time.time()
        self.last_heartbeat = time.monotonic()
        self.jobs_done = 0
        self.killed = False  # by the supervisor, on purpose
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._outgoing = bytearray()
        self._blocked = False  # the socket accepts no more bytes now
        self._gone = False
        self._closing = threading.Lock()  # so that no other thread sends to a closed file descriptor
        self._start()

    def _start(self) -> None:
        pool = self._pool
        self._work, theirs = socket.socketpair()
        try:
            self._control, their_control = socket.socketpair()
        except OSError:
            self._work.close()
            theirs.close()
            raise
        settings = ChildSettings(
            pool.location,
            theirs.fileno(),
            their_control.fileno(),
            pool.blobs,
            str(pool.work),
            pool.beat,
            self.is_async,
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bide.server.worker", msgspec.json.encode(settings).decode()],
                pass_fds=(theirs.fileno(), their_control.fileno()),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, MARK: str(pool.data)},
            )
        except BaseException:
            self._work.close()
            self._control.close()
            raise
        finally:
            theirs.close()
            their_control.close()
        self.pid = self._process.pid
        self._frames = {
            self._work: p.FrameDecoder(upward=True),
            self._control: p.FrameDecoder(upward=True),
        }
        for sock in self._frames:
            sock.setblocking(False)
            self._loop.add_reader(sock, self._readable, sock)
        self._pidfd = _pidfd(self.pid)
        if self._pidfd is not None:
            self._loop.add_reader(self._pidfd, self.check)

    # --- messages

    def send(self, message: p.ChildMessage, *, at_once: bool = False) -> None:
        """Send a message at the end of this iteration of the event loop, together with others, or immediately."""
        if self._gone:
            return
        if not self._outgoing and not at_once:
            self._loop.call_soon(self._flush)
        self._outgoing += p.frame(message)
        if at_once:
            self._flush()

    def _flush(self) -> None:
        """Send as much as the socket accepts, and the rest when it accepts more."""
        if self._gone or not self._outgoing:
            return
        try:
            sent = self._work.send(self._outgoing)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:  # the child is dying; its pid file descriptor will report that
            sent = len(self._outgoing)
        del self._outgoing[:sent]
        if self._outgoing and not self._blocked:
            self._loop.add_writer(self._work, self._flush)
        elif self._blocked and not self._outgoing:
            self._loop.remove_writer(self._work)
        self._blocked = bool(self._outgoing)

    def hand_over(self, message: p.ChildMessage) -> bool:
        """Send a message immediately, from any thread. Return False, and send nothing, if this child is not idle, or does
        not accept the whole message.
        """
        data = p.frame(message)
        with self._closing:
            if self.state != "idle" or self._outgoing or len(data) > AT_ONCE:
                return False
            try:
                return self._work.send(data) == len(data)
            except OSError:  # also if it accepts nothing now
                return False

    def request_stop(self, job_id: str, fence: int) -> None:
        with contextlib.suppress(OSError):
            self._control.send(p.frame(p.StopJob(job_id, fence)))

    def request_return(self) -> None:
        """Request the return of prefetched jobs that have not started."""
        with contextlib.suppress(OSError):
            self._control.send(p.frame(p.ReturnJobs()))

    def _readable(self, sock: socket.socket) -> bool:
        """Read and handle messages. Return whether there may be more to read."""
        try:
            data = sock.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(sock)
            self.check()
            return False
        try:
            for message in self._frames[sock].feed(data):
                self.last_heartbeat = time.monotonic()
                if isinstance(message, p.Heartbeat):
                    continue
                if isinstance(message, p.Ready):
                    self.state = "idle"
                    self._pool.started(self)
                elif isinstance(message, p.StartFailed):
                    self._pool.problem = message.error
                else:
                    self._pool.listener.received(self, message)
        except msgspec.DecodeError as error:  # a handler has written into the socket
            log.error("child %s sent an invalid message (%s); killing it", self.name, error)
            self._loop.remove_reader(sock)
            self.kill(lost=True)
            return False
        return True

    def mark_alive(self, now: float) -> None:
        """Count this moment as a heartbeat, because the supervisor could not read messages until now."""
        self.last_heartbeat = max(self.last_heartbeat, now)

    # --- ending

    def check(self) -> None:
        """Detect that the process has exited."""
        if not self._gone and self._process.poll() is not None:
            self._gone = True
            for sock in self._frames:
                while self._readable(sock):
                    pass
            self._close()
            self._pool.ended(self)

    def _close(self) -> None:
        for sock in self._frames:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)
            with self._closing:
                sock.close()
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        # Also end the processes that handlers left running in the child's group.
        self._signal(signal.SIGKILL)

    def request_exit(self) -> None:
        """Let the child finish its running jobs and exit."""
        self.state = "leaving"
        self.send(p.ExitChild())

    def terminate(self) -> None:
        self.killed = True
        self._signal(signal.SIGTERM)

    def kill(self, *, lost: bool = False) -> None:
        """Kill the child. `lost`: it stopped responding, so its jobs count as lost and are not handed back."""
        self.killed = not lost
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    @property
    def exit_text(self) -> str:
        code = self._process.returncode
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    def memory(self) -> int:
        """Resident memory in bytes; 0 if the system does not report it."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Pool:
    """Keeps a fixed number of sync and async children alive."""

    now = staticmethod(time.monotonic)  # the clock for timeouts of children

    def __init__(
        self,
        location: AppLocation,
        data: Path,
        *,
        blobs: str,
        sync: int,
        is_async: int,
        beat: float,
    ) -> None:
        self.location = location
        self.data = data
        self.blobs = blobs
        self.work = data / "work"
        self.beat = beat
        self.children: set[ChildProcess] = set()
        self.problem: str | None = None
        self._goal = {False: sync, True: is_async}
        self._number = 0
        self._failures = 0
        self._not_before = -math.inf

    async def open(self, listener: PoolListener) -> None:
        self.listener = listener
        left = await asyncio.to_thread(sweep, self.data)
        if left:
            log.warning(
                "killed %d processes that an earlier service on this data folder left behind", left
            )
        self.fill()

    def fill(self) -> None:
        """Start missing children. Called periodically."""
        if time.monotonic() < self._not_before:
            return None
        for is_async, goal in self._goal.items():
            alive = sum(c.is_async is is_async and c.state != "leaving" for c in self.children)
            for _ in range(goal - alive):
                self._number += 1
                try:
                    self.children.add(ChildProcess(f"{os.getpid()}.{self._number}", is_async, self))
                except OSError as error:
                    return self._delay_start(_explain(error))
        return None

    def waits_for(self, is_async: bool) -> bool:
        """Whether the pool should have such children and none is ready."""
        ready = any(c.is_async is is_async and c.state == "idle" for c in self.children)
        return self._goal[is_async] > 0 and not ready

    def started(self, child: ChildProcess) -> None:
        self._failures = 0
        self.problem = None
        self.listener.ready(child)

    def ended(self, child: ChildProcess) -> None:
        self.children.discard(child)
        if child.state == "starting" and not child.killed:
            self._delay_start(self.problem or child.exit_text)
        child.state = "gone"
        self.listener.exited(child)
        self.fill()

    def _delay_start(self, problem: str) -> None:
        self._failures += 1
        wait = min(MAX_START_DELAY, 0.25 * 2**self._failures)
        self._not_before = time.monotonic() + wait
        self.problem = problem
        log.error("a handler child cannot start (%s); retrying in %.1f s", problem, wait)

    async def close(self, grace: float) -> None:
        """Let all children exit, and kill those that have not exited after `grace` seconds."""
        self._goal = {False: 0, True: 0}
        for child in self.children:
            child.request_exit()
        end = time.monotonic() + grace
        while self.children and time.monotonic() < end:
            await asyncio.sleep(0.01)
            self.check()
        for child in self.children:
            child.kill()
        while self.children:
            await asyncio.sleep(0.01)
            self.check()

    def check(self) -> None:
        for child in list(self.children):
            child.check()


def _explain(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{error.strerror}: raise the limit with `ulimit -n` or LimitNOFILE= of systemd"
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return f"{error.strerror}: use fewer --workers, add memory, or raise `ulimit -u`"
    return str(error)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux: the tick detects an exit a little later
        return None


def sweep(data: Path) -> int:
    """Kill the processes that an earlier service on this data folder left running. Return their number.

    Children exit when their service is gone, unless they hang; processes that they started may have left their group.
    """
    mark = f"{MARK}={data}".encode()
    found = 0
    for entry in Path("/proc").glob("[0-9]*/environ"):
        pid = int(entry.parent.name)
        with contextlib.suppress(OSError):
            if pid != os.getpid() and mark in entry.read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
                found += 1
    return found
