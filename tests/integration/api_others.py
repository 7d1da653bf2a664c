"""Vendors of APIs that do not come with bide, and that the form can express: their descriptions are in tests/data/apis."""

from __future__ import annotations

from typing import Any

from tests.integration.api_vendors import SLOW, Vendor, changed, told

_array = {"jobs": [{"jobId": "b1", "status": "RUNNING"}]}
AWS_BATCH = Vendor(
    "aws-batch",
    ("POST", "/v1/submitjob"),
    told({"jobId": "b1", "jobName": "n"}),
    ("POST", "/v1/describejobs"),
    auth=("Authorization", "AWS4-HMAC-SHA256 "),
    live=_array,
    done={"jobs": [{"jobId": "b1", "status": "SUCCEEDED"}]},
    failed={"jobs": [{"jobId": "b1", "status": "FAILED", "statusReason": "Host terminated"}]},
    error=("FAILED", "Host terminated"),
    throttle=told({"message": "Too Many Requests"}, 400, X_Amzn_ErrorType="TooManyRequestsException"),
    odd={"jobs": [{"jobId": "b1", "status": "HIBERNATING"}]},
    cancelled={"jobs": [{"jobId": "b1", "status": "FAILED", "statusReason": "no longer needed"}]},
    cancel=("POST", "/v1/terminatejob"),
    cancel_sent={"jobId": "b1", "reason": "no longer needed"},
    ends="ERROR",
    absent=told({"jobs": []}),
)

