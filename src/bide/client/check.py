"""Checks a description against a live API and reports for each field whether it fits.

1. It submits or cancels a job only if the caller asks for that; otherwise it sends only the requests of a wait.
2. `fits` is None for a field that the answers do not show.
3. Findings have no credential, and no query of a URL, which may be a signature.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from bide.client.account import Account
from bide.client.apis import NOT_FOUND, Answer, Api, BadPoll, Call, Crowded, Denied, Ref, Seen, Throttled
from bide.client.apis.signs import document
from bide.client.apis.values import without_credentials
from bide.client.inspection import Finding, fields, outputs, shown, taken
from bide.core.errors import ServiceError, SetupError
from bide.core.limits import read_limits, read_pause, telling

UNKNOWN_ID = "no-such-job-0"
HOLD = 1.0  # seconds of the long poll


class Order(msgspec.Struct, frozen=True):
    """A job to submit for the check."""

    kind: str = ""
    input: Any = None


class Trial:
    """The check of one account's API. Each method yields findings, in the order of the tables."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._api: Api = account.api
        self.ref: Ref | None = None  # the job of the check

    async def run(self, job: str | None, order: Order | None, cancel: bool) -> AsyncIterator[Finding]:
        """`job` is the id or URL of an existing job. With `order` a job is submitted, with `cancel` it is cancelled."""
        if order is not None:
            async for finding in self._submit(order):
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

    async def _submit(self, order: Order) -> AsyncIterator[Finding]:
        call = self._api.submissions.submit(order.kind, order.input)
        answer = await self._account.send(call)
        try:
            ref = self._api.submissions.accepted(call, answer)
        except (Throttled, Crowded) as error:
            yield Finding("submit", None, f"rejected for now: {error}")
            return
        except (ServiceError, BadPoll) as error:
            yield Finding("submit", False, f"{_where(call)}: {error}; the answer has {_keys(answer)}")
            return
        self.ref = ref
        yield Finding("submit", True, f"{_where(call)} answers {answer.status}; the job is {ref.id}")
        for finding in taken(self._api.form, answer.headers, document(answer.body), ref):
            yield finding
        for number, following in enumerate(self._api.submissions.then(ref, order.kind, order.input), 1):
            after = await self._account.send(following)
            good = after.status < 400
            yield Finding(f"submit.then {number}", good, f"{_where(following)} answers {after.status}")

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
        """Whether the answer can be read."""
        auth, where = self._api.form.auth.kind, _where(call)
        status = answer.status
        try:
            if not self._api.reader.reads(status):
                self._api.reader.refuse(answer)
        except Throttled as error:
            yield Finding("throttled", None, f"{where}: {error}; ask again later")
            return
        except Denied as error:
            yield Finding("auth", False, f"{where}: {error}")
            return
        except BadPoll as error:
            trouble = status >= 500
            yield Finding("ask", None if trouble else False, f"{where}: {error}")
            return
        yield Finding("ask", True, f"{where} answers {status}")
        if auth != "none" or self._api.signs:
            yield Finding("auth", True, "the API accepts the credential")

    def _read(self, ref: Ref, answer: Answer) -> Iterator[Finding]:
        body = document(answer.body)
        try:
            seen = self._api.read(ref, answer)
        except BadPoll as error:
            field = "read.id" if "another job" in error.detail else "read.status"
            yield Finding(field, False, f"{error.detail}; the answer has {_keys(answer)}")
            return
        yield _status(seen, answer.status)
        yield from fields(self._api.form, seen, answer.headers, body, ref)
        yield from outputs(self._api.form, seen)

    async def _unchanged(self, ref: Ref, answer: Answer) -> Finding:
        etag = answer.headers.get("ETag")
        if etag is None:
            return Finding("ask.etag", False, "the answer has no ETag")
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
            return Finding(
                "batch", None if isinstance(error, Throttled) else False, f"{_where(call)}: {error}"
            )
        if ref.id in found:
            return Finding("batch", True, f"{_where(call)} has the job: {found[ref.id].word}")
        whole = self._api.form.batch is not None and self._api.form.batch.ids == "none"
        return Finding("batch", None if whole else False, f"{_where(call)} does not have the job")

    async def _cancel(self, ref: Ref) -> Finding:
        call = self._api.calls.cancel(ref)
        if call is None:
            return Finding("cancel", None, "the description has no [cancel] for this job")
        asked = await self._account.send(self._api.calls.ask(ref))
        try:
            seen = self._api.read(ref, asked)
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
        said = "accepted" if outcome == "asked" else "too late"
        return Finding("cancel", True, f"{_where(call)} answers {answer.status}: {said}")

    # --- a job that does not exist

    async def _unknown(self) -> AsyncIterator[Finding]:
        """All that can be checked without a job: the API answers, accepts the credential, and reports an unknown id."""
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
            yield Finding("throttled", None, f"{where}: {error}; ask again later")
        except BadPoll as error:
            detail = (
                f"{where}: {error}; if this means that there is no such job, describe it in [[missing]]"
            )
            yield Finding("missing", None, detail)
        else:
            unknown = seen.error is not None and seen.error.code == NOT_FOUND
            said = "not found" if unknown else seen.word or seen.state
            yield Finding("missing", unknown or None, f"{where}: an unknown id is reported as {said}")
        if self.ref is None:
            yield _limits(answer)

    def _unknown_ref(self) -> Ref:
        if self.ref is not None:
            if self.ref.url is not None:
                raise SetupError("the API names the URL of a job, so none can be made for an unknown id")
            return Ref(UNKNOWN_ID, None, self.ref.more)
        written = self._api.form.written
        return self._api.references.ref(
            written.replace("{", "").replace("}", "") if written else UNKNOWN_ID
        )


def _status(seen: Seen, status: int) -> Finding:
    if seen.state == "unknown":
        return Finding(
            "read.status", False, f"{seen.word!r} is in none of the lists: live, done, failed, …"
        )
    said = f"{seen.word!r}" if seen.word else f"HTTP {status} alone"
    return Finding("read.status", True, f"{said} is {seen.state}")


def _limits(answer: Answer) -> Finding:
    told = telling(answer.headers) or {}
    now = time.time()
    found = [
        f"{shown(one.remaining)} left" + (f" of {shown(one.quota)}" if one.quota is not None else "")
        for one in read_limits(told, now)
    ]
    pause = read_pause(told, now)
    if pause is not None:
        found.append(f"ask again in {pause:g} s")
    if "x-request-cost" in told:
        found.append(f"a request costs {told['x-request-cost']}")
    return Finding("limits", True if found else None, "; ".join(found) or "the headers name no limit")


def _where(call: Call) -> str:
    return f"{call.method} {without_credentials(call.url)}"


def _keys(answer: Answer) -> str:
    """The fields that the answer has instead."""
    found = document(answer.body)
    if isinstance(found, dict):
        return ", ".join(str(key) for key in list(found)[:20]) or "no fields"
    return "no JSON" if found is None else "no fields"
