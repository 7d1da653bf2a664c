"""One job API as the rest of the client sees it: it makes requests and reads answers, and does no I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from bide.client.apis.answers import BadPoll, Call, Ref, Seen
from bide.client.apis.auth import Credential, credential
from bide.client.apis.calls import Calls, ref_parts
from bide.client.apis.form import Auth, Description
from bide.client.apis.lines import within
from bide.client.apis.next_page import NextCheck
from bide.client.apis.outputs import Outputs
from bide.client.apis.paths import Headers, source
from bide.client.apis.reading import Reader
from bide.client.apis.references import References
from bide.client.apis.signs import document
from bide.client.apis.submitting import Submissions
from bide.client.apis.values import absolute, word
from bide.core.budget import Limit, read_limit
from bide.core.errors import SetupError

ALWAYS = math.inf


@runtime_checkable
class Signs(Protocol):
    """A hook that signs requests: it is given each request as it is about to be sent."""

    def sign(self, call: Call, now: float) -> Call: ...


@runtime_checkable
class Reads(Protocol):
    """A hook that reads answers, where no table can say how; `seen` is what the tables make of it, when they can."""

    def read(self, ref: Ref, status: int, headers: Headers, body: bytes, seen: Seen | None) -> Seen: ...


class Api:
    """A description at one address."""

    def __init__(self, form: Description, url: str | None = None, folder: Path | None = None) -> None:
        self.form = form
        self.name = form.name
        self.url = _base(url if url is not None else form.url)
        self.folder = folder
        self._calls = Calls(form, self.url)
        self._reader = Reader(form, Outputs(form, self.url, self._calls.status_url))
        self._references = References(form, self.url)
        self._submissions = Submissions(form, self._calls, self._reader, self._references)
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
        with within("auth"):
            _check_auth(form.auth)
        ask = form.ask
        self._parts = ref_parts(ask)
        self._ids_suffice = form.unique_id or (
            form.written is None and not self._parts and ask.url is None and ask.path is not None
        )
        self._id_in_request = b"{id}" in msgspec.json.encode((ask.query, ask.headers, ask.body))
        hook = _hook(form) if form.hook else None
        self._reading = hook if isinstance(hook, Reads) else None
        self._signing = hook if isinstance(hook, Signs) else None
        told = msgspec.json.encode((form.read, form.result, form.files, form.throttled, form.missing))
        # Whether two answers with the same body say the same.
        self.by_body = self._reading is None and b"header:" not in told

    def __repr__(self) -> str:
        return f"Api({self.name!r}, {self.url!r})"

    def at(self, url: str) -> Api:
        """The same API at another address."""
        return Api(self.form, url, self.folder)

    # --- jobs

    def ref(self, text: str) -> Ref:
        """From the id or the URL that a person gave; SetupError says what is wrong with it."""
        return self._references.ref(text)

    def text(self, ref: Ref) -> str:
        """How a person writes a job: what `ref` takes."""
        return self._references.text(ref) or self.status_url(ref) or ref.id

    def job_id(self, ref: Ref) -> str:
        """What identifies a job at this API: two references give the same text only when they lead to the same job.

        The id where that alone leads to the job, else the whole reference in a form that `ref` reads.
        """
        if ref.url is None and self._ids_suffice:
            return ref.id
        url = self._calls.status_url(ref)
        if url is not None:
            id, more, known = self._references.of_path(url)
            if known:
                whole = (
                    None if self.form.unique_id else self._references.text(Ref(id, None, more)) or url
                )
                return whole or id
            if self._calls.told_url(ref) is not None:
                return f"{url} {ref.id}" if self._id_in_request else url
        parts = [ref.more[name] for name in self._parts if name in ref.more]
        return self._references.text(ref) or "/".join([*parts, ref.id])

    def status_url(self, ref: Ref) -> str | None:
        """The address that names one job; None when that cannot be said, or all jobs have the same."""
        url = self._calls.status_url(ref)
        return url if url is not None and (ref.url is not None or self.base_of(url)) else None

    def base_of(self, url: str) -> str | None:
        """The address of the service in the URL of one of its jobs."""
        return self._references.base_of(url)

    @property
    def submits(self) -> bool:
        return self.form.submit is not None

    @property
    def keyed(self) -> bool:
        """Whether a submission can carry an idempotency key."""
        return self._submissions.keyed

    def submit(self, kind: str, input: Any, key: str | None = None) -> Call:
        return self._submissions.submit(kind, input, key)

    def accepted(
        self, call: Call, status: int, headers: Headers, body: bytes, key: str | None = None
    ) -> Ref:
        return self._submissions.accepted(call, status, headers, body, key)

    def first(self, ref: Ref, headers: Headers, body: bytes) -> Seen | None:
        """What the answer to a submission already says of a job that goes on; None when it need not be able to."""
        if self.form.submit is None or not self.form.submit.answers:
            return None
        try:
            seen = self.read(ref, 200, headers, body)
        except BadPoll:
            return None
        return seen if seen.state == "live" else None

    def then(self, ref: Ref, kind: str, input: Any) -> tuple[Call, ...]:
        return self._submissions.then(ref, kind, input)

    # --- asking

    def ask(self, ref: Ref, etag: str | None = None, hold: float | None = None) -> Call:
        return self._calls.ask(ref, etag, hold)

    def ask_many(self, refs: Sequence[Ref]) -> Call | None:
        return self._calls.ask_many(refs)

    def read(self, ref: Ref, status: int, headers: Headers, body: bytes, age: float = ALWAYS) -> Seen:
        """BadPoll when the answer says nothing about the job; `age` is how long it is known to be there."""
        if self._reading is None:
            return self._reader.read(ref, status, headers, body, age)
        seen = None
        try:
            seen = self._reader.read(ref, status, headers, body, age)
        except BadPoll as error:
            if status >= 300 or error.final:
                raise
        return self._reading.read(ref, status, headers, body, seen)

    def batch_group(self, ref: Ref) -> tuple[str | None, ...]:
        """Jobs of the same group can be asked about in one request."""
        return self._calls.batch_group(ref)

    def read_many(
        self, refs: Sequence[Ref], status: int, headers: Headers, body: bytes
    ) -> dict[str, Seen]:
        """By id. A job that is not in it was not told about: it has to be asked about alone."""
        self._reader.refuse(status, headers, body)
        found = document(body)
        items = self._items(found, headers, None) if self._items is not None else None
        if not isinstance(items, list | dict):
            raise BadPoll(status, "the answer has no list of jobs")
        by_id = {ref.id: ref for ref in refs}
        seen: dict[str, Seen] = {}
        for key, item in items.items() if isinstance(items, dict) else enumerate(items):
            id = key if isinstance(key, str) else None
            if id is None and self._item_id is not None:
                id = word(self._item_id(item, headers, None))
            ref = by_id.get(id) if id is not None else None
            if ref is None:
                continue
            try:
                seen[ref.id] = self._reader.seen(ref, status, {}, item)
            except BadPoll:
                continue
        absent = self._absent(found, headers, None) if self._absent is not None else None
        if isinstance(absent, list) and not self.grace:
            for id in absent:
                if isinstance(id, str) and id in by_id and id not in seen:
                    seen[id] = self._reader.absent(404, ALWAYS, "it is not in the list")
        return seen

    # --- ending

    def result(self, ref: Ref, seen: Seen) -> Call | None:
        """The request for the result; None when the answer had it, or there is none."""
        return self._calls.result(seen)

    def fetch(self, url: str) -> Call:
        """The request for a file of a job."""
        return self._calls.fetch(url)

    def next_page(self, call: Call, headers: Headers, body: bytes) -> Call | None:
        """The request for what follows a page of a result."""
        return self._calls.next_page(call, headers, body)

    def next_check(self) -> NextCheck:
        """For the pages of one result."""
        return self._calls.next_check()

    def cancel(self, ref: Ref, message: str | None = None) -> Call | None:
        """None when the API cannot. `message` is what the job said last."""
        return self._calls.cancel(ref, message)

    def cancelled(self, status: int, headers: Headers, body: bytes) -> Literal["asked", "late"]:
        """Whether a cancel was taken, or came too late; BadPoll otherwise."""
        if 200 <= status < 300:
            return "asked"
        if self.form.cancel is not None and status in self.form.cancel.late:
            return "late"
        self._reader.refuse(status, headers, body)
        raise BadPoll(status, self._reader.detail(status, body), final=True)

    # --- refusals and credentials

    def refuse(self, status: int, headers: Headers, body: bytes) -> None:
        """BadPoll unless the answer is a success."""
        self._reader.refuse(status, headers, body)

    def absent(self, status: int, detail: str, age: float = ALWAYS) -> Seen:
        """What it means that the API does not know a job."""
        return self._reader.absent(status, age, detail)

    def reads(self, status: int) -> bool:
        """Whether this HTTP status by itself says how a job goes: then it is no redirect."""
        return self._reader.reads(status)

    def followed(self, call: Call, location: str | None) -> Call | None:
        """The request that a redirect asks for; the credential goes along only to whom it is meant for."""
        url = absolute(call.url, location)
        if url is None:
            return None
        return Call("GET", url, call.headers, b"", self._calls.meant(url), hold=call.hold)

    def meant(self, url: str) -> bool:
        """Whether the credential may go to this address."""
        return self._calls.meant(url)

    def throttled(self, status: int, headers: Headers, body: bytes) -> bool:
        """Too many requests; False for too many jobs, which says nothing about requests."""
        return self._reader.throttled(status, headers, body)

    def crowded(self, status: int, headers: Headers, body: bytes) -> bool:
        """Too many jobs at once."""
        return self._reader.crowded(status, headers, body)

    def credential(self, key: str | None = None, **options: Any) -> Credential:
        return credential(self.form.auth, key, folder=self.folder, **options)

    def signed(self, call: Call, credential: Credential | None, now: float) -> Call:
        """With the credential, when the call goes to whom it is meant for. `now` is in epoch seconds."""
        if not call.authorized:
            return call
        if credential is not None and (added := credential.headers()):
            call = Call(
                call.method, call.url, {**call.headers, **added}, call.body, True, call.known, call.hold
            )
        return self._signing.sign(call, now) if self._signing is not None else call

    @property
    def signs(self) -> bool:
        """Whether each request is signed by itself."""
        return self._signing is not None


def _base(url: str | None) -> str | None:
    if url is None:
        return None
    found = absolute(None, url)
    if found is None or "@" in found.split("/", 3)[2] or "{" in found or "?" in found or "#" in found:
        raise SetupError(
            "that is not the address of an API: write https://HOST/PATH, without a user or a query"
        )
    return found.rstrip("/")


def _check_auth(auth: Auth) -> None:
    if auth.kind == "oauth2" and absolute(None, auth.token_url) is None:
        raise ValueError("oauth2 needs `token_url`, an http or https URL")
    if not auth.header.isascii() or not auth.header.replace("-", "").isalnum():
        raise ValueError(f"{auth.header!r} is not the name of a header")


def _limit(text: str | None) -> Limit | None:
    return read_limit(text) if text else None


def _hook(form: Description) -> Any:
    module, _, name = (form.hook or "").partition(":")
    try:
        return getattr(import_module(module), name)(form)
    except (ImportError, AttributeError, ValueError) as error:
        raise SetupError(f"the hook {form.hook} of {form.name} cannot be loaded: {error}") from None
