"""Messages of the command line: the summary, trouble with the API, and errors that say what to do.

Tests with `process` run the real command as a process. The others run the same command in this process, which is faster.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from bide.cli import output, root
from bide.client.polling import failure_log
from tests.servers.ports import free_port
from tests.servers.warm import warm
from tests.unit.fake_service import FakeService, Reply, held, job, job_id, problem, text

KEY = "sk-0123456789-not-to-be-seen"
VENDOR = """
name = "vendor"
[auth]
kind = "bearer"
secret.env = "VENDOR_KEY"
[submit]
path = "/renders"
id = "id"
[ask]
path = "/renders/{id}"
[read]
status = "state"
live = ["running"]
done = ["ready"]
failed = ["broken"]
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but the test's own."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("BIDE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("VENDOR_KEY", KEY)
    (tmp_path / "vendor.toml").write_text(VENDOR)


@pytest.fixture
def server() -> Iterator[FakeService]:
    with FakeService() as running:
        yield running


def bide(*args: str) -> Result:
    result = CliRunner().invoke(root, list(args), prog_name="bide")
    assert KEY not in result.output + result.stderr
    return result


class Done(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def process(*args: str) -> Done:
    """The real command, as a process of its own."""
    done = subprocess.run(
        [warm().program, *args], capture_output=True, text=True, timeout=60, check=False
    )
    assert KEY not in done.stdout + done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def at(server: FakeService, command: str, *args: str, run: Callable[..., Any] = bide) -> Result | Done:
    found: Result | Done = run(command, *args, "--api", "vendor.toml", "--url", server.url, "--trust")
    return found


def renders(server: FakeService, **answers: Reply | list[Reply]) -> None:
    for name, replies in answers.items():
        many = replies if isinstance(replies, list) else [replies]
        server.on("GET", f"/renders/{name}", *many)


def says(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        return web.json_response(document, status=status, headers=headers)

    return reply


def state(name: str, **more: Any) -> Reply:
    return says({"state": name, **more})


# --- the summary, status changes and trouble


def test_a_summary_counts_jobs_and_requests(server: FakeService) -> None:
    crowded = says({"message": "too many"}, 429, {"Retry-After": "1"})
    renders(server, a=state("ready"), b=state("broken"), c=[crowded, state("ready")])
    result = at(server, "wait", "a", "b", "c", "--limit", "100/1s", run=process)
    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last == f"bide: 2 done, 1 failed, {len(server.asked)} requests, 1 refused"


def test_polling_processes_count_too(server: FakeService) -> None:
    crowded = says({"message": "too many"}, 429, {"Retry-After": "1"})
    renders(server, a=state("ready"), b=[crowded, state("ready")])
    result = at(server, "wait", "a", "b", "--limit", "100/1s", "--processes", "2")
    last = result.stderr.splitlines()[-1]
    assert last == f"bide: 2 done, 0 failed, {len(server.asked)} requests, 1 refused"


def test_what_has_not_ended_is_in_the_summary(server: FakeService) -> None:
    renders(server, a=state("running"))
    result = at(server, "wait", "a", "--timeout", "0.5")
    assert result.exit_code == 3
    summary = r"^bide: 0 done, 0 failed, 1 not ended, \d+ requests?, 0 refused$"
    assert re.search(summary, result.stderr, re.MULTILINE), result.stderr


@pytest.mark.parametrize("verbose", [True, False])
def test_status_changes_are_logged_with_v(server: FakeService, verbose: bool) -> None:
    renders(server, a=[state("running"), state("ready")])
    result = at(server, "wait", "a", "--price", "0.01", *(["-v"] if verbose else []), run=process)
    assert result.exit_code == 0
    assert ("bide: job a is running\n" in result.stderr) == verbose
    assert ("bide: job a is ready\n" in result.stderr) == verbose


def test_status_changes_of_a_bide_service_are_logged_with_v(server: FakeService) -> None:
    tag = {"ETag": '"1.0"'}
    waiting, running = (says(job(1, status), 200, tag) for status in ("PENDING", "PROCESSING"))
    server.on("POST", "/jobs", says(job(1, "PENDING"), 202))
    server.script(1, waiting, running, says(job(1, result=7)))
    result = bide("submit", "x", "--wait", "-v", "--url", server.url)
    assert (result.exit_code, result.stdout) == (0, "7\n")
    assert f"bide: job {job_id(1)} is PROCESSING\n" in result.stderr


# The real command, with a report of trouble after 0.3 s instead of 60 s.
HASTY = (
    "from bide.cli import main, output; from bide.client.polling import failure_log; "
    "failure_log.EVERY, output.AGAIN = 0.3, 0.2; main()"
)


def test_trouble_is_repeated_with_counts_and_its_end_is_reported(server: FakeService) -> None:
    never = threading.Event()
    bad = text(500, "upstream <b>failed</b>", "text/html")
    # The third request is open while three reports are due, so no failure is new.
    server.on("GET", "/renders/R-001", bad, bad, held({"state": "ready"}, never))
    server.on("GET", "/renders/R-002", state("ready"))
    given = ("--api", "vendor.toml", "--url", server.url, "--trust", "--timeout", "30")
    command = [sys.executable, "-c", HASTY, "wait", "R-001", "R-002", *given]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        lines: list[str] = []
        while (
            not re.search("; 2 failures since", lines[-1] if lines else "") or len(set(lines[-3:])) > 1
        ):
            lines.append(run.stderr.readline().rstrip("\n"))
            assert lines[-1], lines
        never.set()
        lines += run.stderr.read().splitlines()
    assert run.returncode == 0
    first = 'bide: GET …/R-001 returned 500 (not JSON: "upstream <b>failed</b>"). Retrying'
    assert lines.count(first) == 1
    repeated = [line for line in lines if line.startswith(f"{first}; ")]
    assert all(re.fullmatch(r".*; (1 failure|2 failures) since \d\d:\d\d", line) for line in repeated)
    assert lines[-2] == "bide: vendor answers again"  # not after an answer about another job


def test_the_same_warning_of_several_processes_is_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with output.LogPrinter(output.Terminal()):
        for text in ("one", "one", "two"):
            logging.getLogger("bide.client").warning(text)
    assert capsys.readouterr().err == "bide: one\nbide: two\n"


def test_trouble_is_repeated_at_least_every_minute() -> None:
    assert output.AGAIN < failure_log.EVERY <= 60


def test_a_service_that_is_away_is_trouble_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_log, "EVERY", 0.2)
    url = f"http://127.0.0.1:{free_port()}"
    result = bide("wait", "a", "--api", "vendor.toml", "--url", url, "--trust", "--timeout", "1")
    assert result.exit_code == 3
    assert f"bide: no answer from {url}: connection refused: no program listens there" in result.stderr
    assert re.search(r"Retrying; \d+ failures? since \d\d:\d\d", result.stderr)
    assert "bide serve" not in result.stderr


# --- errors


def test_an_error_without_a_message_quotes_the_answer(server: FakeService) -> None:
    answer = {"state": "broken", "because": "the film has no face", "token": KEY, "more": "x" * 300}
    renders(server, a=says(answer))
    result = at(server, "wait", "a", "--json", run=process)
    line = json.loads(result.stdout)
    message = line["error"]["message"]
    quote = message.partition("the API reports broken without a message: ")[2]
    assert quote.startswith('"{"state":"broken","because":"the film has no face","token":"[hidden]"')
    assert len(quote) <= 200 + len('""…')


def test_a_secret_at_the_end_of_the_quote_is_removed(server: FakeService) -> None:
    answer = {"state": "broken", "fill": "x" * 148, "token": KEY}
    renders(server, a=says(answer))
    message = json.loads(at(server, "wait", "a", "--json").stdout)["error"]["message"]
    assert message.endswith('[hidden]…"')
    assert KEY[:10] not in message


@pytest.mark.parametrize("command", ["wait", "status"])
@pytest.mark.parametrize(
    ("body", "kind", "quote"),
    [
        (f"<html>key {KEY}", "text/html", 'a web page: "<html>key [hidden]"'),
        (f'{{"token": "{KEY}', "application/json", ': "{"token": "[hidden]"'),
        (f"{'x' * 190}{KEY}", "text/plain", f'"{"x" * 190}[hidden]…"'),
    ],
)
def test_a_success_that_is_not_json_is_quoted_without_secrets(
    server: FakeService, command: str, body: str, kind: str, quote: str
) -> None:
    renders(server, a=text(200, body, kind))
    result = at(server, command, "a", *(["--timeout", "0.5"] if command == "wait" else []))
    assert result.exit_code == (3 if command == "wait" else 1)
    assert quote in result.stderr
    assert KEY[:5] not in result.stderr


@pytest.mark.parametrize(
    ("reply", "quote"),
    [
        (says({"reason": {"text": "no such model"}}, 400), '"{"reason": {"text": "no such model"}}"'),
        (text(400, "model?\n  which", "text/plain"), '"model? which"'),
        (says({"message": "unknown model"}, 400), "unknown model"),
        (text(400, f"bad {KEY}", "text/plain"), '"bad [hidden]"'),
    ],
)
def test_a_refused_submission_quotes_the_answer(server: FakeService, reply: Reply, quote: str) -> None:
    server.on("POST", "/renders", reply)
    result = at(server, "submit", "film")
    assert result.exit_code == 1
    assert quote in result.stderr


@pytest.mark.parametrize(
    ("status", "command", "run"),
    [
        (401, "wait", process),
        (403, "submit", process),
        *((401, command, bide) for command in ("status", "submit", "cancel")),
        *((403, command, bide) for command in ("status", "wait", "cancel")),
    ],
)
def test_a_refused_credential_names_its_variable(
    server: FakeService, status: int, command: str, run: Callable[..., Any]
) -> None:
    refused = says({"message": "go away"}, status)
    Path("vendor.toml").write_text(VENDOR + '[cancel]\npath = "/renders/{id}/cancel"\n')
    server.on("POST", "/renders", refused)
    renders(server, a=refused)
    result = at(server, command, "a", run=run)
    assert result.exit_code == 1
    assert "go away. The credential is from VENDOR_KEY." in result.stdout + result.stderr


def test_the_variable_of_a_header_is_named_too(
    server: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_KEY", KEY)
    auth = '[auth]\nkind = "none"\nheaders.X-Team.env = "TEAM_KEY"\n'
    Path("vendor.toml").write_text(f'name = "vendor"\n{auth}{VENDOR.partition("VENDOR_KEY")[2][2:]}')
    renders(server, a=says({"message": "go away"}, 401))
    assert "go away. The credential is from TEAM_KEY." in at(server, "wait", "a").stderr


def test_polling_processes_name_the_variable_too(server: FakeService) -> None:
    renders(server, a=says({"message": "go away"}, 401), b=says({"message": "go away"}, 401))
    result = at(server, "wait", "a", "b", "--processes", "2")
    assert "go away. The credential is from VENDOR_KEY." in result.stderr


def test_a_refused_credential_is_reported_once_and_no_job_has_failed(server: FakeService) -> None:
    renders(server, a=says({"message": "go away"}, 401), b=says({"message": "go away"}, 401))
    result = at(server, "wait", "a", "b")
    assert (result.exit_code, result.stdout) == (1, "")
    lines = [line for line in result.stderr.splitlines() if "credential" in line]
    assert lines == [
        "bide: The API rejected the credential: go away. The credential is from VENDOR_KEY."
    ]
    assert re.search(r"bide: 0 done, 0 failed, 2 not ended, \d requests?, 0 refused", result.stderr)


def test_a_key_that_was_passed_is_not_blamed_on_a_variable(server: FakeService) -> None:
    renders(server, a=says({"message": "go away"}, 401))
    result = at(server, "wait", "a", "--key", "another-key")
    assert "go away. The credential is the one that you passed." in result.stderr


@pytest.mark.parametrize(
    ("variable", "source"),
    [
        ("my-bide-key", "The credential is from BIDE_KEY."),
        (None, "No credential was sent: set BIDE_KEY."),
    ],
)
def test_a_proxy_before_a_service_names_the_variable(
    server: FakeService, monkeypatch: pytest.MonkeyPatch, variable: str | None, source: str
) -> None:
    if variable is not None:
        monkeypatch.setenv("BIDE_KEY", variable)
    server.on("GET", "/jobs", text(401, "<h1>Log in</h1>", "text/html"))
    result = bide("list", "--url", server.url)
    assert result.exit_code == 1
    assert f'"<h1>Log in</h1>". {source}' in result.stderr


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ('[auth]\nkind = "token"', "Use basic, bearer, header, none or oauth2"),
        ('[ask]\npath = "/x/{id}"\nencode = "xml"', "Use form, json or text"),
    ],
)
def test_a_wrong_value_in_a_description_lists_the_valid_ones(table: str, values: str) -> None:
    rest = "" if "[ask]" in table else '[ask]\npath = "/x/{id}"\n'
    text = f'name = "v"\n{table}\n{rest}[read]\nstatus = "s"\ndone = ["x"]\n'
    Path("v.toml").write_text(text)
    result = bide("api", "check", "v.toml")
    assert result.exit_code == 1
    assert values in result.stderr


