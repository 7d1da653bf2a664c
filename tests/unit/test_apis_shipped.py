"""The descriptions that come with bide read what their APIs answer."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from bide.client.apis import (
    GONE,
    NOT_FOUND,
    Answer,
    BadPoll,
    Denied,
    NotYet,
    Ref,
    Throttled,
    load,
    names,
)
from tests.unit.api_shapes import CASES, ID, SHIPPED, Case, api_of, ref_of


def test_what_is_shipped() -> None:
    assert names() == sorted(SHIPPED)
    for name in names():
        assert load(name).name == name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_answer_is_read(case: Case) -> None:
    body = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
    seen = api_of(case.api).read(ref_of(case.api), Answer(case.status, case.headers, body))
    for field, wanted in case.seen.items():
        found = getattr(seen, field)
        if field == "error" and wanted is not None:
            found = (found.code, found.message)
        assert found == wanted, field


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (502, {"Content-Type": "text/html"}, b"<html><body>Bad Gateway</body></html>"),
        (200, {"Content-Type": "text/html"}, b"<!DOCTYPE html><html>Log in to the Wi-Fi</html>"),
        (200, {}, b'{"id": "6533643b", "status": "COMP'),
        (200, {"Content-Type": "application/json"}, b'{"status": "succ'),
        (200, {}, b"[]"),
        (200, {}, b"null"),
        (200, {}, b'"done"'),
        (500, {}, b'{"status": "failed"}'),
        (503, {}, b'{"status": "failed", "workflow_state": "failed", "state": "FAILURE"}'),
        (302, {"Location": "https://elsewhere"}, b""),
    ],
)
def test_a_bad_poll_is_never_a_failed_job(
    name: str, status: int, headers: dict[str, str], body: bytes
) -> None:
    api, ref = api_of(name), ref_of(name)
    if name == "azure" and body[:1] in b'[n"':  # any JSON is a resource there, once the status is 200
        pytest.skip("a result for azure")
    with pytest.raises(BadPoll):
        api.read(ref, Answer(status, headers, body))


@pytest.mark.parametrize("name", SHIPPED)
def test_an_empty_200_is_a_bad_poll(name: str) -> None:
    with pytest.raises(BadPoll):
        api_of(name).read(ref_of(name), Answer(200, {}, b""))
    if name != "azure":
        with pytest.raises(BadPoll):
            api_of(name).read(ref_of(name), Answer(200, {}, b"{}"))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_api_throttles_by_429(name: str) -> None:
    api = api_of(name)
    assert api.reader.throttled(Answer(429, {"Retry-After": "3"}, b"slow down"))
    with pytest.raises(Throttled):
        api.read(ref_of(name), Answer(429, {}, b'{"message": "slow down"}'))


@pytest.mark.parametrize(
    ("name", "status", "headers", "body"),
    [
        ("canvas-progress", 403, {}, b"403 Forbidden (Rate Limit Exceeded)"),
        ("canvas-report", 403, {}, b"403 Forbidden (Rate Limit Exceeded)\n"),
        (
            "github-actions",
            403,
            {"x-ratelimit-remaining": "0"},
            b'{"message": "API rate limit exceeded"}',
        ),
        ("github-actions", 403, {}, b'{"message": "You have exceeded a secondary rate limit."}'),
        ("aws-transcribe", 400, {}, b'{"__type": "ThrottlingException", "message": "Rate exceeded"}'),
        ("aws-transcribe", 400, {}, b'{"__type":"com.amazonaws.transcribe#LimitExceededException"}'),
    ],
)
def test_throttled_by_another_status(
    name: str, status: int, headers: dict[str, str], body: bytes
) -> None:
    api = api_of(name)
    assert api.reader.throttled(Answer(status, headers, body))
    with pytest.raises(Throttled):
        api.read(ref_of(name), Answer(status, headers, body))


@pytest.mark.parametrize("name", [n for n in SHIPPED if n != "aws-transcribe"])
def test_denied_requests_are_recognized(name: str) -> None:
    for status in (401, 403):
        assert not api_of(name).reader.throttled(Answer(status, {}, b'{"message": "no"}'))
        with pytest.raises(Denied) as caught:
            api_of(name).read(ref_of(name), Answer(status, {}, b'{"message": "no"}'))
        assert caught.value.final


@pytest.mark.parametrize("name", SHIPPED)
def test_a_job_that_nobody_knows_ends_the_wait_precisely(name: str) -> None:
    api, ref = api_of(name), ref_of(name)
    for status, code in ((404, NOT_FOUND), (410, GONE)):
        seen = api.read(ref, Answer(status, {}, b'{"message": "no such thing"}'))
        assert seen.state == "failed"
        assert seen.error is not None
        assert seen.error.code == code
    if api.grace:
        with pytest.raises(NotYet):
            api.read(ref, Answer(404, {}, b""), age=api.grace / 2)


def test_aws_says_400_for_a_job_that_it_does_not_know() -> None:
    body = b'{"__type": "BadRequestException", "Message": "The requested job couldn\'t be found."}'
    api = api_of("aws-transcribe")
    seen = api.read(Ref(ID), Answer(400, {}, body))
    assert seen.error is not None
    assert seen.error.code == NOT_FOUND
    with pytest.raises(NotYet):
        api.read(Ref(ID), Answer(400, {}, body), age=1.0)


UNKNOWN = [n for n in SHIPPED if n != "azure"]
FIELDS = {
    "airflow": "state",
    "aws-transcribe": "TranscriptionJob",
    "canvas-progress": "workflow_state",
    "flower": "state",
    "google": "done",
    "prefect": "state_type",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_word_is_neither_success_nor_failure(name: str) -> None:
    field = FIELDS.get(name, "status")
    value: Any = "hibernating"
    if name == "aws-transcribe":
        value = {"TranscriptionJobStatus": "hibernating"}
    seen = api_of(name).read(ref_of(name), Answer(200, {}, json.dumps({field: value}).encode()))
    assert (seen.state, seen.word) == ("unknown", "hibernating")


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.api not in ("azure", "fal")], ids=lambda c: c.name
)
def test_the_answer_about_another_job_is_a_bad_poll(case: Case) -> None:
    if case.status != 200:
        pytest.skip("it has no body")
    other = Ref("another", None, ref_of(case.api).more)
    with pytest.raises(BadPoll, match="another job"):
        api_of(case.api).read(other, Answer(200, {}, json.dumps(case.body).encode()))


def test_azure_is_read_by_the_kind_of_address_it_gave() -> None:
    api = api_of("azure")
    by_status = Ref(
        "1", "https://management.azure.com/ops/1", {"operation": "x", "location": "/things/1"}
    )
    by_code = Ref("1", "https://management.azure.com/ops/1", {"location": "/ops/1"})
    resource = b'{"name": "vm", "status": "Active"}'
    assert api.read(by_code, Answer(202, {}, b"")).state == "live"
    done = api.read(by_code, Answer(200, {}, resource))
    assert (done.state, done.result) == ("done", {"name": "vm", "status": "Active"})
    assert api.read(by_status, Answer(200, {}, resource)).state == "live"
    done = api.read(by_status, Answer(200, {}, b'{"status": "Succeeded"}'))
    assert (done.state, done.result_url) == ("done", "https://management.azure.com/things/1")
    for status, body in ((200, b"{}"), (202, b""), (200, b'{"name": "vm"}')):
        with pytest.raises(BadPoll):
            api.read(by_status, Answer(status, {}, body))


def test_threads_that_are_the_first_to_read_a_description_do_not_crash() -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor as T\n"
        "from bide.client.apis import load\n"
        "names = ['sync.so'] * 8\n"
        "print(len([a.name for a in T(8).map(load, names)]))"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.strip()) == (0, "8"), done.stderr
