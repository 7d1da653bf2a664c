"""Every error of bide, with its code, its HTTP status and its remedy.

BideError
├── Problem                an HTTP error response (RFC 9457)
│   ├── MalformedRequest          400   ├── NotFound           404   ├── PayloadTooLarge     413
│   ├── IdempotencyKeyRequired    400   ├── MethodNotAllowed   405   ├── UnsupportedMedia    415
│   ├── BadCursor                 400   ├── UntrustedHost      400   ├── InvalidInput        422
│   ├── BadSignature              403   ├── SignatureExpired   403
│   ├── CrossSite                 403   ├── RequestTimeout     408   ├── HeadTooLarge        431
│   ├── Conflict                  409   ├── Gone               410   ├── UnknownKind         422
│   ├── NoResult                  409   ├── VersionMismatch    412   ├── IdempotencyConflict 422
│   ├── RangeNotSatisfiable       416   ├── Internal           500   ├── Unavailable         503
│   ├── WrongOffset               409   ├── MisdirectedUpload  421   ├── WrongContent        422
│   ├── TakenOver                 409   ├── WrongLength        422   ├── ChecksumMismatch    460
│   ├── UploadConflict            409   ├── TusVersion         412   ├── StorageFull         507
│   ├── FinalUpload               403   ├── NotConfirmed       409
│   ├── QueryTimeout              503   ├── QuotaExceeded      429   ├── Overloaded          503
│   ├── SignInFailed              400   ├── ProviderUnavailable 503
│   └── StorageUnavailable        503
├── JobError               raised by a handler, with a code
├── JobFailed              the job that a caller waits for failed
├── WaitTimeout            the job did not end within the caller's timeout; it still runs
├── ServiceError           the service returned an error
│   └── UnusableService    the certificate of the service is not trusted, or it does not speak HTTP
├── ServiceUnreachable     the service did not respond
├── UploadFailed           a file changed while it was sent, or arrived damaged
└── SetupError             the installation or configuration is wrong; the message says what to do

A code is stable and machine readable; a title is the same for every occurrence; `detail` describes this occurrence.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import msgspec


class BideError(Exception):
    """The base class: `except BideError` catches every error that bide raises deliberately."""


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=False, rename="camel"):
    """The structured error of a job."""

    code: str
    message: str
    retryable: bool = False
    failed_step: str | None = None
    attempt: int | None = None
    trace_id: str | None = None
    # The failed parts of a partial success.
    errors: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


class JobError(BideError):
    """Raised by a handler: `raise JobError("OCR_TIMEOUT", "page 7 took too long", retryable=True)`.

    With `retryable=True` the `retries` of the kind apply, as for any other exception; False ends the job at once.
    """

    def __init__(
        self, code: str, message: str = "", *, retryable: bool = True, step: str | None = None
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message or code
        self.retryable = retryable
        self.step = step

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class JobFailed(BideError):
    """The job ended in ERROR or CANCELLED; `error` is its structured error, `job` its record."""

    def __init__(self, job_id: str, status: str, error: ErrorInfo | None, job: Any = None) -> None:
        super().__init__(job_id, status, error)
        self.job_id = job_id
        self.status = status
        self.error = error
        self.job = job

    def __str__(self) -> str:
        if self.error is None:
            return f"job {self.job_id} ended as {self.status}"
        step = f" in step {self.error.failed_step}" if self.error.failed_step else ""
        return f"job {self.job_id} ended as {self.status}{step}: {self.error.code}: {self.error.message}"


class WaitTimeout(BideError, TimeoutError):
    """The job did not end within the timeout. It still runs, and you can wait for it again."""

    def __init__(self, job_id: str, timeout: float, default: bool = False) -> None:
        """`default`: the caller has set no timeout."""
        super().__init__(job_id, timeout, default)
        self.job_id = job_id
        self.timeout = timeout
        self.default = default

    def __str__(self) -> str:
        return self.describe("timeout")

    def describe(self, option: str) -> str:
        """Return the message; `option` is what the caller sets to wait longer."""
        several = ", " in self.job_id
        text = f"{'jobs' if several else 'job'} {self.job_id} did not end within {self.timeout:g} s"
        still = "they still run" if several else "it still runs"
        if self.default:
            return f"{text}, the default maximum; {still}. To wait longer, set `{option}`"
        return f"{text}; {still}"


class ServiceError(BideError):
    """The service returned an error; `problem` is its RFC 9457 document, if it sent one."""

    def __init__(self, status: int, problem: dict[str, Any], url: str = "") -> None:
        super().__init__(status, problem, url)
        self.status = status
        self.problem = problem
        self.url = url

    @property
    def code(self) -> str:
        return str(self.problem.get("code", ""))

    def __str__(self) -> str:
        text = self.problem.get("detail") or self.problem.get("title") or f"HTTP {self.status}"
        errors = self.problem.get("errors")
        places = (
            "".join(f"\n  {e.get('pointer') or '/'}: {e.get('detail', '')}" for e in errors)
            if isinstance(errors, list)
            else ""
        )
        return f"{self.status} {self.code}: {text}{places}"


class UnusableService(ServiceError):
    """The client cannot use the server at this URL: its certificate is not trusted, or it does not speak HTTP.

    Raised only before the first response: later the client retries such a failure.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(0, {"code": code, "detail": detail})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.problem["detail"])

    def __str__(self) -> str:
        return str(self.problem["detail"])


