"""bide's own API. Its answers are read as whole status resources, which have more fields than the answers of other APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.client.apis import Answer, Api, BadPoll, Call, Found, Ref, Seen, State, load
from bide.client.apis.paths import Headers
from bide.client.apis.reader import ALWAYS
from bide.client.apis.values import retry_after
from bide.core.jobs.record import SUCCESSFUL, Progress, Status
from bide.core.wire.http import JobStatus, quote

ENDINGS: dict[str, State] = {
    Status.DONE: "done",
    Status.PARTIAL_SUCCESS: "partial",
    Status.ERROR: "failed",
    Status.CANCELLED: "cancelled",
}
_decode = msgspec.json.Decoder(JobStatus).decode


class _StatusPage(msgspec.Struct):
    jobs: list[JobStatus]
    missing: list[str] = []


_decode_page = msgspec.json.Decoder(_StatusPage).decode


class BideApi(Api):
    """The description of a bide service, with a reader of its own."""

    is_bide = True

    def job_url(self, job_id: str) -> str:
        return f"{self.url}/jobs/{quote(job_id)}"

    def read(self, ref: Ref, answer: Answer, age: float = ALWAYS) -> Seen:
        if not 200 <= answer.status < 300:
            return super().read(ref, answer, age)
        job = _read(_decode, answer)
        if job.job_id != ref.id:
            raise BadPoll(answer.status, f"The response is about another job, {job.job_id}")
        return self.seen(job, answer.headers)

    def read_many(self, refs: Sequence[Ref], answer: Answer) -> dict[str, Seen]:
        self.reader.refuse(answer)
        page = _read(_decode_page, answer)
        wanted = {ref.id for ref in refs}
        found = {job.job_id: self.seen(job) for job in page.jobs if job.job_id in wanted}
        for job_id in wanted.intersection(page.missing) - found.keys():
            found[job_id] = self.reader.absent(404, "it is not in the list")
        return found

    def submitted(self, call: Call, answer: Answer, key: str | None = None) -> tuple[Ref, Seen | None]:
        """The answer is the status of the job, which may have ended already."""
        job = answer.raise_for_status().read(JobStatus)
        return Ref(job.job_id), self.seen(job, answer.headers)

    def retry(self, ref: Ref) -> Call | None:
        return Call("POST", f"{self.job_url(ref.id)}/retry")

    def delete(self, ref: Ref) -> Call | None:
        return Call("DELETE", self.job_url(ref.id))

    def seen(self, job: JobStatus, headers: Headers | None = None) -> Seen:
        """`headers` are those of an answer about this job alone."""
        percent = job.progress.percent if job.progress is not None else None
        large = job.result is None and job.status in SUCCESSFUL  # it is not part of the status
        return Seen(
            state=ENDINGS.get(job.status, "live"),
            word=job.status,
            progress=None if percent is None else percent / 100.0,
            error=job.error,
            result=job.result,
            result_url=f"{self.job_url(job.job_id)}/result" if large else None,
            files=self._files(job) if job.files else (),
            etag=None if headers is None else headers.get("ETag"),
            retry_after=None if headers is None else retry_after(headers),
            record=job,
        )

    def seen_event(self, seen: Seen, facts: dict[str, Any]) -> Seen:
        """What is known of a live job after an event with these facts."""
        word, progress = str(facts.get("status", seen.word)), facts.get("progress")
        record = seen.record
        if isinstance(record, JobStatus):
            changed: dict[str, Any] = {"status": Status(word)}
            if "attempt" in facts:
                changed["attempt"] = facts["attempt"]
            if progress is not None:
                changed["progress"] = msgspec.convert(progress, Progress)
            record = replace(record, **changed)
        percent = None if progress is None else progress.get("percent")
        known = seen.progress if percent is None else percent / 100.0
        return replace(seen, state="live", word=word, progress=known, record=record)

    def _files(self, job: JobStatus) -> tuple[Found, ...]:
        here = f"{self.job_url(job.job_id)}/files"
        return tuple(
            Found(f.name, f"{here}/{quote(f.name)}", f.content_type, f.size, f.sha256) for f in job.files
        )


def bide_api(url: str) -> BideApi:
    return BideApi(load("bide").form, url)


def _read(decode: Any, answer: Answer) -> Any:
    try:
        return decode(answer.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadPoll(answer.status, f"The response is not a job's status: {error}") from None
