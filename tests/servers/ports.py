"""Free ports of the loopback interface."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"
# Below the ports that the system gives to outgoing connections: one of those could take the port before the server does.
PORTS = range(20_000, 32_768)


def free_port() -> int:
    (port,) = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """Different ports, which nothing listens on now."""
    candidates = random.SystemRandom().sample(PORTS, len(PORTS))  # tests at the same time choose others
    found = filter(_is_free, candidates)
    return [next(found) for _ in range(count)]


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind((HOST, port))
        except OSError:
            return False
    return True