def test_a_wrong_type_in_a_pipeline_lists_the_valid_ones() -> None:
    Path("p.toml").write_text(
        '[api]\nname = "sync.so"\n[[exports]]\nname = "x"\nkind = "x"\n'
        '[[exports.schema.columns]]\nname = "id"\ntype = "int"\n[exports.output]\npath = "x.csv"\n'
    )
    result = process("sync", "p.toml", "--check")
    assert result.exit_code == 2
    assert "'int'" in result.stderr
    assert "Use boolean, date, decimal, float, integer, json, string or timestamp" in result.stderr


def test_bide_serve_is_mentioned_only_for_a_bide_service() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert "is `bide serve` running there?" in process("list", "--url", url).stderr
    result = process("status", "a", "--api", "vendor.toml", "--url", url, "--trust")
    assert result.exit_code == 1
    assert f"no answer from {url}" in result.stderr
    assert "bide serve" not in result.stderr


@pytest.mark.parametrize(
    ("path", "answer", "says_what"),
    [
        ("state", {"id": "a", "status": "ready"}, "'state'; the response has: id, status"),
        ("job.state", {"job": {"id": "a", "phase": "x"}}, "'job.state'; job has: id, phase"),
        ("jobs.0.state", {"jobs": []}, "'jobs.0.state'; jobs is a list of 0"),
    ],
)
def test_a_wrong_path_of_the_status_says_which_keys_exist(
    server: FakeService, path: str, answer: Any, says_what: str
) -> None:
    Path("vendor.toml").write_text(VENDOR.replace('status = "state"', f'status = "{path}"'))
    renders(server, a=says(answer))
    result = at(server, "wait", "a", "--timeout", "0.5")
    assert f"the response has no status. `read.status` is {says_what}" in result.stderr
    check = bide("api", "check", "vendor.toml", "--trust", "--against", server.url, "--id", "a")
    assert f"`read.status` is {says_what}" in " ".join(check.stdout.split())


