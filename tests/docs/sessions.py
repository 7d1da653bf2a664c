"""The programs that a page talks to: a shell, a Python, and the services that it starts. Each is bounded in time."""

from __future__ import annotations

import os
import queue
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.servers import warm

PATIENCE = 60.0  # for one command
START = 30.0  # for a service to answer
END = "--end-of-example--"

_PYTHON = f"""
import sys, traceback
namespace, lines = {{"__name__": "__page__"}}, []
for line in sys.stdin:
    if line.rstrip() != "{END}":
        lines.append(line)
        continue
    code = 0
    try:
        exec(compile("".join(lines), "<the page>", "exec"), namespace)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        code = 1
    lines.clear()
    print("\\n{END}", code, flush=True)
"""


class Session:
    """An interpreter that takes one piece after another and keeps what they leave behind."""

    def __init__(self, argv: list[str], folder: Path, env: dict[str, str]) -> None:
        self._process = warm.popen(
            argv,
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def say(self, text: str) -> tuple[str, int]:
        """What comes back, and the exit code. TimeoutError when nothing does."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()
        heard: list[str] = []
        until = time.monotonic() + PATIENCE
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"no end after {PATIENCE:g} s; so far:\n{''.join(heard)}") from None
            if line is None:
                raise AssertionError(f"the session ended:\n{''.join(heard)}")
            if line.startswith(END):
                return "".join(heard).strip("\n"), int(line.split()[1])
            heard.append(line)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        _end_group(self._process.pid)
        self._process.wait()
        self._reader.join()
        self._process.stdin.close()
        self._process.stdout.close()


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class Shell(Session):
    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        super().__init__(["bash", "--norc", "--noprofile"], folder, env)

    def run(self, command: str) -> tuple[str, int]:
        return self.say(f"{{ {command}\n}} </dev/null\nprintf '\\n{END} %d\\n' $?\n")


class Python(Session):
    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        super().__init__([sys.executable, "-u", "-c", _PYTHON], folder, env)

    def run(self, code: str) -> tuple[str, int]:
        return self.say(f"{code}\n{END}\n")


class Service:
    """A server in the background, from its first answer until `stop`."""

    def __init__(
        self, command: str, port: int | None, folder: Path, env: dict[str, str], log: Path
    ) -> None:
        """`port`: where it will answer; None: nowhere."""
        self._log = log
        words = shlex.split(command)
        plain = words[0] == "bide" and not set("$`|&;<>()*?~#") & set(command)
        argv = [warm.BIDE, *words[1:]] if plain else ["bash", "-c", f"exec {command}"]
        with log.open("ab") as out:
            self._process = warm.popen(
                argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        until = time.monotonic() + START
        while port is not None and not _answers(port):
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise AssertionError(f"{command} does not serve:\n{log.read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """As Ctrl-C twice would: nothing is waited for."""
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(number)
                try:
                    self._process.wait(10.0 if number != signal.SIGTERM else 1.0)
                except subprocess.TimeoutExpired:
                    continue
        self._process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
