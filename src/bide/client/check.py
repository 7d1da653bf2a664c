"""Checks a description against a live API and reports for each field whether it fits.

1. It submits or cancels a job only if the caller asks for that; otherwise it sends only the requests of a wait.
2. `fits` is None for a field that the responses do not show.
3. Findings contain no credential, and no query of a URL, because that may be a signature.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec

from bide.client.account import Account
from bide.client.apis import (
    NOT_FOUND,
    Answer,
    Api,
    BadPoll,
    Call,
    Crowded,
    Denied,
    Ref,
    Seen,
    Throttled,
    UnreadableBatch,
)
from bide.client.apis.form import Description, Sources
from bide.client.apis.paths import Document, document, source
from bide.client.apis.values import (
    absolute,
    count,
    instant,
    number,
    retry_after,
    seconds,
    text,
    without_credentials,
    word,
)
from bide.core.clock import render_instant
from bide.core.errors import ServiceError, SetupError
from bide.core.pacing.limits import limit_headers, read_limits, read_pause

UNKNOWN_ID, UNKNOWN_NUMBER = "no-such-job-0", "2147483646"  # the number fits into 32 bits
HOLD = 1.0  # seconds of the long poll
LONGEST_SHOWN = 60  # characters of a value
_ABSENT = "not in the response"
Convert = Callable[[Any], Any]


def _url(value: Any) -> str | None:
    """Accept a relative URL, too."""
    return absolute("http://relative/", value)


def _location(value: Any) -> str | None:
    return value if type(value) is str else None


_ALWAYS: dict[str, Convert] = {"started_at": instant, "message": text}
_LIVE: dict[str, Convert] = {
    "count": number,
    "total": number,
    "position": count,
    "eta": instant,
    "remaining": seconds,
    "retry_after": seconds,
    "moved": _location,
}
_ENDED: dict[str, Convert] = {"finished_at": instant, "expires_at": instant}
_EXPECTED: dict[Convert, str] = {
    count: "a number from 0",
    instant: "a time",
    number: "a number",
    seconds: "a number of seconds",
    _location: "a URL",
    _url: "a URL",
}


class Finding(msgspec.Struct, frozen=True):
    """The outcome for one field of a description; `fits` is None if the responses do not show the field."""

    field: str
    fits: bool | None
    detail: str


class CheckedJob(msgspec.Struct, frozen=True):
    """A job to submit for the check."""

    kind: str = ""
    input: Any = None


class DescriptionCheck:
    """Checks the description of one account's API. Each method yields findings, in the order of the tables."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._api: Api = account.api
        self.ref: Ref | None = None  # the job of the check

    async def run(
        self, job: str | None, new_job: CheckedJob | None, cancel: bool
    ) -> AsyncIterator[Finding]:
        """`job` is the id or URL of an existing job. With `new_job` a job is submitted, with `cancel` it is cancelled."""
        if new_job is not None:
            async for finding in self._submit(new_job):
                yield finding
        elif job is not None:
            self.ref = self._api.references.ref(job)
        if self.ref is not None:
            async for finding in self._known(self.ref):
                yield finding
        if self.ref is not None and cancel:
            yield await self._cancel(self.ref)
        async for finding in self._unknown():
            yield finding

    # --- submit

    async def _submit(self, new_job: CheckedJob) -> AsyncIterator[Finding]:
        kind = await self._account.kind(new_job.kind)
        call = self._api.submissions.submit(kind, new_job.input)
        answer = await self._account.send(call)
        try:
            ref = self._api.submissions.accepted(call, answer)
        except (Throttled, Crowded) as error:
            yield Finding("submit", None, f"rejected for now: {error}")
            return
        except (ServiceError, BadPoll) as error:
            yield Finding("submit", False, f"{_where(call)}: {error}; its fields: {_keys(answer)}")
            return
        self.ref = ref
        yield Finding("submit", True, f"{_where(call)} answers {answer.status}; the job is {ref.id}")
        for finding in _submitted(self._api.form, document(answer, ref), ref):
            yield finding
        for index, following in enumerate(
            self._api.submissions.then(ref, new_job.kind, new_job.input), 1
        ):
            after = await self._account.send(following)
            good = after.status < 400
            yield Finding(f"submit.then {index}", good, f"{_where(following)} answers {after.status}")

    # --- an existing job

    async def _known(self, ref: Ref) -> AsyncIterator[Finding]:
        call = self._api.calls.ask(ref)
        answer = await self._account.send(call)
        found = list(self._answered(call, answer))
        for finding in found:
            yield finding
        if any(finding.fits is not True for finding in found):
            return
        for finding in self._read(ref, answer):
            yield finding
        yield _limits(answer)
        if self._api.form.ask.etag:
            yield await self._unchanged(ref, answer)
        if self._api.form.ask.longpoll is not None:
            yield await self._held(ref)
        if self._api.form.batch is not None:
            yield await self._batch(ref)

    def _answered(self, call: Call, answer: Answer) -> Iterator[Finding]:
        """Report whether the response can be read."""
        auth, where = self._api.form.auth.kind, _where(call)
        status = answer.status
        try:
            if not self._api.reader.reads(status):
                self._api.reader.refuse(answer)
        except Throttled as error:
            yield Finding("throttled", None, f"{where}: {error}; try again later")
            return
        except Denied as error:
            yield Finding("auth", False, f"{where}: {error}")
            return
        except BadPoll as error:
            server_error = status >= 500
            yield Finding("ask", None if server_error else False, f"{where}: {error}")
            return
        yield Finding("ask", True, f"{where} answers {status}")
        if auth != "none" or self._api.signs:
            yield Finding("auth", True, "the API accepts the credential")

    def _read(self, ref: Ref, answer: Answer) -> Iterator[Finding]:
        try:
            seen = self._api.read(ref, answer)
        except BadPoll as error:
            other = "another job" in error.detail
            fields = f"; its fields: {_keys(answer)}" if other else ""
            yield Finding("read.id" if other else "read.status", False, error.detail + fields)
            return
        yield _status(seen, answer.status)
        yield from _fields(self._api.form, seen, document(answer, ref))
        yield from _outputs(self._api.form, seen)

    async def _unchanged(self, ref: Ref, answer: Answer) -> Finding:
        etag = answer.headers.get("ETag")
        if etag is None:
            return Finding("ask.etag", False, "the response has no ETag")
        again = await self._account.send(self._api.calls.ask(ref, etag))
        if again.status == 304:
            return Finding("ask.etag", True, "the same request again returns 304")
        moved = again.headers.get("ETag") != etag
        return Finding(
            "ask.etag", None if moved else False, f"the same request again returns {again.status}"
        )

    async def _held(self, ref: Ref) -> Finding:
        began = time.monotonic()
        answer = await self._account.send(self._api.calls.ask(ref, hold=HOLD))
        took = time.monotonic() - began
        try:
            self._api.read(ref, answer)
        except BadPoll as error:
            return Finding("ask.longpoll", False, str(error))
        return Finding("ask.longpoll", True, f"answered {answer.status} after {took:.1f} s of {HOLD:g}")

    async def _batch(self, ref: Ref) -> Finding:
        call = self._api.calls.ask_many([ref])
        if call is None:
            return Finding("batch", None, "this job cannot be part of a batch")
        answer = await self._account.send(call)
        try:
            found = self._api.read_many([ref], answer)
        except BadPoll as error:
            whole = self._api.form.batch is not None and self._api.form.batch.ids == "none"
            unsure = isinstance(error, Throttled) or (whole and isinstance(error, UnreadableBatch))
            return Finding("batch", None if unsure else False, f"{_where(call)}: {error}")
        return Finding("batch", True, f"{_where(call)} has the job: {found[ref.id].word}")

    async def _cancel(self, ref: Ref) -> Finding:
        call = self._api.calls.cancel(ref)
        if call is None:
            return Finding("cancel", None, "the description has no [cancel] for this job")
        answer = await self._account.send(self._api.calls.ask(ref))
        try:
            seen = self._api.read(ref, answer)
        except BadPoll as error:
            return Finding(
                "cancel", None, f"The job's status cannot be read, so no cancel was sent: {error}"
            )
        if seen.terminal:
            return Finding("cancel", None, f"the job has ended as {seen.state}, so no cancel was sent")
        call = self._api.calls.cancel(ref, seen.message) or call
        answer = await self._account.send(call)
        try:
            outcome = self._api.cancelled(answer)
        except BadPoll as error:
            return Finding("cancel", False, f"{_where(call)}: {error}")
        reported = "accepted" if outcome == "asked" else "too late"
        return Finding("cancel", True, f"{_where(call)} answers {answer.status}: {reported}")

    # --- a job that does not exist

    async def _unknown(self) -> AsyncIterator[Finding]:
        """Check without a job: whether the API answers, accepts the credential, and reports an unknown id."""
        try:
            ref = self._unknown_ref()
            call = self._api.calls.ask(ref)
        except SetupError:
            return
        answer = await self._account.send(call)
        where = _where(call)
        try:
            seen = self._api.read(ref, answer)
        except Denied as error:
            yield Finding("auth", False, f"{where}: {error}")
        except Throttled as error:
            yield Finding("throttled", None, f"{where}: {error}; try again later")
        except BadPoll as error:
            detail = (
                f"{where}: {error}; if this means that there is no such job, describe it in [[missing]]"
            )
            yield Finding("missing", None, detail)
        else:
            unknown = seen.error is not None and seen.error.code == NOT_FOUND
            reported = "not found" if unknown else seen.word or seen.state
            yield Finding(
                "missing", unknown or None, f"{where}: an unknown id is reported as {reported}"
            )
        if self.ref is None:
            yield _limits(answer)

    def _unknown_ref(self) -> Ref:
        if self.ref is not None:
            if self.ref.url is not None:
                raise SetupError("the API names the URL of a job, so none can be made for an unknown id")
            return Ref(UNKNOWN_NUMBER if self.ref.id.isdigit() else UNKNOWN_ID, None, self.ref.more)
        form = self._api.form
        unknown = UNKNOWN_NUMBER if form.numeric_id else UNKNOWN_ID
        if form.written is None:
            return self._api.references.ref(unknown)
        written = form.written.replace("{id}", unknown) if form.numeric_id else form.written
        return self._api.references.ref(written.replace("{", "").replace("}", ""))


