"""FastAPI in front of Celery: `POST /jobs` calls `.delay()` and returns 202 with the task's id.

`.delay()` blocks, so the routes are plain `def`, as FastAPI's documentation says; `/jobs/inline` is the same in the
event loop, which is faster while Redis responds immediately, and blocks all other requests when it does not.
"""

# mypy: disable-error-code="import-not-found,untyped-decorator,misc"

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from bench.service.peers.celery_app import noop, stamp

api = FastAPI()
TASKS: dict[str, Any] = {"noop": noop, "stamp": stamp}


class Submission(BaseModel):
    kind: str
    input: dict[str, int]


@api.get("/healthz")
async def healthz() -> dict[str, bool]:
    return {"ok": True}


@api.post("/jobs", status_code=202)
def submit(body: Submission) -> dict[str, str]:
    return {"jobId": TASKS[body.kind].delay(**body.input).id}


@api.post("/jobs/inline", status_code=202)
async def submit_inline(body: Submission) -> dict[str, str]:
    return {"jobId": TASKS[body.kind].delay(**body.input).id}


if __name__ == "__main__":
    uvicorn.run(
        api,
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
