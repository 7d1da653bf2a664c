"""The schema of a description: the fields of each table of the TOML file. docs/reference/descriptions.md explains it.

Only types and defaults are here. Sources (paths.py), templates (templates.py), limits and patterns are compiled where
they are used, when the description is loaded.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from bide.client.apis.answers import State

Sources = str | list[str]
Outcome = Literal["live", "done", "failed", "cancelled", "partial"]


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table; an unknown field is an error, because it would have no effect."""


class Secret(Table, frozen=True, kw_only=True):
    """Where a secret is read from. A description never contains one."""

    env: str | list[str] = []
    file: str | None = None
    command: list[str] | None = None


class Auth(Table, frozen=True, kw_only=True):
    kind: Literal["none", "header", "bearer", "basic", "oauth2"] = "none"
    header: str = "Authorization"
    prefix: str | None = None
    secret: Secret = Secret()
    user: Secret | str | None = None
    hosts: list[str] = []
    headers: dict[str, Secret] = {}
    optional: bool = False
    # OAuth2
    grant: Literal["client_credentials", "refresh_token"] = "client_credentials"
    token_url: str | None = None
    client_id: Secret | str | None = None
    client_in: Literal["body", "header"] = "body"
    refresh_token: Secret | None = None
    scope: str | None = None
    extra: dict[str, str] = {}


class Request(Table, frozen=True, kw_only=True):
    """One request."""

    method: str = "GET"
    path: str | None = None
    url: Sources | None = None
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    body: Any = None
    encode: Literal["json", "form", "text"] = "json"


class KindLookup(Request, frozen=True, kw_only=True):
    """Finds the API's id of a kind."""

    kinds: str
    kind: Sources


class Submit(Request, frozen=True, kw_only=True):
    method: str = "POST"
    ok: tuple[int, ...] = (200, 201, 202)
    again: tuple[int, ...] = ()
    id: Sources | None = None
    status_url: Sources | None = None
    remember: dict[str, Sources] = {}
    key_pattern: str | None = None
    answers: bool = False
    lookup: KindLookup | None = None
    then: list[Request] = []


class LongPoll(Table, frozen=True, kw_only=True):
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    most: float = 30.0
    without: list[str] = []


class Ask(Request, frozen=True, kw_only=True):
    etag: bool = False
    grace: float = 0.0
    longpoll: LongPoll | None = None


class Tally(Table, frozen=True, kw_only=True):
    """Counts of parts, for an API where only these show how a job ended."""

    done: Sources
    failed: Sources | None = None
    cancelled: Sources | None = None


class Error(Table, frozen=True, kw_only=True):
    code: Sources | None = None
    message: Sources | None = None
    step: Sources | None = None
    retryable: list[str] = []
    cancelled: list[str] = []


class Mark(Table, frozen=True, kw_only=True):
    """A text that adds to the status."""

    source: Sources
    contains: str


class Read(Table, frozen=True, kw_only=True):
    status: Sources | None = None
    id: Sources | None = None
    live: list[str] = []
    done: list[str] = []
    failed: list[str] = []
    cancelled: list[str] = []
    partial: list[str] = []
    ended: list[str] = []
    outcome: Sources | None = None
    tally: Tally | None = None
    otherwise: State = "unknown"
    absent: Outcome | None = None
    codes: dict[str, Outcome] = {}
    codes_only: Sources | None = None
    words_only: Sources | None = None
    failed_if: Sources | None = None
    partial_if: Sources | None = None
    cancelled_if: Mark | None = None
    progress: Sources | None = None
    scale: float = 100.0
    pattern: str | None = None
    count: Sources | None = None
    total: Sources | None = None
    position: Sources | None = None
    message: Sources | None = None
    eta: Sources | None = None
    remaining: Sources | None = None
    retry_after: Sources | None = None
    started_at: Sources | None = None
    finished_at: Sources | None = None
    expires_at: Sources | None = None
    moved: Sources | None = None
    refusal: Sources | None = None
    error: Error = Error()


class Next(Table, frozen=True, kw_only=True):
    """How to find the next page of a result."""

    value: Sources | None = None
    query: str | None = None
    items: Sources | None = None
    total: Sources | None = None
    link: bool = False
    skip: int = 0
    may_be_absent: bool = False


class PartRequest(Request, frozen=True, kw_only=True):
    """How to fetch the parts of a result that is a list of them."""

    items: Sources = "."
    key: str
    value: Sources = "."
    total: Sources | None = None


class Result(Request, frozen=True, kw_only=True):
    value: Sources | None = None
    next: Next | None = None
    each: PartRequest | None = None
    optional: bool = False


class FailureRequest(Request, frozen=True, kw_only=True):
    """A request for the cause of a failure."""

    code: Sources | None = None
    message: Sources | None = None
    step: Sources | None = None


class OutputFile(Table, frozen=True, kw_only=True):
    each: Sources | None = None
    name: str = "result"
    path: str | None = None
    url: Sources | None = None
    content_type: Sources | None = None
    size: Sources | None = None
    sha256: Sources | None = None


class Cancel(Request, frozen=True, kw_only=True):
    method: str = "POST"
    late: tuple[int, ...] = (409,)


class Batch(Request, frozen=True, kw_only=True):
    most: int = 100
    ids: Literal["repeat", "comma", "none"] = "repeat"
    items: Sources = "."
    id: Sources | None = None
    under: str | None = None
    missing: Sources | None = None


class Sign(Table, frozen=True, kw_only=True):
    """How to distinguish one kind of refusal from another."""

    status: list[int]
    source: Sources | None = None
    values: list[str] = []
    contains: str | None = None
    absent: Sources | None = None


class Limits(Table, frozen=True, kw_only=True):
    requests: str | None = None
    submits: str | None = None
    concurrent: int | None = None


class Description(Table, frozen=True, kw_only=True):
    """A job API: how to submit, poll, read and cancel."""

    name: str
    title: str = ""
    docs: str = ""
    url: str | None = None
    written: str | None = None
    unique_id: bool = False
    numeric_id: bool = False
    headers: dict[str, str] = {}
    hook: str | None = None
    options: dict[str, Any] = {}
    auth: Auth = Auth()
    submit: Submit | None = None
    ask: Ask
    read: Read
    result: Result | None = None
    failure: list[FailureRequest] = []
    files: list[OutputFile] = []
    cancel: Cancel | None = None
    batch: Batch | None = None
    limits: Limits = Limits()
    throttled: list[Sign] = []
    crowded: list[Sign] = []
    denied: list[Sign] = []
    missing: list[Sign] = []


TABLES: dict[str, type[Table]] = {
    "": Description,
    "auth": Auth,
    "auth.secret": Secret,
    "submit": Submit,
    "submit.lookup": KindLookup,
    "ask": Ask,
    "ask.longpoll": LongPoll,
    "read": Read,
    "read.tally": Tally,
    "read.cancelled_if": Mark,
    "read.error": Error,
    "result": Result,
    "result.next": Next,
    "result.each": PartRequest,
    "failure": FailureRequest,
    "files": OutputFile,
    "cancel": Cancel,
    "batch": Batch,
    "limits": Limits,
    "throttled": Sign,
}
