"""Responses of other APIs: each is read, or is a failed poll."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.client.apis import Answer, BadPoll, Ref, Seen, load, names
from bide.client.apis.loader import read
from bide.client.apis.values import absolute, instant, number, retry_after, share

APIS = {name: load(name, "https://api.example.com/base") for name in names()}
REF = Ref("a", None, {"owner": "o", "repo": "r", "dag": "d", "account": "1", "report": "g"})
STATES = {"live", "done", "failed", "cancelled", "partial", "unknown"}

WORDS = [
    "status",
    "state",
    "done",
    "id",
    "jobId",
    "name",
    "error",
    "progress",
    "result",
    "links",
    "files",
    "logs",
]
VALUES = [
    "DONE",
    "completed",
    "Succeeded",
    "http://[",
    "//x",
    "\x00",
    "99999999999999999999",
    "NaN",
    "1e400",
    "{}",
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(VALUES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=20,
)
BODIES = st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode())
HEADERS = st.dictionaries(
    st.sampled_from(["ETag", "retry-after", "Date", "Location", "Content-Type", "Link", "x"]),
    st.text(max_size=12) | st.sampled_from(VALUES) | st.just("Wed, 21 Oct 2026 07:28:00 GMT"),
)


@given(
    name=st.sampled_from(sorted(APIS)),
    status=st.sampled_from([200, 200, 200, 201, 202, 204, 304, 400, 403, 404, 410, 429, 500])
    | st.integers(0, 999),
    headers=HEADERS,
    body=BODIES,
    age=st.floats(0, 100),
)
def test_reading_raises_nothing_but_bad_polls(
    name: str, status: int, headers: dict[str, str], body: bytes, age: float
) -> None:
    api = APIS[name]
    try:
        seen = api.read(REF, Answer(status, headers, body), age)
    except BadPoll:
        return
    assert seen.state in STATES
    assert seen.progress is None or 0 <= seen.progress <= 1
    assert seen.result_url is None or seen.result_url.startswith(("http://", "https://"))
    assert msgspec.json.decode(msgspec.json.encode(seen), type=dict)  # a ledger can keep it
    if seen.result_url is not None:
        api.calls.fetch(seen.result_url)


@given(
    name=st.sampled_from(["bide", "prefect", "github-actions"]), status=st.integers(0, 999), body=BODIES
)
def test_reading_many_raises_nothing_but_bad_polls(name: str, status: int, body: bytes) -> None:
    try:
        seen = APIS[name].read_many([REF, Ref("b")], Answer(status, {}, body))
    except BadPoll:
        return
    assert set(seen) <= {"a", "b"}


@given(name=st.sampled_from(sorted(APIS)), word=st.text(min_size=1, max_size=20))
def test_no_word_by_chance_is_a_success(name: str, word: str) -> None:
    known = {w.lower() for w in (*APIS[name].form.read.done, *APIS[name].form.read.partial)}
    known |= {w.lower() for w in APIS[name].form.read.ended}
    path = APIS[name].form.read.status
    assert path is not None
    body: Any = word
    for key in reversed((path if isinstance(path, str) else path[0]).split(".")):
        body = {key: body}
    seen = APIS[name].read(REF, Answer(200, {}, json.dumps(body).encode()))
    assert seen.state not in ("done", "partial") or word.strip().lower() in known


def test_a_document_of_endless_depth_is_a_bad_poll() -> None:
    for body in (b"[" * 200_000, b'{"status":' * 100_000, b'{"status": ' + b"9" * 10_000 + b"}"):
        with pytest.raises(BadPoll):
            APIS["bide"].read(REF, Answer(200, {}, body))


def seen_by(tables: str, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Seen:
    text = f'name = "x"\nurl = "https://x.example"\n{tables}\n[ask]\npath = "/jobs/{{id}}"\n'
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read(text, "x.toml").read(Ref("a"), Answer(status, headers or {}, raw))


BASIC = '[read]\nstatus = "s"\nlive = ["run"]\ndone = ["ok"]\n'


@pytest.mark.parametrize(
    ("value", "progress"),
    [
        (41, 0.41),
        ("41", 0.41),
        ("41.5%", 0.415),
        (" 7 % ", 0.07),
        (140, 1.0),
        (-3, 0.0),
        (True, None),
        ("half", None),
        ({"a": 1}, None),
        (None, None),
        ("１２", None),
    ],
)
def test_progress_is_a_share_or_nothing(value: Any, progress: float | None) -> None:
    assert seen_by(BASIC + 'progress = "p"\n', {"s": "run", "p": value}).progress == progress


def test_counts_make_a_progress_only_with_a_total() -> None:
    both = BASIC + 'count = "n"\ntotal = "of"\n'
    assert seen_by(both, {"s": "run", "n": 3, "of": 4}).progress == 0.75
    assert seen_by(both, {"s": "run", "n": 3, "of": 0}).counts is None
    alone = seen_by(BASIC + 'count = "n"\n', {"s": "run", "n": "12000"})
    assert (alone.counts, alone.progress) == ((12000.0, None), None)


def test_progress_in_a_log() -> None:
    table = BASIC + "progress = 'log'\npattern = '(\\d+)/(\\d+)'\n"
    assert seen_by(table, {"s": "run", "log": "1/8 2/8 6/8"}).progress == 0.75
    assert seen_by(table, {"s": "run", "log": "6/0"}).progress is None
    assert seen_by(table, {"s": "run", "log": "nothing"}).progress is None


def test_the_outcome_in_the_counts() -> None:
    """Anthropic's batches say only that they ended."""
    table = """
[read]
status = "processing_status"
live = ["in_progress", "canceling"]
ended = ["ended"]
tally = { done = "n.succeeded", failed = ["n.errored", "n.expired"], cancelled = "n.canceled" }
[result]
url = "results_url"
"""

    def ended(**counts: int) -> str:
        return seen_by(
            table, {"processing_status": "ended", "n": counts, "results_url": "https://r/x"}
        ).state

    assert ended(succeeded=9) == "done"
    assert ended(succeeded=8, errored=1) == "partial"
    assert ended(succeeded=8, canceled=1) == "partial"
    assert ended(errored=4, expired=1) == "failed"
    assert ended(canceled=4) == "cancelled"


