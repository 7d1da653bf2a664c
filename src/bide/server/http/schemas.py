"""JSON Schemas of what goes over the wire, made from the types that are really sent and from the kinds' own schemas.

Everything ends up among the document's components, so that no reference leads outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from bide.core.errors import problems
from bide.server.registry import NAME, Kind, Registry

Schema = dict[str, Any]
PLACE = "#/components/schemas/"
_INSTANTS = re.compile(r".*At|deadline|low|high")
_LOCAL = "#/$defs/"


def ref(name: str) -> Schema:
    return {"$ref": PLACE + name}


def of_types(types: Iterable[Any]) -> dict[str, Schema]:
    """Components for these structs and all that they are made of."""
    _, components = msgspec.json.schema_components(list(types), ref_template=PLACE + "{name}")
    return {component_name(name): _told(schema) for name, schema in components.items()}


def component_name(name: str) -> str:
    return name.removeprefix("Wire")


def _told(schema: Schema) -> Schema:
    """As we send it: every field is there, unless it can be unset; nothing has a default."""
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
    if isinstance(value, str) and value.startswith(PLACE):
        return PLACE + component_name(value.removeprefix(PLACE))
    return value


PROBLEM: Schema = {
    "type": "object",
    "description": "What went wrong (RFC 9457), with what to do about it at `type`.",
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
                        "description": "A JSON pointer into the body, or ? and a query parameter's name.",
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
    """Components for structs that are read."""
    _, components = msgspec.json.schema_components(list(types), ref_template=PLACE + "{name}")
    return components


def of_submissions(registry: Registry, most: int) -> dict[str, Schema]:
    """The bodies of POST /jobs and /jobs/batch: one form a kind, told apart by `kind`."""
    components: dict[str, Schema] = {}
    mapping: dict[str, str] = {}
    for name, kind in sorted(registry.kinds.items()):
        components.update(_hoisted(f"input.{name}", kind.schema))
        components[f"submit.{name}"] = _submission(kind)
        mapping[name] = PLACE + f"submit.{name}"
    if mapping:
        forms = [{"$ref": place} for place in mapping.values()]
        discriminator = {"propertyName": "kind", "mapping": mapping}
        components["Submission"] = {"oneOf": forms, "discriminator": discriminator}
    else:
        components["Submission"] = {"not": {}}  # no kind, nothing to submit
    components["Submissions"] = {
        "type": "object",
        "properties": {
            "jobs": {
                "type": "array",
                "maxItems": most,
                # An item that is no submission gets a problem of its own, it does not spoil the batch.
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
    key = "Only with an Idempotency-Key header." if kind.require_key else ""
    return {
        "type": "object",
        "description": " ".join(filter(None, (kind.doc, key))),
        "properties": {
            "kind": {"const": kind.name},
            "input": ref(f"input.{kind.name}"),
            "priority": {"type": "integer", "minimum": -1000, "maximum": 1000, "default": 0},
            "queue": {"type": ["string", "null"], "pattern": f"^{NAME.pattern}$"},
            "runAt": {**instant, "description": "Not before this instant."},
            "deadline": {**instant, "description": "ERROR `DEADLINE` when it has not ended by then."},
            "labels": {
                "type": "object",
                "propertyNames": label,
                "additionalProperties": label,
                "maxProperties": 50,
            },
            "dedupe": {
                "enum": ["content", None],
                "description": "`content`: the same files and input give the first job again.",
            },
        },
        "required": ["kind", "input"] if kind.schema.get("required") else ["kind"],
        "additionalProperties": False,
    }


def _hoisted(name: str, schema: Schema) -> dict[str, Schema]:
    """A kind's schema with its own definitions moved beside it, and its references led there."""

    def moved(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: moved(v) for k, v in value.items()}
        if isinstance(value, list):
            return [moved(v) for v in value]
        if isinstance(value, str) and value.startswith(_LOCAL):
            return PLACE + place(value.removeprefix(_LOCAL))
        return value

    def place(definition: str) -> str:
        return f"{name}.{re.sub(r'[^A-Za-z0-9._-]', '_', definition)}"

    own = {k: v for k, v in schema.items() if k != "$defs"}
    components = {place(n): moved(s) for n, s in schema.get("$defs", {}).items()}
    return {name: moved(own), **components}
