"""bide's own API, read into whole records: they say more than the words that all APIs have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bide.client.apis import Api, BadPoll, Ref, Seen, load
from bide.client.apis.api import ALWAYS
from bide.client.apis.paths import Headers
from bide.client.apis.values import pause
from bide.client.tracked import ENDINGS
from bide.core.wire import WireJob

_decode = msgspec.json.Decoder(WireJob).decode


class _Page(msgspec.Struct):
    jobs: list[WireJob]
    missing: list[str] = []


_decode_page = msgspec.json.Decoder(_Page).decode


class OwnApi(Api):
    """The description of a bide service, with a reader of its own."""

    def read(self, ref: Ref, status: int, headers: Headers, body: bytes, age: float = ALWAYS) -> Seen:
        if status != 200:
            return super().read(ref, status, headers, body, age)
        job = _read(_decode, status, body)
        if job.job_id != ref.id:
            raise BadPoll(status, f"the answer is about another job, {job.job_id}")
        return seen_of(job, etag=headers.get("ETag"), retry_after=pause(headers))

    def read_many(
        self, refs: Sequence[Ref], status: int, headers: Headers, body: bytes
    ) -> dict[str, Seen]:
        self.refuse(status, headers, body)
        page = _read(_decode_page, status, body)
        wanted = {ref.id for ref in refs}
        found = {job.job_id: seen_of(job) for job in page.jobs if job.job_id in wanted}
        for job_id in wanted.intersection(page.missing) - found.keys():
            found[job_id] = self.absent(404, "it is not in the list")
        return found


def own_api(url: str) -> OwnApi:
    return OwnApi(load("bide").form, url)


def seen_of(job: WireJob, etag: str | None = None, retry_after: float | None = None) -> Seen:
    progress = job.progress
    percent = progress.percent if progress is not None else None
    return Seen(
        state=ENDINGS.get(job.status, "live"),
        word=job.status,
        progress=None if percent is None else percent / 100.0,
        error=job.error,
        result=job.result,
        etag=etag,
        retry_after=retry_after,
        record=job,
    )


def _read(decode: Any, status: int, body: bytes) -> Any:
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadPoll(status, f"the answer is not what was asked for: {error}") from None
