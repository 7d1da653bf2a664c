"""`bide api`, and `bide submit`, `status` and `cancel` with --api: what is printed, sent, refused and kept to itself."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from bide.cli import root
from bide.client.apis import names, text_of
from tests.integration.api_vendors import (
    AIRFLOW,
    FAL,
    FLOWER,
    GITHUB,
    KNOWHERE,
    OGC,
    PREFECT,
    REPLICATE,
    SYNC,
    Vendor,
    at,
    changed,
    told,
)
from tests.integration.replay import Replay, play, said
from tests.unit.fake_service import job, job_id

KEY = "sk-0123456789-not-to-be-seen"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but the test's own."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("BIDE_"):
            monkeypatch.delenv(name)
    for name in ("AIRFLOW_TOKEN", "FAL_KEY", "GITHUB_TOKEN", "KNOWHERE_API_KEY", "SYNC_API_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("REPLICATE_API_TOKEN", KEY)


@pytest.fixture
def server() -> Iterator[Replay]:
    with Replay() as running:
        yield running


def bide(*args: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(root, list(args), prog_name="bide", input=stdin)
    assert KEY not in result.output + result.stderr
    return result


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def to(server: Replay, vendor: Vendor) -> tuple[str, ...]:
    return "--api", vendor.api, "--url", server.url + vendor.base


# --- list and show


def test_the_list_names_every_api_and_what_it_can() -> None:
    table = bide("api", "list")
    assert table.exit_code == 0
    found = {line["name"]: line for line in lines(bide("api", "list", "--json"))}
    assert sorted(found) == names()
    assert all(name in table.stdout for name in found)
    assert found["sync.so"]["can"] == ["submit", "wait", "result"]
    assert found["github-actions"]["env"] == ["GITHUB_TOKEN", "GH_TOKEN"]
    assert found["azure"]["url"] is None


@pytest.mark.parametrize("name", names())
def test_a_description_is_shown_as_it_is_written_and_as_it_is_understood(name: str) -> None:
    assert bide("api", "show", name).stdout == text_of(name)
    (form,) = lines(bide("api", "show", name, "--json"))
    assert form["name"] == name and form["ask"]["method"] in ("GET", "POST")


def test_what_is_not_there_is_wrong_usage() -> None:
    for command in ("show", "check"):
        result = bide("api", command, "nobody")
        assert result.exit_code == 2
        assert "'nobody'" in result.stderr and "replicate" in result.stderr
    assert bide("api", "check", "nobody.toml").exit_code == 2


# --- check


@pytest.mark.parametrize("name", names())
def test_what_comes_with_bide_is_in_order(name: str) -> None:
    result = bide("api", "check", name)
    assert (result.exit_code, result.stdout.startswith(f"{name} is valid: ")) == (0, True)


def test_a_mistake_is_reported_with_its_line(tmp_path: Path) -> None:
    text = text_of("ogc").replace('status = "status"', 'status = "a..b"')
    (tmp_path / "mine.toml").write_text(text)
    line = text[: text.index('"a..b"')].count("\n") + 1
    result = bide("api", "check", "mine.toml")
    assert result.exit_code == 1
    assert f"mine.toml, line {line}: [read]" in result.stderr
    (told_,) = lines(bide("api", "check", "mine.toml", "--json"))
    assert (told_["fits"], told_["line"]) == (False, line)


def against(server: Replay, vendor: Vendor, *args: str) -> dict[str, tuple[bool | None, str]]:
    result = bide("api", "check", vendor.api, "--against", server.url + vendor.base, "--json", *args)
    found = {line["field"]: (line["fits"], line["detail"]) for line in lines(result)}
    assert result.exit_code == (1 if any(fits is False for fits, _ in found.values()) else 0), (
        result.stderr
    )
    return found


def test_a_live_job_is_compared_field_by_field(server: Replay) -> None:
    server.tell(
        OGC.ask,
        (200, changed(OGC.live, started="yesterday"), {"RateLimit-Remaining": "59", "Retry-After": "7"}),
    )
    found = against(server, OGC, "--id", OGC.done["jobID"])
    assert found["ask"] == (True, f"GET {server.url}/api/jobs/{OGC.done['jobID']} answers 200")
    assert found["read.status"] == (True, "'running' is live")
    assert found["read.id"][0] and found["read.message"] == (True, "tile 3")
    assert found["read.progress"] == (True, "40 %")
    assert found["read.started_at"] == (False, "yesterday is not a time")
    assert found["limits"] == (True, "59 left; no request for 7 s")
    assert found["missing"][0] is True
    assert {what for what, _, _ in server.sent} == {"GET"}


def test_an_unknown_word_and_a_missing_one_do_not_fit(server: Replay) -> None:
    server.tell(KNOWHERE.ask, said(KNOWHERE.odd), said({"jobId": "x", "state": "done"}))
    id = KNOWHERE.done["job_id"]
    fits, detail = against(server, KNOWHERE, "--id", id)["read.status"]
    assert fits is False and "'hibernating' is in no list. Add it to live, done," in detail
    fits, detail = against(server, KNOWHERE, "--id", id)["read.status"]
    assert fits is False and detail.endswith("the response has: jobId, state")


def test_the_url_of_a_job_says_both_where_and_which(server: Replay) -> None:
    play(server, GITHUB, (200, GITHUB.live, {"ETag": '"1"'}), (304, b"", {}), (404, {}, {}))
    server.tell(GITHUB.batch or ("", ""), said({"workflow_runs": [GITHUB.live]}))
    result = bide("api", "check", "github-actions", "--against", server.url + GITHUB.ask[1])
    assert result.exit_code == 0, result.stdout
    fits = {line.split()[0]: line.split()[1] for line in result.stdout.splitlines()[1:]}
    assert fits["ask.etag"] == fits["batch"] == fits["auth"] == "yes"


def test_the_url_of_a_result_is_printed_without_its_signature(server: Replay) -> None:
    server.tell(SYNC.ask, said(SYNC.done))
    found = against(server, SYNC, "--id", SYNC.done["id"])
    assert found["result"] == (True, "the result is at https://films.example/1.mp4")
    server.tell(SYNC.ask, said(changed(SYNC.done, outputUrl=None)))
    assert against(server, SYNC, "--id", SYNC.done["id"])["result"][0] is False


def test_a_denied_credential_does_not_fit_and_is_not_shown(server: Replay) -> None:
    server.tell(SYNC.ask, (401, {"message": f"who is {KEY}?"}, {}))
    found = against(server, SYNC, "--id", SYNC.done["id"])
    assert found["auth"][0] is False and "[hidden]" in found["auth"][1]


def test_without_a_job_it_is_asked_about_one_that_there_is_not(server: Replay) -> None:
    found = against(server, FLOWER)
    assert set(found) == {"missing", "limits"}
    assert found["missing"][0] is True
    server.tell(
        ("GET", "/api/task/result/no-such-job-0"), said({"task-id": "no-such-job-0", "state": "PENDING"})
    )
    fits, detail = against(server, FLOWER)["missing"]
    assert fits is None and "an unknown id is reported as PENDING" in detail


def test_no_cancel_is_sent_to_a_job_whose_status_cannot_be_read(server: Replay) -> None:
    play(server, FAL, said(FAL.live), (200, b"nonsense", {}))
    server.tell(FAL.cancel or ("", ""), FAL.cancel_answer)
    found = against(server, FAL, "--id", server.url + FAL.ask[1], "--cancel")
    fits, detail = found["cancel"]
    assert fits is None
    assert detail.startswith("The job's status cannot be read, so no cancel was sent: ")
    assert {what for what, _, _ in server.sent} == {"GET"}


def test_nothing_is_submitted_or_cancelled_without_the_options(server: Replay) -> None:
    play(server, FAL, said(FAL.live))
    server.tell(FAL.cancel or ("", ""), FAL.cancel_answer)
    against(server, FAL, "--id", server.url + FAL.ask[1])
    assert {what for what, _, _ in server.sent} == {"GET"}
    given = ("--submit", "--kind", FAL.kind, "--input", '{"a": 1}', "--cancel")
    found = against(server, FAL, *given)
    assert found["submit"][0] and found["submit.id"] == (True, "r1")
    assert found["submit.status_url"][0] and found["submit.remember.cancel"][0]
    assert found["cancel"][0] and found["cancel"][1].endswith("answers 202: accepted")
    assert server.bodies_of(FAL.submit) == [{"a": 1}]
    assert len(server.bodies_of(FAL.cancel or ("", ""))) == 1


def test_a_refused_submission_does_not_fit(server: Replay) -> None:
    server.tell(KNOWHERE.submit, told({"error": {"message": "no file"}}, 422))
    fits, detail = against(server, KNOWHERE, "--submit")["submit"]
    assert fits is False and "no file" in detail


@pytest.mark.parametrize(
    "args",
    [
        ("--id", "1"),
        ("--submit",),
        ("--cancel",),
        ("--against", "http://127.0.0.1:9", "--input", "{}"),
        ("--against", "http://127.0.0.1:9", "--submit", "--id", "1"),
        ("--against", "not an address"),
    ],
)
def test_wrong_usage_of_check_is_2(args: tuple[str, ...]) -> None:
    assert bide("api", "check", "replicate", *args).exit_code in (1, 2)
    assert (
        "9" in args[-1]
        or bide("api", "check", "replicate", *args).exit_code == 2
        or "address" in args[-1]
    )


def test_an_api_that_does_not_answer_is_1() -> None:
    result = bide("api", "check", "replicate", "--against", "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert "no answer from http://127.0.0.1:9" in result.stderr


# --- submit, status, cancel


def test_a_job_is_submitted_and_its_name_goes_on_to_wait(server: Replay) -> None:
    play(server, AIRFLOW, said(AIRFLOW.done))
    sent = bide("submit", "etl", "-i", '{"a": 1}', *to(server, AIRFLOW))
    assert (sent.exit_code, sent.stdout) == (0, "etl/manual__1\n")
    waited = bide("wait", "-", "--json", *to(server, AIRFLOW), stdin=sent.stdout)
    assert lines(waited)[0]["status"] == "DONE"


@pytest.mark.parametrize("vendor", [AIRFLOW, FAL, GITHUB, OGC, SYNC], ids=lambda vendor: vendor.api)
def test_a_line_of_submit_goes_on_to_wait(vendor: Vendor, server: Replay) -> None:
    play(server, vendor, said(vendor.done))
    sent = bide("submit", vendor.kind, "-i", json.dumps(vendor.input), "--json", *to(server, vendor))
    (line,) = lines(sent)
    assert line["api"] == vendor.api and line["url"].startswith(server.url)
    waited = bide("wait", "-", "--json", *to(server, vendor), stdin=sent.stdout)
    assert [one["result"] for one in lines(waited)] == [at(server.url, vendor.result)]


def test_a_submission_without_an_input_has_no_null_in_it(server: Replay) -> None:
    """Prefect refuses `"parameters": null` with 422."""

    async def create(request: web.Request) -> web.StreamResponse:
        if (await request.json()).get("parameters", {}) is None:
            return web.json_response({"exception_detail": [{"loc": ["parameters"]}]}, status=422)
        return web.json_response(PREFECT.accepted[1], status=201)

    server.tell(PREFECT.submit, create)
    sent = bide("submit", PREFECT.kind, *to(server, PREFECT))
    assert sent.exit_code == 0, sent.stderr
    assert server.bodies_of(PREFECT.submit) == [{"state": {"type": "SCHEDULED"}}]


def test_submit_can_wait_for_the_result(server: Replay) -> None:
    play(server, REPLICATE, said(REPLICATE.done))
    result = bide("submit", "k", "-i", '{"a": 1}', "--wait", "--timeout", "30", *to(server, REPLICATE))
    assert json.loads(result.stdout) == REPLICATE.result


def test_status_tells_in_the_same_words(server: Replay) -> None:
    play(server, KNOWHERE, said(KNOWHERE.live))
    id = KNOWHERE.done["job_id"]
    (line,) = lines(bide("status", id, "--json", *to(server, KNOWHERE)))
    assert (line["jobId"], line["status"], line["progress"]["percent"]) == (id, "PROCESSING", 40.0)
    shown = bide("status", id, *to(server, KNOWHERE))
    assert "PROCESSING" in shown.stdout and "40%" in shown.stdout
    play(server, KNOWHERE, said(KNOWHERE.failed))
    assert "PARSE: bad pdf" in bide("status", id, *to(server, KNOWHERE)).stdout
    play(server, KNOWHERE, (500, {}, {}), said(KNOWHERE.live))
    several = bide("status", "other", id, *to(server, KNOWHERE))
    assert several.exit_code == 1
    assert f"bide: {id}: 500" in several.stderr  # and keeps no other back
    assert "JOB_NOT_FOUND" in several.stdout


def test_cancel_asks_the_api_and_tells_what_it_says(server: Replay) -> None:
    play(server, REPLICATE, said(REPLICATE.cancelled))
    server.tell(REPLICATE.cancel or ("", ""), REPLICATE.cancel_answer)
    result = bide("cancel", "p1", *to(server, REPLICATE))
    assert (result.exit_code, result.stdout) == (0, "p1 CANCELLED\n")
    play(server, FAL, said(FAL.live))
    server.tell(FAL.cancel or ("", ""), FAL.cancel_answer)
    result = bide("cancel", server.url + FAL.ask[1], "--json", *to(server, FAL))
    assert lines(result)[0]["status"] == "PROCESSING"


def test_operations_that_an_api_does_not_have_are_errors(server: Replay, tmp_path: Path) -> None:
    play(server, SYNC, said(SYNC.live))
    result = bide("cancel", SYNC.done["id"], *to(server, SYNC))
    assert (result.exit_code, "sync.so cannot cancel a job" in result.stderr) == (1, True)
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\n[ask]\npath = "/t/{id}"\n[read]\nstatus = "s"\ndone = ["ok"]\n'
    )
    result = bide("submit", "x", "--api", "mine.toml", "--url", server.url)
    assert result.exit_code == 1
    assert "the description of mine does not say how to submit a job" in result.stderr
    result = bide("submit", "--api", "flower", "--url", server.url)
    assert result.exit_code == 1 and "{kind}" in result.stderr
    result = bide("submit", "k", "--priority", "3", *to(server, KNOWHERE))
    assert result.exit_code == 1 and "knowhere has no option priority" in result.stderr
    result = bide("cancel", "--kind", "k", *to(server, KNOWHERE))
    assert result.exit_code == 2 and "give ids" in result.stderr
    assert bide("submit").exit_code == 2
    assert server.sent == []


# --- whose settings are whose


def test_a_bide_service_s_address_and_key_do_not_count_for_another_api(
    server: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does the vendor's key go to BIDE_URL, nor the service's key to the vendor; the error names what is missing."""
    play(server, AIRFLOW, said(AIRFLOW.done))
    with Replay() as own:
        monkeypatch.setenv("BIDE_URL", own.url)
        monkeypatch.setenv("BIDE_KEY", "the-key-of-my-service")
        for command in (
            ("wait", "etl/manual__1"),
            ("status", "etl/manual__1"),
            ("cancel", "etl/manual__1"),
        ):
            result = bide(*command, "--api", "airflow")
            assert result.exit_code == 2, command
            assert "airflow has no fixed URL" in result.stderr
            assert "BIDE_URL and BIDE_KEY are for a bide service" in " ".join(result.stderr.split())
        assert bide("wait", "etl/manual__1", *to(server, AIRFLOW)).exit_code == 0
        monkeypatch.delenv("AIRFLOW_TOKEN")
        result = bide("wait", "etl/manual__1", *to(server, AIRFLOW))
        assert result.exit_code == 1
        assert "set AIRFLOW_TOKEN" in result.stderr and "BIDE_KEY" in result.stderr
        assert own.sent == []
    assert all("the-key-of-my-service" not in str(request.headers) for request in server.asked)


def test_a_key_that_is_given_counts(
    server: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SYNC_API_KEY")
    play(server, SYNC, said(SYNC.done))
    (tmp_path / "key").write_text(KEY + "\n")
    assert bide("submit", "-i", "{}", "--key-file", "key", *to(server, SYNC)).exit_code == 0
    assert bide("status", SYNC.done["id"], "--key", KEY, *to(server, SYNC)).exit_code == 0
    assert {request.headers["x-api-key"] for request in server.asked} == {KEY}


def test_a_service_of_bide_is_spoken_to_as_ever(server: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDE_URL", server.url)
    monkeypatch.setenv("BIDE_KEY", "the-key-of-my-service")
    server.tell(("POST", f"/jobs/{job_id(1)}/cancel"), told(job(1, "CANCELLED")))
    assert bide("cancel", job_id(1), "--api", "bide").exit_code == 0
    assert server.asked[0].headers["Authorization"] == "Bearer the-key-of-my-service"
