"""`bide migrate` updates the schema; `bide doctor` checks an installation."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from bide.cli import options
from bide.core.errors import BideError, SetupError

if TYPE_CHECKING:
    from bide.server.config import Config
    from bide.server.registry import Registry

DATA = options.data()
STORE = options.address("store", options.STORE_HELP)
BROKER = options.address("broker", "Also check this broker and the workers of the store.")
BLOBS = options.address(
    "blobs",
    "Where files are stored: s3://bucket/prefix?endpoint=…&region=…; by default in the data folder.",
)


@click.command()
@DATA
@STORE
@click.option(
    "--new-epoch",
    is_flag=True,
    help="Number the events from a new beginning, so that all listeners start with a snapshot.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def migrate(data: Path, store: str | None, new_epoch: bool, as_json: bool) -> None:
    """Update the schema of the store. `bide serve` does the same when it starts.

    Use --new-epoch after you have restored a backup of the whole data folder, or a dump of the database: event numbers
    may then name other events than before, and the service cannot detect it.

    \b
    Examples:
      bide migrate
      bide migrate --data /var/lib/bide
      bide migrate --store postgresql://bide@db.example.org/jobs
      bide migrate --new-epoch
    """
    from bide.service.assembly import database_of
    from bide.service.data_folder import DataFolder

    database, folder = database_of(_config(data, store)), DataFolder(data)
    if store is None:
        folder.lock()
    try:
        applied = database.migrate()
        epoch = database.begin_epoch() if new_epoch else None
    finally:
        folder.unlock()
    if as_json:
        document: dict[str, Any] = {"database": database.shown, "applied": applied}
        click.echo(json.dumps(document if epoch is None else {**document, "epoch": epoch}))
        return
    if applied:
        click.echo(f"{database.shown}: applied {', '.join(map(str, applied))}")
    elif epoch is None:
        click.echo(f"{database.shown}: nothing to do")
    if epoch is not None:
        click.echo(f"{database.shown}: the ids of events begin with {epoch} from now on")


def _config(data: Path, store: str | None, blobs: str | None = None) -> Config:
    from bide.server.config import BlobsConfig, Config, StoreConfig

    return Config(data=data, store=StoreConfig(store), blobs=BlobsConfig(blobs))


PROGRESS = options.address("progress", "Also check this Redis for the progress of running jobs.")
BUDGET = options.address(
    "budget", "Also check this Redis or PostgreSQL for a budget that machines share."
)
MOST_SKEW = 5.0  # seconds by which the clocks of two machines may differ


class Checkup(NamedTuple):
    """The result of one check."""

    check: str
    ok: bool
    detail: str


@click.command()
@click.argument("target", metavar="[MODULE:app]", required=False)
@DATA
@STORE
@BROKER
@BLOBS
@PROGRESS
@BUDGET
@click.option("--url", envvar="BIDE_URL", help="Also check a running service.")
@click.option(
    "--key", envvar="BIDE_KEY", help="The API key for --url, with the scope admin. Prefer --key-file."
)
@click.option(
    "--key-file",
    envvar="BIDE_KEY_FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the API key.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per check.")
def doctor(
    target: str | None,
    data: Path,
    store: str | None,
    broker: str | None,
    blobs: str | None,
    progress: str | None,
    budget: str | None,
    url: str | None,
    key: str | None,
    key_file: Path | None,
    as_json: bool,
) -> None:
    """Check this installation. The exit code is 1 if a check fails.

    \b
    Examples:
      bide doctor
      bide doctor tasks:app --data /var/lib/bide
      bide doctor --store postgresql://bide@db.example.org/jobs
      bide doctor tasks:app --store postgresql://… --broker redis://queue.example.org/0
      bide doctor workers:celery
      bide doctor --blobs 's3://files/bide?region=eu-central-1'
      bide doctor --url http://127.0.0.1:8642 --key-file operator.key
    """
    if key is None and key_file is not None:
        key = key_file.read_text(encoding="utf-8").strip()
    findings = [
        *_findings(target, data, store, broker, blobs, progress),
        *([] if budget is None else [_try("budget", lambda: _budget(budget))]),
        *([] if url is None else _service(url, key)),
    ]
    for finding in findings:
        if as_json:
            click.echo(json.dumps(finding._asdict()))
        else:
            mark = click.style("ok   ", fg="green") if finding.ok else click.style("wrong", fg="red")
            click.echo(f"{mark} {finding.check}: {finding.detail}")
    if not all(finding.ok for finding in findings):
        sys.exit(1)


def _findings(
    target: str | None,
    data: Path,
    store: str | None,
    broker: str | None,
    blobs: str | None,
    progress: str | None,
) -> Iterator[Checkup]:
    registry, celery = None, None
    if target is not None:
        with contextlib.suppress(BideError, OSError, ImportError):  # the check "app" reports it
            registry, celery = _load(target)
    if celery is not None:  # its configuration has the store and the broker
        config = _doctor_module().runtime_of(celery).config
        store, broker = store or config.store.url, broker or config.engine.broker
        blobs, progress = blobs or config.blobs.url, progress or config.progress
    yield _try("python", lambda: f"{sys.version.split()[0]} at {sys.executable}")
    yield _try("server packages", _packages)
    yield _try("data folder", lambda: _folder(data))
    checked = _config(data, store, blobs)
    yield _try("database", lambda: _database(checked))
    yield _try("files", lambda: _files(checked))
    if store is not None:
        yield _try("clock of the database", lambda: _database_clock(checked))
    if (in_redis := progress or broker) and in_redis.startswith(
        "redis"
    ):  # otherwise it is in the database
        yield _try("progress store", lambda: _progress(checked, in_redis))
    if target is not None:
        yield _try("app", lambda: _app(target))
    if celery is not None:
        yield _try("celery settings", lambda: str(_doctor_module().settings(celery)))
    if broker is not None:
        yield from _of_workers(registry, store, broker)
    yield _try("access", _access)


def _try(check: str, look: Callable[[], str]) -> Checkup:
    try:
        return Checkup(check, True, look())
    except (BideError, OSError, ImportError) as error:
        return Checkup(check, False, str(error))


def _packages() -> str:
    from importlib.metadata import PackageNotFoundError, version

    names = ("httptools", "pydantic", "prometheus-client")
    try:
        return ", ".join(f"{name} {version(name)}" for name in names)
    except PackageNotFoundError as error:
        raise SetupError.not_installed(f"{error.name} is not installed", "server") from None


def _folder(data: Path) -> str:
    from bide.service.data_folder import DataFolder

    DataFolder(data).reject_network()
    place = data if data.exists() else data.resolve().parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise SetupError(
            f"{place} is not writable. Give this user write access, or choose another folder with --data"
        )
    free = shutil.disk_usage(place).free
    if free < 100 * 1024 * 1024:
        raise SetupError(f"Only {free // 1024**2} MB are free in {place}. Free some space.")
    what = "" if data.exists() else " (created at the first start)"
    return f"{data.resolve()}{what}, {free // 1024**3} GB free"


def _database(config: Config) -> str:
    from bide.service.assembly import database_of

    return database_of(config).describe()


def _files(config: Config) -> str:
    """Check that files can be stored there, and that they belong to this database."""
    import asyncio

    from bide.server.blobs.orphans import foreign
    from bide.service.assembly import blobs_of, database_of

    own = None
    with contextlib.suppress(SetupError):  # the check "database" reports it
        own = database_of(config).identity()

    async def look() -> str:
        blobs = blobs_of(config)
        try:
            # The check "data folder" covers the default, which may not exist yet.
            said = f"in {blobs.shown}" if config.blobs.url is None else await blobs.check()
            wrong = None if own is None else foreign(blobs, await blobs.store_id(), own)
        finally:
            await blobs.close()
        if wrong is not None:
            raise SetupError(wrong)
        return said

    return asyncio.run(look())


def _progress(config: Config, url: str) -> str:
    """Check that progress can be stored and read there."""
    import asyncio
    import secrets

    from redis import RedisError

    from bide.core.jobs.record import Progress
    from bide.server.progress import LiveProgress
    from bide.service.backends import make_progress_store

    async def look() -> str:
        store = make_progress_store(url, config.store)
        attempt, live = (f"doctor-{secrets.token_hex(8)}", 0), LiveProgress(1, Progress(percent=50.0))
        try:
            await store.put({attempt: live})
            found = await store.get([attempt])
        except RedisError as error:
            raise SetupError(f"the Redis for progress does not answer: {error}") from None
        finally:
            await store.close()
        if found.get(attempt) != live:
            raise SetupError("what was stored cannot be read. Is this Redis a replica that only reads?")
        return "progress was stored and read"

    return asyncio.run(look())


def _budget(url: str) -> str:
    """Check that the backend of a shared budget answers, and its clock."""
    from bide.client.budgets.backend import BackendUnavailable, open_backend

    backend = open_backend(url)
    try:
        now = backend.read("doctor").now
    except BackendUnavailable as error:
        raise SetupError(f"{backend.shown} does not answer: {error}") from None
    finally:
        backend.close()
    return f"{backend.shown} answers; {_compare_clock(now)}"


def _database_clock(config: Config) -> str:
    from bide.service.assembly import shared_database_of

    return _compare_clock(shared_database_of(config.store).clock())


def _compare_clock(theirs: float) -> str:
    """Compare another machine's clock with this one's. Leases do not depend on them, but keys, tokens and deadlines do."""
    ahead = theirs - time.time()
    if abs(ahead) > MOST_SKEW:
        raise SetupError(
            f"its clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the clock of this machine, so "
            "deadlines, keys and tokens end at the wrong time. Synchronize both, for example with chrony"
        )
    return f"its clock differs by less than {MOST_SKEW:.0f} s"


def _doctor_module() -> ModuleType:
    from bide.service.backends import require_celery

    require_celery()
    from bide.service import doctor

    return doctor


def _load(target: str) -> tuple[Registry, Any]:
    """Return the app, and the Celery app if the target is one, else None."""
    from bide.server.worker.app_location import parse

    try:
        return parse(target).load(), None
    except SetupError:
        celery = _doctor_module().celery_app(target) if "celery" in sys.modules else None
        if celery is None:
            raise
        return _doctor_module().runtime_of(celery).registry, celery


def _of_workers(registry: Registry | None, store: str | None, broker: str) -> Iterator[Checkup]:
    yield _try("broker", lambda: str(_doctor_module().broker(broker, registry)))
    if store is None:
        why = "Workers need a store that several processes share. Give a database with --store postgresql://…"
        yield Checkup("workers", False, why)
    else:
        yield _try("workers", lambda: str(_doctor_module().workers(store, registry)))


def _app(target: str) -> str:
    registry, _ = _load(target)
    registry.check()
    if not registry.kinds:
        raise SetupError(f"{target} has no kinds. Decorate handlers with @app.job().")
    queues = {queue: [k.name for k in kinds] for queue, kinds in registry.queues.items()}
    unused = sorted(set(registry.concurrency) - set(queues))
    if unused:
        raise SetupError(
            f"queues={{…}} contains {', '.join(unused)}, but no kind uses it. Remove it, or set queue= of a kind."
        )
    return "; ".join(f"queue {queue}: {', '.join(kinds)}" for queue, kinds in sorted(queues.items()))


def _access() -> str:
    """Who may use a service that `bide serve` starts with the variables and the bide.toml of this folder."""
    from bide.cli.serve import check_exposure

    found = (click.get_current_context().find_root().default_map or {}).get("serve", {})
    host = os.environ.get("BIDE_HOST") or str(found.get("host", "127.0.0.1"))
    auth = os.environ.get("BIDE_AUTH") or str(found.get("auth", "none"))
    insecure = click.BOOL.convert(
        os.environ.get("BIDE_INSECURE") or found.get("insecure", False), None, None
    )
    oidc = os.environ.get("BIDE_OIDC") or found.get("oidc")
    return f"`bide serve` on {host}: {check_exposure(host, auth, insecure, oidc)}"


def _service(url: str, key: str | None) -> Iterator[Checkup]:
    import asyncio
    from urllib.parse import urlsplit

    from bide.cli.login import stored_key
    from bide.client.apis.answers import Answer
    from bide.client.apis.values import without_credentials
    from bide.client.http.addresses import check_address, split_credentials
    from bide.client.http.transport import Transport, time_limit
    from bide.server.config import is_loopback

    found: list[dict[str, str]] = []
    dates: list[str] = []
    shown = key or stored_key(url)

    async def get(path: str, headers: dict[str, str]) -> Answer:
        transport = Transport(service=True)
        try:
            return await transport.exchange("GET", path, headers, timeout=time_limit(0.0))
        finally:
            await transport.close()

    async def ask() -> str:
        check_address(url)
        address, headers = split_credentials(url.rstrip("/"))
        if shown:
            headers = {**headers, "Authorization": f"Bearer {shown}"}
        sent = await get(f"{address}/readyz", headers)
        answer = sent.raise_for_status().read(dict[str, Any])
        found.extend(answer.get("warnings", ()))
        dates.append(sent.headers.get("Date", ""))
        hidden = "" if "warnings" in answer else "; only a key with the scope admin shows its warnings"
        return f"{without_credentials(url)} is ready{hidden}"

    async def ask_as_nobody() -> str:
        address, _ = split_credentials(url.rstrip("/"))
        status = (await get(f"{address}/jobs?limit=1", {})).status
        if status in (401, 403):
            return "callers need a credential"
        if status == 200 and not is_loopback(urlsplit(address).hostname or ""):
            raise SetupError(
                f"{without_credentials(url)} lists jobs without a credential. Start the service with --auth keys, or let "
                "the proxy authenticate callers."
            )
        return f"a request without a credential gets {status}"

    yield _try("service", lambda: asyncio.run(ask()))
    if any(dates):
        yield _try(
            "clock of the service", lambda: _compare_clock(parsedate_to_datetime(dates[0]).timestamp())
        )
    yield _try("service access", lambda: asyncio.run(ask_as_nobody()))
    for warning in found:
        yield Checkup(f"service: {warning.get('code')}", False, str(warning.get("detail")))
