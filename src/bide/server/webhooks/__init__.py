"""Webhooks: what is stored of endpoints, deliveries and replays.

1. The event log is the outbox: an event is committed together with its job's change, and the publisher follows the log.
2. A delivery is stored before its first attempt, in one transaction with the position in the log. So each event that
   matches is delivered at least once, also if the service is killed in between.
3. The id of a message is the id of its event, so it is the same in each attempt and in each replay.
4. Secrets are in the records of webhooks only. Deliveries, events, lists and log lines have none.
"""

from __future__ import annotations

from typing import Literal

import msgspec

DEFAULT_EVENTS = ("terminal",)
OVERLAP = 86400.0  # seconds for which a rotated secret still signs
LEASE_NAME = "webhooks"  # of the record in `leases`
JOB_PREFIX = "job_"  # of the id of a webhook that belongs to one job
DeliveryStatus = Literal["pending", "delivered", "failed"]
Only = Literal["failed", "all"]


class SigningSecret(msgspec.Struct, frozen=True, omit_defaults=True):
    value: str
    until: float | None = None  # None: it is the current one


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True):
    """An endpoint and the events that it receives."""

    id: str
    tenant: str
    url: str
    events: tuple[str, ...] = DEFAULT_EVENTS
    kinds: tuple[str, ...] = ()  # empty: all kinds
    labels: dict[str, str] = {}  # that a job must have
    enabled: bool = True
    secrets: tuple[SigningSecret, ...] = ()  # the newest first
    created_at: float = 0.0
    updated_at: float = 0.0
    # The end of the log when it was created. Earlier events are delivered by a replay only.
    epoch: str = ""
    after: int = 0
    # Why the service has disabled it; None: the service has not.
    disabled_at: float | None = None
    reason: str | None = None
    failing_since: float | None = None  # None: the last attempt succeeded

    def signing(self, now: float) -> list[str]:
        """The secrets that sign a message now."""
        return valid(self.secrets, now)


class JobWebhook(msgspec.Struct, frozen=True, omit_defaults=True):
    """The endpoint of one job, as a submission names it."""

    url: str
    events: tuple[str, ...] = DEFAULT_EVENTS
    secret: str | None = None  # None: that of the tenant


class TenantSecrets(msgspec.Struct, frozen=True):
    """The secrets of the tenant's jobs whose webhook has none."""

    secrets: tuple[SigningSecret, ...]


class LogPosition(msgspec.Struct, frozen=True):
    """How far the publisher has followed the log of a tenant. `version` grows with each change of the tenant's webhooks."""

    epoch: str
    number: int
    at: float = 0.0  # of the last event that was read; finds the place in another epoch
    version: int = 0


class PublisherLease(msgspec.Struct, frozen=True):
    owner: str
    until: float


class DeliveryAttempt(msgspec.Struct, frozen=True, rename="camel"):
    """One request. It has an error, or the status of the response."""

    at: float
    seconds: float
    status: int | None = None
    error: str | None = None


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to one endpoint. Its record is named by webhook and id, in `pending_deliveries` until it has ended."""

    id: str
    webhook: str
    tenant: str
    message_id: str
    type: str
    job_id: str
    number: int  # of the event; 0: a test
    event_at: float
    created_at: float
    body: str
    status: DeliveryStatus = "pending"
    next_at: float = 0.0
    replay: str | None = None
    attempts: tuple[DeliveryAttempt, ...] = ()
    url: str = ""  # of the last attempt
    response: str = ""  # the beginning of the last one
    trace: tuple[str, str, int] | None = (
        None  # traceparent and tracestate of a traced job, and its fence
    )

    @property
    def name(self) -> str:
        return f"{self.webhook}/{self.id}"

    @property
    def name_by_job(self) -> str | None:
        """The name of its record in `job_deliveries`, the index by job. The job's own webhook and tests need none."""
        if self.job_id and not self.webhook.startswith(JOB_PREFIX):
            return f"{self.job_id}/{self.id}"
        return None


class Replay(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to deliver the events of a range of time again."""

    id: str
    webhook: str
    tenant: str
    begin: float
    end: float
    only: Only
    created_at: float

    @property
    def name(self) -> str:
        return f"{self.webhook}/{self.id}"


def valid(secrets: tuple[SigningSecret, ...], now: float) -> list[str]:
    return [secret.value for secret in secrets if secret.until is None or secret.until > now]


def rotated(secrets: tuple[SigningSecret, ...], new: str, now: float) -> tuple[SigningSecret, ...]:
    """The secrets after a rotation: the old one signs for OVERLAP seconds more."""
    if secrets and secrets[0].value == new:  # the transaction was repeated
        return secrets
    old = [SigningSecret(s.value, now + OVERLAP if s.until is None else s.until) for s in secrets]
    return (SigningSecret(new), *(s for s in old if s.until is not None and s.until > now))
