"""The OpenAPI 3.1 document, generated from the operation tables that also drive the routing, so that both agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bide.core.errors import (
    CrossSite,
    Forbidden,
    HeadTooLarge,
    Internal,
    InvalidInput,
    MalformedRequest,
    MethodNotAllowed,
    Problem,
    RequestTimeout,
    Unauthenticated,
    Unavailable,
    UntrustedHost,
)
from bide.core.wire.http import PROBLEM_TYPE
from bide.server.http import schemas
from bide.server.http.forms import TYPE as FORM_TYPE
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec
from bide.server.registry import Registry

ANYWHERE: tuple[type[Problem], ...] = (
    MalformedRequest,
    UntrustedHost,
    CrossSite,  # for GET, if it is a WebSocket handshake
    MethodNotAllowed,
    RequestTimeout,
    InvalidInput,
    HeadTooLarge,
    Internal,
    Unavailable,
)
_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Location": ("The URL of the new resource.", {"type": "string", "format": "uri-reference"}),
    "Retry-After": ("Seconds until the next request.", {"type": "integer", "minimum": 1}),
    "WWW-Authenticate": ("The credential that the service expects.", {"type": "string"}),
    "Allow": ("The methods that the resource supports.", {"type": "string"}),
    "Cache-Control": ("Whether and for how many seconds a cache may keep it.", {"type": "string"}),
    "Vary": ("The request headers that the response depends on.", {"type": "string"}),
    "Set-Cookie": ("The cookie of the session.", {"type": "string"}),
    "ETag": ("The version of the resource.", {"type": "string"}),
    "Preference-Applied": ("The preference that the service applied.", {"type": "string"}),
    "Content-Range": ("The range of the returned bytes.", {"type": "string"}),
    "Idempotency-Replayed": (
        "`true`: an earlier submission with the same key or content has created the job.",
        {"const": "true"},
    ),
    "Job-Location": ("The URL of the job that the upload created.", {"type": "string"}),
    "Content-Disposition": ("The file name.", {"type": "string"}),
    "Tus-Resumable": ("The version of tus.", {"const": "1.0.0"}),
    "Tus-Version": ("The versions of tus that the service supports.", {"type": "string"}),
    "Tus-Extension": ("The extensions of tus that the service supports.", {"type": "string"}),
    "Tus-Max-Size": ("The largest upload in bytes.", {"type": "string", "pattern": "^[0-9]+$"}),
    "Upload-Offset": ("The bytes that are on disk.", {"type": "string", "pattern": "^[0-9]+$"}),
    "Upload-Expires": ("When an incomplete upload is removed.", {"type": "string"}),
    "RateLimit": (
        "What is left of each limit of submissions, and in how many seconds there is more.",
        {"type": "string"},
    ),
    "RateLimit-Policy": ("The limits of submissions per time.", {"type": "string"}),
    "Repr-Digest": ("The SHA-256 of the file (RFC 9530).", {"type": "string"}),
}
_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key. The list of an operation has the scope that the key needs.",
}
_ABOUT = (
    "Long-running jobs over HTTP. Submit a job, then poll its status at the interval of `Retry-After`, or long-poll "
    "with `Prefer: wait=N`. HEAD works wherever GET does. Every error response is `application/problem+json`; its "
    "`type` is a URL that explains the problem and its remedy. Resumable uploads at `/files` follow tus 1.0, which has "
    "its own specification, and `/ws` is a WebSocket for events."
)


def document(
    operations: Sequence[HttpOperation],
    registry: Registry,
    base: str,
    max_batch: int,
    *,
    authenticated: bool = False,
) -> dict[str, Any]:
    """The document of a service. `authenticated`: callers need a credential."""
    from importlib.metadata import version  # slow to import, and most services never return the document

    paths: dict[str, dict[str, Any]] = {}
    operations = [operation for operation in operations if operation.listed]
    for operation in operations:
        described = paths.setdefault(operation.path, {})[operation.method.lower()] = describe(operation)
        if authenticated and operation.scope is not None:
            described["security"] = [{"bearer": [operation.scope]}]
    types = {
        response.shape: None
        for operation in operations
        for response in operation.responses
        if isinstance(response.shape, type)
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
                **schemas.of_bodies([o.reads for o in operations if o.reads is not None], registry),
            },
            "headers": {
                name: {"description": text, "schema": schema}
                for name, (text, schema) in _HEADERS.items()
            },
            **({"securitySchemes": {"bearer": _BEARER}} if authenticated else {}),
        },
    }


def describe(operation: HttpOperation) -> dict[str, Any]:
    """Return the operation object of the document."""
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
    }
    if operation.description:
        described["description"] = operation.description
    if operation.parameters:
        described["parameters"] = [_parameter(p) for p in operation.parameters]
    content: dict[str, Any] = {name: {"schema": schema} for name, schema in operation.content}
    if operation.parts:
        encoding = {name: {"contentType": content_type} for name, content_type in operation.parts}
        content[FORM_TYPE]["encoding"] = encoding
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


def _responses(operation: HttpOperation) -> dict[str, Any]:
    responses = {str(spec.status): _response(spec) for spec in operation.responses}
    by_status: dict[int, list[type[Problem]]] = {}
    identity = () if operation.scope is None else (Unauthenticated, Forbidden)
    for problem in dict.fromkeys((*operation.problems, *identity, *ANYWHERE)):
        by_status.setdefault(problem.status, []).append(problem)
    for status, problems in sorted(by_status.items()):
        responses[str(status)] = _problem(status, problems)
    return responses


def _response(spec: ResponseSpec) -> dict[str, Any]:
    described: dict[str, Any] = {"description": spec.description}
    if spec.headers:
        described["headers"] = {n: {"$ref": f"#/components/headers/{n}"} for n in spec.headers}
    if spec.shape is not None:
        schema = spec.shape
        if isinstance(schema, type):
            schema = schemas.ref(schemas.component_name(schema.__name__))
        described["content"] = {
            # The HTML page is not an instance of the type.
            name: {"schema": {"type": "string"} if name == "text/html" else schema}
            for name in spec.content_types
        }
    return described


def _problem(status: int, problems: list[type[Problem]]) -> dict[str, Any]:
    codes = {"properties": {"code": {"enum": [p.code for p in problems]}}}
    schema = {"allOf": [schemas.ref("Problem"), codes]}
    described: dict[str, Any] = {
        "description": "; ".join(f"{p.title}. {p.meaning}" for p in problems),
        "content": {PROBLEM_TYPE: {"schema": schema}},
    }
    header = {
        Unavailable.status: "Retry-After",
        MethodNotAllowed.status: "Allow",
        Unauthenticated.status: "WWW-Authenticate",
    }.get(status)
    if header is not None:
        described["headers"] = {header: {"$ref": f"#/components/headers/{header}"}}
    return described
