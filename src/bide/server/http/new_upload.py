"""The request that begins an upload, common to all protocols: the file, and the job that it creates."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from bide.core.wire.http import Dedupe, read_idempotency_key
from bide.server.http.request import HttpRequest
from bide.server.http.restrictions import restrict_upload
from bide.server.intake import SubmittedWebhook
from bide.server.uploads.upload_jobs import UploadJob, make_upload_job


class NewUpload(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    size: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
    name: str | None = None
    content_type: str | None = None
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] | None = None
    kind: str | None = None
    input: dict[str, Any] = {}
    parameter: str | None = None
    priority: int | None = None
    queue: str | None = None
    run_at: str | None = None
    deadline: str | None = None
    labels: dict[str, str] | None = None
    idempotency_key: str | None = None
    dedupe: Dedupe | None = None
    webhook: SubmittedWebhook | None = None

    async def job(self, request: HttpRequest) -> UploadJob | None:
        """Return the job that the upload creates; None without a kind."""
        if self.kind is None:
            return await restrict_upload(request, None)
        fields = {
            "kind": self.kind,
            "priority": self.priority,
            "queue": self.queue,
            "labels": self.labels,
            "runAt": self.run_at,
            "deadline": self.deadline,
            "dedupe": self.dedupe,
            "webhook": self.webhook,
        }
        made = make_upload_job(
            fields,
            msgspec.json.encode(self.input),
            parameter=self.parameter,
            key=read_idempotency_key(self.idempotency_key),
            trace_id=request.trace_id,
        )
        return await restrict_upload(request, made)
