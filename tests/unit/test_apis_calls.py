"""The descriptions that come with bide send what their APIs want."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.client.apis import (
    NOT_FOUND,
    Answer,
    BadPoll,
    Call,
    Crowded,
    Ref,
    Throttled,
    load,
)
from bide.client.apis.references import usable
from bide.client.apis.templates import compile_body, fill_body
from tests.unit.api_shapes import BATCH, CASES, COUNTS, ID, SHIPPED, api_of, ref_of, transcribe


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("airflow", "https://airflow.example.com/api/v2/dags/etl/dagRuns/manual__2026"),
        ("azure", "https://management.azure.com/operations/op1?api-version=1"),
        ("bide", f"http://127.0.0.1:8642/jobs/{ID}"),
        ("canvas-progress", "https://canvas.example.edu/api/v1/progress/1"),
        ("canvas-report", "https://canvas.example.edu/api/v1/accounts/1/reports/grade_export_csv/5"),
        ("fal", f"https://queue.fal.run/fal-ai/flux/requests/{ID}/status"),
        ("flower", f"http://127.0.0.1:5555/api/task/result/{ID}"),
        ("github-actions", "https://api.github.com/repos/octocat/hello/actions/runs/30433642"),
        ("google", "https://speech.googleapis.com/v1/projects/p/operations/42"),
        ("knowhere", f"https://api.knowhereto.ai/v1/jobs/{ID}"),
        ("ogc", f"https://ogc.example.org/api/jobs/{ID}"),
        ("openai-batch", f"https://api.openai.com/v1/batches/{ID}"),
        ("prefect", f"http://127.0.0.1:4200/api/flow_runs/{ID}"),
        ("replicate", f"https://api.replicate.com/v1/predictions/{ID}"),
        ("sync.so", f"https://api.sync.so/v2/generate/{ID}?include=progress"),
    ],
)
def test_a_job_is_asked_about(name: str, url: str) -> None:
    call = api_of(name).calls.ask(ref_of(name))
    assert (call.method, call.url, call.body, call.authorized) == ("GET", url, b"", True)


def test_aws_is_asked_by_a_target_header() -> None:
    call = api_of("aws-transcribe").calls.ask(Ref(ID))
    assert (call.method, call.url) == ("POST", "https://transcribe.us-east-1.amazonaws.com/")
    assert call.headers["X-Amz-Target"] == "Transcribe.GetTranscriptionJob"
    assert json.loads(call.body) == {"TranscriptionJobName": ID}


@pytest.mark.parametrize(
    ("name", "method", "url", "body"),
    [
        (
            "airflow",
            "PATCH",
            "https://airflow.example.com/api/v2/dags/etl/dagRuns/manual__2026",
            {"state": "failed", "note": "[cancelled by bide] "},
        ),
        ("bide", "POST", f"http://127.0.0.1:8642/jobs/{ID}/cancel", None),
        (
            "canvas-progress",
            "POST",
            "https://canvas.example.edu/api/v1/progress/1/cancel",
            {"message": "[cancelled by bide] "},
        ),
        ("fal", "PUT", f"https://queue.fal.run/fal-ai/flux/requests/{ID}/cancel", None),
        ("flower", "POST", f"http://127.0.0.1:5555/api/task/revoke/{ID}?terminate=true", None),
        ("google", "POST", "https://speech.googleapis.com/v1/projects/p/operations/42:cancel", {}),
        ("ogc", "DELETE", f"https://ogc.example.org/api/jobs/{ID}", None),
        ("replicate", "POST", f"https://api.replicate.com/v1/predictions/{ID}/cancel", None),
    ],
)
def test_a_job_is_cancelled(name: str, method: str, url: str, body: Any) -> None:
    api = api_of(name)
    call = api.calls.cancel(ref_of(name))
    assert call is not None
    assert (call.method, call.url) == (method, url)
    assert (json.loads(call.body) if call.body else None) == body
    assert api.cancelled(Answer(202, {}, b"")) == "asked"


def test_a_cancel_may_come_too_late() -> None:
    api = api_of("github-actions")
    assert api.cancelled(Answer(409, {}, b"")) == "late"
    with pytest.raises(BadPoll):
        api.cancelled(Answer(500, {}, b""))
    with pytest.raises(Throttled):
        api.cancelled(Answer(429, {}, b""))
    assert api_of("knowhere").calls.cancel(Ref(ID)) is None


@pytest.mark.parametrize(
    ("name", "kind", "input", "answer", "ref"),
    [
        ("bide", "transcode", {"h": 1}, {"jobId": "J1"}, Ref("J1")),
        ("sync.so", "", {"model": "lipsync-2"}, {"id": "g1", "status": "PENDING"}, Ref("g1")),
        ("knowhere", "", {"source_type": "url"}, {"job_id": "k1"}, Ref("k1")),
        (
            "google",
            "v1/speech:longrunningrecognize",
            {"a": 1},
            {"name": "operations/1"},
            Ref("operations/1"),
        ),
        ("flower", "tasks.add", {"args": [1, 2]}, {"task-id": "t1", "state": "PENDING"}, Ref("t1")),
        ("airflow", "etl", {"a": 1}, {"dag_run_id": "r1"}, Ref("r1", None, {"dag": "etl"})),
        ("prefect", "d-1", {"x": 1}, {"id": "f1"}, Ref("f1")),
        ("openai-batch", "", {"input_file_id": "f"}, {"id": "batch_1"}, Ref("batch_1")),
        (
            "canvas-report",
            "grade_export_csv",
            {"account_id": 1, "parameters": {"term": 2}},
            {"id": 5, "status": "created"},
            Ref("5", None, {"account": "1", "report": "grade_export_csv"}),
        ),
        (
            "github-actions",
            "ci.yml",
            {"owner": "o", "repo": "r", "ref": "main"},
            {"workflow_run_id": 7},
            Ref("7", None, {"owner": "o", "repo": "r"}),
        ),
        (
            "replicate",
            "abc",
            {"prompt": "x"},
            {"id": "p1", "urls": {"cancel": "https://api.replicate.com/c"}},
            Ref("p1", None, {"cancel": "https://api.replicate.com/c"}),
        ),
        (
            "fal",
            "fal-ai/flux/dev",
            {"prompt": "x"},
            {"request_id": "q1", "status_url": "https://queue.fal.run/fal-ai/flux/requests/q1/status"},
            Ref("q1", "https://queue.fal.run/fal-ai/flux/requests/q1/status"),
        ),
        ("aws-transcribe", "", {"TranscriptionJobName": "n"}, transcribe(), Ref(ID)),
    ],
)
def test_a_job_is_submitted(name: str, kind: str, input: Any, answer: Any, ref: Ref) -> None:
    api = api_of(name)
    call = api.submissions.submit(kind, input, key="k-1" if api.submissions.keyed else None)
    assert call.method == "POST"
    assert api.submissions.accepted(call, Answer(200, {}, json.dumps(answer).encode())) == ref
    assert api.calls.ask(ref).url


def body_of(call: Call) -> Any:
    return json.loads(call.body)


def test_what_is_submitted() -> None:
    call = api_of("bide").submissions.submit("transcode", {"h": 1}, "key 1")
    assert body_of(call) == {"kind": "transcode", "input": {"h": 1}}
    assert call.headers["Idempotency-Key"] == "key 1"
    assert "Idempotency-Key" not in api_of("bide").submissions.submit("transcode", {}).headers
    call = api_of("airflow").submissions.submit("etl", {"a": 1})
    assert body_of(call) == {"conf": {"a": 1}, "logical_date": None}
    call = api_of("fal").submissions.submit("fal-ai/flux/dev", {"p": 1})
    assert call.url == "https://queue.fal.run/fal-ai/flux/dev"
    call = api_of("azure").submissions.submit("/subscriptions/s/vm?api-version=2024-01-01", {})
    assert call.url == "https://management.azure.com/subscriptions/s/vm?api-version=2024-01-01"
    call = api_of("canvas-report").submissions.submit("grades", {"account_id": 1})
    assert call.url == "https://canvas.example.edu/api/v1/accounts/1/reports/grades"
    assert body_of(call) == {}


def test_an_absent_value_is_left_out_at_any_depth() -> None:
    body = {
        "a": "{input.a}",
        "text": "for {input.b}",
        "deep": {"er": {"b": "{input.b}", "c": 1}},
        "list": ["{input.a}", "{input.b}", {"b": "{input.b}"}, ["{input.b}"]],
        "whole": "{input}",
        "null": "{null}",
    }
    compiled = compile_body(body)
    assert fill_body(compiled, {"input": {"a": 1}}) == {
        "a": 1,
        "deep": {"er": {"c": 1}},
        "list": [1, {}, []],
        "whole": {"a": 1},
        "null": None,
    }
    assert fill_body(compiled, {"input": None}) == {
        "deep": {"er": {"c": 1}},
        "list": [{}, []],
        "null": None,
    }


def test_a_null_that_the_caller_writes_is_sent() -> None:
    assert body_of(api_of("ogc").submissions.submit("p", {"a": None})) == {"inputs": {"a": None}}


def test_a_body_that_is_the_input_is_left_out_without_one() -> None:
    call = api_of("sync.so").submissions.submit("", None)
    assert (call.body, "Content-Type" in call.headers) == (b"", False)
    call = api_of("sync.so").submissions.submit("", {})
    assert (call.body, call.headers["Content-Type"]) == (b"{}", "application/json")


@pytest.mark.parametrize(
    ("headers", "ref"),
    [
        (
            {"Operation-Location": "https://management.azure.com/ops/1?a=1", "Location": "/things/1"},
            Ref(
                "1",
                "https://management.azure.com/ops/1?a=1",
                {"operation": "https://management.azure.com/ops/1?a=1", "location": "/things/1"},
            ),
        ),
        (
            {"azure-asyncoperation": "https://management.azure.com/ops/2"},
            Ref(
                "2",
                "https://management.azure.com/ops/2",
                {"operation": "https://management.azure.com/ops/2"},
            ),
        ),
        ({"Location": "/ops/3"}, Ref("3", "https://management.azure.com/ops/3", {"location": "/ops/3"})),
    ],
)
def test_azure_tells_where_the_status_is_in_a_header(headers: dict[str, str], ref: Ref) -> None:
    api = api_of("azure")
    assert api.submissions.accepted(api.submissions.submit("/x", {}), Answer(202, headers, b"")) == ref


def test_ogc_tells_where_the_job_is_in_a_header() -> None:
    api = api_of("ogc")
    call = api.submissions.submit("buffer", {"r": 1})
    assert call.url == "https://ogc.example.org/api/processes/buffer/execution"
    assert api.submissions.accepted(
        call, Answer(201, {"Location": "https://ogc.example.org/api/jobs/j1"}, b"")
    ) == Ref("j1")


def test_the_two_kinds_of_429_of_sync_so() -> None:
    api = api_of("sync.so")
    call = api.submissions.submit("", {})
    crowded = b'{"statusCode": 429, "message": "Concurrency limit reached for your plan"}'
    limited = (
        b'{"statusCode": 429, "errorCode": "rate_limit_exceeded", "message": "Rate limit exceeded."}'
    )
    assert not api.reader.throttled(Answer(429, {}, crowded))
    assert api.reader.throttled(Answer(429, {}, limited))
    with pytest.raises(Crowded):
        api.submissions.accepted(call, Answer(429, {}, crowded))
    with pytest.raises(Throttled):
        api.submissions.accepted(call, Answer(429, {}, limited))


def test_several_jobs_in_one_request() -> None:
    api = api_of("bide")
    refs = [Ref("A"), Ref("B"), Ref("C")]
    call = api.calls.ask_many(refs)
    assert call is not None
    assert call.url == "http://127.0.0.1:8642/jobs?id=A&id=B&id=C"
    body = {
        "jobs": [{"jobId": "B", "status": "DONE", "result": 1}, {"jobId": "Z", "status": "DONE"}],
        "missing": ["C"],
    }
    seen = api.read_many(refs, Answer(200, {}, json.dumps(body).encode()))
    assert {id: s.state for id, s in seen.items()} == {"B": "done", "C": "failed"}
    assert seen["C"].error is not None
    assert seen["C"].error.code == NOT_FOUND
    with pytest.raises(ValueError, match="100"):
        api.calls.ask_many([Ref(str(n)) for n in range(101)])
    for status, body_ in ((200, b"{}"), (200, b"<html>"), (502, b"")):
        with pytest.raises(BadPoll):
            api.read_many(refs, Answer(status, {}, body_))
    with pytest.raises(Throttled):
        api.read_many(refs, Answer(429, {}, b""))


def test_several_flow_runs_and_workflow_runs_in_one_request() -> None:
    prefect = api_of("prefect")
    call = prefect.calls.ask_many([Ref("A"), Ref("B")])
    assert call is not None
    assert call.method == "POST"
    assert body_of(call) == {"flow_runs": {"id": {"any_": ["A", "B"]}}, "limit": 200}
    seen = prefect.read_many([Ref("A")], Answer(200, {}, b'[{"id": "A", "state_type": "COMPLETED"}]'))
    assert seen["A"].state == "done"
    actions = api_of("github-actions")
    mine, other = {"owner": "o", "repo": "r"}, {"owner": "o", "repo": "s"}
    call = actions.calls.ask_many([Ref("1", None, mine), Ref("2", None, mine)])
    assert call is not None
    assert call.url == "https://api.github.com/repos/o/r/actions/runs?per_page=100"
    assert actions.calls.ask_many([Ref("1", None, mine), Ref("2", None, other)]) is None
    assert api_of("sync.so").calls.ask_many([Ref("1")]) is None


def test_long_polls_are_asked_for_as_each_api_wants_it() -> None:
    call = api_of("bide").calls.ask(Ref(ID), '"3"', hold=600)
    assert call.headers["Prefer"] == "wait=50"
    assert call.headers["If-None-Match"] == '"3"'
    assert call.hold == 50
    call = api_of("sync.so").calls.ask(Ref(ID), "ignored", hold=0.5)
    assert call.url == f"https://api.sync.so/v2/generate/{ID}?wait=true&timeout=1"
    named = Ref(ID, "https://api.sync.so/v2/films/7")
    call = api_of("sync.so").calls.ask(named, hold=5)
    assert call.url == "https://api.sync.so/v2/films/7?wait=true&timeout=5"
    assert "If-None-Match" not in call.headers
    call = api_of("knowhere").calls.ask(Ref(ID), hold=30)
    assert call.hold == 0
    assert api_of("knowhere").longpoll is None


def test_what_is_known_of_the_limits() -> None:
    sync = api_of("sync.so")
    assert sync.limit is not None
    assert sync.submit_limit is not None
    assert (sync.limit.requests, sync.submit_limit.requests) == (600, 60)
    assert api_of("bide").limit is None


def test_files_of_a_job() -> None:
    batch = {
        **BATCH,
        "status": "completed",
        "output_file_id": "f1",
        "error_file_id": "f2",
        "request_counts": COUNTS,
    }
    seen = api_of("openai-batch").read(Ref(ID), Answer(200, {}, json.dumps(batch).encode()))
    assert [(f.name, f.url) for f in seen.files] == [
        ("output.jsonl", "https://api.openai.com/v1/files/f1/content"),
        ("errors.jsonl", "https://api.openai.com/v1/files/f2/content"),
    ]
    assert seen.error is not None
    assert seen.error.code == "PARTIAL"
    done = CASES[1]
    (file,) = api_of("bide").read(Ref(ID), Answer(200, {}, json.dumps(done.body).encode())).files
    assert (file.name, file.url, file.size) == ("v.mp4", "http://127.0.0.1:8642/f/v.mp4", 9)


@pytest.mark.parametrize(
    ("name", "text", "ref"),
    [
        ("bide", "01J", Ref("01J")),
        ("bide", "http://127.0.0.1:8642/jobs/01J", Ref("01J")),
        ("bide", "http://other:1/api/jobs/01J", Ref("01J", "http://other:1/api/jobs/01J")),
        ("airflow", "etl/manual__1", Ref("manual__1", None, {"dag": "etl"})),
        (
            "airflow",
            "https://airflow.example.com/api/v2/dags/a%2Fb/dagRuns/r",
            Ref("r", None, {"dag": "a/b"}),
        ),
        ("github-actions", "octocat/hello/7", Ref("7", None, {"owner": "octocat", "repo": "hello"})),
        ("google", "projects/p/operations/1", Ref("projects/p/operations/1")),
        (
            "fal",
            "https://queue.fal.run/a/b/requests/q/status",
            Ref("q", None, {"model": "a/b"}),
        ),
    ],
)
def test_jobs_as_people_write_them(name: str, text: str, ref: Ref) -> None:
    assert api_of(name).references.ref(text) == ref


def test_the_address_of_a_service_in_the_url_of_a_job() -> None:
    assert (
        load("canvas-progress").references.base_of("https://c.example/x/api/v1/progress/7")
        == "https://c.example/x"
    )
    assert load("canvas-progress").references.base_of("https://c.example/other/7") is None
    api = load("canvas-progress").at("https://c.example/x")
    assert api.calls.ask(Ref("7")).url == "https://c.example/x/api/v1/progress/7"


NAME = st.text(min_size=1, max_size=20).filter(lambda text: usable(text) and text == text.strip())


@given(st.sampled_from(SHIPPED), NAME, NAME)
def test_what_is_written_of_a_job_finds_it_again(name: str, id: str, other: str) -> None:
    """Whatever an API calls its jobs, for another process to wait for them."""
    api, usual = api_of(name), ref_of(name)
    ref = usual if usual.url is not None else Ref(id, None, dict.fromkeys(usual.more, other))
    again = api.references.ref(api.text(ref))
    assert (api.calls.ask(again).url, api.calls.ask(again).body) == (
        api.calls.ask(ref).url,
        api.calls.ask(ref).body,
    )
