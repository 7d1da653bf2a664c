"""The OpenAPI 3.1 document, made from the operation tables: what is served and what is written cannot differ."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from bide.core.errors import (
    CrossSite,
    Internal,
    InvalidInput,
    MalformedRequest,
    Problem,
    Unavailable,
    UntrustedHost,
)
from bide.core.wire import PROBLEM_TYPE
from bide.server.http import schemas
from bide.server.http.cors import SAFE
from bide.server.http.operations import Operation, Parameter, Reply
from bide.server.registry import Registry

ANYWHERE: tuple[type[Problem], ...] = (
    MalformedRequest,
    UntrustedHost,
    InvalidInput,
    Internal,
    Unavailable,
)
_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Location": ("Where the job is.", {"type": "string", "format": "uri-reference"}),
    "Retry-After": ("In how many seconds it is worth asking again.", {"type": "integer", "minimum": 1}),
    "ETag": ("What the resource is at now.", {"type": "string"}),
    "Preference-Applied": ("Which preference was obeyed.", {"type": "string"}),
    "Content-Range": ("Which bytes these are.", {"type": "string"}),
    "Job-Location": ("Where the job is that the upload has become.", {"type": "string"}),
    "Content-Disposition": ("The name to save it under.", {"type": "string"}),
}
_ABOUT = (
    "Long-running jobs over HTTP. Submit a job, then ask how it is going, as often as `Retry-After` says, "
    "or let the answer wait with `Prefer: wait=N`. HEAD works wherever GET does. Every error answer is "
    "`application/problem+json`; its `type` leads to what it means and what to do. Resumable uploads at `/files` speak "
    "tus 1.0, which has a document of its own."
)


def document(
    operations: Sequence[Operation], registry: Registry, base: str, max_batch: int
) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    operations = [operation for operation in operations if operation.listed]
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    types = {
        reply.shape: None
        for operation in operations
        for reply in operation.replies
        if isinstance(reply.shape, type)
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "bide", "version": version("bide"), "description": _ABOUT},
        "servers": [{"url": base or "/"}],
        "paths": paths,
        "components": {
            "schemas": {
                **schemas.of_types(types),
                "Problem": schemas.PROBLEM,
                **schemas.of_submissions(registry, max_batch),
                **schemas.of_bodies([o.reads for o in operations if o.reads is not None]),
            },
            "headers": {
                name: {"description": text, "schema": schema}
                for name, (text, schema) in _HEADERS.items()
            },
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
    }
    if operation.description:
        described["description"] = operation.description
    if operation.parameters:
        described["parameters"] = [_parameter(p) for p in operation.parameters]
    content = {name: {"schema": schema} for name, schema in operation.content}
    if operation.body is not None:
        content["application/json"] = {"schema": schemas.ref(operation.body)}
    if content:
        described["requestBody"] = {"required": operation.needs_body, "content": content}
    described["responses"] = _responses(operation)
    return described


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _responses(operation: Operation) -> dict[str, Any]:
    responses = {str(reply.status): _reply(reply) for reply in operation.replies}
    by_status: dict[int, list[type[Problem]]] = {}
    changes = () if operation.method in SAFE else (CrossSite,)
    for problem in dict.fromkeys((*operation.problems, *changes, *ANYWHERE)):
        by_status.setdefault(problem.status, []).append(problem)
    for status, problems in sorted(by_status.items()):
        responses[str(status)] = _problem(status, problems)
    return responses


def _reply(reply: Reply) -> dict[str, Any]:
    described: dict[str, Any] = {"description": reply.description}
    if reply.headers:
        described["headers"] = {n: {"$ref": f"#/components/headers/{n}"} for n in reply.headers}
    if reply.shape is not None:
        schema = reply.shape
        if isinstance(schema, type):
            schema = schemas.ref(schemas.component_name(schema.__name__))
        described["content"] = {
            # A page for people is not an instance of the type.
            name: {"schema": {"type": "string"} if name == "text/html" else schema}
            for name in reply.content_types
        }
    return described


def _problem(status: int, problems: list[type[Problem]]) -> dict[str, Any]:
    codes = {"properties": {"code": {"enum": [p.code for p in problems]}}}
    schema = {"allOf": [schemas.ref("Problem"), codes]}
    described: dict[str, Any] = {
        "description": "; ".join(f"{p.title}. {p.meaning}" for p in problems),
        "content": {PROBLEM_TYPE: {"schema": schema}},
    }
    if status == Unavailable.status:
        described["headers"] = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}
    return described
