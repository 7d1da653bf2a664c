"""Identities: who calls the service, what the caller may do, and whose data the caller sees.

1. Every operation needs one scope, or none if it is public. Scopes are independent: none of them includes another.
2. A caller sees the jobs, events, uploads and webhooks of one tenant. Another tenant's look as if they did not exist.
3. A service without authentication has one caller, `ANYONE`: the tenant `-` with all scopes.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from bide.core.jobs.record import Job

Scope = Literal["read", "submit", "control", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
DEFAULT_SCOPES: tuple[Scope, ...] = ("read", "submit", "control")
DEFAULT_TENANT = "-"
TENANT = re.compile(r"-|[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class CredentialType(Protocol):
    """One way to prove an identity, such as API keys."""

    async def load(self) -> None:
        """Read the identities from the store, because they may have changed."""
        ...

    async def verify(self, token: str) -> Principal | None:
        """Return the principal of a bearer token; None if the token is of another type. Raises Unauthenticated."""
        ...

    def is_valid(self, principal: Principal) -> bool:
        """Whether a principal that `verify` has returned is still valid, apart from its expiry."""
        ...

    def use(self, principal: Principal) -> None:
        """A request uses the principal. This is called for every request, so it must be cheap."""
        ...

    async def save(self) -> None:
        """Store what `use` has noted, if it is time to. This is called once per second."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Principal:
    """A caller whose credential is valid. Two requests with the same credential may share the object; principals are
    compared by identity.
    """

    tenant: str
    scopes: frozenset[str]
    subject: str  # who it is, for the audit log: `key:ID`, or `-` for anyone
    expires_at: float = math.inf  # by the clock of the store
    credential: CredentialType | None = None  # None: valid without a credential
    proof: str = ""  # for `CredentialType.is_valid`; never a secret
    # A restriction to some jobs: those with one of these ids, or with all of these labels. None: all jobs of the tenant.
    jobs: frozenset[str] | None = None
    labels: frozenset[tuple[str, str]] | None = None

    def allows(self, scope: Scope) -> bool:
        return scope in self.scopes

    @property
    def is_restricted(self) -> bool:
        """Whether the caller sees only some jobs of the tenant."""
        return self.jobs is not None or self.labels is not None

    def sees_removed(self, job_id: str, tenant: str) -> bool:
        """Whether a job that was removed, whose labels nobody knows, has existed for this caller."""
        return tenant == self.tenant and (
            not self.is_restricted or (self.jobs is not None and job_id in self.jobs)
        )

    def sees(self, job: Job) -> bool:
        """Whether the job exists for this caller."""
        if job.tenant != self.tenant:
            return False
        if self.jobs is not None and job.id not in self.jobs:
            return False
        return self.labels is None or self.labels <= job.labels.items()


ANYONE = Principal(DEFAULT_TENANT, frozenset(SCOPES), "-")
# The caller of a public operation who has shown no valid credential.
NOBODY = Principal(DEFAULT_TENANT, frozenset(), "-")
