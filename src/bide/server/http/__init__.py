"""The HTTP interface: reads requests, calls the components of the service, renders responses. It makes no decisions about
jobs.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Protocol

from bide.core.jobs.lease import Lease
from bide.server.admission import Admission
from bide.server.blobs import Blobs
from bide.server.bulk import BulkActions
from bide.server.config import Config
from bide.server.engine import Fleet, WorkListener
from bide.server.estimates import Estimates
from bide.server.events.broadcaster import Broadcaster
from bide.server.identities.audit import AuditLog
from bide.server.identities.authenticator import Authenticator
from bide.server.identities.keys import ApiKeys
from bide.server.identities.sessions import SessionCredentials
from bide.server.identities.sign_in import OidcSignIn
from bide.server.identities.tokens import TokenCredentials
from bide.server.intake import Intake
from bide.server.limits import ServiceLimits
from bide.server.notifier import Notifier
from bide.server.progress.publisher import ProgressPublisher
from bide.server.registry import Registry
from bide.server.store import EventLog, JobStore, StatisticsStore
from bide.server.uploads.upload_service import UploadService
from bide.server.waiting_jobs import WaitingJobs
from bide.server.webhooks.service import WebhookService


class HttpStore(JobStore, StatisticsStore, EventLog, Protocol):
    """What the handlers need of the store: jobs, their events and leases, and the check of `/readyz`."""

    async def leases(self) -> list[Lease]:
        """As `UpkeepStore.leases`."""
        ...

    def check_writable(self) -> Awaitable[None]:
        """As `UpkeepStore.check_writable`."""
        ...


@dataclass(frozen=True)
class Components:
    """The components of a service that the handlers use."""

    config: Config
    registry: Registry
    store: HttpStore
    blobs: Blobs
    work: WorkListener
    fleet: Fleet
    intake: Intake
    notify: Notifier
    events: Broadcaster
    estimates: Estimates
    progress: ProgressPublisher
    uploads: UploadService
    webhooks: WebhookService
    bulk: BulkActions
    keys: ApiKeys
    authenticator: Authenticator | None  # None: the service has no authentication
    audit: AuditLog
    sessions: SessionCredentials
    sign_in: OidcSignIn | None  # None: users do not sign in at an issuer
    tokens: TokenCredentials
    limits: ServiceLimits
    admission: Admission
    waiting_jobs: WaitingJobs
    # The cache of status responses: rendered bodies by job id, ETag and base path.
    status_bodies: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