class ServiceUnreachable(BideError):
    """There was no response: connection refused or reset, name not found, timeout. `connected`: a server accepted the
    connection."""

    connected = True


class UploadFailed(BideError):
    """A file changed while it was sent, or arrived damaged; the message says which.

    `resumable`: the same submission with the same ledger resumes the upload.
    """

    def __init__(self, message: str, *, resumable: bool = False) -> None:
        super().__init__(message)
        self.resumable = resumable


class SetupError(BideError):
    """The installation or the configuration is wrong; the message says what to do."""

    @classmethod
    def not_installed(cls, what: str, extra: str) -> Self:
        """A package of an extra is missing. bide is not on PyPI, so the extra comes from a checkout."""
        return cls(f"{what}. Run in the checkout of bide: pip install '.[{extra}]'")


class Problem(BideError):
    """An HTTP error response. Subclasses set the code, the status and the page at /problems/{code}."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False
    meaning: ClassVar[str] = ""
    remedy: ClassVar[str] = ""

    def __init__(
        self,
        detail: str,
        *,
        errors: list[dict[str, str]] | None = None,
        headers: dict[str, str] | None = None,
        members: dict[str, Any] | None = None,
    ) -> None:
        """`members` are more members of the problem document."""
        super().__init__(detail)
        self.detail = detail
        self.errors = errors
        self.headers = headers or {}
        self.members = members


class MalformedRequest(Problem):
    code, status, title = "malformed-request", 400, "Malformed request"
    meaning = "The service cannot read the body, a header or a query parameter."
    remedy = "Correct what `detail` names and send the request again."


class IdempotencyKeyRequired(Problem):
    code, status, title = "idempotency-key-required", 400, "Idempotency-Key required"
    meaning = "Jobs of this kind need an Idempotency-Key header."
    remedy = "Send a key that is unique to this job, and the same key when you retry."


class BadCursor(Problem):
    code, status, title = "bad-cursor", 400, "Bad cursor"
    meaning = "The cursor is not the `next` field of an earlier response."
    remedy = "Start again without a cursor, and pass `next` unchanged."


class Unauthenticated(Problem):
    code, status, title = "unauthenticated", 401, "No valid credential"
    meaning = "The request has no credential, or one that is unknown, expired or revoked."
    remedy = (
        "Send `Authorization: Bearer KEY` with an API key of this service. An operator creates keys with "
        "`bide keys create`."
    )

    def __init__(self, detail: str, *, headers: dict[str, str] | None = None) -> None:
        challenge = 'Bearer realm="bide", error="invalid_token"'
        super().__init__(detail, headers=headers or {"WWW-Authenticate": challenge})


class SignInFailed(Problem):
    code, status, title = "sign-in-failed", 400, "The sign-in failed"
    meaning = (
        "The issuer refused to sign the user in, or its answer is not valid: it belongs to no sign-in that began in this "
        "browser, or its id token is not for this service, or names no tenant or scope."
    )
    remedy = (
        "Begin the sign-in again, in this browser. If it fails again, the log of the service says why."
    )


class ProviderUnavailable(Problem):
    code, status, title, retryable = (
        "provider-unavailable",
        503,
        "The issuer of identities is unavailable",
        True,
    )
    meaning = "The OpenID Connect issuer at which users sign in does not respond, or not as it should."
    remedy = "Try again later, or sign in with an API key. The log of the service says what is wrong."


class Forbidden(Problem):
    code, status, title = "forbidden", 403, "The credential does not allow this"
    meaning = (
        "The credential is valid, but does not have the scope that the operation needs; or it is the cookie of a session, "
        "and the CSRF token of the session is missing."
    )
    remedy = "Use a credential with the scope that `detail` names. Pages send the `csrf` of GET /session in `X-CSRF-Token`."


class UntrustedHost(Problem):
    code, status, title = "untrusted-host", 400, "Untrusted host"
    meaning = (
        "The Host header names a host that the service does not trust. A web page whose host name was rebound to the "
        "address of the service sends such requests."
    )
    remedy = (
        "Use the address of the service, or start it with --trusted-hosts and the name that callers use."
    )


class CrossSite(Problem):
    code, status, title = "cross-site", 403, "Request from a page of another origin"
    meaning = "A browser sent this request for a page of another origin, and the request could change something."
    remedy = (
        "Send it from a program, or from a page of the service's own origin. Allow pages of another origin with "
        "--origin. Behind a proxy that changes the Host header, give the public host with --trusted-hosts."
    )


class NotFound(Problem):
    code, status, title = "not-found", 404, "Not found"
    meaning = "There is no such job, file, queue, problem or page."
    remedy = (
        "Check the URL. The URL of a job is in the Location header of the response to its submission."
    )


class MethodNotAllowed(Problem):
    code, status, title = "method-not-allowed", 405, "Method not allowed"
    meaning = "The resource exists, but does not support this method."
    remedy = "Use one of the methods in the Allow header."


class UpgradeRequired(Problem):
    code, status, title = "upgrade-required", 426, "Upgrade required"
    meaning = "This URL is a WebSocket, and the request was not a valid handshake of one."
    remedy = "Use a WebSocket client. A proxy must pass on the headers Connection and Upgrade."


class RequestTimeout(Problem):
    code, status, title, retryable = "request-timeout", 408, "Request timeout", True
    meaning = "The client did not finish sending the headers or the body in time."
    remedy = "Send the request again, without pauses. Upload large data as files."


class Conflict(Problem):
    code, status, title = "conflict", 409, "Conflict with the job's status"
    meaning = "The status of the job does not allow this, for example a cancel after its end."
    remedy = "Read the status of the job; `detail` says which statuses allow it, or what to do instead."


class NotConfirmed(Problem):
    code, status, title = "not-confirmed", 409, "The number of jobs is not confirmed"
    meaning = "A bulk action that deletes jobs needs `confirm`, the number of jobs that match. It is missing or differs."
    remedy = (
        "Send the request with `dryRun`, check the `count` of the response, and send it as `confirm`."
    )


class NoResult(Problem):
    code, status, title = "no-result", 409, "No result"
    meaning = "The job has no result: it has not ended yet, or it failed."
    remedy = "Wait until the status is DONE or PARTIAL_SUCCESS. A failed job has an `error` instead."


class Gone(Problem):
    code, status, title = "gone", 410, "Gone"
    meaning = (
        "The job was deleted, or purged after its retention time. A submission gets this response if its "
        "Idempotency-Key belongs to such a job."
    )
    remedy = (
        "Save results that you need for longer than the retention time of the kind, or raise that time. Use a new "
        "Idempotency-Key for a new job."
    )


class VersionMismatch(Problem):
    code, status, title = "version-mismatch", 412, "The job has changed"
    meaning = "The job no longer has the ETag in If-Match."
    remedy = "Read the job again and, if you still want the change, send its current ETag."


class PayloadTooLarge(Problem):
    code, status, title = "payload-too-large", 413, "Payload too large"
    meaning = "The body is larger than this service accepts."
    remedy = "Send less in one request. Upload large data as files."


class UnsupportedMedia(Problem):
    code, status, title = "unsupported-media-type", 415, "Unsupported media type"
    meaning = "This resource does not support the Content-Type or Content-Encoding of the body."
    remedy = "Send application/json in UTF-8, without a Content-Encoding."


class RangeNotSatisfiable(Problem):
    code, status, title = "range-not-satisfiable", 416, "Range not satisfiable"
    meaning = "The Range header requests bytes beyond the end of the file."
    remedy = "Request bytes within the size in Content-Range."


class InvalidInput(Problem):
    code, status, title = "invalid-input", 422, "Invalid input"
    meaning = "The request is well formed, but its values do not match the schema of the kind."
    remedy = "Correct each field in `errors`. GET /kinds returns the schema."

    @classmethod
    def at(cls, pointer: str, detail: str) -> Self:
        """The problem of one field: a JSON pointer into the body, or `?NAME` for a query parameter."""
        text = f"{pointer[1:]}: {detail}" if pointer else detail
        return cls(text, errors=[{"pointer": pointer, "detail": detail}])


class UnknownKind(Problem):
    code, status, title = "unknown-kind", 422, "Unknown kind"
    meaning = "The service has no handler for this kind."
    remedy = "Use one of the kinds that GET /kinds lists."


class IdempotencyConflict(Problem):
    code, status, title = "idempotency-conflict", 422, "Idempotency-Key used for another body"
    meaning = (
        "The key was used for a different submission of the same kind, and that job has not ended or ended less "
        "than 24 hours ago."
    )
    remedy = "Use a new key for a new job. Send the same body to get the first job again."


class QuotaExceeded(Problem):
    code, status, title, retryable = "quota-exceeded", 429, "Quota exceeded", True
    meaning = (
        "The tenant has reached one of its limits: submissions per time, waiting jobs, stored bytes, open streams, "
        "uploads or bulk actions."
    )
    remedy = (
        "Wait for the seconds in Retry-After, then send the request again. RateLimit and RateLimit-Policy in every "
        "response to a submission show what is left, so that you can send at that rate."
    )


class HeadTooLarge(Problem):
    code, status, title = "head-too-large", 431, "Request header fields too large"
    meaning = "The URL and the headers are larger, or there are more headers, than this service accepts."
    remedy = "Send fewer or shorter headers, or a shorter URL."


class Internal(Problem):
    code, status, title, retryable = "internal", 500, "Internal error", True
    meaning = "An internal error occurred. The log of the service has it under the same traceId."
    remedy = "Send the request again. With an Idempotency-Key that is always safe."


class Unavailable(Problem):
    code, status, title, retryable = "unavailable", 503, "Unavailable", True
    meaning = "The service is starting, stopping or overloaded, or cannot write to its store."
    remedy = "Wait for the seconds in Retry-After, then send the request again."


class Overloaded(Problem):
    code, status, title, retryable = "overloaded", 503, "Overloaded", True
    meaning = (
        "The queue of the job is too long: the job would wait longer than the service allows, or would miss its deadline. "
        "Or the service is too busy for lists and statistics."
    )
    remedy = (
        "Wait for the seconds in Retry-After, then send the request again. `predictedWait` is the time in seconds that the "
        "job would wait. A higher priority is refused later."
    )


class QueryTimeout(Problem):
    code, status, title, retryable = "query-timeout", 503, "The query took too long", True
    meaning = (
        "A list or a statistic needed more than one second, or too many of them run at the same time."
    )
    remedy = (
        "Add a term that fewer jobs match, such as `kind`, `status` or a label, or limit the time with `createdAfter` and "
        "`createdBefore`. Without a cause in the query, wait for the seconds in Retry-After and send it again."
    )


class StorageUnavailable(Problem):
    code, status, title, retryable = (
        "storage-unavailable",
        503,
        "The storage of files is unavailable",
        True,
    )
    meaning = "The file storage of the service does not respond, or denies access."
    remedy = (
        "Wait for the seconds in Retry-After, then send the request again. If the problem persists, the operator finds "
        "the cause with `bide doctor`."
    )


class BadSignature(Problem):
    code, status, title = "bad-signature", 403, "The URL was not signed for this request"
    meaning = "The URL was changed, or was signed for another upload, method, size or content type."
    remedy = (
        "Send exactly what was signed: the method, URL and headers that POST /uploads/presign returned."
    )


class SignatureExpired(Problem):
    code, status, title = "signature-expired", 403, "The signed URL has expired"
    meaning = "The signed URL is no longer valid: its expiry has passed."
    remedy = "Start the upload again with POST /uploads/presign, or request the URL of the part again."


class WrongOffset(Problem):
    code, status, title = "wrong-offset", 409, "Wrong offset of the upload"
    meaning = "Upload-Offset is not the number of bytes that the service has received of this upload."
    remedy = "Get the offset with HEAD, and continue from there."


class TakenOver(Problem):
    code, status, title = "taken-over", 409, "Another request continues this upload"
    meaning = "A newer request for the same upload arrived while this one was sending, and replaced it."
    remedy = (
        "Send an upload from one process. The bytes received so far are kept: HEAD returns how many."
    )


class UploadConflict(Problem):
    code, status, title = "upload-conflict", 409, "The upload's state does not allow this"
    meaning = (
        "The upload is incomplete, is complete already, uses another protocol, or is used by a job."
    )
    remedy = "Read `detail`, and GET the upload for its status and what is missing."


class FinalUpload(Problem):
    code, status, title = "final-upload", 403, "A final upload accepts no bytes"
    meaning = (
        "The upload is the concatenation of other uploads (`Upload-Concat: final`), so it is complete."
    )
    remedy = "Do not send bytes to it. For another file, send partial uploads and concatenate them."


class TusVersion(Problem):
    code, status, title = "tus-version", 412, "Tus-Resumable is missing or has another version"
    meaning = "Requests to /files need the header `Tus-Resumable: 1.0.0`."
    remedy = "Use a client of tus 1.0, or POST /uploads for a plain upload."


class MisdirectedUpload(Problem):
    code, status, title, retryable = "misdirected-upload", 421, "The upload is at another replica", True
    meaning = (
        "Until an upload is complete, its bytes are on the disk of the replica where it was started, unless files are in a "
        "bucket."
    )
    remedy = (
        "Store files in a bucket, or configure the load balancer to send all requests for one upload to one replica; see "
        "the page on uploads."
    )


class WrongLength(Problem):
    code, status, title = "wrong-length", 422, "Length differs from the declared length"
    meaning = (
        "The number of bytes differs from the declared length of the upload, the chunk or the request."
    )
    remedy = "Send exactly the declared length. The bytes acknowledged so far are kept."


class WrongContent(Problem):
    code, status, title = "wrong-content", 422, "File type not accepted"
    meaning = "By its first bytes, the file has a type that this kind of job does not accept."
    remedy = "Send a file of one of the types in `detail`. Renaming a file does not change its type."


class ChecksumMismatch(Problem):
    code, status, title, retryable = "checksum-mismatch", 460, "Checksum mismatch", True
    meaning = "The received bytes do not match the checksum that was sent with them."
    remedy = "Send the same part again. The service has discarded the damaged bytes."


class StorageFull(Problem):
    code, status, title, retryable = "storage-full", 507, "Not enough storage for the upload", True
    meaning = "The disk for uploads is full, or all uploads together have reached their quota."
    remedy = "Remove uploads that are no longer needed, or ask the operator to free space; then resume the upload."


def problems() -> list[type[Problem]]:
    """Return every problem, by status and code."""
    return sorted(Problem.__subclasses__(), key=lambda p: (p.status, p.code))
