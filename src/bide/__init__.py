"""Long-running jobs over HTTP, at both ends: a service that runs them, a client that waits for them.

Names are loaded when they are first used, so that the client needs no server package and `import bide` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bide.client.blocking import Client
    from bide.client.client import AsyncClient
    from bide.client.job import JobHandle
    from bide.client.polling.kinds import pages
    from bide.core.errors import BideError, JobError, JobFailed, WaitTimeout
    from bide.server.registry import Accepts, File
    from bide.server.worker.context import Context, Partial
    from bide.service.app import App

_HOMES = {
    "Accepts": "bide.server.registry",
    "App": "bide.service.app",
    "AsyncClient": "bide.client.client",
    "BideError": "bide.core.errors",
    "Client": "bide.client.blocking",
    "Context": "bide.server.worker.context",
    "File": "bide.server.registry",
    "JobError": "bide.core.errors",
    "JobFailed": "bide.core.errors",
    "JobHandle": "bide.client.job",
    "Partial": "bide.server.worker.context",
    "WaitTimeout": "bide.core.errors",
    "pages": "bide.client.polling.kinds",
}

__all__ = [
    "Accepts",
    "App",
    "AsyncClient",
    "BideError",
    "Client",
    "Context",
    "File",
    "JobError",
    "JobFailed",
    "JobHandle",
    "Partial",
    "WaitTimeout",
    "pages",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bide' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
