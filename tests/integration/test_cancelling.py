"""A cancel at another API: it asks first, so that a job that has ended stays as it is, with its result."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from bide.cli import root
from bide.client.client import AsyncClient
from bide.client.timing import Timing
from bide.core.jobs.record import Status
from tests.integration.api_vendors import AIRFLOW, VENDORS, Vendor, changed, told
from tests.integration.replay import Replay, play, said

KEY = "sk-0123456789-not-to-be-seen"
CANCELLABLE = [vendor for vendor in VENDORS if vendor.cancel is not None and vendor.api != "bide"]
MARK = "[cancelled by bide]"
RUN = "etl/manual__1"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("BIDE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AIRFLOW_TOKEN", KEY)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, KEY)


@pytest.fixture
def server() -> Iterator[Replay]:
    with Replay() as running:
        yield running


class Airflow(Replay):
    """Keeps the state of one run as Airflow does: a PATCH changes it, whatever it was."""

    def __init__(self, state: str = "running", note: str | None = None) -> None:
        super().__init__()
        self.run = {"dag_run_id": "manual__1", "dag_id": "etl", "state": state, "note": note}
        self.on("GET", AIRFLOW.ask[1], self._get)
        self.on("PATCH", AIRFLOW.ask[1], self._patch)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self.run)

    async def _patch(self, request: web.Request) -> web.StreamResponse:
        self.run.update(await request.json())
        assert len(self.run["note"] or "") <= 1000  # Airflow refuses a longer one
        return web.json_response(self.run)


def bide(*args: str) -> Result:
    return CliRunner().invoke(root, list(args), prog_name="bide")


def to(server: Replay, vendor: Vendor = AIRFLOW) -> tuple[str, ...]:
    return "--api", vendor.api, "--url", server.url + vendor.base


def account(server: Replay, vendor: Vendor) -> AsyncClient:
    return AsyncClient(server.url + vendor.base, KEY, api=vendor.api, timing=Timing(100.0))


@pytest.mark.parametrize("vendor", CANCELLABLE, ids=lambda vendor: vendor.api)
async def test_a_job_that_has_ended_is_never_sent_a_cancel(vendor: Vendor, server: Replay) -> None:
    """Airflow would make it fail, OGC and Amazon would delete its result, Prefect would run it again."""
    assert vendor.cancel is not None
    play(server, vendor, said(vendor.done))
    server.tell(vendor.cancel, vendor.cancel_answer)
    async with account(server, vendor) as client:
        job = await client.submit(vendor.kind, vendor.input)
        before = len(server.bodies_of(vendor.cancel))
        assert (await job.cancel()).status is Status.DONE
        assert not job.cancelling
        assert len(server.bodies_of(vendor.cancel)) == before


@pytest.mark.parametrize(("state", "status"), [("success", "DONE"), ("failed", "ERROR")])
def test_a_finished_run_of_airflow_is_left_alone_and_that_is_said(state: str, status: str) -> None:
    with Airflow(state, note="reviewed") as airflow:
        result = bide("cancel", RUN, *to(airflow))
        assert result.exit_code == 1
        assert result.stdout == ""
        assert f"{RUN}: the job has already ended as {status}, so it was not changed" in result.stderr
        assert airflow.run["state"] == state and airflow.run["note"] == "reviewed"
        as_json = bide("cancel", RUN, *to(airflow), "--json")
        assert (as_json.exit_code, json.loads(as_json.stdout)["status"]) == (1, status)


@pytest.mark.parametrize("note", [None, "reviewed by Ann", "x" * 1000])
def test_a_cancelled_run_of_airflow_ends_as_cancelled_for_everybody(note: str | None) -> None:
    """Airflow has no such state: the run's note says so, and what was in the note stays in it."""
    with Airflow(note=note) as airflow:
        result = bide("cancel", RUN, *to(airflow))
        assert (result.exit_code, result.stdout) == (0, f"{RUN} CANCELLED\n")
        assert airflow.run["state"] == "failed"
        assert str(airflow.run["note"]).startswith(MARK)
        assert (note or "")[:900] in str(airflow.run["note"])
        waited = bide("wait", RUN, *to(airflow), "--json")  # another process, which has not cancelled it
        assert (waited.exit_code, json.loads(waited.stdout)["status"]) == (1, "CANCELLED")
        again = bide("cancel", RUN, *to(airflow))
        assert (again.exit_code, again.stdout) == (0, f"{RUN} CANCELLED\n")
    assert len(airflow.bodies_of(("PATCH", AIRFLOW.ask[1]))) == 1


def test_a_run_that_failed_by_itself_is_no_cancelled_one() -> None:
    with Airflow("failed", note="see the log") as airflow:
        waited = bide("wait", RUN, *to(airflow), "--json")
        assert json.loads(waited.stdout)["status"] == "ERROR"


def test_a_job_that_the_api_does_not_know_is_not_said_to_have_ended(server: Replay) -> None:
    server.tell(AIRFLOW.ask, told({"detail": "no such run"}, 404))
    result = bide("cancel", RUN, *to(server))
    assert result.exit_code == 1
    assert "JOB_NOT_FOUND" in result.stderr and "left alone" not in result.stderr


def test_a_question_that_fails_for_now_is_asked_again_before_the_cancel(server: Replay) -> None:
    play(server, AIRFLOW, told({}, 503), said(AIRFLOW.live))
    server.tell(("PATCH", AIRFLOW.ask[1]), said(changed(AIRFLOW.live, state="failed", note=MARK)))
    assert bide("cancel", RUN, *to(server)).exit_code == 0
    assert [what for what, _, _ in server.sent][:3] == ["GET", "GET", "PATCH"]


@pytest.mark.parametrize("state", ["success", "running"])
def test_a_check_cancels_only_a_job_that_goes_on(state: str) -> None:
    with Airflow(state) as airflow:
        result = bide(
            "api", "check", "airflow", "--against", airflow.url, "--id", RUN, "--cancel", "--json"
        )
        found = {line["field"]: line for line in map(json.loads, result.stdout.splitlines())}
    if state == "success":
        assert found["cancel"]["fits"] is None and "has ended as done" in found["cancel"]["detail"]
        assert airflow.run["state"] == "success"
    else:
        assert found["cancel"]["fits"] is True
        assert airflow.run["state"] == "failed"
