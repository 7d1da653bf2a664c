"""A submission with files: small ones in one request with it, others resumably and before it.

1. It makes one job, whatever is cut off and tried again: every try has the same idempotency key, and the ledger, where
   there is one, has the key and the addresses of uploads before the first byte is sent.
2. What can be refused is refused before the first byte: a resumable upload is begun with the whole submission.
3. The same submission of unchanged files with the same ledger is the same job for as long as an idempotency key lives.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from bide.client.apis import Answer
from bide.client.http.transport import Transport
from bide.client.ledger.outbox import Item, Outbox, Parcel
from bide.client.uploads.file_submission import ONLY, FileSubmission, about, parameter_of
from bide.client.uploads.form import Form
from bide.client.uploads.patience import Patience
from bide.client.uploads.source import Source
from bide.client.uploads.tus import VERSION, Resumable, Show, render_metadata
from bide.client.waiting import Pace
from bide.core.errors import BideError, ServiceError, ServiceUnreachable, UploadFailed
from bide.core.wire import encode, quote

DIRECT = 16 * 1024 * 1024  # bytes of all files; an upload of as many or more is worth resuming
METADATA = 6000  # bytes of a header that every proxy, and every client that is told it again, can bear
KEY_LIFE = 24 * 3600.0
REFUSED = (400, 404, 410, 413, 415, 422)  # going on would end in the same
T = TypeVar("T")


class Sending:
    """One submission with files. `wall` tells epoch seconds, `show` is told how many bytes are sent."""

    def __init__(
        self,
        transport: Transport,
        pace: Pace,
        wall: Callable[[], float],
        outbox: Outbox | None,
        asked: FileSubmission,
        show: Show,
    ) -> None:
        self._transport = transport
        self._wall = wall
        self._outbox = outbox if all(source.path for source in asked.sources.values()) else None
        self._asked = asked
        self._show = show
        self._patience = Patience(pace, ", ".join(source.name for source in asked.sources.values()))

    async def submit(self) -> Answer:
        """The answer with the job."""
        parcel = await self._parcel()
        if parcel.job_id is not None:
            try:
                return await self._look(f"/jobs/{quote(parcel.job_id)}")
            except ServiceError as error:
                if error.status not in (404, 410):
                    raise
                parcel = await self._parcel(anew=True)
        try:
            answer = await self._send(parcel)
        except (ServiceError, UploadFailed) as error:
            await self._give_up(parcel, error)
            raise
        parcel.job_id = answer.read(dict[str, Any]).get("jobId")
        await self._note(parcel)
        return answer

    async def _send(self, parcel: Parcel) -> Answer:
        if self._asked.size < DIRECT:
            return await self._persist(lambda: self._direct(parcel))
        ((name, source), *more) = self._asked.sources.items()
        metadata = self._asked.metadata(name, parcel.key)
        if more or len(render_metadata(metadata)) > METADATA:
            return await self._uploads_first(parcel)
        return await self._resumable(parcel, name, source, metadata)

    # --- the ways

    async def _direct(self, parcel: Parcel) -> Answer:
        asked = self._asked
        form = await asyncio.to_thread(Form, encode(asked.body), asked.sources, self._show)
        headers = {**asked.headers(parcel.key), "Content-Type": form.content_type}
        return await self._transport.send_content("POST", "/jobs", form, headers, asked.hold)

    async def _resumable(
        self, parcel: Parcel, name: str, source: Source, metadata: Mapping[str, str]
    ) -> Answer:
        """The upload itself becomes the job."""
        url, job = await self._upload(name, source, metadata, parcel, self._show)
        if job is None:
            raise UploadFailed(
                f"the service has {source.name} whole at {url}, and no job came of it: submit it again to hear why"
            )
        return await self._look(job)

    async def _uploads_first(self, parcel: Parcel) -> Answer:
        """Then a job that names them: several files, or a submission that is too long for a header."""
        asked = self._asked
        only = await self._persist(self._check_names)
        uploads: dict[str, str] = {}
        done = 0
        for name, source in asked.sources.items():

            def shown(at: int, before: int = done) -> object:
                return self._show(before + at)

            url, _ = await self._upload(name, source, about(source), parcel, shown)
            uploads[name or only] = url.rpartition("/")[2]
            done += source.size
        body, headers = asked.filled(uploads), asked.headers(parcel.key)
        return await self._persist(
            lambda: self._transport.send("POST", "/jobs", json=body, headers=headers, hold=asked.hold)
        )

    async def _upload(
        self, name: str, source: Source, metadata: Mapping[str, str], parcel: Parcel, show: Show
    ) -> tuple[str, str | None]:
        item = parcel.items[name]

        async def begun(url: str) -> None:
            item.url = url
            await self._note(parcel)

        sending = Resumable(self._transport, source, metadata, self._patience, begun, show)
        return await sending.send(item.url)

    async def _look(self, path: str) -> Answer:
        headers, hold = self._asked.preference, self._asked.hold
        return await self._persist(lambda: self._transport.send("GET", path, headers=headers, hold=hold))

    async def _check_names(self) -> str:
        """Of kind and parameters, for nothing else would tell before all was sent; the parameter of a nameless file."""
        answer = await self._transport.send("GET", "/kinds")
        kinds = {kind["kind"]: kind for kind in answer.read(dict[str, list[dict[str, Any]]])["kinds"]}
        named = self._asked.body["kind"]
        if named not in kinds:
            known = ", ".join(sorted(kinds)) or "none"
            raise _refusal("unknown-kind", "/kind", f"there is no kind {named!r}; there are: {known}")
        names = _file_parameters(kinds[named].get("inputSchema") or {})
        free = [name for name in names if name not in (self._asked.body.get("input") or {})]
        for name in map(parameter_of, self._asked.sources):
            if name not in names and (name != ONLY or len(free) != 1):
                detail = f"kind {named} takes no such file; there are: {', '.join(names) or 'none'}"
                raise _refusal("invalid-input", f"/input/{name}".rstrip("/"), detail)
        return (free or [ONLY])[0]

    async def _persist(self, operation: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await operation()
            except (ServiceError, ServiceUnreachable) as error:
                await self._patience.after(error)

    # --- the ledger

    async def _parcel(self, *, anew: bool = False) -> Parcel:
        """What the ledger knows of this submission, unless a file has changed since; otherwise a new one."""
        asked, base, now = self._asked, self._transport.url, self._wall()
        items = await asyncio.to_thread(_items, asked.sources)
        if self._outbox is not None and not anew:
            known = await self._outbox.get(base, asked.what)
            if known is not None and not _stale(known, now) and _unmarked(known.items) == items:
                return known
        key = asked.key or (None if asked.dedupe else secrets.token_urlsafe(24))
        parcel = Parcel(base=base, what=asked.what, key=key, since=now, items=items)
        await self._note(parcel)
        return parcel

    async def _note(self, parcel: Parcel) -> None:
        if self._outbox is not None:
            await self._outbox.put(parcel)

    async def _give_up(self, parcel: Parcel, error: ServiceError | UploadFailed) -> None:
        """What would end in the same if it were gone on with is forgotten, here and at the service."""
        final = error.status in REFUSED if isinstance(error, ServiceError) else not error.resumable
        if not final:
            return
        if self._outbox is not None:
            await self._outbox.drop(parcel)
        for item in parcel.items.values():
            if item.url is not None:
                with suppress(BideError):
                    await self._transport.send("DELETE", item.url, headers=VERSION)


def _file_parameters(schema: Mapping[str, Any]) -> list[str]:
    """By the form that an upload has in JSON."""

    def takes_upload(part: Any) -> bool:
        if isinstance(part, list):
            return any(map(takes_upload, part))
        if not isinstance(part, dict):
            return False
        inner = (part.get(name) for name in ("oneOf", "anyOf", "items"))
        return part.get("required") == ["upload"] or any(map(takes_upload, inner))

    return [name for name, part in schema.get("properties", {}).items() if takes_upload(part)]


def _items(sources: Mapping[str, Source]) -> dict[str, Item]:
    return {name: source.item() for name, source in sources.items()}


def _unmarked(items: Mapping[str, Item]) -> dict[str, Item]:
    """The files alone, without what became of them."""
    return {name: replace(item, url=None) for name, item in items.items()}


def _stale(parcel: Parcel, now: float) -> bool:
    return parcel.job_id is not None and now - parcel.since > KEY_LIFE


def _refusal(code: str, pointer: str, detail: str) -> ServiceError:
    errors = [{"pointer": pointer, "detail": detail}]
    return ServiceError(422, {"code": code, "status": 422, "detail": detail, "errors": errors})
