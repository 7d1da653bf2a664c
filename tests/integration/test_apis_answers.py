"""What a description can say about answers: refusals, absent values, rejected credentials, headers from the environment
and batches, each against a server over a socket."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from bide.cli import root
from bide.client.apis import BadDescription, load
from bide.client.client import AsyncClient
from bide.client.timing import Timing
from bide.core.errors import ServiceError
from tests.integration.third_party import ThirdParty, tells

KEY = "sk-0123456789-not-to-be-seen"
ORG = "org-9876543210"
API = """
name = "press"
numeric_id = true
[auth]
kind = "bearer"
headers = { X-Org = { env = "PRESS_ORG" } }
[submit]
path = "/jobs"
body = { paper = "{input.paper}" }
id = "id"
[ask]
path = "/jobs/{id}"
[read]
status = "job.state"
id = "job.id"
live = ["busy"]
done = ["ready"]
failed = ["torn"]
failed_if = "job.fault unless None"
position = "job.position unless 0, -1"
refusal = ["fault.reason", "fault"]
[[denied]]
status = [200, 400]
contains = "unknown api key"
[result]
value = "job.pages unless 0"
path = "/jobs/{id}/pages"
[batch]
path = "/jobs"
query = { id = "{ids}" }
items = "items"
under = "job"
most = 10
"""


@pytest.fixture
def server() -> Iterator[ThirdParty]:
    with ThirdParty() as running:
        yield running


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRESS_ORG", ORG)
    (tmp_path / "press.toml").write_text(API)


def bide(server: ThirdParty, *args: str) -> Result:
    to = ["--api", "press.toml", "--url", server.url, "--key", KEY, "--trust"]
    result = CliRunner().invoke(root, [*args, *to], prog_name="bide")
    assert KEY not in result.output and ORG not in result.output
    return result


def client(server: ThirdParty, **options: Any) -> AsyncClient:
    return AsyncClient(server.url, KEY, api="press.toml", timing=Timing(100.0), **options)


def job(id: str, state: str, **fields: Any) -> dict[str, Any]:
    return {"job": {"id": id, "state": state, **fields}}


# --- refusals


def test_a_refusal_has_the_text_that_the_description_names(server: ThirdParty) -> None:
    refused = tells({"fault": {"reason": "The paper is  A7"}, "message": "see the fault"}, 422)
    server.on("POST", "/jobs", refused)
    result = bide(server, "submit", "", "-i", '{"paper": "A7"}')
    assert result.exit_code == 1
    assert "The paper is A7" in result.stderr
    server.on("GET", "/jobs/7", tells({"fault": "job 7 was archived"}, 400))
    result = bide(server, "wait", "7")
    assert "job 7 was archived" in result.stderr + result.stdout


async def test_a_refused_result_has_that_text_too(server: ThirdParty) -> None:
    server.on("GET", "/jobs/1", tells(job("1", "ready", pages=0)))
    server.on("GET", "/jobs/1/pages", tells({"fault": "the pages are locked"}, 409))
    async with client(server) as press:
        with pytest.raises(ServiceError, match="the pages are locked"):
            await press.job("1").result(timeout=30)


# --- values that mean "no value"


async def test_a_value_can_mean_that_there_is_none(server: ThirdParty) -> None:
    states = [
        job("1", "busy", position=3, fault="None"),
        job("1", "busy", position=0),
        job("1", "busy", position=-1.0),
        job("1", "ready", fault="None", pages=4),
    ]
    server.on("GET", "/jobs/1", *map(tells, states))
    async with client(server, price=0.01) as press:
        handle = press.job("1")
        positions: list[Any] = []
        for _ in range(3):
            await handle.status()
            positions.append(handle._state.seen.position if handle._state.seen else "?")
        assert positions == [3, None, None]
        assert await handle.result(timeout=30) == 4


def test_another_value_counts(server: ThirdParty) -> None:
    server.on("GET", "/jobs/2", tells(job("2", "ready", fault="paper jam")))
    result = bide(server, "wait", "2", "--json")
    assert json.loads(result.stdout)["status"] == "ERROR"


# --- the credential


@pytest.mark.parametrize("status", [200, 400])
def test_a_status_and_a_body_can_mean_that_the_credential_is_refused(
    server: ThirdParty, status: int
) -> None:
    for id in "12":
        server.on("GET", f"/jobs/{id}", tells({"fault": "Unknown API key"}, status))
    server.on("GET", "/jobs", tells({"fault": "Unknown API key"}, status))
    result = bide(server, "wait", "1", "2", "--json")
    assert result.exit_code == 1
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert {line["jobId"] for line in lines} == {"1", "2"}
    for line in lines:
        assert line["error"]["code"] == "http-401"
        sources = "the one that you passed, and from PRESS_ORG"
        expected = f"Unknown API key. The credential is {sources}. (HTTP {status})"
        assert expected in line["error"]["message"]
    assert len(server.asked) <= 3  # a refused credential is not tried again and again


async def test_a_key_that_was_replaced_is_read_again_after_such_a_refusal(
    server: ThirdParty, tmp_path: Path
) -> None:
    async def reply(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] != f"Bearer {KEY}-2":
            key.write_text(f"{KEY}-2")
            return web.json_response({"fault": "unknown api key"})
        return web.json_response(job("1", "ready", pages=2))

    key = tmp_path / "key"
    key.write_text(KEY)
    (tmp_path / "press.toml").write_text(API.replace("[auth]", '[auth]\nsecret.file = "key"'))
    server.rest = reply
    async with AsyncClient(server.url, api="press.toml", timing=Timing(100.0)) as press:
        assert await press.job("1").result(timeout=30) == 2


def test_a_header_has_its_value_from_the_environment(
    server: ThirdParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("GET", "/jobs/1", tells(job("1", "ready", pages=4)))
    assert bide(server, "wait", "1").exit_code == 0
    assert [request.headers["X-Org"] for request in server.asked] == [ORG]
    server.on("GET", "/jobs/2", tells({"fault": f"{ORG} may not"}, 403))
    bide(server, "wait", "2")  # `bide` checks that the value is not printed
    monkeypatch.delenv("PRESS_ORG")
    result = bide(server, "wait", "1")
    assert result.exit_code != 0
    assert "The header X-Org has no value: set PRESS_ORG" in result.stderr


def test_such_a_header_is_sent_to_the_api_alone_and_must_be_confirmed(
    server: ThirdParty, tmp_path: Path
) -> None:
    with ThirdParty() as elsewhere:
        text = API.replace('kind = "bearer"', "").replace('"job.pages unless 0"', '"job.sheets"')
        (tmp_path / "press.toml").write_text(text.replace('path = "/jobs/{id}/pages"', 'url = "job.at"'))
        server.on("GET", "/jobs/1", tells(job("1", "ready", at=f"{elsewhere.url}/pages.json")))
        elsewhere.rest = tells([1, 2])
        untrusted = ["wait", "1", "--api", "press.toml", "--url", server.url, "--out", "out"]
        result = CliRunner().invoke(root, untrusted, prog_name="bide")
        assert result.exit_code == 2 and "the environment variable PRESS_ORG" in result.stderr
        assert server.asked == []
        result = CliRunner().invoke(root, [*untrusted, "--trust"], prog_name="bide")
        assert result.exit_code == 0, result.stderr
        assert [request.headers.get("X-Org") for request in server.asked] == [ORG]
        assert [request.headers.get("X-Org") for request in elsewhere.asked] == [None]


def test_the_name_of_such_a_header_is_checked(tmp_path: Path) -> None:
    (tmp_path / "press.toml").write_text(API.replace("X-Org", '"X Org"'))
    with pytest.raises(BadDescription, match="'X Org' is not the name of a header"):
        load("press.toml")


# --- batches


def listing(*jobs: dict[str, Any]) -> dict[str, Any]:
    return {"items": list(jobs)}


async def test_read_applies_to_each_item_of_a_batch(server: ThirdParty) -> None:
    ids = [str(number) for number in range(5)]
    batch = listing(*({"id": id, "state": "ready", "pages": int(id) + 1} for id in ids))
    server.on("GET", "/jobs", tells(batch))
    async with client(server) as press:
        jobs = await press.wait_all([press.job(id) for id in ids], timeout=30)
        assert [await one.result() for one in jobs] == [1, 2, 3, 4, 5]
    assert {request.path for request in server.asked} == {"/jobs"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        # With all jobs, because the second batch may have any of them.
        (listing(*({"id": id, "status": "ready"} for id in "0123")), "'job.state'; job has: id, status"),
        (listing({"number": "0", "state": "ready"}), "none of the 1 items of the response has the id"),
        (listing(), "none of the 0 items of the response has the id"),
        ({"jobs": []}, "the response has no list of jobs"),
    ],
)
async def test_a_batch_from_which_nothing_can_be_read_is_given_up_with_a_warning(
    server: ThirdParty, answer: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [str(number) for number in range(4)]
    polled = dict.fromkeys(ids, 0)

    async def one(request: web.Request) -> web.StreamResponse:
        id = request.path.rpartition("/")[2]
        polled[id] += 1
        return web.json_response(job(id, "ready" if polled[id] > 6 else "busy", pages=1))

    server.on("GET", "/jobs", tells(answer))
    for id in ids:
        server.on("GET", f"/jobs/{id}", one)
    with caplog.at_level(logging.WARNING, "bide.client"):
        async with client(server) as press:
            await press.wait_all([press.job(id) for id in ids], timeout=60)
    warnings = [record.message for record in caplog.records if "No job can be read" in record.message]
    assert len(warnings) == 1 and reason in warnings[0]
    assert "Each job is polled in a request of its own from now on" in warnings[0]
    # Some may have been on their way when the second was read.
    assert 2 <= sum(request.path == "/jobs" for request in server.asked) <= 4


async def test_one_batch_without_a_readable_job_is_no_reason_to_give_up(
    server: ThirdParty, caplog: pytest.LogCaptureFixture
) -> None:
    ids = ["0", "1", "2"]
    busy = listing(*({"id": id, "state": "busy"} for id in ids))
    ready = listing(*({"id": id, "state": "ready", "pages": 1} for id in ids))
    server.on("GET", "/jobs", *map(tells, (listing(), busy, listing(), busy, ready)))
    for id in ids:
        # A job may be polled alone from the first unreadable batch on, so it must end there, too.
        server.on("GET", f"/jobs/{id}", *[tells(job(id, "busy"))] * 3, tells(job(id, "ready")))
    with caplog.at_level(logging.WARNING, "bide.client"):
        async with client(server) as press:
            await press.wait_all([press.job(id) for id in ids], timeout=60)
    assert "No job can be read" not in caplog.text


# --- api check


@pytest.mark.parametrize("known", [True, False])
def test_api_check_probes_numeric_ids_with_a_number(
    server: ThirdParty, tmp_path: Path, known: bool
) -> None:
    """This API answers 400 for an id that is not a number."""

    async def reply(request: web.Request) -> web.StreamResponse:
        id = request.path.rpartition("/")[2]
        if request.query or id == "5":
            return web.json_response(job("5", "busy"))
        status = 404 if id.isdigit() else 400
        return web.json_response({"fault": "no job" if id.isdigit() else "not a number"}, status=status)

    server.rest = reply
    if known:  # the id that the user gave shows that ids are numbers
        (tmp_path / "press.toml").write_text(API.replace("numeric_id = true", ""))
    args = ["api", "check", "press.toml", "--against", server.url, "--key", KEY, "--trust", "--json"]
    result = CliRunner().invoke(root, [*args, *(["--id", "5"] if known else [])], prog_name="bide")
    found = {line["field"]: line for line in map(json.loads, result.stdout.splitlines())}
    assert found["missing"]["fits"] is True, result.output
    assert "an unknown id is reported as not found" in found["missing"]["detail"]