def test_an_unknown_status_names_the_job_and_the_table(server: FakeService) -> None:
    renders(server, a=[state("defrosting"), state("ready")])
    result = at(server, "wait", "a", "--price", "0.01", run=process)
    assert result.exit_code == 0
    assert (
        "Job a has the status 'defrosting', which the description of vendor does not have."
        in result.stderr
    )
    assert "Add the status to a list in [read] of the description" in result.stderr


def test_a_refusal_of_a_service_is_quoted_as_it_is(server: FakeService) -> None:
    server.on("GET", "/jobs", problem(422, "invalid-input"))
    result = bide("list", "--url", server.url)
    assert "422 invalid-input" in result.stderr


# The real command, with a default maximum wait of 0.3 s instead of seven days.
IMPATIENT = (
    "from bide.client import account; account.LONGEST_WAIT = 0.3; from bide.cli import main; main()"
)


@pytest.mark.parametrize("command", ["wait", "submit"])
def test_the_default_maximum_wait_names_the_option_of_the_command_line(
    server: FakeService, command: str
) -> None:
    renders(server, a=state("running"))
    server.on("POST", "/renders", says({"id": "a", "state": "running"}))
    given = ["a"] if command == "wait" else ["film", "--wait"]
    at = ["--api", "vendor.toml", "--url", server.url, "--trust"]
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, command, *given, *at],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert "the default maximum; it still runs. To wait longer, set `--timeout`\n" in done.stderr
