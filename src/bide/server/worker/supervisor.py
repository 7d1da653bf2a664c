"""A pool of warm children: starts them, listens to them, replaces the dead.

1. A child is spawned, never forked: the service has threads.
2. Each child leads a process group of its own; what a handler has started ends with it.
3. What a child sent before it died is read before its death is told.
4. Children that cannot start are tried again ever more slowly, and the reason is told.
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
import time
from pathlib import Path
from typing import Any, Protocol

import msgspec

from bide.server.worker import protocol as p
from bide.server.worker.app_location import AppLocation
from bide.server.worker.child import ChildSettings

log = logging.getLogger("bide.worker")
MARK = "BIDE_CHILD_OF"  # in the environment of every child: the data folder of its service
SLOWEST_START = 30.0


class PoolListener(Protocol):
    """Who is told what happens in the pool."""

    def ready(self, child: ChildProcess) -> None: ...

    def received(self, child: ChildProcess, message: Any) -> None: ...

    def exited(self, child: ChildProcess) -> None: ...


class ChildProcess:
    """One child process, seen from the service."""

    def __init__(self, name: str, is_async: bool, pool: Pool) -> None:
        self.name = name
        self.is_async = is_async
        self.state = "starting"
        self.started = time.time()
        self.last_heartbeat = time.monotonic()
        self.jobs_done = 0
        self.killed = False  # by us, on purpose
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._outgoing = bytearray()
        self._gone = False
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

    # --- talking

    def send(self, message: p.ChildMessage, *, at_once: bool = False) -> None:
        """Goes out at the end of this round of the loop, with whatever else is sent in it, or at once."""
        if self._gone:
            return
        if not self._outgoing and not at_once:
            self._loop.call_soon(self._flush)
        self._outgoing += p.frame(message)
        if at_once:
            self._flush()

    def _flush(self) -> None:
        if self._outgoing and not self._gone and not self._write():
            self._loop.add_writer(self._work, self._writable)

    def _write(self) -> bool:
        """Sends what the socket takes; whether that was all."""
        try:
            sent = self._work.send(self._outgoing)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # it is dying: its death will be told by its pid
            sent = len(self._outgoing)
        del self._outgoing[:sent]
        return not self._outgoing

    def _writable(self) -> None:
        if self._write():
            self._loop.remove_writer(self._work)

    def request_stop(self, job_id: str, fence: int) -> None:
        with contextlib.suppress(OSError):
            self._control.send(p.frame(p.StopJob(job_id, fence)))

    def request_return(self) -> None:
        """Asks for the jobs of its line that it has not started."""
        with contextlib.suppress(OSError):
            self._control.send(p.frame(p.ReturnJobs()))

    def _readable(self, sock: socket.socket) -> bool:
        """Whether there may be more to read."""
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
                self._heard(message)
        except msgspec.DecodeError as error:  # a handler has written into the socket
            log.error("child %s cannot be understood (%s): killed", self.name, error)
            self._loop.remove_reader(sock)
            self.kill(lost=True)
            return False
        return True

    def _heard(self, message: Any) -> None:
        self.last_heartbeat = time.monotonic()
        if isinstance(message, p.Heartbeat):
            return
        if isinstance(message, p.Ready):
            self.state = "idle"
            self._pool.started(self)
        elif isinstance(message, p.StartFailed):
            self._pool.problem = message.error
        else:
            self._pool.listener.received(self, message)

    def mark_alive(self, now: float) -> None:
        """Counts as heard now: nobody listened until now."""
        self.last_heartbeat = max(self.last_heartbeat, now)

    # --- ending

    def check(self) -> None:
        """Notices its death."""
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
            sock.close()
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        # What the handler left running in its group goes with it.
        self._signal(signal.SIGKILL)

    def leave(self) -> None:
        """It may finish what runs, then exits."""
        self.state = "leaving"
        self.send(p.ExitChild())

    def terminate(self) -> None:
        self.killed = True
        self._signal(signal.SIGTERM)

    def kill(self, *, lost: bool = False) -> None:
        """`lost`: it was as good as dead, so its jobs are lost and not given back."""
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
        """Resident bytes; 0 where the system does not tell."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Pool:
    """Keeps so many children alive."""

    def __init__(
        self,
        location: AppLocation,
        data: Path,
        *,
        blobs: str,
        sync: int,
        is_async: int,
        beat: float,
        listener: PoolListener,
    ) -> None:
        self.location = location
        self.data = data
        self.blobs = blobs
        self.work = data / "work"
        self.beat = beat
        self.listener = listener
        self.children: set[ChildProcess] = set()
        self.problem: str | None = None
        self._goal = {False: sync, True: is_async}
        self._number = 0
        self._failures = 0
        self._not_before = -math.inf

    @staticmethod
    def now() -> float:
        """The watch by which children are timed."""
        return time.monotonic()

    async def open(self) -> None:
        left = await asyncio.to_thread(sweep, self.data)
        if left:
            log.warning("ended %d processes that an earlier service had left behind", left)
        self.fill()

    def fill(self) -> None:
        """Starts what is missing; call it now and then."""
        if time.monotonic() < self._not_before:
            return None
        for is_async, goal in self._goal.items():
            alive = sum(c.is_async is is_async and c.state != "leaving" for c in self.children)
            for _ in range(goal - alive):
                self._number += 1
                try:
                    self.children.add(ChildProcess(f"{os.getpid()}.{self._number}", is_async, self))
                except OSError as error:
                    return self._put_off(_advice(error))
        return None

    def waits_for(self, is_async: bool) -> bool:
        """Whether children of this sort are wanted and none is ready."""
        ready = any(c.is_async is is_async and c.state == "idle" for c in self.children)
        return self._goal[is_async] > 0 and not ready

    def started(self, child: ChildProcess) -> None:
        self._failures = 0
        self.problem = None
        self.listener.ready(child)

    def ended(self, child: ChildProcess) -> None:
        self.children.discard(child)
        if child.state == "starting" and not child.killed:
            self._put_off(self.problem or child.exit_text)
        child.state = "gone"
        self.listener.exited(child)
        self.fill()

    def _put_off(self, problem: str) -> None:
        self._failures += 1
        wait = min(SLOWEST_START, 0.25 * 2**self._failures)
        self._not_before = time.monotonic() + wait
        self.problem = problem
        log.error("a handler child cannot start (%s); next try in %.1f s", problem, wait)

    async def close(self, grace: float) -> None:
        """Ends all children: asked, then killed."""
        self._goal = {False: 0, True: 0}
        for child in self.children:
            child.leave()
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


def _advice(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{error.strerror}: raise the limit, `ulimit -n` or LimitNOFILE= of systemd"
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return f"{error.strerror}: fewer --workers, more memory, or a higher `ulimit -u`"
    return str(error)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux: the tick notices a death a little later
        return None


def sweep(data: Path) -> int:
    """Ends what an earlier service on this data folder left running; how many there were.

    Children end themselves when their service is gone, unless they hang; what they started may have left their group.
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