def _status(seen: Seen, status: int) -> Finding:
    if seen.state == "unknown":
        return Finding(
            "read.status",
            False,
            f"{seen.word!r} is in no list. Add it to live, done, failed, cancelled or partial in [read]",
        )
    reported = f"{seen.word!r}" if seen.word else f"HTTP {status} alone"
    return Finding("read.status", True, f"{reported} is {seen.state}")


def _limits(answer: Answer) -> Finding:
    headers = limit_headers(answer.headers) or {}
    now = time.time()
    found = [
        f"{_shown(one.remaining)} left" + (f" of {_shown(one.quota)}" if one.quota is not None else "")
        for one in read_limits(headers, now)
    ]
    pause = read_pause(headers, now)
    if pause is not None:
        found.append(f"no request for {pause:g} s")
    if "x-request-cost" in headers:
        found.append(f"a request costs {headers['x-request-cost']}")
    return Finding("limits", True if found else None, "; ".join(found) or "the headers name no limit")


def _where(call: Call) -> str:
    return f"{call.method} {without_credentials(call.url)}"


def _keys(answer: Answer) -> str:
    """Name the fields that the response has, for a finding about one that it lacks."""
    found = answer.json()
    if isinstance(found, dict):
        return ", ".join(str(key) for key in list(found)[:20]) or "none"
    return "none, it is not JSON" if found is None else "none"


