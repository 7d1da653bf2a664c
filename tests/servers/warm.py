"""Processes of bide as forks of one process that has imported it: imports take most of the processor time of a command, of
the start of a service, and of the start of a handler child.

`python -m tests.servers.warm SOCKET` imports what a caller asks for, once, and runs it in a fork with the arguments, the
environment, the folder and the open files of the caller. A service has a fork server of its own, from which its handler
children are forked, so that they are its descendants.

- `popen` is `subprocess.Popen`, and `run` is `subprocess.run`.
- `Warm.program` is a `bide` for a shell. It starts a new interpreter for commands that go on running, start processes, or
  have a ledger: a killed one must be gone at once.
- `Warm.children` replaces `subprocess` in the module of a service or client that starts children from the process of the
  test.

What a fork does not show: /proc names neither its command nor its variables, so a service does not find the children that
an earlier one left behind; and its modules were imported before. Tests of these start a new interpreter, and so do
commands with other settings of the interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import io
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

from tests.servers import ServerMissing

# How a caller names what it runs.
SCRIPT, MODULE, IN_TERMINAL, CODE = "bide", "-m bide", "bide in a terminal", "-u -c"
# Children of a service or of a client, which outlive it, and their modules.
CHILDREN = {
    "-m bide.server.worker": "bide.server.worker.child",
    "-m bide.client.polling.processes": "bide.client.polling.processes.child",
}
BIDE = str(Path(sys.executable).with_name("bide"))
TAKE_TERMINAL = "import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"  # so that Ctrl-C reaches the process
_MAIN = "from bide.cli import main; main()"
PROGRAMS = (
    (SCRIPT, (BIDE,)),
    (MODULE, (sys.executable, "-m", "bide")),
    (MODULE, (sys.executable, "-c", _MAIN)),
    (IN_TERMINAL, (sys.executable, "-c", f"{TAKE_TERMINAL}; {_MAIN}")),
    (CODE, (sys.executable, "-u", "-c")),
)
COMMANDS = ("bide.client.blocking", "bide.service.assembly", "rich.progress")
# Of a service and of a handler child: also what they import when they first need it.
SERVICE = (
    *("bide.cli.serve", "bide.service.serve", "bide.service.app", "bide.server.worker.child"),
    *(
        "bide.server.store.sqlite.store",
        "bide.server.store.postgres.store",
        "bide.server.blobs.local_signing",
    ),
    *(
        "aiohttp",
        "importlib.metadata",
        "importlib.resources.readers",
        "prometheus_client",
        "pydantic.main",
    ),
    *("pydantic.type_adapter", "uvloop", "zoneinfo"),
)
PRELOADED = {"serve": SERVICE, "worker": (*SERVICE, "bide.cli.worker", "bide.service.worker", "celery")}
ABOVE = 300  # file descriptors of the fork server are below

# Without `socket` and `json`, because importing them takes longer than the rest.
PROGRAM = """#!{python} -IS
import os, sys
from _socket import socket, AF_UNIX, SOCK_STREAM, SOL_SOCKET, SCM_RIGHTS
if {{"--ledger", "--processes"}} & {{*sys.argv}} or sys.argv[1:2] and sys.argv[1] in ("serve", "worker", "demo"):
    os.execv("{bide}", ["bide", *sys.argv[1:]])
parts = [b"bide", b"", os.getcwdb(), b"0 1 2", b"%d" % (len(sys.argv) - 1), *map(os.fsencode, sys.argv[1:])]
parts += [name + b"=" + value for name, value in os.environb.items()]
data = b"\\0".join(parts)
data = len(data).to_bytes(4, "big") + data
warm = socket(AF_UNIX, SOCK_STREAM)
warm.connect("{address}")
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
sent = warm.sendmsg([data], [(SOL_SOCKET, SCM_RIGHTS, files)])
while sent < len(data):
    sent += warm.send(data[sent:])
answer = b""
while len(answer) < 8 and (more := warm.recv(8 - len(answer))):
    answer += more
