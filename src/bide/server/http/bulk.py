"""POST /bulk: one action on all jobs that match a filter."""

from __future__ import annotations

import msgspec

from bide.core.errors import (
    Gone,
    IdempotencyConflict,
    InvalidInput,
    MalformedRequest,
    NotConfirmed,
    PayloadTooLarge,
    QueryTimeout,
    QuotaExceeded,
    UnsupportedMedia,
)
from bide.core.wire.http import JobStatus, read_idempotency_key
from bide.server.bulk import BulkRequest
from bide.server.http.request import REPLAYED, HttpRequest, Response, json_response, object_response
from bide.server.http.routing import HttpOperation, ResponseSpec
from bide.server.http.status import JobView, retry_after_header
from bide.server.http.submit import IDEMPOTENCY_KEY
from bide.server.intake import decode

MAX_BODY = 256 * 1024  # bytes; the largest filter, with the most ids, is smaller
_request = msgspec.json.Decoder(BulkRequest)


class WireBulkCount(msgspec.Struct):
    """The response to a dry run: how many jobs match now."""

    count: int


async def act(request: HttpRequest) -> Response:
    bulk = request.components.bulk
    key = read_idempotency_key(request.header(b"idempotency-key"))
    wanted = decode(_request, await request.json(MAX_BODY))
    if wanted.dry_run:
        return object_response(WireBulkCount(await bulk.count(wanted, request.tenant)))
    stored = await bulk.submit(wanted, request.tenant, key=key, trace_id=request.trace_id)
    if not stored.created:
        await request.components.progress.refresh((stored.job,))
    shown = JobView(request, stored.job)
    return json_response(
        202,
        shown.submitted_body(replayed=not stored.created),
        *retry_after_header(shown.retry_after()),
        shown.location(),
        *([] if stored.created else [REPLAYED]),
    )


OPERATIONS = [
    HttpOperation(
        "POST",
        "/bulk",
        act,
        "bulkAction",
        "Cancel, retry, delete or re-prioritize all jobs that match",
        "jobs",
        description="With `dryRun` the response is the number of jobs that match, and nothing changes. Otherwise the "
        "service creates a job of the kind `bide.bulk`, which acts on the jobs that were created before the request. Its "
        "result has the numbers of `changed`, `refused` and `skipped` jobs. `delete` needs `confirm`, the number of jobs "
        "that match.",
        parameters=(IDEMPOTENCY_KEY,),
        body="BulkRequest",
        reads=BulkRequest,
        scope="control",
        responses=(
            ResponseSpec(200, "The number of jobs that match; only with `dryRun`.", WireBulkCount),
            ResponseSpec(
                202,
                "The job that runs the action.",
                JobStatus,
                headers=("Location", "Retry-After", "Idempotency-Replayed"),
            ),
        ),
        problems=(
            *(MalformedRequest, PayloadTooLarge, UnsupportedMedia, InvalidInput, NotConfirmed),
            *(IdempotencyConflict, Gone, QueryTimeout, QuotaExceeded),
        ),
        example="-X POST $BASE/bulk -H 'Content-Type: application/json' "
        '-d \'{"action": "retry", "filter": {"status": "ERROR"}, "dryRun": true}\'',
    ),
]
