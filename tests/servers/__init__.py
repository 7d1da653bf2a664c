"""Servers that tests and benchmarks start on loopback: PostgreSQL, Redis, RabbitMQ, Swift, nginx and `bide serve`.

Each has a folder and ports of its own, and is ended by its process id.
"""

from __future__ import annotations


class ServerMissing(Exception):
    """The server is not installed, or does not start; the message says what to do."""
