"""Every error of bide, with the code, the HTTP answer and the advice that go with it.

BideError
├── Problem                what an HTTP answer other than success says (RFC 9457)
│   ├── MalformedRequest          400   ├── NotFound           404   ├── PayloadTooLarge     413
│   ├── IdempotencyKeyRequired    400   ├── MethodNotAllowed   405   ├── UnsupportedMedia    415
│   ├── BadCursor                 400   ├── NotAcceptable      406   ├── InvalidInput        422
│   ├── UntrustedHost             400
│   ├── BadSignature              403   ├── SignatureExpired   403
│   ├── CrossSite                 403   ├── RequestTimeout     408   ├── HeadTooLarge        431
│   ├── Conflict                  409   ├── Gone               410   ├── UnknownKind         422
│   ├── NoResult                  409   ├── VersionMismatch    412   ├── IdempotencyConflict 422
│   ├── RangeNotSatisfiable       416   ├── Internal           500   ├── Unavailable         503
│   ├── WrongOffset               409   ├── MisdirectedUpload  421   ├── WrongContent        422
│   ├── TakenOver                 409   ├── WrongLength        422   ├── ChecksumMismatch    460
│   ├── UploadConflict            409   ├── TusVersion         412   ├── StorageFull         507
│   └── StorageUnavailable        503
├── JobError               what a handler raises to say exactly what went wrong
├── JobFailed              what a waiting caller gets when the job itself failed
├── WaitTimeout            the caller's own patience ran out; the job goes on
├── ServiceError           the service answered, but not with what was asked for
│   └── UnusableService    its certificate is not trusted, or it does not speak HTTP
├── ServiceUnreachable     the service did not answer at all
├── UploadFailed           a file cannot be sent as it is, or did not arrive as it was
└── SetupError             something about this installation; says what to do

A code is stable and machine readable; a title is the same for every occurrence; `detail` is about this one.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec


class BideError(Exception):
    """The root: `except BideError` catches everything that bide raises on purpose."""


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=False, rename="camel"):
    """The structured error of a job, as it is stored and shown."""

    code: str
    message: str
    retryable: bool = False
    failed_step: str | None = None
    attempt: int | None = None
    trace_id: str | None = None
    errors: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET  # what a partial success lacks


class JobError(BideError):
    """Raised by a handler: `raise JobError("OCR_TIMEOUT", "page 7 took too long", retryable=True)`.

    `retryable=True` leaves it to the kind's `retries`, like any other exception; False ends the job at once.
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
    """The wait ended before the job did; the job goes on and can be waited for again."""

    def __init__(self, job_id: str, timeout: float) -> None:
        super().__init__(job_id, timeout)
        self.job_id = job_id
        self.timeout = timeout

    def __str__(self) -> str:
        return f"job {self.job_id} did not end within {self.timeout:g} s; it is still going on"


