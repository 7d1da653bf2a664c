"""One job API: it makes requests and reads answers, and does no I/O."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from bide.client.apis.answers import Answer, BadPoll, Call, Ref, Seen, UnreadableBatch
from bide.client.apis.auth import Credential, OAuth2
from bide.client.apis.calls import Calls, ref_parts
from bide.client.apis.form import Auth, Description
from bide.client.apis.lookups import Lookups
from bide.client.apis.outputs import Outputs
from bide.client.apis.paths import Document, document, source
from bide.client.apis.reader import ALWAYS, Reader
from bide.client.apis.references import References
from bide.client.apis.submissions import Submissions
from bide.client.apis.toml_lines import within
from bide.client.apis.values import absolute, word
from bide.core.errors import SetupError
from bide.core.pacing.budget import Limit, read_limit


@runtime_checkable
class SigningHook(Protocol):
    """Signs each request directly before it is sent."""

    def sign(self, call: Call, now: float) -> Call: ...


@runtime_checkable
class ReadingHook(Protocol):
    """Reads answers that no table can describe. `seen` is the state by the tables, or None if they cannot read it."""

    def read(self, ref: Ref, answer: Answer, seen: Seen | None) -> Seen: ...


class Api:
    """A description at one address.

    `calls` makes requests about jobs, `submissions` submits them, `reader` reads answers, and `references` reads and
    writes the ids and URLs of jobs.
    """

    is_bide = False  # True: a bide service, which has more operations than other APIs

    def __init__(self, form: Description, url: str | None = None, folder: Path | None = None) -> None:
        self.form = form
        self.name = form.name
        self.url = _base(url if url is not None else form.url)
        self.folder = folder
        self.calls = Calls(form, self.url)
        self.reader = Reader(form, Outputs(form, self.url, self.calls.status_url))
        self.references = References(form, self.url)
        self.lookups = Lookups(form, self.calls)
        self.submissions = Submissions(form, self.calls, self.reader, self.references)
        with within("limits"):
            self.limit: Limit | None = _limit(form.limits.requests)
            self.submit_limit: Limit | None = _limit(form.limits.submits)
        self.concurrent = form.limits.concurrent
        self.grace = form.ask.grace
        self.longpoll = form.ask.longpoll.most if form.ask.longpoll else None
        self.batch = form.batch.most if form.batch else None
        with within("batch"):
            self._items = source(form.batch.items) if form.batch else None
            self._absent = source(form.batch.missing) if form.batch and form.batch.missing else None
            ids = (form.batch.id or form.read.id) if form.batch else None
            self._item_id = source(ids) if ids is not None else None
            self._own_item_id = form.batch is not None and form.batch.id is not None
            self._under = form.batch.under.split(".")[::-1] if form.batch and form.batch.under else ()
        with within("auth"):
            _check_auth(form.auth)
        ask = form.ask
        self._parts = ref_parts(ask)
        self._ids_suffice = form.unique_id or (
            form.written is None and not self._parts and ask.url is None and ask.path is not None
        )
        self._id_in_request = b"{id}" in msgspec.json.encode((ask.query, ask.headers, ask.body))
        hook = _hook(form) if form.hook else None
        self._reading = hook if isinstance(hook, ReadingHook) else None
        self._signing = hook if isinstance(hook, SigningHook) else None
        rules = msgspec.json.encode(
            (form.read, form.result, form.files, form.throttled, form.denied, form.missing)
        )
        # Whether two answers with the same body mean the same.
        self.by_body = self._reading is None and b"header:" not in rules

    def __repr__(self) -> str:
        return f"Api({self.name!r}, {self.url!r})"

    def at(self, url: str) -> Api:
        """The same API at another address."""
        return Api(self.form, url, self.folder)

    # --- jobs

    def text(self, ref: Ref) -> str:
        """The text with which a user names this job; `references.ref` reads it."""
        return self.references.text(ref) or self.status_url(ref) or ref.id

    def job_id(self, ref: Ref) -> str:
        """Identifies a job at this API: two Refs have the same text only if they name the same job.

        The id if that is enough, else the whole Ref in a form that `references.ref` reads.
        """
        if ref.url is None and self._ids_suffice:
            return ref.id
        url = self.calls.status_url(ref)
        if url is not None:
            id, more, known = self.references.of_path(url)
            if known:
                whole = None if self.form.unique_id else self.references.text(Ref(id, None, more)) or url
                return whole or id
            if self.calls.named_url(ref) is not None:
                return f"{url} {ref.id}" if self._id_in_request else url
        parts = [ref.more[name] for name in self._parts if name in ref.more]
        return self.references.text(ref) or "/".join([*parts, ref.id])

    def status_url(self, ref: Ref) -> str | None:
        """The URL that names one job; None if there is none, or all jobs have the same."""
        url = self.calls.status_url(ref)
        return url if url is not None and (ref.url is not None or self.references.base_of(url)) else None

    @property
    def submits(self) -> bool:
        return self.form.submit is not None

    def submitted(self, call: Call, answer: Answer, key: str | None = None) -> tuple[Ref, Seen | None]:
        """The job of an accepted submission, and its state if it is live and the description sets `answers`.

        Throttled, Crowded or ServiceError if it is not accepted.
        """
        ref = self.submissions.accepted(call, answer, key)
        if self.form.submit is None or not self.form.submit.answers:
            return ref, None
        try:
            seen = self.read(ref, Answer(200, answer.headers, answer.body, answer.url))
        except BadPoll:
            return ref, None
        return ref, seen if seen.state == "live" else None

    def read(self, ref: Ref, answer: Answer, age: float = ALWAYS) -> Seen:
        """The state of the job; BadPoll if the answer does not contain it. `age` is in seconds since the submission."""
        if self._reading is None:
            return self.reader.read(ref, answer, age)
        seen = None
        try:
            seen = self.reader.read(ref, answer, age)
        except BadPoll as error:
            if answer.status >= 300 or error.final:
                raise
        return self._reading.read(ref, answer, seen)

    def read_many(self, refs: Sequence[Ref], answer: Answer) -> dict[str, Seen]:
        """The states by id. A job that is left out is not in the answer: it needs a poll of its own.

        UnreadableBatch if no job can be read.
        """
        self.reader.refuse(answer)
        status, found = answer.status, document(answer)
        items = self._items(found) if self._items is not None else None
        if not isinstance(items, list | dict):
            unreadable = UnreadableBatch if found.body is not None else BadPoll
            raise unreadable(status, "the response has no list of jobs")
        by_id = {ref.id: ref for ref in refs}
        seen: dict[str, Seen] = {}
        reason = f"none of the {len(items)} items of the response has the id of one of the jobs"
        for key, raw in items.items() if isinstance(items, dict) else enumerate(items):
            item = raw
            for name in self._under:
                item = {name: item}
            id = key if isinstance(key, str) else None
            if id is None and self._item_id is not None:
                id = word(self._item_id(found.part(raw if self._own_item_id else item)))
            ref = by_id.get(id) if id is not None else None
            if ref is None:
                continue
            try:
                seen[ref.id] = self.reader.seen(ref, Document(item, ref=ref, status=status))
            except BadPoll as error:
                reason = error.detail
        absent = self._absent(found) if self._absent is not None else None
        if isinstance(absent, list) and not self.grace:
            for id in absent:
                if isinstance(id, str) and id in by_id and id not in seen:
                    seen[id] = self.reader.absent(404, "it is not in the list")
        if not seen:
            raise UnreadableBatch(status, reason)
        return seen

    def retry(self, ref: Ref) -> Call | None:
        """The request that runs an ended job again; None if the API has none."""
        return None

    def delete(self, ref: Ref) -> Call | None:
        """The request that deletes an ended job; None if the API has none."""
        return None

    def cancelled(self, answer: Answer) -> Literal["asked", "late"]:
        """Whether the API accepted the cancel, or it was too late; BadPoll otherwise."""
        if 200 <= answer.status < 300:
            return "asked"
        if self.form.cancel is not None and answer.status in self.form.cancel.late:
            return "late"
        self.reader.refuse(answer)
        raise BadPoll(answer.status, self.reader.detail(answer), final=True)

    # --- credentials

    def credential(
        self, key: str | None = None, *, environ: Mapping[str, str] | None = None
    ) -> Credential:
        """The credential that the description names, or the given key; SetupError if it is missing."""
        auth = self.form.auth
        kind = OAuth2 if auth.kind == "oauth2" else Credential
        if auth.kind == "none" and key is not None:
            auth = msgspec.structs.replace(auth, kind="bearer")
        found = kind(auth, key, os.environ if environ is None else environ, self.folder or Path())
        found.renew()
        return found

    def signed(self, call: Call, credential: Credential | None, now: float) -> Call:
        """The call with the credential, if that may go to its host. `now` is in epoch seconds."""
        if not call.authorized:
            return call
        if credential is not None and (added := credential.headers):
            call = Call(
                call.method, call.url, {**call.headers, **added}, call.body, True, call.known, call.hold
            )
        return self._signing.sign(call, now) if self._signing is not None else call

    @property
    def signs(self) -> bool:
        """Whether each request gets a signature of its own."""
        return self._signing is not None


def _base(url: str | None) -> str | None:
    if url is None:
        return None
    found = absolute(None, url)
    if found is None or "@" in found.split("/", 3)[2] or "{" in found or "?" in found or "#" in found:
        raise SetupError(
            "The URL is not the address of an API. Write https://HOST/PATH, without a user or a query"
        )
    return found.rstrip("/")


def _check_auth(auth: Auth) -> None:
    if auth.kind == "oauth2" and absolute(None, auth.token_url) is None:
        raise ValueError("oauth2 needs `token_url`, an http or https URL")
    for name in (auth.header, *auth.headers):
        if not name.isascii() or not name.replace("-", "").isalnum():
            raise ValueError(f"{name!r} is not the name of a header")


def _limit(text: str | None) -> Limit | None:
    return read_limit(text) if text else None


def _hook(form: Description) -> Any:
    module, _, name = (form.hook or "").partition(":")
    try:
        return getattr(import_module(module), name)(form)
    except (ImportError, AttributeError, ValueError) as error:
        raise SetupError(f"the hook {form.hook} of {form.name} cannot be loaded: {error}") from None
