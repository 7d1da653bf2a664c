"""NUL, which PostgreSQL takes in no text: wherever a caller can put it, the answer is the same on both stores, never 500."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bide.server.registry import File, Registry
from tests.integration.http.service import Service, kinds
from tests.servers.postgres import Postgres

NUL = "a\0b"


def registry() -> Registry:
    known = kinds()

    @known.job()
    def looks(file: File, note: str = "") -> None: ...

    @known.job(require_key=False)
    def texts(text: str, more: dict[str, str] | None = None) -> str:
        return text

    return known


@pytest.fixture(params=["sqlite", "postgres"])
async def service(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Service]:
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        monkeypatch.setenv("BIDE_TEST_STORE", server.url)
    else:
        monkeypatch.delenv("BIDE_TEST_STORE", raising=False)
    async with Service(tmp_path, registry()).opened() as service:
        yield service


async def test_in_every_part_of_every_path(service: Service) -> None:
    tried = 0
    for operation in service.app.operations:
        for value in ("%00", "a%00b"):
            segments = [value if s.startswith("{") else s for s in operation.path.split("/")]
            if value not in segments:
                continue
            json: Any = {} if operation.body else None
            if operation.body == "WantedParts":
                json = {"numbers": [1]}
            headers = {"tus-resumable": "1.0.0", "upload-offset": "0", "content-length": "0"}
            if operation.body is None:
                headers["content-type"] = "application/offset+octet-stream"
            reply = await service.call(operation.method, "/".join(segments), json=json, headers=headers)
            told = (operation.method, operation.path, reply.body)
            # Signed addresses are verified before anything is looked up.
            signed = operation.name in ("putContent", "putPart")
            assert reply.status == (403 if signed else 404), (reply.status, *told)
            tried += 1
    assert tried > 30


async def test_in_every_parameter_of_every_query(service: Service) -> None:
    job = await service.submit()
    tried = 0
    for operation in service.app.operations:
        for name in operation.query_names:
            for value in ("%00", "a%00b", "a%00b:c", "team:%00"):
                path = operation.path.replace("{jobId}", job)
                reply = await service.call(operation.method, f"{path}?{name}={value}", body=b"x")
                assert reply.status < 500, (operation.method, path, name, value, reply.body)
                tried += 1
    assert tried > 40
    for name in ("kind", "queue", "label"):
        found = await service.call("GET", f"/jobs?{name}=a%00b{':c' if name == 'label' else ''}")
        assert (found.status, found.json().get("jobs")) == (200, []), (name, found.body)
    by_id = await service.call("GET", f"/jobs?id=%00&id={job}")
    assert (by_id.status, by_id.json()["missing"]) == (200, ["\0"])
    assert [found["jobId"] for found in by_id.json()["jobs"]] == [job]


@pytest.mark.parametrize(
    "body",
    [
        {"kind": NUL},
        {"kind": "echo", "queue": NUL},
        {"kind": "echo", "labels": {NUL: "a"}},
        {"kind": "echo", "labels": {"a": NUL}},
        {"kind": "echo", "runAt": NUL},
        {"kind": "echo", "deadline": NUL},
        {"kind": "looks", "input": {"file": {"upload": NUL}}},
        {"kind": "looks", "input": {"file": {"job": NUL, "name": "a"}}},
        {"kind": "thumbnail", "input": {"video": {"upload": "\0"}}},
        {"kind": "echo", NUL: 1},
    ],
)
async def test_in_a_submission_that_is_refused(service: Service, body: Any) -> None:
    reply = await service.call("POST", "/jobs", json=body)
    assert reply.status == 422 and reply.json()["errors"], reply.body
    batch = await service.call("POST", "/jobs/batch", json={"jobs": [body, {"kind": "echo"}]})
    assert batch.status in (200, 202), batch.body
    first, second = batch.json()["jobs"]
    assert first["status"] == 422 and second["status"] == "PENDING"


async def test_in_what_is_data_it_is_kept(service: Service) -> None:
    """Inputs and results are JSON, which has an escape for it."""
    sent = {"kind": "texts", "input": {"text": NUL, "more": {NUL: NUL}}}
    made = await service.call("POST", "/jobs", json=sent)
    assert made.status == 202, made.body
    job_id = made.json()["jobId"]
    again = await service.call("GET", f"/jobs/{job_id}?include=input")
    assert again.json()["input"] == sent["input"]
    job = await service.claim("texts")
    done = await service.finish(job, b'{"a\\u0000b":"\\u0000"}')
    assert (await service.call("GET", f"/jobs/{done.id}")).json()["result"] == {NUL: "\0"}


async def test_in_a_header(service: Service) -> None:
    for name in ("idempotency-key", "traceparent", "prefer", "if-none-match"):
        headers = {name: NUL}
        reply = await service.call("POST", "/jobs", json={"kind": "echo"}, headers=headers)
        assert reply.status in (202, 400), (name, reply.body)
        if name == "idempotency-key":
            assert reply.status == 400


async def test_in_the_names_of_uploads(service: Service) -> None:
    def told(**fields: str) -> str:
        return ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in fields.items())

    raw = await service.call("POST", "/uploads?name=a%00b.txt", body=b"hello")
    assert (raw.status, raw.json()["name"]) == (201, "ab.txt")
    for path in ("/uploads/presign", "/uploads/chunked"):
        made = await service.call("POST", path, json={"name": NUL, "size": 5, "contentType": NUL})
        assert made.status == 201, made.body
        for field in ("kind", "labels", "queue", "sha256", "parameter"):
            value: Any = {NUL: NUL} if field == "labels" else NUL
            wrong = await service.call("POST", path, json={"name": "a", "size": 5, field: value})
            assert wrong.status < 500, (path, field, wrong.body)
    base = {"tus-resumable": "1.0.0", "upload-length": "5"}
    for fields in ({"filename": NUL}, {"filetype": NUL}, {"kind": NUL}, {"input": NUL}, {NUL: "x"}):
        made = await service.call("POST", "/files", headers={**base, "upload-metadata": told(**fields)})
        assert made.status < 500, (fields, made.body)
    joined = await service.call(
        "POST", "/files", headers={"tus-resumable": "1.0.0", "upload-concat": "final;/files/a%00b"}
    )
    assert joined.status in (400, 404, 409, 422), joined.body
    events = {"Records": [{"s3": {"object": {"key": "uploads/a%00b/content"}}}]}
    assert (await service.call("POST", "/uploads/events", json=events)).status == 202
    await service.presigned.tick()