code = int.from_bytes(answer[4:], "big", signed=True)
sys.exit(70 if len(answer) < 8 else code if code >= 0 else 128 - code)
"""

forking = False  # whether `popen` forks; only in tests, because benchmarks measure what users start


class Fork(subprocess.Popen[Any]):
    """A process of the fork server at `address`."""

    def __init__(self, address: str, program: str, words: Sequence[str], **options: Any) -> None:
        self._address = address
        self._answers = -1  # a socket with the id, then the exit code; its end is the end of the process
        super().__init__([program, *words], **options)

    def _execute_child(self, *given: Any) -> None:
        """What `subprocess.Popen` calls to start the process, with all settings by position."""
        args, pass_fds, cwd, env, session = (given[position] for position in (0, 4, 5, 6, 21))
        pipes = given[10:16]
        p2cread, _, _, c2pwrite, _, errwrite = pipes
        files = {
            0: max(p2cread, 0),
            1: c2pwrite if c2pwrite >= 0 else 1,
            2: errwrite if errwrite >= 0 else 2,
        }
        files.update({number: number for number in pass_fds})
        variables = [f"{name}={value}" for name, value in (os.environ if env is None else env).items()]
        program, *words = args
        parts = [program, "session" if session else "", str(cwd or Path.cwd())]
        parts += [" ".join(map(str, files)), str(len(words)), *words, *variables]
        data = os.fsencode("\0".join(parts))
        data = len(data).to_bytes(4, "big") + data
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self._address)
            server.sendall(data[socket.send_fds(server, [data], list(files.values())) :])
            self._answers = server.detach()
        pid = self._number()
        if pid is None:
            raise OSError(f"the fork server has ended; see {Path(self._address).with_name('log')}")
        self.pid = pid
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _number(self) -> int | None:
        data = os.read(self._answers, 4)
        return int.from_bytes(data, "big", signed=True) if data else None

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._wait(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            code = self._number()
            self.returncode = -signal.SIGKILL if code is None else code
            os.close(self._answers)
        return self.returncode


def popen(command: Sequence[str], *, env: Mapping[str, str], **options: Any) -> subprocess.Popen[Any]:
    """`subprocess.Popen`, which forks for commands of bide."""
    for program, words in PROGRAMS:
        if forking and (*command[: len(words)],) == words and _is_usual(env):
            return Fork(warm().address, program, command[len(words) :], env=env, **options)
    return subprocess.Popen(command, env=env, **options)


def run(
    command: Sequence[str], *, env: Mapping[str, str], timeout: float, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run`, which forks for commands of bide, and captures their output."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with popen(command, env=env, text=True, **pipes, **options) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _is_usual(env: Mapping[str, str]) -> bool:
    """Whether a new interpreter would be as this one, except for more folders with modules."""
    if any(
        env.get(name) != os.environ.get(name)
        for name in {*env, *os.environ}
        if name.startswith(("PYTHON", "LD_", "MALLOC_")) and name != "PYTHONPATH"
    ):
        return False
    more = set(_folders(env)) - set(_folders(os.environ))
    return not any((Path(f) / name).exists() for f in more for name in ("sitecustomize.py", "bide"))


def _folders(env: Mapping[str, str]) -> list[str]:
    return [folder for folder in env.get("PYTHONPATH", "").split(os.pathsep) if folder]


class Warm:
    """The fork server, until this process ends."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bide-warm-"))
        address = self.folder / "s"  # the path of a socket has at most 107 characters
        program = self.folder / "bide"
        self.address = str(address)
        self.program = str(program)
        program.write_text(PROGRAM.format(python=sys.executable, bide=BIDE, address=address))
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

    def children(self) -> SimpleNamespace:
        return _children(self.address)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)  # the fork server of a service may have removed its socket
        self.folder.rmdir()


@cache
def warm() -> Warm:
    found = Warm()
    atexit.register(found.end)
    return found


def _children(address: str) -> SimpleNamespace:
    """What the modules that start children need of `subprocess`."""

    def popen(command: Sequence[str], **options: Any) -> Fork:
        return Fork(address, " ".join(command[1:3]), command[3:], **options)

    return SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL)


# --- the fork server


@dataclass
class Running:
    pid: int
    caller: socket.socket
    ends: bool  # with its caller


def listen(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}~")
    listener.listen(100)
    Path(f"{address}~").rename(address)  # when it exists, it listens
    return listener


