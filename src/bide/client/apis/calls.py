"""The requests of an API: to ask, to ask about many, to cancel, to fetch the result.

1. The credential goes to the API's own origin and to the hosts that the description names, and to nobody else:
   wherever an answer may point.
2. `ask` is on the way of every poll: the address is an id between two texts, the headers are shared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from bide.client.apis.answers import Call, Ref, Seen
from bide.client.apis.form import Ask, Batch, Description, Request
from bide.client.apis.lines import within
from bide.client.apis.links import next_link
from bide.client.apis.next_page import NextCheck
from bide.client.apis.paths import Headers, source
from bide.client.apis.requests import Prepared
from bide.client.apis.signs import document
from bide.client.apis.templates import MissingValue
from bide.client.apis.values import absolute, origin, word
from bide.core.errors import SetupError

ACCEPT = "application/json"
LONGEST_MESSAGE = (
    900  # characters of a job's last message in a cancel: Airflow takes 1,000 for all of the note
)
_OF_JOB = frozenset(("id", "null", "ref"))
_PART = re.compile(r"\{\+?ref\.([a-z_]+)")


def ref_parts(request: Request | None) -> tuple[str, ...]:
    """The parts of a reference other than its id that a request is made with."""
    found = _PART.findall(msgspec.json.encode(request).decode())
    return tuple(dict.fromkeys(found))


class Calls:
    """The requests about jobs that exist, at one base address."""

    def __init__(self, form: Description, base: str | None) -> None:
        self._form = form
        self._base = base
        self._origin = origin(base) if base else None
        self._near = f"{base.split('/', 3)[0]}//{base.split('/', 3)[2]}/" if base else None
        self._meant = lru_cache(256)(self._check_meant)
        self.common = {"Accept": ACCEPT, **form.headers}
        with within("ask"):
            self._ask = self.prepared(form.ask, _OF_JOB)
        with within("ask", "longpoll"):
            self._held = self._prepare_held(form.ask)
        self._longest = form.ask.longpoll.most if form.ask.longpoll else 0.0
        with within("cancel"):
            self._cancel = self.prepared(form.cancel, _OF_JOB | {"message"}) if form.cancel else None
        with within("batch"):
            self._batch = self._prepare_batch(form.batch) if form.batch else None
        self._batch_parts = ref_parts(form.batch)
        self._next = form.result.next if form.result else None
        with within("result", "next"):
            if self._next and self._next.link and self._next.may_be_absent:
                raise ValueError(
                    "`may_be_absent` is about `value`: the Link header may always be absent"
                )
            self._next_value = source(self._next.value) if self._next and self._next.value else None
        self._fetch_headers = {**self.common, "Accept": "*/*"}
        if form.result is not None:
            self._fetch_headers |= form.result.headers

    def prepared(self, request: Request, names: frozenset[str]) -> Prepared:
        return Prepared(request, self._base, self.common, names)

    def _prepare_held(self, ask: Ask) -> Prepared | None:
        poll = ask.longpoll
        if poll is None:
            return None
        if not poll.most > 0 or not (poll.headers or poll.query):
            raise ValueError("[ask.longpoll] needs `headers` or `query`, and `most` above 0")
        query = {name: text for name, text in ask.query.items() if name not in poll.without}
        held = Request(
            method=ask.method,
            path=ask.path,
            url=ask.url,
            headers={**ask.headers, **poll.headers},
            query={**query, **poll.query},
            body=ask.body,
            encode=ask.encode,
        )
        return self.prepared(held, _OF_JOB | {"hold"})

    def _prepare_batch(self, batch: Batch) -> Prepared:
        if batch.most < 1:
            raise ValueError("`most` must be 1 or more")
        if batch.url is not None:
            raise ValueError("[batch] needs `path`, not `url`")
        return self.prepared(batch, frozenset(("ids", "null", "ref")))

    # --- asking

    def told_url(self, ref: Ref) -> str | None:
        """Where a job's status is, when the API said so."""
        if ref.url is None and self._ask.source is not None:
            return absolute(self._base, self._ask.source(None, {}, ref))
        return ref.url

    def status_url(self, ref: Ref) -> str | None:
        """Where a job's status is; None when that cannot be said."""
        url = self.told_url(ref)
        if url is not None or not self._ask.has_path or self._base is None:
            return url
        found = self._ask.address.around(ref.id)
        if found is not None:
            return found
        try:
            return self._ask.address.fill({"id": ref.id, "ref": ref.more})
        except MissingValue:
            return None

    def ask(self, ref: Ref, etag: str | None, hold: float | None) -> Call:
        url = self.status_url(ref)
        if url is None:
            raise SetupError(
                f"where job {ref.id} is at {self._form.name} cannot be said: give its URL, or the API's address"
            )
        ask = self._ask
        held = 0.0
        values: dict[str, Any] | None = None
        if hold and self._held is not None:
            held = max(1.0, min(hold, self._longest))
            ask = self._held
            values = {"id": ref.id, "ref": ref.more, "hold": int(held)}
            if ref.url is None and ask.has_path:
                url = ask.address.fill(values)
        headers, body = ask.headers, b""
        if not ask.fixed:
            values = values or {"id": ref.id, "ref": ref.more}
            url = ask.url(values, url)
            headers, body = ask.filled_headers(values), ask.body(values)
        if etag and self._form.ask.etag:
            headers = {**headers, "If-None-Match": etag}
        return Call(ask.method, url, headers, body, self.meant(url), {}, held)

    def batch_group(self, ref: Ref) -> tuple[str | None, ...]:
        return tuple(ref.more.get(name) for name in self._batch_parts)

    def ask_many(self, refs: Sequence[Ref]) -> Call | None:
        """None when the API cannot, or not about these jobs together."""
        batch, form = self._batch, self._form.batch
        if batch is None or form is None or not refs or self._base is None:
            return None
        if len(refs) > form.most:
            raise ValueError(f"{self._form.name} takes {form.most} ids in one request, not {len(refs)}")
        group = self.batch_group(refs[0])
        ids: Any = [ref.id for ref in refs]
        # The answer names jobs by their ids: two with the same one cannot be told apart.
        if len(set(ids)) < len(ids) or any(self.batch_group(ref) != group for ref in refs):
            return None
        if form.ids == "comma":
            ids = [",".join(ids)]
        values = {"ids": ids, "ref": refs[0].more}
        url = batch.url(values)
        return Call(batch.method, url, batch.filled_headers(values), batch.body(values), self.meant(url))

    # --- ending

    def cancel(self, ref: Ref, message: str | None) -> Call | None:
        cancel = self._cancel
        if cancel is None:
            return None
        values = {"id": ref.id, "ref": ref.more, "message": (message or "")[:LONGEST_MESSAGE]}
        url = None
        if cancel.source is not None:
            url = absolute(self.status_url(ref), cancel.source(None, {}, ref))
        if url is None and (not cancel.has_path or self._base is None):
            return None
        try:
            url = cancel.url(values, url)
        except MissingValue:
            return None
        return Call(
            cancel.method, url, cancel.filled_headers(values), cancel.body(values), self.meant(url)
        )

    def result(self, seen: Seen) -> Call | None:
        if seen.result is not None or seen.result_url is None:
            return None
        return self.fetch(seen.result_url)

    def fetch(self, url: str) -> Call:
        """A result, a file, or a page of one; it may be anywhere."""
        return Call("GET", url, self._fetch_headers, b"", self.meant(url))

    def next_page(self, call: Call, headers: Headers, body: bytes) -> Call | None:
        rule = self._next
        if rule is None:
            return None
        if rule.link:
            url = next_link(call.url, headers)
        else:
            get = self._next_value
            found = get(document(body), headers, None) if get is not None else None
            value = word(found) if found is not None and found is not False else None
            if value is None or value == "null":
                return None
            url = _replaced(call.url, rule.query, value) if rule.query else absolute(call.url, value)
        return self.fetch(url) if url and url != call.url else None

    def next_check(self) -> NextCheck:
        rule = self._next
        if rule is None or rule.link:
            return NextCheck(None, "", True)
        return NextCheck(rule.value, "`value` of [result.next]", rule.may_be_absent)

    # --- whom the credential is meant for

    def meant(self, url: str) -> bool:
        if self._near is not None and url.startswith(self._near):
            return True
        return self._meant(url)

    def _check_meant(self, url: str) -> bool:
        goal = origin(url)
        if goal is None or self._origin is None:
            return False
        if goal == self._origin:
            return True
        scheme, host, _ = goal
        if scheme != "https" and self._origin[0] == "https":
            return False
        return any(
            host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern
            for pattern in self._form.auth.hosts
        )


def _replaced(url: str, name: str, value: str) -> str:
    parts = urlsplit(url)
    query = [(k, v) for k, v in parse_qsl(parts.query, keep_blank_values=True) if k != name]
    return parts._replace(query=urlencode([*query, (name, value)])).geturl()
