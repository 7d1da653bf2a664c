"""A Redis and a RabbitMQ of one's own: started on a free port of loopback, killed, started again, emptied, ended.

Whatever was started is ended by its id, RabbitMQ's port mapper too. Their data is in a folder that goes with them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.scale.postgres import HOST, Absent, children, free_port

RABBIT_PLACES = ("/usr/lib/rabbitmq/bin", "/opt/homebrew/sbin", "/usr/local/sbin")
PREFACE = b"AMQP\x00\x00\x09\x01"


class _Broker:
    """One server, its folder and its port, which it keeps when it starts again."""

    name = "the broker"
    patience = 60.0

    def __init__(self, home: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bide-broker-", dir=home))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _command(self) -> tuple[Sequence[str], Mapping[str, str]]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Returns when it takes messages."""
        command, extra = self._command()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **extra},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for whoever started it
            )
        end = time.monotonic() + self.patience
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise Absent(f"{self.name} did not start: {self.log[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL: only what is on disk is left."""
        if self._process is None:
            return
        pids = [self._process.pid, *children(self._process.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def end(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _said(self, words: bytes) -> bytes:
        """What it answers to them, or nothing when nobody does."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((HOST, self.port), timeout=2) as sock,
        ):
            sock.sendall(words)
            return sock.recv(4096)
        return b""


class RedisServer(_Broker):
    """Without a file of its own it has forgotten everything after a kill; `kept=True` has it write one every second."""

    name = "Redis"

    def __init__(self, home: str | None = None, *, kept: bool = False) -> None:
        self._kept = kept
        super().__init__(home)

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def _command(self) -> tuple[Sequence[str], Mapping[str, str]]:
        program = shutil.which("redis-server")
        if program is None:
            raise Absent("there is no Redis server: apt-get install redis-server")
        command = [program, "--port", str(self.port), "--bind", HOST, "--dir", str(self.folder)]
        return [*command, "--save", "", "--appendonly", "yes" if self._kept else "no"], {}

    def _answers(self) -> bool:
        return self._said(b"PING\r\n").startswith(b"+PONG")  # -LOADING while it reads its file

    def flush(self) -> None:
        """Forgets all messages, and everything else."""
        if not self._said(b"FLUSHALL\r\n").startswith(b"+OK"):
            raise RuntimeError("Redis was not emptied")

    def waiting(self, queue: str) -> int:
        """Messages in it that nobody has taken."""
        said = self._said(f"LLEN {queue}\r\n".encode())
        if not said.startswith(b":"):
            raise RuntimeError(f"Redis says {said!r}")
        return int(said[1:])

    def disconnect(self) -> None:
        """Closes every connection to it but this one."""
        self._said(b"CLIENT KILL TYPE normal SKIPME yes\r\n")
        self._said(b"CLIENT KILL TYPE pubsub SKIPME yes\r\n")


class RabbitServer(_Broker):
    """One node with no plugins, and the port mapper that Erlang wants beside it. Six seconds to start."""

    name = "RabbitMQ"

    def __init__(self, home: str | None = None) -> None:
        self._programs = _rabbit_programs()
        self._mapper: subprocess.Popen[bytes] | None = None
        self._mapper_port = free_port()
        self._node_port = free_port()
        super().__init__(home)

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}//"

    def _env(self) -> dict[str, str]:
        here = self.folder
        (here / "plugins").write_text("[].")
        (here / "rabbitmq.conf").write_text("heartbeat = 10\nvm_memory_high_watermark.relative = 0.8\n")
        return {
            "HOME": str(here),  # where the cookie is
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RABBITMQ_NODENAME": f"bide{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_MNESIA_BASE": str(here / "mnesia"),
            "RABBITMQ_LOG_BASE": str(here),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(here / "pid"),
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(here / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "plugins"),
            "RABBITMQ_ALLOW_INPUT": "1",  # so that the script becomes the server, instead of starting it
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _command(self) -> tuple[Sequence[str], Mapping[str, str]]:
        self._map()
        return [str(self._programs / "rabbitmq-server"), "-noinput"], self._env()

    def _map(self) -> None:
        """Erlang would start a port mapper that outlives everything; ours ends with us."""
        if self._mapper is not None and self._mapper.poll() is None:
            return
        program = shutil.which("epmd")
        if program is None:
            raise Absent("there is no Erlang port mapper (epmd), which comes with RabbitMQ's Erlang")
        command = [program, "-port", str(self._mapper_port), "-address", HOST]
        self._mapper = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _answers(self) -> bool:
        return b"RabbitMQ" in self._said(PREFACE)

    def _control(self, *words: str) -> None:
        command = [str(self._programs / "rabbitmqctl"), *words]
        env = {**os.environ, **self._env()}
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"rabbitmqctl {words[0]} failed: {done.stdout}{done.stderr}")

    def flush(self) -> None:
        """Forgets all messages that nobody holds."""
        self._control("eval", "[rabbit_amqqueue:purge(Q) || Q <- rabbit_amqqueue:list()].")

    def waiting(self, queue: str) -> int:
        """Messages in it that nobody has taken."""
        import amqp

        with amqp.Connection(f"{HOST}:{self.port}") as connection:
            return int(connection.channel().queue_declare(queue, passive=True).message_count)

    def disconnect(self) -> None:
        """Closes every connection to it."""
        self._control("close_all_connections", "test")

    def end(self) -> None:
        super().end()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()


def _rabbit_programs() -> Path:
    named = os.environ.get("BIDE_RABBITMQ_BIN")
    for place in [named] if named else RABBIT_PLACES:
        if (Path(place) / "rabbitmq-server").exists():
            return Path(place)
    raise Absent(
        "there is no RabbitMQ server: apt-get install rabbitmq-server, or name its programs in BIDE_RABBITMQ_BIN"
    )
