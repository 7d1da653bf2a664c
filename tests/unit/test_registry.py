"""Kinds: options, schemas from signatures, and bad input named place by place."""

from __future__ import annotations

import enum
import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from bide.core.errors import InvalidInput, SetupError, UnknownKind
from bide.server.registry import File, FileRef, Kind, Options, Registry, pointer

ID = "01J00000000000000000000000"


class Colour(enum.Enum):
    RED = "red"


class Box(BaseModel):
    width: int
    tags: list[str] = []


def transcode(
    ctx: Any,
    source: File,
    *,
    height: int = 720,
    codec: Literal["h264", "av1"] = "h264",
    rate: Annotated[float, Field(gt=0)] = 1.0,
    boxes: list[Box] = [],  # noqa: B006
    size: int | list[int] = 0,
    at: datetime | None = None,
    colour: Colour = Colour.RED,
) -> None: ...


def kind(fn: Any, **options: Any) -> Kind:
    return Kind(fn, options)  # type: ignore[arg-type]


def reads(fn: Any, **values: Any) -> dict[str, Any]:
    return kind(fn).read_input(json.dumps(values).encode())


def places(fn: Any, raw: bytes) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        kind(fn).read_input(raw)
    assert caught.value.errors
    assert all(error["detail"] for error in caught.value.errors)
    return [error["pointer"] for error in caught.value.errors]


SOURCE = {"job": ID, "name": "in.mp4"}


def test_the_signature_is_the_schema() -> None:
    schema = kind(transcode).schema
    assert schema["title"] == "transcode"
    assert schema["required"] == ["source"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert "ctx" not in properties
    assert properties["height"] == {"type": "integer", "default": 720, "title": "Height"}
    assert properties["codec"]["enum"] == ["h264", "av1"]
    assert properties["rate"]["exclusiveMinimum"] == 0
    forms = [form["required"] for form in properties["source"]["oneOf"]]
    assert forms == [["job", "name"], ["upload"]]
    assert json.loads(json.dumps(schema)) == schema


def test_values_come_as_the_annotations_say_with_defaults() -> None:
    values = reads(
        transcode, source=SOURCE, at="2030-01-31T12:00:00Z", boxes=[{"width": 3}], colour="red"
    )
    assert values == {
        "source": File(FileRef(ID, "in.mp4")),
        "height": 720,
        "codec": "h264",
        "rate": 1.0,
        "boxes": [Box(width=3)],
        "size": 0,
        "at": datetime(2030, 1, 31, 12, tzinfo=UTC),
        "colour": Colour.RED,
    }


def test_every_place_that_does_not_fit_is_named() -> None:
    raw = json.dumps(
        {
            "height": "480",
            "codec": "vp9",
            "rate": 0,
            "boxes": [{"width": 1}, {"width": "wide", "tags": ["a", 3]}, {}],
            "size": [1, "two"],
            "colour/~": 1,
        }
    ).encode()
    assert sorted(set(places(transcode, raw))) == [
        "/input/boxes/1/tags/1",
        "/input/boxes/1/width",
        "/input/boxes/2/width",
        "/input/codec",
        "/input/colour~1~0",
        "/input/height",
        "/input/rate",
        "/input/size",  # as an integer
        "/input/size/1",  # as a list
        "/input/source",
    ]


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[" * 5000, b"[]", b"null", b'"x"', b"1e999"])
def test_what_is_no_object_is_the_inputs_own_fault(raw: bytes) -> None:
    assert places(transcode, raw) == ["/input"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("source"), inner),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
    | st.binary()
)
def test_input_is_read_or_invalid_and_every_pointer_begins_in_the_input(raw: bytes) -> None:
    for pointer_ in places(transcode, raw):
        assert pointer_ == "/input" or pointer_.startswith("/input/")


def test_unknown_fields_are_refused_and_named() -> None:
    def nothing() -> None: ...

    assert places(nothing, b'{"x": 1}') == ["/input/x"]
    assert reads(nothing) == {}


def test_a_field_has_one_name() -> None:
    def handler(height: int) -> None: ...

    assert sorted(places(handler, b'{"p_height": 1}')) == ["/input/height", "/input/p_height"]


def test_a_parameter_may_have_any_name() -> None:
    def handler(
        json: int, copy: str, model_config: int, dict: int, schema: int, p_json: int, _hidden: int = 1
    ) -> None: ...

    given_ = {"json": 1, "copy": "c", "model_config": 2, "dict": 3, "schema": 4, "p_json": 5}
    assert reads(handler, **given_) == {**given_, "_hidden": 1}
    assert set(kind(handler).schema["properties"]) == {*given_, "_hidden"}


def test_without_an_annotation_anything_goes() -> None:
    def handler(anything) -> None: ...  # type: ignore[no-untyped-def]

    assert reads(handler, anything=[1, {"a": None}]) == {"anything": [1, {"a": None}]}


def test_a_mutable_default_is_not_shared() -> None:
    one = kind(transcode).read_input(json.dumps({"source": SOURCE}).encode())
    assert one["boxes"] == []
    one["boxes"].append("x")
    assert kind(transcode).read_input(json.dumps({"source": SOURCE}).encode())["boxes"] == []


def test_files_are_references_that_are_resolved() -> None:
    def handler(many: list[File], one: File | None = None) -> None: ...

    def resolve(ref: FileRef) -> File:
        return File(ref, size=9)

    raw = json.dumps({"many": [SOURCE], "one": SOURCE}).encode()
    values = kind(handler).read_input(raw, resolve)
    assert values["one"] == values["many"][0] == File(FileRef(ID, "in.mp4"), size=9)
    assert values["one"].name == "in.mp4"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("in.mp4", "/input/source"),
        ({"job": ID}, "/input/source/name"),
        ({"job": ID, "name": ""}, "/input/source/name"),
        ({"job": 1, "name": "x"}, "/input/source/job"),
        ({"job": ID, "name": "x", "path": "/etc/passwd"}, "/input/source/path"),
    ],
)
def test_what_is_no_reference_is_refused(value: Any, place: str) -> None:
    assert places(transcode, json.dumps({"source": value}).encode()) == [place]