def serve(listener: socket.socket, address: str, until: int) -> None:
    """Forks until the file descriptor `until` can be read."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which end this process
    running: dict[int, Running] = {}
    while True:
        watched = [one.caller.fileno() for one in running.values() if one.ends]
        ready = set(select.select([listener.fileno(), until, *running, *watched], [], [])[0])
        if until in ready:
            break
        for pidfd in [one for one in running if one in ready]:
            one = running.pop(pidfd)
            os.close(pidfd)
            code = os.waitstatus_to_exitcode(os.waitpid(one.pid, 0)[1])
            with contextlib.suppress(OSError), one.caller as caller:
                caller.sendall(code.to_bytes(4, "big", signed=True))
        for one in running.values():
            if one.ends and one.caller.fileno() in ready:
                os.kill(one.pid, signal.SIGKILL)
                one.ends = False
        if listener.fileno() in ready:
            caller, _ = listener.accept()
            with contextlib.suppress(EOFError):
                begun = _begin(caller, address)
                running[os.pidfd_open(begun.pid)] = begun
    for one in running.values():
        if one.ends:
            os.kill(one.pid, signal.SIGKILL)


def _begin(caller: socket.socket, address: str) -> Running:
    data, files, _, _ = socket.recv_fds(caller, 1 << 16, 16)
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = caller.recv(1 << 16)
        if not more:  # killed meanwhile
            caller.close()
            raise EOFError
        data += more
    program, session, folder, numbers, count, *rest = os.fsdecode(data[4:]).split("\0")
    words, variables = rest[: int(count)], rest[int(count) :]
    _preload(program, words)
    pid = os.fork()
    if pid == 0:
        try:
            if session:
                os.setsid()
            caller.sendall(os.getpid().to_bytes(4, "big", signed=True))
            _open(dict(zip(map(int, numbers.split()), files, strict=True)))
            if program == IN_TERMINAL:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update({one.partition("=")[0]: one.partition("=")[2] for one in variables})
            _run(program, words, address)
        finally:
            os._exit(70)
    for file in files:
        os.close(file)
    return Running(pid, caller, program not in CHILDREN)


@cache
def _import(modules: tuple[str, ...]) -> None:
    for module in modules:
        import_module(module)
    gc.collect()
    gc.freeze()  # so that a collection in a fork does not copy the memory of all modules


def _preload(program: str, words: Sequence[str]) -> None:
    from bide.cli import COMMANDS as KNOWN

    if program in CHILDREN:
        _import((*SERVICE, CHILDREN[program]))
    elif words and words[0] in PRELOADED:
        _import(PRELOADED[words[0]])
    else:
        _import((*sorted({place.partition(":")[0] for place, _ in KNOWN.values()}), *COMMANDS))


def _open(files: Mapping[int, int]) -> None:
    """Has these files open by their numbers, and no others."""
    copies = {number: fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, ABOVE) for number, file in files.items()}
    os.closerange(3, ABOVE)
    for number, copy in copies.items():
        os.dup2(copy, number)
        os.close(copy)


def _run(program: str, words: list[str], address: str) -> NoReturn:
    """What an interpreter does with this program, in the state of a new one."""
    from bide import cli
    from bide.server import blobs

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    sys.argv = ["-c"] if program == CODE else [BIDE, *words]
    first = str(Path(BIDE).parent if program == SCRIPT else Path.cwd())
    sys.path[:] = [first, *_folders(os.environ), *ELSEWHERE]
    sys.modules["__main__"] = main_module = ModuleType("__main__")
    time.tzset()
    blobs._PROCESS = secrets.token_hex(4)  # each process has its own
    if program not in CHILDREN and words[:1] in (["serve"], ["worker"]):
        _fork_children(f"{address}.{os.getpid()}")
    code: object = 0
    try:
        if program == CODE:
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8", write_through=True)
            exec(compile(words[0], "<string>", "exec"), main_module.__dict__)
        elif program in CHILDREN:
            import_module(CHILDREN[program]).main()
        else:
            cli.main()
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _fork_children(address: str) -> None:
    """The handler children of this service are forks of a process that ends with it."""
    from bide.server.worker import supervisor

    ended, alive = os.pipe()
    with listen(address) as listener:
        pid = os.fork()
        if pid == 0:
            try:
                os.close(alive)
                serve(listener, address, ended)
                Path(address).unlink(missing_ok=True)
            finally:
                os._exit(0)
    os.close(ended)

    def end() -> None:
        os.close(alive)
        os.waitpid(pid, 0)

    atexit.register(end)
    setattr(supervisor, "subprocess", _children(address))  # noqa: B010 # mypy knows no such attribute


# Without the folder of the program and those of PYTHONPATH.
ELSEWHERE = [f for f in sys.path[1:] if f not in _folders(os.environ)]

if __name__ == "__main__":
    serve(listen(sys.argv[1]), sys.argv[1], sys.stdin.fileno())
