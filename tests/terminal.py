"""A command in a pseudo-terminal, and the screen that a user sees."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte
from wcwidth import wcwidth

from tests.servers import warm
from tests.waiting import until

BIDE = (sys.executable, "-c", "from bide.cli import main; main()")
IN_TERMINAL = (sys.executable, "-c", f"{warm.TAKE_TERMINAL}; {BIDE[2]}")
SHELL = (
    sys.executable,
    "-c",
    f"{warm.TAKE_TERMINAL}; os.execvp('bash', ['bash', '--norc', '--noprofile', '-i'])",
)
PATIENCE = 60.0


class Terminal:
    """Runs `bide` with these arguments, or another program; stdin, stdout and stderr are one terminal.

    The screen is so high that no line leaves it. `environment` replaces the variables of this process, `env` adds to them.
    """

    def __init__(
        self,
        folder: Path,
        *args: str,
        env: dict[str, str] | None = None,
        columns: int = 160,
        lines: int = 200,
        stdout: int | None = None,
        snapshots: bool = True,
        program: Sequence[str] = IN_TERMINAL,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if environment is None:
            environment = {name: value for name, value in os.environ.items() if name[:5] != "BIDE_"}
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._shown: list[str] | None = None  # the lines, until the next piece of output
        self._keeps_snapshots = snapshots
        self.snapshots: list[list[str]] = []  # the screen after each piece of output
        self.process = warm.popen(
            [*program, *args],
            cwd=folder,
            env={**environment, "TERM": "xterm-256color", **(env or {})},
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            _end_session(self.process.pid)
            self.process.wait()
        self._reader.join()
        os.close(self._ours)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # the last process that had the terminal has exited
                return
            with self._lock:
                self._stream.feed(data)
                self._shown = None
                if self._keeps_snapshots:
                    self.snapshots.append(self._lines())

    def _lines(self) -> list[str]:
        if self._shown is None:
            # Not `display`, which reads every cell of the screen, also those that nothing was written to.
            rows = (_text(row) for _, row in sorted(self._screen.buffer.items()))
            self._shown = [text for text in rows if text]
        return self._shown

    def lines(self) -> list[str]:
        with self._lock:
            return self._lines()

    def rows(self) -> list[dict[int, pyte.screens.Char]]:
        """The lines with their colours."""
        with self._lock:
            shown = [number for number, line in enumerate(self._screen.display) if line.strip()]
            return [dict(self._screen.buffer[number]) for number in shown]

    def until(self, text: str) -> list[str]:
        """Waits until the screen shows the text."""
        until(lambda: any(text in line for line in self.lines()), f"{text!r} in {self.lines()}")
        return self.lines()

    @property
    def title(self) -> str:
        """The title of the window, which a program can set with an escape sequence."""
        with self._lock:
            return str(self._screen.title)

    def clear(self, text: str) -> None:
        """Empties the title, and the screen except for this line, at whose end the cursor is."""
        with self._lock:
            self._screen.reset()
            self._stream.feed(text.encode())
            self._shown = None

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code


def _text(row: Mapping[int, pyte.screens.Char]) -> str:
    """A row of the screen, without the spaces at its end."""
    text, wide = [], False
    for column in range(max(row, default=-1) + 1):
        data = row[column].data
        if not wide:
            text.append(data)
        wide = not wide and not data.isascii() and wcwidth(data[0]) == 2  # its second cell has no text
    return "".join(text).rstrip()


def _end_session(leader: int) -> None:
    """Kills a process and all that it has started in its session: each would keep the terminal open."""
    for pid in [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]:
        with suppress(ProcessLookupError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)