class ServiceError(BideError):
    """The service refused; `problem` is its RFC 9457 document where it sent one."""

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
    """The client cannot use what is at this address: its certificate is not trusted, or it does not speak HTTP.

    Only before the first answer: later such a failure may pass, and is retried.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(0, {"code": code, "detail": detail})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.problem["detail"])

    def __str__(self) -> str:
        return str(self.problem["detail"])


class ServiceUnreachable(BideError):
    """No answer: refused, reset, name not found, timed out. `connected`: somebody was there."""

    connected = True


class UploadFailed(BideError):
    """A file changed while it was sent, or did not arrive as it was; the message says which.

    `resumable`: the same submission with the same ledger goes on where it was.
    """

    def __init__(self, message: str, *, resumable: bool = False) -> None:
        super().__init__(message)
        self.resumable = resumable


class SetupError(BideError):
    """The installation or the configuration is wrong; the message says what to do about it."""


class Problem(BideError):
    """An HTTP answer other than success. Subclasses fix code, status and the page at /problems/{code}."""

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
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = errors
        self.headers = headers or {}


class MalformedRequest(Problem):
    code, status, title = "malformed-request", 400, "Malformed request"
    meaning = "The body, a header or a query parameter could not be read at all."
    remedy = "Correct what `detail` names and send the request again."


class IdempotencyKeyRequired(Problem):
    code, status, title = "idempotency-key-required", 400, "Idempotency-Key required"
    meaning = "This kind of job is only accepted with an Idempotency-Key header."
    remedy = "Send a key that is unique to this piece of work and stays the same when you send it again."


class BadCursor(Problem):
    code, status, title = "bad-cursor", 400, "Bad cursor"
    meaning = "The cursor does not come from the `next` field of an earlier answer."
    remedy = "Start again without a cursor and follow `next` as it is."


class UntrustedHost(Problem):
    code, status, title = "untrusted-host", 400, "The service does not answer to this host"
    meaning = (
        "The Host header names a host that the service does not know. A web page whose name was pointed at the "
        "service's address would send such a request."
    )
    remedy = (
        "Use the service's own address, or start it with --trusted-hosts and the name that callers use."
    )


class CrossSite(Problem):
    code, status, title = "cross-site", 403, "Refused to a page of another origin"
    meaning = "A browser sent this for a page of another origin, and it could change something."
    remedy = (
        "Send it from a program, or from a page that the service's own address serves. Allow pages of another origin "
        "with --origin. Behind a proxy that changes the Host header, name the public host with --trusted-hosts."
    )


class NotFound(Problem):
    code, status, title = "not-found", 404, "Not found"
    meaning = "There is nothing at this address: no such job, file, queue, problem or page."
    remedy = "Check the address; a job's own is in the Location header of the answer that accepted it."


class MethodNotAllowed(Problem):
    code, status, title = "method-not-allowed", 405, "Method not allowed"
    meaning = "The address exists, but not for this method."
    remedy = "Use one of the methods in the Allow header."


class NotAcceptable(Problem):
    code, status, title = "not-acceptable", 406, "Not acceptable"
    meaning = "The Accept header rules out every form that this resource has."
    remedy = "Accept application/json, or leave the header out."


class RequestTimeout(Problem):
    code, status, title, retryable = "request-timeout", 408, "Request timeout", True
    meaning = "The request did not arrive in time: its headers or its body were begun and not finished."
    remedy = "Send it again, without pauses; put large data into files."


class Conflict(Problem):
    code, status, title = "conflict", 409, "Conflict with the job's status"
    meaning = "The job's status does not allow this: for example a cancel after it has ended."
    remedy = "Read the job's status; `detail` says which statuses would allow it."


class NoResult(Problem):
    code, status, title = "no-result", 409, "No result"
    meaning = "The job has no result: it has not ended yet, or it failed."
    remedy = "Wait until the status is DONE or PARTIAL_SUCCESS; a failed job has an `error` instead."


class Gone(Problem):
    code, status, title = "gone", 410, "Gone"
    meaning = (
        "The job existed, and was deleted or purged after its retention time. A submission gets this answer when "
        "its Idempotency-Key belongs to such a job."
    )
    remedy = (
        "Keep results that you need beyond the kind's retention, or raise the retention. Use a new "
        "Idempotency-Key for new work."
    )


class VersionMismatch(Problem):
    code, status, title = "version-mismatch", 412, "The job has changed"
    meaning = "If-Match names an ETag that the job no longer has."
    remedy = "Read the job again, decide again, and send its present ETag."


class PayloadTooLarge(Problem):
    code, status, title = "payload-too-large", 413, "Payload too large"
    meaning = "The body is larger than this service accepts."
    remedy = "Send less in one request; put large data into files."


class UnsupportedMedia(Problem):
    code, status, title = "unsupported-media-type", 415, "Unsupported media type"
    meaning = "The body's Content-Type or Content-Encoding is not one that this resource reads."
    remedy = "Send application/json in UTF-8, without a Content-Encoding."


class RangeNotSatisfiable(Problem):
    code, status, title = "range-not-satisfiable", 416, "Range not satisfiable"
    meaning = "The Range header asks for bytes that the file does not have."
    remedy = "Ask within the size that Content-Range tells."


class InvalidInput(Problem):
    code, status, title = "invalid-input", 422, "Invalid input"
    meaning = "The request is well formed, but values in it are not what the kind's schema says."
    remedy = "Correct each place in `errors`; GET /kinds has the schema."


class UnknownKind(Problem):
    code, status, title = "unknown-kind", 422, "Unknown kind"
    meaning = "No handler with this name is registered with the service."
    remedy = "GET /kinds lists the kinds that there are."


class IdempotencyConflict(Problem):
    code, status, title = "idempotency-conflict", 422, "Idempotency-Key used for another body"
    meaning = (
        "This key was used for a different submission of the same kind, whose job has not ended or ended less "
        "than 24 hours ago."
    )
    remedy = "Use a new key for new work; send the same body to get the first job again."


class HeadTooLarge(Problem):
    code, status, title = "head-too-large", 431, "Request header fields too large"
    meaning = "The address and the headers are larger, or the headers more, than this service reads."
    remedy = "Send fewer and shorter headers, or ask for less in one address."


class Internal(Problem):
    code, status, title, retryable = "internal", 500, "Internal error", True
    meaning = "Something in the service went wrong. It is in its log under the same traceId."
    remedy = "Send the request again; with an Idempotency-Key that is always safe."


class Unavailable(Problem):
    code, status, title, retryable = "unavailable", 503, "Unavailable", True
    meaning = "The service is starting, stopping, has too much to do, or cannot write to its store."
    remedy = "Wait as long as Retry-After says, then send the request again."


class StorageUnavailable(Problem):
    code, status, title, retryable = (
        "storage-unavailable",
        503,
        "The storage of files is unavailable",
        True,
    )
    meaning = "Where this service keeps the bytes of files does not answer, or refuses the service."
    remedy = (
        "Wait as long as Retry-After says, then send the request again. If it stays so, who runs the service finds "
        "the cause with `bide doctor`."
    )


class BadSignature(Problem):
    code, status, title = "bad-signature", 403, "The address was not signed for this request"
    meaning = "The address was changed, or signed for another upload, method, size or content type than this request has."
    remedy = (
        "Send exactly what was signed: method, address and headers as POST /uploads/presign gave them."
    )


class SignatureExpired(Problem):
    code, status, title = "signature-expired", 403, "The signed address has expired"
    meaning = "A signed address is good until the instant that was told with it."
    remedy = "Begin the upload anew with POST /uploads/presign, or ask for the part's address again."


class WrongOffset(Problem):
    code, status, title = "wrong-offset", 409, "Not where the upload is at"
    meaning = "Upload-Offset is not the number of bytes that the service has of this upload."
    remedy = "Ask with HEAD where the upload is at, and go on from there."


class TakenOver(Problem):
    code, status, title = "taken-over", 409, "Another request goes on with this upload"
    meaning = (
        "While this request was sending, a newer one for the same upload came: the newer one counts."
    )
    remedy = "Send one upload from one place. What came before is kept: HEAD tells how much."


class UploadConflict(Problem):
    code, status, title = "upload-conflict", 409, "The upload's state does not allow this"
    meaning = "The upload is not whole yet, is whole already, came in another way, or a job uses it."
    remedy = "Read `detail`, and GET the upload: its status and what is missing are there."


class TusVersion(Problem):
    code, status, title = "tus-version", 412, "Tus-Resumable is missing or another version"
    meaning = "Requests to /files need the header `Tus-Resumable: 1.0.0`."
    remedy = "Use a client of tus 1.0, or POST /uploads for a plain upload."


class MisdirectedUpload(Problem):
    code, status, title, retryable = "misdirected-upload", 421, "The upload is at another replica", True
    meaning = "Until an upload is whole its bytes are on the disk of the replica where it was begun."
    remedy = (
        "Let the load balancer send all requests for one upload to one replica; see the page on uploads."
    )


class WrongLength(Problem):
    code, status, title = "wrong-length", 422, "More or fewer bytes than announced"
    meaning = (
        "The bytes that came are not as many as the upload, the chunk or the request was announced with."
    )
    remedy = "Send exactly what was announced; what was acknowledged before is kept."


class WrongContent(Problem):
    code, status, title = "wrong-content", 422, "Not a file of the type that is accepted"
    meaning = "The first bytes of the file show another type than this kind of job accepts."
    remedy = "Send a file of one of the types in `detail`; renaming one does not change what it is."


class ChecksumMismatch(Problem):
    code, status, title, retryable = "checksum-mismatch", 460, "Checksum mismatch", True
    meaning = (
        "The bytes that came do not have the checksum that came with them: they were damaged on the way."
    )
    remedy = "Send the same part again; the damaged bytes were thrown away."


class StorageFull(Problem):
    code, status, title, retryable = "storage-full", 507, "No room for the upload", True
    meaning = "The disk for uploads is full, or all uploads together have reached their quota."
    remedy = "Remove uploads that nobody needs, or have who runs the service make room; then go on where it stopped."


def problems() -> list[type[Problem]]:
    """Every problem that an answer can carry, by status and code."""
    return sorted(Problem.__subclasses__(), key=lambda p: (p.status, p.code))
