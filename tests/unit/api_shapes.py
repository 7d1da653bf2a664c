"""Answers in the shapes that each API's documentation shows, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from bide.client.apis import Api, Ref, load

SHIPPED = [
    "airflow",
    "aws-transcribe",
    "azure",
    "bide",
    "canvas-progress",
    "canvas-report",
    "fal",
    "flower",
    "github-actions",
    "google",
    "knowhere",
    "ogc",
    "openai-batch",
    "prefect",
    "replicate",
    "sync.so",
]
ID = "6533643b-acbe-4c40-967e-d9ba9baac39e"
REFS = {
    "airflow": Ref("manual__2026", None, {"dag": "etl"}),
    "azure": Ref("op1", "https://management.azure.com/operations/op1?api-version=1", {}),
    "canvas-progress": Ref("1"),
    "canvas-report": Ref("5", None, {"account": "1", "report": "grade_export_csv"}),
    "fal": Ref(
        ID,
        f"https://queue.fal.run/fal-ai/flux/requests/{ID}/status",
        {
            "cancel": f"https://queue.fal.run/fal-ai/flux/requests/{ID}/cancel",
            "response": f"https://queue.fal.run/fal-ai/flux/requests/{ID}",
        },
    ),
    "github-actions": Ref("30433642", None, {"owner": "octocat", "repo": "hello"}),
    "google": Ref("projects/p/operations/42"),
}
BASES = {
    "airflow": "https://airflow.example.com",
    "azure": "https://management.azure.com",
    "canvas-progress": "https://canvas.example.edu",
    "canvas-report": "https://canvas.example.edu",
    "google": "https://speech.googleapis.com",
    "ogc": "https://ogc.example.org/api",
}


def api_of(name: str) -> Api:
    return load(name, BASES.get(name))


def ref_of(name: str) -> Ref:
    return REFS.get(name, Ref(ID))


class Case(NamedTuple):
    api: str
    body: Any
    seen: dict[str, Any]
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})

    @property
    def name(self) -> str:
        word = self.seen.get("word", "")
        return f"{self.api}-{self.status}-{word or self.seen['state']}"


def github(**fields: Any) -> dict[str, Any]:
    run = {
        "id": 30433642,
        "status": "in_progress",
        "conclusion": None,
        "run_started_at": "2026-01-22T19:33:08Z",
    }
    return {**run, "updated_at": "2026-01-22T19:34:08Z", **fields}


def transcribe(**fields: Any) -> dict[str, Any]:
    return {"TranscriptionJob": {"TranscriptionJobName": ID, "CreationTime": 1_760_000_000.25, **fields}}


CANVAS = {"id": 1, "context_type": "Account", "tag": "course_batch_update", "message": None}
REPORT = {
    "id": 5,
    "report": "grade_export_csv",
    "attachment": None,
    "created_at": "2026-01-02T00:03:21-06:00",
}
BATCH = {"id": ID, "object": "batch", "errors": None, "output_file_id": None, "error_file_id": None}
COUNTS = {"total": 100, "completed": 95, "failed": 5}

CASES = [
    Case(
        "bide",
        {
            "jobId": ID,
            "status": "PROCESSING",
            "progress": {"percent": 41.5, "message": "Transcoding", "done": 1245, "total": 3000},
            "eta": {"finishAt": "2030-01-01T00:00:10.000Z"},
            "startedAt": "2030-01-01T00:00:00.000Z",
        },
        {
            "state": "live",
            "word": "PROCESSING",
            "progress": 0.415,
            "counts": (1245.0, 3000.0),
            "message": "Transcoding",
            "eta": 1893456010.0,
            "started_at": 1893456000.0,
            "etag": '"3.7"',
            "retry_after": 4.0,
        },
        headers={"ETag": '"3.7"', "Retry-After": "4"},
    ),
    Case(
        "bide",
        {
            "jobId": ID,
            "status": "DONE",
            "result": {"a": 1},
            "files": [
                {
                    "name": "v.mp4",
                    "contentType": "video/mp4",
                    "size": 9,
                    "sha256": "ab",
                    "url": "/f/v.mp4",
                }
            ],
            "links": {"result": f"/jobs/{ID}/result"},
        },
        {"state": "done", "result": {"a": 1}, "result_url": f"http://127.0.0.1:8642/jobs/{ID}/result"},
    ),
    Case(
        "bide",
        {
            "jobId": ID,
            "status": "ERROR",
            "error": {"code": "OCR_TIMEOUT", "message": "page 7", "failedStep": "ocr"},
        },
        {"state": "failed", "error": ("OCR_TIMEOUT", "page 7"), "result_url": None},
    ),
    Case(
        "bide",
        {"jobId": ID, "status": "PARTIAL_SUCCESS", "result": 1},
        {"state": "partial", "result": 1},
    ),
    Case("bide", {"jobId": ID, "status": "CANCELLED"}, {"state": "cancelled", "error": None}),
    Case("bide", b"", {"state": "live", "unchanged": True, "etag": '"3"'}, 304, {"etag": '"3"'}),
    Case(
        "sync.so",
        {"id": ID, "status": "PROCESSING", "progress_percent": 41, "outputUrl": None, "error": None},
        {"state": "live", "progress": 0.41},
    ),
    Case(
        "sync.so",
        {"id": ID, "status": "COMPLETED", "outputUrl": "https://cdn.sync.so/out.mp4?X-Amz-Signature=1"},
        {"state": "done", "result_url": "https://cdn.sync.so/out.mp4?X-Amz-Signature=1"},
    ),
    Case(
        "sync.so",
        {"id": ID, "status": "FAILED", "error": "no face", "errorCode": "generation_input_face_missing"},
        {"state": "failed", "error": ("generation_input_face_missing", "no face")},
    ),
    Case(
        "sync.so",
        {"id": ID, "status": "REJECTED", "error": "moderated"},
        {"state": "failed", "error": ("REJECTED", "moderated")},
    ),
    Case("sync.so", {"id": ID, "status": "TIMED_OUT"}, {"state": "failed"}),
    Case("sync.so", {"id": ID, "status": "CANCELED"}, {"state": "cancelled"}),
    Case(
        "knowhere",
        {"job_id": ID, "status": "running", "progress": {"processed_pages": 3, "total_pages": 12}},
        {"state": "live", "progress": 0.25, "counts": (3.0, 12.0)},
    ),
    Case(
        "knowhere",
        {"job_id": ID, "status": "running", "progress": 0.5},
        {"state": "live", "progress": 0.5},
    ),
    Case(
        "knowhere",
        {
            "job_id": ID,
            "status": "done",
            "result_url": "https://s3/x.zip",
            "result_url_expires_at": "2030-01-01T00:00:00Z",
        },
        {"state": "done", "result_url": "https://s3/x.zip", "expires_at": 1893456000.0},
    ),
    Case(
        "knowhere",
        {"job_id": ID, "status": "failed", "error": {"code": "PARSE", "message": "bad pdf"}},
        {"state": "failed", "error": ("PARSE", "bad pdf")},
    ),
    Case("azure", {"status": "Running", "percentComplete": 30}, {"state": "live", "progress": 0.3}),
    Case("azure", {"status": "NeverHeardOf"}, {"state": "live", "word": "NeverHeardOf"}),
    Case("azure", {"status": "sUCCEEDED", "result": [1]}, {"state": "done", "result": [1]}),
    Case(
        "azure",
        {"status": "Succeeded", "resourceLocation": "/things/1"},
        {"state": "done", "result": None, "result_url": "https://management.azure.com/things/1"},
    ),
    Case("azure", b"", {"state": "live", "word": ""}, 202),
    Case("azure", {"name": "vm"}, {"state": "done", "word": "", "result": {"name": "vm"}}),
    Case("azure", b"", {"state": "done", "result": None}, 204),
    Case(
        "azure",
        {"status": "Failed", "error": {"code": "Quota", "message": "no cores"}},
        {"state": "failed", "error": ("Quota", "no cores")},
    ),
    Case("azure", {"status": "Canceled"}, {"state": "cancelled"}),
    Case(
        "google",
        {"name": "projects/p/operations/42", "metadata": {"progressPercentage": 50}},
        {"state": "live", "progress": 0.5},
    ),
    Case(
        "google",
        {"name": "projects/p/operations/42", "done": True, "response": {"x": 1}},
        {"state": "done", "result": {"x": 1}},
    ),
    Case(
        "google",
        {
            "name": "projects/p/operations/42",
            "done": True,
            "error": {"code": 14, "message": "try later"},
        },
        {"state": "failed", "error": ("14", "try later")},
    ),
    Case(
        "ogc",
        {"jobID": ID, "status": "running", "progress": 33, "message": "tile 3"},
        {"state": "live", "progress": 0.33, "message": "tile 3"},
    ),
    Case(
        "ogc",
        {"jobID": ID, "status": "successful"},
        {"state": "done", "result_url": f"https://ogc.example.org/api/jobs/{ID}/results"},
    ),
    Case(
        "ogc",
        {
            "jobID": ID,
            "status": "successful",
            "links": [{"rel": "http://www.opengis.net/def/rel/ogc/1.0/results", "href": "https://o/r"}],
        },
        {"state": "done", "result_url": "https://o/r"},
    ),
    Case(
        "ogc",
        {"jobID": ID, "status": "failed", "message": "oom"},
        {"state": "failed", "error": ("FAILED", "oom")},
    ),
    Case("ogc", {"jobID": ID, "status": "dismissed"}, {"state": "cancelled"}),
    Case(
        "canvas-progress",
        {**CANVAS, "workflow_state": "queued", "completion": 0},
        {"state": "live", "progress": 0.0},
    ),
    Case(
        "canvas-progress",
        {**CANVAS, "workflow_state": "completed", "completion": 100, "results": {"id": "123"}},
        {"state": "done", "result": {"id": "123"}},
    ),
    Case(
        "canvas-progress",
        {**CANVAS, "workflow_state": "failed", "message": "boom"},
        {"state": "failed", "error": ("FAILED", "boom")},
    ),
    Case(
        "canvas-report",
        {**REPORT, "status": "running", "progress": 40},
        {"state": "live", "progress": 0.4},
    ),
    Case(
        "canvas-report",
        {
            **REPORT,
            "status": "complete",
            "attachment": {"url": "https://f/1?token=x", "filename": "g.csv", "size": 7},
        },
        {"state": "done", "result_url": "https://f/1?token=x"},
    ),
    Case("canvas-report", {**REPORT, "status": "error"}, {"state": "failed", "result_url": None}),
    Case("canvas-report", {**REPORT, "status": "aborted"}, {"state": "cancelled"}),
    Case("flower", {"task-id": ID, "state": "PENDING"}, {"state": "live"}),
    Case("flower", {"task-id": ID, "state": "SUCCESS", "result": 3}, {"state": "done", "result": 3}),
    Case(
        "flower",
        {"task-id": ID, "state": "FAILURE", "result": "ValueError('x')", "traceback": "…"},
        {"state": "failed", "error": ("FAILURE", "ValueError('x')"), "result": None},
    ),
    Case(
        "flower",
        {"task-id": ID, "state": "REVOKED", "result": "TaskRevokedError"},
        {"state": "cancelled"},
    ),
    Case(
        "replicate",
        {"id": ID, "status": "processing", "logs": "  3%|▎  | 1/30\n 60%|██████  | 18/30 [00:02]"},
        {"state": "live", "progress": 0.6},
    ),
    Case("replicate", {"id": ID, "status": "starting", "logs": ""}, {"state": "live", "progress": None}),
    Case(
        "replicate",
        {"id": ID, "status": "succeeded", "output": ["https://r/1"]},
        {"state": "done", "result": ["https://r/1"]},
    ),
    Case(
        "replicate",
        {"id": ID, "status": "failed", "error": "CUDA"},
        {"state": "failed", "error": ("FAILED", "CUDA")},
    ),
    Case("replicate", {"id": ID, "status": "aborted"}, {"state": "cancelled"}),
    Case("replicate", {"id": ID, "status": "canceled"}, {"state": "cancelled"}),
    Case("fal", {"status": "IN_QUEUE", "queue_position": 4}, {"state": "live", "position": 4}, 202),
    Case(
        "fal",
        {"status": "COMPLETED", "request_id": ID},
        {"state": "done", "result_url": f"https://queue.fal.run/fal-ai/flux/requests/{ID}"},
    ),
    Case(
        "fal",
        {"status": "COMPLETED", "error": "timed out", "error_type": "request_timeout"},
        {"state": "failed", "error": ("request_timeout", "timed out")},
    ),
    Case(
        "openai-batch",
        {
            **BATCH,
            "status": "in_progress",
            "request_counts": {"total": 100, "completed": 20, "failed": 0},
        },
        {"state": "live", "progress": 0.2, "counts": (20.0, 100.0)},
    ),
    Case(
        "openai-batch",
        {
            **BATCH,
            "status": "completed",
            "output_file_id": "file-1",
            "request_counts": {"total": 9, "completed": 9, "failed": 0},
        },
        {"state": "done", "result_url": "https://api.openai.com/v1/files/file-1/content"},
    ),
    Case(
        "openai-batch",
        {**BATCH, "status": "completed", "error_file_id": "file-2", "request_counts": COUNTS},
        {"state": "partial", "result_url": None},
    ),
    Case(
        "openai-batch",
        {**BATCH, "status": "failed", "errors": {"data": [{"code": "bad_line", "message": "line 1"}]}},
        {"state": "failed", "error": ("bad_line", "line 1")},
    ),
    Case("openai-batch", {**BATCH, "status": "cancelling"}, {"state": "live"}),
    Case("openai-batch", {**BATCH, "status": "cancelled"}, {"state": "cancelled"}),
    Case("openai-batch", {**BATCH, "status": "expired"}, {"state": "failed", "word": "expired"}),
    Case(
        "airflow",
        {"dag_run_id": "manual__2026", "state": "running", "start_date": "2030-01-01T00:00:00Z"},
        {"state": "live", "started_at": 1893456000.0},
    ),
    Case(
        "airflow",
        {"dag_run_id": "manual__2026", "state": "success", "end_date": "2030-01-01T00:00:00+00:00"},
        {"state": "done", "finished_at": 1893456000.0},
    ),
    Case("airflow", {"dag_run_id": "manual__2026", "state": "failed"}, {"state": "failed"}),
    Case(
        "prefect",
        {"id": ID, "state_type": "RUNNING", "state": {"type": "RUNNING", "message": "step 2"}},
        {"state": "live", "message": "step 2"},
    ),
    Case("prefect", {"id": ID, "state": {"type": "COMPLETED"}}, {"state": "done"}),
    Case(
        "prefect",
        {"id": ID, "state_type": "CRASHED", "state": {"name": "Crashed", "message": "killed"}},
        {"state": "failed", "error": ("Crashed", "killed")},
    ),
    Case("prefect", {"id": ID, "state_type": "CANCELLED"}, {"state": "cancelled"}),
    Case(
        "github-actions",
        github(),
        {"state": "live", "started_at": 1769110388.0, "etag": 'W/"a"'},
        headers={"ETag": 'W/"a"'},
    ),
    Case(
        "github-actions",
        github(status="completed", conclusion="success"),
        {"state": "done", "word": "success", "finished_at": 1769110448.0},
    ),
    Case(
        "github-actions",
        github(status="completed", conclusion="timed_out"),
        {"state": "failed", "word": "timed_out"},
    ),
    Case("github-actions", github(status="completed", conclusion="cancelled"), {"state": "cancelled"}),
    Case(
        "github-actions",
        github(status="completed", conclusion="exploded"),
        {"state": "unknown", "word": "exploded"},
    ),
    Case("github-actions", github(status="completed"), {"state": "unknown", "word": "completed"}),
    Case(
        "aws-transcribe",
        transcribe(TranscriptionJobStatus="IN_PROGRESS"),
        {"state": "live", "started_at": 1_760_000_000.25},
    ),
    Case("aws-transcribe", transcribe(), {"state": "live", "word": ""}),
    Case(
        "aws-transcribe",
        transcribe(
            TranscriptionJobStatus="COMPLETED",
            Transcript={"TranscriptFileUri": "https://s3.amazonaws.com/a"},
        ),
        {"state": "done", "result_url": "https://s3.amazonaws.com/a"},
    ),
    Case(
        "aws-transcribe",
        transcribe(TranscriptionJobStatus="FAILED", FailureReason="bad media"),
        {"state": "failed", "error": ("FAILED", "bad media")},
    ),
]
