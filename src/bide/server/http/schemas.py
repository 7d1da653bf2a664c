"""JSON Schemas of requests and responses, generated from their types and from the schemas of the kinds.

All schemas are components of one document, so that it has no external references.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from bide.core.errors import problems
from bide.core.wire.http import DEDUPE_MODES, ID_PATTERN
from bide.server.registry import NAME, Kind, Registry

Schema = dict[str, Any]
WEBHOOK: Schema = {
    "type": "object",
    "description": "An endpoint that receives the events of this job. Without `secret`, that of GET /webhooks/secret signs.",
    "properties": {
        "url": {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2048},
        "events": {
            "type": "array",
            "items": {"enum": ["status", "terminal", "step", "log", "output", "deleted"]},
            "minItems": 1,
            "maxItems": 10,
            "default": ["terminal"],
        },
        "secret": {"type": ["string", "null"], "pattern": "^whsec_", "maxLength": 200},
    },
    "required": ["url"],
    "additionalProperties": False,
}
# Quoted or bare, as `read_idempotency_key` reads it.
KEY_PATTERN = r'^(?:[!#-~](?:[ -~]{0,253}[!-~])?|"(?:[ !#-\[\]-~]|\\["\\]){1,255}")$'
BINARY = {"type": "string", "format": "binary"}
COMPONENTS = "#/components/schemas/"
_INSTANTS = re.compile(r".*At|deadline|low|high")
_IDS = ("jobId", "uploadId")
_LOCAL = "#/$defs/"


def ref(name: str) -> Schema:
    return {"$ref": COMPONENTS + name}


def of_types(types: Iterable[Any]) -> dict[str, Schema]:
    """Return the components of structs in responses, and of the structs that they use."""
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
            for part in (sub, *sub.get("anyOf", ())):
                if part.get("type") == "string" and _INSTANTS.fullmatch(name):
                    part["format"] = "date-time"
                elif part.get("type") == "string" and name in _IDS:
                    part["pattern"] = f"^{ID_PATTERN}$"
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


def of_bodies(types: Iterable[Any], registry: Registry) -> dict[str, Schema]:
    """Return the components of structs in requests. A new upload has one schema without a kind, and one per kind that
    takes files.
    """
    _, components = msgspec.json.schema_components(list(types), ref_template=COMPONENTS + "{name}")
    for name, schema in list(components.items()):
        properties = schema.get("properties", {})
        if "kind" in properties and "input" in properties:
            forms = {f"{name}.{k}": _upload(schema, kind) for k, kind in _taking_files(registry)}
            plain = {**schema, "properties": {**properties, "kind": {"type": "null"}}}
            components |= forms | {f"{name}Plain": plain}
            components[name] = {"anyOf": [ref(form) for form in (f"{name}Plain", *forms)]}
    return components


def _taking_files(registry: Registry) -> list[tuple[str, Kind]]:
    return [(name, kind) for name, kind in sorted(registry.kinds.items()) if kind.file_parameters]


def _upload(schema: Schema, kind: Kind) -> Schema:
    """Return the schema of a new upload that creates a job of this kind."""
    files, submission = list(kind.file_parameters), _submission(kind)["properties"]
    job: dict[str, Any] = {name: submission[name] for name in ("kind", "queue", "runAt", "deadline")}
    for name in ("priority", "labels"):
        job[name] = {"anyOf": [submission[name], {"type": "null"}]}
    job["idempotencyKey"] = {"type": ["string", "null"], "pattern": KEY_PATTERN}
    required = [*schema["required"], "kind"]
    if len(files) == 1:
        job |= {"parameter": {"enum": [*files, None]}, "input": ref(f"fields.{kind.name}")}
        required += ["input"] if _beside_files(kind)["required"] else []
    else:  # the upload is for one of them; the input may name the files for the others
        job |= {"parameter": {"enum": files}, "input": {"type": "object"}}
        required += ["parameter"]
    return {**schema, "properties": {**schema["properties"], **job}, "required": required}


def of_submissions(registry: Registry, most: int) -> dict[str, Schema]:
    """Return the bodies of POST /jobs and /jobs/batch: one schema per kind, with `kind` as discriminator."""
    components: dict[str, Schema] = {}
    mapping: dict[str, str] = {}
    for name, kind in sorted(registry.kinds.items()):
        components.update(_with_definitions(f"input.{name}", kind.schema))
        components[f"submit.{name}"] = _submission(kind)
        components[f"form.{name}"] = _form(kind)
        mapping[name] = COMPONENTS + f"submit.{name}"
    for name, kind in _taking_files(registry):
        components[f"fields.{name}"] = _moved(f"input.{name}", _beside_files(kind))
    forms = [ref(f"form.{name}") for name in mapping]
    components["SubmissionForm"] = {"anyOf": forms} if forms else {"not": {}}
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


def _beside_files(kind: Kind) -> Schema:
    """Return the schema of the input without the files, which are sent in another way."""
    schema, files = kind.schema, kind.file_parameters
    return {
        **{name: value for name, value in schema.items() if name != "$defs"},
        "properties": {n: s for n, s in schema.get("properties", {}).items() if n not in files},
        "required": [name for name in schema.get("required", ()) if name not in files],
    }


def _form(kind: Kind) -> Schema:
    """Return the form that submits a job: the part `job`, and one part per file."""
    files, required = kind.file_parameters, kind.schema.get("required", ())
    job = ref(f"submit.{kind.name}")
    if files:
        job = _submission(kind)
        job["properties"]["input"] = ref(f"fields.{kind.name}")
        job["required"] = ["kind", *(["input"] if _beside_files(kind)["required"] else [])]
    return {
        "type": "object",
        "properties": {
            "job": job,
            **{
                n: {"type": "array", "items": BINARY} if several else BINARY
                for n, several in files.items()
            },
        },
        "required": ["job", *(name for name in files if name in required)],
        "additionalProperties": False,
    }


def _submission(kind: Kind) -> Schema:
    instant: Schema = {"type": ["string", "null"], "format": "date-time"}
    label = {"type": "string", "maxLength": 255, "pattern": "^[^\\x00]*$"}
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
            "webhook": {"anyOf": [WEBHOOK, {"type": "null"}]},
        },
        "required": ["kind", "input"] if kind.schema.get("required") else ["kind"],
        "additionalProperties": False,
    }


def _with_definitions(name: str, schema: Schema) -> dict[str, Schema]:
    """Return the schema of a kind and its definitions as components, with the references adjusted."""
    own = {k: v for k, v in schema.items() if k != "$defs"}
    definitions = schema.get("$defs", {})
    components = {_definition(name, n): _moved(name, s) for n, s in definitions.items()}
    return {name: _moved(name, own), **components}


def _moved(name: str, value: Any) -> Any:
    """Return the schema with references to the definitions of component `name`."""
    if isinstance(value, dict):
        return {k: _moved(name, v) for k, v in value.items()}
    if isinstance(value, list):
        return [_moved(name, v) for v in value]
    if isinstance(value, str) and value.startswith(_LOCAL):
        return COMPONENTS + _definition(name, value.removeprefix(_LOCAL))
    return value


def _definition(name: str, definition: str) -> str:
    return f"{name}.{re.sub(r'[^A-Za-z0-9._-]', '_', definition)}"
