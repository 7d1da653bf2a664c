"""What is difficult about some APIs, run by the real client: pages, several result sets, a result that has expired, an
outcome that is only in counts, a limit of jobs at once. All of it is in descriptions, none in code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bide.client.apis import load, names
from bide.client.client import AsyncClient
from bide.client.timing import Timing
from bide.core.errors import BideError, JobFailed, ServiceError
from bide.core.jobs.record import Status
from tests.integration.api_others import (
    ANTHROPIC,
    OPENAI_RESPONSE,
    OTHERS,
    SALESFORCE,
    SHOPIFY,
    UNSTRUCTURED,
)
from tests.integration.api_vendors import (
    AIRFLOW,
    DESCRIPTIONS,
    OPENAI,
    VENDORS,
    Vendor,
    changed,
    description,
    told,
)
from tests.integration.replay import Replay, play, said
from tests.unit.fake_service import HTML_502, reset

KEY = "sk-0123456789-not-to-be-seen"
SPEED = 200.0


@pytest.fixture
def server() -> Iterator[Replay]:
    with Replay() as running:
        yield running


def account(server: Replay, vendor: Vendor) -> AsyncClient:
    api = load(description(vendor.api), server.url + vendor.base)
    return AsyncClient(None, KEY, api=api, timing=Timing(SPEED))


def own(server: Replay, folder: Path, text: str) -> AsyncClient:
    (folder / "own.toml").write_text(f'name = "own"\nurl = "{server.url}"\n{text}')
    return AsyncClient(api=str(folder / "own.toml"), timing=Timing(SPEED))


def test_the_form_can_express_every_api_of_the_list() -> None:
    known = {*names(), *(path.stem for path in DESCRIPTIONS.glob("*.toml"))}
    assert known == {vendor.api for vendor in (*VENDORS, *OTHERS)}
    assert len(known) == 25
    for name in known:
        assert load(description(name)).name == name


# --- results in pages


async def broken(request: web.Request) -> web.StreamResponse:
    """The last page, whose connection breaks in the middle of a row."""
    response = web.StreamResponse(headers={"Content-Length": "13", "Sforce-Locator": "null"})
    await response.prepare(request)
    await response.write(b"Id,Name\n3,")
    assert request.transport is not None
    request.transport.close()
    return response


async def test_salesforce_has_pages_by_a_locator_and_three_result_sets(
    server: Replay, tmp_path: Path
) -> None:
    play(server, SALESFORCE, said(changed(SALESFORCE.done, numberRecordsFailed=1)))
    where = "/services/data/v62.0/jobs/ingest/750"
    first = told(b"Id,Name\n1,Ada\n", 200, Content_Type="text/csv", Sforce_Locator="MjAw")
    second = told(b"Id,Name\n2,Bob\n", 200, Content_Type="text/csv", Sforce_Locator="NDAw")
    last = told(b"Id,Name\n3,Cyd", 200, Content_Type="text/csv", Sforce_Locator="null")
    # The first answer is for `result()`, which leaves what is no JSON to `download`.
    server.tell(("GET", f"{where}/successfulResults"), first, first, HTML_502, second, broken, last)
    server.tell(("GET", f"{where}/failedResults"), told(b"Error,Name\nDUPLICATE,Dan\n", 200))
    server.tell(("GET", f"{where}/unprocessedrecords"), told(b"Name\n", 200))
    async with account(server, SALESFORCE) as client:
        job = await client.submit(SALESFORCE.kind, SALESFORCE.input)
        await job.result(timeout=10)
        assert job.latest is not None and job.latest.status is Status.PARTIAL_SUCCESS
        assert set(job.files) == {"failed.csv", "unprocessed.csv", "result"}
        path = await job.download("result", tmp_path / "all.csv")
        assert (await job.download("failed.csv", tmp_path)).read_bytes().endswith(b"DUPLICATE,Dan\n")
    assert path.read_bytes() == b"Id,Name\n1,Ada\n2,Bob\n3,Cyd"
    asked = [request.query.get("locator") for request in server.asked if "successful" in request.path]
    assert asked[:4] == [None, None, "MjAw", "MjAw"] and set(asked[4:]) == {"NDAw"}


PAGED = """
[ask]
path = "/t/{id}"
[read]
status = "s"
done = ["ok"]
[result]
path = "/t/{id}/rows"
"""


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        ("next = { link = true }", told([1, 2], 200, Link='</t/a/more>; rel="next"'), told([3])),
        (
            'next = { value = "header:X-Next" }',
            told([1, 2], 200, X_Next="{url}/t/a/more"),
            told([3], 200),
        ),
    ],
    ids=["link", "header"],
)
async def test_pages_that_are_lists_become_one_list(
    rule: str, first: Any, second: Any, server: Replay, tmp_path: Path
) -> None:
    server.tell(("GET", "/t/a"), said({"s": "ok"}))
    server.tell(("GET", "/t/a/rows"), first)
    server.tell(("GET", "/t/a/more"), HTML_502, second)
    async with own(server, tmp_path, PAGED + rule) as client:
        assert await client.job("a").result(timeout=10) == [1, 2, 3]


async def test_pages_by_a_token_in_the_body_are_a_list_of_pages_and_lines_of_a_file(
    server: Replay, tmp_path: Path
) -> None:
    async def rows(request: web.Request) -> web.StreamResponse:
        page = int(request.query.get("cursor", "0"))
        return web.json_response({"rows": [page], "cursor": page + 1 if page < 2 else None})

    server.tell(("GET", "/t/a"), said({"s": "ok"}))
    server.tell(("GET", "/t/a/rows"), rows)
    text = PAGED + 'next = { value = "cursor", query = "cursor" }'
    async with own(server, tmp_path, text) as client:
        job = client.job("a")
        assert [page["rows"] for page in await job.result(timeout=10)] == [[0], [1], [2]]
        path = await job.download("result", tmp_path / "rows.jsonl")
    assert len(path.read_text().splitlines()) == 3


async def test_a_page_that_cannot_be_had_is_an_error_and_no_short_result(
    server: Replay, tmp_path: Path
) -> None:
    server.tell(("GET", "/t/a"), said({"s": "ok"}))
    server.tell(("GET", "/t/a/rows"), told([1], 200, Link='</t/a/more>; rel="next"'))
    server.tell(("GET", "/t/a/more"), told({"message": "no"}, 400))
    async with own(server, tmp_path, PAGED + "next = { link = true }") as client:
        job = client.job("a")
        with pytest.raises(ServiceError):
            await job.result(timeout=10)
        with pytest.raises(ServiceError):
            await job.download("result", tmp_path / "rows.json")
    assert not list(tmp_path.glob("rows.json*"))


@pytest.mark.parametrize(
    "rule",
    [
        'value = "nxet"',
        'value = "header:X-Nxet"',
        'value = "paging.nxet"',
        'value = "links[rel=nxet].href"',
        'items = "rwos", query = "offset"',
    ],
)
async def test_a_next_that_no_page_has_is_an_error_and_no_short_result(
    rule: str, server: Replay, tmp_path: Path
) -> None:
    page = {"rows": [1], "next": "/t/a/more", "paging": {"next": "/t/a/more"}, "links": []}
    server.tell(("GET", "/t/a"), said({"s": "ok"}))
    server.tell(("GET", "/t/a/rows"), told(page, 200, X_Next="/t/a/more"))
    async with own(server, tmp_path, PAGED + f"next = {{ {rule} }}") as client:
        job = client.job("a")
        with pytest.raises(BideError, match="may_be_absent"):
            await job.result(timeout=10)
        with pytest.raises(BideError, match="may_be_absent"):
            await job.download("result", tmp_path / "rows.json")
    assert not list(tmp_path.glob("rows.json*"))


@pytest.mark.parametrize(
    ("rule", "page"),
    [
        ('value = "next"', {"rows": [1], "next": None}),
        ('value = "next"', {"rows": [1], "next": ""}),
        ('value = "paging.next.after"', {"rows": [1], "paging": None}),
        ('value = ["after", "next"]', {"rows": [1], "next": False}),
        ('value = "next", may_be_absent = true', {"rows": [1]}),
        ("link = true", {"rows": [1]}),
        ('items = "rows", query = "offset", total = "count"', {"rows": [1], "count": 1}),
        ('items = "rows", query = "offset"', {"rows": []}),
    ],
)
async def test_a_result_of_one_page_is_whole_when_its_api_says_so(
    rule: str, page: dict[str, Any], server: Replay, tmp_path: Path
) -> None:
    server.tell(("GET", "/t/a"), said({"s": "ok"}))
    server.tell(("GET", "/t/a/rows"), told(page, 200))
    async with own(server, tmp_path, PAGED + f"next = {{ {rule} }}") as client:
        assert await client.job("a").result(timeout=10) == [page]


# --- how a job ended


@pytest.mark.parametrize(
    ("counts", "status"),
    [
        ({"succeeded": 9}, Status.DONE),
        ({"succeeded": 8, "errored": 1}, Status.PARTIAL_SUCCESS),
        ({"succeeded": 8, "expired": 1}, Status.PARTIAL_SUCCESS),
        ({"errored": 9}, Status.ERROR),
        ({"canceled": 9}, Status.CANCELLED),
        ({"succeeded": 1, "canceled": 8}, Status.PARTIAL_SUCCESS),
    ],
)
async def test_an_outcome_that_is_only_in_the_counts(
    counts: dict[str, int], status: Status, server: Replay
) -> None:
    ended = {**ANTHROPIC.done, "request_counts": counts}
    play(server, ANTHROPIC, said(ANTHROPIC.live), said(ended))
    async with account(server, ANTHROPIC) as client:
        job = await client.submit("", ANTHROPIC.input)
        await client.wait_all([job], timeout=10)
        assert job.latest is not None and job.latest.status is status


async def test_a_batch_that_completed_and_failed_in_parts_has_both_files(
    server: Replay, tmp_path: Path
) -> None:
    counts = {"total": 10, "completed": 9, "failed": 1}
    done = changed(OPENAI.done, request_counts=counts, error_file_id="file-2")
    play(server, OPENAI, said(done))
    server.tell(("GET", "/v1/files/file-2/content"), told(b'{"error": 1}\n', 200))
    async with account(server, OPENAI) as client:
        job = await client.submit("", OPENAI.input)
        await job.result(timeout=10)
        assert job.latest is not None and job.latest.status is Status.PARTIAL_SUCCESS
        assert (await job.download("errors.jsonl", tmp_path)).read_bytes() == b'{"error": 1}\n'


async def test_an_incomplete_answer_is_a_partial_success(server: Replay) -> None:
    body = changed(
        OPENAI_RESPONSE.done, status="incomplete", incomplete_details={"reason": "max_tokens"}
    )
    play(server, OPENAI_RESPONSE, said(body))
    async with account(server, OPENAI_RESPONSE) as client:
        job = await client.submit("", OPENAI_RESPONSE.input)
        assert (await job.result(timeout=10))["output"] == [{"text": "hello"}]
        assert job.latest is not None and job.latest.error is not None
        assert (job.latest.status, job.latest.error.code) == (Status.PARTIAL_SUCCESS, "max_tokens")


async def test_an_expired_result_is_reported_as_expired(server: Replay) -> None:
    gone = told({"code": "result_expired", "message": "results are kept for an hour"}, 410)
    play(server, UNSTRUCTURED, said(UNSTRUCTURED.live), gone)
    async with account(server, UNSTRUCTURED) as client:
        job = await client.submit("", UNSTRUCTURED.input)
        with pytest.raises(JobFailed, match="kept for an hour") as caught:
            await job.result(timeout=10)
    assert caught.value.error is not None and caught.value.error.code == "result_expired"


async def test_graphql_that_refuses_inside_of_a_success_names_no_job(server: Replay) -> None:
    refused = {"bulkOperation": None, "userErrors": [{"message": "already running"}]}
    play(server, SHOPIFY, said(SHOPIFY.live))
    server.tell(SHOPIFY.submit, said({"data": {"bulkOperationRunQuery": refused}}))
    async with account(server, SHOPIFY) as client:
        with pytest.raises(ServiceError, match="names no job"):
            await client.submit("", SHOPIFY.input)


async def test_an_order_whose_answer_was_lost_is_found_by_its_key(server: Replay) -> None:
    """Airflow refuses a run that is there already; the key is its id."""
    key = AIRFLOW.done["dag_run_id"]
    play(server, AIRFLOW, said(AIRFLOW.done))
    server.tell(AIRFLOW.submit, reset, told({"detail": "DAGRun already exists"}, 409))
    async with account(server, AIRFLOW) as client:
        job = await client.submit("etl", {"a": 1}, idempotency_key=key)
        assert (job.id, job.ref.id) == (f"etl/{key}", key)
        await job.result(timeout=10)
        with pytest.raises(ServiceError, match="already exists"):
            await client.submit("etl", {"a": 1})
    assert [body["dag_run_id"] for body in server.bodies_of(AIRFLOW.submit)[:2]] == [key, key]


# --- how many at once


async def test_a_limit_of_jobs_at_once_is_kept_without_anybody_waiting(
    server: Replay, tmp_path: Path
) -> None:
    """A submission waits until one of the jobs has ended."""
    running: dict[str, int] = {}
    most = 0

    async def submit(request: web.Request) -> web.StreamResponse:
        nonlocal most
        id = f"j{len(running)}"
        running[id] = 3  # questions until it has ended
        most = max(most, sum(left > 0 for left in running.values()))
        return web.json_response({"id": id}, status=201)

    def asked(id: str) -> Any:
        async def reply(request: web.Request) -> web.StreamResponse:
            running[id] -= 1
            return web.json_response({"s": "ok" if running[id] <= 0 else "busy"})

        return reply

    server.tell(("POST", "/t"), submit)
    for number in range(6):
        server.tell(("GET", f"/t/j{number}"), asked(f"j{number}"))
    text = """
[submit]
path = "/t"
id = "id"
[ask]
path = "/t/{id}"
[read]
status = "s"
live = ["busy"]
done = ["ok"]
[limits]
concurrent = 2
"""
    async with own(server, tmp_path, text) as client:
        jobs = [await client.submit("k", {}) for _ in range(3)]
        jobs += await asyncio.gather(*(client.submit("k", {}) for _ in range(3)))
        await client.wait_all(jobs, timeout=20)
    assert most == 2
