"""A submission with files: small files go in the same request, large ones as resumable uploads before it.

1. It creates one job, however often it is interrupted: every try has the same idempotency key, and a ledger stores the
   key and the URLs of uploads before the first byte is sent.
2. An invalid submission is refused before the first byte, because a resumable upload starts with the whole submission.
3. The same submission of unchanged files with the same ledger is the same job until its idempotency key expires.
4. An upload is retried for GIVE_UP seconds without progress. A service that has never answered is reported at once if
   it refuses the connection: the address may be wrong.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from bide.client.apis import Answer
from bide.client.http.retrying import Retrying, RetryPolicy
from bide.client.http.service import ServiceRequests
from bide.client.ledger.outbox import PendingFile, PendingSubmission, UploadOutbox
from bide.client.uploads.file_submission import ONLY, FileSubmission, about, parameter_of
from bide.client.uploads.form import Form
from bide.client.uploads.source import Source
from bide.client.uploads.tus import RESUMABLE, Resumable, Show, render_metadata
from bide.core.errors import BideError, ServiceError, UploadFailed
from bide.core.wire.http import encode, quote

DIRECT = 16 * 1024 * 1024  # bytes of all files from which an upload is resumable
METADATA = 6000  # bytes of a header that every proxy accepts
KEY_LIFE = 24 * 3600.0
REFUSED = (400, 404, 410, 413, 415, 422)  # a retry would be refused again
GIVE_UP = 600.0  # seconds without progress
FULL = 507  # the disk of the service is full: raised, not retried
RETRIES = RetryPolicy(
    patience=GIVE_UP, needs_first_answer=True, final=frozenset((FULL,)), obeys_problem=True
)


@dataclass(frozen=True)
class Pace:
    """The clock of the retries and the length of their pauses. Tests replace them."""

    base: float = 0.5
    cap: float = 30.0
    rng: random.Random = field(default_factory=random.Random)
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    now: Callable[[], float] = time.monotonic


class UploadSession:
    """One submission with files. `wall` returns epoch seconds, `show` gets the number of bytes sent."""

    def __init__(
        self,
        service: ServiceRequests,
        pace: Pace,
        wall: Callable[[], float],
        outbox: UploadOutbox | None,
        submission: FileSubmission,
        show: Show,
    ) -> None:
        self._service = service
        self._wall = wall
        self._outbox = outbox if all(source.path for source in submission.sources.values()) else None
        self._submission = submission
        self._show = show
        self.replayed = False  # the job is known by the ledger, or the service returned it for an upload
        names = ", ".join(source.name for source in submission.sources.values())

        def exhausted(error: Exception, seconds: float) -> Exception:
            message = f"The upload of {names} made no progress for {seconds / 60:.0f} minutes: {error}"
            return UploadFailed(message, resumable=True)

        policy = dataclasses.replace(RETRIES, base=pace.base, cap=pace.cap)
        self._retrying = Retrying(policy, pace, pace.rng, exhausted=exhausted)

    async def submit(self) -> Answer:
        """Submit the job and return the answer with its status."""
        pending = await self._pending()
        if pending.job_id is not None:
            try:
                answer = await self._look(f"/jobs/{quote(pending.job_id)}")
                self.replayed = True
                return answer
            except ServiceError as error:
                if error.status not in (404, 410):
                    raise
                pending = await self._pending(new=True)
        try:
            answer = await self._send(pending)
        except (ServiceError, UploadFailed) as error:
            await self._give_up(pending, error)
            raise
        pending.job_id = answer.read(dict[str, Any]).get("jobId")
        await self._note(pending)
        return answer

    async def _send(self, pending: PendingSubmission) -> Answer:
        if self._submission.size < DIRECT:
            return await self._retrying.run(lambda: self._direct(pending))
        ((name, source), *more) = self._submission.sources.items()
        metadata = self._submission.metadata(name, pending.key)
        if more or len(render_metadata(metadata)) > METADATA:
            return await self._uploads_first(pending)
        return await self._resumable(pending, name, source, metadata)

    # --- the kinds of upload

    async def _direct(self, pending: PendingSubmission) -> Answer:
        submission = self._submission
        form = await asyncio.to_thread(Form, encode(submission.body), submission.sources, self._show)
        headers = {**submission.headers(pending.key), "Content-Type": form.content_type}
        return await self._service.send_content("POST", "/jobs", form, headers, submission.hold)

    async def _resumable(
        self, pending: PendingSubmission, name: str, source: Source, metadata: Mapping[str, str]
    ) -> Answer:
        """The upload itself becomes the job."""
        url, job = await self._upload(name, source, metadata, pending, self._show)
        if job is None:
            raise UploadFailed(
                f"The service has all of {source.name} at {url}, but created no job. Submit it again to see the reason"
            )
        return await self._look(job)

    async def _uploads_first(self, pending: PendingSubmission) -> Answer:
        """Upload the files, then submit a job that names them: for several files, or if a header is too short."""
        submission = self._submission
        only = await self._retrying.run(self._check_names)
        uploads: dict[str, str] = {}
        done = 0
        for name, source in submission.sources.items():

            def shown(at: int, before: int = done) -> object:
                return self._show(before + at)

            url, _ = await self._upload(name, source, about(source), pending, shown)
            uploads[name or only] = url.rpartition("/")[2]
            done += source.size
        body, headers = submission.filled(uploads), submission.headers(pending.key)
        return await self._retrying.run(
            lambda: self._service.send("POST", "/jobs", json=body, headers=headers, hold=submission.hold)
        )

    async def _upload(
        self,
        name: str,
        source: Source,
        metadata: Mapping[str, str],
        pending: PendingSubmission,
        show: Show,
    ) -> tuple[str, str | None]:
        file = pending.files[name]

        async def begun(url: str) -> None:
            file.url = url
            await self._note(pending)

        sending = Resumable(self._service, source, metadata, self._retrying, begun, show)
        sent = await sending.send(file.url)
        self.replayed = sending.replayed
        return sent

    async def _look(self, path: str) -> Answer:
        headers, hold = self._submission.headers(None), self._submission.hold
        return await self._retrying.run(
            lambda: self._service.send("GET", path, headers=headers, hold=hold)
        )

    async def _check_names(self) -> str:
        """Check kind and parameters before all bytes are sent. Return the parameter of a file without a name."""
        answer = await self._service.send("GET", "/kinds")
        kinds = {kind["kind"]: kind for kind in answer.read(dict[str, list[dict[str, Any]]])["kinds"]}
        named = self._submission.body["kind"]
        if named not in kinds:
            known = ", ".join(sorted(kinds)) or "none"
            raise _refusal("unknown-kind", "/kind", f"there is no kind {named!r}; there are: {known}")
        names = _file_parameters(kinds[named].get("inputSchema") or {})
        free = [name for name in names if name not in (self._submission.body.get("input") or {})]
        for name in map(parameter_of, self._submission.sources):
            if name not in names and (name != ONLY or len(free) != 1):
                detail = f"kind {named} takes no such file; there are: {', '.join(names) or 'none'}"
                raise _refusal("invalid-input", f"/input/{name}".rstrip("/"), detail)
        return (free or [ONLY])[0]

    # --- the ledger

    async def _pending(self, *, new: bool = False) -> PendingSubmission:
        """The ledger's entry of this submission, unless a file has changed since; otherwise a new one."""
        submission, base, now = self._submission, self._service.url, self._wall()
        files = await asyncio.to_thread(_files, submission.sources)
        if self._outbox is not None and not new:
            known = await self._outbox.get(base, submission.what)
            if known is not None and not _stale(known, now) and _unmarked(known.files) == files:
                return known
        key = submission.key or (None if submission.dedupe else secrets.token_urlsafe(24))
        pending = PendingSubmission(base=base, what=submission.what, key=key, since=now, files=files)
        await self._note(pending)
        return pending

    async def _note(self, pending: PendingSubmission) -> None:
        if self._outbox is not None:
            await self._outbox.put(pending)

    async def _give_up(self, pending: PendingSubmission, error: ServiceError | UploadFailed) -> None:
        """Remove a submission that would fail again, here and at the service."""
        final = error.status in REFUSED if isinstance(error, ServiceError) else not error.resumable
        if not final:
            return
        if self._outbox is not None:
            await self._outbox.drop(pending)
        for file in pending.files.values():
            if file.url is not None:
                with suppress(BideError):
                    await self._service.send("DELETE", file.url, headers=RESUMABLE)


def _file_parameters(schema: Mapping[str, Any]) -> list[str]:
    """The parameters whose schema has the form of an upload."""

    def takes_upload(part: Any) -> bool:
        if isinstance(part, list):
            return any(map(takes_upload, part))
        if not isinstance(part, dict):
            return False
        inner = (part.get(name) for name in ("oneOf", "anyOf", "items"))
        return part.get("required") == ["upload"] or any(map(takes_upload, inner))

    return [name for name, part in schema.get("properties", {}).items() if takes_upload(part)]


def _files(sources: Mapping[str, Source]) -> dict[str, PendingFile]:
    return {name: source.pending_file() for name, source in sources.items()}


def _unmarked(files: Mapping[str, PendingFile]) -> dict[str, PendingFile]:
    """The files without the URLs of their uploads."""
    return {name: replace(file, url=None) for name, file in files.items()}


def _stale(pending: PendingSubmission, now: float) -> bool:
    return pending.job_id is not None and now - pending.since > KEY_LIFE


def _refusal(code: str, pointer: str, detail: str) -> ServiceError:
    errors = [{"pointer": pointer, "detail": detail}]
    return ServiceError(422, {"code": code, "status": 422, "detail": detail, "errors": errors})
