"""A RabbitMQ server on free ports."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers import ServerMissing
from tests.servers.broker import Broker
from tests.servers.ports import HOST, free_ports

FOLDERS = ("/usr/lib/rabbitmq/bin", "/opt/homebrew/sbin", "/usr/local/sbin")
PREFACE = b"AMQP\x00\x00\x09\x01"


class RabbitServer(Broker):
    """One node without plugins, and the port mapper that Erlang needs. It takes six processor seconds to start."""

    name = "RabbitMQ"

    def __init__(self, home: str | None = None) -> None:
        self._programs = _programs()
        self._mapper: subprocess.Popen[bytes] | None = None
        self._mapper_port, self._node_port = free_ports(2)
        super().__init__(home)

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}//"

    def _env(self) -> dict[str, str]:
        here = self.folder
        (here / "plugins").write_text("[].")
        (here / "rabbitmq.conf").write_text("heartbeat = 10\nvm_memory_high_watermark.relative = 0.8\n")
        return {
            "HOME": str(here),  # for Erlang's cookie
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
            "RABBITMQ_ALLOW_INPUT": "1",  # the script becomes the server, instead of starting it
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _command(self) -> tuple[Sequence[str], Mapping[str, str]]:
        self._start_mapper()
        return [str(self._programs / "rabbitmq-server"), "-noinput"], self._env()

    def _start_mapper(self) -> None:
        """Starts the port mapper. One that Erlang starts would never end."""
        if self._mapper is not None and self._mapper.poll() is None:
            return
        program = shutil.which("epmd")
        if program is None:
            raise ServerMissing(
                "there is no Erlang port mapper (epmd), which comes with RabbitMQ's Erlang"
            )
        command = [program, "-port", str(self._mapper_port), "-address", HOST]
        self._mapper = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _answers(self) -> bool:
        return b"RabbitMQ" in self._exchange(PREFACE)

    def _control(self, *arguments: str) -> None:
        command = [str(self._programs / "rabbitmqctl"), *arguments]
        env = {**os.environ, **self._env()}
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"rabbitmqctl {arguments[0]} failed: {done.stdout}{done.stderr}")

    def flush(self) -> None:
        """Removes all messages that no consumer has."""
        self._control("eval", "[rabbit_amqqueue:purge(Q) || Q <- rabbit_amqqueue:list()].")

    def waiting(self, queue: str) -> int:
        """The number of messages in the queue that no consumer has."""
        import amqp

        with amqp.Connection(f"{HOST}:{self.port}") as connection:
            return int(connection.channel().queue_declare(queue, passive=True).message_count)

    def disconnect(self) -> None:
        """Closes all connections."""
        self._control("close_all_connections", "test")

    def end(self) -> None:
        super().end()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()


def _programs() -> Path:
    named = os.environ.get("BIDE_RABBITMQ_BIN")
    for place in [named] if named else FOLDERS:
        if (Path(place) / "rabbitmq-server").exists():
            return Path(place)
    raise ServerMissing(
        "there is no RabbitMQ server: apt-get install rabbitmq-server, or name its programs in BIDE_RABBITMQ_BIN"
    )