class Context: ...


@pytest.mark.parametrize(
    ("annotation", "takes"), [(Context, True), ("Context", True), ("bide.Context", True), (int, False)]
)
def test_a_context_is_known_by_its_name_or_its_type(annotation: Any, takes: bool) -> None:
    def handler(first) -> None: ...  # type: ignore[no-untyped-def]

    handler.__annotations__["first"] = annotation
    assert kind(handler).takes_context is takes


def test_async_handlers_are_recognized() -> None:
    async def later() -> None: ...

    assert kind(later).is_async
    assert not kind(transcode).is_async


def test_options_are_kept() -> None:
    made = kind(transcode, name="t", queue="video", retries=3, timeout=1800, steps={"probe": 5})
    assert (made.name, made.queue, made.policy.retries, made.timeout) == ("t", "video", 3, 1800)
    assert made.steps == {"probe": 5}
    assert made.retention == 7 * 86400
    assert kind(transcode, retention=None).retention is None


def generator() -> Any:
    yield 1


def takes_rest(*rest: int) -> None: ...


def takes_keywords(**rest: int) -> None: ...


@pytest.mark.parametrize(
    ("fn", "options", "told"),
    [
        (transcode, {"retires": 3}, "unknown option retires"),
        (transcode, {"retries": -1}, "less than 0"),
        (transcode, {"max_losses": 0}, "max_losses=0 is not between 1 and 20"),
        (transcode, {"max_losses": 21}, "max_losses=21 is not between 1 and 20"),
        (transcode, {"name": "a b"}, "kind 'a b'"),
        (transcode, {"queue": ""}, "queue ''"),
        (transcode, {"steps": {"a": -1}}, "weight"),
        (transcode, {"dedupe": "name"}, "dedupe='name' is unknown: use 'content' or 'content.name'"),
        (transcode, {"concurrency": 0}, "concurrency=0 is less than 1"),
        (transcode, {"concurrency_key": "input.height"}, "needs concurrency=N"),
        (
            transcode,
            {"concurrency": 1, "concurrency_key": "input.x"},
            "concurrency_key='input.x' begins",
        ),
        (transcode, {"unique": "height"}, "unique='height' is not a path"),
        (transcode, {"unique_for": 5}, "unique_for=5 needs unique"),
        (transcode, {"unique": "input", "unique_for": 86401}, "at most 86400 seconds"),
        (generator, {}, "not yield"),
        (takes_rest, {}, r"\*rest"),
        (takes_keywords, {}, r"\*\*rest"),
        (lambda x: x, {}, "begin with a letter"),
    ],
)
def test_a_mistake_in_a_registration_is_reported(fn: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(SetupError, match=told):
        kind(fn, **options)


def test_a_concurrency_key_is_of_the_kind_or_of_a_value_and_tenant() -> None:
    assert kind(transcode).concurrency_key(b"{}", "-") is None
    assert kind(transcode, concurrency=2).concurrency_key(b"{}", "acme") == "transcode"
    limited = kind(transcode, concurrency=2, concurrency_key="input.height")
    keys = {
        limited.concurrency_key(raw, tenant)
        for raw in (b"{}", b'{"height": 1}', b'{"height": "1"}', b'{"height": null}')
        for tenant in ("-", "acme")
    }
    assert len(keys) == 8
    long = limited.concurrency_key(b'{"height": "%s"}' % (b"x" * 1000), "-")
    assert long is not None and len(long) < 300


def test_the_check_reports_annotations_without_a_schema() -> None:
    registry = Registry()

    @registry.job()
    def handler(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(SetupError, match="Nowhere"):
        registry.check()
    other = Registry()

    class Opaque: ...

    def opaque(x) -> None: ...  # type: ignore[no-untyped-def]

    opaque.__annotations__["x"] = Opaque
    other.job()(opaque)
    with pytest.raises(SetupError, match="cannot build a schema"):
        other.check()


def test_kinds_are_found_by_name_and_grouped_by_queue() -> None:
    registry = Registry(queues={"video": 2})
    options: Options = {"queue": "video"}
    assert registry.job(**options)(transcode) is transcode
    registry.job(name="other")(transcode)
    assert registry.kind("transcode").fn is transcode
    assert {q: [k.name for k in ks] for q, ks in registry.queues.items()} == {
        "video": ["transcode"],
        "default": ["other"],
    }
    with pytest.raises(SetupError, match="twice"):
        registry.job(name="other")(transcode)
    with pytest.raises(UnknownKind, match="other, transcode") as caught:
        registry.kind("nothing")
    assert caught.value.errors == [{"pointer": "/kind", "detail": "unknown kind"}]


@pytest.mark.parametrize("queues", [{"a b": 1}, {"video": 0}])
def test_a_queue_has_a_name_and_room_for_one(queues: dict[str, int]) -> None:
    with pytest.raises(SetupError, match="queues"):
        Registry(queues=queues)


def test_pointers_are_escaped() -> None:
    assert pointer("input", "a/b~c", 0) == "/input/a~1b~0c/0"
    assert pointer() == ""
