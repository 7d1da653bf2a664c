"""Makes the requests to an API about existing jobs: poll one or many, cancel, fetch a result.

1. The credential goes only to the API's own origin and to the hosts that the description names, whatever URL an
   answer contains.
2. Every poll calls `ask`, so it is fast: its URL is an id between two prepared texts, and its headers are shared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from bide.client.apis.answers import Call, Ref
from bide.client.apis.form import Batch, Description, Next, Request, Result
from bide.client.apis.pagination import NextPage
from bide.client.apis.paths import Document
from bide.client.apis.requests import Prepared, with_query
from bide.client.apis.templates import MissingValue
from bide.client.apis.toml_lines import within
from bide.client.apis.values import absolute, origin
from bide.core.errors import SetupError

ACCEPT = "application/json"
# Characters of a job's last message in a cancel: Airflow accepts 1,000 for the whole note.
LONGEST_MESSAGE = 900
_OF_JOB = frozenset(("id", "null", "ref"))
_PART = re.compile(r"\{\+?ref\.([a-z_]+)")


def ref_parts(request: Request | None) -> tuple[str, ...]:
    """The parts of a Ref, other than its id, that a request needs."""
    found = _PART.findall(msgspec.json.encode(request).decode())
    return tuple(dict.fromkeys(found))


class Calls:
    """The requests of one description at one base URL."""

    def __init__(self, form: Description, base: str | None) -> None:
        self._form = form
        self._base = base
        self._origin = origin(base) if base else None
        self._origin_prefix = f"{base.split('/', 3)[0]}//{base.split('/', 3)[2]}/" if base else None
        self._trusted = lru_cache(256)(self._check_trust)
        self.common = {"Accept": ACCEPT, **form.headers}
        with within("ask"):
            self._ask = self.prepared(form.ask, _OF_JOB)
        self._longest = form.ask.longpoll.most if form.ask.longpoll else 0.0
        self._held = lru_cache(4)(self._prepare_held)  # by the seconds of the hold
        with within("ask", "longpoll"):
            self._held(self._longest)
        with within("cancel"):
            self._cancel = self.prepared(form.cancel, _OF_JOB | {"message"}) if form.cancel else None
        with within("batch"):
            self._batch = self._prepare_batch(form.batch) if form.batch else None
        self._batch_parts = ref_parts(form.batch)
        self._next = form.result.next if form.result else None
        with within("result", "next"):
            if self._next and self._next.link and self._next.may_be_absent:
                raise ValueError("`may_be_absent` needs `value`: the Link header may always be absent")
            if self._next is not None:
                _check_counting(self._next)
            self.next_page()
        with within("result"):
            self._result = self._prepare_result(form.result)
        self._fetch_headers = {**self.common, "Accept": "*/*"}
        if form.result is not None:
            self._fetch_headers |= form.result.headers

    def prepared(self, request: Request, names: frozenset[str]) -> Prepared:
        return Prepared(request, self._base, self.common, names)

    def _prepare_held(self, hold: float) -> tuple[Prepared, dict[str, str]]:
        """The poll that asks the API to hold the request, and what it adds to the query; without [ask.longpoll] the usual
        one.
        """
        ask, poll = self._form.ask, self._form.ask.longpoll
        if poll is None:
            return self._ask, {}
        if not poll.most > 0 or not (poll.headers or poll.query):
            raise ValueError("[ask.longpoll] needs `headers` or `query`, and `most` above 0")
        headers, query = (
            {name: text.replace("{hold}", str(int(hold))) for name, text in texts.items()}
            for texts in (poll.headers, poll.query)
        )
        unheld = {name: text for name, text in ask.query.items() if name not in poll.without}
        held = Request(
            method=ask.method,
            path=ask.path,
            url=ask.url,
            headers={**ask.headers, **headers},
            query={**unheld, **query},
            body=ask.body,
            encode=ask.encode,
        )
        fixed = {name: text for name, text in query.items() if "{" not in text}
        return self.prepared(held, _OF_JOB), fixed

    def _prepare_batch(self, batch: Batch) -> Prepared:
        if batch.most < 1:
            raise ValueError("`most` must be 1 or more")
        if batch.url is not None:
            raise ValueError("[batch] needs `path`, not `url`")
        return self.prepared(batch, frozenset(("ids", "null", "ref")))

    def _prepare_result(self, result: Result | None) -> Prepared | None:
        """None if the URL of a result is all that its request needs."""
        if result is None or (result.method == "GET" and result.body is None):
            return None
        if result.url is not None or result.next is not None:
            raise ValueError("`method` and `body` need `path`, without `url` and `next`")
        return self.prepared(result, _OF_JOB | {"body"})

    # --- polls

    def named_url(self, ref: Ref) -> str | None:
        """The URL of a job's status if the API named it."""
        if ref.url is None and self._ask.source is not None:
            return absolute(self._base, self._ask.source(Document(None, ref=ref)))
        return ref.url

    def status_url(self, ref: Ref, ask: Prepared | None = None) -> str | None:
        """The URL of a job's status, in the form of the request `ask`; None if it cannot be made."""
        ask = ask or self._ask
        url = self.named_url(ref)
        if url is not None or not ask.has_path or self._base is None:
            return url
        found = ask.address.around(ref.id)
        if found is not None:
            return found
        try:
            return ask.address.fill({"id": ref.id, "ref": ref.more})
        except MissingValue:
            return None

    def ask(self, ref: Ref, etag: str | None = None, hold: float | None = None) -> Call:
        """The request for a job's status; SetupError if its URL cannot be made."""
        ask, held, added = self._ask, 0.0, None
        if hold and self._longest:
            held = max(1.0, min(hold, self._longest))
            ask, added = self._held(held)
        url = self.status_url(ref, ask)
        if url is None:
            raise SetupError(
                f"The URL of job {ref.id} at {self._form.name} is not known. Use the job's URL, or set the API's address"
            )
        if added and self.named_url(ref) is not None:
            url = with_query(url, list(added.items()))
        headers, body = ask.headers, b""
        if not ask.fixed:
            url, headers, body = ask.filled({"id": ref.id, "ref": ref.more}, url)
        if etag and self._form.ask.etag:
            headers = {**headers, "If-None-Match": etag}
        return Call(ask.method, url, headers, body, self.trusts(url), {}, held)

    def batch_group(self, ref: Ref) -> tuple[str | None, ...]:
        """One request can poll jobs of the same group."""
        return tuple(ref.more.get(name) for name in self._batch_parts)

    def ask_many(self, refs: Sequence[Ref]) -> Call | None:
        """One request for the status of several jobs; None if the API has none, or not for these jobs together."""
        batch, form = self._batch, self._form.batch
        if batch is None or form is None or not refs or self._base is None:
            return None
        if len(refs) > form.most:
            raise ValueError(f"{self._form.name} accepts {form.most} ids per request, not {len(refs)}")
        group = self.batch_group(refs[0])
        ids: Any = [ref.id for ref in refs]
        # The answer names jobs by their ids, so it cannot distinguish two jobs with the same id.
        if len(set(ids)) < len(ids) or any(self.batch_group(ref) != group for ref in refs):
            return None
        if form.ids == "comma":
            ids = [",".join(ids)]
        url, headers, body = batch.filled({"ids": ids, "ref": refs[0].more})
        return Call(batch.method, url, headers, body, self.trusts(url))

    # --- cancels and results

    def cancel(self, ref: Ref, message: str | None = None) -> Call | None:
        """None if the API cannot cancel. `message` is the job's last message."""
        cancel = self._cancel
        if cancel is None:
            return None
        values = {"id": ref.id, "ref": ref.more, "message": (message or "")[:LONGEST_MESSAGE]}
        url = None
        if cancel.source is not None:
            url = absolute(self.status_url(ref), cancel.source(Document(None, ref=ref)))
        if url is None and (not cancel.has_path or self._base is None):
            return None
        try:
            url, headers, body = cancel.filled(values, url)
        except MissingValue:
            return None
        return Call(cancel.method, url, headers, body, self.trusts(url))

    def result(self, ref: Ref, url: str) -> Call:
        """The request for a result at its URL."""
        if self._result is None:
            return self.fetch(url)
        url, headers, body = self._result.filled({"id": ref.id, "ref": ref.more}, url)
        return Call(self._result.method, url, headers, body, self.trusts(url))

    @property
    def downloads_result(self) -> bool:
        """Whether a GET of the URL of a result returns it."""
        return self._result is None

    def fetch(self, url: str) -> Call:
        """The request for a result, a file, or one of its pages, at any host."""
        return Call("GET", url, self._fetch_headers, b"", self.trusts(url))

    def next_page(self) -> NextPage | None:
        """The rule for the pages of one result; None if results have no pages."""
        rule = self._next
        if rule is None:
            return None
        return NextPage(
            link=rule.link,
            value=rule.value,
            query=rule.query,
            where=f"`{'value' if rule.items is None else 'items'}` of [result.next]",
            may_be_absent=rule.may_be_absent,
            items=rule.items,
            total=rule.total,
            stops_at_itself=True,
        )

    # --- trusted hosts

    def trusts(self, url: str) -> bool:
        """Whether the credential may go to this URL."""
        if self._origin_prefix is not None and url.startswith(self._origin_prefix):
            return True
        return self._trusted(url)

    def _check_trust(self, url: str) -> bool:
        target = origin(url)
        if target is None or self._origin is None:
            return False
        if target == self._origin:
            return True
        scheme, host, _ = target
        if scheme != "https" and self._origin[0] == "https":
            return False
        return any(
            host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern
            for pattern in self._form.auth.hosts
        )


def _check_counting(rule: Next) -> None:
    if rule.items is None:
        if rule.total is not None:
            raise ValueError("`total` needs `items`")
    elif rule.query is None or rule.value is not None or rule.link:
        raise ValueError("`items` needs `query`, without `value` and `link`")
