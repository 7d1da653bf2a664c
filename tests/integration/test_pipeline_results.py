"""What of an ended job becomes rows: pages of every kind, values in the answer, several files, an address in the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from bide.client.apis import Answer
from bide.core.errors import SetupError
from bide.pipeline.plan.form import PagesTable
from bide.pipeline.run.pages import Pager
from bide.pipeline.run.pipeline_run import RunOptions
from tests.integration.exporter import KEY, PIPELINE, Exporter, Folder, Storage

STUDENTS = [{"student": f"s{number}", "grade": number} for number in range(5)]
Rule = Callable[[web.Request], web.Response | None]


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with Storage() as storage, Exporter(storage) as exporter:
        exporter.extra = {"url": f"{exporter.url}/rows?size=2"}
        yield exporter


@pytest.fixture
def folder(tmp_path: Path, exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("LMS_KEY", KEY)
    return Folder(tmp_path, exporter)


def paged(exporter: Exporter, kind: str) -> Rule:
    """Two students a page, at the API itself: the credential is needed there."""

    def rule(request: web.Request) -> web.Response | None:
        if request.path != "/rows":
            return None
        assert request.headers["Authorization"] == f"Bearer {KEY}" and request.query["size"] == "2"
        number = int(request.query.get("page", "1"))
        found = STUDENTS[2 * number - 2 : 2 * number]
        following = number + 1 if number < 3 else None
        headers = {}
        if kind == "link" and following:
            url = f"{exporter.url}/rows?size=2&page={following}"
            headers["Link"] = f'<{exporter.url}/rows>; rel="first", <{url}>; rel="next"'
        body = {"students": found, "next": following, "pages": 3}
        return web.json_response(body, headers=headers)

    return rule


@pytest.mark.parametrize(
    ("kind", "pages", "requests"),
    [
        ("link", "{ link = true }", 3),
        ("token", '{ next = "next", query = "page" }', 3),
        ("total", '{ query = "page", total = "pages" }', 3),
        ("empty", '{ query = "page" }', 4),
    ],
)
async def test_pages_of_every_kind(
    folder: Folder, exporter: Exporter, kind: str, pages: str, requests: int
) -> None:
    exporter.rules.append(paged(exporter, kind))
    folder.write(f'result = {{ take = "url", records = "students", pages = {pages} }}')
    outcome = await folder.sync()
    assert outcome.good, outcome.outputs
    assert [row["student"] for row in folder.rows if row["course"] == "2"] == [
        one["student"] for one in STUDENTS
    ]
    assert sum(request.path == "/rows" for request in exporter.asked) == 3 * requests


async def test_an_api_that_repeats_its_first_page_is_found_out(
    folder: Folder, exporter: Exporter
) -> None:
    def same(request: web.Request) -> web.Response | None:
        return web.json_response({"students": STUDENTS}) if request.path == "/rows" else None

    exporter.rules.append(same)
    folder.write('result = { take = "url", records = "students", pages = { query = "page" } }')
    outcome = await folder.sync()
    assert {e.error.code for e in outcome.failed if e.error} == {"PAGES"}


async def test_pages_that_lead_in_a_circle_are_found_out(folder: Folder, exporter: Exporter) -> None:
    def circle(request: web.Request) -> web.Response | None:
        if request.path != "/rows":
            return None
        page = int(request.query.get("page", "1"))
        return web.json_response({"students": STUDENTS[:page], "next": 3 - page})

    exporter.rules.append(circle)
    pages = 'pages = { next = "next", query = "page" }'
    folder.write(f'result = {{ take = "url", records = "students", {pages} }}')
    outcome = await folder.sync()
    assert {e.error.code for e in outcome.failed if e.error} == {"PAGES"}


@pytest.mark.parametrize(
    "pages", ['{ next = "nxet", query = "page" }', '{ query = "page", total = "pagse" }']
)
async def test_a_typo_in_pages_leaves_the_good_file_alone(
    folder: Folder, exporter: Exporter, pages: str
) -> None:
    exporter.rules.append(paged(exporter, "token"))
    right = 'result = { take = "url", records = "students", pages = { next = "next", query = "page" } }'
    folder.write(right)
    assert (await folder.sync()).good
    assert len(folder.rows) == 15
    folder.write(f'result = {{ take = "url", records = "students", pages = {pages} }}')
    outcome = await folder.sync(RunOptions(fresh=True))
    assert not outcome.good
    errors = [e.error for e in outcome.failed if e.error]
    assert {error.code for error in errors} == {"PAGES"}
    assert "may_be_absent" in errors[0].message
    assert len(folder.rows) == 15, "what was published stays"
    folder.write(right)
    assert (await folder.sync()).good


async def test_a_typo_in_the_next_of_a_description_leaves_the_good_file_alone(
    folder: Folder, exporter: Exporter
) -> None:
    exporter.rules.append(paged(exporter, "token"))
    folder.write('result = { take = "url", records = "students" }')
    description = folder.path / "lms.toml"
    text = description.read_text()
    for value, good in (("next", True), ("nxet", False)):
        rule = f'value = "rows"\nnext = {{ value = "{value}", query = "page" }}'
        description.write_text(text.replace('value = "rows"', rule))
        outcome = await folder.sync(RunOptions(fresh=True))
        assert outcome.good is good
        assert len(folder.rows) == 15
    assert {e.error.code for e in outcome.failed if e.error} == {"PAGES"}


@pytest.mark.parametrize(
    ("page", "pages", "good"),
    [
        ({"next": None}, 'next = "next"', True),
        ({}, 'next = "next"', False),
        ({}, 'next = "next", may_be_absent = true', True),
        ({}, 'query = "page", total = "pages", may_be_absent = true', True),
        ({"pages": 1}, 'query = "page", total = "pages"', True),
    ],
)
async def test_a_result_of_one_page(
    folder: Folder, exporter: Exporter, page: dict[str, object], pages: str, good: bool
) -> None:
    def one(request: web.Request) -> web.Response | None:
        found = {"students": STUDENTS, **page}
        return web.json_response(found) if request.path == "/rows" else None

    exporter.rules.append(one)
    folder.write(f'result = {{ take = "url", records = "students", pages = {{ {pages} }} }}')
    assert (await folder.sync()).good is good


async def test_a_typo_in_the_pages_of_a_listing_exports_nothing(
    folder: Folder, exporter: Exporter
) -> None:
    listing = '{ course = { path = "/courses", pages = { next = "header:Nxet" } } }'
    folder.write(
        text=PIPELINE.replace("{{ course = [1, 2, 3] }}", listing.replace("{", "{{").replace("}", "}}"))
    )
    with pytest.raises(SetupError, match="may_be_absent"):
        await folder.sync()


async def test_rows_in_the_answer_itself(folder: Folder, exporter: Exporter) -> None:
    exporter.extra = {"rows": STUDENTS, "url": None}
    folder.write('result = { take = "value" }')
    assert (await folder.sync()).good
    assert len(folder.rows) == 15


async def test_addresses_inside_of_the_result(folder: Folder, exporter: Exporter) -> None:
    storage = exporter.storage
    parts = [f"{storage.url}/{name}?sig=0" for name in ("x", "y")]
    exporter.extra = {"rows": {"parts": parts}, "url": None}
    folder.write('result = { at = "parts" }')
    assert (await folder.sync()).good
    assert {row["student"] for row in folder.rows} == {"adax", "bobx", "aday", "boby"}


async def test_a_job_without_a_result_is_reported(folder: Folder, exporter: Exporter) -> None:
    exporter.extra = {"url": None}
    outcome = await folder.sync()
    assert {e.error.code for e in outcome.failed if e.error} == {"NO_RESULT"}


async def test_a_file_at_the_api_that_leads_elsewhere_takes_no_credential_along(
    folder: Folder, exporter: Exporter
) -> None:
    def elsewhere(request: web.Request) -> web.Response | None:
        if request.path != "/rows":
            return None
        return web.Response(status=302, headers={"Location": f"{exporter.storage.url}/1?sig=0"})

    exporter.rules.append(elsewhere)
    assert (await folder.sync()).good
    assert set(exporter.storage.header("Authorization")) == {None}


# --- the pager alone


@given(st.binary(max_size=200), st.dictionaries(st.sampled_from(["Link", "X"]), st.text(max_size=40)))
def test_no_page_does_any_harm(body: bytes, headers: dict[str, str]) -> None:
    for pages in (
        PagesTable(link=True),
        PagesTable(next="a.b", query="t", may_be_absent=True),
        PagesTable(next="a", may_be_absent=True),
        PagesTable(query="p", total="n", may_be_absent=True),
        PagesTable(query="p"),
    ):
        found = Pager(pages).following("https://a.example/x?y=1", 0, Answer(200, headers, body))
        assert found is None or found.startswith(("https://", "http://"))


@given(st.integers(1, 30), st.integers(0, 5))
def test_counting_asks_for_each_page_once(total: int, first: int) -> None:
    pager = Pager(PagesTable(query="page", total="n", first=first))
    url: str | None = pager.first("https://a.example/x?size=2")
    seen = []
    while url is not None:
        seen.append(url)
        url = pager.following(url, len(seen) - 1, Answer(200, {}, json.dumps({"n": total}).encode()))
    assert seen == [f"https://a.example/x?size=2&page={first + n}" for n in range(total)]
