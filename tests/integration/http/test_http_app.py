"""The HTTP application, for every operation: problems, routing, limits, mounting, and failures."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from bide.server.http.request import Message
from bide.server.store import StoreUnavailable
from tests.integration.http.service import MAX_BODY, Service, scope

JSON = {"content-type": "application/json"}


def _check_problem(problem: dict[str, Any], status: int, code: str, path: str) -> None:
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"/problems/{code}"
    assert problem["instance"] == path
    assert problem["title"]
    assert problem["detail"]
    assert problem["retryable"] in (True, False)
    assert re.fullmatch("[0-9a-f]{32}", problem["traceId"])


@pytest.mark.parametrize(
    "path", ["//", "/nothing", "/jobs//", "//jobs", "/jobs/a/b", "/jobs/a/files/", "/queues/x"]
)
async def test_nothing_there(service: Service, path: str) -> None:
    reply = await service.call("GET", path)
    assert reply.status == 404
    assert reply.headers["content-type"] == "application/problem+json"
    _check_problem(reply.json(), 404, "not-found", path)


@pytest.mark.parametrize("path", ["", "/"])
async def test_the_root_of_a_mount_names_its_links(service: Service, path: str) -> None:
    reply = await service.call("GET", path, mount="/api")
    assert reply.status == 200
    assert reply.json()["links"]["jobs"] == "/api/jobs"


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/file", "/files"),
        ("/job/01J/cancle", "/jobs/01J/cancel"),
        ("/job/", "/jobs"),
        ("/nothing", None),
    ],
)
async def test_a_near_path_is_suggested(service: Service, path: str, near: str | None) -> None:
    detail = (await service.call("GET", path)).json()["detail"]
    hint = "See /docs for all paths." if near is None else f"Did you mean {near}?"
    assert detail == f"No such path: {path!r}. {hint}"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/jobs", "GET, HEAD, POST"),
        ("GET", "/jobs/batch", "POST"),
        ("POST", "/jobs/x", "DELETE, GET, HEAD"),
        ("GET", "/jobs/x/cancel", "POST"),
        ("OPTIONS", "/healthz", "GET, HEAD"),
        ("DELETE", "/queues", "GET, HEAD"),
    ],
)
async def test_another_method(service: Service, method: str, path: str, allow: str) -> None:
    reply = await service.call(method, path)
    assert (reply.status, reply.headers["allow"]) == (405, allow)
    _check_problem(reply.json(), 405, "method-not-allowed", path)


async def test_the_callers_trace_goes_into_problems_and_jobs(service: Service) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    assert (await service.call("GET", "/x", headers=headers)).json()["traceId"] == trace
    await service.call("POST", "/jobs", json={"kind": "echo"}, headers=headers)
    assert (await service.claim()).trace_id == trace
    bad = {"traceparent": "00-zz-1-01"}
    made = (await service.call("GET", "/x", headers=bad)).json()["traceId"]
    assert re.fullmatch("[0-9a-f]{32}", made)


async def test_head_works_wherever_get_does(service: Service) -> None:
    for path in ("/jobs", "/queues", "/kinds", "/workers", "/healthz", "/readyz", "/metrics", "/docs"):
        get = await service.call("GET", path)
        head = await service.call("HEAD", path)
        if path == "/metrics":  # some of its values are measured times, whose lengths differ
            assert (
                int(head.headers.pop("content-length")) > 1000 < int(get.headers.pop("content-length"))
            )
        assert (head.status, head.headers, head.body) == (200, get.headers, b""), path
    missing = await service.call("HEAD", "/nothing")
    assert (missing.status, missing.body) == (404, b"")


# --- bodies


async def test_a_body_that_says_it_is_too_large_is_not_read(service: Service) -> None:
    request = scope("POST", "/jobs", {**JSON, "content-length": str(MAX_BODY + 1)})
    reply = await service.send(request, [])  # there is nothing to read: it would wait for ever
    assert (reply.status, reply.json()["code"]) == (413, "payload-too-large")


@pytest.mark.parametrize(("length", "status"), [("²", 202), ("9" * 5000, 413)])
async def test_a_length_that_is_no_number_of_ours(service: Service, length: str, status: int) -> None:
    """Mounted behind a server that does not look at it: it used to be an internal error."""
    request = scope("POST", "/jobs", {**JSON, "content-length": length})
    assert (await service.send(request, [b'{"kind": "echo"}'])).status == status


async def test_a_body_that_becomes_too_large_is_not_read_on(service: Service) -> None:
    chunk = b" " * 1000
    reply = await service.send(scope("POST", "/jobs", JSON), [chunk] * (MAX_BODY // 1000 + 1) + [b"{}"])
    assert (reply.status, reply.json()["code"]) == (413, "payload-too-large")


async def test_a_body_of_the_largest_size_is_read(service: Service) -> None:
    body = b'{"kind": "echo"}'.ljust(MAX_BODY)
    headers = {**JSON, "content-length": str(MAX_BODY)}
    assert (await service.call("POST", "/jobs", body=body, headers=headers)).status == 202


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": ""},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json; profile=x"},
        {"content-type": "application/jsonx"},
        {"content-type": "application/json", "content-encoding": "gzip"},
        {"content-type": "application/json", "content-encoding": "br, gzip"},
    ],
)
@pytest.mark.parametrize("path", ["/jobs", "/jobs/batch"])
async def test_another_media_type(service: Service, headers: dict[str, str], path: str) -> None:
    reply = await service.call("POST", path, body=b'{"kind": "echo"}', headers=headers)
    assert reply.status == 415
    _check_problem(reply.json(), 415, "unsupported-media-type", path)
    assert await service.events() == 0


async def test_a_caller_who_leaves_while_sending_is_not_answered(service: Service) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await service.app(scope("POST", "/jobs", JSON), receive, send)
    assert sent == []


# --- bad days


async def test_an_unexpected_error_is_logged_under_its_trace(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(filter: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(service.store, "find", broken)
    with caplog.at_level(logging.ERROR, "bide.http"):
        reply = await service.call("GET", "/jobs")
    _check_problem(reply.json(), 500, "internal", "/jobs")
    assert reply.json()["retryable"] is True
    assert b"secret detail" not in reply.body
    assert reply.json()["traceId"] in caplog.text
    assert "ZeroDivisionError: secret detail" in caplog.text


async def test_a_store_that_cannot_write_is_503(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(new: object) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(service.store, "insert", full)
    reply = await service.call("POST", "/jobs", json={"kind": "echo"})
    assert (reply.status, reply.json()["code"]) == (503, "unavailable")
    assert int(reply.headers["retry-after"]) >= 1
    assert reply.json()["retryable"] is True


async def test_other_protocols_are_refused(service: Service) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/jobs", "query_string": b"", "headers": []}
    await service.app(scope, receive, send)
    assert [m["type"] for m in sent] == ["websocket.close"]
    with pytest.raises(RuntimeError, match="lifespan"):
        await service.app({"type": "lifespan"}, receive, send)


# --- mounted in another application


async def test_links_carry_the_mount(service: Service) -> None:
    reply = await service.call("POST", "/jobs", json={"kind": "echo"}, mount="/api/v1")
    job = reply.json()
    assert reply.headers["location"] == f"/api/v1/jobs/{job['jobId']}"
    assert all(link.startswith("/api/v1/jobs/") for link in job["links"].values())
    shown = await service.call("GET", f"/jobs/{job['jobId']}", mount="/api/v1")
    assert shown.json()["links"] == job["links"]
    # The same job at two addresses: neither answer is mistaken for the other.
    direct = await service.call("GET", f"/jobs/{job['jobId']}")
    assert direct.json()["links"]["self"] == f"/jobs/{job['jobId']}"
    problem = (await service.call("GET", "/jobs/x", mount="/api/v1")).json()
    assert problem["type"] == "/api/v1/problems/not-found"
    assert problem["instance"] == "/api/v1/jobs/x"
    document = (await service.call("GET", "/openapi.json", mount="/api/v1")).json()
    assert document["servers"] == [{"url": "/api/v1"}]
    assert (await service.call("GET", "/openapi.json")).json()["servers"] == [{"url": "/"}]


async def test_a_mount_that_needs_escaping(service: Service) -> None:
    reply = await service.call("POST", "/jobs", json={"kind": "echo"}, mount="/ünder a")
    assert reply.headers["location"].startswith("/%C3%BCnder%20a/jobs/")


async def test_inside_starlette(service: Service) -> None:
    outer = Starlette(routes=[Mount("/work", app=service.app)])
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b'{"kind": "echo"}', "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await outer(scope("POST", "/work/jobs", JSON), receive, send)
    assert sent[0]["status"] == 202
    assert dict(sent[0]["headers"])[b"location"].startswith(b"/work/jobs/")


async def test_a_page_of_another_site_changes_nothing(service: Service) -> None:
    cross = {"Sec-Fetch-Site": "cross-site"}
    reply = await service.call("POST", "/queues/default/pause", headers=cross)
    assert (reply.status, reply.json()["code"]) == (403, "cross-site")
    assert not any(queue.paused for queue in await service.store.queues())
    assert (await service.call("GET", "/jobs", headers=cross)).status == 200
    own = {"Sec-Fetch-Site": "same-origin"}
    assert (await service.call("POST", "/queues/default/pause", headers=own)).status == 200
