"""The HTTP vocabulary: rendered data can be read again, and invalid headers are harmless."""

from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.clock import render_instant
from bide.core.errors import BadCursor, ErrorInfo, InvalidInput, MalformedRequest, problems
from bide.core.jobs.record import Child, FileInfo, Job, Progress, Status, Step
from bide.core.wire.http import (
    MAX_WAIT,
    Eta,
    Preferences,
    encode,
    etag,
    etag_matches,
    facts,
    is_job_id,
    job_id,
    quote,
    read_cursor,
    read_idempotency_key,
    read_job,
    read_prefer,
    render_cursor,
    render_problem,
    wire_job,
)
from bide.core.wire.traces import read_traceparent

NOW = 1_900_000_000.0
ID = job_id(NOW, b"0123456789")
FIELDS = """
    jobId kind status cancelRequested overdue progress eta attempt maxAttempts priority queue labels
    createdAt runAt startedAt nextAttemptAt finishedAt updatedAt expiresAt deadline
    steps children result files error traceId links
"""
TRACE = "0af7651916cd43dd8448eb211c80319c"


def a_job(**fields: object) -> Job:
    return Job(ID, "transcode", "video", NOW, NOW, **fields)  # type: ignore[arg-type]


def test_the_status_resource_has_the_contracts_fields_and_null_for_the_unknown() -> None:
    document = json.loads(encode(wire_job(a_job(), None, None)))
    assert list(document) == FIELDS.split()
    unknown = {name for name, value in document.items() if value is None}
    assert unknown == {
        "progress",
        "eta",
        "runAt",
        "startedAt",
        "nextAttemptAt",
        "finishedAt",
        "expiresAt",
        "deadline",
        "result",
        "error",
        "traceId",
    }
    assert document["links"] == {
        "self": f"/jobs/{ID}",
        "result": f"/jobs/{ID}/result",
        "cancel": f"/jobs/{ID}/cancel",
        "retry": f"/jobs/{ID}/retry",
    }


def test_everything_that_is_known_is_shown() -> None:
    job = a_job(
        status=Status.PARTIAL_SUCCESS,
        labels={"team": "a"},
        result=msgspec.Raw(b'{"pages": [1, 2]}'),
        error=ErrorInfo("OCR", "page 7", True, "text", 3, "t"),
        progress=Progress(percent=10.0),
        steps=(Step("probe", Status.DONE, NOW, NOW + 2), Step("read", Status.PROCESSING, NOW + 2)),
        trace_id=TRACE,
        children=(Child("C", "thumbnail", "0", Status.DONE), Child("D", "thumbnail", "1")),
        files=(FileInfo("a b/ü.mp4", "video/mp4", 3, "ab", "secret-place"),),
        deadline=NOW + 1.5,
    )
    live = Progress(41.5, "Transcoding", "transcode", 1245, 3000, "frames")
    body = encode(wire_job(job, live, Eta("a", "b", "c"), base="/api"))
    child = wire_job(a_job(parent="01P"), None, None, base="/api")
    assert child.links["parent"] == "/api/jobs/01P" and b'"parent"' not in body
    document = json.loads(body)
    assert document["result"] == {"pages": [1, 2]}
    assert document["progress"] == {
        "percent": 41.5,
        "message": "Transcoding",
        "step": "transcode",
        "done": 1245,
        "total": 3000,
        "unit": "frames",
    }
    assert document["eta"] == {"finishAt": "a", "low": "b", "high": "c"}
    assert document["error"]["failedStep"] == "text"
    assert document["deadline"] == render_instant(NOW + 1.5)
    began, done = render_instant(NOW), render_instant(NOW + 2)
    assert document["steps"] == [
        {"name": "probe", "status": "DONE", "startedAt": began, "finishedAt": done},
        {"name": "read", "status": "PROCESSING", "startedAt": done, "finishedAt": None},
    ]
    assert document["traceId"] == TRACE
    assert document["children"] == [
        {"jobId": "C", "kind": "thumbnail", "status": "DONE"},
        {"jobId": "D", "kind": "thumbnail", "status": None},
    ]
    (file,) = document["files"]
    assert file["url"] == f"/api/jobs/{ID}/files/a%20b%2F%C3%BC.mp4"
    assert b"secret-place" not in body
    assert document["links"]["self"] == f"/api/jobs/{ID}"