def test_an_error_or_a_list_of_errors_inside_of_a_success() -> None:
    table = BASIC + 'failed_if = "error"\npartial_if = "errors"\n'
    assert seen_by(table, {"s": "ok"}).state == "done"
    assert seen_by(table, {"s": "ok", "error": "x"}).state == "failed"
    assert seen_by(table, {"s": "ok", "error": None, "errors": [1]}).state == "partial"
    assert seen_by(table, {"s": "ok", "errors": []}).state == "done"


def test_words_are_compared_without_case_and_spaces() -> None:
    assert seen_by(BASIC, {"s": " Ok "}).state == "done"
    assert seen_by(BASIC, {"s": "okay"}).state == "unknown"
    with pytest.raises(BadPoll, match="not a text"):
        seen_by(BASIC, {"s": {"a": 1}})
    with pytest.raises(BadPoll, match="no status"):
        seen_by(BASIC, {"t": "ok"})


def test_the_error_of_a_job() -> None:
    table = '[read]\nstatus = "s"\nfailed = ["bad"]\n[read.error]\ncode = "c"\nmessage = "m"\nretryable = ["BUSY"]\n'
    error = seen_by(table, {"s": "bad", "c": "busy", "m": "x" * 10_000}).error
    assert error is not None
    assert error.retryable
    assert len(error.message) == 4000
    error = seen_by(table, {"s": "bad"}).error
    assert error is not None
    assert (error.code, error.retryable) == ("BAD", False)


def test_advice_when_to_ask_again() -> None:
    table = BASIC + 'retry_after = "next"\n'
    date = {"Date": "Wed, 21 Oct 2026 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT"}
    assert seen_by(table, {"s": "run", "next": 7}).retry_after == 7
    assert seen_by(table, {"s": "run", "next": 7}, headers={"retry-after": "3"}).retry_after == 3
    assert seen_by(table, {"s": "run"}, headers=date).retry_after == 30
    assert retry_after({"Retry-After": "soon"}) is None


def test_a_job_may_move() -> None:
    table = '[read]\ncodes = { 200 = "done", 202 = "live" }\nmoved = "header:Location"\n'
    seen = seen_by(table, b"", 202, {"Location": "/elsewhere/a"})
    assert seen.moved == "https://x.example/elsewhere/a"
    assert Ref("a").moved(seen.moved) == Ref("a", seen.moved)
    assert Ref("a").moved(None) == Ref("a")


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ("2030-01-01T00:00:00Z", 1893456000.0),
        ("2030-01-01T01:00:00+01:00", 1893456000.0),
        ("2030-01-01 00:00:00", 1893456000.0),
        ("Tue, 01 Jan 2030 00:00:00 GMT", 1893456000.0),
        (1893456000, 1893456000.0),
        (1893456000000, 1893456000.0),
        ("1893456000", 1893456000.0),
        (0, None),
        (True, None),
        ("yesterday", None),
        (float("inf"), None),
        ("9" * 100, None),
        ("0001-01-01T00:00:00+23:59", None),
    ],
)
def test_instants_in_every_form(value: Any, at: float | None) -> None:
    assert instant(value) == at


@given(st.text() | st.integers() | st.floats() | st.none())
def test_values_never_raise(value: Any) -> None:
    instant(value)
    number(value)
    share(value, 100.0)
    absolute("https://x/", value)


# --- links with several types

RESULTS = "http://www.opengis.net/def/rel/ogc/1.0/results"
HTML, AS_JSON, TIFF = "text/html", "application/json", "image/tiff"
GEO = "Application/GeoJSON; charset=utf-8"


@pytest.mark.parametrize(
    ("links", "chosen"),
    [
        ([(RESULTS, HTML), (RESULTS, AS_JSON)], "/1"),
        ([(RESULTS, AS_JSON), (RESULTS, HTML)], "/0"),
        ([(RESULTS, TIFF), (RESULTS, HTML), (RESULTS, GEO)], "/2"),
        ([(RESULTS, HTML), ("results", AS_JSON)], "/1"),
        ([("self", AS_JSON), (RESULTS, HTML), (RESULTS, None)], "/2"),
        ([(RESULTS, HTML), (RESULTS, TIFF)], "/1"),
        ([(RESULTS, None)], "/0"),
        ([("self", AS_JSON), (RESULTS, HTML)], "/jobs/a/results"),  # a page is never the result
    ],
)
def test_the_result_is_where_it_is_json_and_not_where_it_is_a_web_page(
    links: list[tuple[str, str | None]], chosen: str
) -> None:
    told = [{"href": f"/{n}", "rel": rel, "type": type} for n, (rel, type) in enumerate(links)]
    body = msgspec.json.encode({"jobID": "a", "status": "successful", "links": told})
    api = load("ogc", "https://ogc.example.com")
    seen = api.read(REF, Answer(200, {}, body))
    assert seen.result_url == f"https://ogc.example.com{chosen}"
    call = api.calls.fetch(seen.result_url)
    assert call.headers["Accept"].startswith("application/json")
