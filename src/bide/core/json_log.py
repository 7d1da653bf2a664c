"""Log records as JSON, one object per line, with the job, the request, the trace and the tenant that a record is about.

A caller of `logging` passes these fields with `extra`: those of a job with `about_job`. A field that is None is left out.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from bide.core.clock import render_instant
from bide.core.jobs.record import Job

# Attributes of a record, and their names in the output.
FIELDS = {
    "job_id": "jobId",
    "kind": "kind",
    "attempt": "attempt",
    "request": "request",
    "trace_id": "traceId",
    "tenant": "tenant",
    "api": "api",
}
_encode = msgspec.json.Encoder(enc_hook=str).encode


def about_job(job: Job) -> dict[str, Any]:
    """The `extra` of a record about a job."""
    return {
        "job_id": job.id,
        "kind": job.kind,
        "attempt": job.attempt or None,
        "trace_id": job.trace_id,
        "tenant": job.tenant,
    }


class JsonFormatter(logging.Formatter):
    """Formats a record as one line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": render_instant(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, shown in FIELDS.items():
            if (value := getattr(record, name, None)) is not None:
                line[shown] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return _encode(line).decode()
