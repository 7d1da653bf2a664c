"""The composition root: `assemble` makes a service from an app and its configuration, `assemble_worker` the part of it that
runs jobs, for a worker of the Celery engine. `database_of` and `blobs_of` make the parts that `bide migrate` and
`bide doctor` use without a service.

No other module of the service chooses implementations. Two programs that are no service make their own blobs: a handler
child, from the location in its settings, and `run_inline`, in a folder.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from bide.core.errors import SetupError
from bide.core.jobs.record import Job
from bide.core.wire.http import Event, job_id
from bide.server.admission import Admission
from bide.server.blobs import Blobs
from bide.server.blobs.factory import make_blobs
from bide.server.blobs.orphans import Orphans
from bide.server.bulk import BulkActions, BulkRunner
from bide.server.config import Config, StoreConfig
from bide.server.engine import Engine
from bide.server.engine.embedded import EmbeddedEngine
from bide.server.estimates import Estimates
from bide.server.events.broadcaster import Broadcaster
from bide.server.http import Components
from bide.server.http.app import HttpApp
from bide.server.identities import CredentialType
from bide.server.identities.audit import AuditLog
from bide.server.identities.authenticator import Authenticator
from bide.server.identities.keys import ApiKeys, KeyCredentials
from bide.server.identities.oidc import OidcCredentials
from bide.server.identities.recorded_keys import RecordedKeys
from bide.server.identities.sessions import SessionCredentials
from bide.server.identities.sign_in import OidcSignIn
from bide.server.identities.tokens import TokenCredentials
from bide.server.intake import Intake
from bide.server.job_tracer import JobTracer
from bide.server.limits import ServiceLimits
from bide.server.notifier import Notifier
from bide.server.progress.publisher import ProgressPublisher
from bide.server.registry import BULK, Registry
from bide.server.runner.runner import children_of
from bide.server.store import SharedDatabase, SharedStore, Store, StoreDatabase
from bide.server.upkeep import CleanUp, Upkeep
from bide.server.uploads.upload_service import UploadService
from bide.server.waiting_jobs import WaitingJobs
from bide.server.webhooks.addresses import Addresses
from bide.server.webhooks.publisher import Publisher
from bide.server.webhooks.sender import WebhookSender
from bide.server.webhooks.service import WebhookService
from bide.server.worker import app_location
from bide.server.worker.app_location import AppLocation
from bide.server.worker.supervisor import Pool
from bide.service.backends import (
    check_engine,
    make_celery_engine,
    make_database,
    make_progress_store,
    make_shared_database,
    make_shared_store,
    make_store,
)
from bide.service.data_folder import DataFolder, FolderInUse

log = logging.getLogger("bide")
AUTH_MODES = ("none", "keys")


def assemble(
    registry: Registry,
    location: AppLocation,
    config: Config,
    *,
    store: Store | None = None,
    engine: Engine | None = None,
) -> Service:
    """Make a service. `store` and `engine` replace those that the configuration names."""
    registry.check()
    check_engine(config)
    folder = DataFolder(config.data)
    if store is None:
        store = make_store(config.store, folder)
    store.share_by(config.limits.weights, config.limits.running)
    blobs = blobs_of(config)
    tracer = _tracer(config)
    notify = Notifier()
    estimates = Estimates()
    events = Broadcaster(store, shared=config.store.url is not None)

    def on_progress(job_id: str) -> None:
        notify.notify(job_id)
        events.progress(job_id)

    progress = events.progress_source = _progress(
        config,
        on_progress,
        lambda job_id: notify.has_subscribers(job_id) or events.has_subscribers(job_id),
    )
    embedded = config.engine.name == "embedded"
    if engine is None:
        engine = (
            _embedded(registry, location, config, folder, store, progress, tracer)
            if embedded
            else make_celery_engine(registry, store, config)
        )
    # Workers of other processes must find the job in the store, so they get a hint only after the commit.
    hint = engine.hint if embedded else None
    is_served = None if config.engine.allow_unknown_queues else engine.confirm_served
    webhooks = _webhooks(config, store)
    webhooks.publisher.tracer = tracer
    limits = ServiceLimits(config.limits, store, shared=config.store.url is not None)
    admission = Admission(config.admission, store, registry, estimates, engine, config.limits.weights)
    intake = Intake(
        registry,
        store,
        hint,
        is_served,
        webhooks,
        limits if limits.on else None,
        admission if admission.on else None,
        tracer,
    )
    orphans = Orphans(blobs, store.identity, config.upkeep.quarantine)
    uploads = UploadService(
        store,
        blobs,
        intake,
        registry,
        orphans,
        folder.uploads,
        config.uploads,
    )
    audit = AuditLog(store, config.auth.audit)
    clean_up = CleanUp(
        *(store, blobs, orphans, folder.work, config.upkeep),
        (*uploads.upkeep_tasks(), audit.remove_old),
    )
    waiting_jobs = WaitingJobs(store, registry)
    bulk = BulkRunner(
        *(registry, store, blobs, progress, config.worker.lease, lambda: folder.owner),
        limits if limits.on else None,
    )

    def hint_all(queue: str, kind: str) -> None:
        bulk.hint() if kind == BULK else engine.hint(queue, kind)

    def holds(job: Job) -> bool:
        return engine.holds(job) or bulk.holds(job)

    upkeep = Upkeep(
        store,
        registry,
        estimates,
        config,
        hint_all,
        clean_up,
        holds=holds,
        progress=progress,
    )
    upkeep.tracer = tracer
    key_credentials = KeyCredentials(store)
    issuer = config.auth.oidc
    sessions = SessionCredentials(
        store, key_credentials, config.auth.session, None if issuer is None else issuer.issuer
    )
    tokens = TokenCredentials(store, key_credentials, sessions)
    # The store replaces its `now` when it is opened.
    oidc = None if issuer is None else OidcCredentials(issuer, lambda: store.now())  # noqa: PLW0108
    authenticator = _authenticator(config, store, [tokens, key_credentials, sessions], oidc)
    sign_in = None
    if authenticator is not None:
        sessions.on_change = authenticator.refresh
    if issuer is not None and issuer.client_id and oidc is not None:
        sign_in = OidcSignIn(issuer, oidc)
    keys = ApiKeys(store, None if authenticator is None else authenticator.refresh)
    components = Components(
        config=config,
        registry=registry,
        store=store,
        blobs=blobs,
        work=engine,
        fleet=engine,
        intake=intake,
        notify=notify,
        events=events,
        estimates=estimates,
        progress=progress,
        uploads=uploads,
        webhooks=webhooks,
        bulk=BulkActions(registry, store, intake, bulk.hint),
        keys=keys,
        authenticator=authenticator,
        audit=audit,
        sessions=sessions,
        sign_in=sign_in,
        tokens=tokens,
        limits=limits,
        admission=admission,
        waiting_jobs=waiting_jobs,
    )
    return Service(
        config=config,
        folder=folder,
        store=store,
        blobs=blobs,
        notify=notify,
        events=events,
        estimates=estimates,
        progress=progress,
        engine=engine,
        intake=intake,
        uploads=uploads,
        webhooks=webhooks,
        upkeep=upkeep,
        bulk=bulk,
        admission=admission,
        limits=limits,
        waiting_jobs=waiting_jobs,
        hint=hint_all,
        keys=keys,
        authenticator=authenticator,
        audit=audit,
        tracer=tracer,
        http=HttpApp(components),
    )


class WorkerParts(NamedTuple):
    """The components of a worker of the Celery engine."""

    store: SharedStore
    progress: ProgressPublisher
    engine: EmbeddedEngine
    tracer: JobTracer | None


def assemble_worker(
    registry: Registry, location: AppLocation, config: Config, folder: DataFolder
) -> WorkerParts:
    """Make a worker that uses `folder`, below the data folder that it shares with other workers."""
    store = make_shared_store(config.store)
    store.share_by(config.limits.weights, config.limits.running)
    progress = _progress(config, lambda job_id: None, lambda job_id: False)
    tracer = _tracer(config)
    engine = _embedded(registry, location, config, folder, store, progress, tracer)
    return WorkerParts(store, progress, engine, tracer)


def _tracer(config: Config) -> JobTracer | None:
    return None if config.traces.endpoint is None else JobTracer(config.traces)


def database_of(config: Config) -> StoreDatabase:
    return make_database(config.store, DataFolder(config.data))


@asynccontextmanager
async def open_keys(config: Config) -> AsyncIterator[ApiKeys]:
    """The API keys in the store, without a service. Raises SetupError if a service uses the SQLite file."""
    folder = DataFolder(config.data)
    if config.store.url is None:
        try:
            folder.lock()
        except FolderInUse as error:
            raise SetupError(
                f"{error} While the service runs, manage keys over HTTP: `bide keys … --url URL --key-file FILE`, with "
                "a key that has the scope `admin`."
            ) from None
    try:
        store = make_store(config.store, folder)
        await store.open(lambda events: None)
        try:
            audit = AuditLog(store, config.auth.audit)
            try:
                yield RecordedKeys(store, audit)
            finally:
                await audit.write()
        finally:
            await store.close()
    finally:
        folder.unlock()


def shared_database_of(config: StoreConfig) -> SharedDatabase:
    return make_shared_database(config)


def blobs_of(config: Config) -> Blobs:
    return make_blobs(_blobs_url(config))


def _blobs_url(config: Config) -> str:
    return config.blobs.url or str(DataFolder(config.data).blobs)


def _progress(
    config: Config, notify: Callable[[str], None], has_subscribers: Callable[[str], bool]
) -> ProgressPublisher:
    store = make_progress_store(config.progress, config.store, config.engine.broker)
    return ProgressPublisher(store, notify, has_subscribers)


def _webhooks(config: Config, store: Store) -> WebhookService:
    settings = config.webhooks
    addresses = Addresses(allow_private=settings.allow_private)
    # The store replaces its `now` when it is opened.
    sender = WebhookSender(addresses, settings.timeout, lambda: store.now())  # noqa: PLW0108
    publisher = Publisher(store, sender, shared=config.store.url is not None, lease=settings.lease)
    return WebhookService(store, addresses, sender, publisher, lambda now: job_id(now, os.urandom(16)))


def _authenticator(
    config: Config, store: Store, types: list[CredentialType], oidc: OidcCredentials | None
) -> Authenticator | None:
    """None: the service has no authentication."""
    if config.auth.mode not in AUTH_MODES:
        raise SetupError(f"unknown authentication {config.auth.mode!r}: use {' or '.join(AUTH_MODES)}")
    if not config.auth.enabled:
        return None
    if oidc is None:
        return Authenticator(store, types)
    authenticator = Authenticator(store, [*types, oidc])
    oidc.on_change = authenticator.forget
    return authenticator


def _embedded(
    registry: Registry,
    location: AppLocation,
    config: Config,
    folder: DataFolder,
    store: Store,
    progress: ProgressPublisher,
    tracer: JobTracer | None,
) -> EmbeddedEngine:
    sync, is_async = children_of(registry, config.worker)
    pool = Pool(
        location,
        folder.path,
        blobs=_blobs_url(config),
        sync=sync,
        is_async=is_async,
        beat=min(config.worker.lease / 6, 5.0),
    )
    # The runner itself claims the jobs that its handlers spawn.
    limits = ServiceLimits(config.limits, store)
    spawned = Intake(registry, store, limits=limits if limits.on else None)
    return EmbeddedEngine(
        registry,
        store,
        config.worker,
        folder,
        pool,
        prepare_spawn=spawned.prepare_spawn,
        progress=progress,
        tracer=tracer,
    )


@dataclass(eq=False, kw_only=True)
class Service:
    """The components of a service that start and stop together."""

    config: Config
    folder: DataFolder
    store: Store
    blobs: Blobs
    notify: Notifier
    events: Broadcaster
    estimates: Estimates
    progress: ProgressPublisher
    engine: Engine
    intake: Intake
    uploads: UploadService
    webhooks: WebhookService
    upkeep: Upkeep
    bulk: BulkRunner
    admission: Admission
    limits: ServiceLimits
    waiting_jobs: WaitingJobs
    keys: ApiKeys
    authenticator: Authenticator | None
    audit: AuditLog
    tracer: JobTracer | None
    hint: Callable[[str, str], None]  # of work in a queue, for the engine or the bulk runner
    http: HttpApp

    async def start(self) -> None:
        app_location.reject_in_child("a service")
        self.loop, self.thread = asyncio.get_running_loop(), threading.get_ident()
        self.folder.lock()
        try:
            await self.store.open(self.on_events, self.hint, self._reset, self.events.on_log)
            try:
                await self._begin()
            except BaseException:
                await self.progress.close()
                await self.store.close()
                raise
        except BaseException:
            self.folder.unlock()
            raise

    async def _begin(self) -> None:
        self.uploads.open(self.folder.replica)
        self.estimates.load(await self.store.durations())
        # The folder is locked, so claims under its name belong to a process that has ended.
        lost = await self.store.void(f"{self.folder.replica}:")
        if lost:
            log.info("%d jobs were running when the previous service ended; they run again", lost)
        await self.webhooks.publisher.start(self.folder.replica)
        await self.upkeep.recover()
        await self.progress.open()
        await self.engine.start()
        await self.bulk.start()
        await self.upkeep.start()
        await self.waiting_jobs.start()
        await self.admission.start()
        await self.limits.processes.start()
        if self.authenticator is not None:
            self.audit.start()
            await self.authenticator.start()
            if self.config.auth.oidc is None and not await self.keys.find_all():
                log.warning(
                    "there is no API key yet, so requests get 401: create one with `bide keys create --scope admin` and the "
                    "--data or --store of this service; with --data, stop the service first"
                )

    async def stop(self, drain: float | None = None) -> None:
        """Call `drain` and `close`. If there is a listener, stop it in between, because open requests need the store."""
        await self.drain(drain)
        await self.close()

    async def drain(self, seconds: float | None = None) -> None:
        """Refuse new jobs, wait for running ones, return the rest to the queue, and end long polls. Other requests are
        still answered, and a running job may still spawn others.
        """
        self.http.health.stopping = True
        self.intake.stop()
        await self.bulk.stop()
        await self.engine.stop(self.config.worker.drain if seconds is None else seconds)
        self.notify.close()
        self.events.close()

    async def close(self) -> None:
        """Close the store and the other components. Call it after the last request."""
        if self.authenticator is not None:
            await self.authenticator.stop()
            await self.audit.stop()
        await self.admission.stop()
        await self.limits.processes.stop()
        await self.waiting_jobs.stop()
        await self.webhooks.publisher.stop()
        await self.upkeep.stop()
        await self.progress.close()
        await self.uploads.close()
        await self.blobs.close()
        await self.store.close()
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)
        self.folder.unlock()

    def on_events(self, events: Sequence[Event]) -> None:
        """The store calls this after each commit."""
        self.engine.on_events(events)
        self.bulk.on_events(events)
        self.notify.on_events(events)
        self.http.metrics.on_events(events)  # before the estimates learn from the same jobs
        self.estimates.on_events(events)
        self.upkeep.on_events(events)
        self.waiting_jobs.on_events(events)
        self.webhooks.publisher.on_events(events)

    def _reset(self) -> None:
        """Clear all caches after the store has lost events that were already reported."""
        self.progress.forget()
        self.http.forget()
        self.engine.reset()
        self.notify.notify_all()
