"""`bide` from a process that has imported it already: of a command, the imports take most of the processor time.

`python -m tests.servers.warm SOCKET` imports the commands once, and runs each in a fork of its own, with the arguments,
environment, folder and open files of the caller. `Warm.program` is a `bide` for a shell: it asks that process, except for
commands that go on running, start processes, or have a ledger: a killed one must be gone at once.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path

from tests.servers import ServerMissing

# Without `socket` and `json`, because importing them takes longer than the rest.
PROGRAM = """#!{python} -IS
import os, sys
from _socket import socket, AF_UNIX, SOCK_STREAM, SOL_SOCKET, SCM_RIGHTS
if {{"--ledger", "--processes"}} & {{*sys.argv}} or sys.argv[1:2] and sys.argv[1] in ("serve", "worker", "demo"):
    os.execv("{bide}", ["bide", *sys.argv[1:]])
parts = [os.getcwdb(), b"%d" % (len(sys.argv) - 1), *map(os.fsencode, sys.argv[1:])]
parts += [name + b"=" + value for name, value in os.environb.items()]
data = b"\\0".join(parts)
data = len(data).to_bytes(4, "big") + data
warm = socket(AF_UNIX, SOCK_STREAM)
warm.connect("{address}")
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
sent = warm.sendmsg([data], [(SOL_SOCKET, SCM_RIGHTS, files)])
while sent < len(data):
    sent += warm.send(data[sent:])
answer = warm.recv(1)
sys.exit(answer[0] if answer else 70)
"""


class Warm:
    """The process, until this one ends."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bide-warm-"))
        address = self.folder / "socket"
        program = self.folder / "bide"
        self.program = str(program)
        real = Path(sys.executable).with_name("bide")
        program.write_text(PROGRAM.format(python=sys.executable, bide=real, address=address))
        program.chmod(0o755)
        env = {k: v for k, v in os.environ.items() if not k.startswith("BIDE_")}
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.servers.warm", str(address)],
                cwd=Path(__file__).parents[2],
                env=env,
                stdin=subprocess.PIPE,  # its end is the end of the process
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + 60
        while not address.exists():
            if self._process.poll() is not None or time.monotonic() > until:
                raise ServerMissing((self.folder / "log").read_text())
            time.sleep(0.01)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()


@cache
def warm() -> Warm:
    found = Warm()
    atexit.register(found.end)
    return found


def serve(address: str) -> None:
    from bide.cli import COMMANDS

    for module in {location.partition(":")[0] for location, _ in COMMANDS.values()}:
        import_module(module)
    for module in ("bide.client.blocking", "bide.service.assembly", "rich.progress"):
        import_module(module)
    answering: set[int] = set()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen(100)
        Path(f"{address}.new").rename(address)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                break
            caller, _ = listener.accept()
            answering = {pid for pid in answering if not os.waitpid(pid, os.WNOHANG)[0]}
            pid = os.fork()
            if pid == 0:
                listener.close()
                _answer(caller)
            answering.add(pid)
            caller.close()
    for pid in answering:
        os.waitpid(pid, 0)


def _answer(caller: socket.socket) -> None:
    """Runs the command in another fork. If the caller is gone before its end, kill it."""
    data, files, _, _ = socket.recv_fds(caller, 1 << 16, 3)
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        data += caller.recv(1 << 16)
    folder, count, *rest = data[4:].split(b"\0")
    words, variables = rest[: int(count)], rest[int(count) :]
    pid = os.fork()
    if pid == 0:
        caller.close()
        _run(folder, words, dict(one.split(b"=", 1) for one in variables), files)
    for number in files:
        os.close(number)
    ended = os.pidfd_open(pid)
    ready, _, _ = select.select([ended, caller.fileno()], [], [])
    if ended not in ready:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    caller.send(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def _run(folder: bytes, words: list[bytes], environment: dict[bytes, bytes], files: list[int]) -> None:
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(environment)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
    sys.argv = ["bide", *map(os.fsdecode, words)]
    time.tzset()
    code: object = 0
    try:
        from bide.cli import main

        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    serve(sys.argv[1])
