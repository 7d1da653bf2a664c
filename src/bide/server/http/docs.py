"""The interface describes itself: GET / has the name, the version and links, or the dashboard if a browser asks,
GET /openapi.json is the OpenAPI document, and GET /docs is a page.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from bide.core.wire.http import encode
from bide.server.http import ui
from bide.server.http.html import escape, html_response, wants_html
from bide.server.http.openapi import describe, document
from bide.server.http.problems import ALL
from bide.server.http.request import HttpRequest, Response, json_response, object_response
from bide.server.http.routing import HttpOperation, ResponseSpec
from bide.server.registry import Kind, Registry

# The name of each link is that of its resource.
LINKS = (
    *("/jobs", "/kinds", "/queues", "/workers", "/problems"),
    *("/docs", "/openapi.json", "/healthz", "/readyz", "/metrics"),
)


class ServiceInfo(msgspec.Struct):
    """The name and the version of the service, and the paths of its resources."""

    name: str
    version: str
    links: dict[str, str]


async def root(request: HttpRequest) -> Response:
    from importlib.metadata import version  # slow to import

    if request.components.config.http.ui != "off" and wants_html(request.header(b"accept")):
        return ui.dashboard(request, version("bide"))
    links = {path[1:].removesuffix(".json"): request.base + path for path in LINKS}
    return object_response(ServiceInfo("bide", version("bide"), links), (b"vary", b"Accept"))


def operations(others: Sequence[HttpOperation], registry: Registry) -> list[HttpOperation]:
    """Return the operations that describe all operations, including themselves."""
    every = list(others)
    cache: dict[tuple[str, int], dict[str, Any]] = {}

    def described(request: HttpRequest) -> dict[str, Any]:
        # Kinds may be registered until the first request.
        key = (request.base, len(registry.kinds))
        if key not in cache:
            cache.clear()
            components = request.components
            cache[key] = document(
                every,
                registry,
                request.base,
                components.config.http.max_batch,
                authenticated=components.authenticator is not None,
            )
        return cache[key]

    async def openapi(request: HttpRequest) -> Response:
        return json_response(200, encode(described(request)))

    async def docs(request: HttpRequest) -> Response:
        return html_response("bide", _page(described(request), every, registry, request.url))

    own = [
        HttpOperation(
            "GET",
            "/",
            root,
            "getService",
            "Get the name and the version of the service, and links; browsers get the dashboard",
            "docs",
            scope=None,
            responses=(
                ResponseSpec(
                    200, "The service.", ServiceInfo, content_types=("application/json", "text/html")
                ),
            ),
            example="$BASE/",
        ),
        HttpOperation(
            "GET",
            "/openapi.json",
            openapi,
            "getOpenapi",
            "This interface as an OpenAPI 3.1 document",
            "docs",
            scope="read",
            responses=(ResponseSpec(200, "The document.", {"type": "object"}),),
            example="$BASE/openapi.json",
        ),
        HttpOperation(
            "GET",
            "/docs",
            docs,
            "getDocs",
            "This interface as a page",
            "docs",
            scope="read",
            responses=(
                ResponseSpec(200, "The page.", {"type": "string"}, content_types=("text/html",)),
            ),
            example="$BASE/docs",
        ),
    ]
    every += own
    return own


def _page(
    document: dict[str, Any], every: Sequence[HttpOperation], registry: Registry, origin: str
) -> str:
    base = document["servers"][0]["url"].rstrip("/")
    by_tag: dict[str, list[HttpOperation]] = {}
    for operation in every:
        by_tag.setdefault(operation.tag, []).append(operation)
    parts = [
        f"<p>{_prose(document['info']['description'])}</p>",
        f'<p><a href="{base}/">Dashboard</a>. Machine-readable: <a href="{base}/openapi.json">openapi.json</a>. '
        f'Errors: <a href="{base}/problems">problems</a>.</p>',
        _kinds(document, registry, origin),
        "<h2>Operations</h2>",
        _contents(by_tag),
    ]
    for tag, operations in by_tag.items():
        parts.append(f"<h2>{escape(tag.capitalize())}</h2>")
        parts += [_operation(operation, origin, base) for operation in operations]
    return "".join(parts)


def _contents(by_tag: dict[str, list[HttpOperation]]) -> str:
    lines = "".join(
        f'<li><a href="#{o.name}"><code><span class="method">{o.method}</span>{escape(o.path)}</code></a> '
        f"{escape(o.summary)}</li>"
        for operations in by_tag.values()
        for o in operations
    )
    return f"<nav><ul>{lines}</ul></nav>"


def _kinds(document: dict[str, Any], registry: Registry, origin: str) -> str:
    components = document["components"]["schemas"]
    parts = ["<h2>Kinds</h2>"] if registry.kinds else []
    for name, kind in sorted(registry.kinds.items()):
        schema = components[f"input.{name}"]
        command = _submission(kind, example_of(schema, components), origin)
        parts.append(
            f'<section id="kind-{name}"><h3>{name}</h3><p>{_prose(components[f"submit.{name}"]["description"])}</p>'
            f"<pre>{escape(command)}</pre>"
            f"<details><summary>Input schema</summary>{_json(schema)}</details></section>"
        )
    return "".join(parts)


def _submission(kind: Kind, input: dict[str, Any], origin: str) -> str:
    """Return the command that submits a job: a form if the kind takes files."""
    files = kind.file_parameters
    body = json.dumps({"kind": kind.name, "input": {n: v for n, v in input.items() if n not in files}})
    key = " -H 'Idempotency-Key: a-key'" if kind.require_key else ""
    start = f"curl -X POST {origin}/jobs -H 'Prefer: wait=30'{key}"
    if not files:
        return f"{start} \\\n  -H 'Content-Type: application/json' -d {shlex.quote(body)}"
    parts = "".join(f" -F {shlex.quote(f'{name}=@FILE')}" for name in files)
    return f"{start} \\\n  --form-string {shlex.quote(f'job={body}')}{parts}"


def _operation(operation: HttpOperation, origin: str, base: str) -> str:
    described = describe(operation)
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code></td><td>{p['in']}</td><td>{_prose(p['description'])}</td></tr>"
        for p in described.get("parameters", ())
    )
    command = f"curl {operation.example}".replace("$BASE", origin) if operation.example else ""
    return (
        f'<section id="{operation.name}"><h3><code><span class="method">{operation.method}</span>'
        f"{escape(operation.path)}</code></h3><p>{escape(operation.summary)}. "
        f"{_prose(described.get('description', ''))}</p>"
        + (f"<table>{rows}</table>" if rows else "")
        + (f"<pre>{escape(command)}</pre>" if command else "")
        + f"<table>{_responses(described, base)}</table></section>"
    )


def _responses(described: dict[str, Any], base: str) -> str:
    rows = []
    for status, response in described["responses"].items():
        problems = [
            f'<a href="{base}/problems/{code}">{escape(ALL[code].title)}</a>'
            for code in _codes(response)
        ]
        headers = ", ".join(f"<code>{name}</code>" for name in response.get("headers", {}))
        text = ", ".join(problems) if problems else escape(response["description"])
        rows.append(f"<tr><td>{status}</td><td>{text}</td><td>{headers}</td></tr>")
    return "".join(rows)


def _codes(response: dict[str, Any]) -> list[str]:
    content = response.get("content", {}).get("application/problem+json")
    if content is None:
        return []
    codes: list[str] = content["schema"]["allOf"][1]["properties"]["code"]["enum"]
    return codes


def _prose(text: str) -> str:
    """Return the text as HTML, with code in backticks."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))


def _json(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2))}</pre>"


def example_of(schema: Any, components: dict[str, Any], depth: int = 0) -> Any:
    """Return an example that resembles an instance of the schema. The service may reject it."""
    if not isinstance(schema, dict) or depth > 8:
        return None
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return example_of(components.get(name), components, depth + 1)
    for key in ("examples", "enum", "anyOf", "oneOf", "allOf"):
        if schema.get(key):
            first = schema[key][0]
            return first if key in ("examples", "enum") else example_of(first, components, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    type_ = schema.get("type")
    if type_ == "object":
        required = schema.get("required", ())
        properties = schema.get("properties", {})
        return {n: example_of(properties.get(n), components, depth + 1) for n in required}
    plain: dict[Any, Any] = {"string": "text", "array": [], "boolean": True, "null": None}
    if type_ in ("integer", "number"):
        return schema.get("minimum", 1)
    return plain.get(type_)
