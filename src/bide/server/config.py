"""Every setting of the working end, one frozen dataclass a section."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path

from bide.core.lease import LEASE


@dataclass(frozen=True)
class WorkerConfig:
    """The handler children."""

    workers: int | None = None  # None: one a core, and at least one a queue
    lease: float = LEASE
    grace: float = 3.0  # between told, terminated and killed
    drain: float = 30.0  # how long a shutdown waits for running jobs before it hands them back
    async_concurrency: int = 100  # async jobs at once, a queue
    queues: tuple[str, ...] | None = None  # None: all of the app's, and a child for each at least

    def children(self, queues: int) -> int:
        if self.queues is not None:
            return max(self.workers if self.workers is not None else os.cpu_count() or 1, 1)
        return max(self.workers if self.workers is not None else os.cpu_count() or 1, queues, 1)


@dataclass(frozen=True)
class StoreConfig:
    """What is true."""

    url: str | None = None  # postgresql://…; None: SQLite in the data folder
    connections: int = 8  # to PostgreSQL, for reads; one more writes, one listens, one is for progress


@dataclass(frozen=True)
class EngineConfig:
    """Who gets jobs to workers."""

    name: str = "embedded"  # the service's own children; or "celery": workers anywhere
    broker: str | None = field(default=None, repr=False)  # redis://… or amqp://…, for Celery
    allow_unknown_queues: bool = False  # submissions to queues that neither the app nor a worker knows


@dataclass(frozen=True)
class BlobsConfig:
    """The bytes of files."""

    url: str | None = None  # s3://…; None: the data folder


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a service that listens on this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class HttpConfig:
    host: str = "127.0.0.1"
    port: int = 8642
    trusted_hosts: tuple[str, ...] = ()  # names, besides those of loopback, that callers may use
    max_body: int = 1024 * 1024
    max_batch: int = 1000
    max_head: int = 32 * 1024  # address and headers
    max_connections: int = 4096  # fewer when the process may not open as many files
    max_unanswered: int = 64 * 1024 * 1024  # bytes of all requests that are not answered
    request_timeout: float = 30.0  # for a request to arrive, and for an answer to be taken


@dataclass(frozen=True)
class UploadConfig:
    max_size: int = 64 * 1024**3  # of one upload
    quota: int | None = None  # bytes of all uploads together; None: what the disk has
    lifetime: float = 86400.0  # after the last byte; one that a job uses lives as long as the job
    inputs: float | None = (
        None  # after the end of the last job that uses it; None: as long as such a job is kept
    )
    signed: float = 3600.0  # seconds that a signed address is good for
    min_rate: float = 1024.0  # bytes a second; who sends slower for long is cut off
    origins: tuple[
        str, ...
    ] = ()  # of pages in browsers that may use this service, as in https://example.org


@dataclass(frozen=True)
class UpkeepConfig:
    interval: float = 1.0
    tombstones: float = 30 * 86400.0  # how long a purged job answers 410
    idempotency: float = 86400.0  # how long after the end of its job a key is remembered
    orphan_age: float = 3600.0  # files of no job older than this are put into quarantine, and removed
    quarantine: float = 7 * 86400.0  # after so long in quarantine
    sweep: float = 600.0  # how often they are looked for; a bucket is listed whole each time


@dataclass(frozen=True)
class Config:
    data: Path = Path("bide-data")
    store: StoreConfig = field(default_factory=StoreConfig)
    progress: str | None = None  # redis://…, where replicas share it; None: the store has it
    engine: EngineConfig = field(default_factory=EngineConfig)
    blobs: BlobsConfig = field(default_factory=BlobsConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    uploads: UploadConfig = field(default_factory=UploadConfig)
    upkeep: UpkeepConfig = field(default_factory=UpkeepConfig)