def test_what_one_end_renders_the_other_end_reads() -> None:
    job = a_job(status=Status.DONE, result=msgspec.Raw(b"[1,2]"), finished_at=NOW + 1)
    wire = read_job(encode(wire_job(job, Progress(percent=100.0), None)))
    assert (wire.job_id, wire.status, wire.finished_at) == (ID, Status.DONE, render_instant(NOW + 1))
    assert wire.progress == Progress(percent=100.0)
    assert json.loads(msgspec.json.encode(wire.result)) == [1, 2]


@given(st.binary() | st.text().map(str.encode))
def test_what_is_no_status_resource_is_refused_in_one_way(body: bytes) -> None:
    with pytest.raises((msgspec.ValidationError, msgspec.DecodeError)):
        read_job(body)


def test_an_event_tells_an_error_only_where_it_holds() -> None:
    error = ErrorInfo("E", "m")
    assert facts(a_job(status=Status.RETRYING, error=error))["error"] == error
    assert "error" not in facts(a_job(status=Status.PROCESSING, error=error))


def test_an_event_has_the_labels_of_its_job() -> None:
    assert facts(a_job(version=1))["labels"] == {}  # the first event always names them
    assert "labels" not in facts(a_job(version=2))
    assert facts(a_job(version=2, labels={"team": "ops"}))["labels"] == {"team": "ops"}


@pytest.mark.parametrize("problem", problems(), ids=lambda p: p.code)
def test_a_problem_is_rendered_as_rfc_9457_says(problem: type[InvalidInput]) -> None:
    document = json.loads(render_problem(problem("this one"), "/jobs", "t1", base="/api"))
    assert document == {
        "type": f"/api/problems/{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": "this one",
        "instance": "/jobs",
        "code": problem.code,
        "retryable": problem.status >= 500 or problem.status in (408, 421, 429, 460),
        "traceId": "t1",
    }
    assert problem.meaning, "its page would be empty"
    assert problem.remedy


def test_a_problem_names_its_places() -> None:
    errors = [{"pointer": "/input/x", "detail": "no"}]
    assert json.loads(render_problem(InvalidInput("x", errors=errors), "/", "t"))["errors"] == errors


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], Preferences()),
        (["wait=10"], Preferences(10.0)),
        (["WAIT = 10 ; foo=bar"], Preferences(10.0)),
        (['wait="10"'], Preferences(10.0)),
        (["wait=600"], Preferences(MAX_WAIT)),
        (["wait=" + "9" * 400], Preferences(MAX_WAIT)),
        (["wait=0"], Preferences(0.0)),
        (["wait=5, wait=20"], Preferences(5.0)),
        (["respond-async, wait=5"], Preferences(5.0, True)),
        (["respond-async", "wait=5"], Preferences(5.0, True)),
        (["return=minimal, x, ,;"], Preferences()),
        (["wait=-1"], Preferences()),
        (["wait=1.5"], Preferences()),
        (["wait=soon"], Preferences()),
        (["wait=²"], Preferences()),
        (["wait"], Preferences()),
    ],
)
def test_preferences_are_read_and_unknown_ones_ignored(values: list[str], expected: Preferences) -> None:
    assert read_prefer(values) == expected


@given(st.lists(st.text(alphabet='wait=respond-sync0123456789,;" ²') | st.text()))
def test_no_preference_is_too_strange(values: list[str]) -> None:
    wait = read_prefer(values).wait
    assert wait is None or 0 <= wait <= MAX_WAIT


@pytest.mark.parametrize(
    ("value", "key"),
    [("abc", "abc"), ('"abc"', "abc"), (' "a b" ', "a b"), (r'"a\"b\\c"', r"a\"b\\c"), ('a"b', 'a"b')],
)
def test_a_key_is_quoted_or_bare(value: str, key: str) -> None:
    assert read_idempotency_key(value) == key.replace('\\"', '"').replace("\\\\", "\\")


