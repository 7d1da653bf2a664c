"""Jobs whose id is unique only together with its parent: each is asked about, reported, stored and saved by itself."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bide.cli import root
from bide.client.apis import load, names
from bide.client.client import AsyncClient
from bide.client.timing import Timing
from tests.integration.replay import Replay, said

KEY = "sk-0123456789-not-to-be-seen"
SAME = "same-1"
SPEED = 20.0

Body = dict[str, Any]
# For each description whose reference has more than one part: how a person writes two jobs with the same id (without
# the address of a URL), where they are asked about, and what the API says of a failed and of a successful one.
PAIRS: dict[str, tuple[tuple[str, str], tuple[str, str], Body, Body]] = {
    "airflow": (
        ("bad/same-1", "slow/same-1"),
        ("/api/v2/dags/bad/dagRuns/same-1", "/api/v2/dags/slow/dagRuns/same-1"),
        {"dag_run_id": SAME, "state": "failed"},
        {"dag_run_id": SAME, "state": "success"},
    ),
    "azure": (
        ("/bad/operations/same-1?api-version=1", "/slow/operations/same-1?api-version=1"),
        ("/bad/operations/same-1", "/slow/operations/same-1"),
        {"id": SAME, "status": "Failed", "error": {"code": "Quota", "message": "no room"}},
        {"id": SAME, "status": "Succeeded"},
    ),
    "canvas-report": (
        ("1/grades/same-1", "2/grades/same-1"),
        ("/api/v1/accounts/1/reports/grades/same-1", "/api/v1/accounts/2/reports/grades/same-1"),
        {"id": SAME, "status": "error"},
        {"id": SAME, "status": "complete"},
    ),
    "github-actions": (
        ("octocat/bad/same-1", "octocat/slow/same-1"),
        ("/repos/octocat/bad/actions/runs/same-1", "/repos/octocat/slow/actions/runs/same-1"),
        {"id": SAME, "status": "completed", "conclusion": "failure"},
        {"id": SAME, "status": "completed", "conclusion": "success"},
    ),
}


def parts(name: str) -> bool:
    """Whether an id alone does not identify a job of this API."""
    form = load(name).form
    return not form.unique_id and (
        form.written is not None or form.ask.path is None or "ref." in form.ask.path
    )


def test_every_shipped_description_with_more_than_one_part_is_tested_here() -> None:
    assert sorted(PAIRS) == [name for name in names() if parts(name)]
    # Those whose id alone is unique have tests of their own below.
    assert [name for name in names() if load(name).form.unique_id] == ["fal"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but the test's own."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("BIDE_"):
            monkeypatch.delenv(name)
    for name in ("AIRFLOW_TOKEN", "AZURE_ACCESS_TOKEN", "CANVAS_TOKEN", "FAL_KEY", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, KEY)


@pytest.fixture
def server() -> Iterator[Replay]:
    with Replay() as running:
        yield running


def bide(*args: str) -> Result:
    return CliRunner().invoke(root, list(args), prog_name="bide")


def lines(result: Result) -> dict[str, Body]:
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return {line["jobId"]: line for line in found}


def pair(server: Replay, name: str) -> tuple[str, str]:
    """Two jobs with the same id as `bide wait` takes them: the first fails, the second succeeds later."""
    written, paths, failed, done = PAIRS[name]
    server.tell(("GET", paths[0]), said(failed))
    live = {**done, "state": "running", "status": {"azure": "Running"}.get(name, "running")}
    live["status"] = "in_progress" if name == "github-actions" else live["status"]
    live.pop("conclusion", None)
    server.tell(("GET", paths[1]), said(live), said(done))
    first, second = (server.url + text if text.startswith("/") else text for text in written)
    return first, second


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("name", sorted(PAIRS))
def test_jobs_with_the_same_id_are_all_waited_for(name: str, processes: str, server: Replay) -> None:
    if processes == "2" and name != "airflow":
        pytest.skip("one description is enough for what happens between processes")
    bad, slow = pair(server, name)
    to = ("--api", name, "--url", server.url, "--expect", "0.05", "--processes", processes)
    result = bide("wait", bad, slow, *to, "--json", "--timeout", "20")
    assert result.exit_code == 1, result.stderr
    found = lines(result)
    assert {job: line["status"] for job, line in found.items()} == {bad: "ERROR", slow: "DONE"}


def test_the_exact_case_of_two_runs_of_airflow(server: Replay) -> None:
    pair(server, "airflow")
    to = ("--api", "airflow", "--url", server.url, "--expect", "0.05")
    result = bide("wait", "bad/same-1", "slow/same-1", *to)
    assert result.exit_code == 1
    told = {line.split()[0]: line.split()[1] for line in result.stdout.splitlines()}
    assert told == {"bad/same-1": "ERROR", "slow/same-1": "DONE"}


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_the_ledger_has_each_of_them_and_resumes_each_of_them(
    name: str, server: Replay, tmp_path: Path
) -> None:
    bad, slow = pair(server, name)
    to = ("--api", name, "--url", server.url, "--ledger", "l")
    first = bide("wait", bad, *to, "--json")
    assert (first.exit_code, list(lines(first))) == (1, [bad])
    # The failed one was reported. The other one is not taken for it.
    second = bide("wait", slow, *to, "--json", "--expect", "0.05", "--timeout", "20")
    assert {job: line["status"] for job, line in lines(second).items()} == {slow: "DONE"}
    assert second.exit_code == 1  # of what the ledger has, one had failed
    third = bide("wait", *to, "--json")
    assert (third.exit_code, third.stdout) == (1, "")
    with sqlite3.connect(tmp_path / "l") as connection:
        rows = connection.execute("SELECT job_id, status FROM jobs ORDER BY number").fetchall()
    assert rows == [(bad, "ERROR"), (slow, "DONE")]


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_results_of_jobs_with_the_same_id_do_not_overwrite_each_other(
    name: str, server: Replay, tmp_path: Path
) -> None:
    _, paths, _, done = PAIRS[name]
    first, second = pair(server, name)
    for number, path in enumerate(paths):
        server.tell(
            ("GET", path), said({**done, "result": number, "attachment": {"url": f"{{url}}/{number}"}})
        )
        server.tell(("GET", f"/{number}"), said({"number": number}))
    to = ("--api", name, "--url", server.url, "--out", "out")
    assert bide("wait", first, second, *to).exit_code == 0
    assert len(list((tmp_path / "out").glob("*.json"))) == 2


def fal_jobs(server: Replay) -> tuple[str, str]:
    """The URLs of a failed job and a successful one of another model."""
    base = server.url
    paths = ("/fal-ai/flux/requests/bad-1", "/fal-ai/veo/requests/slow-1")
    failed = {"request_id": "bad-1", "status": "COMPLETED", "error": "no", "error_type": "bad"}
    done = {"request_id": "slow-1", "status": "COMPLETED"}
    server.tell(("GET", f"{paths[0]}/status"), said(failed))
    server.tell(("GET", f"{paths[1]}/status"), said({**done, "status": "IN_PROGRESS"}), said(done))
    server.tell(("GET", paths[1]), said({"video": 1}))
    return f"{base}{paths[0]}/status", f"{base}{paths[1]}/status"


def test_jobs_of_two_models_of_fal_are_each_asked_about_at_their_own_model(
    server: Replay, tmp_path: Path
) -> None:
    """fal is not among the pairs: its reference has a model and an id, but fal assigns UUIDs, so that the id alone names
    a job (`unique_id`). The model leads to it.
    """
    bad, slow = fal_jobs(server)
    to = ("--api", "fal", "--url", server.url, "--ledger", "l", "--json")
    result = bide("wait", bad, slow, *to, "--expect", "0.05", "--timeout", "20", "--out", "out")
    assert result.exit_code == 1, result.stderr
    assert {job: line["status"] for job, line in lines(result).items()} == {
        "bad-1": "ERROR",
        "slow-1": "DONE",
    }
    assert {path.split("/requests/")[0] for _, path, _ in server.sent} == {"/fal-ai/flux", "/fal-ai/veo"}
    assert [path.name for path in (tmp_path / "out").glob("*.json")] == ["slow-1.json"]
    with sqlite3.connect(tmp_path / "l") as connection:
        rows = connection.execute("SELECT job_id, status FROM jobs ORDER BY number").fetchall()
    assert rows == [("bad-1", "ERROR"), ("slow-1", "DONE")]


def test_a_job_of_fal_that_two_urls_name_is_one_job(server: Replay) -> None:
    """The submission names a variant of the model (`fal-ai/flux/dev`), the status URL does not (`fal-ai/flux`)."""
    bad, _ = fal_jobs(server)
    variant = bad.replace("/flux/", "/flux/dev/")
    server.tell(
        ("GET", "/fal-ai/flux/dev/requests/bad-1/status"),
        said({"request_id": "bad-1", "status": "FAILED"}),
    )
    result = bide("wait", bad, variant, "--api", "fal", "--url", server.url, "--json")
    assert {job: line["status"] for job, line in lines(result).items()} == {"bad-1": "ERROR"}
    assert result.exit_code == 1


def test_many_jobs_of_several_parents_are_asked_about_in_lists_of_their_own(server: Replay) -> None:
    """GitHub has a list per repository: one request per repository, and no job is left out."""
    runs = {}
    for repo in ("a", "b"):
        done = {"status": "completed", "conclusion": "success"}
        listed = [{"id": str(number), **done} for number in range(20)]
        server.tell(("GET", f"/repos/o/{repo}/actions/runs"), said({"workflow_runs": listed}))
        runs[repo] = [f"o/{repo}/{number}" for number in range(20)]
    to = ("--api", "github-actions", "--url", server.url, "--timeout", "20", "--json")
    result = bide("wait", *runs["a"], *runs["b"], *to)
    assert result.exit_code == 0, result.stderr
    assert sorted(lines(result)) == sorted(runs["a"] + runs["b"])
    assert len(server.sent) < 10


def test_a_job_at_another_address_is_another_job(server: Replay) -> None:
    """The id of a job is unique at one address only."""
    with Replay() as other:
        server.tell(("GET", "/jobs/1"), said({"jobID": "1", "status": "successful"}))
        server.tell(("GET", "/jobs/1/results"), said({}))
        other.tell(("GET", "/jobs/1"), said({"jobID": "1", "status": "failed"}))
        to = ("--api", "ogc", "--url", server.url, "--json")
        result = bide("wait", "1", f"{other.url}/jobs/1", *to)
    assert result.exit_code == 1
    found = {job: line["status"] for job, line in lines(result).items()}
    assert found == {"1": "DONE", f"{other.url}/jobs/1": "ERROR"}


def test_the_same_job_written_in_two_ways_is_one_job(server: Replay) -> None:
    written, paths, failed, _ = PAIRS["airflow"]
    server.tell(("GET", paths[0]), said(failed))
    to = ("--api", "airflow", "--url", server.url, "--json")
    result = bide("wait", written[0], server.url + paths[0], *to)
    assert list(lines(result)) == ["bad/same-1"]
    assert [path for _, path, _ in server.sent] == [paths[0], f"{paths[0]}/taskInstances"]


async def test_what_a_callback_hears_names_the_whole_job(server: Replay) -> None:
    bad, slow = pair(server, "airflow")
    heard = set()
    async with AsyncClient(server.url, KEY, api="airflow", timing=Timing(SPEED)) as client:
        jobs = [client.job(bad), client.job(slow)]
        await client.wait_all(jobs, timeout=20, on_change=lambda job: heard.add(job.job_id))
        assert [job.id for job in jobs] == [bad, slow]
        assert [client.job(job.id).ref for job in jobs] == [job.ref for job in jobs]
    assert heard == {bad, slow}


def test_what_submit_prints_is_what_wait_prints(server: Replay) -> None:
    server.tell(("POST", "/api/v2/dags/slow/dagRuns"), said({"dag_run_id": SAME, "state": "queued"}))
    pair(server, "airflow")
    to = ("--api", "airflow", "--url", server.url)
    (sent,) = lines(bide("submit", "slow", *to, "--json"))
    assert sent == bide("submit", "slow", *to).stdout.strip() == "slow/same-1"
