"""Reads the state of a job from an answer.

1. `read` raises only BadPoll, whatever an API sends.
2. It guesses nothing: an HTML page, an incomplete JSON document or an answer about another job is a bad poll, an
   unknown status word gives the state `unknown`, and a progress that is not a number is None.
3. It reads every poll, so it is fast: sources are compiled in advance, and only the fields of the job's state are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from bide.client.apis.answers import (
    GONE,
    NOT_FOUND,
    Answer,
    BadPoll,
    Denied,
    NotYet,
    Ref,
    Seen,
    State,
    Throttled,
)
from bide.client.apis.form import Description, Read
from bide.client.apis.outputs import Outputs
from bide.client.apis.paths import Document, Source, source
from bide.client.apis.refusals import RefusalRules
from bide.client.apis.status_words import StatusWords
from bide.client.apis.toml_lines import within
from bide.client.apis.values import (
    count,
    header,
    instant,
    number,
    quoted,
    retry_after,
    seconds,
    share,
    text,
)
from bide.core.errors import ErrorInfo, ServiceError

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_TAIL = 2000  # characters at the end of a log that are searched for progress
ALWAYS = math.inf  # the age of a job that is known to exist
Convert = Callable[[Any], Any]
Field = tuple[str, Source, Convert]


class Reader:
    """Reads the answers of one API."""

    def __init__(self, form: Description, outputs: Outputs) -> None:
        with within("throttled"):
            self._throttled = RefusalRules(form.throttled)
        with within("crowded"):
            self._crowded = RefusalRules(form.crowded)
        with within("denied"):
            self._denied = RefusalRules(form.denied)
        with within("missing"):
            self._missing = RefusalRules(form.missing)
        # Statuses of success that no rule of the description makes a refusal.
        rules = (self._throttled, self._denied, self._missing)
        self.plain = frozenset(
            status for status in range(200, 300) if not any(status in signs for signs in rules)
        )
        self._grace = form.ask.grace
        self._etag = form.ask.etag
        self._outputs = outputs
        with within("read"):
            self._prepare(form.read)

    def _prepare(self, read: Read) -> None:
        self._words = StatusWords(read)
        self._id = source(read.id) if read.id is not None else None
        self._progress = _progress(read)
        self._count, self._total = _pair(read)
        shown: list[tuple[str, Convert]] = [("started_at", instant), ("message", text)]
        live: list[tuple[str, Convert]] = [("position", count), ("eta", instant), ("remaining", seconds)]
        ended: list[tuple[str, Convert]] = [("finished_at", instant), ("expires_at", instant)]
        self._live = _fields(read, shown + live)
        self._ended = _fields(read, shown + ended)
        self._retry_after = source(read.retry_after) if read.retry_after is not None else None
        self._moved = source(read.moved) if read.moved is not None else None
        self._refusal = source(read.refusal) if read.refusal is not None else None
        mark = read.cancelled_if
        self._mark = None if mark is None else (source(mark.source), mark.contains.lower())
        with within("read", "error"):
            self._code, self._message, self._step = (
                source(s) if s is not None else None
                for s in (read.error.code, read.error.message, read.error.step)
            )
        self._retryable = frozenset(code.lower() for code in read.error.retryable)
        self._cancelled = frozenset(code.lower() for code in read.error.cancelled)
        if self._cancelled and self._code is None:
            raise ValueError("`error.cancelled` needs `error.code`, the source of the code")

    # --- answers about one job

    def read(self, ref: Ref, answer: Answer, age: float) -> Seen:
        if answer.status != 200 or 200 not in self.plain:
            seen = self._refused(answer, age)
            if seen is not None:
                return seen
        try:
            found = _decode(answer.body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            found = self._undecodable(answer, error)
        return self.seen(ref, Document(found, answer.headers, ref, answer.status))

    def seen(self, ref: Ref, document: Document) -> Seen:
        """Return the state of the job in a decoded answer."""
        if self._id is not None:
            id = self._id(document)
            if id is not None and id != ref.id and str(id) != ref.id:
                raise BadPoll(
                    document.status, f"the response is about another job, {text(id) or 'without an id'}"
                )
            known = id is not None
        else:
            known = True
        state, word, by_code = self._words.state(document)
        if not known and not word and not by_code:
            raise BadPoll(document.status, "the response has neither a status nor the job's id")
        if state == "failed" and self._was_cancelled(document):
            state = "cancelled"
        fields: dict[str, Any] = {"state": state, "word": word}
        if state in ("live", "unknown"):
            self._read_live(fields, ref, document)
        else:
            self._read_ended(fields, state, ref, document, by_code)
        if self._etag:
            fields["etag"] = header(document.headers, "ETag")
        return Seen(**fields)

    def _was_cancelled(self, document: Document) -> bool:
        """Return whether a failed job was cancelled, at an API without a status for that."""
        if self._mark is not None:
            get, mark = self._mark
            if mark in (text(get(document)) or "").lower():
                return True
        code = text(self._code(document)) if self._cancelled and self._code else None
        return code is not None and code.lower() in self._cancelled

    def _read_live(self, fields: dict[str, Any], ref: Ref, document: Document) -> None:
        for name, get, convert in self._live:
            value = get(document)
            if value is not None:
                fields[name] = convert(value)
        if self._count is not None:
            self._read_counts(fields, document)
        if self._progress is not None:
            progress = self._progress(document)
            if progress is not None:
                fields["progress"] = progress
        advice = retry_after(document.headers)
        if self._retry_after is not None and advice is None:
            advice = seconds(self._retry_after(document))
        if advice is not None:
            fields["retry_after"] = advice
        if self._moved is not None:
            fields["moved"] = self._outputs.address(ref, self._moved(document))

    def _read_counts(self, fields: dict[str, Any], document: Document) -> None:
        assert self._count is not None
        done = number(self._count(document))
        total = number(self._total(document)) if self._total is not None else None
        if done is None or done < 0:
            return
        if total is not None and total > 0:
            fields["counts"] = (done, total)
            fields["progress"] = done / total if done < total else 1.0
        elif self._total is None:
            fields["counts"] = (done, None)

    def _read_ended(
        self,
        fields: dict[str, Any],
        state: State,
        ref: Ref,
        document: Document,
        by_code: bool,
    ) -> None:
        for name, get, convert in self._ended:
            value = get(document)
            if value is not None:
                fields[name] = convert(value)
        if state in ("failed", "partial") or (
            state == "cancelled" and self._code is not None and self._code(document) is not None
        ):
            fields["error"] = self._read_error(fields["word"], document, state)
        self._outputs.read(fields, state, ref, document, whole=by_code)

    def _read_error(self, word: str, document: Document, state: str) -> ErrorInfo:
        code, message, step = (
            text(get(document)) if get is not None else None
            for get in (self._code, self._message, self._step)
        )
        code = code or (word if word and state != "partial" else state).upper()
        return ErrorInfo(
            code=code,
            message=message
            or f"the API reports {word or state} without a message{_quote(document.body)}",
            retryable=code.lower() in self._retryable,
            failed_step=step,
        )

    # --- answers without the state of a job

    def _refused(self, answer: Answer, age: float) -> Seen | None:
        """Return None if the body must be read, otherwise the state that the HTTP status gives; or raise BadPoll."""
        status, headers = answer.status, answer.headers
        if status == 304:
            return Seen(
                state="live",
                unchanged=True,
                etag=header(headers, "ETag"),
                retry_after=retry_after(headers),
            )
        self.check(answer)
        if self._words.by_code(status) is not None:
            return None
        if status in (404, 410) or self._missing.fit(answer):
            return self.absent(status, self.detail(answer), age)
        self.refuse(answer)
        return None

    def refuse(self, answer: Answer) -> None:
        """Raise BadPoll unless the answer is a success."""
        self.check(answer)
        status = answer.status
        if 200 <= status < 300:
            return
        if status in (401, 403, 407):
            raise Denied(status, self.detail(answer), final=True)
        final = 300 <= status < 500 and status not in (408, 409, 421, 423, 425, 429)
        raise BadPoll(status, self.detail(answer), final=final)

    def check(self, answer: Answer) -> None:
        """Raise Throttled or Denied if the description says that the answer means that."""
        if self.throttled(answer):
            raise Throttled(answer.status, self.detail(answer))
        if self.denied(answer):
            # 401, whatever the status is: the credential is wrong for all jobs.
            note = "" if answer.status == 401 else f" (HTTP {answer.status})"
            raise Denied(401, f"{self.detail(answer)}{note}", final=True)

    def absent(self, status: int, detail: str, age: float = ALWAYS) -> Seen:
        """Return the state of a job that the API does not know; NotYet if it was submitted a moment ago."""
        if age < self._grace and status != 410:
            raise NotYet(status, "the job is not visible yet")
        code = GONE if status == 410 else NOT_FOUND
        known = "no longer knows the job" if status == 410 else "does not know the job"
        return Seen(state="failed", error=ErrorInfo(code=code, message=f"the API {known}: {detail}"))

    def reads(self, status: int) -> bool:
        """Return whether this HTTP status alone gives the state of a job. Such a 3xx is not a redirect."""
        return self._words.by_code(status) is not None

    def throttled(self, answer: Answer) -> bool:
        """Return whether there were too many requests. Too many jobs are another limit: see `crowded`."""
        if self._throttled.fit(answer):
            return True
        return answer.status == 429 and not self._crowded.fit(answer)

    def denied(self, answer: Answer) -> bool:
        """Return whether the description says that this refusal concerns the credential."""
        return self._denied.fit(answer)

    def crowded(self, answer: Answer) -> bool:
        """Return whether too many jobs run at once."""
        return self._crowded.fit(answer)

    def detail(self, answer: Answer) -> str:
        """Return the message of a refusal, in one line."""
        body = answer.body
        found = Document(answer.json())
        message = None
        for get in (self._refusal, self._message, *_DETAILS):
            message = text(get(found)) if get is not None else None
            if message:
                message = " ".join(message.split())[:300]
                break
        if not message and not body:
            message = "empty"
        elif not message:
            message = f"{'not JSON' if found.body is None else 'no message'}: {quoted(body)}"
        message = answer.hide(message)
        return f"{message.rstrip('.')}. {answer.credential}" if answer.credential else message

    def problem(self, answer: Answer) -> ServiceError:
        """Return the error in a refusal, with the text that the description names."""
        error = answer.problem()
        if self._refusal is not None:
            error.problem["detail"] = self.detail(answer)
        return error

    def _undecodable(self, answer: Answer, error: Exception) -> Any:
        """The body need not be JSON if the HTTP status gives the state. A web page, an incomplete document and an empty
        200 (instead of 204) are still bad polls.
        """
        status, body = answer.status, answer.body
        kind = (header(answer.headers, "Content-Type") or "").lower()
        start = body[:64].lstrip().lower()
        page = "html" in kind or start.startswith((b"<!doctype", b"<html"))
        broken = body and ("json" in kind or start[:1] in b"{[")
        if self._words.by_code(status) is None or page or broken or (status == 200 and not body):
            found = (
                "empty"
                if not body
                else f"{'a web page' if page else f'not JSON: {error}'}: {quoted(body)}"
            )
            raise BadPoll(status, answer.hide(f"the response is {found}"))
        return None


_DETAILS = [
    source(path)
    for path in ("detail", "error.message", "message", "Message", "error_description", "error", "title")
]


def _quote(body: Any) -> str:
    try:
        return f": {quoted(_encode(body))}"
    except (msgspec.MsgspecError, OverflowError, ValueError):  # e.g. a number that is too large
        return ""


def _fields(read: Read, wanted: list[tuple[str, Convert]]) -> tuple[Field, ...]:
    return tuple(
        (name, source(found), convert)
        for name, convert in wanted
        if (found := getattr(read, name)) is not None
    )


def _pair(read: Read) -> tuple[Source | None, Source | None]:
    if read.total is not None and read.count is None:
        raise ValueError("`total` needs `count`")
    return (
        source(read.count) if read.count is not None else None,
        source(read.total) if read.total is not None else None,
    )


def _progress(read: Read) -> Callable[[Document], float | None] | None:
    if read.progress is None:
        return None
    if not read.scale > 0:
        raise ValueError("`scale` must be above 0")
    get, scale = source(read.progress), read.scale
    if read.pattern is None:
        return lambda document: share(get(document), scale)
    try:
        pattern = re.compile(read.pattern)
    except re.error as error:
        raise ValueError(f"`pattern` is not a regular expression: {error}") from None
    if not 1 <= pattern.groups <= 2:
        raise ValueError("`pattern` needs one group, or two: done and total")

    def latest(document: Document) -> float | None:
        log = get(document)
        if type(log) is not str:
            return share(log, scale)
        groups = next(reversed([m.groups() for m in pattern.finditer(log[-_TAIL:])]), None)
        if groups is None:
            return None
        if len(groups) == 1:
            return share(groups[0], scale)
        total = number(groups[1])
        return share(groups[0], total) if total else None

    return latest
