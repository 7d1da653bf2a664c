"""JSON Schemas of requests and responses, generated from their types and from the schemas of the kinds.

All schemas are components of one document, so that it has no external references.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from bide.core.errors import problems
from bide.core.wire.http import DEDUPE_MODES
from bide.server.registry import NAME, Kind, Registry

Schema = dict[str, Any]
COMPONENTS = "#/components/schemas/"
_INSTANTS = re.compile(r".*At|deadline|low|high")
_LOCAL = "#/$defs/"


def ref(name: str) -> Schema:
    return {"$ref": COMPONENTS + name}


def of_types(types: Iterable[Any]) -> dict[str, Schema]:
    """Returns the components of structs in responses, and of the structs that they use."""
    _, components = msgspec.json.schema_components(list(types), ref_template=COMPONENTS + "{name}")
    return {component_name(name): _as_sent(schema) for name, schema in components.items()}


def component_name(name: str) -> str:
    return name.removeprefix("Wire")


def _as_sent(schema: Schema) -> Schema:
    """Responses contain every field, unless it can be unset, so no field has a default."""
    schema = _renamed(schema)
    schema.pop("title", None)
    properties: Schema = schema.get("properties", {})
    if properties:
        given = schema.get("required", [])
        schema["required"] = [n for n, p in properties.items() if n in given or "default" in p]
        for name, sub in properties.items():
            sub.pop("default", None)
            if _INSTANTS.fullmatch(name):
                for part in (sub, *sub.get("anyOf", ())):
                    if part.get("type") == "string":
                        part["format"] = "date-time"
    return schema


def _renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _renamed(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_renamed(v) for v in value]
    if isinstance(value, str) and value.startswith(COMPONENTS):
        return COMPONENTS + component_name(value.removeprefix(COMPONENTS))
    return value


PROBLEM: Schema = {
    "type": "object",
    "description": "A problem (RFC 9457). The URL in `type` explains it and its remedy.",
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string", "format": "uri-reference"},
        "code": {"type": "string", "enum": [p.code for p in problems()]},
        "retryable": {"type": "boolean"},
        "traceId": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {
                        "type": "string",
                        "description": "A JSON pointer into the body, or ? and the name of a query parameter.",
                    },
                    "detail": {"type": "string"},
                },
                "required": ["detail"],
            },
        },
    },
    "required": ["type", "title", "status", "detail", "instance", "code", "retryable", "traceId"],
}


def of_bodies(types: Iterable[Any]) -> dict[str, Schema]:
    """Returns the components of structs in requests."""
    _, components = msgspec.json.schema_components(list(types), ref_template=COMPONENTS + "{name}")
    return components


def of_submissions(registry: Registry, most: int) -> dict[str, Schema]:
    """Returns the bodies of POST /jobs and /jobs/batch: one schema per kind, with `kind` as discriminator."""
    components: dict[str, Schema] = {}
    mapping: dict[str, str] = {}
    for name, kind in sorted(registry.kinds.items()):
        components.update(_with_definitions(f"input.{name}", kind.schema))
        components[f"submit.{name}"] = _submission(kind)
        mapping[name] = COMPONENTS + f"submit.{name}"
    if mapping:
        forms = [{"$ref": place} for place in mapping.values()]
        discriminator = {"propertyName": "kind", "mapping": mapping}
        components["Submission"] = {"oneOf": forms, "discriminator": discriminator}
    else:
        components["Submission"] = {"not": {}}  # without kinds, every submission is invalid
    components["Submissions"] = {
        "type": "object",
        "properties": {
            "jobs": {
                "type": "array",
                "maxItems": most,
                # An invalid item gets its own problem; the other items are accepted.
                "items": {"anyOf": [ref("Submission"), {}]},
            }
        },
        "required": ["jobs"],
        "additionalProperties": False,
    }
    return components


def _submission(kind: Kind) -> Schema:
    instant: Schema = {"type": ["string", "null"], "format": "date-time"}
    label = {"type": "string", "maxLength": 255}
    key = "Requires an Idempotency-Key header." if kind.require_key else ""
    same = "" if kind.dedupe is None else f"The same submission returns the first job (`{kind.dedupe}`)."
    return {
        "type": "object",
        "description": " ".join(filter(None, (kind.doc, key, same))),
        "properties": {
            "kind": {"const": kind.name},
            "input": ref(f"input.{kind.name}"),
            "priority": {"type": "integer", "minimum": -1000, "maximum": 1000, "default": 0},
            "queue": {"type": ["string", "null"], "pattern": f"^{NAME.pattern}$"},
            "runAt": {**instant, "description": "The job does not start before this instant."},
            "deadline": {
                **instant,
                "description": "A job that has not ended by then fails with `DEADLINE`.",
            },
            "labels": {
                "type": "object",
                "propertyNames": label,
                "additionalProperties": label,
                "maxProperties": 50,
            },
            "dedupe": {
                "enum": [*DEDUPE_MODES, None],
                "description": "`content`: the same files and input return the first job. `content+name`: if the names of "
                "the files are the same, too.",
            },
        },
        "required": ["kind", "input"] if kind.schema.get("required") else ["kind"],
        "additionalProperties": False,
    }


def _with_definitions(name: str, schema: Schema) -> dict[str, Schema]:
    """Returns the schema of a kind and its definitions as components, with the references adjusted."""

    def moved(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: moved(v) for k, v in value.items()}
        if isinstance(value, list):
            return [moved(v) for v in value]
        if isinstance(value, str) and value.startswith(_LOCAL):
            return COMPONENTS + component(value.removeprefix(_LOCAL))
        return value

    def component(definition: str) -> str:
        return f"{name}.{re.sub(r'[^A-Za-z0-9._-]', '_', definition)}"

    own = {k: v for k, v in schema.items() if k != "$defs"}
    components = {component(n): moved(s) for n, s in schema.get("$defs", {}).items()}
    return {name: moved(own), **components}
