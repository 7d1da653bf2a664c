"""Every answer to bad input names what is wrong and where, and changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.integration.http.service import Service

JSON = {"content-type": "application/json"}


def _echo(**more: Any) -> bytes:
    return msgspec.json.encode({"kind": "echo", **more})


def _deep(levels: int) -> bytes:
    return b'{"kind": "echo", "input": {"value": %s%s}}' % (b"[" * levels, b"]" * levels)


UNREADABLE = {
    "empty": b"",
    "cut off": b'{"kind": "echo"',
    "no JSON": b"kind=echo",
    "two values": b'{"kind": "echo"} {}',
    "not a number": b'{"kind": "echo", "input": {"value": NaN}}',
    "a byte order mark": b'\xef\xbb\xbf{"kind": "echo"}',
    "half a surrogate pair": b'{"kind": "\\ud800"}',
    "not UTF-8": b'{"kind": "\xff\xfe"}',
    "nested far too deeply": _deep(20_000),
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_cannot_be_read(service: Service, body: bytes) -> None:
    reply = await service.call("POST", "/jobs", body=body, headers=JSON)
    assert (reply.status, reply.json()["code"]) == (400, "malformed-request")
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["detail"]
    assert await service.events() == 0


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_cannot_be_read_in_a_batch(service: Service, body: bytes) -> None:
    batch = b'{"jobs": [%s' % body
    reply = await service.call("POST", "/jobs/batch", body=batch, headers=JSON)
    assert (reply.status, reply.json()["code"]) == (400, "malformed-request")
    assert await service.events() == 0


INVALID: dict[str, tuple[bytes, str]] = {
    "an array": (b"[]", ""),
    "null": (b"null", ""),
    "no kind": (b"{}", ""),
    "a kind that is no text": (b'{"kind": 5}', "/kind"),
    "an unknown kind": (b'{"kind": "nothing"}', "/kind"),
    "an unknown field": (_echo(colour="red"), "/colour"),
    "a priority that is no number": (_echo(priority="high"), "/priority"),
    "a priority out of range": (_echo(priority=1001), "/priority"),
    "a fractional priority": (_echo(priority=1.5), "/priority"),
    "labels that are no object": (_echo(labels=["a"]), "/labels"),
    "a label that is no text": (_echo(labels={"a": 1}), "/labels"),
    "a label that is too long": (_echo(labels={"a": "x" * 256}), "/labels"),
    "too many labels": (_echo(labels={str(i): "" for i in range(51)}), "/labels"),
    "a queue with a bad name": (_echo(queue="a b"), "/queue"),
    "an empty queue": (_echo(queue=""), "/queue"),
    "a time that is none": (_echo(runAt="tomorrow"), "/runAt"),
    "a time without an offset": (_echo(runAt="2031-01-01T00:00:00"), "/runAt"),
    "a time before the calendar": (_echo(runAt="0001-01-01T00:00:00+23:59"), "/runAt"),
    "a time after the calendar": (_echo(runAt="9999-12-31T23:59:59-23:59"), "/runAt"),
    "a deadline in the past": (_echo(deadline="2020-01-01T00:00:00Z"), "/deadline"),
    "a deadline before the start": (
        _echo(runAt="2031-01-02T00:00:00Z", deadline="2031-01-01T00:00:00Z"),
        "/deadline",
    ),
    "an input that is no object": (_echo(input=[1]), "/input"),
    "an unknown input": (_echo(input={"colour": 1}), "/input/colour"),
    "a missing input": (b'{"kind": "encode"}', "/input/source"),
    "an input of another type": (b'{"kind": "encode", "input": {"source": 3}}', "/input/source"),
    "a place deep in the input": (
        b'{"kind": "encode", "input": {"source": "s", "tags": ["a", 1]}}',
        "/input/tags/1",
    ),
    "an input that is nested too deeply": (_deep(500), "/input"),
    "a file that is none": (b'{"kind": "thumbnail", "input": {"video": "a.mp4"}}', "/input/video"),
    "a file of no job": (
        b'{"kind": "thumbnail", "input": {"video": {"job": "x", "name": "a"}}}',
        "/input",
    ),
}


@pytest.mark.parametrize(("body", "pointer"), INVALID.values(), ids=INVALID)
async def test_what_is_not_accepted(service: Service, body: bytes, pointer: str) -> None:
    reply = await service.call("POST", "/jobs", body=body, headers=JSON)
    problem = reply.json()
    assert reply.status == 422, problem
    assert pointer in [e["pointer"] for e in problem["errors"]]
    assert all(e["detail"] for e in problem["errors"])
    assert await service.events() == 0
    assert service.engine.hints == []


@pytest.mark.parametrize(("body", "pointer"), INVALID.values(), ids=INVALID)
async def test_a_bad_one_spoils_no_batch(service: Service, body: bytes, pointer: str) -> None:
    batch = b'{"jobs": [{"kind": "echo"}, %s, {"kind": "echo"}]}' % body
    reply = await service.call("POST", "/jobs/batch", body=batch, headers=JSON)
    first, bad, last = reply.json()["jobs"]
    assert (first["status"], last["status"]) == ("PENDING", "PENDING")
    assert bad["status"] == 422
    assert pointer in [e["pointer"] for e in bad["errors"]]
    assert await service.events() == 2


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"jobs": {}}', b'{"jobs": null}', b'{"jobs": [], "more": 1}']
)
async def test_what_is_no_batch(service: Service, body: bytes) -> None:
    reply = await service.call("POST", "/jobs/batch", body=body, headers=JSON)
    assert (reply.status, reply.json()["code"]) == (422, "invalid-input")


@pytest.mark.parametrize(
    "target",
    ["/healthz?x=1", "/jobs/x?includes=log", "/queues?name=a", "/jobs?colour=1&shape=2", "/docs?=&"],
)
async def test_unknown_query_parameters_are_named(service: Service, target: str) -> None:
    reply = await service.call("GET", target)
    names = [part.partition("=")[0] for part in target.partition("?")[2].split("&") if part]
    assert reply.status == 422
    assert [e["pointer"] for e in reply.json()["errors"]] == [f"?{name}" for name in names]


async def test_all_places_are_named_at_once(service: Service) -> None:
    body = b'{"kind": "encode", "input": {"height": "tall", "width": 3}}'
    errors = (await service.call("POST", "/jobs", body=body, headers=JSON)).json()["errors"]
    assert {e["pointer"] for e in errors} == {"/input/source", "/input/height", "/input/width"}
