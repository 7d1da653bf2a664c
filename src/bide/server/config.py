"""All settings of the server, one frozen dataclass per section."""

from __future__ import annotations

import ipaddress
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from bide.core.jobs.fair import RunningLimits, Weights
from bide.core.jobs.lease import LEASE
from bide.core.pacing.budget import Limit, read_limit


@dataclass(frozen=True)
class WorkerConfig:
    """The handler children."""

    workers: int | None = None  # None: one per core, and at least one per queue
    lease: float = LEASE
    grace: float = 3.0  # seconds from a stop request to SIGTERM, and from SIGTERM to SIGKILL
    drain: float = 30.0  # seconds that a shutdown waits for running jobs before it hands them back
    async_concurrency: int = 100  # concurrent async jobs per queue
    output_limit: int = 64 * 1024**2  # bytes of a job's output stream (`ctx.emit`)
    # None: all queues of the app, with at least one child for each.
    queues: tuple[str, ...] | None = None

    def children(self, queues: int) -> int:
        if self.queues is not None:
            return max(self.workers if self.workers is not None else os.cpu_count() or 1, 1)
        return max(self.workers if self.workers is not None else os.cpu_count() or 1, queues, 1)


@dataclass(frozen=True)
class StoreConfig:
    """The job store."""

    url: str | None = None  # postgresql://…; None: SQLite in the data folder
    connections: int = 8  # to PostgreSQL for reads; writes, notifications and progress use one more each


@dataclass(frozen=True)
class EngineConfig:
    """How jobs get to workers."""

    name: str = "embedded"  # children of the service; or "celery": workers on any machine
    broker: str | None = field(default=None, repr=False)  # redis://… or amqp://…, for Celery
    allow_unknown_queues: bool = False  # accept jobs for queues that neither the app nor a worker knows


@dataclass(frozen=True)
class BlobsConfig:
    """The storage of files."""

    url: str | None = None  # s3://…; None: the data folder


