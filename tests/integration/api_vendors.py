"""Small vendors, one for each API that comes with bide: what each documents that it answers, as a table.

In a body `{url}` stands for the vendor's own address. Times are left out, for a fast client would take them seriously.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bide.client.apis import names

ID = "6533643b-acbe-4c40-967e-d9ba9baac39e"
Told = tuple[int, Any, dict[str, str]]  # status, body, headers


def told(body: Any, status: int = 200, **headers: str) -> Told:
    return status, body, {name.replace("_", "-"): value for name, value in headers.items()}


DESCRIPTIONS = Path(__file__).parents[1] / "data" / "apis"


def description(name: str) -> str:
    """By its name when it comes with bide, else the file of one that the form can express."""
    return name if name in names() else str(DESCRIPTIONS / f"{name}.toml")


def at(url: str, body: Any) -> Any:
    return body if isinstance(body, bytes) else json.loads(json.dumps(body).replace("{url}", url))


@dataclass(frozen=True)
class Vendor:
    api: str
    submit: tuple[str, str]
    accepted: Told
    ask: tuple[str, str]
    live: Any
    done: Any
    failed: Any
    error: tuple[str, str]
    throttle: Told
    base: str = ""  # of the API's address
    kind: str = "k"
    input: Any = field(default_factory=lambda: {"a": 1})
    sent: Any = None  # the body of the submission; None: the input itself, `...`: not compared
    after: tuple[tuple[tuple[str, str], Any], ...] = ()  # what has to follow a submission, and its body
    auth: tuple[str, str] = ("Authorization", "Bearer KEY")
    odd: Any = None  # a status that the description does not know
    progress: float | None = None  # percent, of `live`
    result: Any = None
    fetch: tuple[str, Told] | None = None  # where the result is, when the answer has it not
    cancelled: Any = None
    cancel: tuple[str, str] | None = None
    cancel_sent: Any = None
    cancel_answer: Told = (200, {}, {})
    ends: str = "CANCELLED"  # what a cancel comes to
    late: Told | None = None  # a cancel that came too late
    batch: tuple[str, str] | None = None
    grace: Told | None = None  # what is said of a job that is not there yet
    absent: Told = (404, {"message": "no such job"}, {})  # what is said of one that is not there


def changed(body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**body, **fields}


SLOW = told({"message": "slow down"}, 429, Retry_After="5")

_own = {"jobId": ID, "kind": "k", "status": "PROCESSING", "progress": {"percent": 40.0}, "links": {}}
BIDE = Vendor(
    "bide",
    ("POST", "/jobs"),
    told(changed(_own, status="PENDING", progress=None), 202, Location=f"/jobs/{ID}", Retry_After="1"),
    ("GET", f"/jobs/{ID}"),
    live=_own,
    done=changed(_own, status="DONE", result={"words": 6}),
    failed=changed(_own, status="ERROR", error={"code": "OCR_TIMEOUT", "message": "page 7"}),
    error=("OCR_TIMEOUT", "page 7"),
    throttle=told({"code": "too-many-requests"}, 429, Retry_After="5"),
    sent={"kind": "k", "input": {"a": 1}},
    odd=changed(_own, status="HIBERNATING"),
    progress=40.0,
    result={"words": 6},
    cancelled=changed(_own, status="CANCELLED"),
    cancel=("POST", f"/jobs/{ID}/cancel"),
    cancel_answer=told(_own, 202),
    late=told({"code": "conflict"}, 409),
    batch=("GET", "/jobs"),
)

_azure = {"id": "/operations/op1", "name": "op1", "status": "Running", "percentComplete": 40}
AZURE = Vendor(
    "azure",
    ("POST", "/formrecognizer/documentModels/m:analyze"),
    told(b"", 202, Operation_Location="{url}/operations/op1?api-version=1", Retry_After="1"),
    ("GET", "/operations/op1"),
    kind="formrecognizer/documentModels/m:analyze",
    live=_azure,
    done=changed(_azure, status="Succeeded", resourceLocation="{url}/things/1"),
    failed=changed(_azure, status="Failed", error={"code": "Quota", "message": "no cores"}),
    error=("Quota", "no cores"),
    throttle=told({"error": {"code": "TooManyRequests"}}, 429, Retry_After="5"),
    odd=changed(_azure, status="Hibernating"),
    progress=40.0,
    result={"name": "thing"},
    fetch=("/things/1", told({"name": "thing"})),
    cancelled=changed(_azure, status="Canceled"),
)

_google = {"name": "operations/42", "metadata": {"progressPercentage": 40}}
GOOGLE = Vendor(
    "google",
    ("POST", "/v1/speech:longrunningrecognize"),
    told({"name": "operations/42"}),
    ("GET", "/v1/operations/42"),
    kind="v1/speech:longrunningrecognize",
    live=_google,
    done=changed(_google, done=True, response={"text": "hello"}),
    failed=changed(_google, done=True, error={"code": 3, "message": "bad audio"}),
    error=("3", "bad audio"),
    throttle=told({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota"}}, 429),
    odd=changed(_google, done="perhaps"),
    progress=40.0,
    result={"text": "hello"},
    cancelled=changed(_google, done=True, error={"code": 1, "message": "cancelled by the caller"}),
    cancel=("POST", "/v1/operations/42:cancel"),
    cancel_sent={},
)

_ogc = {"jobID": ID, "type": "process", "status": "running", "progress": 40, "message": "tile 3"}
OGC = Vendor(
    "ogc",
    ("POST", "/api/processes/k/execution"),
    told(
        changed(_ogc, status="accepted"),
        201,
        Location=f"/api/jobs/{ID}",
        Preference_Applied="respond-async",
    ),
    ("GET", f"/api/jobs/{ID}"),
    base="/api",
    live=_ogc,
    done=changed(_ogc, status="successful", progress=100),
    failed=changed(_ogc, status="failed", exception={"type": "NoMemory", "detail": "tile 7"}),
    error=("NoMemory", "tile 7"),
    throttle=SLOW,
    sent={"inputs": {"a": 1}},
    auth=("", ""),
    odd=changed(_ogc, status="hibernating"),
    progress=40.0,
    result={"tiles": 9},
    fetch=(f"/api/jobs/{ID}/results", told({"tiles": 9})),
    cancelled=changed(_ogc, status="dismissed"),
    cancel=("DELETE", f"/api/jobs/{ID}"),
    cancel_answer=told(changed(_ogc, status="dismissed")),
    late=told({"type": "NoSuchJob"}, 404),
)

_sync = {"id": ID, "status": "PROCESSING", "progress_percent": 40, "outputUrl": None, "error": None}
SYNC = Vendor(
    "sync.so",
    ("POST", "/v2/generate"),
    told(changed(_sync, status="PENDING"), 201),
    ("GET", f"/v2/generate/{ID}"),
    live=_sync,
    done=changed(_sync, status="COMPLETED", outputUrl="https://films.example/1.mp4?sig=1"),
    failed=changed(_sync, status="FAILED", error="no face", errorCode="face_missing"),
    error=("face_missing", "no face"),
    throttle=told({"message": "Too Many Requests", "errorCode": "rate_limit_exceeded"}, 429),
    auth=("x-api-key", "KEY"),
    odd=changed(_sync, status="HIBERNATING"),
    progress=40.0,
    result="https://films.example/1.mp4?sig=1",
    cancelled=changed(_sync, status="CANCELED"),
)

_knowhere = {"job_id": ID, "status": "running", "progress": {"processed_pages": 4, "total_pages": 10}}
KNOWHERE = Vendor(
    "knowhere",
    ("POST", "/v1/jobs"),
    told({"job_id": ID, "status": "pending"}, 202),
    ("GET", f"/v1/jobs/{ID}"),
    live=_knowhere,
    done=changed(_knowhere, status="done", result={"pages": 10}),
    failed=changed(_knowhere, status="failed", error={"code": "PARSE", "message": "bad pdf"}),
    error=("PARSE", "bad pdf"),
    throttle=told({"error": {"message": "limit"}}, 429, RateLimit_Remaining="0", Retry_After="5"),
    odd=changed(_knowhere, status="hibernating"),
    progress=40.0,
    result={"pages": 10},
)

_progress = {"id": 7, "workflow_state": "running", "completion": 40, "message": None, "tag": "batch"}
CANVAS_PROGRESS = Vendor(
    "canvas-progress",
    ("POST", "/api/v1/courses/1/assignments/bulk_update"),
    told(changed(_progress, workflow_state="queued", url="{url}/api/v1/progress/7")),
    ("GET", "/api/v1/progress/7"),
    kind="api/v1/courses/1/assignments/bulk_update",
    live=_progress,
    done=changed(_progress, workflow_state="completed", completion=100, results={"updated": 3}),
    failed=changed(_progress, workflow_state="failed", message="no such course"),
    error=("FAILED", "no such course"),
    throttle=told(
        b"403 Forbidden (Rate Limit Exceeded)\n", 403, X_Rate_Limit_Remaining="0.0", X_Request_Cost="1.5"
    ),
    odd=changed(_progress, workflow_state="hibernating"),
    progress=40.0,
    result={"updated": 3},
    cancelled=changed(_progress, workflow_state="failed", message="[cancelled by bide] "),
    cancel=("POST", "/api/v1/progress/7/cancel"),
    cancel_sent={"message": "[cancelled by bide] "},
    cancel_answer=told(changed(_progress, workflow_state="failed")),
)

_report = {
    "id": 5,
    "report": "grade_export_csv",
    "status": "running",
    "progress": 40,
    "current_line": 12,
}
_csv = {
    "filename": "grades.csv",
    "size": 10,
    "content-type": "text/csv",
    "url": "{url}/files/9/download",
}
CANVAS_REPORT = Vendor(
    "canvas-report",
    ("POST", "/api/v1/accounts/1/reports/grade_export_csv"),
    told(changed(_report, status="created", progress=0)),
    ("GET", "/api/v1/accounts/1/reports/grade_export_csv/5"),
    kind="grade_export_csv",
    input={"account_id": 1, "parameters": {"enrollment_term_id": 3}},
    sent={"parameters": {"enrollment_term_id": 3}},
    live=_report,
    done=changed(_report, status="complete", progress=100, attachment=_csv),
    failed=changed(_report, status="error", message="no such term"),
    error=("ERROR", "no such term"),
    throttle=told({"errors": [{"message": "slow down"}]}, 429, X_Rate_Limit_Remaining="0.0"),
    odd=changed(_report, status="hibernating"),
    progress=40.0,
    result="{url}/files/9/download",
    fetch=("/files/9/download", told(b"id,grade\n1", 200, Content_Type="text/csv")),
    cancelled=changed(_report, status="aborted"),
    cancel=("PUT", "/api/v1/accounts/1/reports/grade_export_csv/5/abort"),
)

_task = {"task-id": ID, "state": "STARTED"}
FLOWER = Vendor(
    "flower",
    ("POST", "/api/task/async-apply/tasks.add"),
    told({"task-id": ID, "state": "PENDING"}),
    ("GET", f"/api/task/result/{ID}"),
    kind="tasks.add",
    input={"args": [1, 2]},
    sent={"args": [1, 2]},
    auth=("", ""),
    live=_task,
    done=changed(_task, state="SUCCESS", result=3),
    failed=changed(_task, state="FAILURE", result="ZeroDivisionError('by zero')", traceback="…"),
    error=("FAILURE", "ZeroDivisionError('by zero')"),
    throttle=SLOW,
    odd=changed(_task, state="HIBERNATING"),
    result=3,
    cancelled=changed(_task, state="REVOKED", result="TaskRevokedError('terminated')"),
    cancel=("POST", f"/api/task/revoke/{ID}"),
    cancel_answer=told({"message": f"Revoked '{ID}'"}),
)

_prediction = {
    "id": "p1",
    "status": "processing",
    "logs": " 20%|##\n 40%|####",
    "error": None,
    "output": None,
    "urls": {"get": "{url}/v1/predictions/p1", "cancel": "{url}/v1/predictions/p1/cancel"},
}
REPLICATE = Vendor(
    "replicate",
    ("POST", "/v1/predictions"),
    told(changed(_prediction, status="starting", logs=""), 201),
    ("GET", "/v1/predictions/p1"),
    sent={"version": "k", "input": {"a": 1}},
    live=_prediction,
    done=changed(_prediction, status="succeeded", output=["https://replicate.delivery/1.png"]),
    failed=changed(_prediction, status="failed", error="out of memory"),
    error=("FAILED", "out of memory"),
    throttle=told({"detail": "Request was throttled. Your rate limit resets in ~5s."}, 429),
    odd=changed(_prediction, status="hibernating"),
    progress=40.0,
    result=["https://replicate.delivery/1.png"],
    cancelled=changed(_prediction, status="canceled"),
    cancel=("POST", "/v1/predictions/p1/cancel"),
    cancel_answer=told(changed(_prediction, status="canceled")),
)

_request = {
    "request_id": "r1",
    "status": "IN_PROGRESS",
    "response_url": "{url}/fal-ai/flux/requests/r1",
    "status_url": "{url}/fal-ai/flux/requests/r1/status",
    "cancel_url": "{url}/fal-ai/flux/requests/r1/cancel",
}
FAL = Vendor(
    "fal",
    ("POST", "/fal-ai/flux/dev"),
    told(changed(_request, status="IN_QUEUE", queue_position=2)),
    ("GET", "/fal-ai/flux/requests/r1/status"),
    kind="fal-ai/flux/dev",
    auth=("Authorization", "Key KEY"),
    live=_request,
    done=changed(_request, status="COMPLETED"),
    failed=changed(_request, status="COMPLETED", error="runner lost", error_type="runner_disconnected"),
    error=("runner_disconnected", "runner lost"),
    throttle=told({"detail": "too many requests"}, 429, Retry_After="5"),
    odd=changed(_request, status="HIBERNATING"),
    result={"images": []},
    fetch=("/fal-ai/flux/requests/r1", told({"images": []})),
    cancelled=changed(_request, status="CANCELED"),
    cancel=("PUT", "/fal-ai/flux/requests/r1/cancel"),
    cancel_answer=told({"status": "CANCELLATION_REQUESTED"}, 202),
    late=told({"status": "ALREADY_COMPLETED"}, 400),
)

_batch = {
    "id": "batch_1",
    "object": "batch",
    "status": "in_progress",
    "errors": None,
    "output_file_id": None,
    "error_file_id": None,
    "request_counts": {"total": 10, "completed": 4, "failed": 0},
}
OPENAI = Vendor(
    "openai-batch",
    ("POST", "/v1/batches"),
    told(changed(_batch, status="validating", request_counts={"total": 0, "completed": 0, "failed": 0})),
    ("GET", "/v1/batches/batch_1"),
    live=_batch,
    done=changed(
        _batch,
        status="completed",
        output_file_id="file-1",
        request_counts={"total": 10, "completed": 10, "failed": 0},
    ),
    failed=changed(
        _batch, status="failed", errors={"data": [{"code": "bad_line", "message": "line 3"}]}
    ),
    error=("bad_line", "line 3"),
    throttle=told(
        {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}},
        429,
        X_RateLimit_Limit_Requests="60",
        X_RateLimit_Remaining_Requests="0",
        X_RateLimit_Reset_Requests="5s",
    ),
    odd=changed(_batch, status="hibernating"),
    progress=40.0,
    result="{url}/v1/files/file-1/content",
    fetch=(
        "/v1/files/file-1/content",
        told(b'{"custom_id": "1"}\n', 200, Content_Type="application/jsonl"),
    ),
    cancelled=changed(_batch, status="cancelled"),
    cancel=("POST", "/v1/batches/batch_1/cancel"),
    cancel_answer=told(changed(_batch, status="cancelling")),
)

_run = {"dag_run_id": "manual__1", "dag_id": "etl", "state": "running", "note": None, "conf": {"a": 1}}
AIRFLOW = Vendor(
    "airflow",
    ("POST", "/api/v2/dags/etl/dagRuns"),
    told(changed(_run, state="queued")),
    ("GET", "/api/v2/dags/etl/dagRuns/manual__1"),
    kind="etl",
    sent={"conf": {"a": 1}, "logical_date": None},
    live=_run,
    done=changed(_run, state="success"),
    failed=changed(_run, state="failed"),
    error=("FAILED", "the API reports failed without a message"),
    throttle=SLOW,
    odd=changed(_run, state="hibernating"),
    cancelled=changed(_run, state="failed", note="[cancelled by bide] "),
    cancel=("PATCH", "/api/v2/dags/etl/dagRuns/manual__1"),
    cancel_sent={"state": "failed", "note": "[cancelled by bide] "},
    cancel_answer=told(changed(_run, state="failed")),
)

_flow = {
    "id": ID,
    "name": "calm-cat",
    "state_type": "RUNNING",
    "state": {"type": "RUNNING", "name": "Running"},
}
_crashed = {"type": "CRASHED", "name": "Crashed", "message": "the pod went away"}
PREFECT = Vendor(
    "prefect",
    ("POST", "/api/deployments/d1/create_flow_run"),
    told(changed(_flow, state_type="SCHEDULED"), 201),
    ("GET", f"/api/flow_runs/{ID}"),
    base="/api",
    kind="d1",
    sent={"parameters": {"a": 1}, "state": {"type": "SCHEDULED"}},
    auth=("", ""),
    live=_flow,
    done=changed(_flow, state_type="COMPLETED"),
    failed=changed(_flow, state_type="CRASHED", state=_crashed),
    error=("Crashed", "the pod went away"),
    throttle=told({"detail": "slow down"}, 429, Retry_After="5"),
    odd=changed(_flow, state_type="HIBERNATING"),
    cancelled=changed(_flow, state_type="CANCELLED"),
    cancel=("POST", f"/api/flow_runs/{ID}/set_state"),
    cancel_sent={"state": {"type": "CANCELLING", "name": "Cancelling"}},
    cancel_answer=told({"state": {"type": "CANCELLING"}, "status": "ACCEPT"}, 201),
    batch=("POST", "/api/flow_runs/filter"),
)

_actions = {"id": 30433642, "status": "in_progress", "conclusion": None}
GITHUB = Vendor(
    "github-actions",
    ("POST", "/repos/octocat/hello/actions/workflows/ci.yml/dispatches"),
    told({"workflow_run_id": 30433642, "run_url": "{url}/repos/octocat/hello/actions/runs/30433642"}),
    ("GET", "/repos/octocat/hello/actions/runs/30433642"),
    kind="ci.yml",
    input={"owner": "octocat", "repo": "hello", "ref": "main", "inputs": {"a": "1"}},
    sent={"ref": "main", "inputs": {"a": "1"}, "return_run_details": True},
    live=_actions,
    done=changed(_actions, status="completed", conclusion="success"),
    failed=changed(_actions, status="completed", conclusion="failure"),
    error=("FAILURE", "the API reports failure without a message"),
    throttle=told(
        {"message": "API rate limit exceeded"}, 403, X_RateLimit_Remaining="0", Retry_After="5"
    ),
    odd=changed(_actions, status="hibernating"),
    cancelled=changed(_actions, status="completed", conclusion="cancelled"),
    cancel=("POST", "/repos/octocat/hello/actions/runs/30433642/cancel"),
    cancel_answer=told({}, 202),
    late=told({"message": "Cannot cancel a workflow run that is completed."}, 409),
    batch=("GET", "/repos/octocat/hello/actions/runs"),
    grace=told({"message": "Not Found"}, 404),
)


def _transcription(status: str | None, **fields: Any) -> dict[str, Any]:
    word = {} if status is None else {"TranscriptionJobStatus": status}
    return {"TranscriptionJob": {"TranscriptionJobName": "j1", **word, **fields}}


TRANSCRIBE = Vendor(
    "aws-transcribe",
    ("Transcribe.StartTranscriptionJob", "/"),
    told(_transcription("IN_PROGRESS")),
    ("Transcribe.GetTranscriptionJob", "/"),
    input={"TranscriptionJobName": "j1", "LanguageCode": "en-US"},
    auth=("Authorization", "AWS4-HMAC-SHA256 "),
    live=_transcription(None),
    done=_transcription(
        "COMPLETED", Transcript={"TranscriptFileUri": "https://s3.example/t.json?sig=1"}
    ),
    failed=_transcription("FAILED", FailureReason="no speech"),
    error=("FAILED", "no speech"),
    throttle=told({"__type": "ThrottlingException", "message": "Rate exceeded"}, 400),
    odd=_transcription("HIBERNATING"),
    result="https://s3.example/t.json?sig=1",
    cancelled={"__type": "NotFoundException", "Message": "The requested job couldn't be found."},
    cancel=("Transcribe.DeleteTranscriptionJob", "/"),
    cancel_sent={"TranscriptionJobName": "j1"},
    grace=told(
        {"__type": "BadRequestException", "Message": "The requested job couldn't be found."}, 400
    ),
)

VENDORS = [
    AIRFLOW,
    TRANSCRIBE,
    AZURE,
    BIDE,
    CANVAS_PROGRESS,
    CANVAS_REPORT,
    FAL,
    FLOWER,
    GITHUB,
    GOOGLE,
    KNOWHERE,
    OGC,
    OPENAI,
    PREFECT,
    REPLICATE,
    SYNC,
]