def _submitted(form: Description, document: Document, ref: Ref) -> Iterator[Finding]:
    """Check the fields that the response to a submission should have."""
    submit = form.submit
    assert submit is not None
    if submit.id is not None:
        yield _found("submit.id", submit.id, word, document)
    if submit.status_url is not None:
        yield _found("submit.status_url", submit.status_url, _url, document)
    for name in submit.remember:
        value = ref.more.get(name)
        detail = _ABSENT if value is None else _shown(value)
        yield Finding(f"submit.remember.{name}", None if value is None else True, detail)


def _fields(form: Description, seen: Seen, document: Document) -> Iterator[Finding]:
    """Check the fields of [read] that a job in this state has."""
    read = form.read
    if read.id is not None:
        yield _found("read.id", read.id, word, document)
    live = seen.state in ("live", "unknown")
    if live and read.progress is not None:
        yield _progress(read.progress, seen, document)
    for name, convert in {**_ALWAYS, **(_LIVE if live else _ENDED)}.items():
        described = getattr(read, name)
        if described is not None:
            yield _found(f"read.{name}", described, convert, document)
    if live and read.retry_after is None and (advice := retry_after(document.headers)) is not None:
        yield Finding("read.retry_after", True, f"Retry-After: {advice:g} s")
    if seen.state in ("failed", "partial"):
        for name in ("code", "message", "step"):
            described = getattr(read.error, name)
            if described is not None:
                yield _found(f"read.error.{name}", described, text, document)


