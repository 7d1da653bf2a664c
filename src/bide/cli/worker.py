"""`bide worker`: runs jobs of services with --engine celery, on any machine."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bide.cli import options, settings
from bide.cli.logs import LogFormat, announce, log_to_stderr
from bide.core.errors import SetupError


@click.command()
@click.argument("target", metavar="MODULE:app")
@options.address(
    "store", "The database of the services: postgresql://user@host/database.", required=True
)
@options.address(
    "broker",
    "The broker of the services: redis://host:6379/0 or amqp://user@host:5672//.",
    required=True,
)
@options.address(
    "progress",
    "Where the progress of running jobs is published, as for the services: redis://host:6379/0; by default the broker "
    "if it is a Redis, else the database of the store.",
)
@click.option("--queues", metavar="a,b", help="Run only these queues; by default all queues of the app.")
@click.option(
    "--concurrency",
    envvar="BIDE_WORKERS",
    type=click.IntRange(1),
    help="Child processes that run handlers; by default one per core.",
)
@options.data("The data folder: files, and one folder per worker.")
@options.address(
    "blobs",
    "Where files are stored, as for the services: s3://bucket/prefix?endpoint=…&region=…; by default `blobs` in the "
    "data folder.",
)
@options.connections(3)
@options.lease("Seconds without a heartbeat after which a child, or a worker, loses its jobs.")
@options.drain()
@options.traces
@options.log_level()
@options.log_format()
def worker(
    target: str,
    store: str,
    broker: str,
    progress: str | None,
    queues: str | None,
    concurrency: int | None,
    data: Path,
    blobs: str | None,
    connections: int,
    lease: float,
    drain: float,
    otlp: str | None,
    trace_sample: float,
    log_level: str,
    log_format: LogFormat,
) -> None:
    """Run jobs of MODULE:app for services with --engine celery. This is a Celery worker.

    \b
    Examples:
      bide worker tasks:app --store postgresql://bide@db.example.org/jobs --broker redis://queue.example.org/0
      bide worker tasks:app --queues video,thumbnails --concurrency 4
      BIDE_STORE=postgresql://… BIDE_BROKER=amqp://… bide worker tasks:app
    """
    try:
        from bide.server.config import (
            BlobsConfig,
            Config,
            EngineConfig,
            StoreConfig,
            TraceConfig,
            WorkerConfig,
        )
        from bide.server.worker.app_location import parse
        from bide.service import backends
        from bide.service.backends import require_celery
    except ModuleNotFoundError as error:
        raise SetupError.not_installed(f"{error.name} is not installed", "celery") from None
    require_celery()
    from bide.server.engine.celery.broker import Broker
    from bide.service.worker import run_worker

    if log_format == "json":
        log_to_stderr(log_format, log_level)
    location = parse(target)
    config = Config(
        data=data,
        store=StoreConfig(url=store, connections=connections),
        engine=EngineConfig("celery", broker),
        progress=progress,
        blobs=BlobsConfig(blobs),
        worker=WorkerConfig(workers=concurrency, lease=lease, drain=drain),
        limits=settings.limits(),
        traces=TraceConfig(otlp, trace_sample),
    )
    places = f"store {backends.make_shared_database(config.store).shown}, broker {Broker(broker).shown}"
    code = run_worker(
        location.load(),
        location,
        config,
        queues=_names(queues),
        log_level=log_level.upper(),
        keep_logging=log_format == "json",
        started=lambda name: announce(f"worker {name} runs {target}, {places}", log_format),
    )
    sys.exit(code)


def _names(queues: str | None) -> list[str] | None:
    if queues is None:
        return None
    names = [name.strip() for name in queues.split(",") if name.strip()]
    if not names:
        raise click.UsageError(
            "--queues is empty. Name at least one queue, such as --queues video,thumbnails"
        )
    return names
