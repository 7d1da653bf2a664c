"""Airflow and Prefect over a socket: servers that answer as their sources do, driven by `bide submit` and `bide wait`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from bide.cli import root
from bide.client.client import AsyncClient
from bide.client.timing import Timing
from bide.core.errors import JobFailed
from tests.unit.fake_service import FakeService

KEY = "token-0123456789-not-to-be-seen"
RUNS = re.compile(r"/api/v2/dags/(?P<dag>[^/]+)/dagRuns(?:/(?P<run>[^/]+)(?P<rest>/.*)?)?")
FLOW, DEPLOYMENT = "0b4d3a52-7c2e-4a0e-9a55-0f6d0f6c2a01", "5f0d6a3c-2a55-4b1c-8d3f-1e9d6f3a7b02"


class Airflow(FakeService):
    """Airflow 3: `runs` by (DAG, run); the return values of a run's tasks; the exception of its failed task."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[tuple[str, str], dict[str, Any]] = {}
        self.values: list[tuple[str, int, Any]] = []  # task, map index, value
        self.log: list[Any] = []
        self.secret_values = False
        self.longest_page = 100  # `maximum_page_limit` of the server
        self.offset_works = True

    def run(self, run: str, state: str = "success", dag: str = "etl") -> str:
        self.runs[dag, run] = {"dag_id": dag, "dag_run_id": run, "state": state, "note": None}
        return f"{dag}/{run}"

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.asked]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        match = RUNS.fullmatch(request.path)
        assert match is not None, request.path
        dag, run, rest = match["dag"], match["run"], match["rest"]
        if request.method == "POST":
            return await self._trigger(request, dag)
        if run is None:
            return self._list(request, dag)
        if (dag, run) not in self.runs:
            return web.json_response({"detail": f"The DagRun {run} was not found"}, status=404)
        if rest is None:
            return web.json_response(self.runs[dag, run])
        return self._of_task(request, rest)

    async def _trigger(self, request: web.Request, dag: str) -> web.Response:
        body = await request.json()
        if "conf" in body and body["conf"] is None:
            return web.json_response({"detail": [{"msg": "conf: not a dictionary"}]}, status=422)
        if dag == "gone":
            return web.json_response({"detail": f"Dag with dag_id: '{dag}' not found"}, status=404)
        if dag == "strict":
            detail = [{"type": "missing", "loc": ["body", "conf", "day"], "msg": "Field required"}]
            return web.json_response({"detail": detail}, status=422)
        run = body.get("dag_run_id") or "manual__1"
        self.run(run, "queued", dag)
        return web.json_response(self.runs[dag, run])

    def _list(self, request: web.Request, dag: str) -> web.Response:
        assert request.query["order_by"] == "-run_after" and request.query["limit"] == "100"
        found = [run for (of, _), run in reversed(self.runs.items()) if of == dag]
        return web.json_response({"dag_runs": found[:100], "total_entries": len(found)})

    def _of_task(self, request: web.Request, rest: str) -> web.Response:
        query = request.query
        if rest == "/taskInstances":
            assert query["state"] == "failed" and query["order_by"] == "end_date"
            failed = {"task_id": "load", "map_index": 2, "state": "failed", "try_number": 3}
            return web.json_response({"task_instances": [failed], "total_entries": 1})
        if rest == "/taskInstances/load/logs/3":
            assert query["map_index"] == "2" and "application/json" in request.headers["Accept"]
            return web.json_response({"content": self.log, "continuation_token": None})
        if self.secret_values:
            return web.json_response({"detail": "Forbidden"}, status=403)
        if rest == "/taskInstances/~/xcomEntries":
            assert query["xcom_key"] == "return_value"
            entries = [
                {"key": "return_value", "task_id": task, "map_index": index}
                for task, index, _ in self.values
            ]
            begin = int(query.get("offset", "0")) if self.offset_works else 0
            page = entries[begin : begin + min(int(query["limit"]), self.longest_page)]
            return web.json_response({"xcom_entries": page, "total_entries": len(entries)})
        for task, index, value in self.values:
            at = f"/taskInstances/{task}/xcomEntries/return_value"
            if rest == at and query["map_index"] == str(index):
                assert query["deserialize"] == "true"  # otherwise the value is JSON in a text
                return web.json_response({"key": "return_value", "task_id": task, "value": value})
        return web.json_response({"detail": "XCom entry not found"}, status=404)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("BIDE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AIRFLOW_TOKEN", KEY)


@pytest.fixture
def airflow() -> Iterator[Airflow]:
    with Airflow() as running:
        yield running