_counts = {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
_messages = {
    "id": "mb1",
    "processing_status": "in_progress",
    "request_counts": {**_counts, "processing": 9},
}


def _ended(**counts: int) -> dict[str, Any]:
    return {"id": "mb1", "processing_status": "ended", "request_counts": {**_counts, **counts}}


ANTHROPIC = Vendor(
    "anthropic-batch",
    ("POST", "/v1/messages/batches"),
    told(_messages),
    ("GET", "/v1/messages/batches/mb1"),
    auth=("x-api-key", "KEY"),
    live=_messages,
    done={**_ended(succeeded=9), "results_url": "{url}/v1/messages/batches/mb1/results"},
    failed=_ended(errored=8, expired=1),
    error=("ENDED", "the API reports ended without a message"),
    throttle=told({"type": "error", "error": {"type": "rate_limit_error"}}, 429, Retry_After="5"),
    odd=changed(_messages, processing_status="hibernating"),
    result="{url}/v1/messages/batches/mb1/results",
    fetch=(
        "/v1/messages/batches/mb1/results",
        told(b'{"custom_id": "1"}\n', 200, Content_Type="application/x-jsonl"),
    ),
    cancelled=_ended(canceled=9),
    cancel=("POST", "/v1/messages/batches/mb1/cancel"),
    cancel_answer=told(changed(_messages, processing_status="canceling")),
)

_ingest = "/services/data/v62.0/jobs/ingest"
_bulk = {"id": "750", "object": "Contact", "state": "InProgress", "numberRecordsProcessed": 3}
SALESFORCE = Vendor(
    "salesforce-bulk",
    ("POST", _ingest),
    told(changed(_bulk, state="Open", contentUrl="services/data/v62.0/jobs/ingest/750/batches")),
    ("GET", f"{_ingest}/750"),
    kind="Contact",
    input={"operation": "insert", "csv": "Name\nAda\n"},
    sent={"object": "Contact", "operation": "insert", "contentType": "CSV"},
    after=(
        (("PUT", f"{_ingest}/750/batches"), "Name\nAda\n"),
        (("PATCH", f"{_ingest}/750"), {"state": "UploadComplete"}),
    ),
    live=_bulk,
    done=changed(_bulk, state="JobComplete", numberRecordsFailed=0),
    failed=changed(_bulk, state="Failed", errorMessage="InvalidBatch"),
    error=("FAILED", "InvalidBatch"),
    throttle=told(
        [{"errorCode": "REQUEST_LIMIT_EXCEEDED", "message": "TotalRequests Limit exceeded."}], 403
    ),
    odd=changed(_bulk, state="Hibernating"),
    result="{url}" + f"{_ingest}/750/successfulResults",
    fetch=(
        f"{_ingest}/750/successfulResults",
        told(b"sf__Id,Name\n1,Ada\n", 200, Content_Type="text/csv"),
    ),
    cancelled=changed(_bulk, state="Aborted"),
    cancel=("PATCH", f"{_ingest}/750"),
    cancel_sent={"state": "Aborted"},
)

_graphql = ("POST", "/admin/api/2026-01/graphql.json")
_gid = "gid://shopify/BulkOperation/1"


def _node(status: str, **fields: Any) -> dict[str, Any]:
    return {"data": {"node": {"id": _gid, "status": status, **fields}}}


SHOPIFY = Vendor(
    "shopify-bulk",
    ("bulkOperationRunQuery", _graphql[1]),
    told({"data": {"bulkOperationRunQuery": {"bulkOperation": {"id": _gid}, "userErrors": []}}}),
    ("node", _graphql[1]),
    input={"query": "{ products { edges { node { id } } } }"},
    sent=...,
    auth=("X-Shopify-Access-Token", "KEY"),
    live=_node("RUNNING", objectCount="12"),
    done=_node("COMPLETED", url="https://storage.example/bulk.jsonl?sig=1"),
    failed=_node("FAILED", errorCode="TIMEOUT", partialDataUrl="https://storage.example/part.jsonl"),
    error=("TIMEOUT", "the API reports FAILED without a message"),
    throttle=told({"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}]}),
    odd=_node("HIBERNATING"),
    result="https://storage.example/bulk.jsonl?sig=1",
    cancelled=_node("CANCELED"),
    cancel=("bulkOperationCancel", _graphql[1]),
    cancel_sent=...,
    absent=told({"data": {"node": None}}),
)

_conversion = {"task_id": "d1", "task_status": "started", "task_position": None}
DOCLING = Vendor(
    "docling",
    ("POST", "/v1/convert/source/async"),
    told(changed(_conversion, task_status="pending", task_position=2)),
    ("GET", "/v1/status/poll/d1"),
    auth=("X-Api-Key", "KEY"),
    live=_conversion,
    done=changed(_conversion, task_status="success"),
    failed=changed(_conversion, task_status="failure", error_message="bad pdf"),
    error=("FAILURE", "bad pdf"),
    throttle=SLOW,
    odd=changed(_conversion, task_status="hibernating"),
    result={"document": {"md_content": "# Title"}},
    fetch=("/v1/result/d1", told({"document": {"md_content": "# Title"}})),
)

UNSTRUCTURED = Vendor(
    "unstructured",
    ("POST", "/v1/jobs/"),
    told(b"", 202, Location="../jobs/u1"),
    ("GET", "/v1/jobs/u1"),
    auth=("unstructured-api-key", "KEY"),
    live={"status": "in_progress"},
    done={"status": "completed", "elements": [{"type": "Title"}]},
    failed={"status": "failed", "code": "PARSE", "message": "bad pdf"},
    error=("PARSE", "bad pdf"),
    throttle=SLOW,
    odd={"status": "hibernating"},
    result=[{"type": "Title"}],
    cancelled={"status": "stopped"},
    cancel=("POST", "/v1/jobs/u1/cancel"),
)

_transcript = {"id": "t1", "status": "processing", "text": None}
ASSEMBLYAI = Vendor(
    "assemblyai",
    ("POST", "/v2/transcript"),
    told(changed(_transcript, status="queued")),
    ("GET", "/v2/transcript/t1"),
    auth=("Authorization", "KEY"),
    live=_transcript,
    done=changed(_transcript, status="completed", text="hello"),
    failed=changed(_transcript, status="error", error="no audio"),
    error=("ERROR", "no audio"),
    throttle=SLOW,
    odd=changed(_transcript, status="hibernating"),
    result=changed(_transcript, status="completed", text="hello"),
)

_parse = {"job": {"id": "l1", "status": "RUNNING"}}
LLAMAPARSE = Vendor(
    "llamaparse",
    ("POST", "/api/v2/parse"),
    told({"id": "l1", "status": "PENDING"}),
    ("GET", "/api/v2/parse/l1"),
    live=_parse,
    done={"job": {"id": "l1", "status": "COMPLETED"}, "markdown": {"pages": []}},
    failed={"job": {"id": "l1", "status": "FAILED", "error_message": "bad pdf"}},
    error=("FAILED", "bad pdf"),
    throttle=SLOW,
    odd={"job": {"id": "l1", "status": "HIBERNATING"}},
    result={"pages": []},
    cancelled={"job": {"id": "l1", "status": "CANCELLED"}},
    cancel=("POST", "/api/v2/parse/l1/cancel"),
)

_response = {"id": "resp_1", "status": "in_progress", "output": []}
OPENAI_RESPONSE = Vendor(
    "openai-response",
    ("POST", "/v1/responses"),
    told(changed(_response, status="queued")),
    ("GET", "/v1/responses/resp_1"),
    input={"model": "m", "input": "hi", "background": True},
    live=_response,
    done=changed(_response, status="completed", output=[{"text": "hello"}]),
    failed=changed(_response, status="failed", error={"code": "server_error", "message": "sorry"}),
    error=("server_error", "sorry"),
    throttle=told({"error": {"message": "slow", "code": "rate_limit_exceeded"}}, 429, Retry_After="5"),
    odd=changed(_response, status="hibernating"),
    result=changed(_response, status="completed", output=[{"text": "hello"}]),
    cancelled=changed(_response, status="cancelled"),
    cancel=("POST", "/v1/responses/resp_1/cancel"),
    cancel_answer=told(changed(_response, status="cancelled")),
)

OTHERS = [
    ANTHROPIC,
    ASSEMBLYAI,
    AWS_BATCH,
    DOCLING,
    LLAMAPARSE,
    OPENAI_RESPONSE,
    SALESFORCE,
    SHOPIFY,
    UNSTRUCTURED,
]