def _outputs(form: Description, seen: Seen) -> Iterator[Finding]:
    """Check the result and the files of a successful job."""
    if seen.state not in ("done", "partial"):
        return
    if form.result is not None:
        if seen.result is not None:
            yield Finding("result", True, f"the result is {_shown(seen.result)}")
        elif seen.result_url is not None:
            yield Finding("result", True, f"the result is at {_shown(seen.result_url)}")
        else:
            yield Finding("result", False, "the job is done, but the response has no result")
    if form.files:
        names = ", ".join(file.name for file in seen.files)
        yield Finding("files", bool(names) or None, names or "the response names no file")


def _shown(value: Any) -> str:
    """Shorten a value for a finding. A URL loses its query, which may be a signature."""
    if isinstance(value, str):
        rendered = without_credentials(value) if "://" in value else value
    elif isinstance(value, float):
        rendered = f"{value:g}"
    else:
        rendered = (
            msgspec.json.encode(value).decode() if not isinstance(value, dict | list) else _size(value)
        )
    return rendered if len(rendered) <= LONGEST_SHOWN else f"{rendered[: LONGEST_SHOWN - 1]}…"


def _size(value: dict[Any, Any] | list[Any]) -> str:
    unit = "fields" if isinstance(value, dict) else "items"
    return f"JSON with {len(value)} {unit}"


def _progress(described: Sources, seen: Seen, document: Document) -> Finding:
    value = source(described)(document)
    if seen.progress is not None:
        return Finding("read.progress", True, f"{100 * seen.progress:g} %")
    if value is None or value == "":
        return Finding("read.progress", None, _ABSENT)
    # A log may show no progress yet, and `progress` may be a table from which only `count` is read.
    no_number = not isinstance(value, str | dict)
    return Finding(
        "read.progress", False if no_number else None, f"no progress can be read from {_shown(value)}"
    )


def _found(
    name: str,
    described: Sources,
    convert: Convert,
    document: Document,
) -> Finding:
    value = source(described)(document)
    if value is None or value == "":
        return Finding(name, None, _ABSENT)
    if convert(value) is None:
        return Finding(name, False, f"{_shown(value)} is not {_EXPECTED.get(convert, 'text')}")
    read = convert(value)
    return Finding(name, True, render_instant(read) if convert is instant else _shown(value))