def bide(*args: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(root, list(args), prog_name="bide", input=stdin)
    assert KEY not in result.output
    return result


def line(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


# --- Airflow


def test_the_result_of_a_run_is_what_its_tasks_returned(airflow: Airflow) -> None:
    airflow.values = [
        ("extract", -1, {"rows": 12}),
        ("load", 0, "a.parquet"),
        ("load", 1, "b.parquet"),
        ("count", -1, 0),
    ]
    run = airflow.run("manual__1")
    result = bide("wait", run, "--api", "airflow", "--url", airflow.url, "--json")
    assert result.exit_code == 0, result.stderr
    found = {"extract": {"rows": 12}, "load": ["a.parquet", "b.parquet"], "count": 0}
    assert line(result)["result"] == found


def wait_for_many(airflow: Airflow) -> Result:
    run = airflow.run("manual__1")
    return bide("wait", run, "--api", "airflow", "--url", airflow.url, "--json", "--limit", "1000/1s")


def lists(airflow: Airflow) -> list[str]:
    """The offsets of the pages that were requested."""
    return [
        request.query.get("offset", "0")
        for request in airflow.asked
        if request.path.endswith("/~/xcomEntries")
    ]


def test_a_result_has_the_values_of_all_pages(airflow: Airflow) -> None:
    airflow.values = [("load", index, index) for index in range(203)] + [("count", -1, 203)]
    result = wait_for_many(airflow)
    assert result.exit_code == 0 and "incomplete" not in result.stderr
    assert line(result)["result"] == {"load": list(range(203)), "count": 203}
    assert lists(airflow) == ["0", "100", "200"]


def test_pages_may_be_shorter_than_requested(airflow: Airflow) -> None:
    airflow.values = [("load", index, index) for index in range(4)]
    airflow.longest_page = 2
    assert line(wait_for_many(airflow))["result"] == {"load": [0, 1, 2, 3]}
    assert lists(airflow) == ["0", "2"]  # the total is reached, so no empty page is requested


def test_a_result_with_too_many_values_says_what_is_missing(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.client.account.MOST_PARTS", 3)
    airflow.values = [("load", index, index) for index in range(9)]
    airflow.longest_page = 2
    result = wait_for_many(airflow)
    assert line(result)["result"] == {"load": [0, 1, 2]}
    assert "is incomplete: it has 6 more parts" in result.stderr
    assert lists(airflow) == ["0", "2"]


def test_a_page_that_is_repeated_is_an_error(airflow: Airflow) -> None:
    airflow.values = [("load", index, index) for index in range(4)]
    airflow.longest_page, airflow.offset_works = 2, False
    result = wait_for_many(airflow)
    assert result.exit_code == 1
    assert "the API ignores 'offset'" in result.output
    assert lists(airflow) == ["0", "2"]


def test_a_run_without_return_values_has_an_empty_result(airflow: Airflow) -> None:
    run = airflow.run("manual__1")
    result = bide("wait", run, "--api", "airflow", "--url", airflow.url, "--json")
    assert (result.exit_code, line(result)["result"]) == (0, {})


def test_a_run_whose_values_the_user_may_not_see_has_succeeded(airflow: Airflow) -> None:
    airflow.secret_values = True
    run = airflow.run("manual__1")
    result = bide("wait", run, "--api", "airflow", "--url", airflow.url, "--json")
    assert (result.exit_code, line(result)["result"]) == (0, None)


def test_a_failed_run_names_the_task_and_its_exception(airflow: Airflow) -> None:
    detail = [{"exc_type": "ValueError", "exc_value": "no such table: grades", "frames": []}]
    airflow.log = [
        {"event": "Task started", "level": "info"},
        {"event": "retrying a connection", "level": "error"},
        {"event": "Task failed with exception", "level": "error", "error_detail": detail},
    ]
    run = airflow.run("manual__1", "failed")
    result = bide("wait", run, "--api", "airflow", "--url", airflow.url, "--json")
    assert result.exit_code == 1
    error = line(result)["error"]
    assert error["code"] == "ValueError"
    assert error["message"] == "no such table: grades"
    assert error["failedStep"] == "load"
    assert line(result)["requests"] == 3


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ([{"event": "Killed by the kernel", "level": "error"}], "Killed by the kernel"),
        (["a line that is not structured"], "the API reports failed without a message"),
    ],
)
async def test_a_failed_run_without_an_exception_names_its_task(
    airflow: Airflow, log: list[Any], message: str
) -> None:
    airflow.log = log
    run = airflow.run("manual__1", "failed")
    async with AsyncClient(airflow.url, KEY, api="airflow", timing=Timing(100.0)) as client:
        job = client.job(run)
        for _ in range(2):  # the cause is requested once
            with pytest.raises(JobFailed) as caught:
                await job.result(timeout=30)
            assert caught.value.error is not None
            assert caught.value.error.code == "FAILED"
            assert caught.value.error.message.startswith(message)
            assert caught.value.error.failed_step == "load"
    assert len(airflow.asked) == 3


async def test_one_request_polls_all_runs_of_a_dag(airflow: Airflow) -> None:
    written = [airflow.run(f"manual__{number}") for number in range(40)]
    async with AsyncClient(airflow.url, KEY, api="airflow", timing=Timing(100.0)) as client:
        jobs = await client.wait_all([client.job(one) for one in written], timeout=30)
        assert {job.latest.status for job in jobs if job.latest is not None} == {"DONE"}
    assert set(airflow.paths) == {"/api/v2/dags/etl/dagRuns"}
    assert len(airflow.paths) < 10


async def test_a_run_that_is_not_among_the_newest_is_polled_by_itself(airflow: Airflow) -> None:
    old = [airflow.run(f"old__{number}") for number in range(3)]
    for number in range(100):
        airflow.run(f"scheduled__{number}", "running")
    new = [airflow.run(f"new__{number}") for number in range(3)]
    async with AsyncClient(airflow.url, KEY, api="airflow", timing=Timing(100.0)) as client:
        await client.wait_all([client.job(one) for one in old + new], timeout=30)
    assert {path.rpartition("/")[2] for path in airflow.paths} >= {"old__0", "old__1", "old__2"}


def test_a_refusal_of_airflow_is_quoted(airflow: Airflow) -> None:
    to = ("--api", "airflow", "--url", airflow.url)
    assert "Field required" in bide("submit", "strict", *to).stderr
    assert "Dag with dag_id: 'gone' not found" in bide("submit", "gone", *to).stderr
    assert bide("submit", "etl", *to).stdout == "etl/manual__1\n"  # without conf, not with null


# --- Prefect


class Prefect(FakeService):
    """Prefect 3 with one deployment, `grades/nightly`."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies_sent: list[tuple[str, Any]] = []
        self.artifacts: list[dict[str, Any]] = []
        self.state = "COMPLETED"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        body: Any = await request.json() if request.body_exists else None
        self.bodies_sent.append((request.path, body))
        match request.method, request.path.removeprefix("/api"):
            case "GET", "/deployments/name/grades/nightly":
                return web.json_response({"id": DEPLOYMENT, "name": "nightly", "flow_id": "f"})
            case "GET", path if path.startswith("/deployments/name/"):
                return web.json_response({"detail": "Deployment not found"}, status=404)
            case "POST", path if path == f"/deployments/{DEPLOYMENT}/create_flow_run":
                return self._create(body)
            case "GET", path if path == f"/flow_runs/{FLOW}":
                return web.json_response(self._run(self.state))
            case "POST", "/artifacts/filter":
                assert body["artifacts"] == {"flow_run_id": {"any_": [FLOW]}}
                return web.json_response(self.artifacts)
        return web.json_response({"detail": "Not Found"}, status=404)

    def _create(self, body: Any) -> web.Response:
        if body.get("parameters", {}) is None or "day" not in body.get("parameters", {"day": 1}):
            refused = {
                "exception_message": "Invalid request received.",
                "exception_detail": [
                    {"loc": ["body", "parameters"], "msg": "Input should be a dictionary"}
                ],
            }
            return web.json_response(refused, status=422)
        return web.json_response(self._run("SCHEDULED"), status=201)

    def _run(self, state: str) -> dict[str, Any]:
        return {"id": FLOW, "state_type": state, "state": {"type": state, "name": state.title()}}


@pytest.fixture
def prefect() -> Iterator[Prefect]:
    with Prefect() as running:
        yield running


def to_prefect(server: Prefect) -> tuple[str, ...]:
    return ("--api", "prefect", "--url", f"{server.url}/api")


@pytest.mark.parametrize("kind", ["grades/nightly", DEPLOYMENT])
def test_a_deployment_has_a_name_and_an_id(prefect: Prefect, kind: str) -> None:
    prefect.artifacts = [{"key": "report", "type": "markdown", "data": "# 12 rows"}]
    result = bide("submit", kind, "-i", '{"day": 3}', "--wait", *to_prefect(prefect))
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) == prefect.artifacts
    created = f"/api/deployments/{DEPLOYMENT}/create_flow_run"
    sent = [body for path, body in prefect.bodies_sent if path == created]
    assert sent == [{"parameters": {"day": 3}, "state": {"type": "SCHEDULED"}}]


async def test_the_id_of_a_deployment_is_looked_up_once(prefect: Prefect) -> None:
    async with AsyncClient(f"{prefect.url}/api", api="prefect", timing=Timing(100.0)) as client:
        for day in range(3):
            await client.submit("grades/nightly", {"day": day})
    assert sum("/deployments/name/" in request.path for request in prefect.asked) == 1


def test_a_deployment_that_does_not_exist_is_refused(prefect: Prefect) -> None:
    result = bide("submit", "grades/hourly", *to_prefect(prefect))
    assert result.exit_code == 1
    assert "Deployment not found" in result.stderr


def test_a_refusal_of_prefect_is_quoted(prefect: Prefect) -> None:
    result = bide("submit", "grades/nightly", "-i", "{}", *to_prefect(prefect))
    assert result.exit_code == 1
    assert "Input should be a dictionary" in result.stderr


def test_the_result_of_a_flow_run_is_its_artifacts(prefect: Prefect) -> None:
    prefect.artifacts = [
        {"key": "rows", "type": "table", "data": '[{"grade": 1}]'},
        {"key": None, "type": None, "data": {"storage_key": "s3://results/1"}},
    ]
    result = bide("wait", FLOW, "--json", "--out", "out", *to_prefect(prefect))
    assert result.exit_code == 0, result.stderr
    assert line(result)["result"] == prefect.artifacts
    assert json.loads(Path(f"out/{FLOW}.json").read_text()) == prefect.artifacts
    assert not Path(f"out/{FLOW}").exists()
