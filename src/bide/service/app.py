"""`App`: registers the handlers of a user, and runs them.

Each handler child imports this module, so it imports the settings and the service when they are used.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bide.core.clock import render_instant
from bide.core.errors import SetupError
from bide.core.wire.http import JobStatus, wire_job
from bide.server.registry import Registry

if TYPE_CHECKING:
    from bide.server.config import Config
    from bide.service.asgi import AsgiService
    from bide.service.assembly import Service
    from bide.service.run_inline import InlineJob


class App(Registry):
    """The kinds of jobs that a service runs.

    `queues` limits the number of concurrent jobs per queue; `max_jobs_per_child` and `memory_limit` (bytes) define when a
    handler child is replaced.
    """

    _asgi: AsgiService | None = None

    def asgi(self, *, data: str | Path | None = None, config: Config | None = None) -> AsgiService:
        """Return the service of this app as an ASGI application. Pass its `lifespan` to the application that mounts it."""
        from bide.server.config import Config
        from bide.server.worker.app_location import locate
        from bide.service.asgi import AsgiService
        from bide.service.assembly import assemble

        settings = config or Config()
        if data is not None:
            settings = replace(settings, data=Path(data))
        self._asgi = AsgiService(lambda: assemble(self, locate(self), settings))
        return self._asgi

    def celery(
        self,
        store: str,
        broker: str,
        *,
        data: str | Path | None = None,
        config: Config | None = None,
        **settings: Any,
    ) -> Any:
        """Return a Celery app whose workers run these jobs: `celery -A MODULE:NAME worker`. `settings` are for Celery."""
        from bide.server.config import Config, EngineConfig
        from bide.server.worker.app_location import locate
        from bide.service.backends import require_celery

        require_celery()
        from bide.service.worker import make_celery

        known = config or Config()
        known = replace(
            known,
            data=Path(data) if data is not None else known.data,
            store=replace(known.store, url=store),
            engine=EngineConfig("celery", broker),
        )
        return make_celery(self, lambda: locate(self), known, **settings)

    def submit(self, kind: str, input: dict[str, Any] | None = None, **options: Any) -> JobStatus:
        """Submit a job without HTTP; return when it is on disk. In async code use `await app.submit_async(…)`.

        Options: file (a path, a binary file object, or the object of an uploaded file in FastAPI, Flask or Django), files
        (by parameter), idempotency_key, dedupe, priority, queue, run_at, deadline (datetimes), labels, webhook, tenant
        (whose the job is; `-` by default).
        """
        service = self._service()
        if threading.get_ident() == service.thread:
            raise RuntimeError(
                "app.submit blocks, and this thread runs the event loop: use `await app.submit_async(…)`"
            )
        submitting = self.submit_async(kind, input, **options)
        return asyncio.run_coroutine_threadsafe(submitting, service.loop).result()

    async def submit_async(
        self, kind: str, input: dict[str, Any] | None = None, **options: Any
    ) -> JobStatus:
        from bide.server.identities import DEFAULT_TENANT, TENANT
        from bide.server.intake import Submission, make_webhook
        from bide.service.local_files import named_files, submit_with_files

        service = self._service()
        key = options.pop("idempotency_key", None)
        tenant = options.pop("tenant", DEFAULT_TENANT)
        if not TENANT.fullmatch(tenant):
            raise ValueError(f"tenant {tenant!r}: use letters, digits, '_', '.' and '-', at most 100")
        files = named_files(options.pop("file", None), options.pop("files", None))
        for name in ("run_at", "deadline"):
            if isinstance(options.get(name), datetime):
                options[name] = render_instant(options[name].timestamp())
        if options.get("webhook") is not None:
            options["webhook"] = make_webhook(options["webhook"])
        submission = Submission(
            kind=kind, input=msgspec.Raw(msgspec.json.encode(input or {})), **options
        )
        if files:
            inserted = await submit_with_files(
                service.uploads.direct, submission, files, key=key, tenant=tenant
            )
        else:
            inserted = await service.intake.submit(submission, key=key, trace_id="", tenant=tenant)
        status = wire_job(inserted.job, None, None)
        status.replayed = not inserted.created
        return status

    def run_inline(
        self, kind: str, input: dict[str, Any] | None = None, *, folder: Path | None = None
    ) -> InlineJob:
        """Run a job in this process without a service, for tests. Exceptions of the handler propagate.

        A `Path` in the input becomes a `File`.
        """
        from bide.service.run_inline import run_inline

        return run_inline(self, kind, input or {}, folder)

    def _service(self) -> Service:
        service = self._asgi.service if self._asgi is not None else None
        if service is None:
            waiting = self._asgi.waiting if self._asgi is not None else None
            raise SetupError(
                waiting
                or "the service of this app does not run in this process: mount app.asgi(), or use bide.Client"
            )
        return service
