"""`bide wait` at other APIs and with a ledger: its output, files, requests and ledger."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from bide.cli import root
from bide.cli import wait as command
from bide.cli.command_text import masked
from bide.client.ledger.sqlite import SqliteLedger
from bide.client.polling.kinds import TIMEOUTS
from bide.lab.scenario import parse_scenario
from bide.lab.simulated_api import SimulatedApi
from bide.lab.vendor import Vendor
from tests.unit.fake_service import FakeService, job, job_id, says

KEY = "sk-d6f1a1c2b3"
EXAMPLE = Path(__file__).parents[2] / "examples" / "documents.toml"


class Shop(Vendor):
    """Has its jobs from the start; remembers the headers of every request."""

    def __init__(self, count: int = 2, duration: str = "{ fixed = 0.01 }", fails: str = "") -> None:
        text = f"[[jobs]]\ncount = {count}\nduration = {duration}\nprogress = 'exact'"
        super().__init__(world=SimulatedApi(parse_scenario(text, "shop"), 0), key=KEY)
        self.heard: list[dict[str, str]] = []
        if fails:
            self._failed.add(fails)

    async def _status(self, request: web.Request) -> web.Response:
        self.heard.append(dict(request.headers))
        return await super()._status(request)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but the test's own."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("BIDE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SYNC_API_KEY", KEY)


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop(fails="job-1") as running:
        yield running


def bide(*args: str) -> Result:
    return CliRunner().invoke(root, ["wait", *args], prog_name="bide")


def at(shop: Shop, *args: str) -> Result:
    return bide(*args, "--api", "sync.so", "--url", shop.url)


def lines(result: Result) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert len({line["jobId"] for line in found}) == len(found)
    return {line["jobId"]: line for line in found}


# --- another API


def test_jobs_of_another_api_have_the_same_lines(shop: Shop) -> None:
    result = at(shop, "job-0", f"{shop.url}/v2/generate/job-1", "--json")
    assert result.exit_code == 1
    found = lines(result)
    assert found["job-0"].pop("requests") >= 1
    assert found["job-0"] == {
        "jobId": "job-0",
        "api": "sync.so",
        "status": "DONE",
        "result": f"{shop.url}/v2/files/job-0.mp4",
        "error": None,
        "finishedAt": None,
    }
    assert (found["job-1"]["status"], found["job-1"]["result"]) == ("ERROR", None)
    assert found["job-1"]["error"]["code"] == "NO_FACE"


def test_a_description_of_ones_own_does_as_well(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(
        f'name = "shop"\nurl = "{shop.url}"\n[auth]\nkind = "header"\nheader = "x-api-key"\n'
        '[ask]\npath = "/v2/generate/{id}"\n'
        '[read]\nstatus = "status"\nlive = ["PROCESSING"]\ndone = ["COMPLETED"]\nfailed = ["FAILED"]\n'
    )
    result = bide("job-0", "--api", "shop.toml", "--key", KEY, "--ledger", "l", "--json", "--trust")
    assert (result.exit_code, lines(result)["job-0"]["api"]) == (0, "shop")
    bide("job-1", "--api", "shop.toml", "--key", "wrong", "--ledger", "l")
    result = bide("--ledger", "l")
    assert result.exit_code == 1
    # The ledger knows the file, not the key.
    assert "There is no credential: give a key (--key" in result.stderr
    (tmp_path / "shop.toml").rename(tmp_path / "moved.toml")
    result = bide("--ledger", "l", "--key", KEY)
    assert result.exit_code == 2
    assert f"The description {tmp_path}/shop.toml cannot be read" in result.stderr
    assert "pass its file with --api" in result.stderr
    result = bide("--ledger", "l", "--api", "moved.toml", "--key", "wrong", "--json")
    assert result.exit_code == 1
    result = bide("--ledger", "l", "--key", KEY, "--json")
    assert (result.exit_code, list(lines(result))) == (1, ["job-1"])
    assert lines(result)["job-1"]["status"] == "ERROR"


def test_a_ledger_names_a_file_only_if_the_user_confirmed_it(shop: Shop, tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    (tmp_path / "own.toml").write_text(text)
    args = ("--api", "own.toml", "--url", shop.url, "--ledger", "l", "--timeout", "0", "--trust")
    assert bide("job-0", *args, "--key", KEY).exit_code == 3
    (tmp_path / "own.toml").write_text(text + "# changed\n")
    shop.heard.clear()
    result = bide("--ledger", "l", "--key", KEY, "--timeout", "30")
    assert result.exit_code == 2
    assert "own.toml does not come with bide" in result.stderr
    assert shop.heard == []
    assert bide("--ledger", "l", "--key", KEY, "--timeout", "30", "--trust").exit_code == 0


def test_a_result_at_an_address_is_saved_beside_its_json(shop: Shop, tmp_path: Path) -> None:
    assert at(shop, "job-0", "--out", "films").exit_code == 0
    assert (tmp_path / "films/job-0/result.mp4").read_text() == "film of job-0"
    assert json.loads((tmp_path / "films/job-0.json").read_text()).endswith("/job-0.mp4")


def test_results_of_the_same_id_at_two_services_are_two_files(shop: Shop, tmp_path: Path) -> None:
    with Shop() as other:
        urls = [f"{one.url}/v2/generate/job-0" for one in (shop, other)]
        result = bide(*urls, "--api", "sync.so", "--key", KEY, "--out", "films")
        assert result.exit_code == 0, result.stderr
        found = {json.loads(file.read_text()) for file in (tmp_path / "films").glob("job-0-*.json")}
        assert found == {f"{one.url}/v2/files/job-0.mp4" for one in (shop, other)}
    assert len(list((tmp_path / "films").glob("job-0-*/result.mp4"))) == 2


def test_files_that_a_description_names_are_saved_too(shop: Shop, tmp_path: Path) -> None:
    text = EXAMPLE.read_text() + '\n[[files]]\nname = "{body.id}.srt"\nurl = "outputUrl"\n'
    (tmp_path / "own.toml").write_text(text)
    result = bide("job-0", "--api", "own.toml", "--url", shop.url, "--key", KEY, "--out", "films")
    assert result.exit_code == 0, result.stderr
    assert sorted(p.name for p in (tmp_path / "films/job-0").iterdir()) == ["job-0.srt", "result.mp4"]


def test_headers_go_along_and_a_key_for_bide_does_not(
    shop: Shop, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIDE_KEY", "mine")
    assert at(shop, "job-0", "--header", "x-team: films", "--header", "x-b:c").exit_code == 0
    assert all((h["x-team"], h["x-b"], h["x-api-key"]) == ("films", "c", KEY) for h in shop.heard)
    assert "mine" not in str(shop.heard)
    service.script(1, says(job(1, result=1)))
    assert bide(job_id(1), "--url", service.url, "--header", "x-team: films").exit_code == 0
    assert {r.headers.get("x-team") for r in service.asked} == {"films"}


def test_a_missing_key_is_reported_with_the_name_of_its_variable(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SYNC_API_KEY")
    result = at(shop, "job-0")
    assert result.exit_code == 1
    assert "set SYNC_API_KEY" in result.stderr
    assert shop.heard == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("job-0", "--limit", "many"), "60/1m"),
        (("job-0", "--limit", "0/1m"), "above 0"),
        (("job-0", "--header", "no colon, and secret"), "NAME: VALUE"),
        (("job-0", "--header", "x: a\nb: c"), "NAME: VALUE"),
        (("job-0", "--size", "huge"), "small"),
        (("job-0", "--price", "0"), "--price"),
        (("job-0", "--expect", "-1"), "--expect"),
        (("job-0", "--api", "nobody"), "Known APIs: airflow"),
        (("job-0", "--api", "sync.os"), "There is no API 'sync.os'. Did you mean sync.so?"),
        (("@nothing.txt",), "There is no file nothing.txt."),
        (("job-0", "--api", "./nothing.toml"), "cannot be read"),
        (("../job", "--api", "sync.so"), "is not a valid job id"),
        (("ftp://x/1", "--api", "sync.so"), "not an http or https URL"),
        ((), "--ledger"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_right(args: tuple[str, ...], says: str) -> None:
    result = bide(*args)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "secret" not in result.stderr
    assert result.stdout == ""


def test_time_that_runs_out_is_3_and_outranks_a_failure(shop: Shop) -> None:
    shop.jobs["job-0"].ends = 3600.0
    result = at(shop, "job-0", "job-1", "--timeout", "1", "--json")
    assert result.exit_code == 3
    assert list(lines(result)) == ["job-1"]
    assert "job-0 did not end within 1 s" in result.stderr


def test_a_size_has_a_timeout_of_its_own(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TIMEOUTS, "small", 0.3)
    shop.jobs["job-0"].ends = 3600.0
    assert at(shop, "job-0", "--size", "small").exit_code == 3


def test_a_dear_request_is_made_less_often(shop: Shop) -> None:
    asked = []
    shop.jobs["job-0"].ends = 3600.0
    for price in ("0.001", "100"):
        shop.heard.clear()
        bide(
            *("job-0", "--api", str(EXAMPLE), "--url", shop.url, "--key", KEY),
            *("--price", price, "--limit", "100/1s", "--timeout", "1"),
        )
        asked.append(len(shop.heard))
    assert asked[0] > 3 * asked[1] > 0


def test_a_limit_holds_for_a_bide_service_as_well(service: FakeService) -> None:
    numbers = range(1, 4)
    for number in numbers:
        service.script(number, says(job(number, result=number)))
    began = time.monotonic()
    result = bide(*map(job_id, numbers), "--url", service.url, "--limit", "2/1s", "--json")
    assert (result.exit_code, len(lines(result))) == (0, 3)
    assert time.monotonic() - began > 0.4 * (len(service.asked) - 1)


# --- advice


@pytest.mark.parametrize(("limit", "times"), [("1/1s", 1), ("1000/1s", 0)])
def test_a_budget_that_is_too_small_is_said_once(
    limit: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "FIRST_ADVICE", 0.5)
    monkeypatch.setattr(command, "NEXT_ADVICE", 0.1)
    with Shop(100, "{ fixed = 60 }") as busy:
        result = at(busy, *busy.jobs, "--limit", limit, "--expect", "60", "--timeout", "1.5")
    assert result.exit_code == 3
    assert result.stderr.count("sync.so: the budget is too small") == times
    assert result.stderr.count("This is an estimate: no job has ended yet") == times


# --- the ledger


def test_what_could_not_be_done_is_done_again_without_asking(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "films").write_text("in the way")
    result = at(shop, "job-0", "--ledger", "l", "--exec", "false", "--json")
    assert (result.exit_code, list(lines(result))) == (1, ["job-0"])
    asked = len(shop.heard)
    result = bide("--ledger", "l", "--out", "results", "--exec", "cat >> told", "--json")
    assert (result.exit_code, list(lines(result))) == (0, ["job-0"])
    assert (tmp_path / "results/job-0/result.mp4").read_text() == "film of job-0"
    assert json.loads((tmp_path / "told").read_text())["jobId"] == "job-0"
    assert len(shop.heard) == asked
    result = bide("--ledger", "l", "--exec", "cat >> told")
    assert (result.exit_code, result.stdout) == (0, "")
    assert len((tmp_path / "told").read_text().splitlines()) == 1


def test_failures_that_were_reported_before_count(shop: Shop) -> None:
    assert at(shop, "job-1", "--ledger", "l", "--json").exit_code == 1
    result = at(shop, "job-0", "job-1", "--ledger", "l", "--json")
    assert (result.exit_code, list(lines(result))) == (1, ["job-0"])
    assert "1 had ended before, 1 of them failed" in result.stderr


def test_one_ledger_for_several_apis(shop: Shop, service: FakeService) -> None:
    service.script(1, says(job(1, "PROCESSING")), says(job(1, result=7)))
    with Shop(1, "{ fixed = 1.5 }") as other:
        assert at(other, "job-0", "--ledger", "l", "--timeout", "0.2").exit_code == 3
        assert bide(job_id(1), "--url", service.url, "--ledger", "l", "--timeout", "0").exit_code == 3
        result = at(shop, "job-0", "--ledger", "l", "--json")
        assert (result.exit_code, list(lines(result))) == (0, ["job-0"])
        assert "not waiting for 2 jobs of other APIs or addresses" in result.stderr
        result = bide("--ledger", "l")  # each place has its own settings
        assert (result.exit_code, result.stdout) == (3, "")
        assert "settings from the ledger for sync.so: --timeout 0" in result.stderr
        result = bide("--ledger", "l", "--json", "--header", "x-team: whose?", "--timeout", "60")
    assert result.exit_code == 0, result.stderr
    found = lines(result)
    assert {id: line["api"] for id, line in found.items()} == {"job-0": "sync.so", job_id(1): "bide"}
    assert found[job_id(1)]["result"] == 7
    assert all("x-team" not in heard for heard in other.heard)  # the user did not give it for this API


async def test_a_ledger_in_use_says_what_to_do(shop: Shop, tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "l")
    await ledger.open()
    result = await asyncio.to_thread(at, shop, "job-0", "--ledger", "l")
    await ledger.close()
    assert result.exit_code == 1
    assert "stop it or wait until it ends, or use another file" in result.stderr
    assert shop.heard == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:pw@host/0", "redis://***@host/0"),
        ("https://u:p@ss@host/", "https://***@host/"),
        ("https://x/?api_key=abc&n=1", "https://x/?api_key=***&n=1"),
        ("https://x/?n=1&sig=a%2Fb", "https://x/?n=1&sig=***"),
        ("postgresql://host/db?password=pw", "postgresql://host/db?password=***"),
        ("https://x/jobs?page=2", "https://x/jobs?page=2"),
    ],
)
def test_a_flag_is_shown_without_its_secrets(text: str, shown: str) -> None:
    assert masked(text) == shown
