"""/openapi.json and /docs: complete, valid, and in need of nothing from outside."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from enum import Enum
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema_rs
import pydantic
import pytest
import schemathesis

from bide.server.registry import Registry
from tests.integration.http.service import Service


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, sub in value.items():
            if name == "$ref":
                yield sub
            yield from _references(sub)
    elif isinstance(value, list):
        for sub in value:
            yield from _references(sub)


def _resolve(document: Any, reference: str) -> Any:
    assert reference.startswith("#/"), reference
    for name in reference[2:].split("/"):
        document = document[name]
    return document


class Codec(Enum):
    H264 = "h264"
    AV1 = "av1"


class Size(pydantic.BaseModel):
    width: int
    height: int


def _rich() -> Registry:
    registry = Registry()

    @registry.job()
    def encode(codec: Codec, sizes: list[Size], parent: Size | None = None) -> None: ...

    @registry.job(name="JobStatus")  # a name that the document itself uses
    def other(codec: Codec) -> None: ...

    return registry


@pytest.mark.parametrize("registry", [None, _rich(), Registry()], ids=["plain", "rich", "empty"])
async def test_the_document_is_valid_and_self_contained(
    tmp_path: Path, registry: Registry | None
) -> None:
    async with Service(tmp_path, registry).opened() as service:
        document = (await service.call("GET", "/openapi.json")).json()
    schemathesis.openapi.from_dict(document).validate()
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)
    for reference in _references(document):
        assert _resolve(document, reference) is not None


async def test_the_document_tells_of_every_operation(service: Service) -> None:
    document = (await service.call("GET", "/openapi.json")).json()
    told = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    listed = {(o.method, o.path) for o in service.app.operations if o.listed}
    assert told == listed
    unlisted = {o.path.split("/")[1] for o in service.app.operations if not o.listed}
    assert unlisted == {"ws"}, "OpenAPI cannot describe a WebSocket; everything else is documented here"
    assert ("GET", "/openapi.json") in told
    names = [o.name for o in service.app.operations]
    assert len(set(names)) == len(names)


async def test_each_kind_is_a_form_of_the_submission(tmp_path: Path) -> None:
    async with Service(tmp_path, _rich()).opened() as service:
        document = (await service.call("GET", "/openapi.json")).json()
        schema = {
            **document["components"]["schemas"]["Submission"],
            "components": document["components"],
        }
        validator = jsonschema_rs.Draft202012Validator(schema)
        good = {"kind": "encode", "input": {"codec": "av1", "sizes": [{"width": 1, "height": 2}]}}
        for body, fits in (
            (good, True),
            ({"kind": "JobStatus", "input": {"codec": "h264"}}, True),
            ({"kind": "JobStatus", "input": {"codec": "vp9"}}, False),
            ({"kind": "encode"}, False),
            ({"kind": "nothing", "input": {}}, False),
            ({**good, "colour": "red"}, False),
            ({**good, "priority": 1001}, False),
            ({**good, "queue": "a b"}, False),
        ):
            assert validator.is_valid(body) is fits, body
            # The document says the same as the service does.
            assert ((await service.call("POST", "/jobs", json=body)).status == 202) is fits, body


async def _validator(service: Service, name: str) -> Any:
    components = (await service.call("GET", "/openapi.json")).json()["components"]
    schema = {**components["schemas"][name], "components": components}
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        ({}, True),
        ({"size": -1}, False),
        ({"sha256": "f00"}, False),
        ({"colour": "red"}, False),
        ({"kind": "thumbnail"}, True),
        ({"kind": "thumbnail", "parameter": "video", "queue": None, "priority": 5}, True),
        ({"kind": "thumbnail", "parameter": "audio"}, False),
        ({"kind": "thumbnail", "input": {"video": {"upload": "x"}}}, False),
        ({"kind": "thumbnail", "input": {"width": 1}}, False),
        ({"kind": "thumbnail", "priority": 1001}, False),
        ({"kind": "thumbnail", "queue": "a b"}, False),
        ({"kind": "thumbnail", "labels": {"a": "\0"}}, False),
        ({"kind": "thumbnail", "deadline": "soon"}, False),
        ({"kind": "thumbnail", "idempotencyKey": ""}, False),
        ({"kind": "echo"}, False),  # takes no file
        ({"kind": "nothing"}, False),
        ({"priority": 1001}, True),  # without a kind there is no job
    ],
)
@pytest.mark.parametrize(("name", "path"), [("NewChunked", "chunked"), ("NewPresigned", "presign")])
async def test_the_schema_of_an_upload_is_as_strict_as_the_service(
    service: Service, name: str, path: str, body: dict[str, Any], fits: bool
) -> None:
    body = {"size": 10, **body}
    validator = await _validator(service, name)
    assert validator.is_valid(body) is fits
    assert ((await service.call("POST", f"/uploads/{path}", json=body)).status == 201) is fits


@pytest.mark.parametrize(
    ("job", "files", "fits"),
    [
        ({"kind": "echo"}, [], True),
        ({"kind": "echo"}, ["video"], False),
        ({"kind": "thumbnail"}, ["video"], True),
        ({"kind": "thumbnail", "priority": 5}, ["video"], True),
        ({"kind": "thumbnail"}, [], False),
        ({"kind": "thumbnail"}, ["video", "audio"], False),
        ({"kind": "thumbnail", "input": {"width": 1}}, ["video"], False),
        ({"kind": "nothing"}, ["video"], False),
    ],
)
async def test_the_schema_of_a_form_is_as_strict_as_the_service(
    service: Service, job: dict[str, Any], files: list[str], fits: bool
) -> None:
    validator = await _validator(service, "SubmissionForm")
    form = {"job": job, **dict.fromkeys(files, "bytes")}
    assert validator.is_valid(form) is fits
    parts = [f'name="job"\r\n\r\n{json.dumps(job)}']
    parts += [f'name="{name}"; filename="f"\r\n\r\nbytes' for name in files]
    body = "".join(f"--x\r\nContent-Disposition: form-data; {part}\r\n" for part in parts) + "--x--\r\n"
    headers = {"content-type": "multipart/form-data; boundary=x"}
    reply = await service.call("POST", "/jobs", body=body.encode(), headers=headers)
    assert (reply.status == 202) is fits, reply.body


async def test_every_refusal_is_documented(service: Service) -> None:
    """Which ones occur, `Service.send` checks in every test."""
    document = (await service.call("GET", "/openapi.json")).json()
    statuses = {
        operation["operationId"]: set(operation["responses"])
        for methods in document["paths"].values()
        for operation in methods.values()
    }
    for name, found in statuses.items():
        assert {"400", "403", "405", "408", "422", "431", "500", "503"} <= found, name
    assert {"410", "412"} <= statuses["deleteJob"]
    assert {"410", "413", "460"} <= statuses["submitJob"] & statuses["createUpload"]
    assert {"410", "413", "460"} <= statuses["completeUpload"]
    allow = document["paths"]["/jobs"]["get"]["responses"]["405"]["headers"]
    assert list(allow) == ["Allow"]


async def test_a_status_resource_is_what_the_document_says(service: Service) -> None:
    document = (await service.call("GET", "/openapi.json")).json()
    schema = {**document["components"]["schemas"]["JobStatus"], "components": document["components"]}
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    job = await service.done()
    for query in ("", "?include=input,attempts,log"):
        shown = (await service.call("GET", f"/jobs/{job.id}{query}")).json()
        validator.validate(shown)
        assert not validator.is_valid({**shown, "createdAt": "yesterday"})
    del shown["finishedAt"]
    assert not validator.is_valid(shown)


class _Page(HTMLParser):
    """Gathers what a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attributes:
            if name in ("href", "src", "action") and value:
                self.links.append(value)
            if name == "id" and value:
                self.ids.add(value)