@pytest.mark.parametrize("value", ["", "  ", '""', '"', '"a', '"a"b"', r'"a\x"', "ü", "a\tb", "x" * 256])
def test_what_is_no_key_is_malformed(value: str) -> None:
    with pytest.raises(MalformedRequest, match="Idempotency-Key"):
        read_idempotency_key(value)


@given(st.text())
def test_a_key_is_read_or_malformed(value: str) -> None:
    try:
        key = read_idempotency_key(value)
    except MalformedRequest:
        return
    assert key is not None
    assert 1 <= len(key) <= 255
    assert key.isascii()
    assert key.isprintable()


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=255))
def test_every_printable_key_can_be_sent_in_quotes(key: str) -> None:
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert read_idempotency_key(quoted) == key


def test_an_etag_is_version_and_progress() -> None:
    assert etag(a_job(version=7), 12) == '"7.12"'


@pytest.mark.parametrize(
    ("header", "weak", "strong"),
    [
        ('"7.1"', True, True),
        ('W/"7.1"', True, False),
        ('"6.0", "7.1"', True, True),
        (" * ", True, True),
        ('"7.10"', False, False),
        ("7.1", False, False),
        ("", False, False),
    ],
)
def test_etags_are_compared_weakly_or_strongly(header: str, weak: bool, strong: bool) -> None:
    assert etag_matches(header, '"7.1"') is weak
    assert etag_matches(header, '"7.1"', weak=False) is strong


@given(st.floats(0, 1e11), st.binary(min_size=16, max_size=20), st.none() | st.floats(0, 1e11))
def test_a_cursor_comes_back_as_the_id_and_the_rank_that_it_was_made_of(
    now: float, randomness: bytes, rank: float | None
) -> None:
    id_ = job_id(now, randomness)
    cursor = render_cursor(id_, rank)
    assert read_cursor(cursor) == (id_, rank)
    assert quote(cursor) == cursor, "it goes into a query as it is"


@given(st.text() | st.text(alphabet="ABCabc019-_=") | st.binary().map(lambda b: b.decode("latin-1")))
def test_a_cursor_is_read_or_bad(text: str) -> None:
    with contextlib.suppress(BadCursor):
        assert is_job_id(read_cursor(text)[0])


@given(
    st.floats(0, 1e11),
    st.floats(0.001, 1e9),
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=16),
)
def test_job_ids_sort_by_time(now: float, later: float, one: bytes, two: bytes) -> None:
    first, second = job_id(now, one), job_id(now + later, two)
    assert len(first) == len(second) == 26
    assert is_job_id(first)
    if int(now * 1000) < int((now + later) * 1000):
        assert first < second


_FIVE_BITS = st.lists(st.integers(0, 31), min_size=16, max_size=16).map(bytes)


@given(_FIVE_BITS, _FIVE_BITS)
def test_job_ids_keep_80_bits_of_randomness(one: bytes, two: bytes) -> None:
    assert (job_id(NOW, one) == job_id(NOW, two)) == (one == two)


@pytest.mark.parametrize(
    "text", ["", ID[:-1], ID + "0", ID.lower(), "I" * 26, ID + "\n", "../" + ID[3:]]
)
def test_what_is_no_job_id(text: str) -> None:
    assert not is_job_id(text)


@pytest.mark.parametrize(
    ("value", "trace"),
    [
        (f"00-{TRACE}-b7ad6b7169203331-01", TRACE),
        (f"  00-{TRACE}-b7ad6b7169203331-01 ", TRACE),
        (f"cc-{TRACE}-b7ad6b7169203331-01-more", TRACE),
        (f"ff-{TRACE}-b7ad6b7169203331-01", None),
        (f" ff-{TRACE}-b7ad6b7169203331-01", None),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", None),
        (f"00-{TRACE.upper()}-b7ad6b7169203331-01", None),
        (f"00-{TRACE}-b7ad6b7169203331", None),
        ("", None),
    ],
)
def test_a_trace_id_is_taken_from_a_valid_traceparent(value: str, trace: str | None) -> None:
    assert read_traceparent(value) == trace


@given(st.text())
def test_no_traceparent_is_too_strange(value: str) -> None:
    assert read_traceparent(value) is None or len(value) >= 55
