"""Makes the request that submits a job, and reads the job's Ref from the answer.

An answer that names no job is an error, because the job could not be found again.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from bide.client.apis.answers import Answer, BadPoll, Call, Crowded, Ref
from bide.client.apis.calls import Calls
from bide.client.apis.form import Description, Submit
from bide.client.apis.paths import Document, document, source, steps, walk
from bide.client.apis.reader import Reader
from bide.client.apis.references import References, usable
from bide.client.apis.templates import MissingValue
from bide.client.apis.toml_lines import within
from bide.client.apis.values import absolute, word
from bide.core.errors import ServiceError, SetupError

_OF_SUBMISSION = frozenset(("input", "key", "kind", "null"))
_AFTER = _OF_SUBMISSION | {"id", "ref"}
_REQUEST_SOURCES = ("call:", "input:")


class Submissions:
    def __init__(self, form: Description, calls: Calls, reader: Reader, references: References) -> None:
        self._form = form
        self._calls = calls
        self._reader = reader
        self._references = references
        self._submit = form.submit
        self.keyed = False  # whether the request has a place for an idempotency key
        if form.submit is not None:
            with within("submit"):
                self._prepare(form.submit)

    def _prepare(self, submit: Submit) -> None:
        if submit.path is None:
            raise ValueError("[submit] needs `path`")
        if submit.again and not self._keyed(submit):
            raise ValueError("`again` needs `{key}` in the request: it is the job's id")
        if submit.id is None and submit.status_url is None:
            raise ValueError(
                "[submit] needs `id` or `status_url`: the source of the job's id or URL in the response"
            )
        self._request = self._calls.prepared(submit, _OF_SUBMISSION)
        self._then = [self._calls.prepared(request, _AFTER) for request in submit.then]
        self._id = source(submit.id) if submit.id is not None else None
        self._url = source(submit.status_url) if submit.status_url is not None else None
        self._from_request = {n: s for n, s in submit.remember.items() if _is_from_request(s)}
        for path in self._from_request.values():
            steps(str(path).partition(":")[2])
        self._from_response = {
            n: source(s) for n, s in submit.remember.items() if not _is_from_request(s)
        }
        self.keyed = self._keyed(submit)
        try:
            self._key = re.compile(submit.key_pattern) if submit.key_pattern else None
        except re.error as error:
            raise ValueError(f"`key_pattern` is not a regular expression: {error}") from None

    @staticmethod
    def _keyed(submit: Submit) -> bool:
        return b"{key}" in msgspec.json.encode(submit)

    def submit(self, kind: str, input: Any, key: str | None = None) -> Call:
        """The request for a submission; SetupError if the description has no [submit], or the API rejects a value."""
        name = self._form.name
        if self._submit is None:
            raise SetupError(f"the description of {name} does not say how to submit a job")
        if key is not None and not self.keyed:
            raise SetupError(f"{name} has no idempotency keys, so a retry would create a second job")
        if key is not None and self._key is not None and not self._key.fullmatch(key):
            raise SetupError(
                f"{name} rejects the idempotency key {key!r}: it must match {self._key.pattern}"
            )
        values = {"kind": kind or None, "input": input, "key": key}
        try:
            url, headers, body = self._request.filled(values)
        except (MissingValue, ValueError) as error:
            raise SetupError(f"{name}: {error}") from None
        if absolute(None, url) is None:
            raise SetupError(f"{name} needs the address of the service: give its URL")
        known = self._known(kind, input, url)
        return Call(self._request.method, url, headers, body, self._calls.trusts(url), known)

    def _known(self, kind: str, input: Any, url: str) -> dict[str, str]:
        known = {}
        for name, path in self._from_request.items():
            place, _, rest = str(path).partition(":")
            values = {"kind": kind, "url": url} if place == "call" else input
            value = word(walk(values, steps(rest)))
            if value is not None:
                known[name] = value
        return known

    def then(self, ref: Ref, kind: str, input: Any) -> tuple[Call, ...]:
        """The requests that an API needs after it has created a job, before it runs the job."""
        if self._submit is None:
            return ()
        values = {"id": ref.id, "ref": ref.more, "kind": kind or None, "input": input}
        calls = []
        for request in self._then:
            url = None
            if request.source is not None:
                url = absolute(self._calls.status_url(ref), request.source(Document(None, ref=ref)))
            try:
                url, headers, body = request.filled(values, url)
            except MissingValue as error:
                raise SetupError(f"{self._form.name}: {error}") from None
            calls.append(Call(request.method, url, headers, body, self._calls.trusts(url)))
        return tuple(calls)

    def accepted(self, call: Call, answer: Answer, key: str | None = None) -> Ref:
        """The job of an accepted submission, whose idempotency key is `key`; else Throttled, Crowded or ServiceError."""
        submit = self._submit
        assert submit is not None
        status = answer.status
        if key is not None and status in submit.again:
            return Ref(key, None, dict(call.known))
        if self._reader.crowded(answer):
            raise Crowded(status, self._reader.detail(answer))
        self._reader.check(answer)
        if status not in submit.ok:
            raise ServiceError(
                status,
                {"code": f"http-{status}", "detail": self._reader.detail(answer)},
                call.url.partition("?")[0],
            )
        found = document(answer)
        id = word(self._id(found)) if self._id is not None else None
        url = absolute(call.url, self._url(found)) if self._url is not None else None
        more = dict(call.known)
        for name, get in self._from_response.items():
            value = word(get(found))
            if value is not None:
                more[name] = value
        if id is None and url is not None:
            id, from_url, known = self._references.of_path(url)
            more = {**from_url, **more}
            url = None if known else url
        if id is None or not (usable(id) or url is not None):
            reason = "is not JSON" if found.body is None and answer.body else "names no job"
            raise answer.unreadable(f"the response to the submission {reason}")
        ref = Ref(id, url, more)
        if self._calls.status_url(ref) is None:
            raise BadPoll(status, "the response to the submission has no URL for the job's status")
        return ref


def _is_from_request(path: str | list[str]) -> bool:
    return isinstance(path, str) and path.startswith(_REQUEST_SOURCES)
