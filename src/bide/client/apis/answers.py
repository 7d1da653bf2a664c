"""Requests to a job API, its answers, and the states of jobs in them: the same types for all APIs.

1. A `Ref` holds no credential, so a ledger may store it.
2. A `BadPoll` means that an answer does not contain the state of the job. It never means that the job failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import msgspec

from bide.client.apis.values import quoted, retry_after, without_credentials
from bide.core.errors import BideError, ErrorInfo, ServiceError
from bide.core.wire.http import JobStatus

State = Literal["live", "done", "failed", "cancelled", "partial", "unknown"]
TERMINAL: frozenset[str] = frozenset(("done", "failed", "cancelled", "partial"))

NOT_FOUND, GONE = "JOB_NOT_FOUND", "JOB_GONE"
TOO_LARGE = 413
UNREADABLE = "unreadable-answer"
_decode = msgspec.json.Decoder().decode


class Ref(msgspec.Struct, frozen=True, omit_defaults=True):
    """The address of one job at an API. It can be stored as JSON and holds no credential."""

    id: str
    # The URL of its status if the API named one; otherwise the URL is made from the id.
    url: str | None = None
    # Further values from the answer to the submission, e.g. the URL to cancel the job.
    more: dict[str, str] = {}

    def moved(self, url: str | None) -> Ref:
        """The same job at another address, e.g. that of `Seen.moved`."""
        return self if url is None or url == self.url else Ref(self.id, url, self.more)


class Call(msgspec.Struct, frozen=True):
    """One request without its credential. Calls may share one dict of headers, so do not change it."""

    method: str
    url: str
    headers: dict[str, str] = {}
    body: bytes = b""
    authorized: bool = True  # False: the credential must not go to this host
    known: dict[str, str] = {}  # of a submission: values for the Ref of its job
    hold: float = 0.0  # seconds that the service is asked to hold the request
    # Of a bide service, whose limits of submissions are not those of other requests.
    submission: bool = False


class Answer:
    """One HTTP response with its whole body."""

    __slots__ = ("body", "credential", "headers", "hide", "status", "url")

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes, url: str = "") -> None:
        self.credential = ""  # of a 401 or 403: a sentence that names the source of the credential
        # Removes the secrets of the request from a quote of the body.
        self.hide: Callable[[str], str] = str
        self.status = status
        self.headers = headers
        self.body = body
        self.url = url

    @property
    def replayed(self) -> bool:
        """Whether the job in the response is that of an earlier submission."""
        return self.headers.get("Idempotency-Replayed") == "true"

    def json(self) -> Any:
        """Return the JSON in the body; None if there is none. Never raise."""
        try:
            return _decode(self.body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    def read(self, form: Any) -> Any:
        """The body decoded as `form`; ServiceError if it has another form, e.g. if it is empty."""
        try:
            return msgspec.json.decode(self.body, type=form)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self.unreadable(f"The response cannot be read: {error}") from None

    def unreadable(self, detail: str) -> ServiceError:
        return ServiceError(
            self.status, {"code": UNREADABLE, "detail": detail}, without_credentials(self.url)
        )

    def raise_for_status(self) -> Self:
        """Return itself if it is a success or a 304; otherwise raise its problem."""
        if 200 <= self.status < 300 or self.status == 304:
            return self
        raise self.problem()

    def problem(self) -> ServiceError:
        """The error in a refusal. A proxy's HTML page becomes an error with the code `http-STATUS`."""
        document: dict[str, Any] = {}
        if "json" in self.headers.get("Content-Type", ""):
            found = self.json()
            document = found if isinstance(found, dict) else {}
        if "code" not in document:
            title = document.get("title") or f"HTTP {self.status}"
            document = {**document, "code": f"http-{self.status}", "title": title}
            if self.status == TOO_LARGE and "detail" not in document:
                document["detail"] = self._too_large()
            elif "detail" not in document and self.body:
                document["detail"] = quoted(self.body)
        if self.credential:
            document["detail"] = f"{document.get('detail') or document['title']}. {self.credential}"
        pause = retry_after(self.headers)
        if pause is not None:
            document["retryAfter"] = pause
        return ServiceError(self.status, document, without_credentials(self.url))

    def _too_large(self) -> str:
        """Explain a 413 without a problem document, which a proxy sends more often than the API."""
        server = self.headers.get("Server") or "A server"
        return (
            f"{server} rejected the request because its body is too large. If this is a proxy in front of the API, raise "
            "its limit (nginx: client_max_body_size)"
        )


class Found(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a job's output."""

    name: str
    url: str
    content_type: str | None = None
    size: int | None = None
    sha256: str | None = None


class Seen(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of one job in one answer. None: the answer does not contain the field."""

    state: State
    word: str = ""  # the API's own word for the state
    unchanged: bool = False  # 304: nothing has changed since the ETag was sent
    progress: float | None = None  # 0 to 1
    counts: tuple[float, float | None] | None = None  # done, and the total if the API names it
    position: int | None = None  # in the API's queue
    message: str | None = None
    eta: float | None = None  # epoch seconds
    remaining: float | None = None  # seconds from the time of the answer
    retry_after: float | None = None  # seconds until the API wants the next poll
    # Epoch seconds by the API's clock.
    started_at: float | None = None
    finished_at: float | None = None
    expires_at: float | None = None  # of result_url and the URLs of the files
    error: ErrorInfo | None = None
    result: Any = None
    result_url: str | None = None
    files: tuple[Found, ...] = ()
    etag: str | None = None
    moved: str | None = None  # the URL for further polls
    record: JobStatus | None = None  # the whole resource of a bide service

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def duration(self) -> float | None:
        """Seconds from start to finish by the API's clock."""
        if self.started_at is None or self.finished_at is None:
            return None
        return max(0.0, self.finished_at - self.started_at)


class BadPoll(BideError):
    """An answer without the state of the job. `final`: a retry would get the same answer."""

    def __init__(
        self, status: int, detail: str, *, final: bool = False, code: str | None = None
    ) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.final = final
        self.code = code or f"http-{status}"

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.detail}"


class Throttled(BadPoll):
    """The API rejected a request because there were too many. It concerns every job of the credential."""


class UnreadableBatch(BadPoll):
    """A JSON answer about many jobs from which none of them can be read."""


class NotYet(BadPoll):
    """404 so soon after the submission that the job may not be visible yet."""


class Denied(BadPoll):
    """The credential is missing, wrong or expired."""


class Crowded(BideError):
    """A submission was rejected because too many jobs run. It does not concern the limit of requests."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.detail}"