async def test_the_page_loads_nothing_and_leads_somewhere(service: Service) -> None:
    reply = await service.call("GET", "/docs", headers={"host": "example.test:8642"}, mount="/api")
    text = reply.body.decode()
    page = _Page()
    page.feed(text)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "form"}
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert not re.search(r"@import|url\(", text)
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids
        else:
            assert (await service.call("GET", link.removeprefix("/api"))).status == 200, link
    assert page.ids >= {o.name for o in service.app.operations}
    assert "curl -X POST http://example.test:8642/api/jobs " in text
    assert "Encodes a video." in text
    # First what can be submitted, then the operations.
    assert text.index("kind-encode") < text.index('id="submitJob"')


async def test_the_examples_of_the_page_are_accepted(service: Service) -> None:
    text = html.unescape((await service.call("GET", "/docs")).body.decode())
    accepted = set()
    for headers, body in re.findall(
        r"(-H [^\n]*\n.*) -d '(.*)'</pre><details>", text.replace("\\\n", "\n")
    ):
        lines = dict(line.split(": ", 1) for line in re.findall(r"-H '([^']*)'", headers))
        lines.pop("Prefer")
        kind = json.loads(body)["kind"]
        reply = await service.call("POST", "/jobs", body=body.encode(), headers=lines)
        assert reply.status == 202, reply.body
        accepted.add(kind)
    assert accepted == {
        name for name, kind in service.registry.kinds.items() if not kind.file_parameters
    }


async def test_the_page_escapes_what_callers_send(service: Service) -> None:
    page = await service.call("GET", "/docs", headers={"host": "<script>alert(1)</script>"})
    assert b"<script>" not in page.body


async def test_kinds_registered_later_are_in_the_document(service: Service) -> None:
    await service.call("GET", "/openapi.json")

    @service.registry.job()
    def later() -> None: ...

    document = (await service.call("GET", "/openapi.json")).json()
    assert "submit.later" in document["components"]["schemas"]