def without_password(netloc: str) -> str:
    """The part of a URL with user, host and port, without the password, for messages."""
    user, _, host = netloc.rpartition("@")
    name = user.partition(":")[0]
    return f"{name}@{host}" if name else host


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a service that listens on this address."""
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
    trusted_hosts: tuple[str, ...] = ()  # allowed Host headers besides those of loopback
    root_path: str = ""  # a path that a proxy removes from URLs, such as /bide
    trusted_proxies: tuple[str, ...] = ()  # addresses whose X-Forwarded-Prefix, -Proto and -Host count
    # Whose pages may use this service in a browser, such as https://example.org.
    origins: tuple[str, ...] = ()
    ui: str = "on"  # the dashboard at /: "on", "read-only" (without actions) or "off"
    max_body: int = 1024 * 1024
    max_batch: int = 1000
    max_head: int = 32 * 1024  # bytes of request line and headers
    max_connections: int = 4096  # fewer if the process may not open as many files
    max_unanswered: int = 64 * 1024 * 1024  # bytes of all requests that have no response yet
    request_timeout: float = 30.0  # seconds to receive a request, and to send a response


@dataclass(frozen=True)
class UploadConfig:
    max_size: int = 64 * 1024**3  # bytes of one upload
    quota: int | None = None  # bytes of all uploads; None: the free space of the disk
    # Seconds after the last byte; an upload that a job uses stays with the job.
    lifetime: float = 86400.0
    # Seconds after the end of the last job that uses an upload; None: until that job is removed.
    inputs: float | None = None
    signed: float = 3600.0  # seconds that a signed URL is valid
    min_rate: float = 1024.0  # bytes per second; the service closes slower uploads after a while


@dataclass(frozen=True)
class EventsConfig:
    buffer: int = 1000  # events that wait for a slow listener; with more, the service disconnects it


@dataclass(frozen=True)
class WebhookConfig:
    allow_private: bool = False  # deliver also to loopback, private and link-local addresses
    timeout: float = 15.0  # seconds for a response
    lease: float = 10.0  # seconds without a renewal after which another replica delivers


@dataclass(frozen=True)
class OidcConfig:
    """The issuer whose JSON Web Tokens are credentials."""

    issuer: str  # its URL, as in the claim `iss`
    audience: str  # the name of this service in the claim `aud`
    jwks: Path | None = None  # a file with the keys of the issuer; None: the issuer's URL names them
    tenant_claim: str = "tenant"
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    scope_claim: str = "scope"
    # Users sign in to the dashboard at the issuer, with the authorization code flow; None: they do not.
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)  # None: the issuer does not need one
    request_scopes: tuple[str, ...] = ("openid",)  # what the service asks the issuer for


@dataclass(frozen=True)
class AuthConfig:
    """Who may use the service."""

    # "none": everyone who reaches it, as the tenant "-"; or "keys": callers with an API key.
    mode: str = "none"

    # Seconds for which the audit log keeps the mutating calls of a service with authentication; 0: there is no audit log.
    audit: float = 90 * 86400.0
    oidc: OidcConfig | None = None  # also accept tokens of an issuer, besides API keys
    # Seconds until the session of a browser ends. None: 7 days after a sign-in with a key, 12 hours with an issuer.
    session: float | None = None

    @property
    def enabled(self) -> bool:
        return self.mode != "none" or self.oidc is not None


@dataclass(frozen=True)
class UpkeepConfig:
    interval: float = 1.0
    tombstones: float = 30 * 86400.0  # seconds for which the URL of a purged job returns 410
    idempotency: float = 86400.0  # seconds for which a key is kept after the end of its job
    orphan_age: float = 3600.0  # seconds after which a file without a job is moved to quarantine
    quarantine: float = 7 * 86400.0  # seconds after which a file in quarantine is removed
    sweep: float = 600.0  # seconds between two searches, each of which lists the whole bucket


@dataclass(frozen=True)
class KindLimits:
    """The limits of the jobs of one kind, of one tenant; None: no limit."""

    submit: Limit | None = None  # submissions per time
    waiting: int | None = None  # jobs that wait, or are scheduled
    running: int | None = None  # jobs that run; more of them wait


@dataclass(frozen=True)
class TenantLimits:
    """The limits of one tenant; None: no limit."""

    submit: Limit | None = None  # submissions per time
    waiting: int | None = None  # jobs that wait, or are scheduled
    running: int | None = None  # jobs that run; more of them wait
    bytes: int | None = None  # of uploads, results and output files
    streams: int | None = None  # open event streams and WebSockets
    uploads: int | None = None  # uploads that are not complete
    weight: float = 1.0  # the share of the workers, relative to the other tenants
    kinds: Mapping[str, KindLimits] = field(default_factory=dict)  # besides those of the tenant


@dataclass(frozen=True)
class LimitsConfig:
    """What each tenant may use. `of` and `of_kind` look it up."""

    default: TenantLimits = TenantLimits()  # of a tenant that `tenants` does not name
    tenants: Mapping[str, TenantLimits] = field(default_factory=dict)

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> LimitsConfig:
        """Read the table [limits] of bide.toml. A tenant has the defaults that it does not set itself. ValueError says what
        is wrong.
        """
        rest = dict(table)
        named = _tables(rest.pop("tenants", {}), "limits.tenants")
        default = _read_tenant(TenantLimits(), rest, "limits")
        tenants = {
            name: _read_tenant(default, settings, f"limits.tenants.{name}")
            for name, settings in named.items()
        }
        return cls(default, tenants)

    def of(self, tenant: str) -> TenantLimits:
        return self.tenants.get(tenant, self.default)

    def of_kind(self, tenant: str, kind: str) -> KindLimits:
        """The limits of one kind, which apply in addition to those of the tenant."""
        return self.of(tenant).kinds.get(kind, NO_LIMITS)

    @property
    def running(self) -> RunningLimits | None:
        """How many jobs of a tenant and of a kind may run; None: there is no such limit."""
        tenants = (self.default, *self.tenants.values())
        bounds = [limits.running for limits in tenants]
        bounds += [kind.running for limits in tenants for kind in limits.kinds.values()]
        if all(bound is None for bound in bounds):
            return None
        return lambda tenant, kind: (self.of(tenant).running, self.of_kind(tenant, kind).running)

    @property
    def has_allowances(self) -> bool:
        """Whether a tenant has a limit of streams, uploads or bytes, which replicas share."""
        tenants = (self.default, *self.tenants.values())
        return any(amount is not None for of in tenants for amount in (of.streams, of.uploads, of.bytes))

    @property
    def weights(self) -> Weights:
        """The shares of the tenants."""
        return Weights(
            self.default.weight, {name: limits.weight for name, limits in self.tenants.items()}
        )


NO_LIMITS = KindLimits()
UNLIMITED = "unlimited"  # removes a default for a tenant
_Limits = TypeVar("_Limits", KindLimits, TenantLimits)


def _read_tenant(default: TenantLimits, table: Mapping[str, Any], place: str) -> TenantLimits:
    rest = dict(table)
    kinds = dict(default.kinds)
    for name, settings in _tables(rest.pop("kinds", {}), f"{place}.kinds").items():
        kinds[name] = _read_settings(kinds.get(name, NO_LIMITS), settings, f"{place}.kinds.{name}")
    return replace(_read_settings(default, rest, place), kinds=kinds)


def _read_settings(default: _Limits, table: Mapping[str, Any], place: str) -> _Limits:
    known = [f.name for f in fields(default) if f.name != "kinds"]
    read: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            raise ValueError(f"[{place}]: unknown setting {name!r}. Known settings: {', '.join(known)}")
        try:
            read[name] = _read_setting(name, value)
        except ValueError as error:
            raise ValueError(f"[{place}] {name}: {error}") from None
    return replace(default, **read)


def _read_setting(name: str, value: Any) -> Limit | int | float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name == "weight":
        if not number or not 0 < value < math.inf:
            raise ValueError(f"{value!r} is not a weight. Use a number above 0")
        return float(value)
    if value == UNLIMITED:
        return None
    if name == "submit":
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a limit. Use 60/1m, or 60/1m:10 with a burst")
        limit = read_limit(value)
        if limit.requests < 1:
            raise ValueError(f"{value!r} allows less than one submission. Use a longer time: 1/1h")
        return limit
    if not isinstance(value, int) or not number or value < 0:
        raise ValueError(f"{value!r} is not a limit. Use a whole number, or {UNLIMITED!r}")
    return value


def _tables(value: Any, place: str) -> dict[str, dict[str, Any]]:
    if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
        raise ValueError(f"[{place}] has tables only: write [{place}.NAME]")
    return value


@dataclass(frozen=True)
class QueueAdmission:
    """When the service refuses new jobs of a queue; None: never."""

    wait: float | None = None  # seconds: the longest predicted wait
    backlog: int | None = None  # the largest number of waiting jobs
    # Refuse a job that cannot end before its deadline, as far as that can be predicted.
    deadlines: bool = False


@dataclass(frozen=True)
class AdmissionConfig:
    """Back-pressure. Without a bound, nothing is refused and nothing is measured."""

    default: QueueAdmission = QueueAdmission()  # of a queue that `queues` does not name
    queues: Mapping[str, QueueAdmission] = field(default_factory=dict)
    # Seconds of delay after which lists and statistics are refused; None: never.
    lag: float | None = None

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> AdmissionConfig:
        """Read the table [admission] of bide.toml. ValueError says what is wrong."""
        rest = dict(table)
        named = _tables(rest.pop("queues", {}), "admission.queues")
        lag = _read_bound("admission", "lag", rest.pop("lag")) if "lag" in rest else None
        default = _read_admission(QueueAdmission(), rest, "admission")
        queues = {
            name: _read_admission(default, settings, f"admission.queues.{name}")
            for name, settings in named.items()
        }
        return cls(default, queues, lag)

    def of(self, queue: str) -> QueueAdmission:
        return self.queues.get(queue, self.default)


def _read_admission(default: QueueAdmission, table: Mapping[str, Any], place: str) -> QueueAdmission:
    known = [f.name for f in fields(default)]
    read: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            raise ValueError(f"[{place}]: unknown setting {name!r}. Known settings: {', '.join(known)}")
        if name == "deadlines":
            if not isinstance(value, bool):
                raise ValueError(f"[{place}] deadlines: {value!r} is neither true nor false")
            read[name] = value
        elif value == UNLIMITED:
            read[name] = None
        else:
            read[name] = _read_bound(place, name, value)
    return replace(default, **read)


def _read_bound(place: str, name: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf or (name == "backlog" and not isinstance(value, int)):
        whole = "a whole number" if name == "backlog" else "a number of seconds"
        raise ValueError(f"[{place}] {name}: {value!r} is not a bound. Use {whole} above 0")
    return int(value) if name == "backlog" else float(value)


@dataclass(frozen=True)
class TraceConfig:
    """Which jobs are traced, and where their spans go."""

    endpoint: str | None = (
        None  # the URL of an OTLP/HTTP receiver, such as http://127.0.0.1:4318; None: no traces
    )
    # The part of the jobs that is traced, from 0 to 1, if their caller has not decided about its trace.
    sample: float = 1.0
    timeout: float = 5.0  # seconds of one export


@dataclass(frozen=True)
class Config:
    data: Path = Path("bide-data")
    store: StoreConfig = field(default_factory=StoreConfig)
    progress: str | None = None  # redis://… for progress that replicas share; None: in the job store
    engine: EngineConfig = field(default_factory=EngineConfig)
    blobs: BlobsConfig = field(default_factory=BlobsConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    uploads: UploadConfig = field(default_factory=UploadConfig)
    events: EventsConfig = field(default_factory=EventsConfig)
    webhooks: WebhookConfig = field(default_factory=WebhookConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    upkeep: UpkeepConfig = field(default_factory=UpkeepConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    admission: AdmissionConfig = field(default_factory=AdmissionConfig)
    traces: TraceConfig = field(default_factory=TraceConfig)
    # Seconds that a job may wait before bide_workers_needed in /metrics asks for more workers.
    target_wait: float = 30.0
