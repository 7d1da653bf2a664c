"""`app.submit(…, file=…)`: a job with files of the application's own process."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers, UploadFile

from bide.core.errors import IdempotencyConflict, InvalidInput, WrongContent
from bide.service.asgi import AsgiService
from tests.apps.files import app
from tests.integration.asgi import call


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[AsgiService]:
    service = app.asgi(data=tmp_path / "data")
    async with service.lifespan():
        yield service


async def result(jobs: AsgiService, job_id: str) -> Any:
    reply = await call(jobs, "GET", f"/jobs/{job_id}", headers={"prefer": "wait=30"})
    assert reply.json()["status"] == "DONE", reply.json()
    return reply.json()["result"]


def staged(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "data" / "uploads").rglob("*") if path.is_file()]


async def test_a_path_is_submitted_with_the_job(jobs: AsgiService, tmp_path: Path) -> None:
    path = tmp_path / "poem.txt"
    path.write_bytes(b"one\ntwo\n")
    job = await app.submit_async("look", {"note": "async"}, file=path)
    seen = await result(jobs, job.job_id)
    assert (seen["name"], seen["type"], seen["size"]) == ("poem.txt", "text/plain", 8)
    assert (seen["note"], seen["read"]) == ("async", hashlib.sha256(b"one\ntwo\n").hexdigest())
    from_thread = await asyncio.to_thread(app.submit, "look", {}, files={"source": str(path)})
    assert (await result(jobs, from_thread.job_id))["name"] == "poem.txt"


async def test_an_uploaded_file_of_fastapi_keeps_its_name_and_type(jobs: AsgiService) -> None:
    with tempfile.SpooledTemporaryFile() as spooled:
        spooled.write(b"a b c")
        headers = Headers({"content-type": "text/markdown"})
        given = UploadFile(spooled, filename="../notes.md", headers=headers)  # type: ignore[arg-type]
        job = await app.submit_async("look", file=given)
    seen = await result(jobs, job.job_id)
    assert (seen["name"], seen["type"], seen["size"]) == ("notes.md", "text/markdown", 5)


async def test_a_file_larger_than_a_block_and_a_list_of_files(jobs: AsgiService) -> None:
    large = io.BytesIO(b"line\n" * 500_000)
    large.read()  # the file is copied from its beginning
    job = await app.submit_async("look", file=large)
    seen = await result(jobs, job.job_id)
    assert (seen["name"], seen["read"]) == ("file", hashlib.sha256(large.getvalue()).hexdigest())
    several = await app.submit_async("read", files={"pages": [io.BytesIO(b"ab"), io.BytesIO(b"c")]})
    assert [page["size"] for page in await result(jobs, several.job_id)] == [2, 1]


async def test_a_rejected_submission_leaves_no_file(jobs: AsgiService, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="look"):
        await app.submit_async("look", {"note": 7}, file=io.BytesIO(b"x"))
    with pytest.raises(InvalidInput, match="no such file parameter"):
        await app.submit_async("look", files={"other": io.BytesIO(b"x")})
    with pytest.raises(WrongContent, match="image/"):
        await app.submit_async("picture", file=io.BytesIO(b"no picture"))
    with pytest.raises(TypeError, match="not both"):
        await app.submit_async("look", file=io.BytesIO(b""), files={"source": io.BytesIO(b"")})
    with pytest.raises(TypeError, match="binary mode"):
        await app.submit_async("look", file=io.StringIO("x"))
    with pytest.raises(TypeError, match="not bytes"):
        await app.submit_async("look", file=b"x")
    with pytest.raises(FileNotFoundError):
        await app.submit_async("look", file=tmp_path / "missing")
    assert staged(tmp_path) == []


async def test_the_same_key_and_file_are_the_same_job(jobs: AsgiService, tmp_path: Path) -> None:
    first = await app.submit_async("look", file=io.BytesIO(b"x"), idempotency_key="k")
    again = await app.submit_async("look", file=io.BytesIO(b"x"), idempotency_key="k")
    assert again.job_id == first.job_id
    with pytest.raises(IdempotencyConflict):
        await app.submit_async("look", file=io.BytesIO(b"y"), idempotency_key="k")
    assert staged(tmp_path) == []
    by_content = [
        await app.submit_async("look", file=io.BytesIO(b"same"), dedupe="content") for _ in range(2)
    ]
    assert by_content[0].job_id == by_content[1].job_id
