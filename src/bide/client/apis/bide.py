"""bide's own API: its answers are read as whole status resources, which have more fields than other APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bide.client.apis import Answer, Api, BadPoll, Ref, Seen, load
from bide.client.apis.reading import ALWAYS
from bide.client.apis.values import retry_after
from bide.client.tracked import ENDINGS
from bide.core.wire import JobStatus

_decode = msgspec.json.Decoder(JobStatus).decode


class _Page(msgspec.Struct):
    jobs: list[JobStatus]
    missing: list[str] = []


_decode_page = msgspec.json.Decoder(_Page).decode


class OwnApi(Api):
    """The description of a bide service, with a reader of its own."""

    def read(self, ref: Ref, answer: Answer, age: float = ALWAYS) -> Seen:
        if answer.status != 200:
            return super().read(ref, answer, age)
        job = _read(_decode, answer)
        if job.job_id != ref.id:
            raise BadPoll(answer.status, f"the answer is about another job, {job.job_id}")
        headers = answer.headers
        return seen_of(job, etag=headers.get("ETag"), retry_after=retry_after(headers))

    def read_many(self, refs: Sequence[Ref], answer: Answer) -> dict[str, Seen]:
        self.reader.refuse(answer)
        page = _read(_decode_page, answer)
        wanted = {ref.id for ref in refs}
        found = {job.job_id: seen_of(job) for job in page.jobs if job.job_id in wanted}
        for job_id in wanted.intersection(page.missing) - found.keys():
            found[job_id] = self.reader.absent(404, "it is not in the list")
        return found


def own_api(url: str) -> OwnApi:
    return OwnApi(load("bide").form, url)


def seen_of(job: JobStatus, etag: str | None = None, retry_after: float | None = None) -> Seen:
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


def _read(decode: Any, answer: Answer) -> Any:
    try:
        return decode(answer.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadPoll(answer.status, f"the answer is not a job's status: {error}") from None
